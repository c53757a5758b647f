"""`RankCallback`: calls callbacks on rank 0, while the other ranks wait for their outcome."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import torch
from stable_baselines3.common.callbacks import BaseCallback, CallbackList
from torch.distributed.tensor import DTensor

from poad_sb3.distributed.ranks import Ranks
from poad_sb3.settings import CreditSettings, PPOSettings, SamplingSettings


class RankCallback(BaseCallback):
    """Stands for the callbacks of a training on every rank: rank 0 calls them, and all learn whether to continue.

    Callbacks evaluate and save as in one process. One that changes the model changes it on rank 0 only; the comparison
    of weights before the next rollout then ends the training.

    Args:
        make: Function that makes the callbacks, called on rank 0.
        model: Algorithm of the training.
        ranks: Ranks of the training.
    """

    def __init__(self, make: Callable[[], BaseCallback], model: Any, ranks: Ranks) -> None:
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
        require_equal_training(self.model, self._ranks)
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


def require_equal_training(model: Any, ranks: Ranks) -> None:
    """Compare weights, settings, kinds of passes and generators of the ranks: a difference would go unnoticed.

    Args:
        model: On-policy algorithm.
        ranks: Ranks of the training.

    Raises:
        RankError: If they differ.
    """
    digest = hashlib.sha256()
    for tensor in model.policy.state_dict().values():
        if not isinstance(tensor, DTensor):  # of which each rank has another part
            digest.update(tensor.detach().cpu().flatten().view(torch.uint8).numpy().tobytes())
    generators = [rng.bit_generator.state for rng in (*model.policy.rollout_rngs, model._shuffle_rng)]
    names = [name for kind in (PPOSettings, CreditSettings, SamplingSettings) for name in kind.defaults()]
    settings = {name: getattr(model, name) for name in names if not callable(getattr(model, name))}
    lm = model.policy.lm
    passes = (lm.plain_passes, lm.packs_trees, lm.caches)  # found by checks on each machine
    digest.update(repr((model.num_timesteps, generators, settings, passes)).encode())
    ranks.require_equal("weights, settings, kinds of passes and random generators", digest.hexdigest())
