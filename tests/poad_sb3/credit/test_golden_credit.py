"""Credit against golden vectors (data/golden/credit), in any layout."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import published
import pytest
import torch
from credit_episodes import (
    GOLDEN,
    Batch,
    Episode,
    Step,
    by_token,
    golden_episodes,
    padded_batch,
    properties,
    random_episodes,
)
from hypothesis import given
from hypothesis import strategies as st

from poad_sb3.credit import baselines, padded
from poad_sb3.credit.losses import cispo_loss, clipped_policy_loss

CASES = {case["name"]: case for case in GOLDEN["cases"]}
seeds = st.integers(0, 2**32 - 1)


def of(batch: Batch, name: str, **settings: Any) -> np.ndarray:
    """Advantages of the action tokens of a batch, row by row, by a function of `padded`."""
    if name in ("bad", "ntpo", "archer", "bilevel", "action_gae"):
        args: list[Any] = [batch.values, batch.mask, batch.turn_ids]
        settings = {"bootstrap": batch.bootstrap} | settings
    elif name in ("grpo", "dr_grpo", "rloo"):
        args = [batch.mask, batch.groups]
    elif name in ("gigpo", "anchor_leave_one_out"):
        args = [batch.mask, batch.groups, batch.keys, batch.turn_ids]
    elif name == "step_leave_one_out":
        args = [batch.mask, batch.groups, batch.turn_ids]
    else:
        args = [batch.mask, batch.turn_ids]
    advantages = getattr(padded, name)(batch.rewards, *args, **settings)
    assert (advantages[~batch.mask] == 0).all()
    return advantages[batch.mask]


# ---------------------------------------------------------------------- golden vectors


def step_part(batch: Batch, gamma: float, eps: float | None) -> np.ndarray:
    """GiGPO's step part: both parts with omega = 1, less the episode part."""
    episode = of(batch, "gigpo", gamma=gamma, omega=0.0, eps=eps)
    return of(batch, "gigpo", gamma=gamma, omega=1.0, eps=eps) - episode


def over_steps(batch: Batch) -> np.ndarray:
    """Statistics of the episode part over decisions: an episode counts once for each of its decisions."""
    turns = padded.Turns.of(batch.rewards, batch.mask, batch.turn_ids)
    groups = turns.groups(batch.groups)[turns.rows]
    return turns.of_actions(baselines.centred(turns.totals()[turns.rows], groups))[batch.mask]


IN_ROWS: dict[str, Callable[[Batch, dict[str, Any]], np.ndarray]] = {
    "action_gae": lambda b, c: of(b, "action_gae", gamma=c["gamma"], gae_lambda=c["gae_lambda"]),
    "bad": lambda b, c: of(b, "bad", **settings(c)),
    "ntpo": lambda b, c: of(b, "ntpo", **settings(c)),
    "archer": lambda b, c: of(b, "archer", **settings(c)),
    "bilevel_corrected": lambda b, c: of(b, "bilevel", **settings(c)),
    "bilevel_last_anchor_published": lambda b, c: of(
        b, "bilevel", **settings(c, gae_lambda_token=c["gae_lambda"]), anchor="last", bootstrap=None
    ),
    "returns": lambda b, c: of(b, "returns_to_go", gamma=c["gamma"]),
    "reinforce_pp": lambda b, c: of(b, "reinforce_plus_plus", gamma=c["gamma"]),
    "rebn": lambda b, c: of(b, "rebn", gamma=c["gamma"]),
    "rebn_population": lambda b, c: of(b, "rebn", gamma=c["gamma"], eps=1e-9, ddof=0),
    "grpo": lambda b, c: of(b, "grpo"),
    "dr_grpo": lambda b, c: of(b, "dr_grpo"),
    "rloo": lambda b, c: of(b, "rloo"),
    "gigpo_mean": lambda b, c: of(b, "gigpo", gamma=c["gamma"], omega=c["omega"]),
    "gigpo_mean_std": lambda b, c: of(b, "gigpo", gamma=c["gamma"], omega=c["omega"], eps=1e-6),
    "gigpo_episode_mean": lambda b, c: of(b, "gigpo", gamma=c["gamma"], omega=0.0),
    "gigpo_episode_mean_std": lambda b, c: of(b, "gigpo", gamma=c["gamma"], omega=0.0, eps=1e-6),
    "gigpo_step_mean": lambda b, c: step_part(b, c["gamma"], None),
    "gigpo_step_mean_std": lambda b, c: step_part(b, c["gamma"], 1e-6),
    "gigpo_episode_mean_over_steps": lambda b, c: over_steps(b),
    "anchor_loo": lambda b, c: of(b, "anchor_leave_one_out", gamma=c["gamma"]),
    "step_index_loo": lambda b, c: of(b, "step_leave_one_out", gamma=c["gamma"]),
}


def levels(case: dict[str, Any]) -> dict[str, float]:
    return {"gamma": case["gamma"], "gae_lambda": case["gae_lambda"]}


def settings(case: dict[str, Any], **changed: Any) -> dict[str, Any]:
    return levels(case) | {"gae_lambda_token": case["gae_lambda_token"]} | changed


@pytest.mark.parametrize("name", IN_ROWS)
def test_rows_equal_the_golden_vectors(name: str) -> None:
    for case in CASES.values():
        episodes = golden_episodes(case)
        actual, expected = IN_ROWS[name](padded_batch(episodes), case), by_token(case["expected"][name], episodes)
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-12, err_msg=case["name"])


def flat_tokens(nested: Sequence[Sequence[Sequence[float]]]) -> list[float]:
    return [value for episode in nested for step in episode for value in step]


def units_of(case: dict[str, Any], level: str) -> torch.Tensor:
    """Unit of each token: the token, its turn or its trajectory."""
    turns = itertools.count()
    numbers = [
        (number, turn)
        for number, episode in enumerate(case["log_prob_old"])
        for step in episode
        for turn in [next(turns)]
        for _ in step
    ]
    if level == "token":
        return torch.arange(len(numbers))
    return torch.tensor([number if level == "trajectory" else turn for number, turn in numbers])


def sums(values: torch.Tensor, units: torch.Tensor) -> torch.Tensor:
    return values.new_zeros(int(units.max()) + 1).index_add(0, units, values)


def loss_of(case: dict[str, Any], name: str, log_prob: torch.Tensor) -> torch.Tensor:
    old, advantages = (
        torch.tensor(flat_tokens(case[key]), dtype=torch.float64) for key in ("log_prob_old", "advantages")
    )
    clips = {"clip_range": case["clip_low"], "clip_range_high": case["clip_high"]}
    if name == "cispo":
        return cispo_loss(log_prob, old, advantages, case["cispo_cap"]).mean()
    level, _, kind = name.removesuffix("_dual_clip").partition("_")
    units = units_of(case, level)
    counts = torch.bincount(units)
    ratios = sums(log_prob - old, units) / (counts if kind == "mean" else 1)
    dual = {"dual_clip": case["dual_clip"]} if name.endswith("_dual_clip") else {}
    of_units = sums(advantages, units) / counts
    return clipped_policy_loss(ratios, torch.zeros_like(ratios), of_units, **clips, **dual).mean()


@pytest.mark.parametrize("case", GOLDEN["ratio_cases"], ids=lambda case: case["name"])
def test_losses_and_gradients_equal_the_golden_vectors(case: dict[str, Any]) -> None:
    assert len(case["expected"]) == 12
    for name, expected in case["expected"].items():
        if name == "gspo_token":  # no method here has it
            continue
        log_prob = torch.tensor(flat_tokens(case["log_prob_new"]), dtype=torch.float64, requires_grad=True)
        loss = loss_of(case, name, log_prob)
        loss.backward()
        assert loss.item() == pytest.approx(expected["loss"], abs=1e-12), name
        np.testing.assert_allclose(log_prob.grad, flat_tokens(expected["grad"]), rtol=0, atol=1e-12, err_msg=name)


# ---------------------------------------------------------------------- properties

CASE = {"gamma": 0.9, "gae_lambda": 0.8, "gae_lambda_token": 0.7, "omega": 0.5}


@properties
@given(seed=seeds)
def test_credit_does_not_depend_on_the_layout(seed: int) -> None:
    """Padding on the left, observations between actions, and the token of an action that its reward stands on."""
    episodes = random_episodes(seed)
    plain = padded_batch(episodes)
    for observations, layout in ((False, None), (True, seed), (False, seed)):
        batch = padded_batch(episodes, observations=observations, seed=layout)
        for name, function in IN_ROWS.items():
            np.testing.assert_allclose(
                function(batch, CASE), function(plain, CASE), rtol=1e-12, atol=1e-12, err_msg=name
            )


@pytest.mark.parametrize("options", [{}, {"eps": 1e-6}, {"leave_one_out": True}])
def test_nan_returns_stay_nan(options: dict[str, Any]) -> None:
    advantages = baselines.centred(np.array([np.nan, 1.0, 2.0, 1.0]), np.array([0, 0, 1, 1]), **options)
    assert np.isnan(advantages[:2]).any()
    assert np.isfinite(advantages[2:]).all()


def test_a_single_decision_and_a_single_member_have_no_advantage() -> None:
    alone = padded_batch([Episode([Step("a", 1.0, [0.3, 0.1])])])
    assert (of(alone, "rebn", gamma=0.9) == 0).all()
    for name in ("grpo", "dr_grpo", "rloo"):
        assert (of(alone, name) == 0).all(), name
    tied = [Episode([Step("a", 0.1, [0.0])] * 3) for _ in range(3)]
    assert (of(padded_batch(tied), "grpo") == 0).all()


# ---------------------------------------------------------------------- the page


def test_the_table_of_the_page_is_computed() -> None:
    page = (Path(__file__).parents[3] / "docs/guide/credit_for_other_frameworks.md").read_text(encoding="utf-8")
    table = re.findall(
        r"^\| ([^|]+) \| `(padded\.)?(\w+)`(?:, (\w+))? \| ([\d. ]+) \| ([\d. ]+) \|$", page, re.MULTILINE
    )
    assert len(table) == 14
    case = CASES["two_turns_zero_values"]
    batch = padded_batch(golden_episodes(case))
    for estimator, module, function, observations, *actions in table:
        kwargs = {"gamma": 0.9} if "returns" in function else {"gamma": 0.9, "gae_lambda": 1.0}
        if observations:
            kwargs["observations"] = observations
        values = () if "returns" in function else (batch.values,)
        actual = getattr(padded if module else published, function)(batch.rewards, *values, batch.mask, **kwargs)[
            batch.mask
        ]
        shown = [float(number) for action in actions for number in action.split()]
        np.testing.assert_allclose(actual, shown, rtol=0, atol=5e-4, err_msg=estimator)
