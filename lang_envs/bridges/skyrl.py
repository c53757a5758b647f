"""SkyRL-gym: a task as a `BaseTextEnv` (extra `skyrl`, in a Python environment of its own).

Register it with `skyrl_gym.register(id="lang_envs", entry_point="lang_envs.bridges.skyrl:SkyRLEnv")`. Rows of the data
set name the task in `extras["task"]` and the seed in `extras["seed"]`. SkyRL knows one flag for the end: whether it was
a truncation, and success, are in the `metadata` of the step and in the metrics.
"""

from __future__ import annotations

from typing import Any

from skyrl_gym.envs.base_text_env import BaseTextEnv

from lang_envs.bridges.text_env import TextEnv

Messages = list[dict[str, str]]


class SkyRLEnv(BaseTextEnv):  # type: ignore[misc]  # the package is not installed for type checks
    """An episode of a task.

    Args:
        env_config: Settings of SkyRL, unused.
        extras: Row of the data set: `task`, `seed`, `max_turns` and `env_kwargs`, arguments of `TextEnv`.
    """

    def __init__(self, env_config: Any = None, extras: dict[str, Any] | None = None) -> None:
        super().__init__()
        row = extras or {}
        limit = {"max_turns": row.get("max_turns")}  # of the trainer, which leaves it to the environment
        self._env, self._seed = TextEnv(row["task"], **{**limit, **row.get("env_kwargs", {})}), row.get("seed")

    def init(self, prompt: Messages) -> tuple[Messages, dict[str, Any]]:
        """Begin the episode; its first observation is the end of the prompt."""
        text, _ = self._env.reset(seed=self._seed)
        return [*prompt, {"role": "user", "content": text}], {}

    def step(self, action: str) -> Any:
        """Do the action that an answer means."""
        text, reward, terminated, truncated, info = self._env.step(action)
        self.turns += 1
        is_over = terminated or truncated
        return {
            "observations": [] if is_over else [{"role": "user", "content": text}],
            "reward": reward,
            "done": is_over,
            "metadata": {
                "truncated": truncated,
                "success": self._env.success,
                "invalid_action": bool(info["invalid_action"]),
            },
        }

    def get_metrics(self) -> dict[str, Any]:
        """Return success, truncation, return and length of the episode."""
        return {
            "success": float(self._env.success),
            "truncated": float(self._env.truncated),
            "episode_return": self._env.episode_return,
            "n_actions": len(self._env.rewards),
        }

    def close(self) -> None:
        """Close the environment."""
        self._env.close()
