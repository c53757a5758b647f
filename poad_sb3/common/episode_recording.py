"""`EpisodeRecordingCallback`: whole episodes of an agent in training, step by step and token by token, in two files."""

from __future__ import annotations

import json
import math
import os
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3.common.callbacks import BaseCallback

from lang_envs.files import write_bytes
from lang_envs.report.schemas import WrongValueError, checker_of
from lang_envs.wrappers import TextAction
from poad_sb3.common.episode_lines import FORMAT, code_fields, discount_of, discounted_return, encode
from poad_sb3.common.episodes import EpisodeInPlay
from poad_sb3.common.on_policy_algorithm import LLMOnPolicyAlgorithm
from poad_sb3.common.policies import LLMPolicy, TextPolicy
from poad_sb3.common.save_util import capture_rng, restore_rng
from poad_sb3.common.token_fields import knows_tokens, token_fields, token_texts
from poad_sb3.credit.estimators import Rollout
from poad_sb3.distributions.base import SampledAction, ScoreCache, TokenPath
from poad_sb3.errors import UnsupportedEnvError

__all__ = ["EpisodeRecordingCallback"]


class EpisodeRecordingCallback(BaseCallback):
    """Plays whole episodes with the agent as it is, and writes them to `episodes.jsonl` and `episodes.steps.jsonl`.

    An evaluation comes before the first rollout, before the rollouts that begin at least `every` steps after the last
    evaluation, and at the end of the training. The reset seeds are the same each time: the same situations are seen at
    several times of the training. They are those of the first episodes of `lang-bench run` with this seed;
    episodes of a method that compares episodes of one reset seed share them in its groups.

    The training is the same with and without it, bit for bit. It has environments and random generators of its own.
    Evaluations are left out while those before took more than `max_share` of the time since the process began to train;
    the first and the last one are always played. An error in an evaluation ends the recording with a warning, not the
    training. A training resumed from a checkpoint drops the lines beyond it; one that starts over empties the
    files.

    Args:
        folder: Folder of the two files.
        env_id: Id of the environment.
        env_kwargs: Arguments of `gym.make`.
        every: Minimum number of environment steps between two evaluations.
        n_episodes: Number of episodes of an evaluation, played side by side.
        seed: Seed of the episodes.
        max_share: Largest share of the training time that evaluations may take.
        max_steps: Maximum number of steps of an episode; a longer one ends the recording, as an error does.
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
        """Seconds that recording took in this process."""
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
            f"Expected to record episodes at step {self.model.num_timesteps}; got {why}. Training continues without "
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
    def _play(self) -> list[_Recorded]:
        policy, cache = self._policy, ScoreCache([])  # the weights stay the same here
        spec = policy.lm.prompter.template.context_spec
        with ExitStack() as stack:
            episodes = []
            for number in range(self.n_episodes):
                env = stack.enter_context(
                    TextAction(gym.make(self.env_id, disable_env_checker=True, **self.env_kwargs))
                )
                episodes.append(_Recorded(number, self.env_id, self.seed, env, spec, self._group_size))
            playing = episodes
            while playing:
                questions = [episode.question for episode in playing]
                chosen = policy.distribution.sample(questions, [episode.rng for episode in playing], cache)
                for episode, question, action in zip(playing, questions, chosen, strict=True):
                    listed = episode.info["admissible_actions"]
                    episode.note = policy.thought_of(action)
                    line = episode.step(action.text)
                    line |= token_fields(policy.distribution, question, listed, action, cache)
                    line |= code_fields(episode.info, line["reward"])
                    episode.chosen.append(action)
                    episode.past = policy.past_after(action.path)
                playing = [episode for episode in playing if not episode.is_over]
                if any(len(episode.lines) >= self.max_steps for episode in playing):
                    raise UnsupportedEnvError(f"Expected episodes of at most {self.max_steps} steps; got a longer one.")
        return episodes

    # ------------------------------------------------------------------ lines

    def _write(self, episodes: Sequence[_Recorded]) -> None:
        values, credits = self._values(episodes), self._credits(episodes)
        at = {"training_steps": self.model.num_timesteps}
        for episode in episodes:
            for number, (line, chosen) in enumerate(zip(episode.lines, episode.chosen, strict=True)):
                key = episode.number, number
                if knows_tokens(chosen):
                    prompt, action = chosen.path[:2]
                    line["tokens"] = token_texts(self._policy.lm.tokenizer, prompt, action)
                    line["log_probs"] = chosen.log_probs.tolist()
                    line["values"] = values.get(key, [])
                if key in credits:
                    line["credits"] = {type(self.model).__name__: credits[key]}
                line |= at
            episode.lines[-1]["final_observation"] = episode.context.text
            if (episode.number, len(episode.lines)) in values:
                episode.lines[-1]["final_value"] = values[episode.number, len(episode.lines)][0]
        lines = [
            {**episode.key, **self._totals(episode), **at, **({"group": episode.group} if self._group_size > 1 else {})}
            for episode in episodes
        ]
        # The steps first: those without a line of their episode are dropped when the training is resumed.
        for path, records in (
            (self.steps_path, [line for episode in episodes for line in episode.lines]),
            (self.path, lines),
        ):
            data = b"".join(map(encode, records))
            with path.open("ab") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())

    def _totals(self, episode: _Recorded) -> dict[str, Any]:
        discount = discount_of(self.env_id)
        last = episode.lines[-1]
        return {
            "agent": type(self.model).__name__,
            "reset_seed": episode.reset_seed,
            "return": sum(line["reward"] for line in episode.lines),
            "discounted_return": discounted_return(episode.lines, discount),
            "discount": discount,
            "success": bool(last["success"]),
            "steps": len(episode.lines),
            "moves": sum(line["moves"] for line in episode.lines),
            "invalid_actions": sum(line["invalid"] for line in episode.lines),
            "terminated": last["terminated"],
            "truncated": last["truncated"],
        }

    def _values(self, episodes: Sequence[_Recorded]) -> dict[tuple[int, int], list[float]]:
        """Return the values before the tokens by episode and step, and behind the last step that of a truncated end."""
        policy = self._policy
        if not isinstance(policy, LLMPolicy) or policy.critic is None:
            return {}
        paths = {(episode.number, n): chosen.path for episode in episodes for n, chosen in enumerate(episode.chosen)}
        for episode in episodes:
            if episode.lines[-1]["truncated"] and not episode.lines[-1]["terminated"]:
                paths[episode.number, len(episode.lines)] = TokenPath(
                    policy.distribution.prompt(episode.question), (0,), ()
                )
        token_values = policy.token_values([*paths.values()])
        is_whole = getattr(self.model, "credit_level", None) == "action"
        values = {key: of_path.tolist() for key, of_path in zip(paths, token_values.values, strict=True)}
        return {key: row[:1] * len(row) if is_whole else row for key, row in values.items()}

    def _credits(self, episodes: Sequence[_Recorded]) -> dict[tuple[int, int], list[float]]:
        """Return the advantages of a method without a critic by episode and step: the episodes are its batch."""
        model = self.model
        if not isinstance(model, LLMOnPolicyAlgorithm) or model.credit.has_critic:
            return {}
        shape = max(len(episode.lines) for episode in episodes), len(episodes)
        rewards, durations, lengths = np.zeros(shape), np.ones(shape), np.ones(shape, dtype=np.int64)
        thought_lengths = np.zeros_like(lengths)
        counted, ends = np.zeros(shape, dtype=bool), np.ones(shape, dtype=bool)
        states, numbers = np.zeros(shape, dtype=np.int64), dict[Any, int]()
        state_key = model.state_key or (lambda text: text)
        for episode in episodes:
            for n, line in enumerate(episode.lines):
                at = n, episode.number
                path = episode.chosen[n].path
                lengths[at], thought_lengths[at] = len(path.action), path.n_thought
                rewards[at] = line["reward"] - model.thought_penalty * path.n_thought
                counted[at], ends[at] = True, n + 1 == len(episode.lines)
                states[at] = numbers.setdefault(state_key(line["observation"]), len(numbers))
                if model.smdp_discount:
                    durations[at] = line["moves"]
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
                groups=np.broadcast_to([episode.group for episode in episodes], shape),
                states=states,
                thought_lengths=thought_lengths,
            )
        )
        values = {}
        for n, number in np.argwhere(counted).tolist():
            row, length = advantages[n, number].tolist(), int(lengths[n, number])
            values[number, n] = row * length if len(row) == 1 else row[:length]
        return values

    # ------------------------------------------------------------------ files

    def _take_up(self) -> None:
        """Begin both files, or keep the lines up to the step of the checkpoint that the training is resumed from."""
        steps_taken, header = self.model.num_timesteps, self._header()
        header_before, *lines = [*_records(self.path, "episode")] or [{}]
        is_ours = steps_taken > 0 and header_before.get("training") is True
        lines = [line for line in lines if is_ours and line.get("training_steps", math.inf) <= steps_taken]
        # A crash may have lost the end of the steps: evaluations from there on are dropped, and the last played again.
        steps = _records(self.steps_path, "step")
        n_steps = Counter((line.get("training_steps"), line.get("episode")) for line in steps)
        cut = [at for line in lines if line["steps"] != n_steps[at := line["training_steps"], line["episode"]]]
        lines = [line for line in lines if line["training_steps"] < min(cut, default=math.inf)]
        if lines:
            header = {**header_before, "episodes": max(self.n_episodes, header_before["episodes"])}
            self._recorded_at = max(line["training_steps"] for line in lines)
        identities = {(line["training_steps"], line["episode"]) for line in lines}
        steps = _records(self.steps_path, "step")  # one at a time: read, they take eight times their bytes
        kept = (line for line in steps if (line.get("training_steps"), line.get("episode")) in identities)
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
        credits_thoughts = credit.credits_thoughts_apart or model.thought_penalty > 0
        is_plain = model.estimator == "gae" and credit.bootstrap == "state" and not credits_thoughts
        rules = {type(model).__name__: rule} if is_plain else {}
        lambdas = {"gae_lambda": credit.gae_lambda, "gae_lambda_token": credit.gae_lambda_token}
        return {"credit": {"gamma": credit.gamma, **lambdas, "rules": rules}}


class _Recorded(EpisodeInPlay):
    """An episode with its sampled actions; their tokens, values and credits come to its lines when they are written."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.number: int = self.key["episode"]
        self.chosen: list[SampledAction] = []


def _records(path: Path, kind: str) -> Iterator[dict[str, Any]]:
    """Yield the header of a file and its lines of a kind, up to a damaged one; none of a file that is not there."""
    if not path.exists():
        return
    with path.open("rb") as file:
        for line, check in zip(file, chain([checker_of("header")], repeat(checker_of(kind))), strict=False):
            try:
                record: dict[str, Any] = json.loads(line if line.endswith(b"\n") else b"null")
                check(record)
            except (ValueError, RecursionError, WrongValueError):
                return
            yield record
