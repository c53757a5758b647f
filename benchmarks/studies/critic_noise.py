"""`critic-noise`: noise of BAD and of action-level credit with the critic of a training, against the exact gradient.

`credit-truth` has exact values and averages of returns; this is the same computation at points of real trainings on
MultiKey, with the policy and the critic as they are there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from stable_baselines3.common.callbacks import BaseCallback

from benchmarks.reports.plots import PALETTE, style
from benchmarks.studies.credit_truth.measuring import compared, exact_moments
from benchmarks.studies.credit_truth.moments import decisions_of, path_values
from benchmarks.studies.credit_truth.problems import Problem, independent
from benchmarks.studies.credit_truth.rows import LAMBDA, Row
from benchmarks.studies.engine.jobs import Evaluation, TrainingJob
from benchmarks.studies.engine.pieces import Piece, Pieces
from benchmarks.studies.engine.study import Options, Report, Study
from benchmarks.studies.engine.training import train_job
from benchmarks.studies.engine.tuning import Arm
from benchmarks.studies.tasks import ACTION_LEVEL, GAMMA, MULTIKEY, trie
from poad_sb3.common.policies import LLMPolicy
from poad_sb3.credit.estimators import GAE
from poad_sb3.distributions.base import TokenPath
from poad_sb3.prompts import Question
from poad_sb3.tabular.gradients import Floats, policy_gradients, scores, timed_values, visits

SEEDS = tuple(range(400, 404))
"""Of this study alone."""
RATE = 4e-3
"""Chosen by `lambda-token` for both methods."""
_TRACES = (1.0, 0.8)
ARMS = (trie("POAD 1", "POAD", gae_lambda_token=1.0), ACTION_LEVEL)
"""Whose policies and critics are looked at."""
_EVERY = 1_024


@dataclass(frozen=True)
class CriticNoiseJob(TrainingJob):
    """A training on MultiKey; estimators are compared with the exact gradient along the way.

    Attributes:
        traces: `gae_lambda_token` of the BAD estimators that are compared.
    """

    runner = "benchmarks.studies.critic_noise:run_critic_noise"
    traces: tuple[float, ...] = _TRACES

    @property
    def label(self) -> str:
        return f"critic-noise_{super().label}"

    def outcome(self, result: Any) -> str:
        return f"exact success rate {result['success'][-1]}"


def policy_table(policy: LLMPolicy, problem: Problem) -> Floats:
    """Return the probability of the token that leads to each node of the trie, `[states, nodes]`."""
    timed = problem.timed
    parents, (nodes, _) = timed.mdp.trie.parents, timed.paths
    table = timed.policy(np.zeros(timed.n_logits))
    for state, (text, actions) in enumerate(problem.texts):
        by_text = policy.action_probabilities(text, list(actions))
        chances = np.array([by_text[action] for action in actions])
        reached = np.zeros(len(parents))
        reached[0] = chances.sum()
        for place in range(nodes.shape[1]):
            inside = nodes[:, place] >= 0
            np.add.at(reached, nodes[inside, place], chances[inside])
        known = reached[parents] > 0
        table[state, known] = (reached / np.where(known, reached[parents], 1.0))[known]
        table[state, 0] = 1.0
    return table


def critic_table(policy: LLMPolicy, problem: Problem) -> Floats:
    """Return the critic's value of each prefix, `[1, states, nodes]`."""
    timed = problem.timed
    parents, (nodes, lengths) = timed.mdp.trie.parents, timed.paths
    table = np.zeros((1, len(timed.mdp.rewards), len(parents)))
    for state, (text, actions) in enumerate(problem.texts):
        prompt = policy.distribution.prompt(Question(text, actions))
        found = policy.token_values([TokenPath(prompt, policy.lm.action_ids(action), ()) for action in actions])
        values = found.values.cpu().numpy()
        for action, start in enumerate(found.starts):
            path = nodes[action, : lengths[action]]
            table[0, state, parents[path]] = values[start : start + len(path)]
    return table


class NoiseWatch(BaseCallback):
    """Compares estimators with the exact gradient before some rollouts and after the last.

    Attributes:
        steps: Environment steps of the comparisons.
        success: Success rate of the policy there, exact.
        found: By `ESTIMATOR | VALUES` and measure, a number for each comparison: `bias` and `nsr` of
            `credit_truth.measuring.compared`.
    """

    def __init__(self, problem: Problem, traces: Sequence[float], every: int) -> None:
        super().__init__()
        self.problem, self.every = problem, every
        self.rows = [Row("action level", GAE(GAMMA, LAMBDA, credit_level="action"))]
        self.rows += [Row(f"BAD {trace:g}", GAE(GAMMA, LAMBDA, 1.0, trace)) for trace in traces]
        self.steps: list[int] = []
        self.success: list[float] = []
        self.found: dict[str, dict[str, list[float | None]]] = {"bias": {}, "nsr": {}}

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        if self.num_timesteps % self.every == 0:
            self._compare()

    def _on_training_end(self) -> None:
        self._compare()

    def _compare(self) -> None:
        assert isinstance(self.model.policy, LLMPolicy)
        timed, policy = self.problem.timed, policy_table(self.model.policy, self.problem)
        each, reachable = scores(timed, policy), visits(timed, policy)
        decisions, truth = decisions_of(timed, reachable), policy_gradients(timed, policy, GAMMA).run
        tables = {
            "exact": timed_values(timed, policy, gamma=GAMMA).values,
            "trained": critic_table(self.model.policy, self.problem),
        }
        self.steps.append(self.num_timesteps)
        self.success.append(round(self.problem.success_rate(policy), 5))
        for kind, table in tables.items():
            values = path_values(timed, table, decisions)
            for row in self.rows:
                moments = exact_moments(timed, policy, each, decisions, reachable, row, values)
                found = compared(moments, truth, float(reachable.sum()))
                for measure, series in self.found.items():
                    number = found[measure]
                    series.setdefault(f"{row.name} | {kind}", []).append(
                        None if number is None else float(f"{number:.6g}")
                    )


def run_critic_noise(job: CriticNoiseJob) -> dict[str, Any]:
    """Do a job on one thread.

    Returns:
        `steps`, and there `success`, `bias` and `nsr`; see `NoiseWatch`. `returns` of sampled episodes at both ends.
    """
    watch = NoiseWatch(independent(job.env_id, share=False, **job.env_kwargs), job.traces, _EVERY)
    _, training = train_job(job, callbacks=[watch])
    return {
        "steps": watch.steps,
        "success": watch.success,
        **watch.found,
        "returns": [round(one.mean_return, 5) for one in training.summaries],
        "cpu_seconds": round(training.cpu_seconds, 1),
    }


def _job(arm: Arm, seed: int) -> CriticNoiseJob:
    ends = Evaluation(every=MULTIKEY.steps, episodes=50)
    job = replace(MULTIKEY.job(arm.algorithm, seed, **{**arm.arguments, "learning_rate": RATE}), evaluation=ends)
    return CriticNoiseJob(**vars(job))


def _jobs(options: Options, pieces: Pieces) -> Iterator[CriticNoiseJob]:
    for seed in options.checked_seeds() if not options.tuning_only else ():
        yield from (_job(arm, seed) for arm in ARMS)


# ---------------------------------------------------------------------- the report


def _median(runs: Sequence[Piece], measure: str, name: str) -> list[float | None]:
    """Return the median over the seeds at each comparison; None where a seed has no signal left."""
    columns = zip(*(run[measure][name] for run in runs), strict=True)
    return [None if None in column else float(f"{np.median(column):.4g}") for column in columns]


def _report(options: Options, pieces: Pieces) -> Report:
    content: dict[str, Any] = {"learning_rate": RATE, "gamma": GAMMA, "gae_lambda": LAMBDA, "missing": []}
    content["seeds"], content["trainings"] = list(options.seeds), {}
    for arm in ARMS:
        jobs = [_job(arm, seed) for seed in options.checked_seeds()]
        runs = {job.seed: piece for job in jobs if (piece := pieces.find(job)) is not None}
        content["missing"] += [f"{arm.name}: seed {job.seed}" for job in jobs if job.seed not in runs]
        if not runs:
            continue
        found = list(runs.values())
        known = list(found[0]["nsr"])
        if arm is ACTION_LEVEL:  # its critic was never asked for values inside an action
            known = [key for key in known if key.endswith("exact") or key.startswith(arm.name)]
        content["trainings"][arm.name] = {
            "seeds": list(runs),
            "steps": found[0]["steps"],
            "success": [float(np.median(column)) for column in zip(*(one["success"] for one in found), strict=True)],
            **{measure: {name: _median(found, measure, name) for name in known} for measure in ("nsr", "bias")},
        }
    lines = [
        f"Training of {name}, noise to signal after {one['steps'][-1]:,} steps: "
        + ", ".join(f"{key.replace(' | ', ' with ')} values {series[-1]}" for key, series in one["nsr"].items())
        for name, one in content["trainings"].items()
    ]
    pictures = {"": noise_figure(content["trainings"])} if content["trainings"] else {}
    return Report(content, pictures, lines + [f"Missing: {one}" for one in content["missing"]])


@style()
def noise_figure(trainings: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Draw noise to signal along each training: a colour for each estimator, dashed with exact values."""
    figure = Figure(figsize=(1 + 4.2 * len(trainings), 3.8), layout="constrained")
    grid = figure.subplots(1, len(trainings), squeeze=False, sharey=True)
    for axes, (name, one) in zip(grid.flat, trainings.items(), strict=True):
        estimators = list(dict.fromkeys(key.partition(" | ")[0] for key in one["nsr"]))
        for key, series in one["nsr"].items():
            estimator, _, kind = key.partition(" | ")
            is_exact = kind == "exact"
            numbers = [np.nan if number is None else number for number in series]
            color = PALETTE[estimators.index(estimator)]
            label = f"{estimator}, {'exact values' if is_exact else 'the critic'}"
            axes.plot(one["steps"], numbers, "--" if is_exact else "-", color=color, label=label)
        axes.set(title=f"during a training of {name}", xlabel="environment steps (actions)", yscale="log")
    grid[0, 0].set_ylabel("noise to signal, in episodes")
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3)
    return figure


CRITIC_NOISE = Study(
    "critic-noise",
    "noise of action-level credit and of BAD with the critics of real trainings on MultiKey",
    _jobs,
    _report,
    seeds=SEEDS,
)
