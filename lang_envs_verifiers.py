"""verifiers: a task set of episodes, `vf-eval lang_envs_verifiers --env.taskset.env_id ID`.

A module at the top level, since the loader of verifiers refuses dotted names. It needs verifiers in a Python
environment of its own (openai<3), beside `lang_envs` alone. Rewards of the steps are in `trace.info`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import verifiers.v1 as vf

from lang_envs.bridges.text_env import TextEnv

__all__ = ["LangEnvsEnv", "LangEnvsTaskset"]


class LangEnvsConfig(vf.TasksetConfig):  # type: ignore[misc]  # the package is not installed for type checks
    """Settings of the task set: the id of the environment."""

    env_id: str = "Overcooked-TomatoSalad-v0"


class EpisodeData(vf.TaskData):  # type: ignore[misc]
    """Id of the environment and seed of the episode."""

    info: dict[str, Any]


class EpisodeTask(vf.Task[EpisodeData, vf.State, vf.TaskConfig]):  # type: ignore[misc]
    """An episode."""


class LangEnvsEnvConfig(vf.EnvConfig):  # type: ignore[misc]
    """Settings of the player."""

    player: vf.AgentConfig = vf.AgentConfig()


class LangEnvsEnv(vf.Env[LangEnvsEnvConfig]):  # type: ignore[misc]
    """Plays an episode, the environment being the user."""

    async def run(self, task: Any, agents: Any) -> None:
        """Play until the episode, or the exchange, is over."""
        env = TextEnv(task.data.info["env_id"])
        text, _ = env.reset(seed=task.data.info["seed"])
        async with agents.player.interaction(task) as interaction:
            turn = await interaction.turn(text)
            while not turn.terminated:
                text, *_ = env.step(turn.last_reply)
                if env.is_over:
                    break
                turn = await interaction.turn(text)
        trace = interaction.trace
        trace.record_reward("episode_return", env.episode_return, 1.0)
        trace.info.update(rewards=env.rewards, success=env.success, truncated=env.truncated)
        env.close()


class LangEnvsTaskset(vf.Taskset[EpisodeTask, LangEnvsConfig]):  # type: ignore[misc]
    """Episodes with the seeds 0, 1, ..."""

    INFINITE = True

    def load(self) -> Iterator[EpisodeTask]:
        """Yield the episodes."""
        for seed in itertools.count():
            info = {"env_id": self.config.env_id, "seed": seed}
            data = EpisodeData(name=f"{self.config.env_id}#{seed}", prompt=None, info=info)
            yield EpisodeTask(data, self.config.task)
