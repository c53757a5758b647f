"""Digests of weights after three updates with fixed seeds: equal before and after an edit that must not change results.

Floating-point results depend on the processor and the thread count, so two commits are compared on one machine:
`OMP_NUM_THREADS=1 python tests/support/digests.py > a.txt` in each checkout, then `diff`. A digest does not
depend on the names of parameters.
"""

import hashlib
import os
import warnings

os.environ.setdefault("OMP_NUM_THREADS", "1")

from typing import Any

import gymnasium as gym

import lang_envs  # noqa: F401
import poad_sb3

FOOD, TOMATO = "VirtualHome-FoodPreparation-v0", "Overcooked-TomatoSalad-v0"
TLS, KEYS = "Overcooked-TomatoLettuceSalad-v0", "KeyToken-v0"
BALANCE, IRIS = "DataSciCoding-balance-scale-v0", "DataSciCoding-iris-v0"
LISTED: dict[str, Any] = {"n_steps": 32, "batch_size": 16}
TRIE = LISTED | {"action_sampling": "trie"}
CANDIDATES = LISTED | {"action_sampling": "candidates"}
FREE: dict[str, Any] = {
    "n_steps": 8,
    "batch_size": 4,
    "action_sampling": "free",
    "policy_kwargs": {"model": "pocket-coder"},
}
BADQ: dict[str, Any] = {"learning_starts": 16}
WHOLE = {"micro_batches": 1}
"""Passes as before there were micro-batches."""

CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("POAD", FOOD, LISTED),
    ("NTPO", FOOD, LISTED),
    ("TWOSOME", FOOD, LISTED),
    ("ARCHER", FOOD, LISTED),
    ("GLAM", FOOD, LISTED),
    ("BADQ", FOOD, BADQ),
    ("POAD", TOMATO, TRIE),
    ("NTPO", TOMATO, TRIE),
    ("ARCHER", TOMATO, TRIE),
    ("POAD", TOMATO, CANDIDATES),
    ("NTPO", TOMATO, CANDIDATES),
    ("TWOSOME", TOMATO, CANDIDATES),
    ("BADQ", TOMATO, BADQ),
    ("POAD", TLS, LISTED),
    ("NTPO", TLS, LISTED),
    ("ARCHER", TLS, LISTED),
    ("POAD", KEYS, LISTED),
    ("POAD", BALANCE, FREE),
    ("NTPO", BALANCE, FREE),
    ("ARCHER", BALANCE, FREE),
    ("POAD", IRIS, FREE),
]


def digest(model: Any) -> str:
    """Return a digest of all trained parameters, independent of their names."""
    tensors = [p.detach().cpu().numpy().tobytes() for p in model.policy.parameters() if p.requires_grad]
    return hashlib.sha256(b"".join(sorted(hashlib.sha256(t).digest() for t in tensors))).hexdigest()[:16]


def main() -> None:
    """Train every case and print its digest."""
    warnings.simplefilter("ignore")
    for name, env_id, arguments in CASES:
        model = getattr(poad_sb3, name)(
            "LLMPolicy", gym.make(env_id), seed=3, **({} if name == "BADQ" else WHOLE), **arguments
        )
        model.learn(3 * arguments.get("n_steps", 32))
        print(name, env_id, arguments.get("action_sampling", "default"), digest(model), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
