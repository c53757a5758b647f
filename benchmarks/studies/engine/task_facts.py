"""Facts about a task before any training: choices per action, and returns of random and of optimal play."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

import poad_sb3
from benchmarks.studies.engine.jobs import TaskJob
from benchmarks.studies.engine.training import EVALUATION_SEED
from lang_bench.runner.evaluation import play
from lang_bench.runner.results import references_of
from lang_envs import oracle
from lang_envs.agents import Agent as EnvFunction
from lang_envs.agents import random_agent
from lang_envs.report.statistics import Floats

_SEED = 10_000
_RANDOM_EPISODES = 2_000
"""Number of episodes of random play, where no exact return is known."""


def run_task(job: TaskJob) -> dict[str, Any]:
    """Play some episodes of the untrained policy.

    Returns:
        `choices_per_action`: mean number of tokens of an action at which more than one was possible;
        `share_with_several`: of the actions with more than one such token; `tokens_per_action`; `actions`: how many
        were counted; `random` and `oracle`: mean returns, discounted as the task reports them, on the episodes of an
        evaluation if the oracle's return differs between them (1 without an oracle); `exact`: whether these two were
        computed without sampling.
    """
    env = gym.make(job.env_id, **job.env_kwargs)
    model = poad_sb3.POAD(
        "LLMPolicy", env, seed=_SEED, action_sampling=job.action_sampling, policy_kwargs={"model": job.model}
    )
    vec_env = model.get_env()
    assert vec_env is not None
    vec_env.seed(_SEED)
    observation, episodes, choices, tokens = vec_env.reset(), 0, [], []
    while episodes < job.episodes:
        steps = model.policy.act(observation)
        choices += [len(step.path.decisions) for step in steps]
        tokens += [len(step.path.action) for step in steps]
        observation, _, dones, _ = vec_env.step(np.stack([step.env_action for step in steps]))
        episodes += int(dones.sum())
    try:
        best = _returns(job, lambda env, *_: oracle(env))
    except NotImplementedError:  # TextArena has none, and pays 1 for a game that is won
        best = np.ones(1)
    exact = None if np.ptp(best) else _exact(env.unwrapped, job)
    ends = exact or {"random": _random(job), "oracle": float(best.mean())}
    return {
        "choices_per_action": round(float(np.mean(choices)), 3),
        "share_with_several": round(float(np.mean(np.array(choices) > 1)), 4),
        "tokens_per_action": round(float(np.mean(tokens)), 2),
        "actions": len(choices),
        "random": round(ends["random"], 5),
        "oracle": round(ends["oracle"], 5),
        "exact": exact is not None,
    }


def _exact(env: Any, job: TaskJob) -> dict[str, float] | None:
    """Return exact returns where the environment knows them, or where they are committed."""
    if hasattr(env, "optimal_return"):
        return {"random": float(env.random_return), "oracle": float(env.optimal_return)}
    references = None if job.env_kwargs else references_of(job.env_id)
    return None if references is None else references._asdict()


def _random(job: TaskJob) -> float:
    chance = random_agent(np.random.default_rng((_SEED, 1)))
    n_times = -(-_RANDOM_EPISODES // job.evaluation_episodes)
    return float(np.mean([_returns(job, chance) for _ in range(n_times)]))


def _returns(job: TaskJob, player: EnvFunction) -> Floats:
    """Return discounted returns on the episodes of an evaluation, `[evaluation_episodes]`."""
    played = play(job.env_id, player, job.evaluation_episodes, seed=EVALUATION_SEED, env_kwargs=job.env_kwargs)
    return np.array([episode.discounted_return for episode in played])
