"""`GenerationTableCallback`: the agent's actions, token by token, in a file and in TensorBoard."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback

from lang_envs.files import write_text
from lang_envs.text import markdown_text
from poad_sb3.common.on_policy_algorithm import LLMOnPolicyAlgorithm
from poad_sb3.common.rollout_types import RolloutAction
from poad_sb3.common.token_fields import decode, token_texts

__all__ = ["GenerationTableCallback"]

_KEY = "rollout/generations"
_PROMPT_CHARACTERS = 200
"""Number of characters kept of the end of a prompt, behind an ellipsis if that is not all."""
_CREDIT = ("value", "advantage", "return")
_VISIBLE = str.maketrans({" ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍"})


class GenerationTableCallback(BaseCallback):
    """Shows the agent's actions, token by token: probability, value before it, advantage and return.

    At the ends of rollouts some of their actions, spread evenly, go to `generations.jsonl`, one JSON object a line, and
    as Markdown to TensorBoard. `value`, `advantage` and `return` (the target of the value) stand at tokens, or with
    credit for whole actions at the action; without a critic there is no value. A training resumed from a checkpoint
    drops the lines beyond it; one that starts over empties the file.

    Args:
        folder: Folder of the file.
        every: Number of rollouts from one table to the next, counted from the start of the training, not of the
            process.
        n_samples: Number of actions in a table.

    Raises:
        ValueError: If a number is not positive.
        TypeError: At the start of a training, if the algorithm does not learn from rollouts.
    """

    model: LLMOnPolicyAlgorithm

    def __init__(self, folder: str | Path, *, every: int = 1, n_samples: int = 4) -> None:
        super().__init__()
        for name, value in (("every", every), ("n_samples", n_samples)):
            if value < 1:
                raise ValueError(f"Expected {name} >= 1; got {value}. Fix: leave the callback out to see nothing.")
        self.path = Path(folder) / "generations.jsonl"
        self.every, self.n_samples = every, n_samples

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
        actions = list(buffer.sampled_actions())
        if self.n_samples < len(actions):
            actions = [actions[at] for at in np.linspace(0, len(actions) - 1, self.n_samples).round().astype(int)]
        shown = [self._record(action) for action in actions]
        with self.path.open("a", encoding="utf-8") as file:
            # One write: the next start drops a line cut short by a kill.
            file.write("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in shown))
            file.flush()
            os.fsync(file.fileno())
        exclude = ("stdout", "log", "json", "csv", "wandb")
        self.logger.record(_KEY, "\n\n".join(map(_markdown, shown)), exclude=exclude)

    def _record(self, action: RolloutAction) -> dict[str, Any]:
        lm, buffer = self.model.policy.lm, self.model.rollout_buffer
        credit = [
            {name: _finite(value) for name, value in zip(_CREDIT, values, strict=True) if value is not None}
            for values in zip_longest(action.values.tolist(), action.advantages.tolist(), action.returns.tolist())
        ]
        is_whole = buffer.estimator.credit_level == "action"
        choices = {decision.position for decision in action.path.decisions}
        texts = token_texts(lm.tokenizer, action.path.prompt, action.path.action)
        prompt = decode(lm.tokenizer, action.path.prompt)
        return {
            "step": self.model.num_timesteps - (buffer.pos - 1 - action.step) * buffer.n_envs,
            "env": action.env,
            "prompt": prompt if len(prompt) <= _PROMPT_CHARACTERS else f"…{prompt[-_PROMPT_CHARACTERS:]}",
            "action": lm.prompter.action_text(action.path.action),
            "reward": action.reward,
            **(credit[0] if is_whole else {}),
            "tokens": [
                {
                    "text": text,
                    "probability": _finite(math.exp(log_prob)),
                    "forced": n not in choices,
                    **({} if is_whole else credit[n]),
                }
                for n, (text, log_prob) in enumerate(zip(texts, action.log_probs.tolist(), strict=True))
            ],
        }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _markdown(record: dict[str, Any]) -> str:
    """Return a heading, the prompt as a quotation, and a table with a row for each token."""
    whole = "".join(f", {name} {record[name]:.3g}" for name in _CREDIT if record.get(name) is not None)
    rows: list[tuple[str, ...]] = [("token", "p", *_CREDIT), ("---",) * 5]
    for token in record["tokens"]:
        cells = (token.get(name) for name in ("probability", *_CREDIT))
        numbers = ("" if value is None else f"{value:z.3g}" for value in cells)
        rows.append((markdown_text(token["text"].translate(_VISIBLE)), *numbers))
    title = f"**step {record['step']}, environment {record['env']}, reward {record['reward']:.3g}{whole}**"
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"{title}: {markdown_text(record['action'])}\n\n> {markdown_text(record['prompt'])}\n\n{table}"


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
