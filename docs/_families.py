"""What the ids of a family share: the only text about environments that is not read off the code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
from _tables import code, described_attributes, table

from lang_envs import ENV_ROWS, EnvRow, LangEnv

__all__ = ["FAMILIES", "Family", "family_of", "make", "rows_of", "trial_of"]


class Family(NamedTuple):
    """What the ids of a family share.

    Attributes:
        title: Title of its page.
        page: Name of its page in `environments/`.
        unit: What the clock counts, in the plural.
        rewards: From an environment to what it pays.
        start: The start, in words.
        terminated: What ends an episode.
        limit: Argument that sets the time limit.
        late: What happens to the action that crosses the time limit.
        is_open: Whether any text is an action, so that there is no list to go through.
        is_random: Whether episodes are drawn from the seed, so that one start does not stand for all.
    """

    title: str
    page: str
    unit: str
    rewards: Callable[[LangEnv[Any]], str]
    start: str
    terminated: str
    limit: str
    late: str
    is_open: bool = False
    is_random: bool = False


def _kitchen_rewards(env: Any) -> str:
    described = described_attributes("lang_envs.envs.overcooked.env.KitchenReward")
    rows = [(code(name), f"{getattr(env.reward, name):g}", meaning) for name, meaning in described.items()]
    return table(("`KitchenReward`", "value", "meaning"), rows)


_FACTS = {
    "in": "the person is in {}",
    "see": "{} is in sight",
    "near": "{} is near",
    "at": "{} lies on {}",
    "facing": "the person faces {}",
    "on": "{} is on",
    "seated": "{} has been sat on",
}


def _home_rewards(env: Any) -> str:
    def told(fact: tuple[str, ...], *, wanted: bool) -> str:
        words = _FACTS[fact[0]].format(*map(env.wording.the, fact[1:]))
        return words if wanted else words.replace(" is ", " is **not** ", 1)

    clauses = [" or ".join(told(fact, wanted=wanted) for wanted, fact in clause) for clause in env.home_task.goal]
    listed = "\n".join(f"* {clause}" for clause in clauses)
    return (
        "1 in the step after which the goal is reached, 0 in every other; nothing is deducted. "
        f"The goal is reached when all of this is perceived, whatever the last command was:\n\n{listed}"
    )


def _coding_rewards(env: Any) -> str:
    rows = [
        ("code that runs on every split", "mean ROC AUC of the splits, 0 to 1"),
        ("anything else", f"{env.failure_reward:g} (`failure_reward`)"),
    ]
    return table(("attempt", "reward"), rows) + "\n\nEquations: [the evaluation](datascicoding.md#evaluation)."


def _keytoken_rewards(env: Any) -> str:
    return f"1 / {env.horizon} (`1 / horizon`) for the right key word, 0 for a wrong one and for an invalid action."


FAMILIES = {
    "Overcooked": Family(
        title="Overcooked",
        page="overcooked.md",
        unit="primitive moves",
        rewards=_kitchen_rewards,
        start="Everything is at home, the hands are empty",
        terminated="the right dish is served",
        limit="max_primitives",
        late="the macro-action that crosses the limit runs to its end and counts in full",
    ),
    "VirtualHome": Family(
        title="VirtualHome",
        page="virtualhome.md",
        unit="steps",
        rewards=_home_rewards,
        start="In the kitchen, empty-handed and near nothing; everything is in its place, closed and off",
        terminated="the goal is reached",
        limit="max_steps",
        late="a command that reaches the goal in the last step counts",
    ),
    "DataSciCoding": Family(
        title="DataSciCoding",
        page="datascicoding.md",
        unit="attempts",
        rewards=_coding_rewards,
        start="No attempt has been made",
        terminated="code has run on every split (not with `terminate_on_success=False`)",
        limit="max_attempts",
        late="code that runs in the last attempt counts",
        is_open=True,
    ),
    "KeyToken": Family(
        title="KeyToken",
        page="keytoken.md",
        unit="steps",
        rewards=_keytoken_rewards,
        start="No decision has been made, the first key word is drawn",
        terminated="the last decision has been made",
        limit="max_steps",
        late="a decision that is the last one in the last step counts",
        is_random=True,
    ),
}


def family_of(env_id: str) -> Family:
    """The family of an id."""
    return FAMILIES[env_id.partition("-")[0]]


def rows_of(family: str) -> list[EnvRow]:
    """The ids of a family."""
    return [row for row in ENV_ROWS if row.id.startswith(f"{family}-")]


def trial_of(env_id: str) -> dict[str, Any]:
    """Arguments with which an id can be made on a machine without fetched tables; those of an unknown id are none."""
    return next((row.trial for row in ENV_ROWS if row.id == env_id), {})


def make(env_id: str, **kwargs: Any) -> gym.Env[Any, Any]:
    """An environment of an id; never of a table that would have to be fetched, so that every build is the same."""
    return gym.make(env_id, disable_env_checker=True, **{**trial_of(env_id), **kwargs})
