"""Doing a run of the `datasci` study: attempts, one after the other, and the best code on fresh halves."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch

import poad_sb3
from benchmarks.runner.episodes import make_text_env
from benchmarks.studies.coding import MODEL, N_ENVS, CodingJob
from benchmarks.training import FirstRatioWatch
from lang_envs.datascicoding.coder import RandomCoder
from lang_envs.datascicoding.datasets import load
from lang_envs.datascicoding.env import BANNED
from lang_envs.datascicoding.evaluation import Evaluator
from lang_envs.datascicoding.sandbox.client import Limits
from lang_envs.datascicoding.sandbox.shared import shared_sandbox
from poad_sb3.runs import make_envs

__all__ = ["Tried", "fresh_scores", "run_coding_job"]

_SECONDS_PER_SPLIT = 30.0
"""CPU time on fresh halves: generous, since code that was paid for in time has to be scored, not judged again."""


class Tried(NamedTuple):
    """What became of an attempt.

    Attributes:
        code: The body.
        status: See `lang_envs.datascicoding.evaluation.Status`.
        area: Mean ROC AUC over the splits; None if the code did not run. That is also its reward, with -1 for None.
    """

    code: str
    status: str
    area: float | None


def run_coding_job(job: CodingJob) -> dict[str, Any]:
    """Do it, on one thread.

    Returns:
        `areas` of all attempts in their order (None where the code did not run), `outcomes` (number of attempts by
        status), `distinct` (number of different bodies), `seconds`, `largest_first_ratio_error` of learners, and
        `best`: `code`, `area`, `attempt` (its number, from 0) and `fresh` (see `fresh_scores`); None if nothing ran.
    """
    torch.set_num_threads(1)
    started = time.perf_counter()
    error = None
    if job.method == "RandomCoder":
        tried = list(islice(_by_grammar(job), job.attempts))
    elif job.method == "untrained":
        tried = list(islice(_as_it_ships(job), job.attempts))
    else:
        tried, error = _by_learning(job)
    seconds = round(time.perf_counter() - started, 1)
    return {
        "areas": [None if one.area is None else round(one.area, 5) for one in tried],
        "outcomes": dict(Counter(str(one.status) for one in tried).most_common()),
        "distinct": len({one.code for one in tried}),
        "seconds": seconds,
        "largest_first_ratio_error": error,
        "best": _best(job, tried),
    }


def _best(job: CodingJob, tried: list[Tried]) -> dict[str, Any] | None:
    """The first of the best, and what it is worth elsewhere."""
    ran = [(one.area, -number) for number, one in enumerate(tried) if one.area is not None]
    if not ran:
        return None
    area, number = max(ran)
    code = tried[-number].code
    fresh = fresh_scores(job, code) if job.fresh_splits else None
    return {"code": code, "area": area, "attempt": -number, "fresh": fresh}


def fresh_scores(job: CodingJob, code: str) -> dict[str, Any]:
    """ROC AUC on halves that nothing was chosen by, in the sandbox.

    Returns:
        `mean` and `std` (over splits, ddof 0), `splits`; or `status`, if the code fails on one of them.
    """
    limits = Limits(_SECONDS_PER_SPLIT * len(job.fresh_splits), 1024 << 20)
    dataset = load(job.table, preprocessing=job.env_kwargs["preprocessing"])
    evaluate = Evaluator(dataset, job.fresh_splits, banned=BANNED, limits=limits, sandbox=shared_sandbox())
    found = evaluate(code)
    if not found.aucs:
        return {"status": str(found.status)}
    splits = [round(one, 5) for one in found.aucs]
    return {"mean": float(np.mean(found.aucs)), "std": float(np.std(found.aucs)), "splits": splits}


# ---------------------------------------------------------------------- who attempts


def _by_grammar(job: CodingJob) -> Iterator[Tried]:
    """RandomCoder, in whole episodes; it mends most of its failures."""
    env, coder = make_text_env(job.env_id, job.env_kwargs), RandomCoder(job.seed)
    observation, _ = env.reset(seed=job.seed)
    while True:
        observation, _, terminated, truncated, info = env.step(coder(env, observation))
        yield _tried(info)
        if terminated or truncated:
            observation, _ = env.reset()


def _as_it_ships(job: CodingJob) -> Iterator[Tried]:
    """The untrained model in whole episodes, sampled as in training."""
    envs = make_envs(job.env_id, job.env_kwargs, N_ENVS)
    model = poad_sb3.POAD("LLMPolicy", envs, seed=job.seed, policy_kwargs={"model": MODEL}, **job.arguments)
    env = model.get_env()
    assert env is not None
    observation = env.reset()
    while True:
        steps = model.policy.act(observation)
        observation, _, _, infos = env.step(np.stack([step.env_action for step in steps]))
        yield from map(_tried, infos)


def _by_learning(job: CodingJob) -> tuple[list[Tried], float | None]:
    """Training: every environment step is an attempt. Also the largest ratio error of a first minibatch."""
    kind = getattr(poad_sb3, job.method)
    watch = _Watch()
    model = kind("LLMPolicy", make_envs(job.env_id, job.env_kwargs, N_ENVS), seed=job.seed, **job.arguments)
    model.learn(job.attempts, callback=watch)
    return watch.tried[: job.attempts], watch.largest_ratio_error


class _Watch(FirstRatioWatch):
    def __init__(self) -> None:
        super().__init__()
        self.tried: list[Tried] = []

    def _on_step(self) -> bool:
        self.tried.extend(map(_tried, self.locals["infos"]))
        return True


def _tried(info: dict[str, Any]) -> Tried:
    return Tried(info["code"], str(info["status"]), info["auc_mean"])
