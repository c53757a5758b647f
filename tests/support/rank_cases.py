"""Trainings for a number of ranks: digests of all that a training leaves.

`python -c "import rank_cases; rank_cases.run()" N NAME...` starts N ranks; rank 0 writes them, as JSON. As the main
module this file would be imported by each process of `SubprocVecEnv`, and with it the packages of models.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import ray_users  # noqa: F401 - registers Spelling
import torch
from forked_ranks import forked_ranks
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import SubprocVecEnv

from poad_sb3 import GRPO, POAD, TWOSOME
from poad_sb3.common.on_policy_algorithm import LLMOnPolicyAlgorithm
from poad_sb3.distributed import end_ranks, start_ranks
from poad_sb3.vec_env.make_envs import make_envs

KEYS = {"k": 1, "d": 0}
LISTED: dict[str, Any] = {
    "n_steps": 4,
    "n_epochs": 2,
    "batch_size": 32,
    "policy_kwargs": {"max_tokens_per_forward": 256},
}
FREE: dict[str, Any] = {"n_steps": 2, "n_epochs": 2, "batch_size": 16, "max_new_tokens": 12, "action_sampling": "free"}
THINK = {"action_sampling": "think", "max_thought_tokens": 8, "n_steps": 2}
CASES: dict[str, tuple[type[LLMOnPolicyAlgorithm], str, dict[str, Any], dict[str, Any]]] = {
    "POAD, trie": (POAD, "MultiKey-v0", KEYS, LISTED),
    "POAD, marginal critic": (POAD, "MultiKey-v0", KEYS, {**LISTED, "critic": "marginal"}),
    "GRPO, trie": (GRPO, "MultiKey-v0", KEYS, LISTED),
    "TWOSOME, candidates": (TWOSOME, "VirtualHome-FoodPreparation-v0", {}, LISTED),
    "POAD, think": (POAD, "MultiKey-v0", KEYS, {**LISTED, **THINK}),
    "POAD, free": (POAD, "RayUsers/Spelling-v0", {}, FREE),
    "POAD, SubprocVecEnv": (POAD, "MultiKey-v0", KEYS, LISTED),
    "GRPO, free": (
        GRPO,
        "RayUsers/Spelling-v0",
        {},
        {**FREE, "max_new_tokens": 8, "n_epochs": 1, "ratio": "sequence"},
    ),
}
N_ENVS = 16


def _tensors(state: Any) -> Any:
    """Return nested state with tensors as bytes, in a fixed order."""
    if isinstance(state, torch.Tensor):
        return hashlib.sha256(state.detach().cpu().flatten().numpy().tobytes()).hexdigest()
    if isinstance(state, dict):
        return [(str(name), _tensors(part)) for name, part in sorted(state.items(), key=lambda item: str(item[0]))]
    if isinstance(state, set | frozenset):  # their order differs from process to process
        return sorted(map(repr, state))
    return [_tensors(part) for part in state] if isinstance(state, list | tuple) else repr(state)


def digests(model: Any) -> dict[str, str]:
    """Return a digest of each part of a training: weights, optimizers, generators, counters and environment states."""
    policy = model.policy
    captured = model._capture()
    parts = {
        "weights": policy.state_dict(),
        "optimizer": policy.optimizer.state_dict(),
        "critic": None if policy.critic_optimizer is None else policy.critic_optimizer.state_dict(),
        "generators": {name: captured[name] for name in ("rng", "rollout_rngs", "predict_rng", "shuffle_rng")},
        "counters": (model.num_timesteps, model._n_updates, model._episode_num),
        "environments": captured["envs"],
    }
    return {name: hashlib.sha256(repr(_tensors(part)).encode()).hexdigest()[:16] for name, part in parts.items()}


def make(name: str, ranks: Any) -> Any:
    """Make the algorithm of a case."""
    algorithm, env_id, env_kwargs, arguments = CASES[name]
    envs: Any = env_id
    if ranks.is_first and name.endswith("SubprocVecEnv"):
        envs = make_vec_env(f"lang_envs:{env_id}", 2, env_kwargs=env_kwargs, vec_env_cls=SubprocVecEnv)
    elif ranks.is_first:
        envs = make_envs(env_id, env_kwargs, N_ENVS)
    return algorithm("LLMPolicy", envs, seed=3, **arguments)


def trainings(names: Iterable[str], ranks: Any, folder: Path) -> dict[str, dict[str, str]]:
    """Return the digests of these cases, on rank 0."""
    results = {}
    for name in names:
        model = make(name, ranks)
        untrained = digests(model)["weights"] if ranks.is_first else ""
        model.learn(3 * model.n_steps * model.n_envs)
        path = folder / "model.zip"
        model.save(path)  # by all ranks; rank 0 writes
        if ranks.is_first:
            results[name] = digests(model)
            assert results[name]["weights"] != untrained, name
        again = type(model).load(path, None)  # each rank reads it
        results.get(name, {})["loaded"] = str(again.num_timesteps == model.num_timesteps)
        model.env.close()
    return results


def main(names: list[str]) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    ranks, folder = start_ranks(int(os.environ["WORLD_SIZE"])), Path(os.environ["RANK_CASES_OUT"])
    results = trainings(names, ranks, folder)
    if ranks.is_first:
        (folder / "digests.json").write_text(json.dumps(results))
    end_ranks()


def run() -> None:
    forked_ranks(int(sys.argv[1]), lambda: main(sys.argv[2:]))
