"""Runs that train and watch: evaluations along the way, tests and a recorded episode after it."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3.common.callbacks import BaseCallback

import poad_sb3
from benchmarks.studies.engine.jobs import Cloning, PresetJob, TrainingJob
from lang_bench.agents.base import Decision, TokenCredit
from lang_bench.agents.policy import PolicyAgent
from lang_bench.runner import plan
from lang_bench.runner.episodes import Step, make_text_env, play_episode
from lang_bench.runner.evaluation import Summary, play, summarize
from lang_bench.runner.records import step_records
from lang_envs.cache import cache_folder
from lang_envs.wrappers.admissible import admissible_observation
from poad_sb3.bc import BC, oracle_episodes
from poad_sb3.common.episode_lines import discount_of
from poad_sb3.common.on_policy_algorithm import LLMOnPolicyAlgorithm
from poad_sb3.distributions.base import TokenPath
from poad_sb3.settings.sampling import ActionSampling
from poad_sb3.vec_env.make_envs import make_envs

EVALUATION_SEED = 10_000
_ROLLOUT_SEED = 0
_ROLLOUT_FIELDS = (
    *("observation", "action", "reward", "success", "terminated", "truncated"),
    *("tokens", "log_probs", "values", "advantages", "final_value"),
)


class FirstRatioWatch(BaseCallback):
    """Keeps the largest first-minibatch ratio error of a training run."""

    def __init__(self) -> None:
        super().__init__()
        self._largest = 0.0

    @property
    def largest_ratio_error(self) -> float | None:
        """Largest error of a first ratio; None if one of them was not finite."""
        return self._largest if np.isfinite(self._largest) else None

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        logged = self.logger.name_to_value.get("train/first_ratio_error", 0.0)
        self._largest = float(np.maximum(self._largest, logged))  # unlike max() it keeps NaN

    def _on_training_end(self) -> None:
        FirstRatioWatch._on_rollout_start(self)


class Evaluations(FirstRatioWatch):
    """Evaluates at rollout boundaries too; its times exclude the evaluations.

    Attributes:
        steps: Environment steps at the evaluations.
        summaries: Summaries of the evaluations.
        train_seconds: Wall time of the training.
        cpu_seconds: Processor time; on one thread, the wall time of an otherwise idle machine.
    """

    def __init__(self, job: TrainingJob, checkpoint: Path | None = None) -> None:
        super().__init__()
        self.job, self.checkpoint = job, checkpoint
        self.steps: list[int] = []
        self.summaries: list[Summary] = []
        self.train_seconds = self.cpu_seconds = 0.0

    def _on_training_start(self) -> None:
        self._clocks = time.perf_counter(), time.process_time()
        if self.checkpoint is not None and (progress := getattr(self.model, "evaluations", None)):
            vars(self).update(progress)
            self.summaries = [Summary(*values) for values in self.summaries]  # lists, in JSON

    def _on_rollout_start(self) -> None:
        super()._on_rollout_start()
        if not self.steps or self.num_timesteps - self.steps[-1] >= self.job.evaluation.every:
            self._evaluate()
            if self.checkpoint is not None:
                self.model.save(self.checkpoint)  # written when the rollout is complete

    def _on_rollout_end(self) -> None:
        if self.checkpoint is None:
            return
        self._count_time()
        names = ("steps", "summaries", "train_seconds", "cpu_seconds", "_largest")
        self.model.evaluations = {name: getattr(self, name) for name in names}  # type: ignore[attr-defined]

    def _on_training_end(self) -> None:
        super()._on_training_end()
        self._count_time()
        if not self.steps or self.num_timesteps > self.steps[-1]:
            self._evaluate()

    def _count_time(self) -> None:
        wall, worked = self._clocks
        self._clocks = time.perf_counter(), time.process_time()
        self.train_seconds += self._clocks[0] - wall
        self.cpu_seconds += self._clocks[1] - worked

    def _evaluate(self) -> None:
        self._count_time()
        assert isinstance(self.model, LLMOnPolicyAlgorithm)
        # Seeded by itself: training draws the same random numbers however often it is watched.
        job, agent = self.job, PolicyAgent.of(self.model)
        n_episodes = job.evaluation.episodes
        episodes = play(job.env_id, agent, n_episodes, seed=EVALUATION_SEED, env_kwargs=job.env_kwargs)
        self.steps.append(self.num_timesteps)
        self.summaries.append(summarize(episodes))
        self._clocks = time.perf_counter(), time.process_time()


def train(
    job: TrainingJob,
    callbacks: Sequence[BaseCallback] = (),
    *,
    checkpoint: Path | None = None,
    progress_bar: bool = False,
) -> tuple[LLMOnPolicyAlgorithm, Evaluations]:
    """Train by a job's settings, after behaviour cloning if it has some.

    Args:
        job: Training to do; with 0 steps the untrained model is evaluated.
        callbacks: Further callbacks.
        checkpoint: Path of a checkpoint that is written after each evaluation, and resumed from if it is there.
        progress_bar: Whether to show a progress bar.
    """
    algorithm, n_envs = getattr(poad_sb3, job.algorithm), job.n_envs
    env = gym.make(job.env_id, **job.env_kwargs) if n_envs == 1 else make_envs(job.env_id, job.env_kwargs, n_envs)
    if checkpoint is not None and checkpoint.exists():
        model = algorithm.load(checkpoint, env)
    else:
        # Whole passes, as in the runs recorded before there were micro-batches.
        model = algorithm("LLMPolicy", env, seed=job.seed, **{"micro_batches": 1, **job.arguments})
        if job.cloning is not None:
            clone(model, job.cloning)
    watch = Evaluations(job, checkpoint)
    left, is_new = max(0, job.steps - model.num_timesteps), model.num_timesteps == 0
    model.learn(left, [watch, *callbacks], reset_num_timesteps=is_new, progress_bar=progress_bar)
    return model, watch


def clone(model: LLMOnPolicyAlgorithm, cloning: Cloning) -> None:
    """Clone a noisy oracle.

    Each method clones the same episodes with its own policy and its own targets of the critic. Those that sample alike
    get the same adapter, bit for bit.
    """
    thinks = model.action_sampling == ActionSampling.THINK
    env_kwargs = {"oracle_info": True} if thinks else {}
    episodes = [
        episode
        for env_id, noise in zip(cloning.env_ids, cloning.noise, strict=True)
        for episode in oracle_episodes(env_id, cloning.episodes, noise=noise, seed=cloning.seed, env_kwargs=env_kwargs)
    ]
    if thinks:
        episodes = [[{**line, "note": thought_of(model, line)} for line in episode] for episode in episodes]
    BC(
        model,
        episodes,
        batch_size=cloning.batch_size,
        learning_rate=cloning.learning_rate,
        critic_learning_rate=cloning.critic_learning_rate,
        seed=cloning.seed,
    ).train(cloning.epochs)


def thought_of(model: LLMOnPolicyAlgorithm, line: Mapping[str, Any]) -> str:
    """Return the oracle's thought at a step, as many words as the budget of the model holds, and the mark behind it."""
    words = line["info"]["oracle_thought"].split()
    while len(model.policy.lm.action_ids(" ".join(words))) - 1 > model.max_thought_tokens:  # one is the end token
        words.pop()
    return " ".join(words) + model.thought_marks[1]


def run_preset(job: PresetJob) -> dict[str, Any]:
    """Do a job; see `run_training`.

    It may take hours: one that is ended goes on from its last evaluation, when it is begun again.
    """
    checkpoint = cache_folder() / "studies" / f"{job.name}.zip"
    result = run_training(job, checkpoint if job.cloning is None else None)
    checkpoint.unlink(missing_ok=True)
    return result


def run_training(
    job: TrainingJob, checkpoint: Path | None = None, callbacks: Sequence[BaseCallback] = ()
) -> dict[str, Any]:
    """Do a job on one thread; see `train` for the arguments.

    Returns:
        `steps`, and there `returns` (discounted as the code bases report), `success`, `actions`; `cpu_seconds` of
        training, without evaluations; `largest_first_ratio_error`; `tests` and `rollout` if the job has them.
    """
    torch.set_num_threads(1)
    evaluation = job.evaluation
    model, training = train(job, callbacks, checkpoint=checkpoint)
    result: dict[str, Any] = {
        "steps": training.steps,
        "returns": [round(summary.mean_return, 5) for summary in training.summaries],
        "success": [summary.success_rate for summary in training.summaries],
        "actions": [round(summary.mean_actions, 2) for summary in training.summaries],
        "cpu_seconds": round(training.cpu_seconds, 1),
        "largest_first_ratio_error": training.largest_ratio_error,
    }
    if evaluation.tests:
        result["tests"] = {env_id: _test(model, env_id, job) for env_id in evaluation.tests}
    if evaluation.rollout:
        result["rollout"] = _rollout(model, job)
    return result


def _test(model: LLMOnPolicyAlgorithm, env_id: str, job: TrainingJob) -> dict[str, float]:
    """Compute means over episodes of a task, with the runner's seeds for the episodes of this seed."""
    first = plan.Job(env_id, job.seed, 0).reset_seed
    played = play(env_id, PolicyAgent.of(model), job.evaluation.test_episodes, seed=first)
    return {
        "discounted_return": round(float(np.mean([episode.discounted_return for episode in played])), 5),
        "success": float(np.mean([episode.success for episode in played])),
        "steps": round(float(np.mean([episode.n_actions for episode in played])), 2),
        "episodes": len(played),
    }


class _Judge(PolicyAgent):
    """Plays the actions of a script, and values their tokens by the critic of a model."""

    script: list[str]

    def act(self, observation: str, info: Mapping[str, Any]) -> Decision:
        text = self.script.pop(0)
        prompt = self.policy.prompts(admissible_observation(observation, info["admissible_actions"], None))[0]
        tokens, values = self.read(TokenPath(prompt, self.policy.lm.prompter.action_ids(text), ()))
        return Decision(text, credit=TokenCredit(tokens, (), values))


def _rollout(model: LLMOnPolicyAlgorithm, job: TrainingJob) -> list[dict[str, Any]]:
    """Return the steps of one episode, with values and advantages of all tokens."""
    steps: list[Step] = []
    env = make_text_env(job.env_id, job.env_kwargs)
    judge = _Judge.of(model)
    judge.script = list(job.evaluation.script)
    play_episode(
        env, judge if judge.script else PolicyAgent.of(model), _ROLLOUT_SEED, discount_of(job.env_id), steps.append
    )
    env.close()
    records = step_records(plan.Job(job.env_id, job.seed, 0), steps)
    kept = [{name: record[name] for name in _ROLLOUT_FIELDS if name in record} for record in records]
    rounded: list[dict[str, Any]] = json.loads(json.dumps(kept), parse_float=lambda text: round(float(text), 6))
    return rounded
