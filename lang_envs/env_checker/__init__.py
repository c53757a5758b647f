"""The environment contract as checks that run on any id, ours or a third party's.

    from lang_envs.env_checker import run_checks

    for result in run_checks("my_package.envs:MyEnv-v0"):
        ...  # result.name, result.status, result.message

`lang-envs check ID` shows the same in a terminal. An environment need not derive from `LangEnv`; a missing part (an
oracle, `get_state`, render modes) is skipped, with the reason.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from functools import partial
from typing import Any

import gymnasium as gym

from lang_envs.env_checker import actions, copies, interface, rendering, texts, vectors
from lang_envs.env_checker.base import Check, ConformanceError, Make, NotApplicableError, Result, Status, run_check

__all__ = [
    "CHECKS",
    "FOUNDATIONS",
    "Check",
    "ConformanceError",
    "Make",
    "NotApplicableError",
    "Result",
    "Status",
    "iter_checks",
    "maker",
    "run_check",
    "run_checks",
]

CHECKS: tuple[Check, ...] = tuple(
    Check(function.__name__, (function.__doc__ or "").partition("\n")[0], function)
    for function in (
        interface.gymnasium_check_env,
        interface.spaces,
        interface.info_keys,
        interface.info_values,
        interface.observations,
        interface.rewards_and_flags,
        interface.admissible_actions_method,
        interface.fresh_data,
        interface.spec_as_json,
        copies.same_seed_same_trajectory,
        copies.reset_starts_over,
        copies.copy_by_pickle,
        copies.copy_by_deepcopy,
        copies.state,
        copies.global_generators,
        actions.listed_actions,
        actions.oracle,
        texts.strange_texts,
        texts.near_misses,
        texts.unfinished_sentences,
        actions.wrong_actions,
        actions.step_before_reset,
        actions.step_after_the_end,
        rendering.render_ansi,
        rendering.render_rgb_array,
        rendering.rendering_changes_nothing,
        vectors.vector_sync,
        vectors.vector_async,
        vectors.vector_sb3_dummy,
        vectors.vector_sb3_subproc,
    )
)
"""Every point of the contract, the cheap ones first."""

FOUNDATIONS = ("spaces", "info_keys")
"""Checks that all later ones need: if one of these fails, those after it are skipped."""


def maker(env_id: str, **kwargs: Any) -> Make:
    """Return the factory that a check takes: it makes `env_id` with these arguments and those that the check adds.

    Without Gymnasium's passive checker: its warnings would come before our messages, and `check_env` is a check.
    """
    module, _, name = env_id.rpartition(":")
    if module:
        importlib.import_module(module)
    # The spec, not the id: a worker process that is spawned knows no ids until something registers them.
    return partial(gym.make, gym.spec(name), disable_env_checker=True, **kwargs)


def iter_checks(env_id: str, **kwargs: Any) -> Iterator[Result]:
    """Run every check like `run_checks`, and yield each result as soon as it is known."""
    make = maker(env_id, **kwargs)
    make().close()
    broken: str | None = None
    for check in CHECKS:
        if broken is not None:
            yield Result(check.name, Status.SKIPPED, f"needs {broken} to pass")
            continue
        result = run_check(check, make)
        if result.status is Status.FAILED and check.name in FOUNDATIONS:
            broken = check.name
        yield result


def run_checks(env_id: str, **kwargs: Any) -> list[Result]:
    """Run every check on one id.

    Args:
        env_id: Gymnasium id, `"module:Id-v0"` for one that a module registers.
        kwargs: Arguments for `gym.make`.

    Returns:
        One result for each of `CHECKS`, in their order.

    Raises:
        gymnasium.error.Error: If there is no such id.
        ModuleNotFoundError: If its module cannot be imported.
        Exception: Any error of the environment's constructor.
    """
    return list(iter_checks(env_id, **kwargs))
