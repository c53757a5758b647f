"""Noise of estimators with the critic of a training, against the exact gradient.

`credit-truth` has exact values and averages of returns; this is the same computation at points of real trainings on
MultiKey, with the policy and the critic as they are there. Advantages are centred and scaled over an infinite batch, as
trainings do it in every minibatch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from stable_baselines3.common.callbacks import BaseCallback

from benchmarks.exact.gradients import Floats, policy_gradients, timed_values
from benchmarks.reports.plots import PALETTE, style
from benchmarks.studies.credit_truth.measuring import compared, exact_moments
from benchmarks.studies.credit_truth.moments import chain_of, path_values
from benchmarks.studies.credit_truth.problems import Problem, independent
from benchmarks.studies.credit_truth.rows import LAMBDA, Row
from benchmarks.studies.engine.jobs import Evaluation, TrainingJob
from benchmarks.studies.engine.pictures import panels
from benchmarks.studies.engine.pieces import Piece, Pieces
from benchmarks.studies.engine.study import Options, Report
from benchmarks.studies.engine.training import train
from benchmarks.studies.engine.tuning import Arm, Task
from benchmarks.studies.tasks import GAMMA, MULTIKEY
from lang_envs.envs.multikey.admissible import key_slots
from lang_envs.report import Table
from poad_sb3.common.policies import LLMPolicy
from poad_sb3.credit.estimators import GAE
from poad_sb3.distributions.base import Leaves, TokenPath
from poad_sb3.prompts import Question

SHRUNK = "BAD 1, shrunk"
"""BAD 1 with values inside the action of `shrunk_towards_state`."""
ESTIMATORS = {
    row.name: row
    for row in (
        Row("action level", GAE(GAMMA, LAMBDA, credit_level="action"), whitened=True),
        Row("BAD 1", GAE(GAMMA, LAMBDA, 1.0, 1.0), whitened=True),
        Row("BAD 0.8", GAE(GAMMA, LAMBDA, 1.0, 0.8), whitened=True),
        Row("NTPO 0.95", GAE(GAMMA, LAMBDA, GAMMA, 0.95), gamma_token=GAMMA, whitened=True),
        Row(SHRUNK, GAE(GAMMA, LAMBDA, 1.0, 1.0), whitened=True),
    )
}
"""Estimators by name, with `gae_lambda_token`."""
REFERENCE = "action level | exact"
"""Reference estimator: noise of the rest is relative to it, at the same policy."""


@dataclass(frozen=True)
class CriticNoiseJob(TrainingJob):
    """A training on MultiKey; estimators are compared with the exact gradient along the way.

    Attributes:
        estimators: Names of estimators, keys of `ESTIMATORS`.
        compared_every: Environment steps between two comparisons.
    """

    runner = "benchmarks.studies.credit_truth.trainings:run_critic_noise"
    estimators: tuple[str, ...] = ("action level",)
    compared_every: int = 1_024

    @property
    def label(self) -> str:
        return f"critic-noise_{super().label}"


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
        for position in range(nodes.shape[1]):
            inside = nodes[:, position] >= 0
            np.add.at(reached, nodes[inside, position], chances[inside])
        is_reached = reached[parents] > 0
        table[state, is_reached] = (reached / np.where(is_reached, reached[parents], 1.0))[is_reached]
        table[state, 0] = 1.0
    return table


def critic_table(policy: LLMPolicy, problem: Problem) -> Floats:
    """Return the critic's value of each prefix, `[1, states, nodes]`."""
    timed = problem.timed
    parents, (nodes, lengths) = timed.mdp.trie.parents, timed.paths
    table = np.zeros((1, len(timed.mdp.rewards), len(parents)))
    for state, (text, actions) in enumerate(problem.texts):
        prompt = policy.distribution.prompt(Question(text, actions))
        chances = policy.action_probabilities(text, actions)
        sequences = tuple(map(policy.lm.action_ids, actions))
        leaves = Leaves(sequences, tuple(chances[action] for action in actions))
        values = policy.token_values([TokenPath(prompt, sequence, (), leaves=leaves) for sequence in sequences]).values
        for action, of_path in enumerate(values):
            table[0, state, parents[nodes[action, : lengths[action]]]] = of_path
    return table


def shrunk_towards_state(critic: Floats, exact: Floats, weights: Floats) -> Floats:
    """Move values inside the action towards the value of the state as far as they do not predict returns.

    V'(o, w_<j) = V(o) + k (V(o, w_<j) - V(o)), with the slope k in [0, 1] of the regression of returns on the
    difference: 0 where values inside the action are noise, so that credit is the action's, 1 where they are right.

    Args:
        critic: Values of the nodes, the state's first, `[clocks or 1, states, nodes]`.
        exact: Expected returns from the nodes, `[clocks, states, nodes]`.
        weights: Expected visits of the nodes, `[clocks, states, nodes]`.
    """
    first = critic[:, :, :1]
    inside = np.broadcast_to(critic - first, exact.shape)
    power = (weights * inside**2).sum()
    slope = float((weights * inside * (exact - first)).sum() / power) if power else 0.0
    return np.asarray(first + min(1.0, max(0.0, slope)) * inside)


def right_episode(problem: Problem, table: Floats) -> list[list[float]]:
    """Return the values before each token of an episode of right actions, by action.

    Args:
        problem: Task whose observations are those of one step of an episode each.
        table: Values of the nodes, `[clocks, states, nodes]`.
    """
    timed = problem.timed
    parents, (nodes, lengths) = timed.mdp.trie.parents, timed.paths
    n_targets = len(problem.texts) // timed.limit
    episode = []
    for clock in range(timed.limit):
        state = clock * n_targets
        action = int(problem.successes[state].argmax())
        values = table[clock, state, parents[nodes[action, : lengths[action]]]]
        episode.append([round(float(value), 5) for value in values])
    return episode


class NoiseWatch(BaseCallback):
    """Compares estimators with the exact gradient before some rollouts and after the last.

    Values are exact, the critic's, or the critic's inside the action or before it alone, and exact elsewhere.

    Attributes:
        episodes: Values before the tokens of an episode of right actions, `critic` and `exact`, for each comparison.
        steps: Environment steps of the comparisons.
        success: Success rate of the policy there, exact.
        nsr: Noise to signal by `ESTIMATOR | VALUES`, for each comparison; see `credit_truth.measuring.compared`.
        cosine: Cosine of the mean and the exact gradient, by the same names.
    """

    def __init__(self, problem: Problem, estimators: Sequence[str], every: int) -> None:
        super().__init__()
        self.problem, self.every = problem, every
        self.rows = [ESTIMATORS[name] for name in estimators]
        self.steps: list[int] = []
        self.success: list[float] = []
        self.nsr: dict[str, list[float | None]] = {}
        self.cosine: dict[str, list[float | None]] = {}
        self.episodes: list[dict[str, list[list[float]]]] = []

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
        chain, truth = chain_of(timed, policy), policy_gradients(timed, policy, GAMMA).run
        n_chosen = (np.abs(chain.scores).sum(axis=2) > 0).sum(axis=1)[chain.decisions.pairs]
        self.steps.append(self.num_timesteps)
        right = (chain.visits[:, :, None] * chain.chances * self.problem.successes).sum(axis=(1, 2))
        self.success.append(round(float(right.prod()), 5))
        critic = critic_table(self.model.policy, self.problem)
        undiscounted = timed_values(timed, policy, gamma=GAMMA).values  # inside actions
        tables = {"critic": np.broadcast_to(critic, undiscounted.shape), "exact": undiscounted}
        self.episodes.append({name: right_episode(self.problem, table) for name, table in tables.items()})
        for row in self.rows:
            exact = timed_values(timed, policy, gamma=GAMMA, gamma_token=row.gamma_token).values
            tables = {"exact": exact, "critic": np.broadcast_to(critic, exact.shape)}
            if row.name == SHRUNK:
                weights = chain.visits[:, :, None] * timed.reached(policy)
                tables = {"critic": shrunk_towards_state(critic, exact, weights)}
            elif row.strategy.n_values(2) > 1:
                inside, before = exact.copy(), tables["critic"].copy()
                inside[:, :, 1:], before[:, :, 1:] = critic[:, :, 1:], exact[:, :, 1:]
                tables |= {"critic inside": inside, "critic before": before}
            counts = n_chosen if row.strategy.credit_level == "token" else np.ones_like(n_chosen)
            for kind, table in tables.items():
                moments = exact_moments(chain, row, path_values(chain, table), counts)
                result = compared(moments, truth, chain.length)
                for measure in ("nsr", "cosine"):
                    number = result[measure]
                    series = getattr(self, measure).setdefault(f"{row.name} | {kind}", [])
                    series.append(None if number is None else float(f"{number:.6g}"))


def run_critic_noise(job: CriticNoiseJob) -> dict[str, Any]:
    """Do a job on one thread.

    Returns:
        `steps`, and there `success`, `nsr` and `cosine`; see `NoiseWatch`. `episode` is that of half the training, and
        `returns` are of sampled episodes at both ends.
    """
    problem = independent(job.env_id, share=False, **job.env_kwargs)
    watch = NoiseWatch(problem, job.estimators, job.compared_every)
    _, training = train(job, [watch])
    return {
        "steps": watch.steps,
        "success": watch.success,
        "nsr": watch.nsr,
        "cosine": watch.cosine,
        "episode": {"steps": watch.steps[len(watch.steps) // 2], **watch.episodes[len(watch.steps) // 2]},
        "returns": [round(summary.mean_return, 5) for summary in training.summaries],
        "cpu_seconds": round(training.cpu_seconds, 1),
    }


class Noise(NamedTuple):
    """A `Study` of the noise of estimators along trainings.

    Attributes:
        name: Name on the command line.
        about: Question that the study answers.
        arms: Trainings by name: method, its learning rate, and names of estimators, keys of `ESTIMATORS`. Those that
            need values inside the action are left out for an action-level critic.
        seeds: Seeds of the trainings.
        task: Task of the trainings, on KeyToken or MultiKey.
    """

    name: str
    about: str
    arms: Mapping[str, tuple[Arm, float, tuple[str, ...]]]
    seeds: Sequence[int]
    task: Task = MULTIKEY

    def job(self, name: str, seed: int) -> CriticNoiseJob:
        """Return the training of a seed."""
        arm, rate, estimators = self.arms[name]
        task = self.task._replace(evaluation=Evaluation(every=self.task.steps, episodes=50))
        return CriticNoiseJob(**vars(arm.job(task, seed, {"learning_rate": rate})), estimators=estimators)

    def jobs(self, options: Options, pieces: Pieces) -> Iterator[CriticNoiseJob]:
        """Yield the trainings, seed by seed."""
        options.chosen_tasks((self.task.name,))
        for seed in options.checked_seeds():
            yield from (self.job(name, seed) for name in self.arms)

    def report(self, options: Options, pieces: Pieces) -> Report:
        """Report noise relative to the reference at the same policy, over the seeds."""
        content: dict[str, Any] = {"gamma": GAMMA, "gae_lambda": LAMBDA, "missing": [], "trainings": {}}
        content["seeds"], content["reference"] = list(options.seeds), REFERENCE
        for name, (_, rate, _) in self.arms.items():
            jobs = {seed: self.job(name, seed) for seed in options.checked_seeds()}
            runs = pieces.select(jobs)
            content["missing"] += [f"{name}: seed {seed}" for seed in jobs if seed not in runs]
            if runs:
                summary = _summary(runs, {seed: jobs[seed].name for seed in runs})
                content["trainings"][name] = {"learning_rate": rate, **summary}
        figures = {"": noise_figure(content["trainings"])} if content["trainings"] else {}
        # A critic that is fitted for action-level credit alone has no values inside an action.
        inside = {
            name: content["trainings"][name] for name in content["trainings"] if self.arms[name][2] != ("action level",)
        }
        if any("episode" in training for training in inside.values()):
            figures["_episode"] = episode_figure(inside, self.task)
        return Report(content, figures)

    def tables(self, content: Mapping[str, Any]) -> Iterator[Table]:
        """Yield a table for each training, a column for each comparison; medians over seeds.

        Rows are the success rate, relative noise, and cosines below 1.
        """
        for name, training in content["trainings"].items():
            rows = {"success rate": training["success"]["median"]}
            rows |= {key: noise["median"] for key, noise in training["noise"].items() if key != REFERENCE}
            rows |= {
                f"cosine, {key}": cosine["median"]
                for key, cosine in training["cosine"].items()
                if key.endswith("| critic") and min(cosine["median"]) < 1
            }
            head = ("after steps", *(f"{step:,}" for step in training["steps"]))
            cells = [(key, *(f"{number:.2g}" for number in numbers)) for key, numbers in rows.items()]
            yield Table(f"Training of {name}", head, cells)


def _over_seeds(columns: Sequence[Sequence[float]]) -> dict[str, list[float]]:
    """Return median, least and most over the seeds, of numbers `[seeds, comparisons]`."""
    numbers = np.array(columns, dtype=np.float64)
    series = {"median": np.median(numbers, axis=0), "least": numbers.min(axis=0), "most": numbers.max(axis=0)}
    return {name: [float(f"{number:.4g}") for number in row] for name, row in series.items()}


def _summary(runs: Mapping[int, Piece], names: Mapping[int, str]) -> dict[str, Any]:
    """Summarize noise for the report: relative to the reference at the same policy, then over the seeds."""
    noises = list(runs.values())
    relative = {
        key: [np.divide(run["nsr"][key], run["nsr"][REFERENCE]).tolist() for run in noises] for key in noises[0]["nsr"]
    }
    episodes = {"episode": noises[0]["episode"]} if "episode" in noises[0] else {}  # since `values-inside-noise`
    return {
        **episodes,
        "runs": {str(seed): names[seed] for seed in runs},
        "seeds": list(runs),
        "steps": noises[0]["steps"],
        "success": _over_seeds([run["success"] for run in noises]),
        "noise": {key: _over_seeds(columns) for key, columns in relative.items()},
        "cosine": {key: _over_seeds([run["cosine"][key] for run in noises]) for key in noises[0]["cosine"]},
        "reference": _over_seeds([run["nsr"][REFERENCE] for run in noises]),
    }


@style()
def noise_figure(trainings: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Draw relative noise along each training: medians over seeds, their range, dashed with exact values."""
    figure, grid = panels(len(trainings), 3, 3.6, 2.9, 0.9, sharey=True)
    names, drawn = list(ESTIMATORS), {}
    for axes, (title, training) in zip(grid.flat, trainings.items(), strict=False):
        for key, series in training["noise"].items():
            estimator, _, kind = key.partition(" | ")
            if kind not in ("exact", "critic"):
                continue
            color, line = PALETTE[names.index(estimator)], "--" if kind == "exact" else "-"
            label = f"{estimator}, {'exact values' if kind == 'exact' else 'critic'}"
            (drawn[label],) = axes.plot(training["steps"], series["median"], line, color=color)
            if kind == "critic":
                axes.fill_between(
                    training["steps"], series["least"], series["most"], color=color, alpha=0.15, linewidth=0
                )
        axes.set(title=f"training of {title}", xlabel="environment steps (actions)", yscale="log")
    for axes in grid[:, 0]:
        axes.set_ylabel("noise to signal, relative to\naction level, exact values")
    figure.legend(drawn.values(), drawn, loc="outside lower center", ncols=4)
    return figure


@style()
def episode_figure(trainings: Mapping[str, Mapping[str, Any]], task: Task) -> Figure:
    """Draw the values along an episode of right actions, half way through a training of the first seed.

    Key tokens are shaded: by exact values, these alone change them.
    """
    trainings = {name: training for name, training in trainings.items() if "episode" in training}
    keys = key_slots(task.env_kwargs["k"], task.env_kwargs["d"])
    figure, grid = panels(len(trainings), 2, 3.6, 2.2, 0.7, sharey=True)
    lines = {}
    for axes, (title, training) in zip(grid.flat, trainings.items(), strict=False):
        start = 0
        for critic, exact in zip(training["episode"]["critic"], training["episode"]["exact"], strict=True):
            tokens = range(start, start + len(critic))
            for key in keys:
                axes.axvspan(start + key, start + key + 1, color="0.9", linewidth=0)
            (lines["exact values"],) = axes.plot(tokens, exact, "--", color="0.3")
            (lines["critic"],) = axes.plot(tokens, critic, ".-", color=PALETTE[0])
            start += len(critic) + 1
        axes.set(title=f"training of {title}", xlabel="tokens of four actions", xticks=[])
    for axes in grid[:, 0]:
        axes.set_ylabel("value before the token")
    figure.legend(lines.values(), lines, loc="outside lower center", ncols=2)
    return figure
