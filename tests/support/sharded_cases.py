"""Trainings with weights that two ranks share (FSDP2), and the same in one process; run as `rank_cases`."""

from __future__ import annotations

import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from forked_ranks import forked_ranks
from stable_baselines3.common.callbacks import BaseCallback

from poad_sb3 import POAD
from poad_sb3.bc import BC, oracle_episodes
from poad_sb3.distributed import end_ranks, start_ranks
from poad_sb3.distributed.sharding import whole
from poad_sb3.language_model import lm_head
from poad_sb3.vec_env.make_envs import make_envs

CASES: dict[str, dict[str, Any]] = {
    "lora": {},
    "all weights": {"lora": None, "critic_trunk": "live"},
    "bfloat16": {"dtype": "bfloat16"},
    "free text": {},
}
N_UPDATES = {"lora": 20, "all weights": 20, "bfloat16": 3, "free text": 3}
N_ENVS = 8
KEYS = {"k": 1, "d": 0, "invalid_action_reward": -0.1}
"""A free text is an invalid action: without a reward its value would be learned from the beginning."""
FREE = {"action_sampling": "free", "max_new_tokens": 16}
"""Settings of the case "free text"; its logits are made in slices, of which the ranks have different numbers."""
SETTINGS: dict[str, Any] = {
    "n_steps": 4, "batch_size": 32, "n_epochs": 1, "n_critic_epochs": 1, "target_kl": None, "learning_rate": 3e-5,
}  # fmt: skip
"""At three times the rate differences of rounding grow to 3e-4 in 20 updates of all weights."""


class Losses(BaseCallback):
    """Keeps the losses of each update."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[float, ...]] = []

    def _on_rollout_start(self) -> None:
        values = self.logger.name_to_value
        if "train/value_loss" in values:
            self.seen.append((*(values[f"train/{name}"] for name in ("value_loss", "entropy", "policy_grad_norm")),))

    _on_training_end = _on_rollout_start  # the losses of the last update

    def _on_step(self) -> bool:
        return True


def trainings(ranks: Any, folder: Path) -> dict[str, Any]:
    """Return the losses and the sums of weights of each case."""
    results: dict[str, Any] = {}
    size = ranks.size
    for name, chosen in CASES.items():
        policy_kwargs = {"max_tokens_per_forward": 256, "fsdp": size > 1, **chosen}
        envs: Any = make_envs("MultiKey-v0", KEYS, N_ENVS) if ranks.is_first else "MultiKey-v0"
        settings = {**SETTINGS, **FREE} if name == "free text" else SETTINGS
        lm_head.SLICE_LOGITS = 1 << 12 if name == "free text" else 1 << 22
        model = POAD("LLMPolicy", envs, seed=1, policy_kwargs=policy_kwargs, **settings)
        losses = Losses()
        model.learn(N_UPDATES[name] * 4 * N_ENVS, callback=losses, log_interval=10**6)
        path = folder / f"{name}.zip"
        model.save(path)
        again = POAD.load(path)  # into shards, where there are some
        weights, moments = whole(again.policy.state_dict()), whole(again.policy.optimizer.state_dict())
        same = [torch.equal(tensor, other) for tensor, other in zip(
            [*weights.values(), *(m for state in moments["state"].values() for m in state.values())],
            [*whole(model.policy.state_dict()).values(),
             *(m for state in whole(model.policy.optimizer.state_dict())["state"].values() for m in state.values())],
            strict=True)]  # fmt: skip
        sums = {n: float(t.double().sum()) for n, t in weights.items() if not n.startswith("critic")}
        results[name] = {"losses": losses.seen, "loaded": all(same) and len(same) > 4, "sums": sums}
    model = POAD("LLMPolicy", "MultiKey-v0", seed=1, policy_kwargs={"max_tokens_per_forward": 256, "fsdp": size > 1})
    BC(model, oracle_episodes("MultiKey-v0", 1), batch_size=64).train(1, 0)
    weights = whole(model.policy.state_dict())
    results["cloned"] = {n: float(t.double().sum()) for n, t in weights.items() if not n.startswith("critic")}
    return results


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    ranks, folder = start_ranks(int(os.environ["WORLD_SIZE"])), Path(os.environ["RANK_CASES_OUT"])
    results = trainings(ranks, folder)
    if ranks.is_first:
        (folder / "losses.json").write_text(json.dumps(results))
    end_ranks()


def run() -> None:
    forked_ranks(int(sys.argv[1]), main)
