"""`RankCallback`: calls callbacks on rank 0, while the other ranks wait for their outcome."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback, CallbackList

from poad_sb3.distributed.ranks import Ranks


class RankCallback(BaseCallback):
    """Stands for the callbacks of a training on every rank: rank 0 calls them, and all learn whether to continue.

    Callbacks evaluate and save as in one process. One that changes the model changes it on rank 0 only; the comparison
    of weights before the next rollout then ends the training.

    Args:
        make: Function that makes the callbacks, called on rank 0.
        model: Algorithm of the training.
        ranks: Ranks of the training.
    """

    def __init__(self, make: Callable[[], BaseCallback], model: BaseAlgorithm, ranks: Ranks) -> None:
        super().__init__()
        self._callback: BaseCallback = CallbackList([])
        self._ranks = ranks

        def keep() -> None:
            self._callback = make()

        ranks.on_rank_zero("callbacks", keep)
        self.init_callback(model)

    def on_training_start(self, locals_: dict[str, Any], globals_: dict[str, Any]) -> None:
        """See `BaseCallback.on_training_start`."""
        self._ranks.on_rank_zero("on_training_start", lambda: self._callback.on_training_start(locals_, globals_))

    def on_rollout_start(self) -> None:
        """See `BaseCallback.on_rollout_start`."""
        self._ranks.on_rank_zero("on_rollout_start", self._callback.on_rollout_start)

    def on_step(self) -> bool:
        """See `BaseCallback.on_step`."""
        return self._ranks.on_rank_zero("on_step", self._callback.on_step)

    def on_rollout_end(self) -> None:
        """See `BaseCallback.on_rollout_end`."""
        self._ranks.on_rank_zero("on_rollout_end", self._callback.on_rollout_end)

    def on_training_end(self) -> None:
        """See `BaseCallback.on_training_end`."""
        self._ranks.on_rank_zero("on_training_end", self._callback.on_training_end)

    def _on_step(self) -> bool:
        return True

    def update_locals(self, locals_: dict[str, Any]) -> None:
        """See `BaseCallback.update_locals`."""
        if self._ranks.is_first:
            self._callback.update_locals(locals_)
