"""Attacks on `DataSciCoding-generated-v0`: the seed reveals the labels to code that knows it, random bits do not."""

from __future__ import annotations

import ast
import base64
import inspect
import zlib
from functools import cache

import gymnasium as gym
import pytest

import lang_envs  # noqa: F401 - registers the ids
from lang_envs.datasets import generated
from lang_envs.envs.datascicoding.evaluation import Status

N_SEEDS = 100_000
HONEST = """
from sklearn.ensemble import HistGradientBoostingClassifier
model = HistGradientBoostingClassifier(max_iter=10, random_state=0).fit(x_train, y_train)
"""
SEARCH = """
import base64, zlib

class Memory:
    def predict_proba(self, x):
        return np.eye(n_classes)[[known[row.tobytes()] for row in x]]

library = {"__name__": "library"}
exec(zlib.decompress(base64.b85decode(%r)), library)
shape, n_classes = x_train.shape, len(np.unique(y_train))
for seed in range(%d):
    key = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed))).bytes(16)
    stream = library["_Stream"](key)
    if stream.integer(200, 600) // 2 != shape[0] or stream.integer(4, 12) != shape[1]:
        continue
    x, y, _ = library["draw_table"](key)
    known = dict(zip((row.tobytes() for row in x), y))
    if all(row.tobytes() in known for row in x_train):
        model = Memory()
        break
"""


@cache
def attack() -> str:
    """Honest code that is replaced by a memory of the labels if the table is that of one of the seeds."""
    tree = ast.parse(inspect.getsource(generated))
    tree.body = [
        node
        for node in tree.body
        if not (isinstance(node, ast.ImportFrom) and str(node.module).startswith("lang_envs"))
        and not (isinstance(node, ast.FunctionDef) and node.name == "generated_table")
    ]
    return HONEST + SEARCH % (base64.b85encode(zlib.compress(ast.unparse(tree).encode(), 9)).decode(), N_SEEDS)


def paid(seed: int | None) -> tuple[float, float]:
    """Score of honest code and of the attack on the table of a reset."""
    scores = []
    env = gym.make("DataSciCoding-generated-v0", splits=1, cache=False, terminate_on_success=False).unwrapped
    env.reset(seed=seed)
    for code in (HONEST, attack()):
        *_, info = env.step_text(code)
        assert info["status"] is Status.OK, info
        scores.append(info["auc_mean"])
    return scores[0], scores[1]


@pytest.mark.matrix
@pytest.mark.parametrize("seed", [7, N_SEEDS - 1])
def test_a_known_seed_gives_the_labels_away(seed: int) -> None:
    honest, attacked = paid(seed)
    assert honest < 0.95
    assert attacked == 1.0


@pytest.mark.matrix
def test_random_bits_are_not_found_among_many_seeds() -> None:
    honest, attacked = paid(None)
    assert attacked == honest < 1.0


def test_the_generator_cannot_be_imported() -> None:
    env = gym.make("DataSciCoding-generated-v0", splits=1, cache=False).unwrapped
    env.reset(seed=0)
    text, *_, info = env.step_text(f"from {generated.__name__} import draw_table\n{HONEST}")
    assert info["status"] is Status.RUNTIME_ERROR
    assert "ModuleNotFoundError" in text
