"""Credit of key tokens and of distractors on MultiKey, after a part of a training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from benchmarks.studies.engine.findings import Prediction, Row
from benchmarks.studies.engine.jobs import TrainingJob
from benchmarks.studies.engine.pieces import Pieces
from benchmarks.studies.engine.training import train
from benchmarks.studies.tasks import MULTIKEY, POAD
from lang_bench.agents.policy import PolicyAgent
from lang_bench.runner import plan
from lang_bench.runner.episodes import Step, make_text_env, play_episode
from lang_bench.runner.records import step_records
from lang_envs.envs.multikey.admissible import key_slots

_STEPS, _RATE = 4_096, 1e-3
"""Length and learning rate of a part of a training: a critic that knows everything has no advantages left."""
_EPISODES = 50
_SEED = 10_000


@dataclass(frozen=True)
class KeyCreditJob(TrainingJob):
    """A training on MultiKey, and then the mean change of value by each of its tokens in sampled episodes.

    Attributes:
        episodes: Number of episodes sampled after the training.
    """

    runner = "benchmarks.studies.key_credit:run_key_credit"
    episodes: int = _EPISODES

    @property
    def label(self) -> str:
        return f"key-credit_{super().label}"


def run_key_credit(job: KeyCreditJob) -> dict[str, Any]:
    """Do a job on one thread.

    Returns:
        Mean absolute differences of the advantages of a token and the next one, by the credit of POAD: `key` of the
        tokens of key slots, `distractor` of distractor slots; `return` of the episodes. With both lambdas of the action
        at 1 these are changes of the critic's value by one token, and exact values do not change by a distractor. The
        advantage itself holds the outcome of all later tokens, and is larger the earlier a token is.
    """
    model, _ = train(job)
    env, agent = make_text_env(job.env_id, job.env_kwargs), PolicyAgent.of(model)
    keys = set(key_slots(job.env_kwargs["k"], job.env_kwargs["d"]))
    differences: dict[str, list[float]] = {"key": [], "distractor": []}
    returns = []
    for number in range(job.episodes):
        steps: list[Step] = []
        returns.append(play_episode(env, agent, _SEED + number, 1.0, steps.append).episode_return)
        for record in step_records(plan.Job(job.env_id, job.seed, number), steps):
            for slot, (before, after) in enumerate(pairwise(record["advantages"]["POAD"])):
                differences["key" if slot in keys else "distractor"].append(abs(before - after))
    env.close()
    means = {name: round(float(np.mean(values)), 6) for name, values in differences.items()}
    return {**means, "return": round(float(np.mean(returns)), 5)}


def key_credit_jobs(seeds: Sequence[int]) -> Iterator[KeyCreditJob]:
    """Yield a run of POAD for each seed."""
    short = replace(MULTIKEY.evaluation, every=_STEPS, episodes=10)
    task = MULTIKEY._replace(steps=_STEPS, evaluation=short)
    for seed in seeds:
        job = task.job(POAD.algorithm, seed, **{**POAD.arguments, "learning_rate": _RATE})
        yield KeyCreditJob(**vars(job))


def key_credit_rows(pieces: Pieces, seeds: Sequence[int]) -> list[Row]:
    """Compare the credit of key tokens with that of distractors, over the seeds that were run."""
    row = Row(
        "credit falls on key tokens",
        MULTIKEY.name,
        "change of value by key tokens against distractors",
        Prediction.HIGHER,
        "difference of means",
    )
    measured = pieces.select({job.seed: job for job in key_credit_jobs(seeds)})
    if not measured:
        return [row]
    key, distractor = (np.array([piece[name] for piece in measured.values()]) for name in ("key", "distractor"))
    return [row.tested_in_pairs(key, distractor)]
