"""Checks of spaces and of the results of `reset` and `step`."""

from __future__ import annotations

import copy
import math
import pickle
import re
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env

from lang_envs.core import language_env
from lang_envs.env_checker.base import Make, NotApplicableError, expect
from lang_envs.env_checker.walks import (
    N_STEPS,
    capable_agent,
    expect_same_walk,
    randomly,
    same,
    walk_from_reset,
)
from lang_envs.errors import EncodingError
from lang_envs.spaces import TextObservation, TextSpace, TokenSequence


def gymnasium_check_env(make: Make) -> None:
    """Gymnasium's own check_env passes without a warning of Gymnasium."""
    with make() as env, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_env(language_env(env), skip_render_check=env.spec is None)
    for warning in caught:
        plain = re.sub(r"\x1b\[[0-9;]*m", "", str(warning.message))  # gymnasium colours its warnings
        is_of_gymnasium = plain.startswith("WARN: ") and "is different from the unwrapped version" not in plain
        expect(not is_of_gymnasium, "check_env to pass without warnings", plain, "see the warning")


def spaces(make: Make) -> None:
    """The spaces are a TextSpace and a TokenSequence, and can be copied."""
    with make() as env:
        for name, kind in (("observation_space", TextSpace), ("action_space", TokenSequence)):
            space, fix = getattr(env, name), "make one in its place"
            expect(isinstance(space, kind), f"{name} to be a lang_envs.{kind.__name__}", space, fix)
            space.seed(4)
            for copied in (pickle.loads(pickle.dumps(space)), copy.deepcopy(space)):
                equal = copied == space and same(copied.sample(), copy.deepcopy(space).sample())
                expect(equal, f"a copy of {name} equal to it", copied, "let it hold plain data only")


_KEYS = {"admissible_actions", "invalid_action", "success"}


class _Moment(NamedTuple):
    """Result of a reset or a step; a reset has reward 0 and no flags."""

    text: Any
    info: dict[str, Any]
    reward: Any = 0.0
    terminated: Any = False
    truncated: Any = False
    after: str = "reset()"


def _moments(env: gym.Env[Any, Any]) -> Iterator[_Moment]:
    """Yield everything that good play (so that episodes end), then random play, shows."""
    tokens: Any = env.action_space
    for seed in range(2):
        yield (now := _Moment(*env.reset(seed=seed)))
        agent = randomly(seed) if seed else capable_agent(env, seed)
        for number in range(1, N_STEPS + 1):
            if now.terminated or now.truncated:
                now = _Moment(*env.reset())
            else:
                action = agent(env, now.text, now.info["admissible_actions"])
                text, reward, terminated, truncated, info = env.step(tokens.encode(action))
                now = _Moment(text, info, reward, terminated, truncated, f"step {number} ({action!r})")
            yield now


def observations(make: Make) -> None:
    """Every observation is a str of the observation space; a list that it carries is that of info."""
    with make() as env:
        for moment in _moments(env):
            got = f"{type(moment.text).__name__} {moment.text!r:.80}"
            is_text = type(moment.text) in (str, TextObservation)
            expect(is_text, f"a str after {moment.after}", got, "return str(observation)")
            if isinstance(moment.text, TextObservation):
                listed = moment.info["admissible_actions"]
                carried = moment.text.admissible_actions
                agree = carried == (None if listed is None else tuple(listed))
                fix = "TextObservation(text, info['admissible_actions'])"
                expect(agree, f"an observation that carries info's list {listed!r:.80}", carried, fix)
            expect(
                moment.text in env.observation_space,
                f"an observation in {env.observation_space} after {moment.after}",
                f"{len(moment.text)} characters",
                "raise the space's max_length",
            )


def rewards_and_flags(make: Make) -> None:
    """Rewards are finite floats, flags Python bools, never both True; success comes with terminated."""
    with make() as env:
        inner = language_env(env)  # Gymnasium's TimeLimit may cut an episode in its last step
        for moment in _moments(inner):
            after, flags = moment.after, (moment.terminated, moment.truncated)
            good = isinstance(moment.reward, float) and math.isfinite(moment.reward)
            expect(good, f"a finite float as reward after {after}", moment.reward, "return float(reward)")
            expect(
                all(type(flag) is bool for flag in flags), f"Python bools as flags after {after}", flags, "bool(flag)"
            )
            fix = "let truncated mean that the time budget ran out before success or failure"
            expect(flags != (True, True), f"not both flags after {after}", flags, fix)
            fix = "end the episode when the goal is reached"
            expect(moment.info["success"] <= moment.terminated, f"success to terminate after {after}", flags, fix)


def info_keys(make: Make) -> None:
    """Every info has the contract's keys, and always the same keys."""
    with make() as env:
        keys: set[str] = set()
        for moment in _moments(env):
            keys = keys or set(moment.info)
            expected, fix = (
                f"the keys {sorted(keys | _KEYS)} after {moment.after}",
                "return all in every reset and step",
            )
            expect(set(moment.info) == keys >= _KEYS, expected, sorted(moment.info), fix)


def info_values(make: Make) -> None:
    """Every info has a fresh list of distinct texts that fit the action space (or None), and bools."""
    with make() as env:
        previous: object = None
        for moment in _moments(env):
            info, after = moment.info, moment.after
            for key in ("invalid_action", "success"):
                good = type(info[key]) is bool and not (after == "reset()" and info[key])
                expect(good, f"a bool in info[{key!r}], False at a reset, after {after}", info[key], "return bool(...)")
            actions = info["admissible_actions"]
            fix = "build a new list in every reset and step"
            expect(actions is None or actions is not previous, f"a fresh list after {after}", "the one before", fix)
            previous = actions
            fix = "declare metadata['actions']: 'listed', or 'text' or 'code' where any text is an action"
            declared = env.metadata.get("actions")
            agrees = declared is None or (declared == "listed") == (actions is not None)
            expect(agrees, f"a list where metadata['actions'] is 'listed', else None, after {after}", declared, fix)
            _check_listed(env.action_space, actions, moment)


def _check_listed(tokens: Any, actions: Any, moment: _Moment) -> None:
    if actions is None:
        return
    expected = f"a list of distinct str in info['admissible_actions'] after {moment.after}, or None"
    good = isinstance(actions, list) and all(type(action) is str for action in actions)
    expect(good and len(set(actions)) == len(actions), expected, actions, "list every text once, as a plain str")
    over, fix = moment.terminated or moment.truncated, "end the episode, or list more"
    expect(bool(actions) or over, f"something to do after {moment.after}", actions, fix)
    for action in actions:
        try:
            back = tokens.decode(tokens.encode(action))
        except EncodingError as error:
            back = str(error)
        expect(back == action, f"{action!r} to fit the action space", back, "raise max_length or change the text")


def admissible_actions_method(make: Make) -> None:
    """admissible_actions() gives the list of info at any time, a fresh one."""
    with make() as env:
        base: Any = language_env(env)
        if not hasattr(base, "admissible_actions"):
            raise NotApplicableError("the environment has no admissible_actions() method")
        for moment in _moments(env):
            listed, returned = copy.copy(moment.info["admissible_actions"]), base.admissible_actions()
            fix = "compute both from the current state"
            expect(
                returned == listed,
                f"admissible_actions() to be info's {listed!r:.160} after {moment.after}",
                returned,
                fix,
            )
            if returned is not None:
                returned.clear()
                second = base.admissible_actions()
                expect(
                    second == listed, f"a fresh list from admissible_actions() after {moment.after}", second, "copy it"
                )


def fresh_data(make: Make) -> None:
    """Changing a list from info does not change the environment."""
    with make() as touched, make() as left_alone:
        tokens: Any = left_alone.action_space
        agent = randomly(2)
        (text, info), (_, expected) = touched.reset(seed=2), left_alone.reset(seed=2)
        for number in range(N_STEPS):
            fix = "hand out copies, never the objects the environment works with"
            expect(same(info, expected), f"info {expected!r:.300} after {number} steps", info, fix)
            action = tokens.encode(agent(left_alone, text, expected["admissible_actions"]))
            _spoil(info)
            _, _, terminated, truncated, info = touched.step(action.copy())
            text, *_, expected = left_alone.step(action)
            if terminated or truncated:
                (_, info), (text, expected) = touched.reset(), left_alone.reset()


def _spoil(info: dict[str, Any]) -> None:
    for value in info.values():
        if isinstance(value, np.ndarray):
            value.fill(99)
        elif isinstance(value, list | dict | set):
            value.clear()
    info.clear()


def spec_as_json(make: Make) -> None:
    """The spec serialises to JSON and rebuilds the same environment."""
    with make() as env:
        spec = env.spec
        wanted = walk_from_reset(env, randomly(3), N_STEPS, seed=3)
    if spec is None:
        raise NotApplicableError("the environment was not made by gymnasium.make, so it has no spec")
    if callable(spec.entry_point):
        raise NotApplicableError("a class is registered as entry point; only 'module:Class' can be written as JSON")
    with gym.make(EnvSpec.from_json(spec.to_json())) as rebuilt:
        fix = "register and pass arguments that JSON keeps: str, numbers, bool, None, lists, dicts with str keys"
        expect(rebuilt.spec == spec, f"the spec {spec} to come back from JSON", str(rebuilt.spec), fix)
        got = walk_from_reset(rebuilt, randomly(3), N_STEPS, seed=3)
        expect_same_walk(got, wanted, expected="an environment rebuilt from its spec to be the same", fix=fix)
