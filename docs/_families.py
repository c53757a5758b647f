"""Facts that the ids of a family share: the only text about environments that is not read off the code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import griffe
import gymnasium as gym
from _tables import code, described, table

from lang_envs import ENV_ROWS, EnvRow, LangEnv


class Family(NamedTuple):
    """Facts that the ids of a family share.

    Attributes:
        title: Title of its page.
        page: Name of its page in `environments/`.
        unit: Unit of its clock, in the plural.
        rewards: From an environment to the text about its rewards.
        start: The start, in words.
        terminated: The end of an episode.
        limit: Argument that sets the time limit.
        late: The effect of an action that crosses the time limit.
        oracle: Words before an episode of the oracle.
    """

    title: str
    page: str
    unit: str
    rewards: Callable[[Any], str]
    start: str
    terminated: str
    limit: str
    late: str
    oracle: str = ""


def _kitchen_rewards(env: Any) -> str:
    fields = described("lang_envs.envs.overcooked.env.KitchenReward", griffe.DocstringSectionKind.attributes)
    rows = [(code(name), f"{getattr(env.reward, name):g}", meaning) for name, meaning in fields.items()]
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
    clauses = []
    for clause in env.home_task.goal:
        words = [(wanted, _FACTS[fact[0]].format(*map(env.wording.the, fact[1:]))) for wanted, fact in clause]
        clauses.append(" or ".join(one if wanted else one.replace(" is ", " is **not** ", 1) for wanted, one in words))
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


def _multikey_rewards(env: Any) -> str:
    h = env.horizon
    if hasattr(env, "sign"):
        return table(
            ("decision", "short sentence", "long sentence", "invalid action"),
            [("gain", f"{env.short_reward:g} / {h}", f"1 / {h}", "0"),
             ("cost", f"-{env.short_reward:g} / {h}", f"-1 / {h}", f"-1 / {h}")],
        )  # fmt: skip
    return f"Right keys / {env.k * h} (`k * horizon`), 0 for an invalid action."


FAMILIES = {
    "Overcooked": Family(
        title="Overcooked",
        page="overcooked.md",
        unit="primitive moves",
        rewards=_kitchen_rewards,
        start="everything is at home, the hands are empty",
        terminated='the right dish is served; `info["success"]` is True',
        limit="max_primitives",
        late="the macro-action that crosses the limit runs to its end and counts in full",
        oracle="the first action of a shortest plan from any situation. From the start",
    ),
    "VirtualHome": Family(
        title="VirtualHome",
        page="virtualhome.md",
        unit="steps",
        rewards=_home_rewards,
        start="in the kitchen, empty-handed and near nothing; everything is in its place, closed and off",
        terminated='the goal is reached; `info["success"]` is True',
        limit="max_steps",
        late="a command that reaches the goal in the last step counts",
        oracle="the first action of a shortest plan from any situation. From the start",
    ),
    "DataSciCoding": Family(
        title="DataSciCoding",
        page="datascicoding.md",
        unit="attempts",
        rewards=_coding_rewards,
        start="no attempt has been made",
        terminated='code has run on every split (not with `terminate_on_success=False`); `info["success"]` is True',
        limit="max_attempts",
        late="code that runs in the last attempt counts",
    ),
    "KeyToken": Family(
        title="KeyToken",
        page="keytoken.md",
        unit="steps",
        rewards=_keytoken_rewards,
        start="no decision has been made, the first key word is drawn",
        terminated='the last decision has been made; `info["success"]` is True if all were right',
        limit="max_steps",
        late="a decision that is the last one in the last step counts",
        oracle="the sentence with the right key word. With seed 0",
    ),
    "MultiKey": Family(
        title="MultiKey",
        page="multikey.md",
        unit="steps",
        rewards=_multikey_rewards,
        start="no decision has been made, the first target is drawn",
        terminated='the last decision has been made; `info["success"]` is True if all were right',
        limit="max_steps",
        late="a decision that is the last one in the last step counts",
        oracle="a right sentence, of several the first. With seed 0",
    ),
}


def family_of(env_id: str) -> Family:
    """Return the family of an id."""
    return FAMILIES[env_id.partition("-")[0]]


def rows_of(family: str) -> list[EnvRow]:
    """Return the ids of a family."""
    return [row for row in ENV_ROWS if row.id.startswith(f"{family}-")]


def make(env_id: str, **kwargs: Any) -> LangEnv[Any]:
    """Make an environment, unwrapped; never of a table that would have to be fetched, so that every build is equal."""
    trial = next(row.trial for row in ENV_ROWS if row.id == env_id)
    inner = gym.make(env_id, disable_env_checker=True, **{**trial, **kwargs}).unwrapped
    assert isinstance(inner, LangEnv)
    return inner


def started(env_id: str, **kwargs: Any) -> tuple[Any, str, dict[str, Any]]:
    """Make an environment and reset it; returns it with its first text and info."""
    env = make(env_id, **kwargs)
    return env, *env.reset(seed=0)
