"""`ResumableOffPolicy`: checkpoints of an algorithm whose state is whole after every environment step."""

from __future__ import annotations

import io
import pathlib

from stable_baselines3.common.save_util import load_from_pkl, save_to_pkl

from poad_sb3.badq.policy import BADQPolicy
from poad_sb3.badq.replay import TransitionBuffer
from poad_sb3.common.base_class import LanguageModelAlgorithm


class ResumableOffPolicy(LanguageModelAlgorithm):
    """Off-policy algorithm with the replay buffer in its checkpoints.

    Unlike a rollout, a replay buffer is whole after every step, so a checkpoint can be written at any time. With
    `save(..., exclude=["replay_buffer"])` the file is small, and training can resume from it, but not as if it had
    never stopped.
    """

    policy: BADQPolicy
    replay_buffer: TransitionBuffer
    buffer_size: int

    def save_replay_buffer(self, path: str | pathlib.Path | io.BufferedIOBase) -> None:
        """Write the replay buffer alone; for SB3's `CheckpointCallback(save_replay_buffer=True)`."""
        save_to_pkl(path, self.replay_buffer, self.verbose)

    def load_replay_buffer(self, path: str | pathlib.Path | io.BufferedIOBase) -> None:
        """Replace the replay buffer by one that `save_replay_buffer` wrote. Load trusted files only: it is a pickle.

        Raises:
            ValueError: If the buffer has another size or number of environments, or the file holds no replay buffer.
        """
        kept = load_from_pkl(path, self.verbose)
        if not isinstance(kept, TransitionBuffer):
            raise ValueError(  # noqa: TRY004 - of a file, not of an argument
                f"Expected a replay buffer that save_replay_buffer() wrote; got {type(kept).__name__}. "
                "Fix: pass the path of one."
            )
        self._check_replay_buffer(kept)
        kept.leave_episodes()
        self.replay_buffer = kept

    def _check_replay_buffer(self, kept: TransitionBuffer) -> None:
        if kept.capacity != self.buffer_size:
            raise ValueError(
                f"Expected buffer_size={kept.capacity}, that of the saved replay buffer; got {self.buffer_size}. "
                "Fix: leave it out, or save with exclude=['replay_buffer']."
            )
        if kept.n_envs != self.n_envs:  # whose steps lie in it in turn
            raise ValueError(
                f"Expected {kept.n_envs} environments, as many as fill the saved replay buffer; got {self.n_envs}. "
                "Fix: pass that many, or save with exclude=['replay_buffer']."
            )

    def _leave_episodes(self) -> None:
        self.replay_buffer.leave_episodes()

    def _is_exact(self, left_out: set[str]) -> bool:
        return super()._is_exact(left_out) and "replay_buffer" not in left_out

    def _excluded_save_params(self) -> list[str]:
        return [name for name in super()._excluded_save_params() if name != "replay_buffer"]
