"""Doing a job: training, evaluations along the way, tests and a recorded episode after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

import poad_sb3
from benchmarks.agents.base import Agent, Decision, TokenCredit
from benchmarks.evaluation import policy_agent
from benchmarks.runner import plan
from benchmarks.runner.discounts import discount_of
from benchmarks.runner.episodes import Step, make_text_env, play_episode
from benchmarks.runner.records import step_records
from benchmarks.studies.jobs import Job
from benchmarks.training import train
from lang_envs import LangEnv
from poad_sb3.on_policy import LLMOnPolicyAlgorithm
from poad_sb3.paths import TokenPath

__all__ = ["run_job"]

_ROLLOUT_SEED = 0
_ROLLOUT_FIELDS = ("observation", "action", "reward", "success", "terminated", "truncated", "tokens", "log_probs")


def run_job(job: Job) -> dict[str, Any]:
    """Do it, on one thread.

    Returns:
        `steps`, and there `returns` (discounted as the code bases report), `success`, `actions`; `cpu_seconds` of
        training, without evaluations; `largest_first_ratio_error`; `tests` and `rollout` where they are asked for.
    """
    torch.set_num_threads(1)
    model, curve = train(
        job.env_id,
        job.steps,
        job.seed,
        eval_every=job.evaluation.every,
        eval_episodes=job.evaluation.episodes,
        env_kwargs=job.env_kwargs,
        algorithm=getattr(poad_sb3, job.algorithm),
        **job.arguments,
    )
    result: dict[str, Any] = {
        "steps": curve.steps,
        "returns": [round(one.mean_return, 5) for one in curve.summaries],
        "success": [one.success_rate for one in curve.summaries],
        "actions": [round(one.mean_actions, 2) for one in curve.summaries],
        "cpu_seconds": round(curve.cpu_seconds, 1),
        "largest_first_ratio_error": curve.first_ratio_error,
    }
    if job.evaluation.tests:
        result["tests"] = {env_id: _test(model, env_id, job) for env_id in job.evaluation.tests}
    if job.evaluation.rollout:
        result["rollout"] = _rollout(model, job)
    return result


def _test(model: LLMOnPolicyAlgorithm, env_id: str, job: Job) -> dict[str, float]:
    """Means over episodes of a task, by the runner's loop, with its seeds for the episodes of this seed."""
    env, agent, discount = make_text_env(env_id), policy_agent(model), discount_of(env_id)
    episodes = [plan.Job(env_id, job.seed, number) for number in range(job.evaluation.test_episodes)]
    played = [play_episode(env, agent, one.reset_seed, discount) for one in episodes]
    env.close()
    return {
        "discounted_return": round(float(np.mean([one.discounted_return for one in played])), 5),
        "success": float(np.mean([one.success for one in played])),
        "steps": round(float(np.mean([one.n_actions for one in played])), 2),
        "episodes": len(played),
    }


class _Judge(Agent):
    """Says the actions of a script, and values their tokens by the critic of a model."""

    name = "judge"

    def __init__(self, model: LLMOnPolicyAlgorithm, script: Sequence[str]) -> None:
        self.settings = {"script": list(script)}
        self._model, self._script = model, list(script)

    def begin(self, env: LangEnv[Any], seed: int) -> None:
        self._left = list(self._script)

    def act(self, observation: str, info: Mapping[str, Any]) -> Decision:
        text = self._left.pop(0)
        return Decision(text, credit=self._credit(observation, info, text))

    def _credit(self, observation: str, info: Mapping[str, Any], text: str) -> TokenCredit:
        from lang_envs.wrappers.admissible import admissible_observation
        from poad_sb3.generations import token_texts
        from poad_sb3.rollouts import CreditLevel

        policy = self._model.policy
        prompt = policy.prompts(admissible_observation(observation, info["admissible_actions"], None))[0]
        action = policy.lm.prompter.action_ids(text)
        values: list[float] = policy.token_values([TokenPath(prompt, action, ())]).values.tolist()
        if self._model.credit_level == CreditLevel.ACTION:  # its critic knows whole actions only
            values = values[:1] * len(values)
        return TokenCredit(tuple(token_texts(policy.lm.tokenizer, prompt, action)), (), tuple(values))


def _rollout(model: LLMOnPolicyAlgorithm, job: Job) -> list[dict[str, Any]]:
    """The steps of one episode, with values and advantages of all tokens."""
    steps: list[Step] = []
    env = make_text_env(job.env_id, job.env_kwargs)
    script = job.evaluation.script
    agent: Agent = _Judge(model, script) if script else policy_agent(model)
    play_episode(env, agent, _ROLLOUT_SEED, discount_of(job.env_id), steps.append)
    env.close()
    records = step_records(plan.Job(job.env_id, job.seed, 0), steps)
    kept = (*_ROLLOUT_FIELDS, "values", "advantages")
    return [{name: _rounded(record[name]) for name in kept} for record in records]


def _rounded(value: Any) -> Any:  # noqa: ANN401 - of JSON
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, list):
        return [_rounded(one) for one in value]
    return {name: _rounded(one) for name, one in value.items()} if isinstance(value, dict) else value
