"""`ResumableRollouts`: checkpoints of an algorithm that learns from whole rollouts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm

from poad_sb3 import checkpoints
from poad_sb3.base import LanguageModelAlgorithm
from poad_sb3.buffers import TokenRolloutBuffer
from poad_sb3.policies import LLMPolicy

__all__ = ["ResumableRollouts"]


class ResumableRollouts(LanguageModelAlgorithm, OnPolicyAlgorithm):
    """A checkpoint holds the rollout too, if it was taken between a rollout and its update."""

    policy: LLMPolicy  # type: ignore[assignment]  # SB3 names its own actor-critic class
    rollout_buffer: TokenRolloutBuffer

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - SB3's own arguments
        self._collecting = False
        self._waiting_saves: list[tuple[checkpoints.Target, Any, Any]] = []
        self._update_is_due = False
        super().__init__(*args, **kwargs)

    def save(
        self,
        path: checkpoints.Target,
        exclude: Iterable[str] | None = None,
        include: Iterable[str] | None = None,
    ) -> None:
        """Write a checkpoint from which training continues as if it had never stopped.

        The file is written beside `path` and moved into place, so a crash leaves the previous checkpoint whole. Called
        in the middle of a rollout (by a callback), the file is written when that rollout is complete: the weights are
        those of the call, and the update on the rollout is the first thing the resumed training does.

        Args:
            path: Path (`.zip` is added) or binary file object.
            exclude: Attributes to leave out, as in SB3.
            include: Attributes to keep although they are left out by default, as in SB3.
        """
        if self._collecting:
            self._waiting_saves.append((path, exclude, include))
        else:
            super().save(path, exclude, include)

    def _commit_saves(self) -> None:
        self._collecting = False
        waiting, self._waiting_saves = self._waiting_saves, []
        for path, exclude, include in waiting:
            super().save(path, exclude, include)

    def _capture(self) -> dict[str, Any]:
        rollout = self.rollout_buffer.get_state() if self._update_is_due else None
        return {**super()._capture(), "rollout": rollout}

    def _restore(self, captured: dict[str, Any]) -> None:
        super()._restore(captured)
        if captured["rollout"] is not None:
            self.rollout_buffer.set_state(captured["rollout"])

    def _excluded_save_params(self) -> list[str]:
        return [
            *super()._excluded_save_params(),
            "_collecting",
            "_waiting_saves",
            "stopwatch",
            "_chosen_defaults",
            "critic_lr_schedule",
        ]
