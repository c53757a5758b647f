"""Walks through environments, shared by the tests of `lang_envs`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym

from lang_envs import ENV_ROWS
from lang_envs.env_checker import walks
from lang_envs.env_checker.walks import Step, randomly, same

__all__ = [
    "FAMILY_IDS",
    "IDS",
    "SLOW_CHECKS",
    "TABLE_CHECKS",
    "TABLE_IDS",
    "Policy",
    "Step",
    "oracle_policy",
    "random_policy",
    "same",
    "walk_from_reset",
]

IDS = [row.id for row in ENV_ROWS]
"""Every registered id: tests parametrised over it cover environments that are added later."""

FAMILY_IDS = list({env_id.partition("-")[0]: env_id for env_id in reversed(IDS)}.values())[::-1]
"""The first id of each family, for tests that do not depend on the task."""

TABLE_IDS = frozenset(env_id for env_id in IDS if env_id.startswith("DataSciCoding-") and "generated" not in env_id) - {
    "DataSciCoding-v0",
    *FAMILY_IDS,
}
"""Ids that differ from the first of their class in the table alone: see the mark `one_table`."""
TABLE_CHECKS = frozenset({"spaces", "info_keys", "info_values", "observations", "spec_as_json", "oracle", "state"})
"""Checks of the contract that see the table."""
SLOW_CHECKS = frozenset({"vector_sync", "vector_async", "vector_sb3_subproc"})
"""Checks of vectors that take 10 to 20 seconds where every episode has another table; one kind of vector is enough."""

Policy = Callable[[gym.Env, dict[str, Any]], str]


def random_policy(seed: int) -> Policy:
    """Uniform over the listed actions; any sentence where the action space is open."""
    agent = randomly(seed)
    return lambda env, info: agent(env, "", info["admissible_actions"])


def oracle_policy(env: gym.Env, info: dict[str, Any]) -> str:
    """Return the action of the environment's own oracle."""
    return env.unwrapped.oracle_action()


def walk_from_reset(env: gym.Env, policy: Policy, n_steps: int, seed: int | None) -> tuple[str, list[Step]]:
    """First text, and the steps, across the ends of episodes."""
    return walks.walk_from_reset(env, lambda e, _, listed: policy(e, {"admissible_actions": listed}), n_steps, seed)
