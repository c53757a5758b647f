"""Generated tables: drawn from 128 bits, the same for the same bits, another one in every episode."""

from __future__ import annotations

import pickle
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from lang_envs.datasets.generated import KEY_BYTES, Drawn, draw_table, generated_table
from lang_envs.envs.datascicoding.env import DataSciCodingEnv
from lang_envs.envs.datascicoding.scoring import splits

ID = "DataSciCoding-generated-v0"
BOOSTED = """
from sklearn.ensemble import HistGradientBoostingClassifier
model = HistGradientBoostingClassifier(max_iter=10, random_state=0).fit(x_train, y_train)
"""
KEYS = [np.random.default_rng(seed).bytes(KEY_BYTES) for seed in range(100)]
DIGESTS = [
    (bytes(KEY_BYTES), "e6e02ab9b6df8f87"),
    (KEYS[0], "002bb44642e9c66d"),
]


def make(**kwargs: Any) -> DataSciCodingEnv:
    env = gym.make(ID, **kwargs).unwrapped
    assert isinstance(env, DataSciCodingEnv)
    return env


@pytest.fixture(scope="module")
def tables() -> list[Drawn]:
    return [draw_table(key) for key in KEYS]


# ---------------------------------------------------------------------- the generator


@pytest.mark.parametrize(("key", "digest"), DIGESTS)
def test_tables_stay_the_same(key: bytes, digest: str) -> None:
    assert generated_table(key).digest == digest


def test_tables_differ_in_every_respect(tables: list[Drawn]) -> None:
    rows, widths = zip(*(table.x.shape for table in tables), strict=True)
    assert 200 <= min(rows) < 250 < 550 < max(rows) <= 600
    assert set(widths) == set(range(4, 13))
    assert {table.probabilities.shape[1] for table in tables} == {2, 3}
    shares = np.array([np.isnan(table.x).mean() for table in tables])
    assert 0.3 < (shares == 0).mean() < 0.7
    assert 0.05 < shares.max() < 0.2
    n_values = [len(np.unique(column[~np.isnan(column)])) for table in tables for column in table.x.T]
    assert 0.2 < np.mean(np.array(n_values) <= 6) < 0.5
    for table in tables:
        assert not np.isnan(table.x).all(axis=0).any()
        assert not np.isinf(table.x).any()


def test_every_class_is_in_both_halves(tables: list[Drawn]) -> None:
    for key, table in zip(KEYS, tables, strict=True):
        counts = np.bincount(table.y)
        assert len(counts) == table.probabilities.shape[1]
        assert counts.min() >= len(table.y) / 8
        for split in splits(generated_table(key), range(5)):
            assert all(len(np.unique(table.y[half])) == len(counts) for half in split)


def test_classes_are_drawn_from_the_probabilities(tables: list[Drawn]) -> None:
    hits = variance = 0.0
    for table in tables:
        assert table.probabilities.sum(axis=1) == pytest.approx(1)
        of_class = table.probabilities[np.arange(len(table.y)), table.y]
        hits += float((of_class - (table.probabilities**2).sum(axis=1)).sum())
        variance += float(((table.probabilities**3).sum(axis=1) - (table.probabilities**2).sum(axis=1) ** 2).sum())
    assert abs(hits) < 4 * np.sqrt(variance)


# ---------------------------------------------------------------------- the environment


def test_every_episode_has_a_new_table() -> None:
    env, again = make(), make()
    digests = []
    for seed in (3, None, None):
        text, info = env.reset(seed=seed)
        assert again.reset(seed=seed)[0] == text
        assert env.dataset == again.dataset
        assert (info["data"], info["source"]) == ("generated", env.dataset.source)
        digests.append(env.dataset.digest)
    assert len(set(digests)) == 3
    env.reset(seed=3)
    assert env.dataset.digest == digests[0]


def test_a_state_holds_the_bits_and_not_the_table() -> None:
    env, other = make(), make()
    env.reset(seed=1)
    env.step_text("1 / 0")
    state = env.get_state()
    assert len(pickle.dumps(state["world"])) < 2_000
    other.reset(seed=2)
    other.set_state(state)
    assert other.dataset == env.dataset
    assert other.step_text(BOOSTED) == env.step_text(BOOSTED)
    assert other.reset() == env.reset()
    assert other.dataset == env.dataset != generated_table(state["world"].key)
