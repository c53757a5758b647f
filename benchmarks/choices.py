"""Share of actions with more than one choice on each task: `python -m benchmarks.choices`.

An action has a choice wherever its path through the trie of admissible actions, in the tokens of the pocket model, has
several children. Token credit differs from action-level credit only in actions with more than one. Episodes are of
uniformly random actions. Tasks of DataSciCoding are left out: written code has a choice at every token.

Writes results/choices.json.
"""

from __future__ import annotations

import json
import random
from functools import cache
from typing import Any

import gymnasium as gym

from benchmarks.environment import RESULTS, describe_machine
from lang_envs import ENV_ROWS
from poad_sb3.lm import LanguageModel
from poad_sb3.prompts import Question
from poad_sb3.rows import prepare

__all__ = ["main", "share_with_several_choices"]

_EPISODES, _MAX_ACTIONS = 20, 6_000


def share_with_several_choices(env_id: str, lm: LanguageModel) -> dict[str, float]:
    """Return the shares of random actions, and of listed ones, with more than one choice.

    Args:
        env_id: A task that lists its actions.
        lm: Whose tokens.
    """

    @cache
    def choices(actions: tuple[str, ...]) -> dict[str, int]:
        decisions = prepare(lm, Question("", actions)).trie.decisions
        return {action: len(own) for action, own in zip(actions, decisions, strict=True)}

    env, rng = gym.make(env_id), random.Random(0)
    taken, listed = [], []
    for seed in range(_EPISODES):
        info: dict[str, Any] = env.reset(seed=seed)[1]
        over = False
        while not over and len(taken) < _MAX_ACTIONS:
            of = choices(tuple(info["admissible_actions"]))
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


def main() -> None:
    """Measure every task that lists its actions."""
    lm = LanguageModel()
    ids = [row.id for row in ENV_ROWS if gym.make(row.id, **row.trial).metadata.get("actions", "listed") == "listed"]
    shares = {env_id: share_with_several_choices(env_id, lm) for env_id in ids}
    content = {**describe_machine(), "model": "pocket", "episodes": _EPISODES, "ids": shares}
    (RESULTS / "choices.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    for env_id, one in shares.items():
        print(
            f"{env_id:45s} {one['taken']:.1%} of {one['actions']:,} random actions, {one['listed']:.1%} of the listed"
        )


if __name__ == "__main__":
    main()
