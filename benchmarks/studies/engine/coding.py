"""Runs on code: attempts, one after the other, and the best code on fresh halves."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.vec_env import VecEnv

import poad_sb3
from benchmarks.studies.engine.jobs import CODER, N_ENVS, CodingJob
from benchmarks.studies.engine.training import FirstRatioWatch
from lang_bench.runner.episodes import make_text_env
from lang_envs.datasets import load
from lang_envs.envs.datascicoding.coder import RandomCoder
from lang_envs.envs.datascicoding.env import BANNED
from lang_envs.envs.datascicoding.evaluation import Evaluator
from lang_envs.sandbox.client import Limits
from lang_envs.sandbox.shared import shared_sandbox
from poad_sb3.common.on_policy_algorithm import LLMOnPolicyAlgorithm
from poad_sb3.vec_env.make_envs import make_envs

_SECONDS_PER_SPLIT = 30.0
"""CPU seconds on fresh halves: generous, as code that earned a reward in time shall be scored, not judged again."""


def run_coding(job: CodingJob) -> dict[str, Any]:
    """Do a job on one thread.

    Returns:
        `areas` of all attempts in their order (mean ROC AUC over the splits; None where the code did not run),
        `outcomes` (number of attempts by status), `distinct` (number of different bodies), `lengths` (of the bodies, in
        characters), `seconds`, `largest_first_ratio_error` of learners, and `best`: `code`, `area`, `attempt` (its
        number, from 0) and `fresh` (see `fresh_scores`); None if no code ran.
    """
    torch.set_num_threads(1)
    started = time.perf_counter()
    watch = _Attempts()
    if job.method == "RandomCoder":
        infos = list(islice(_by_grammar(job), job.attempts))
    elif job.method == "untrained":
        infos = list(islice(_untrained(job), job.attempts))
    else:
        envs = make_envs(job.env_id, job.env_kwargs, N_ENVS)
        model = getattr(poad_sb3, job.method)("LLMPolicy", envs, seed=job.seed, micro_batches=1, **job.arguments)
        _seed_envs(model, job)
        model.learn(job.attempts, callback=watch)
        infos = watch.infos[: job.attempts]
    seconds = round(time.perf_counter() - started, 1)
    areas = [info["auc_mean"] for info in infos]
    ran = [(area, -number) for number, area in enumerate(areas) if area is not None]
    best: dict[str, Any] | None = None
    if ran:
        area, number = max(ran)  # the first of the best
        code = infos[-number]["code"]
        fresh = fresh_scores(job, code) if job.fresh_splits else None
        best = {"code": code, "area": area, "attempt": -number, "fresh": fresh}
    return {
        "areas": [None if area is None else round(area, 5) for area in areas],
        "outcomes": dict(Counter(str(info["status"]) for info in infos).most_common()),
        "distinct": len({info["code"] for info in infos}),
        "lengths": [len(info["code"]) for info in infos],
        "seconds": seconds,
        "largest_first_ratio_error": watch.largest_ratio_error if watch.infos else None,
        "best": best,
    }


def fresh_scores(job: CodingJob, code: str) -> dict[str, Any]:
    """Return the ROC AUC on halves unused for any choice, in the sandbox.

    Returns:
        `mean` and `std` (over splits, ddof 0), `splits`; or `status`, if the code fails on one of them.
    """
    limits = Limits(_SECONDS_PER_SPLIT * len(job.fresh_splits), 1024 << 20)
    dataset = load(job.table, preprocessing=job.env_kwargs["preprocessing"])
    evaluate = Evaluator(dataset, job.fresh_splits, banned=BANNED, limits=limits, sandbox=shared_sandbox())
    evaluation = evaluate(code)
    if not evaluation.aucs:
        return {"status": str(evaluation.status)}
    splits = [round(auc, 5) for auc in evaluation.aucs]
    return {"mean": float(np.mean(evaluation.aucs)), "std": float(np.std(evaluation.aucs)), "splits": splits}


def _by_grammar(job: CodingJob) -> Iterator[Mapping[str, Any]]:
    """Yield attempts of RandomCoder, in whole episodes; it repairs most of its failures."""
    env, coder = make_text_env(job.env_id, job.env_kwargs), RandomCoder(job.seed)
    observation, _ = env.reset(seed=job.seed)
    while True:
        observation, _, terminated, truncated, info = env.step(coder(env, observation))
        yield info
        if terminated or truncated:
            observation, _ = env.reset()


def _untrained(job: CodingJob) -> Iterator[Mapping[str, Any]]:
    """Yield attempts of the model as it ships, in whole episodes, sampled as in training."""
    envs = make_envs(job.env_id, job.env_kwargs, N_ENVS)
    model = poad_sb3.POAD(
        "LLMPolicy", envs, seed=job.seed, policy_kwargs={"model": CODER}, micro_batches=1, **job.arguments
    )
    env = _seed_envs(model, job)
    observation = env.reset()
    while True:
        steps = model.policy.act(observation)
        observation, _, _, infos = env.step(np.stack([step.env_action for step in steps]))
        yield from infos


def _seed_envs(model: LLMOnPolicyAlgorithm, job: CodingJob) -> VecEnv:
    """Seed environments so that seeds of a study share no generated table; SB3 gives environment i seed + i."""
    env = model.get_env()
    assert env is not None
    env.seed(N_ENVS * job.seed)
    return env


class _Attempts(FirstRatioWatch):
    """Keeps the info of every environment step of a training: each is an attempt."""

    def __init__(self) -> None:
        super().__init__()
        self.infos: list[Mapping[str, Any]] = []

    def _on_step(self) -> bool:
        self.infos.extend(
            {name: info[name] for name in ("code", "status", "auc_mean")} for info in self.locals["infos"]
        )
        return True
