"""Programs that carry the public labels of a table: they score without learning, and the sandbox cannot stop them."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from rows import first_rows

import lang_envs  # noqa: F401 - registers the ids
from lang_envs.datasets import DATASETS, load
from lang_envs.sandbox.extraction import MAX_CODE_BYTES

BUNDLED = [name for name, row in DATASETS.items() if row.known_labels == "bundled with scikit-learn"]
CARRYING = """
labels = {labels!r}

class Memory:
    def predict_proba(self, x_test):
        x = np.concatenate([x_train, x_test])
        y = np.empty(len(x), int)
        y[np.lexsort(x.T)] = [int(label) for label in labels]
        return np.eye(len(set(labels)))[y[len(x_train):]]

model = Memory()
"""


def test_which_tables_are_bundled() -> None:
    assert sorted(BUNDLED) == ["breast-cancer", "digits", "iris", "wine"]


@pytest.mark.parametrize("name", first_rows(2, BUNDLED))
def test_a_program_that_carries_the_labels_needs_no_learning(name: str) -> None:
    table = load(name)
    code = CARRYING.format(labels="".join(map(str, table.y[np.lexsort(table.x.T)])))
    assert len(code) <= 2_100 < MAX_CODE_BYTES
    env = gym.make(f"DataSciCoding-{name}-v0", cache=False).unwrapped
    env.reset(seed=0)
    assert env.step_text(code)[1] == 1.0
