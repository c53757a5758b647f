"""Credit against golden vectors (data/golden/credit), plain loops, and the properties that each recursion must have."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import hypothesis
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
    slow_rows,
    slow_stream,
)
from hypothesis import given
from hypothesis import strategies as st

from poad_sb3.credit import baselines, padded, returns
from poad_sb3.credit.advantages import bilevel_gae, next_action_values, next_state_values, token_gae
from poad_sb3.credit.losses import cispo_loss, clipped_policy_loss, gspo_token_log_ratio
from poad_sb3.errors import UndefinedAdvantageError

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


def stream(batch: Batch, observations: Any, **settings: float) -> np.ndarray:
    args = {"observations": observations, "present": batch.present}
    return published.stream_gae(batch.rewards, batch.values, batch.mask, **args, **settings)[batch.mask]


# ---------------------------------------------------------------------- golden vectors


def turn_numbers(batch: Batch, turns: padded.Turns) -> dict[str, np.ndarray]:
    return {"groups": np.array(batch.groups)[turns.rows], "episodes": turns.rows, "steps": turns.steps}


def turn_index(batch: Batch, eps: float | None) -> np.ndarray:
    turns = padded.Turns.of(batch.rewards, batch.mask, batch.turn_ids)
    rows = published.turn_index_mean(turns.rewards[:, 0], **turn_numbers(batch, turns), eps=eps)
    return turns.of_actions(rows)[batch.mask]


def step_part(batch: Batch, gamma: float, eps: float | None) -> np.ndarray:
    """GiGPO's step part: both parts with omega = 1, less the episode part."""
    episode = of(batch, "gigpo", gamma=gamma, omega=0.0, eps=eps)
    return of(batch, "gigpo", gamma=gamma, omega=1.0, eps=eps) - episode


def over_steps(batch: Batch) -> np.ndarray:
    """Statistics of the episode part over decisions: an episode counts once for each of its decisions."""
    turns = padded.Turns.of(batch.rewards, batch.mask, batch.turn_ids)
    groups = turns.groups(batch.groups)[turns.rows]
    return turns.of_actions(baselines.centred(turns.totals()[turns.rows], groups))[batch.mask]


def whiten(batch: Batch, advantages: np.ndarray) -> np.ndarray:
    full = np.zeros(batch.mask.shape)
    full[batch.mask] = advantages
    return published.whitened(full, batch.mask)[batch.mask]


def args(batch: Batch) -> tuple[np.ndarray, ...]:
    return batch.rewards, batch.values, batch.mask, batch.turn_ids


IN_ROWS: dict[str, Callable[[Batch, dict[str, Any]], np.ndarray]] = {
    "action_gae": lambda b, c: of(b, "action_gae", gamma=c["gamma"], gae_lambda=c["gae_lambda"]),
    "bad": lambda b, c: of(b, "bad", **settings(c)),
    "ntpo": lambda b, c: of(b, "ntpo", **settings(c)),
    "archer": lambda b, c: of(b, "archer", **settings(c)),
    "bilevel_corrected": lambda b, c: of(b, "bilevel", **settings(c)),
    "bilevel_last_anchor_published": lambda b, c: of(
        b, "bilevel", **settings(c, gae_lambda_token=c["gae_lambda"]), anchor="last", bootstrap=None
    ),
    "bilevel_by_rewards_published": lambda b, c: published.bilevel_by_rewards(*args(b)[:3], **levels(c))[b.mask],
    "turn_gae_last_published": lambda b, c: published.turn_gae(*args(b), **levels(c))[b.mask],
    "turn_gae_mean_published": lambda b, c: published.turn_gae(*args(b), **levels(c), anchor="mean")[b.mask],
    "stream_skip_published": lambda b, c: stream(b, "skip", **levels(c)),
    "stream_skip_whitened_published": lambda b, c: whiten(b, stream(b, "skip", **levels(c))),
    "stream_through_published": lambda b, c: stream(b, "through", **levels(c)),
    "stream_zeroed_published": lambda b, c: stream(b, "zeroed", **levels(c)),
    "stream_cut_published": lambda b, c: published.cut_gae(*args(b), **levels(c))[b.mask],
    "returns": lambda b, c: of(b, "returns_to_go", gamma=c["gamma"]),
    "token_returns_skip": lambda b, c: published.stream_token_returns(
        b.rewards, b.mask, gamma=c["gamma"], observations="skip"
    )[b.mask],
    "token_returns_through": lambda b, c: published.stream_token_returns(
        b.rewards, b.mask, gamma=c["gamma"], observations="through", present=b.present
    )[b.mask],
    "token_returns_cut": lambda b, c: published.cut_token_returns(b.rewards, b.mask, gamma=c["gamma"])[b.mask],
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
    "turn_index_mean": lambda b, c: turn_index(b, None),
    "turn_index_mean_std": lambda b, c: turn_index(b, 1e-8),
}


def levels(case: dict[str, Any]) -> dict[str, float]:
    return {"gamma": case["gamma"], "gae_lambda": case["gae_lambda"]}


def settings(case: dict[str, Any], **changed: Any) -> dict[str, Any]:
    return levels(case) | {"gae_lambda_token": case["gae_lambda_token"]} | changed


@pytest.mark.parametrize("name", sorted({name for case in CASES.values() for name in case["expected"]}))
def test_rows_equal_the_golden_vectors(name: str) -> None:
    defined = 0
    for case in CASES.values():
        expected, episodes = case["expected"][name], golden_episodes(case)
        batch = padded_batch(episodes)
        if expected is None or any(entry is None for entry in expected):
            with pytest.raises(UndefinedAdvantageError, match=r"rows \[.*\] end without one, and RAGEN"):
                IN_ROWS[name](batch, case)
            continue
        defined += 1
        actual = IN_ROWS[name](batch, case)
        np.testing.assert_allclose(actual, by_token(expected, episodes), rtol=0, atol=1e-12, err_msg=case["name"])
    assert defined >= 12


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
    if name == "gspo_token":  # as published: the mean over the tokens of a trajectory, then over trajectories
        units = units_of(case, "trajectory")
        ratios = gspo_token_log_ratio(log_prob, old, units, int(units.max()) + 1)
        losses = clipped_policy_loss(ratios, torch.zeros_like(ratios), advantages, **clips)
        return (sums(losses, units) / torch.bincount(units)).mean()
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
        log_prob = torch.tensor(flat_tokens(case["log_prob_new"]), dtype=torch.float64, requires_grad=True)
        loss = loss_of(case, name, log_prob)
        loss.backward()
        assert loss.item() == pytest.approx(expected["loss"], abs=1e-12), name
        np.testing.assert_allclose(log_prob.grad, flat_tokens(expected["grad"]), rtol=0, atol=1e-12, err_msg=name)


# ---------------------------------------------------------------------- plain loops


def assert_rows_are_the_loops(
    seed: int, numbers: tuple[float, float, float, float], *, observations: bool, spread: bool
) -> None:
    gamma, lam, lam_token, omega = numbers
    episodes = random_episodes(seed)
    batch = padded_batch(episodes, observations=observations, seed=seed if spread else None)
    for name, slow in slow_rows(gamma, lam, lam_token, omega).items():
        wanted = {"bad", "ntpo", "archer", "bilevel"}
        given_settings: dict[str, Any] = {}
        if name not in ("grpo", "dr_grpo", "rloo"):
            given_settings["gamma"] = gamma
        if name in wanted | {"action_gae"}:
            given_settings["gae_lambda"] = lam
        if name in wanted:
            given_settings["gae_lambda_token"] = lam_token
        if name == "gigpo":
            given_settings["omega"] = omega
        np.testing.assert_allclose(
            of(batch, name, **given_settings), by_token(slow(episodes), episodes), rtol=1e-12, atol=1e-12, err_msg=name
        )


numbers4 = st.tuples(*[st.sampled_from([0.0, 0.5, 0.9, 1.0]) | st.floats(0, 1)] * 4)


@properties
@given(seed=seeds, numbers=numbers4, observations=st.booleans(), spread=st.booleans())
def test_rows_are_the_loops(
    seed: int, numbers: tuple[float, float, float, float], observations: bool, spread: bool
) -> None:
    assert_rows_are_the_loops(seed, numbers, observations=observations, spread=spread)


@pytest.mark.matrix
@hypothesis.settings(properties, max_examples=1_000)
@given(seed=seeds, numbers=numbers4, observations=st.booleans(), spread=st.booleans())
def test_rows_are_the_loops_on_many_batches(
    seed: int, numbers: tuple[float, float, float, float], observations: bool, spread: bool
) -> None:
    assert_rows_are_the_loops(seed, numbers, observations=observations, spread=spread)


def test_ntpo_is_verl_on_random_masks() -> None:
    """10,000 rows, the reward on the last action token of each run, before verl's whitening."""
    rng = np.random.default_rng(0)
    mask = rng.random((10_000, 14)) < rng.uniform(0.2, 0.95, (10_000, 1))
    mask[np.arange(len(mask)), rng.integers(14, size=len(mask))] = True
    last = mask & ~np.pad(mask, ((0, 0), (0, 1)))[:, 1:]
    rewards = np.where(last, rng.normal(size=mask.shape), np.where(mask, 0.0, np.nan))
    values = np.where(mask, rng.normal(size=mask.shape), np.nan)
    batch = Batch(rewards, values, mask, None, mask, [], [], np.zeros(len(mask)))  # type: ignore[arg-type]
    gamma, lam = 0.93, 0.88
    actual = padded.ntpo(rewards, values, mask, gamma=gamma, gae_lambda=lam, gae_lambda_token=lam)
    expected = [value for row in range(len(mask)) for value in slow_stream(batch, row, gamma=gamma, lam=lam)]
    np.testing.assert_allclose(actual[mask], expected, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(
        published.stream_gae(rewards, values, mask, gamma=gamma, gae_lambda=lam, observations="skip"), actual
    )


# ---------------------------------------------------------------------- properties

CRITIC = ("bad", "ntpo", "archer", "bilevel", "action_gae")
UNNORMALISED = (*CRITIC, "returns_to_go", "dr_grpo", "rloo", "gigpo", "anchor_leave_one_out", "step_leave_one_out")
GROUP_ROWS = ("grpo", "dr_grpo", "rloo", "gigpo", "anchor_leave_one_out", "step_leave_one_out")
DISCOUNTED = (*CRITIC, "returns_to_go", "gigpo", "anchor_leave_one_out", "step_leave_one_out", "rebn")


def usual(name: str, **changed: float) -> dict[str, Any]:
    """Settings of a row that exercise every discount and trace."""
    full: dict[str, float] = {"gamma": 0.9, "gae_lambda": 0.8, "gae_lambda_token": 0.7} | changed
    keys = set()
    if name in DISCOUNTED or name == "reinforce_plus_plus":
        keys.add("gamma")
    if name in CRITIC:
        keys.add("gae_lambda")
    if name in CRITIC and name != "action_gae":
        keys.add("gae_lambda_token")
    return {key: full[key] for key in keys}


@pytest.mark.parametrize("seed", range(5))
def test_with_one_token_actions_all_critic_rows_are_equal(seed: int) -> None:
    batch = padded_batch(random_episodes(seed, n_tokens=1))
    expected = of(batch, "action_gae", **usual("action_gae"))
    for name in ("bad", "ntpo", "bilevel", "archer"):
        np.testing.assert_allclose(of(batch, name, **usual(name)), expected, rtol=0, atol=1e-12, err_msg=name)
    terminated = padded_batch(random_episodes(seed, n_tokens=1, truncates=False))
    np.testing.assert_allclose(
        stream(terminated, "skip", gamma=0.9, gae_lambda=0.8),
        of(terminated, "action_gae", gamma=0.9, gae_lambda=0.8),
        rtol=0,
        atol=1e-12,
    )


@pytest.mark.parametrize("seed", range(5))
def test_without_a_discount_ntpo_is_bad(seed: int) -> None:
    batch = padded_batch(random_episodes(seed, truncates=False))
    one = {"gamma": 1.0, "gae_lambda": 0.8, "gae_lambda_token": 0.8}
    bad = of(batch, "bad", **one)
    np.testing.assert_allclose(of(batch, "ntpo", **one), bad, rtol=0, atol=1e-12)
    np.testing.assert_allclose(stream(batch, "skip", gamma=1.0, gae_lambda=0.8), bad, rtol=0, atol=1e-12)
    tokens = published.stream_token_returns(batch.rewards, batch.mask, gamma=1.0, observations="skip")[batch.mask]
    np.testing.assert_allclose(tokens, of(batch, "returns_to_go", gamma=1.0), rtol=0, atol=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_without_inner_traces_bad_is_action_level_credit(seed: int) -> None:
    batch = padded_batch(random_episodes(seed))
    full = {"gamma": 0.9, "gae_lambda": 0.8}
    bad, action = of(batch, "bad", **full), of(batch, "action_gae", **full)
    turns = padded.Turns.of(batch.rewards, batch.mask, batch.turn_ids, batch.values)
    first = turns.of_actions(turns.values[:, 0, 0])[batch.mask]
    np.testing.assert_allclose(bad - action, first - batch.values[batch.mask], rtol=0, atol=1e-12)
    np.testing.assert_allclose(of(batch, "bilevel", **full), bad, rtol=0, atol=1e-12)


@pytest.mark.parametrize("gamma", [1.0, 0.9])
def test_observation_tokens_change_the_streams_that_run_through_them(gamma: float) -> None:
    seed, lam = 3, 0.8 if gamma < 1 else 1.0
    few, many = (
        padded_batch(
            [
                Episode([step._replace(obs_values=[0.4] * q) for step in episode.steps], 0.0, episode.group)
                for episode in random_episodes(seed, truncates=False)
            ]
        )
        for q in (1, 4)
    )
    assert any(len(keys) > 1 for keys in few.keys)
    kwargs = {"gamma": gamma, "gae_lambda": lam}
    np.testing.assert_array_equal(stream(few, "skip", **kwargs), stream(many, "skip", **kwargs))
    for observations in ("through", "zeroed"):
        same = np.abs(stream(few, observations, **kwargs) - stream(many, observations, **kwargs)).max() < 1e-12
        assert same == (gamma == 1.0), observations


def test_bilevel_by_rewards_is_the_last_anchor_if_every_action_pays() -> None:
    for seed in range(20):
        paid = [
            Episode([step._replace(reward=step.reward or 0.5) for step in episode.steps])
            for episode in random_episodes(seed)
        ]
        batch = padded_batch(paid)
        expected = of(batch, "bilevel", gamma=0.9, gae_lambda=0.8, gae_lambda_token=0.8, anchor="last")
        actual = published.bilevel_by_rewards(*args(batch)[:3], gamma=0.9, gae_lambda=0.8)[batch.mask]
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-12)
    unpaid = padded_batch([Episode([Step("a", 1.0, [0.1]), Step("a", 0.0, [0.2])])])
    with pytest.raises(UndefinedAdvantageError, match=r"rows \[0\] end without one"):
        published.bilevel_by_rewards(*args(unpaid)[:3], gamma=0.9, gae_lambda=0.8)


@properties
@given(seed=seeds)
def test_a_forced_token_changes_no_other_advantage_without_inner_traces(seed: int) -> None:
    rng = np.random.default_rng(seed)
    episodes = random_episodes(seed)
    at, turn = 0, int(rng.integers(len(episodes[0].steps)))
    steps = list(episodes[0].steps)
    place = int(rng.integers(len(steps[turn].values)))
    values = list(steps[turn].values)
    steps[turn] = steps[turn]._replace(values=[*values[:place], values[place], *values[place:]])
    before, after = padded_batch(episodes), padded_batch([episodes[at]._replace(steps=steps), *episodes[1:]])
    inserted = sum(episodes[0].lengths[:turn]) + place
    ahead = np.arange(before.mask.sum()) < inserted
    inside = ahead & (np.arange(before.mask.sum()) >= sum(episodes[0].lengths[:turn]))

    def change(name: str, **settings: float) -> np.ndarray:
        return np.abs(np.delete(of(after, name, **settings), inserted) - of(before, name, **settings))

    kwargs = {"gamma": 0.9, "gae_lambda": 0.8}
    for name in ("bad", "bilevel", "action_gae"):
        assert change(name, **kwargs).max() < 1e-12, name
    for name in ("returns_to_go", "anchor_leave_one_out", "step_leave_one_out", "gigpo"):
        assert change(name, gamma=0.9).max() < 1e-12, name
    for name in ("grpo", "dr_grpo", "rloo"):
        assert change(name).max() < 1e-12, name
    shorter = change("bad", **kwargs, gae_lambda_token=0.8)
    assert (shorter[ahead] > 1e-12).all(), "every earlier token of the episode has a shorter trace"
    assert shorter[~ahead].max(initial=0) < 1e-12
    two_levels = change("bilevel", **kwargs, gae_lambda_token=0.8)
    assert (two_levels[inside] > 1e-12).all()
    assert two_levels[~inside].max(initial=0) < 1e-12, "the trace between actions passes through no token"
    target = (of(before, "ntpo", **kwargs) + before.values[before.mask])[inserted]
    if place > 0 and abs(target) > 1e-9:
        assert (change("ntpo", **kwargs)[inside] > 1e-12).all(), "the discount of one more token"


@properties
@given(seed=seeds)
def test_groups(seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups = rng.integers(3, size=12)
    totals = rng.choice([0.0, 0.1, 0.3, 1.0], size=12) + (groups == 0)
    totals[groups == 2] = 0.1
    size = np.bincount(groups)[groups]
    grpo, mean = (baselines.centred(totals, groups, eps=eps) for eps in (1e-6, None))
    rloo = baselines.centred(totals, groups, leave_one_out=True)
    for advantages in (grpo, mean, rloo):
        np.testing.assert_allclose(np.bincount(groups, advantages), 0, atol=1e-12)
    np.testing.assert_allclose(rloo, np.where(size > 1, size / np.maximum(size - 1, 1), 0) * mean, atol=1e-12)
    np.testing.assert_allclose(baselines.centred(totals + 7.0, groups, leave_one_out=True), rloo, atol=1e-12)
    np.testing.assert_allclose(
        baselines.centred(3 * totals, groups, eps=0.0), baselines.centred(totals, groups, eps=0.0), atol=1e-12
    )
    order = rng.permutation(12)
    for eps in (1e-6, None):
        shuffled = baselines.centred(totals[order], groups[order], eps=eps)
        np.testing.assert_allclose(shuffled, baselines.centred(totals, groups, eps=eps)[order], atol=1e-12)
    for dtype in (np.float32, np.float64):
        tied = baselines.centred(totals.astype(dtype), groups, eps=1e-9)[groups == 2]
        assert (tied == 0).all(), "equal returns give exactly 0"


@pytest.mark.parametrize("options", [{}, {"eps": 1e-6}, {"leave_one_out": True}])
def test_an_undefined_return_is_not_taken_for_an_average_one(options: dict[str, Any]) -> None:
    advantages = baselines.centred(np.array([np.nan, 1.0, 2.0, 1.0]), np.array([0, 0, 1, 1]), **options)
    assert np.isnan(advantages[:2]).any()
    assert np.isfinite(advantages[2:]).all()


def test_groups_of_two_with_binary_returns_are_half_a_root() -> None:
    grpo = baselines.centred(np.array([1.0, 0.0]), np.zeros(2, dtype=int), eps=0.0)
    np.testing.assert_allclose(grpo, [0.5**0.5, -(0.5**0.5)], atol=1e-15)


@pytest.mark.parametrize(("size", "expected"), [(2, 0.7071), (8, 1.736), (16, 1.873)])
def test_the_deviation_of_a_group_scales_binary_returns(size: int, expected: float) -> None:
    """Scale of GRPO's gradient at a success probability of one half: sum of Binomial weights (facts 4.2)."""
    from math import comb

    def pair(successes: int, won: bool) -> float:
        row = np.array([1.0] * successes + [0.0] * (size - successes))
        advantages = baselines.centred(row, np.zeros(size, dtype=int), eps=0.0)
        return float(advantages[0] if won else advantages[-1])

    scale = sum(comb(size - 1, m) * 0.5 ** (size - 1) * (pair(m + 1, True) - pair(m, False)) for m in range(size))
    assert scale == pytest.approx(expected, abs=5e-4)


@pytest.mark.parametrize("seed", range(5))
def test_a_constant_in_the_values_lowers_every_advantage_by_itself(seed: int) -> None:
    batch = padded_batch(random_episodes(seed, truncates=False))
    shifted = batch._replace(values=batch.values + 3.0)
    for name in CRITIC:
        ones = usual(name, gamma=1.0, gae_lambda=1.0, gae_lambda_token=1.0)
        np.testing.assert_allclose(of(shifted, name, **ones), of(batch, name, **ones) - 3.0, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("seed", range(5))
def test_rewards_and_values_scale(seed: int) -> None:
    batch = padded_batch(random_episodes(seed))
    scaled = batch._replace(rewards=5 * batch.rewards, values=5 * batch.values, bootstrap=5 * batch.bootstrap)
    for name in UNNORMALISED:
        np.testing.assert_allclose(
            of(scaled, name, **usual(name)), 5 * of(batch, name, **usual(name)), rtol=0, atol=1e-11, err_msg=name
        )
    for name in ("grpo", "rebn", "reinforce_plus_plus"):
        kwargs = usual(name) | {"eps": 0.0}
        np.testing.assert_allclose(of(scaled, name, **kwargs), of(batch, name, **kwargs), atol=1e-10, err_msg=name)


@pytest.mark.parametrize("seed", range(8))
def test_other_rows_and_the_order_of_rows_change_nothing(seed: int) -> None:
    episodes = [*random_episodes(seed), Episode([Step("a", 0.5, [0.1, 0.2])], 0.0, 9)]
    order = np.random.default_rng(seed).permutation(len(episodes)).tolist()
    for name in (*UNNORMALISED, "grpo", "rebn", "reinforce_plus_plus"):
        whole = of(padded_batch(episodes), name, **usual(name))
        per_row = np.split(whole, np.cumsum([sum(episode.lengths) for episode in episodes])[:-1])
        moved = of(padded_batch([episodes[k] for k in order]), name, **usual(name))
        np.testing.assert_allclose(moved, np.concatenate([per_row[k] for k in order]), atol=1e-12, err_msg=name)
        if name not in ("rebn", "reinforce_plus_plus"):  # batch statistics
            without = of(padded_batch(episodes[:-1]), name, **usual(name))
            np.testing.assert_array_equal(without, whole[: len(without)], err_msg=name)


def test_a_single_decision_and_a_single_member_have_no_advantage() -> None:
    alone = padded_batch([Episode([Step("a", 1.0, [0.3, 0.1])])])
    for name in ("rebn", "grpo", "dr_grpo", "rloo"):
        assert (of(alone, name, **usual(name)) == 0).all(), name
    tied = [Episode([Step("a", 0.1, [0.0])] * 3) for _ in range(3)]
    assert (of(padded_batch(tied), "grpo") == 0).all()


# ---------------------------------------------------------------------- SB3


@pytest.mark.parametrize("seed", range(3))
def test_one_token_actions_equal_sb3_in_float64(seed: int) -> None:
    from test_advantages import random_rollout, sb3_buffer

    rollout = random_rollout(seed, steps=40, tokens=1)
    assert rollout.truncated.any()
    gamma, lam = 0.97, 0.9
    buffer = sb3_buffer(rollout, gamma=gamma, gae_lambda=lam)
    stored = buffer.advantages.copy()
    buffer.rewards = rollout.rewards + np.where(rollout.truncated, gamma * rollout.final, 0.0)
    buffer.values, buffer.episode_starts = rollout.values[..., 0], buffer.episode_starts.astype(np.float64)
    buffer.advantages = np.zeros(rollout.rewards.shape)
    buffer.compute_returns_and_advantage(torch.from_numpy(rollout.last), rollout.ends[-1])

    final = np.where(rollout.terminated, 0.0, rollout.final)
    ends = rollout.ends
    first = next_state_values(rollout.values[..., 0], rollout.last, ends, final)
    last = next_action_values(rollout.values, rollout.lengths, rollout.last, ends, final)
    rows = {
        "bad": (token_gae, first, 1.0),
        "ntpo": (token_gae, first, gamma),
        "archer": (token_gae, last, gamma),
        "action": (token_gae, first, 0.3),
        "bilevel": (bilevel_gae, first, 1.0),
    }
    for name, (function, following, gamma_token) in rows.items():
        actual = function(
            rollout.rewards, rollout.values, rollout.lengths, following, ends, gamma=gamma, gae_lambda=lam,
            gamma_token=gamma_token, gae_lambda_token=0.6,
        )[..., 0]  # fmt: skip
        np.testing.assert_allclose(actual, buffer.advantages, rtol=0, atol=1e-12, err_msg=name)
        np.testing.assert_allclose(actual, stored, rtol=1e-5, atol=1e-6, err_msg=name)


# ---------------------------------------------------------------------- exact expectations on a small problem


class Shelf:
    """The problem `truth` of the golden vectors, its 45 episodes enumerated."""

    def __init__(self, truth: dict[str, Any]) -> None:
        self.gamma: float = truth["gamma"]
        self.limit: int = truth["limit"]
        self.actions = {
            state: [(text.split(), reward, after) for text, reward, after in rows]
            for state, rows in truth["actions"].items()
        }
        self.parameters: list[str] = truth["parameters"]
        self.probabilities: list[float] = []
        self.paths: list[list[tuple[str, list[str], float]]] = []
        self._walk(truth["start"], 1.0, [])
        self.scores = np.array(
            [self.score(state, words, j) for path in self.paths for state, words, _ in path for j in range(len(words))]
        )

    def _walk(self, state: str | None, probability: float, path: list[tuple[str, list[str], float]]) -> None:
        if state is None or len(path) == self.limit:
            self.probabilities.append(probability)
            self.paths.append(path)
            return
        for words, reward, after in self.actions[state]:
            chance = float(np.prod([1 / len(self.children(state, words[:j])) for j in range(len(words))]))
            self._walk(after, probability * chance, [*path, (state, words, reward)])

    def children(self, state: str, prefix: list[str]) -> list[str]:
        n = len(prefix)
        return list(dict.fromkeys(words[n] for words, _, _ in self.actions[state] if words[:n] == prefix))

    def score(self, state: str, words: list[str], j: int) -> np.ndarray:
        """Gradient of the log-probability of a token, one logit for each state, prefix and next token."""
        vector = np.zeros(len(self.parameters))
        children = self.children(state, words[:j])
        if len(children) > 1:
            for child in children:
                at = self.parameters.index(" ".join([state, *words[:j], child]))
                vector[at] = (child == words[j]) - 1 / len(children)
        return vector

    def values(self, *, gamma: float, gamma_token: float, last: bool = False, cut: bool = False) -> dict[str, float]:
        """Exact values of prefixes: BAD's, NTPO's, ARCHER's (`last`), or of actions paid on every token (`cut`)."""
        table: dict[str, float] = {}

        def reward(state: str, prefix: list[str]) -> float:
            children = self.children(state, prefix)
            if children == ["end"]:
                return next(pay for words, pay, _ in self.actions[state] if words == [*prefix, "end"])
            return float(np.mean([reward(state, [*prefix, child]) for child in children]))

        def value(state: str, step: int, prefix: list[str]) -> float:
            children = self.children(state, prefix)
            if children == ["end"]:
                pay, after = next((p, a) for words, p, a in self.actions[state] if words == [*prefix, "end"])
                goes_on = after is not None and step + 1 < self.limit and not cut
                result = pay + (gamma * following(after, step + 1) if goes_on else 0.0)
            else:
                result = gamma_token * float(np.mean([value(state, step, [*prefix, child]) for child in children]))
                result += reward(state, prefix) if cut else 0.0
            table["|".join([state, str(step), " ".join(prefix)])] = result
            return result

        def following(state: str, step: int) -> float:
            first = value(state, step, [])
            return before_last(state, step, []) if last else first

        def before_last(state: str, step: int, prefix: list[str]) -> float:
            children = self.children(state, prefix)
            if children == ["end"]:
                return table["|".join([state, str(step), " ".join(prefix)])]
            return float(np.mean([before_last(state, step, [*prefix, child]) for child in children]))

        for step in range(self.limit):
            for state in self.actions:
                value(state, step, [])
        return table

    def batch(self, table: dict[str, float], *, observation: int = 1) -> Batch:
        return padded_batch(
            [
                Episode(
                    [
                        Step(
                            state,
                            reward,
                            [table["|".join([state, str(t), " ".join(words[:j])])] for j in range(len(words))],
                            [0.0] * observation,
                        )
                        for t, (state, words, reward) in enumerate(path)
                    ]
                )
                for path in self.paths
            ]
        )

    def gradients(self, batch: Batch, advantages: np.ndarray) -> np.ndarray:
        """Sum over the tokens of an episode of advantage times score, `[episodes, parameters]`."""
        rows = np.nonzero(batch.mask)[0]
        result = np.zeros((len(self.paths), len(self.parameters)))
        np.add.at(result, rows, advantages[:, None] * self.scores)
        return result

    def moments(self, batch: Batch, advantages: np.ndarray) -> tuple[np.ndarray, float]:
        each, chance = self.gradients(batch, advantages), np.array(self.probabilities)
        mean = chance @ each
        return mean, float(chance @ (each**2).sum(axis=1) - mean @ mean)


TRUTH = GOLDEN["truth"]
SHELF = Shelf(TRUTH)
BAD_VALUES = SHELF.values(gamma=0.9, gamma_token=1.0)
NTPO_VALUES = SHELF.values(gamma=0.9, gamma_token=0.9)
ARCHER_VALUES = SHELF.values(gamma=0.9, gamma_token=0.9, last=True)
BATCH = SHELF.batch(BAD_VALUES)


def replicated() -> tuple[np.ndarray, padded.Turns]:
    """An infinite group: each episode as often as its probability says, and the number of each copy's episode."""
    counts = np.rint(np.array(SHELF.probabilities) * 4**4 * 3**4).astype(int)
    np.testing.assert_allclose(counts / counts.sum(), SHELF.probabilities, rtol=1e-12)
    copies = np.repeat(np.arange(len(counts)), counts)
    return copies, padded.Turns.of(BATCH.rewards[copies], BATCH.mask[copies])


def infinite(name: str) -> np.ndarray:
    copies, turns = replicated()
    n, zeros = len(copies), np.zeros(len(turns.rows), dtype=int)
    numbers = {"groups": zeros, "episodes": turns.rows, "steps": turns.steps}
    if name == "rebn":
        rows = baselines.centred(turns.returns(SHELF.gamma), zeros, eps=0.0, ddof=0)
    elif name == "grpo":
        rows = baselines.centred(turns.totals(), np.zeros(n, dtype=int), eps=0.0, ddof=0)[turns.rows]
    elif name == "step_index":  # with the own return in the mean, as an infinite group has it
        rows = baselines.step_leave_one_out(turns.returns(1.0), **numbers) * (n - 1) / n
    else:
        rows = published.turn_index_mean(turns.rewards[:, 0], **numbers)
        if name == "cumulated":
            rows = returns.returns_to_go(rows[:, None], turns.ends, gamma=1.0)[:, 0]
    everywhere = turns.of_actions(rows)
    first = np.unique(copies, return_index=True)[1]
    return everywhere[first][BATCH.mask]


def shelf_row(name: str, values: dict[str, float] = BAD_VALUES, **settings: Any) -> tuple[Batch, np.ndarray]:
    batch = SHELF.batch(values)
    return batch, of(batch, name, **({"gamma": 0.9, "gae_lambda": 0.95} | settings))


def published_turns(anchor: Any) -> np.ndarray:
    return published.turn_gae(*args(BATCH), gamma=0.9, gae_lambda=0.95, anchor=anchor)[BATCH.mask]


def cut_row() -> tuple[Batch, np.ndarray]:
    batch = SHELF.batch(SHELF.values(gamma=0.9, gamma_token=0.9, cut=True))
    return batch, published.cut_gae(*args(batch), gamma=0.9, gae_lambda=1.0)[batch.mask]


TRUTH_ROWS: dict[str, Callable[[], tuple[Batch, np.ndarray]]] = {
    "returns": lambda: (BATCH, of(BATCH, "returns_to_go", gamma=0.9)),
    "action_gae lambda .95": lambda: shelf_row("action_gae"),
    "bad lambda .95 lambda_token 1": lambda: shelf_row("bad"),
    "bad lambda .95 lambda_token .95": lambda: shelf_row("bad", gae_lambda_token=0.95),
    "bad lambda .95 lambda_token .8": lambda: shelf_row("bad", gae_lambda_token=0.8),
    "bad lambda .95 lambda_token 0": lambda: shelf_row("bad", gae_lambda_token=0.0),
    "ntpo own exact values lambda .95 lambda_token 1": lambda: shelf_row("ntpo", NTPO_VALUES),
    "archer own exact values lambda .95 lambda_token 1": lambda: shelf_row("archer", ARCHER_VALUES),
    "bilevel_corrected lambda .95 lambda_token .8": lambda: shelf_row("bilevel", gae_lambda_token=0.8),
    "bilevel_last_anchor lambda .95 lambda_token .95": lambda: shelf_row(
        "bilevel", gae_lambda_token=0.95, anchor="last"
    ),
    "turn_gae anchor last lambda .95": lambda: (BATCH, published_turns("last")),
    "turn_gae anchor mean lambda .95": lambda: (BATCH, published_turns("mean")),
    "stream_cut own exact values lambda 1 (any lambda: the same mean)": cut_row,
    "turn_index infinite group, immediate rewards": lambda: (BATCH, infinite("immediate")),
    "turn_index infinite group, cumulated, gamma 1": lambda: (BATCH, infinite("cumulated")),
    "step_index infinite group, absent = 0, gamma 1": lambda: (BATCH, infinite("step_index")),
    "rebn infinite batch": lambda: (BATCH, infinite("rebn")),
    "grpo infinite group": lambda: (BATCH, infinite("grpo")),
}


def test_the_enumerated_problem_is_that_of_the_vectors() -> None:
    assert len(SHELF.paths) == 45
    assert sum(SHELF.probabilities) == pytest.approx(1, abs=1e-15)
    for mine, key in ((BAD_VALUES, "values_bad"), (NTPO_VALUES, "values_ntpo")):
        assert set(mine) == set(TRUTH[key])
        assert all(mine[name] == pytest.approx(value, abs=1e-14) for name, value in TRUTH[key].items())


@pytest.mark.parametrize("name", TRUTH["estimators"])
def test_expected_gradients(name: str) -> None:
    mean, trace = SHELF.moments(*TRUTH_ROWS[name]())
    expected = TRUTH["estimators"][name]
    np.testing.assert_allclose(mean, expected["mean"], rtol=0, atol=1e-12)
    assert trace == pytest.approx(expected["trace_of_covariance"], rel=1e-11)


@pytest.mark.parametrize("lam", [1.0, 0.95, 0.5, 0.0])
@pytest.mark.parametrize("lam_token", [1.0, 0.95, 0.0])
def test_rows_that_are_unbiased_with_exact_values(lam: float, lam_token: float) -> None:
    kwargs = {"gae_lambda": lam, "gae_lambda_token": lam_token}
    rows = [
        shelf_row("action_gae", gae_lambda=lam),
        shelf_row("bad", **kwargs),
        shelf_row("bilevel", **kwargs),
        shelf_row("bilevel", **kwargs, anchor="last"),
        shelf_row("archer", **kwargs, gamma_token=1.0),
    ]
    for batch, advantages in rows:
        np.testing.assert_allclose(SHELF.moments(batch, advantages)[0], TRUTH["gradient_run"], rtol=0, atol=1e-12)


def test_biased_rows_are_as_biased_as_the_table_says() -> None:
    """NTPO and ARCHER with own values, turn GAE with a late anchor, and a stream with zeroed observations."""
    run, one = np.array(TRUTH["gradient_run"]), np.array(TRUTH["gradient_undiscounted"])

    def bias(row: tuple[Batch, np.ndarray], truth: np.ndarray = run) -> float:
        return float(np.linalg.norm(SHELF.moments(*row)[0] - truth) / np.linalg.norm(truth))

    assert bias(shelf_row("ntpo", NTPO_VALUES, gae_lambda_token=0.95)) == pytest.approx(0.230, abs=5e-4)
    assert bias(shelf_row("archer", ARCHER_VALUES)) == pytest.approx(0.259, abs=1e-3)
    assert bias((BATCH, published_turns("mean"))) == pytest.approx(0.429, abs=5e-4)
    undiscounted = SHELF.batch(SHELF.values(gamma=1.0, gamma_token=1.0), observation=3)
    for lam, expected in ((1.0, 0.0), (0.95, 0.058), (0.8, 0.179)):
        zeroed = stream(undiscounted, "zeroed", gamma=1.0, gae_lambda=lam)
        assert bias((undiscounted, zeroed), one) == pytest.approx(expected, abs=5e-4)


def test_turn_gae_with_the_last_anchor_has_no_gradient() -> None:
    """The last token is forced and an exact critic knows the others: the reason why it is no setting."""
    assert np.abs(SHELF.moments(BATCH, published_turns("last"))[0]).max() < 1e-15


def pairs() -> dict[str, Any]:
    """All ordered pairs of episodes as groups of two."""
    n = len(SHELF.paths)
    members = np.array(list(itertools.product(range(n), repeat=2))).ravel()
    turns = padded.Turns.of(BATCH.rewards[members], BATCH.mask[members])
    keys = [state for member in members for state, _, _ in SHELF.paths[member]]
    group_of_row = np.repeat(np.arange(n * n), 2)
    groups = group_of_row[turns.rows]
    return {
        "members": members,
        "turns": turns,
        "group_of_row": group_of_row,
        "groups": groups,
        "cells": baselines.cell_numbers(zip(groups.tolist(), keys, strict=True)),
    }


@pytest.fixture(scope="module")
def groups_of_two() -> dict[str, Any]:
    return pairs()


@pytest.mark.parametrize("name", TRUTH["groups_of_two"])
def test_expected_gradients_of_groups_of_two(name: str, groups_of_two: dict[str, Any]) -> None:
    turns, members, groups = (groups_of_two[key] for key in ("turns", "members", "groups"))
    goes, totals = turns.returns(SHELF.gamma), turns.totals()
    eps = 1e-6 if name.endswith("_std") or name == "grpo" else None
    step = baselines.centred(goes, groups_of_two["cells"], eps=eps)
    episode = baselines.centred(totals, groups_of_two["group_of_row"], eps=eps, leave_one_out=name == "rloo")
    rows = {
        "anchor_loo": lambda: baselines.state_leave_one_out(goes, groups_of_two["cells"], turns.rows),
        "step_index_loo": lambda: baselines.step_leave_one_out(goes, groups, turns.rows, turns.steps),
        "turn_index_mean": lambda: published.turn_index_mean(turns.rewards[:, 0], groups, turns.rows, turns.steps),
    }
    if name in rows:
        advantages = rows[name]()
    elif name.startswith("gigpo_step"):
        advantages = step
    else:
        advantages = episode[turns.rows] + (step if name.startswith("gigpo") else 0.0)

    lengths = [len(words) for path in SHELF.paths for _, words, _ in path]
    scores = np.add.reduceat(SHELF.scores, np.cumsum([0, *lengths[:-1]]), axis=0)  # of whole actions
    first_turn = np.cumsum([0, *[len(path) for path in SHELF.paths]])
    own = first_turn[members[turns.rows]] + turns.steps
    each = np.zeros((len(members) // 2, len(SHELF.parameters)))
    np.add.at(each, groups, 0.5 * advantages[:, None] * scores[own])
    chance = np.array(SHELF.probabilities)[members].reshape(-1, 2).prod(axis=1)
    mean = chance @ each
    trace = 2 * float(chance @ (each**2).sum(axis=1) - mean @ mean)
    expected = TRUTH["groups_of_two"][name]
    np.testing.assert_allclose(mean, expected["mean"], rtol=0, atol=1e-12)
    assert trace == pytest.approx(expected["trace_of_covariance"], rel=1e-10)
    truth = {"anchor_loo": "run", "step_index_loo": "run", "rloo": "undiscounted", "dr_grpo": "undiscounted"}
    if name in truth:  # unbiased, Dr. GRPO up to its factor (N - 1) / N
        exact = np.array(TRUTH[f"gradient_{truth[name]}"]) * (0.5 if name == "dr_grpo" else 1.0)
        np.testing.assert_allclose(mean, exact, rtol=0, atol=1e-12)


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
