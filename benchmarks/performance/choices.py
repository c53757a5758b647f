"""Share of actions with more than one choice on each task.

An action has a choice wherever its path through the trie of admissible actions, in the tokens of the pocket model, has
several children. Token credit differs from action-level credit only in actions with more than one. Episodes are of
uniformly random actions. Tasks of DataSciCoding are left out: written code has a choice at every token.

Writes choices.json.
"""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import gymnasium as gym

from benchmarks.reports.tables import show_records
from benchmarks.runner.files import write_result
from lang_envs import ENV_ROWS
from poad_sb3.distributions.trie import tokenize
from poad_sb3.language_model.language_model import LanguageModel
from poad_sb3.prompts import Question

_EPISODES, _MAX_ACTIONS = 20, 6_000


def share_with_several_choices(env_id: str, lm: LanguageModel) -> dict[str, float]:
    """Return the shares of random actions, and of listed ones, with more than one choice.

    Args:
        env_id: Id of a task that lists its actions.
        lm: Language model whose tokenizer splits the actions.
    """

    @cache
    def n_choices(actions: tuple[str, ...]) -> dict[str, int]:
        decisions = tokenize(lm, Question("", actions))[1].decisions
        return {action: len(points) for action, points in zip(actions, decisions, strict=True)}

    env, rng = gym.make(env_id), random.Random(0)
    taken, listed = [], []
    for seed in range(_EPISODES):
        info: dict[str, Any] = env.reset(seed=seed)[1]
        over = False
        while not over and len(taken) < _MAX_ACTIONS:
            of = n_choices(tuple(info["admissible_actions"]))
            action = rng.choice(list(of))
            taken.append(of[action] > 1)
            listed += [n > 1 for n in of.values()]
            *_, terminated, truncated, info = env.step(env.action_space.encode(action))  # type: ignore[attr-defined]
            over = terminated or truncated
    return {
        "actions": len(taken),
        "taken": round(sum(taken) / len(taken), 4),
        "listed": round(sum(listed) / len(listed), 4),
    }


def choices() -> None:
    """Measure every task that lists its actions."""
    lm = LanguageModel()
    ids = [row.id for row in ENV_ROWS if gym.make(row.id, **row.trial).metadata.get("actions", "listed") == "listed"]
    shares = {env_id: share_with_several_choices(env_id, lm) for env_id in ids}
    show_records("id", shares, ("actions", "taken", "listed"))
    write_result("choices", {"model": "pocket", "episodes": _EPISODES, "ids": shares})
