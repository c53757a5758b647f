"""Every check catches an environment that breaks its point, and passes those that keep it."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from broken_doors import ARGUMENTS, BREAKS, Break, Undrawn
from gymnasium.envs.registration import EnvSpec
from third_party import FullDoors

from lang_envs.env_checker import (
    CHECKS,
    FOUNDATIONS,
    ConformanceError,
    Make,
    Result,
    Status,
    maker,
    run_check,
    run_checks,
    vectors,
)

CHECK = {check.name: check for check in CHECKS}


def maker_of(environment: type[FullDoors], **kwargs: Any) -> Make:
    """Makes an environment that is not registered, as `gym.make` does."""
    entry_point = f"{environment.__module__}:{environment.__qualname__}"
    spec = EnvSpec(f"{environment.__name__}-v0", entry_point=entry_point, kwargs=kwargs)
    return partial(spec.make, disable_env_checker=True)


@pytest.mark.parametrize("broken", BREAKS, ids=lambda broken: f"{broken.check}-{broken.environment.__name__}")
def test_a_broken_environment_is_caught(broken: Break) -> None:
    result = run_check(CHECK[broken.check], maker_of(broken.environment, **ARGUMENTS.get(broken.environment, {})))
    assert result.status is Status.FAILED
    assert re.search(broken.message, result.message, re.DOTALL), result.message


def test_every_check_can_fail() -> None:
    assert {broken.check for broken in BREAKS} == set(CHECK)
    assert len(CHECK) == len(CHECKS)
    assert all(check.description.endswith(".") for check in CHECKS)


@pytest.mark.parametrize("env_id", ["Overcooked-TomatoSalad-v0", "third_party:ThirdParty/FullDoors-v0"])
def test_what_makes_an_environment_works_in_a_process_that_knows_no_ids(env_id: str) -> None:
    """As a spawned worker of a vector environment is; where fork is the default, no check would notice."""
    make = pickle.dumps(maker(env_id))
    code = f"import pickle; print(pickle.loads({make!r})().unwrapped.reset(seed=0)[0])"
    folder = Path(__file__).parents[2] / "support"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=folder, check=False)
    assert done.stderr == ""
    assert done.stdout.strip() == maker(env_id)().reset(seed=0)[0]


# ---------------------------------------------------------------------- environments that keep it

LEFT_OUT = {
    "admissible_actions_method": "no admissible_actions",
    "state": "no get_state",
    "oracle": "no oracle_action",
    "render_ansi": "no render mode 'ansi'",
    "render_rgb_array": "no render mode 'rgb_array'",
    "rendering_changes_nothing": "no render mode 'rgb_array' or 'ansi'",
}
NOTHING_LISTED = {"listed_actions": "open action space", "near_misses": "open action space"}


def unpassed(results: Sequence[Result]) -> dict[str, tuple[Status, str]]:
    return {name: (status, message) for name, status, message in results if status is not Status.PASSED}


@pytest.mark.parametrize(
    ("name", "skipped"),
    [("FullDoors", {}), ("OneDoor", {}), ("OpenDoors", LEFT_OUT | NOTHING_LISTED)],
    ids=["full", "one step", "minimal"],
)
def test_a_third_party_environment_that_keeps_the_contract(name: str, skipped: dict[str, str]) -> None:
    got = unpassed(run_checks(f"third_party:ThirdParty/{name}-v0"))
    assert set(got) == set(skipped)
    for check, reason in skipped.items():
        assert got[check][0] is Status.SKIPPED
        assert reason in got[check][1]


def test_what_needs_a_foundation_is_skipped_without_it() -> None:
    results = run_checks("CartPole-v1")
    assert [result.name for result in results] == list(CHECK)
    assert {result.name for result in results if result.status is Status.FAILED} == {"gymnasium_check_env", "spaces"}
    assert {result.message for result in results[2:]} == {"needs spaces to pass"}
    assert FOUNDATIONS == ("spaces", "info_keys")


def test_arguments_reach_the_environment() -> None:
    got = unpassed(run_checks("third_party:ThirdParty/FullDoors-v0", n_tries=2))
    assert set(got) == {"oracle"}
    assert "truncated=True" in got["oracle"][1]


def test_a_limit_of_gymnasium_is_no_fault() -> None:
    """Its `TimeLimit` cuts an episode that ends in the last step: both flags are True."""
    results = run_checks("KeyToken-v0", max_episode_steps=4)
    assert {result.name for result in results if result.status is Status.FAILED} == set()


@pytest.mark.parametrize(
    ("env_id", "error"),
    [("ThirdParty/Windows-v0", gym.error.NameNotFound), ("nowhere.at_all:Doors-v0", ModuleNotFoundError)],
)
def test_an_unknown_id_is_refused(env_id: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        run_checks(env_id)


def test_an_oracle_may_be_not_implemented() -> None:
    class Modest(FullDoors):
        def oracle_action(self) -> str:
            raise NotImplementedError

    result = run_check(CHECK["oracle"], Modest)
    assert (result.status, result.message) == (
        Status.SKIPPED,
        "the environment's oracle_action() is not implemented",
    )


def test_a_spec_is_not_always_there() -> None:
    assert "no spec" in run_check(CHECK["spec_as_json"], FullDoors).message
    make = EnvSpec("Class-v0", entry_point=FullDoors).make
    result = run_check(CHECK["spec_as_json"], make)
    assert result.status is Status.SKIPPED
    assert "a class is registered" in result.message


@pytest.mark.parametrize("name", ["vector_sb3_dummy", "vector_sb3_subproc"])
def test_without_sb3_its_checks_are_skipped(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert run_check(CHECK[name], FullDoors) == Result(name, Status.SKIPPED, "stable_baselines3 is not installed")


class Dying(FullDoors):
    """Its second worker dies at its third step."""

    def step(self, action: Any) -> Any:
        if multiprocessing.parent_process() is not None and self.tries == 2:
            os._exit(1)
        return super().step(action)


@pytest.mark.parametrize("name", ["vector_async", "vector_sb3_subproc"])
def test_a_worker_that_dies_is_a_failure_and_no_endless_wait(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "WORKER_SECONDS", 2.0)
    result = run_check(CHECK[name], maker_of(Dying))
    assert result.status is Status.FAILED
    assert "Expected workers that answer within 2 s" in result.message
    assert multiprocessing.active_children() == []


def test_an_error_of_a_check_is_both_ours_and_an_assertion() -> None:
    with pytest.raises(ConformanceError, match=r"Expected .*; got .*\. Fix: .*\.") as raised:
        CHECK["render_ansi"].function(maker_of(Undrawn))
    assert isinstance(raised.value, AssertionError)
