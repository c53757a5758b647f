"""Predictions from closed forms, written before the run, and whether they hold."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks.studies.credit_truth.cases import Case, Measured
from benchmarks.studies.credit_truth.problems import Additive
from benchmarks.studies.credit_truth.rows import LAMBDA
from lang_envs.envs.multikey.admissible import key_slots

EXACT = 1e-10
"""Relative tolerance of enumerated rows."""
STANDARD_ERRORS = 3.0
_BINARY = ("food-preparation", "entertainment")
UNBIASED = (
    "action GAE (TWOSOME, turn-PPO)",
    "BAD, lambda_token 1",
    "BAD, lambda_token 0.95",
    "BAD, lambda_token 0.8",
    "BAD, lambda_token 0",
    "BAD, lambda 1, lambda_token 1",
    "BAD, traces of NTPO 1",
    "BAD, traces of NTPO 0.95",
    "ARCHER, gamma_token 1",
    "bi-level GAE, lambda_token 1",
    "bi-level GAE, lambda_token 0.95",
    "bi-level GAE, lambda_token 0.8",
    "bi-level GAE as published (last anchor)",
    "return to go",
)
"""Names of rows that are unbiased with exact values, by `S_j = V[t, j+1]`."""


class Check(NamedTuple):
    """One number: predicted, measured, and how far they may be apart."""

    case: str
    predicted: float | None
    measured: float | None
    tolerance: float

    @property
    def holds(self) -> bool:
        """Whether they agree."""
        if self.predicted is None or self.measured is None:
            return self.predicted is self.measured
        return abs(self.predicted - self.measured) <= self.tolerance


def grpo_factor(p: float, n: int) -> float:
    """Scale of GRPO's expected gradient with binary returns, c_N(p), from groups with m or m + 1 successes."""

    def advantages(successes: int) -> tuple[float, float]:
        if successes in (0, n):
            return 0.0, 0.0
        mean = successes / n
        deviation = math.sqrt(successes * (1 - mean) ** 2 + (n - successes) * mean**2) / math.sqrt(n - 1) + 1e-6
        return (1 - mean) / deviation, -mean / deviation

    return sum(
        math.comb(n - 1, m) * p**m * (1 - p) ** (n - 1 - m) * (advantages(m + 1)[0] - advantages(m)[1])
        for m in range(n)
    )


def factors(case: Case, of_slot: Callable[[int, int], float]) -> tuple[float, float]:
    """Scale and cosine on MultiKey if the gradient of key slot p of n is multiplied by `of_slot(p, n)`.

    All keys have gradients of one size, so the scale is the mean factor, and the cosine that over the root mean square.
    """
    k, d, _, _ = case.multikey
    weights = np.array([of_slot(slot, k + d) for slot in key_slots(k, d)])
    return float(weights.mean()), float(weights.mean() / np.sqrt((weights**2).mean()))


def _case_label(case: Case, row: str) -> str:
    return f"{case.task}, {case.parameters}, {case.policy}, gamma {case.gamma:g}: {row}"


def _unbiased(cases: Sequence[Case]) -> Iterator[Check]:
    for case in cases:
        for name in UNBIASED:
            yield Check(_case_label(case, name), 0.0, case.exact(name).bias, EXACT)


def _any_critic(cases: Sequence[Case]) -> Iterator[Check]:
    for case in cases:
        for key, row in case.rows.items():
            name, _, values = key.partition(" | ")
            if name == "BAD, lambda 1, lambda_token 1":
                yield Check(_case_label(case, f"{name}, {values} values"), 0.0, row.bias, EXACT)


def _no_gradient(cases: Sequence[Case]) -> Iterator[Check]:
    for case in cases:
        name = "turn GAE, anchor last"
        yield Check(_case_label(case, name), None, case.exact(name).cosine, 0.0)


def _shrunk(name: str, values: str, of_slot: Callable[[Case], Callable[[int, int], float]]) -> Any:
    def checks(cases: Sequence[Case]) -> Iterator[Check]:
        for case in cases:
            if case.is_closed and (row := case.rows.get(f"{name} | {values}")):
                scale, cosine = factors(case, of_slot(case))
                yield Check(_case_label(case, f"{name}, {values}, scale"), scale, row.scale, EXACT)
                yield Check(_case_label(case, f"{name}, {values}, cosine"), cosine, row.cosine, EXACT)

    return checks


def _closed_noise(cases: Sequence[Case]) -> Iterator[Check]:
    kinds = [("action GAE (TWOSOME, turn-PPO)", "action", 1.0)]
    kinds += [(f"BAD, lambda_token {lam:g}", "bad", lam) for lam in (1.0, 0.95, 0.8, 0.0)]
    kinds += [(f"bi-level GAE, lambda_token {lam:g}", "bilevel", lam) for lam in (1.0, 0.95, 0.8)]
    for case in cases:
        if case.is_closed:
            k, d, n_words, horizon = case.multikey
            form = Additive(k, d, horizon, n_words, case.right, case.gamma * LAMBDA)
            for name, kind, lam in kinds:
                expected = form.nsr(kind, lam)
                tolerance = EXACT * max(1.0, expected or 0.0)
                yield Check(_case_label(case, f"{name}, noise to signal"), expected, case.exact(name).nsr, tolerance)


def _matched(cases: Sequence[Case]) -> Iterator[Check]:
    for case in cases:
        if case.is_closed and case.multikey[0] == 1:
            bad, ntpo = (case.exact(name).nsr for name in ("BAD, traces of NTPO 1", "NTPO, lambda_token 1"))
            yield Check(_case_label(case, "NTPO against BAD at its traces"), bad, ntpo, EXACT * max(1.0, bad or 0.0))


def _undiscounted(cases: Sequence[Case]) -> Iterator[Check]:
    for case in cases:
        if case.gamma == 1.0:
            for name in ("NTPO, lambda_token 1", "NTPO, lambda_token 0.95", "ARCHER"):
                yield Check(_case_label(case, name), 0.0, case.exact(name).bias, EXACT)


def _direction(cases: Sequence[Case]) -> Iterator[Check]:
    for case in cases:
        yield Check(_case_label(case, "ReBN, cosine"), 1.0, case.exact("ReBN, infinite batch").cosine, EXACT)


def _groups(case: Case) -> Iterator[tuple[str, int, Measured]]:
    """Yield name and group size of the rows that are sampled."""
    for key, row in case.rows.items():
        name, is_group, size = key.partition(" | N = ")
        if is_group:
            yield name, int(size), row


def _sampled(names: Sequence[str], predicted: Callable[[int], float]) -> Any:
    def checks(cases: Sequence[Case]) -> Iterator[Check]:
        for case in cases:
            for name, size, row in _groups(case):
                if name in names:
                    allowed = STANDARD_ERRORS * (row.standard_error or 0.0)
                    yield Check(_case_label(case, f"{name}, N = {size}, bias"), predicted(size), row.bias, allowed)

    return checks


def _grpo(cases: Sequence[Case]) -> Iterator[Check]:
    for case in cases:
        if case.task in _BINARY:
            for name, size, row in _groups(case):
                if name == "GRPO":
                    factor = grpo_factor(case.facts["success"], size)
                    allowed = STANDARD_ERRORS * (row.standard_error or 0.0) + 1e-5  # eps = 1e-6 beside the deviation
                    yield Check(_case_label(case, f"GRPO, N = {size}, scale"), factor, row.scale, allowed)


def _halved(cases: Sequence[Case]) -> Iterator[Check]:
    for case in cases:
        token, action = (case.exact(name).nsr for name in ("BAD, lambda_token 1", "action GAE (TWOSOME, turn-PPO)"))
        if action and token is not None:
            yield Check(_case_label(case, "BAD, lambda_token 1, over action GAE"), 0.75, token / action, 0.25 + EXACT)


def _noiseless(cases: Sequence[Case]) -> Iterator[Check]:
    for case in cases:
        if case.is_closed and case.multikey[0] == 1 and case.multikey[2:] == (2, 1) and case.right == 0.5:
            yield Check(_case_label(case, "BAD, lambda_token 0"), 0.0, case.exact("BAD, lambda_token 0").nsr, 0.0)


PREDICTIONS: Mapping[str, Callable[[Sequence[Case]], Iterator[Check]]] = {
    "exact critic": _unbiased,
    "any critic": _any_critic,
    "last anchor": _no_gradient,
    "mean anchor": _shrunk("turn GAE, anchor mean", "exact", lambda case: lambda slot, n: (slot + 1) / (n + 1)),
    "NTPO": _shrunk("NTPO, lambda_token 1", "exact", lambda case: lambda slot, n: case.gamma ** (n - slot)),
    "flat critic": _shrunk("BAD, lambda_token 0.8", "flat", lambda case: lambda slot, n: 0.8 ** (n - slot)),
    "noise": _closed_noise,
    "matched traces": _matched,
    "gamma 1": _undiscounted,
    "half": _halved,
    "two words": _noiseless,
    "ReBN": _direction,
    "leave-one-out": _sampled(("RLOO", "step leave-one-out", "anchor leave-one-out"), lambda n: 0.0),
    "Dr. GRPO": _sampled(("Dr. GRPO",), lambda n: 1 / n),
    "GRPO": _grpo,
}
"""Checks of the predictions by name, in the order of docs/benchmarks/credit_truth.md, which words them."""
