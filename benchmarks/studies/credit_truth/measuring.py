"""One case of the study: a problem, a policy, its exact gradients, and every estimator against them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks.errors import StudyError
from benchmarks.exact.gradients import (
    Floats,
    PolicyGradients,
    ascend,
    policy_gradients,
    timed_values,
)
from benchmarks.studies.credit_truth.cases import rounded
from benchmarks.studies.credit_truth.critics import EPISODES, fitted_values
from benchmarks.studies.credit_truth.moments import (
    Chain,
    Moments,
    affine,
    chain_of,
    moments,
    path_values,
    whitened,
)
from benchmarks.studies.credit_truth.problems import (
    Problem,
    explored,
    independent,
    multikey_logits,
    worked_example,
)
from benchmarks.studies.credit_truth.rollouts import Sample, sample_episodes
from benchmarks.studies.credit_truth.rows import LAMBDA, Anchored, Row, critic_free_rows, critic_rows, group_rows
from benchmarks.studies.credit_truth.sampling import CHUNK, sample_groups
from benchmarks.studies.engine.jobs import Job, checksum

ENVS = {
    "food-preparation": "VirtualHome-FoodPreparation-v0",
    "entertainment": "VirtualHome-Entertainment-v0",
    "tomato-salad": "Overcooked-TomatoSalad-v0",
}
VALUES = ("exact", "flat", "fitted prefixes", "fitted observations")
"""Values that critic rows are given: exact; exact, but that of the state for all tokens of an action; and averages
of sampled returns by observation and prefix, or by observation alone."""
ASCENT_GAMMA = 0.95
TARGET = {"tabular": 0.6, "pocket": 0.4}
"""Success rate of the ascended policy: gradient steps are taken until it is reached."""
_RATE = {"tabular": 0.1, "pocket": 0.05}
"""Length of a gradient step."""
_MAX_STEPS = 6_000
_SMALLEST = 1e-12
"""Bound relative to the norm of the gradient.

An expected gradient below it is 0 up to rounding, and ratios with it are undefined.
"""
_CRITIC_SEED, _SAMPLE_SEED = 1, 2


@dataclass(frozen=True)
class TruthJob(Job):
    """Cases that differ in the task alone.

    Attributes:
        title: Name of the group.
        tasks: Names of tasks, see `problem_of`.
        parameters: `"tabular"`, or `"pocket"` for the last LoRA matrices of the pocket model.
        policy: `"ascended"`, `"start"` (the uniform policy, or the untrained model), or P(right) of MultiKey.
        gammas: Discounts between actions; the first is that of sampled rows.
        chunks: Parts of the sample of group estimators, `sampling.CHUNK` episodes each; 0 for none.
    """

    runner: ClassVar[str] = "benchmarks.studies.credit_truth.measuring:run_truth"
    title: str
    tasks: tuple[str, ...]
    parameters: str
    policy: str
    gammas: tuple[float, ...]
    chunks: int

    @property
    def surroundings(self) -> dict[str, Any]:
        """See `Job.surroundings`."""
        return {
            "model": checksum("pocket"),
            "target": TARGET[self.parameters],
            "rate": _RATE[self.parameters],
            "lambda": LAMBDA,
            "critic_episodes": EPISODES,
            "chunk": CHUNK,
        }

    @property
    def label(self) -> str:
        """See `Job.label`."""
        return f"truth_{self.title}_{self.parameters}_{self.policy}"

    def __str__(self) -> str:
        return f"{self.title}, {self.parameters} parameters, {self.policy} policy"


def problem_of(task: str, *, share: bool) -> Problem:
    """Return the problem of a task: a name of `ENVS`, `worked-example`, `key-token N` or `multikey K D WORDS HORIZON`.

    Args:
        task: Name of the task; N is `n_tokens`.
        share: Whether logits are shared, see `problems.independent`.
    """
    name, *numbers = task.split()
    if name in ENVS:
        return explored(ENVS[name])
    if name == "worked-example":
        return worked_example()
    if name == "key-token":
        return independent("KeyToken-v0", share=share, n_tokens=int(numbers[0]))
    if name == "multikey":
        k, d, n_words, horizon = map(int, numbers)
        return independent("MultiKey-v0", share=share, k=k, d=d, n_words=n_words, horizon=horizon)
    raise StudyError(f"Expected a task of the study; got {task!r}.")


def run_truth(job: TruthJob) -> dict[str, Any]:
    """Measure all cases of a job on one thread."""
    torch.set_num_threads(1)
    with threadpool_limits(1):
        return {"cases": {task: _case(job, task) for task in job.tasks}}


def _case(job: TruthJob, task: str) -> dict[str, Any]:
    problem = problem_of(task, share=job.parameters == "tabular")
    timed = problem.timed
    policy, basis = _policy(job, task, problem)
    chain = chain_of(timed, policy, basis)
    length = chain.length
    tokens = timed.paths[1][timed.pairs[1]]
    weights = (chain.visits[:, :, None] * chain.chances).sum(axis=0)[timed.pairs]
    result: dict[str, Any] = {
        "success": problem.success_rate(policy),
        "decisions": length,
        "tokens_per_action": float(weights @ tokens / length),
        "states": len(timed.mdp.rewards) - 1,
        "logits": timed.n_logits,
        "dimensions": chain.scores.shape[2],
        "gammas": {},
    }
    sample = sample_episodes(timed, chain.chances, EPISODES, np.random.default_rng(_CRITIC_SEED))
    for gamma in job.gammas:
        logit_gradients = policy_gradients(timed, policy, gamma)
        truth = PolicyGradients(*(vector if basis is None else vector @ basis for vector in logit_gradients))
        kinds = VALUES if gamma == job.gammas[0] else VALUES[:1]
        rows = list(_exact_rows(chain, policy, truth, gamma, sample, kinds))
        if gamma == job.gammas[0] and job.chunks:
            sums = sample_groups(
                timed,
                policy,
                chain.scores.sum(axis=1),
                truth,
                gamma=gamma,
                chunks=job.chunks,
                seed=_SAMPLE_SEED,
            )
            of_name = {row.name: row.truth for row in group_rows(gamma)}
            for (name, size), sampled in sums.items():
                reference = getattr(truth, of_name[name])
                error = sampled.standard_error / float(np.linalg.norm(reference))
                about = {"name": name, "truth": of_name[name], "group": size, "standard_error": error}
                rows.append(about | compared(Moments(sampled.mean, sampled.trace), reference, length))
        norms = {name: float(np.linalg.norm(vector)) for name, vector in truth._asdict().items()}
        result["gammas"][f"{gamma:g}"] = {
            "norms": norms,
            "cosine_run_disc": _cosine(truth.run, truth.disc),
            "cosine_run_one": _cosine(truth.run, truth.one),
            "episodes_sampled": job.chunks * CHUNK if gamma == job.gammas[0] else 0,
            "rows": rows,
        }
    content: dict[str, Any] = rounded(result, 12)
    return content


def _policy(job: TruthJob, task: str, problem: Problem) -> tuple[Floats, Floats | None]:
    """Return the policy, and a basis of the parameters' directions where they are not the logits."""
    timed = problem.timed
    if job.parameters == "pocket":
        from benchmarks.studies.credit_truth.lora import PocketPolicy, factor

        pocket = PocketPolicy(problem)
        for _ in range(_MAX_STEPS if job.policy == "ascended" else 0):
            if problem.success_rate(timed.policy(pocket.logits().detach().numpy())) >= TARGET["pocket"]:
                break
            pocket.ascend(gamma=ASCENT_GAMMA, rate=_RATE["pocket"])
        return timed.policy(pocket.logits().detach().numpy()), factor(pocket.jacobian())
    if re.fullmatch(r"[0-9.]+", job.policy):
        k, d, n_words, _ = map(int, task.split()[1:])
        return timed.policy(multikey_logits(k, d, n_words, float(job.policy))), None
    logits = np.zeros(timed.n_logits)
    for _ in range(_MAX_STEPS if job.policy == "ascended" else 0):
        if problem.success_rate(timed.policy(logits)) >= TARGET["tabular"]:
            break
        logits = ascend(timed, logits, gamma=ASCENT_GAMMA, rate=_RATE["tabular"])
    return timed.policy(logits), None


def _exact_rows(
    chain: Chain, policy: Floats, truth: PolicyGradients, gamma: float, sample: Sample, kinds: Sequence[str]
) -> Iterator[dict[str, Any]]:
    timed = chain.problem
    tables: dict[tuple[str, float, bool], Floats] = {}

    def values_of(kind: str, row: Row) -> Floats:
        key = (kind, row.gamma_token, row.from_last_token)
        if key not in tables:
            if kind.startswith("fitted"):
                values = fitted_values(
                    timed, sample, gamma=gamma, gamma_token=row.gamma_token, prefixes=kind == "fitted prefixes"
                )
            else:
                values = timed_values(
                    timed, policy, gamma=gamma, gamma_token=row.gamma_token, from_last_token=row.from_last_token
                ).values
                if kind == "flat":
                    values = np.broadcast_to(values[:, :, :1], values.shape)
            tables[key] = path_values(chain, values)
        return tables[key]

    for row in critic_rows(gamma):
        for kind in kinds:
            result = exact_moments(chain, row, values_of(kind, row))
            yield {"name": row.name, "truth": "run", "values": kind} | compared(result, truth.run, chain.length)
    none = np.zeros((len(chain.decisions.clocks), timed.paths[0].shape[1]))
    for row in critic_free_rows(gamma):
        result = exact_moments(chain, row, none)
        yield {"name": row.name, "truth": "run"} | compared(result, truth.run, chain.length)


def exact_moments(chain: Chain, row: Row, values: Floats, counts: NDArray[np.integer] | None = None) -> Moments:
    """Compute mean and variance of a row exactly.

    Args:
        chain: Problem under a policy.
        row: Estimator to measure.
        values: Values before the tokens of each action, `[decisions, tokens]`.
        counts: Counted entries, see `moments.whitened`; by default all tokens of an action, or 1 for whole actions.
    """
    timed, decisions = chain.problem, chain.decisions
    states, actions = timed.pairs
    rewards = timed.mdp.rewards[states, actions][decisions.pairs]
    lengths = timed.paths[1][actions][decisions.pairs]
    if row.anchor == "first":
        coefficients = affine(
            row.strategy, rewards, values[:, : row.strategy.n_values(values.shape[1])], lengths, decisions.ends
        )
    else:
        coefficients = affine(Anchored(row.strategy, row.anchor), rewards, values, lengths, decisions.ends)
    if coefficients.alpha.shape[1] == 1:  # one number for all tokens
        inside = np.arange(values.shape[1]) < lengths[:, None]
        coefficients = coefficients._replace(alpha=coefficients.alpha * inside, beta=coefficients.beta * inside)
    if row.per_token:
        coefficients = coefficients._replace(
            alpha=coefficients.alpha / lengths[:, None], beta=coefficients.beta / lengths[:, None]
        )
    if row.whitened:
        if counts is None:
            counts = lengths if row.strategy.credit_level == "token" else np.ones_like(lengths)
        coefficients = whitened(chain, coefficients, counts)
    return moments(chain, coefficients)


def compared(estimate: Moments, truth: Floats, length: float) -> dict[str, float | None]:
    """Compare a mean with the true gradient.

    Args:
        estimate: Mean and variance of the gradient of one episode.
        truth: True gradient.
        length: Expected number of actions of an episode.

    Returns:
        `bias` |E ghat - g| / |g|, `scale` E ghat . g / |g|^2, `cosine`, `nsr` trace / (scale |g|)^2 and
        `snr_per_step`, 1 / (nsr length); None where the denominator is 0.
    """
    norm = float(np.linalg.norm(truth))
    if norm == 0.0:
        return {"bias": None, "scale": None, "cosine": None, "nsr": None, "snr_per_step": None}
    size = float(np.linalg.norm(estimate.mean))
    scale = float(estimate.mean @ truth) / norm**2
    vanishes = size <= _SMALLEST * norm
    nsr = None if vanishes or abs(scale) <= _SMALLEST else max(estimate.trace, 0.0) / (scale * norm) ** 2
    noiseless = nsr is None or nsr <= _SMALLEST
    return {
        "bias": float(np.linalg.norm(estimate.mean - truth)) / norm,
        "scale": 0.0 if vanishes else scale,
        "cosine": None if vanishes else float(estimate.mean @ truth) / (size * norm),
        "nsr": nsr if nsr is None or not noiseless else 0.0,
        "snr_per_step": None if noiseless else 1 / (float(nsr or 1.0) * length),
    }


def _cosine(left: Floats, right: Floats) -> float | None:
    size = float(np.linalg.norm(left) * np.linalg.norm(right))
    return float(left @ right) / size if size else None
