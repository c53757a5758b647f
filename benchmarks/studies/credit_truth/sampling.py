"""Means and variances of the estimators that compare episodes of a group, from one sample of episodes for all.

Control variates reduce the standard errors: estimators on the same episodes whose mean is known exactly (a return to go
has the mean g_run, an episode return g_one, a score 0; for the biased rows also the leave-one-out ones). Their
coefficients come from a first part of the sample that is not counted, so the mean stays unbiased. Blocks of 16 episodes
are independent; smaller groups lie inside them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from benchmarks.exact.gradients import Floats, PolicyGradients, TimedMDP
from benchmarks.studies.credit_truth.rollouts import Sample, sample_episodes
from benchmarks.studies.credit_truth.rows import CONTROLS, GROUP_SIZES, GroupRow, group_rows
from poad_sb3.credit.estimators import EpisodeReturn, Estimator, GiGPOSum, ReturnToGo

BLOCK = max(GROUP_SIZES)
CHUNK = 4_096
"""Number of episodes that are drawn together."""


class Sampled(NamedTuple):
    """Moments of an estimator, from a sample.

    Attributes:
        mean: Mean of the gradient of one episode, with control variates, `[dimensions]`.
        standard_error: Standard error of the mean, the root of the sum over dimensions.
        trace: Trace of the covariance of the mean over a group, times the size of the group.
    """

    mean: Floats
    standard_error: float
    trace: float


class _Sums:
    """Running sums of one estimator."""

    def __init__(self, dim: int) -> None:
        self.total, self.squares = np.zeros(dim), 0.0  # of groups
        self.adjusted, self.adjusted_squares = np.zeros(dim), 0.0  # of blocks, less the control variates
        self.groups = self.blocks = 0


def sample_groups(
    problem: TimedMDP,
    policy: Floats,
    basis: Floats,
    truth: PolicyGradients,
    *,
    gamma: float,
    chunks: int,
    seed: int,
) -> dict[tuple[str, int], Sampled]:
    """Sample every row of `group_rows` at every group size.

    Args:
        problem: Finite problem.
        policy: Probability of each token, `[states, nodes]`.
        basis: Gradient of log pi of each pair's action, `[pairs, dimensions]`.
        truth: Exact gradients.
        gamma: Discount between actions.
        chunks: Number of parts of `CHUNK` episodes that count.
        seed: Seed of the sample.

    Returns:
        Moments by row and group size.
    """
    rng = np.random.default_rng(seed)
    chances = problem.action_probabilities(policy)
    rows = group_rows(gamma)
    sums = {(row.name, size): _Sums(basis.shape[1]) for row in rows for size in GROUP_SIZES}
    coefficients: dict[tuple[str, int], Floats] = {}
    for chunk in range(chunks + 1):
        sample = sample_episodes(problem, chances, CHUNK, rng, shared=BLOCK)
        alone = sample.rollout(problem)
        single: dict[str, Floats] = {
            name: np.asarray(strategy.advantages(alone), dtype=np.float64)
            for name, strategy in _controls_of(gamma).items()
        }
        single["score"] = np.ones_like(single["return to go"])
        for size in GROUP_SIZES:
            weights = _weights_of(problem, sample, rows, size, single)
            vectors = {name: weight @ basis for name, weight in weights.items()}
            for row in rows:
                controls, means = _controls(row, rows, vectors, truth)
                key = (row.name, size)
                if chunk == 0:
                    coefficients[key] = _fitted(vectors[row.name], controls)
                else:
                    _add(sums[key], vectors[row.name], controls, means, coefficients[key], size)
    return {key: _summary(total, key[1]) for key, total in sums.items()}


def _controls_of(gamma: float) -> dict[str, Estimator]:
    return {"return to go": ReturnToGo(gamma, credit_level="action"), "episode return": EpisodeReturn(gamma)}


def _weights_of(
    problem: TimedMDP, sample: Sample, rows: list[GroupRow], size: int, single: dict[str, Floats]
) -> dict[str, Floats]:
    """Compute the mean over each group of the advantages of its pairs, `[groups, pairs]`, by estimator."""
    rollout = sample.rollout(problem, size)
    step, env = np.nonzero(sample.counted)
    pairs, n_pairs = sample.pairs[step, env], len(problem.pairs[0])
    places = env // size * n_pairs + pairs
    n_groups = sample.pairs.shape[1] // size
    tokens = (rollout.lengths * sample.counted).sum(axis=0)[env]

    def collected(advantages: Floats) -> Floats:
        flat = np.bincount(places, weights=advantages, minlength=n_groups * n_pairs)
        return flat.reshape(n_groups, n_pairs) / size

    computed: dict[Estimator, Floats] = {}

    def of(strategy: Estimator) -> Floats:
        if isinstance(strategy, GiGPOSum):  # the sum that `GiGPOSum.advantages` makes, of parts that are rows
            of_episode, of_step = strategy.parts
            return of(of_episode) + strategy.omega * of(of_step)
        if strategy not in computed:
            if isinstance(strategy, ReturnToGo):  # as its `advantages`, from returns that are computed once
                weights = strategy.compared(single["return to go"][step, env, 0], rollout, (step, env))
            else:
                weights = strategy.advantages(rollout)[step, env, 0]
            computed[strategy] = np.asarray(weights, dtype=np.float64)
        return computed[strategy]

    weights = {row.name: collected(of(row.strategy) / (tokens if row.per_token else 1.0)) for row in rows}
    return weights | {name: collected(values[step, env, 0]) for name, values in single.items()}


def _controls(
    row: GroupRow, rows: list[GroupRow], vectors: dict[str, Floats], truth: PolicyGradients
) -> tuple[list[Floats], list[Floats]]:
    controls = list(CONTROLS)
    if not row.is_unbiased:
        controls += [
            (reported.name, reported.truth)
            for reported in rows
            if reported.strategy.leave_one_out or reported.name.startswith("step")
        ]
    zero = np.zeros_like(truth.run)
    means = [zero if reference is None else getattr(truth, reference) for _, reference in controls]
    return [vectors[name] for name, _ in controls], means


def _fitted(vectors: Floats, controls: list[Floats]) -> Floats:
    """Fit the coefficients of the control variates, one for all dimensions, by least squares."""
    centred = [control - control.mean(axis=0) for control in controls]
    products = np.array([[float((left * right).sum()) for right in centred] for left in centred])
    target = np.array([float((control * (vectors - vectors.mean(axis=0))).sum()) for control in centred])
    ridge = 1e-9 * max(float(np.trace(products)), 1e-300)
    solution: Floats = np.linalg.solve(products + ridge * np.eye(len(centred)), target)
    return solution


def _add(
    sums: _Sums, vectors: Floats, controls: list[Floats], means: list[Floats], coefficients: Floats, size: int
) -> None:
    sums.total += vectors.sum(axis=0)
    sums.squares += float((vectors * vectors).sum())
    sums.groups += len(vectors)
    adjusted = vectors.copy()
    for coefficient, control, mean in zip(coefficients.tolist(), controls, means, strict=True):
        adjusted -= coefficient * (control - mean)
    blocks = adjusted.reshape(-1, BLOCK // size, adjusted.shape[1]).mean(axis=1)
    sums.adjusted += blocks.sum(axis=0)
    sums.adjusted_squares += float((blocks * blocks).sum())
    sums.blocks += len(blocks)


def _summary(sums: _Sums, size: int) -> Sampled:
    raw, mean = sums.total / sums.groups, sums.adjusted / sums.blocks
    trace = size * max(sums.squares / sums.groups - float(raw @ raw), 0.0)
    spread = max(sums.adjusted_squares / sums.blocks - float(mean @ mean), 0.0)
    return Sampled(mean, float(np.sqrt(spread / sums.blocks)), trace)
