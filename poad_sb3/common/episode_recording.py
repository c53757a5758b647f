"""`EpisodeRecordingCallback`: whole episodes of an agent in training, step by step and token by token, in two files."""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3.common.callbacks import BaseCallback

from lang_envs.files import write_bytes
from lang_envs.wrappers import TextAction
from lang_envs.wrappers.admissible import EpisodeContext
from poad_sb3.common.episode_lines import FORMAT, code_fields, discount_of, encode, moves_of, reset_seed_of, step_line
from poad_sb3.common.episodes import text_of
from poad_sb3.common.generations import token_texts
from poad_sb3.common.on_policy_algorithm import LLMOnPolicyAlgorithm
from poad_sb3.common.policies import LLMPolicy, TextPolicy
from poad_sb3.common.save_util import capture_rng, restore_rng
from poad_sb3.common.token_fields import knows_tokens, token_fields
from poad_sb3.credit.estimators import Rollout
from poad_sb3.distributions.base import SampledAction, ScoreCache, TokenPath
from poad_sb3.errors import UnsupportedEnvError
from poad_sb3.prompts import Question
from poad_sb3.vec_env.text_observations import episode_context, question_of

__all__ = ["EpisodeRecordingCallback"]


class EpisodeRecordingCallback(BaseCallback):
    """Plays whole episodes with the agent as it is, and writes them to `episodes.jsonl` and `episodes.steps.jsonl`.

    An evaluation comes before the first rollout, before the rollouts that begin at least `every` steps after the last
    evaluation, and at the end of the training. The reset seeds are the same each time: the same situations are seen at
    several times of the training. They are those of the first episodes of `python -m benchmarks run` with this seed;
    episodes of a method that compares episodes of one reset seed share them in its groups.

    The training is the same with and without it, bit for bit. It has environments and random generators of its own.
    Evaluations are left out while those before took more than `max_share` of the time since the process began to train;
    the first and the last one are always played. An error in an evaluation ends the recording with a warning, not the
    training. A training that goes on from a checkpoint drops the lines beyond it; one that starts over empties the
    files.

    Args:
        folder: Where the two files go.
        env_id: Id of the environment.
        env_kwargs: Arguments of `gym.make`.
        every: Least number of environment steps between two evaluations.
        n_episodes: Episodes of an evaluation, played side by side.
        seed: Of the episodes.
        max_share: Largest share of the time.
        max_steps: Longest episode; a longer one ends the recording, as an error does.
        provenance: Further fields of the first line, such as the command.

    Raises:
        ValueError: If a number is out of range.
    """

    def __init__(
        self,
        folder: str | Path,
        env_id: str,
        *,
        env_kwargs: Mapping[str, Any] | None = None,
        every: int = 1000,
        n_episodes: int = 4,
        seed: int = 0,
        max_share: float = 0.02,
        max_steps: int = 1000,
        provenance: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        for name, value in (("every", every), ("n_episodes", n_episodes), ("max_steps", max_steps)):
            if value < 1:
                raise ValueError(f"Expected {name} >= 1; got {value}. Fix: leave the callback out to record nothing.")
        self.path = Path(folder) / "episodes.jsonl"
        self.steps_path = self.path.with_suffix(".steps.jsonl")
        self.env_id, self.env_kwargs, self.seed = env_id, dict(env_kwargs or {}), seed
        self.every, self.n_episodes, self.max_share, self.max_steps = every, n_episodes, max_share, max_steps
        self.provenance = dict(provenance or {})
        self.seconds = 0.0
        """Time that recording took, in this process."""
        self._began = 0.0
        self._recorded_at: int | None = None
        self._is_on = True

    # ------------------------------------------------------------------ time

    def _on_training_start(self) -> None:
        self._began, self.seconds, self._recorded_at, self._is_on = time.perf_counter(), 0.0, None, True
        try:
            self._take_up()
        except Exception as error:  # see `_record`
            self._give_up(error)

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        last, elapsed = self._recorded_at, time.perf_counter() - self._began
        is_due = last is None or self.model.num_timesteps - last >= self.every
        if is_due and (last is None or self.seconds <= self.max_share * elapsed):
            self._record()

    def _on_training_end(self) -> None:
        if self._recorded_at != self.model.num_timesteps:
            self._record()

    def _record(self) -> None:
        if not self._is_on:
            return
        started, policy, kept = time.perf_counter(), self._policy, capture_rng()
        was_training = policy.training
        try:
            policy.set_training_mode(False)
            self._write(self._play())
            self._recorded_at = self.model.num_timesteps
        except Exception as error:  # environments may raise anything, and the training is worth more
            self._give_up(error)
        finally:
            policy.set_training_mode(was_training)
            restore_rng(kept)
            self.seconds += time.perf_counter() - started

    def _give_up(self, error: Exception) -> None:
        self._is_on = False
        why = " ".join(f"{type(error).__name__}: {error}".split())[:300].rstrip(".")
        warnings.warn(
            f"Expected to record episodes at step {self.model.num_timesteps}; got {why}. The training goes on without "
            "recording.",
            RuntimeWarning,
            stacklevel=2,
        )

    # ------------------------------------------------------------------ episodes

    @property
    def _policy(self) -> TextPolicy:
        policy = self.model.policy
        assert isinstance(policy, TextPolicy)
        return policy

    @property
    def _group_size(self) -> int:
        return int(getattr(self.model, "group_size", 1))

    @torch.no_grad()
    def _play(self) -> list[_Episode]:
        policy, cache = self._policy, ScoreCache([])  # the weights stay the same here
        spec = policy.lm.prompter.template.context_spec
        with ExitStack() as stack:
            episodes = []
            for number in range(self.n_episodes):
                made = gym.make(self.env_id, disable_env_checker=True, **self.env_kwargs)
                env = stack.enter_context(TextAction(made))
                group, member = divmod(number, self._group_size)
                reset_seed = reset_seed_of(self.env_id, self.seed, group)
                context = episode_context(spec)
                # As an agent of the benchmarks: the environment draws from [reset_seed].
                rng = np.random.default_rng([reset_seed, 1, member])
                episodes.append(_Episode(number, reset_seed, group, env, rng, context))
            playing = episodes
            while playing:
                questions = [one.question for one in playing]
                chosen = policy.distribution.sample(questions, [one.rng for one in playing], cache)
                for one, question, action in zip(playing, questions, chosen, strict=True):
                    listed = one.info["admissible_actions"]
                    one.step(question, action, token_fields(policy.distribution, question, listed, action, cache))
                playing = [one for one in playing if not one.is_over]
                if any(len(one.steps) >= self.max_steps for one in playing):
                    raise UnsupportedEnvError(f"Expected episodes of at most {self.max_steps} steps; got a longer one.")
        return episodes

    # ------------------------------------------------------------------ lines

    def _write(self, episodes: Sequence[_Episode]) -> None:
        values, credits = self._values(episodes), self._credits(episodes)
        lines: list[dict[str, Any]] = []
        step_lines: list[dict[str, Any]] = []
        for one in episodes:
            key = {"env": self.env_id, "seed": self.seed, "episode": one.number}
            at = {"training_steps": self.model.num_timesteps}
            lines.append({**key, **self._totals(one), **at, **({"group": one.group} if self._group_size > 1 else {})})
            for number, step in enumerate(one.steps):
                line = step_line(
                    key,
                    number,
                    observation=step.question.text,
                    admissible_actions=step.listed,
                    action=step.chosen.text,
                    info=step.info,
                    reward=step.reward,
                    terminated=step.terminated,
                    truncated=step.truncated,
                )
                if knows_tokens(step.chosen):
                    prompt, action = step.chosen.path[:2]
                    line["tokens"] = token_texts(self._policy.lm.tokenizer, prompt, action)
                    line["log_probs"] = step.chosen.log_probs.tolist()
                    line["values"] = values.get((one.number, number), [])
                is_last = number + 1 == len(one.steps)
                if is_last:
                    line["final_observation"] = one.text
                line |= {**step.fields, **code_fields(step.info, step.reward)}
                if (one.number, number) in credits:
                    line["credits"] = {type(self.model).__name__: credits[one.number, number]}
                if is_last and (one.number, number + 1) in values:
                    line["final_value"] = values[one.number, number + 1][0]
                step_lines.append({**line, **at})
        # The steps first: those without a line of their episode are dropped when the training goes on.
        for path, records in ((self.steps_path, step_lines), (self.path, lines)):
            data = b"".join(map(encode, records))
            with path.open("ab") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())

    def _totals(self, one: _Episode) -> dict[str, Any]:
        discount, moves, discounted = discount_of(self.env_id), 0, 0.0
        for step in one.steps:
            discounted += discount**moves * step.reward
            moves += moves_of(step.info)
        last = one.steps[-1]
        return {
            "agent": type(self.model).__name__,
            "reset_seed": one.reset_seed,
            "return": sum(step.reward for step in one.steps),
            "discounted_return": discounted,
            "discount": discount,
            "success": bool(last.info.get("success", last.info.get("is_success", False))),
            "steps": len(one.steps),
            "moves": moves,
            "invalid_actions": sum(bool(step.info.get("invalid_action", False)) for step in one.steps),
            "terminated": last.terminated,
            "truncated": last.truncated,
        }

    def _values(self, episodes: Sequence[_Episode]) -> dict[tuple[int, int], list[float]]:
        """Return the values before the tokens by episode and step, and behind the last step that of a truncated end."""
        policy = self._policy
        if not isinstance(policy, LLMPolicy) or policy.critic is None:
            return {}
        paths = {(one.number, n): step.chosen.path for one in episodes for n, step in enumerate(one.steps)}
        for one in episodes:
            if one.steps[-1].truncated and not one.steps[-1].terminated:
                paths[one.number, len(one.steps)] = TokenPath(policy.distribution.prompt(one.question), (0,), ())
        known = policy.token_values([*paths.values()])
        flat, is_whole = known.values.tolist(), getattr(self.model, "credit_level", None) == "action"
        found = {}
        for (key, path), start in zip(paths.items(), known.starts.tolist(), strict=True):
            n = len(path.action)
            found[key] = flat[start : start + 1] * n if is_whole else flat[start : start + n]
        return found

    def _credits(self, episodes: Sequence[_Episode]) -> dict[tuple[int, int], list[float]]:
        """Return the advantages of a method without a critic by episode and step: the episodes are its batch."""
        model = self.model
        if not isinstance(model, LLMOnPolicyAlgorithm) or model.credit.has_critic:
            return {}
        shape = max(len(one.steps) for one in episodes), len(episodes)
        rewards, durations, lengths = np.zeros(shape), np.ones(shape), np.ones(shape, dtype=np.int64)
        counted, ends = np.zeros(shape, dtype=bool), np.ones(shape, dtype=bool)
        states, numbers = np.zeros(shape, dtype=np.int64), dict[Any, int]()
        state_key = model.state_key or (lambda text: text)
        for one in episodes:
            for n, step in enumerate(one.steps):
                at = n, one.number
                rewards[at], lengths[at] = step.reward, len(step.chosen.path.action)
                counted[at], ends[at] = True, n + 1 == len(one.steps)
                states[at] = numbers.setdefault(state_key(step.question.text), len(numbers))
                if model.smdp_discount:
                    durations[at] = step.info["primitive_steps"]
        advantages = model.credit.advantages(
            Rollout(
                rewards=rewards,
                lengths=lengths,
                episode_ends=ends,
                counted=counted,
                values=np.zeros((*shape, 0)),
                last_values=np.zeros(len(episodes)),
                final_values=np.zeros(shape),
                durations=durations,
                groups=np.broadcast_to([one.group for one in episodes], shape),
                states=states,
            )
        )
        found = {}
        for n, number in np.argwhere(counted).tolist():
            row, length = advantages[n, number].tolist(), int(lengths[n, number])
            found[number, n] = row * length if len(row) == 1 else row[:length]
        return found

    # ------------------------------------------------------------------ files

    def _take_up(self) -> None:
        """Begin both files, or keep the lines up to the step of the checkpoint that the training goes on from."""
        steps_taken, header = self.model.num_timesteps, self._header()
        header_before, *lines = [*_records(self.path)] or [{}]
        is_ours = steps_taken > 0 and header_before.get("training") is True
        lines = [line for line in lines if is_ours and line["training_steps"] <= steps_taken]
        if lines:
            header = {**header_before, "episodes": max(self.n_episodes, header_before["episodes"])}
            self._recorded_at = max(line["training_steps"] for line in lines)
        known = {(line["training_steps"], line["episode"]) for line in lines}
        kept = (  # one at a time: read, they take eight times their bytes
            line for line in _records(self.steps_path) if (line.get("training_steps"), line.get("episode")) in known
        )
        steps_header = {**header, "content": "steps", **self._credit_rules()}
        for path, records in ((self.steps_path, chain([steps_header], kept)), (self.path, [header, *lines])):
            write_bytes(path, b"".join(map(encode, records)))

    def _header(self) -> dict[str, Any]:
        model = self.model
        header = {
            "format": FORMAT,
            "training": True,
            "agent": {
                "name": type(model).__name__,
                "settings": {"model": self._policy.lm.source.name, "fingerprint": self._policy.lm.fingerprint},
            },
            "envs": [
                {
                    "id": self.env_id,
                    "discount": discount_of(self.env_id),
                    "arguments": gym.spec(self.env_id.rpartition(":")[2]).kwargs,
                }
            ],
            "env_settings": self.env_kwargs,
            "episodes": self.n_episodes,
            "seeds": [self.seed],
            "steps": True,
            **self.provenance,
        }
        as_read: dict[str, Any] = json.loads(json.dumps(header, default=str))
        return as_read

    def _credit_rules(self) -> dict[str, Any]:
        """Return discounts and lambda of the training, and its rule of credit where it is plain GAE."""
        model = self.model
        if not isinstance(model, LLMOnPolicyAlgorithm):
            return {}
        credit = model.credit
        rule = {"gamma_token": credit.gamma_token, "whole_actions": credit.credit_level == "action"}
        is_plain = model.estimator == "gae" and credit.bootstrap == "state"
        rules = {type(model).__name__: rule} if is_plain else {}
        lambdas = {"gae_lambda": credit.gae_lambda, "gae_lambda_token": credit.gae_lambda_token}
        return {"credit": {"gamma": credit.gamma, **lambdas, "rules": rules}}


class _Step(NamedTuple):
    question: Question
    listed: list[str] | None
    chosen: SampledAction
    fields: dict[str, Any]
    reward: float
    terminated: bool
    truncated: bool
    info: Mapping[str, Any]


class _Episode:
    """An episode that is being played."""

    def __init__(
        self,
        number: int,
        reset_seed: int,
        group: int,
        env: TextAction,
        rng: np.random.Generator,
        context: EpisodeContext,
    ) -> None:
        self.number, self.reset_seed, self.group, self.env, self.rng = number, reset_seed, group, env, rng
        text, self.info = env.reset(seed=reset_seed)
        self.text = text_of(text)
        self._context = context.begun(self.text)
        self.steps: list[_Step] = []

    @property
    def question(self) -> Question:
        return question_of(self.text, self.info["admissible_actions"], self.info, self._context)

    @property
    def is_over(self) -> bool:
        return self.steps[-1].terminated or self.steps[-1].truncated

    def step(self, question: Question, chosen: SampledAction, fields: dict[str, Any]) -> None:
        listed = self.info["admissible_actions"]
        text, reward, terminated, truncated, self.info = self.env.step(chosen.text)
        self.text = text_of(text)
        self._context = self._context.after(chosen.text, self.text)
        outcome = float(reward), bool(terminated), bool(truncated), self.info
        self.steps.append(_Step(question, listed, chosen, fields, *outcome))


def _records(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the whole lines of a file, up to a damaged one; none of a file that is not there."""
    if not path.exists():
        return
    with path.open("rb") as file:
        for line in file:
            try:
                record = json.loads(line) if line.endswith(b"\n") else None
            except ValueError:
                return
            if not isinstance(record, dict):
                return
            yield record
