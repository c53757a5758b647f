"""TRL: a task as the environment of `GRPOTrainer`, with one tool, `act`.

TRL asks for one reward of an episode, and knows no end of it: `act` answers "The episode is over." from then on.
Rewards of the single steps, success and truncation are in `Task.env`. This module imports no package.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lang_envs.bridges.text_env import OVER, TextEnv


def environment_factory(task: str, **kwargs: Any) -> Callable[[], Any]:
    """Return the `environment_factory` of `GRPOTrainer` for a task.

    Args:
        task: Id of the environment.
        **kwargs: Arguments of `TextEnv`.
    """
    # Every public function of the class but `reset` and `get_reward` would be a tool.
    return lambda: Task(TextEnv(task, **kwargs))


class Task:
    """An episode that a language model plays by calling tools.

    Args:
        env: Environment to play.
    """

    def __init__(self, env: TextEnv) -> None:
        self.env = env

    def reset(self, seed: int | None = None, **row: Any) -> str:
        """Begin an episode and return its first observation, for the end of the prompt.

        Args:
            seed: Seed of the episode: the column `seed` of the data set.
            **row: Other columns, which are ignored.
        """
        return self.env.reset(seed=None if seed is None else int(seed))[0]

    def act(self, command: str) -> str:
        """Do an action in the world and see what happens.

        Args:
            command: The action in words, one of those that are listed.

        Returns:
            What you see after the action.
        """
        if self.env.is_over:
            return OVER
        text, _, terminated, truncated, _ = self.env.step(command)
        return f"{text}\n{OVER}" if terminated or truncated else text

    def get_reward(self) -> float:
        """Return the sum of the rewards of the episode."""
        return self.env.episode_return


def rows(n: int, prompt: str = "Play the episode: call the tool act once in each turn.\n\n") -> list[Mapping[str, Any]]:
    """Return the rows of a data set with n episodes, for `datasets.Dataset.from_list`.

    Args:
        n: Number of rows; row i is the episode with seed i.
        prompt: Text before the first observation.
    """
    return [{"prompt": [{"role": "user", "content": prompt}], "seed": seed} for seed in range(n)]
