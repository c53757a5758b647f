"""`ResumableOffPolicy`: checkpoints of an algorithm whose state is whole after every environment step."""

from __future__ import annotations

from poad_sb3.badq.policy import BADQPolicy
from poad_sb3.badq.replay import TransitionBuffer
from poad_sb3.base import LanguageModelAlgorithm

__all__ = ["ResumableOffPolicy"]


class ResumableOffPolicy(LanguageModelAlgorithm):
    """A checkpoint holds the replay buffer too.

    Unlike a rollout, a replay buffer is whole after every step, so a checkpoint can be written at any time. With
    `save(..., exclude=["replay_buffer"])` the file is small, and training can go on from it, but not as if it had never
    stopped.
    """

    policy: BADQPolicy
    replay_buffer: TransitionBuffer

    def _leave_episodes(self) -> None:
        self.replay_buffer.leave_episodes()

    def _is_exact(self, left_out: set[str]) -> bool:
        return super()._is_exact(left_out) and "replay_buffer" not in left_out

    def _excluded_save_params(self) -> list[str]:
        return [name for name in super()._excluded_save_params() if name != "replay_buffer"]
