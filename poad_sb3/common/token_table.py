"""`GenerationTableCallback`: the agent's actions, token by token, in a file, in TensorBoard and in the terminal."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback

from lang_envs.files import write_text
from poad_sb3.common.generations import Generation, TokenEntry, decode, markdown, print_generations, token_texts
from poad_sb3.common.on_policy_algorithm import LLMOnPolicyAlgorithm
from poad_sb3.common.rollout_types import RolloutAction
from poad_sb3.settings.fields import Choice

__all__ = ["GenerationTableCallback", "Pick"]

_KEY = "rollout/generations"
_Credit = tuple[float | None, float | None, float | None]


class Pick(StrEnum):
    """Actions of a rollout to show."""

    SPREAD = "spread"
    """Actions spread evenly over the rollout, first and last included."""
    EXTREMES = "extremes"
    """Actions of the highest and of the lowest advantages (the mean over an action's decisions)."""


class GenerationTableCallback(BaseCallback):
    """Shows the agent's actions, token by token: probability, value before it, advantage and return.

    At the ends of rollouts some of their actions go to `generations.jsonl`, one JSON object a line, and as Markdown to
    TensorBoard. A training resumed from a checkpoint drops the lines beyond it; one that starts over empties the
    file.

    Args:
        folder: Folder of the file.
        every: Number of rollouts from one table to the next, counted from the start of the training, not of the
            process.
        n_samples: Number of actions in a table.
        pick: Choice of the actions, see `Pick`.
        prompt_characters: Number of characters kept of the end of a prompt, behind an ellipsis if that is not all.
        verbose: Whether to print the table too (1), tokens coloured by advantage: blue above 0, orange below.

    Raises:
        ValueError: If a number is not positive, or `pick` is unknown.
        TypeError: At the start of a training, if the algorithm does not learn from rollouts.
    """

    model: LLMOnPolicyAlgorithm

    def __init__(
        self,
        folder: str | Path,
        *,
        every: int = 1,
        n_samples: int = 4,
        pick: Pick | str = Pick.SPREAD,
        prompt_characters: int = 200,
        verbose: int = 0,
    ) -> None:
        super().__init__(verbose)
        for name, value in (("every", every), ("n_samples", n_samples), ("prompt_characters", prompt_characters)):
            if value < 1:
                raise ValueError(f"Expected {name} >= 1; got {value}. Fix: leave the callback out to see nothing.")
        self.path = Path(folder) / "generations.jsonl"
        self.every, self.n_samples, self.prompt_characters = every, n_samples, prompt_characters
        Choice(words=tuple(Pick)).check("pick", pick)
        self.pick = Pick(pick)

    def _on_training_start(self) -> None:
        if not isinstance(self.model, LLMOnPolicyAlgorithm):
            raise TypeError(
                f"Expected an algorithm with token rollouts for GenerationTableCallback; got "
                f"{type(self.model).__name__}. Fix: use it with POAD or another on-policy method, or leave it out."
            )
        kept = _lines_up_to(self.path, self.model.num_timesteps)
        write_text(self.path, "".join(kept))

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        buffer = self.model.rollout_buffer
        if (self.model._n_updates // self.model.n_epochs + 1) % self.every:  # an update follows each rollout
            return
        shown = [
            self._generation(action) for action in _picked(list(buffer.sampled_actions()), self.n_samples, self.pick)
        ]
        with self.path.open("a", encoding="utf-8") as file:
            # One write: the next start drops a line cut short by a kill.
            file.write("".join(_json_line(generation) for generation in shown))
            file.flush()
            os.fsync(file.fileno())
        exclude = ("stdout", "log", "json", "csv", "wandb")
        self.logger.record(_KEY, "\n\n".join(markdown(generation) for generation in shown), exclude=exclude)
        if self.verbose:
            print_generations(shown)

    def _generation(self, action: RolloutAction) -> Generation:
        lm, buffer = self.model.policy.lm, self.model.rollout_buffer
        after = (buffer.pos - 1 - action.position) * buffer.n_envs
        advantages = action.advantages.tolist()
        values, returns = (
            action.values.tolist() or [None] * len(advantages),
            action.returns.tolist() or [None] * len(advantages),
        )
        whole: _Credit = (None, None, None)
        of_tokens: list[_Credit] = [whole] * len(advantages)
        if buffer.estimator.credit_level == "action":
            whole = (values[0], advantages[0], returns[0])
        else:
            of_tokens = [*zip(values, advantages, returns, strict=True)]
        choices = {decision.position for decision in action.path.decisions}
        texts = token_texts(lm.tokenizer, action.path.prompt, action.path.action)
        parts = enumerate(zip(texts, action.log_probs.tolist(), of_tokens, strict=True))
        return Generation(
            step=self.model.num_timesteps - after,
            env=action.env,
            prompt=_ending(decode(lm.tokenizer, action.path.prompt), self.prompt_characters),
            action=lm.prompter.action_text(action.path.action),
            reward=action.reward,
            value=whole[0],
            advantage=whole[1],
            ret=whole[2],
            tokens=tuple(
                TokenEntry(text, math.exp(log), n not in choices, *credit) for n, (text, log, credit) in parts
            ),
        )


def _ending(prompt: str, n_characters: int) -> str:
    return prompt if len(prompt) <= n_characters else f"…{prompt[-n_characters:]}"


def _picked(actions: Sequence[RolloutAction], n: int, pick: Pick) -> list[RolloutAction]:
    if n >= len(actions):
        return list(actions)
    if pick is Pick.SPREAD:
        return [actions[index] for index in np.linspace(0, len(actions) - 1, n).round().astype(int)]
    ordered = sorted(actions, key=_advantage, reverse=True)
    n_worst = n // 2
    return [*ordered[: n - n_worst], *ordered[len(ordered) - n_worst :]]


def _advantage(action: RolloutAction) -> float:
    """Compute the mean advantage over the decisions; over all tokens of an action without any."""
    choices = [decision.position for decision in action.path.decisions if decision.position < len(action.advantages)]
    return float(action.advantages[choices].mean() if choices else action.advantages.mean())


# ------------------------------------------------------------------ the file


def _lines_up_to(path: Path, step: int) -> Iterator[str]:
    """Yield the whole lines of a file whose actions were taken up to a step; none if the file does not exist."""
    if not path.exists():
        return
    text = path.read_text(encoding="utf-8", errors="replace")
    for line in text[: text.rfind("\n") + 1].split("\n"):
        try:
            is_logged = json.loads(line)["step"] <= step
        except (ValueError, TypeError, KeyError, RecursionError):  # damaged: the step is unknown
            continue
        if is_logged:
            yield f"{line}\n"


def _json_line(generation: Generation) -> str:
    tokens = [_record(token) for token in generation.tokens]
    return json.dumps({**_record(generation), "tokens": tokens}, ensure_ascii=False) + "\n"


def _record(entry: TokenEntry | Generation) -> dict[str, Any]:
    """Convert to JSON, with None for infinities; fields that do not apply are left out."""
    fields = {"return" if name == "ret" else name: value for name, value in entry._asdict().items()}
    finite = {name: None if _is_wild(value) else value for name, value in fields.items()}
    return {name: value for name, value in finite.items() if fields[name] is not None}


def _is_wild(value: object) -> bool:
    return isinstance(value, float) and not math.isfinite(value)
