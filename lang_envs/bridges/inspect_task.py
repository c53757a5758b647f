"""Inspect: a task as `inspect eval lang_envs/bridges/inspect_task.py -T env_id=ID` (extra `inspect`).

A sample is an episode. Its score is the return; success, truncation and the rewards of the steps are in the metadata of
the score.
"""

from __future__ import annotations

from typing import Any

from lang_envs.bridges.text_env import TextEnv
from lang_envs.errors import missing_extra

try:
    from inspect_ai import Task, task
    from inspect_ai.dataset import Sample
    from inspect_ai.model import ChatMessageUser
    from inspect_ai.scorer import Score, Target, mean, scorer, stderr
    from inspect_ai.solver import Generate, TaskState, solver
except ImportError as error:
    raise missing_extra("inspect", "the package inspect-ai, whose task this is") from error


@solver  # type: ignore[misc, untyped-decorator, unused-ignore]
def episode(env_id: str, **kwargs: Any) -> Any:
    """Let the model play the episode of the sample's seed."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        with TextEnv(env_id, **kwargs) as env:
            text, _ = env.reset(seed=state.metadata["seed"])
            try:
                while not env.is_over:
                    state.messages.append(ChatMessageUser(content=text))
                    state = await generate(state)
                    text, *_ = env.step(state.output.completion)
            finally:  # a limit of Inspect's ends the solver by an exception, and the sample is scored
                state.metadata.update(
                    episode_return=env.episode_return, success=env.success, truncated=env.truncated, rewards=env.rewards
                )
        return state

    return solve


@scorer(metrics=[mean(), stderr()])  # type: ignore[misc, untyped-decorator, unused-ignore]
def episode_return() -> Any:
    """Score an episode by its return."""

    async def score(state: TaskState, target: Target) -> Score:
        about = {name: state.metadata[name] for name in ("success", "truncated", "rewards")}
        return Score(value=state.metadata["episode_return"], metadata=about)

    return score


@task  # type: ignore[misc, untyped-decorator, unused-ignore]
def lang_env(env_id: str = "Overcooked-TomatoSalad-v0", episodes: int = 10) -> Task:
    """Return a task of episodes with the seeds 0, 1, ..."""
    prompt = "You act in a world of texts. Answer with one action."
    samples = [Sample(input=prompt, metadata={"seed": seed}) for seed in range(episodes)]
    return Task(dataset=samples, solver=episode(env_id), scorer=episode_return())
