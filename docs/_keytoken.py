"""The sections of an id's page that differ where every episode is drawn at random, so that no graph tells all."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from _families import Family
from _tables import code, episode, percent, table

from lang_envs import EnvRow, LangEnv

__all__ = ["keytoken_numbers", "keytoken_sections"]


def keytoken_sections(row: EnvRow, env: LangEnv[Any], family: Family) -> dict[str, str]:
    """Sections of the page of an id of KeyToken.

    Args:
        row: The id.
        env: An environment of it, reset.
        family: Its family.
    """
    return {
        "At a glance": _glance(row, env, family),
        "Actions": _actions(env),
        "Start and end": "\n".join(
            [
                f"* Start: {family.start[0].lower()}{family.start[1:]}.",
                f'* `terminated`: {family.terminated}; `info["success"]` is True if all were right.',
                f"* `truncated`: {env.max_steps} {family.unit} (`{family.limit}`) have passed without it; "
                f"{family.late}.",
            ]
        ),
        "Oracle": _oracle(row.id),
        "Scores": _scores(env),
        "Checked against": (
            "* No recordings: the family is our own.\n"
            "* A test compares the scores with played episodes, and the values of its table with the closed form.\n"
            "* Every point of the [contract](contract.md) is a test that runs on this id."
        ),
    }


def _glance(row: EnvRow, env: Any, family: Family) -> str:
    space = env.action_space
    rows = [
        ("observation space", code(str(env.observation_space))),
        ("action space", f"{code(str(space))}, shape {code(str(space.shape))}, {space.vocab_size} token ids"),
        ("listed actions", str(env.n_actions)),
        ("decisions", str(env.horizon)),
        ("time limit", f"{env.max_steps} {family.unit}"),
        ("random", "the right key word of every decision, from the seed of the reset"),
        ("render modes", ", ".join(map(code, env.metadata["render_modes"]))),
        ("entry point", code(row.entry_point)),
    ]
    return table(("", code(row.id)), rows)


def _actions(env: Any) -> str:
    rows = [(str(number), code(sentence)) for number, sentence in enumerate(env.sentences)]
    return table(("position", "action"), rows) + (
        "\n\nAll of them are listed always. The command set is the list: any other text is an invalid action."
    )


def _oracle(env_id: str) -> str:
    env = gym.make(env_id, disable_env_checker=True).unwrapped
    env.reset(seed=0)
    head = "`lang_envs.oracle(env)` says the sentence with the right key word. With seed 0:\n\n"
    return head + episode(env, iter(env.oracle_action, ""))


def _scores(env: Any) -> str:
    rows = [
        ("uniformly random", keytoken_numbers(env)[1], f"{1 / env.n_actions:.6f}", str(env.horizon)),
        ("oracle", percent(1.0), "1.00000", str(env.horizon)),
    ]
    return table(("agent", "success", "sum of rewards", "actions"), rows) + (
        "\n\nExact: decisions are independent, each right with probability 1 / `n_actions`."
    )


def keytoken_numbers(env: Any) -> tuple[str, str]:
    """Actions of the oracle, and how often random play succeeds."""
    return str(env.horizon), percent(env.n_actions**-env.horizon)
