"""The padded layout: kinds and dtypes, turn ids, errors, and no import beyond numpy and torch."""

from __future__ import annotations

import inspect
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from credit_episodes import padded_batch, random_episodes

from poad_sb3.credit import padded

REWARDS = np.array([[0.0, 1.0, 0.0, 0.0, 2.0], [0.0, 0.0, 3.0, 0.0, 0.0]])
VALUES = np.array([[0.1, 0.2, 9.0, 0.3, 0.4], [8.0, 0.5, 0.6, 8.0, 8.0]])
MASK = np.array([[1, 1, 0, 1, 1], [0, 1, 1, 0, 0]])
KWARGS: dict[str, Any] = {"gamma": 0.9, "gae_lambda": 0.8}


def on_rows(rows: list[int], active: list[bool], kind: Any, turn_ids: bool = False) -> dict[str, Any]:
    """Call every function on some rows of a batch; those that are not active have no action token."""
    batch = padded_batch([episode for seed in range(9) for episode in random_episodes(seed)][:5])
    live = np.array(active)[:, None]
    rewards = kind(np.where(live | ~batch.mask, batch.rewards, 0.0)[rows])
    mask, values, bootstrap = kind((batch.mask & live)[rows]), kind(batch.values[rows]), kind(batch.bootstrap[rows])
    groups, keys = [batch.groups[row] for row in rows], [batch.keys[row] for row in rows]
    ids = kind(batch.turn_ids[rows]) if turn_ids else None
    results: dict[str, Any] = {}
    for name in padded.__all__:
        takes = inspect.signature(getattr(padded, name)).parameters
        given = {"values": values, "bootstrap": bootstrap, "groups": groups, "state_keys": keys, "turn_ids": ids}
        given |= {"gamma": 0.9, "gae_lambda": 0.8}
        chosen = {key: value for key, value in given.items() if key in takes}
        results[name] = getattr(padded, name)(rewards=rewards, mask=mask, **chosen)
    return results


def on_all_rows(kind: Any) -> dict[str, Any]:
    return on_rows(list(range(5)), [True] * 5, kind)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numpy_arrays_keep_their_dtype(dtype: type) -> None:
    exact = on_all_rows(np.asarray)
    for name, advantages in on_all_rows(lambda array: array.astype(dtype)).items():
        assert isinstance(advantages, np.ndarray)
        assert advantages.dtype == dtype
        np.testing.assert_allclose(advantages, exact[name], rtol=0, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_tensors_keep_their_dtype_and_have_no_gradient(dtype: torch.dtype) -> None:
    exact = on_all_rows(np.asarray)
    tolerance = {torch.float64: 0.0, torch.float32: 1e-6, torch.bfloat16: 5e-2}[dtype]
    for name, advantages in on_all_rows(lambda array: torch.tensor(array, dtype=dtype).requires_grad_()).items():
        assert advantages.dtype == dtype
        assert not advantages.requires_grad
        np.testing.assert_allclose(advantages.double(), exact[name], rtol=0, atol=tolerance, err_msg=name)


def test_groups_may_be_texts_arrays_or_tensors() -> None:
    expected = padded.rloo(REWARDS, MASK, [0, 0])
    for groups in (["u", "u"], np.array(["u", "u"], dtype=object), torch.zeros(2, dtype=torch.int64)):
        np.testing.assert_array_equal(padded.rloo(REWARDS, MASK, groups), expected)
    assert (padded.rloo(REWARDS, MASK, ["u", "v"]) == 0).all()


# ---------------------------------------------------------------------- rows without action tokens


@pytest.mark.parametrize(
    ("empty", "turn_ids", "kind"), [([0], False, np.asarray), ([1, 3, 4], True, torch.tensor)], ids=["numpy", "torch"]
)
def test_a_row_without_action_tokens_takes_no_part(empty: list[int], turn_ids: bool, kind: Any) -> None:
    active = [row not in empty for row in range(5)]
    filled = [row for row in range(5) if row not in empty]
    advantages_of, expected = (on_rows(rows, active, kind, turn_ids) for rows in (list(range(5)), filled))
    for name, advantages in advantages_of.items():
        np.testing.assert_array_equal(advantages[filled], expected[name], err_msg=name)
        assert not advantages[empty].any(), name


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor], ids=["numpy", "torch"])
def test_without_any_action_token_all_is_zero(kind: Any) -> None:
    for name, advantages in on_rows(list(range(5)), [False] * 5, kind).items():
        assert advantages.shape[0] == 5
        assert type(advantages) is type(kind([0.0]))
        assert not advantages.any(), name


# ---------------------------------------------------------------------- errors


@pytest.mark.parametrize("name", ["rewards", "values", "mask", "turn_ids"])
def test_refuses_arrays_of_different_shapes(name: str) -> None:
    arrays = {"rewards": REWARDS, "values": VALUES, "mask": MASK, "turn_ids": np.zeros_like(MASK)}
    arrays[name] = arrays[name][:, :-1]
    with pytest.raises(ValueError, match=r"^Expected arrays of one shape \[batch, positions\]; got .*\.$"):
        padded.bad(**arrays, **KWARGS)
    with pytest.raises(ValueError, match=r"Expected arrays of one shape"):
        padded.returns_to_go(REWARDS[0], MASK[0], gamma=0.9)


def test_rewards_outside_actions_are_not_lost() -> None:
    lost = REWARDS.copy()
    lost[0, 2] = 0.5
    with pytest.raises(ValueError, match=r"^Expected rewards on action tokens only; got 0\.5 at row 0, position 2"):
        padded.returns_to_go(lost, MASK, gamma=0.9)
    with pytest.raises(ValueError, match=r"only; got 3\.0 at row 1, position 2\. Fix: .* has none, set it to 0\.$"):
        padded.returns_to_go(REWARDS, MASK * [[1], [0]], gamma=0.9)


@pytest.mark.parametrize("ids", [[0, 0, 0, 0, 0], [0, 1, 0, 0, 2], [1, 0, 0, 1, 1]])
def test_the_tokens_of_a_turn_are_consecutive(ids: list[int]) -> None:
    """Such as a framework that numbers every turn 0."""
    with pytest.raises(ValueError, match=r"^Expected the tokens of a turn to be consecutive; row 0 has turn [01] in"):
        padded.returns_to_go(REWARDS, MASK, np.array([ids, [0] * 5]), gamma=0.9)


def test_one_group_bootstrap_and_key_for_each() -> None:
    with pytest.raises(ValueError, match=r"^Expected a group for each of 2 rows; got 3\.$"):
        padded.rloo(REWARDS, MASK, [0, 0, 1])
    with pytest.raises(ValueError, match=r"^Expected a bootstrap value for each of 2 rows; got shape \(1,\)\.$"):
        padded.bad(REWARDS, VALUES, MASK, bootstrap=np.zeros(1), **KWARGS)
    with pytest.raises(ValueError, match=r"^Expected a state key for each action, \[2, 1\] by row; got \[2, 2\]\.$"):
        padded.gigpo(REWARDS, MASK, [0, 0], [["a", "b"], ["a", "b"]], gamma=0.9)


# ---------------------------------------------------------------------- packages that are imported


def test_credit_imports_neither_sb3_nor_transformers() -> None:
    """And the functions on numpy arrays import no torch either."""
    code = """
import sys
import numpy as np
import poad_sb3.credit
from poad_sb3.credit import padded

padded.rloo(np.ones((2, 1)), np.ones((2, 1)), [0, 0])
torch = "torch" in sys.modules
import poad_sb3.credit.estimators, poad_sb3.credit.losses

print(torch, {"stable_baselines3", "transformers", "peft"} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False set()\n"
