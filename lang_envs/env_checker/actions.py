"""Checks of actions: listed ones, the oracle's, and values that are no action."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import gymnasium as gym
import numpy as np

from lang_envs.core import language_env
from lang_envs.env_checker.base import ConformanceError, Make, NotApplicableError, expect
from lang_envs.env_checker.walks import (
    capable_agent,
    expect_same_walk,
    needs_oracle,
    randomly,
    same,
    tokens_of,
    walk,
    walk_from_reset,
    where,
)
from lang_envs.errors import ActionError
from lang_envs.spaces import TokenSequence

_N_STATES = 8
_MAX_ACTIONS = 1000
_SEEDS = range(3)


def listed_actions(make: Make) -> None:
    """Every listed action is valid, at every state of a random walk."""
    with make() as env, make() as another:
        original: Any = language_env(env)
        twin: Any = language_env(another)
        has_state = hasattr(original, "get_state")  # else it has to be copied, and not everything can be
        start, agent, tokens = env.reset(seed=0), randomly(0), tokens_of(env)
        for _ in range(_N_STATES):
            listed = start[1]["admissible_actions"]
            if listed is None:
                raise NotApplicableError("open action space: nothing is listed")
            for action in listed:
                if has_state:
                    twin.set_state(original.get_state())
                else:
                    twin = copy.deepcopy(original)
                *_, info = twin.step(tokens.encode(action))
                fix = "execute it, even if the world then refuses it, or do not list it"
                expect(not info["invalid_action"], f"the listed action {action!r} to be valid", "invalid_action", fix)
            start = where(walk(env, agent, 1, start), start)


def oracle(make: Make) -> None:
    """The oracle solves the task, and `info["success"]` is True when it does, not before."""
    with make() as env:
        for seed in _SEEDS:
            text, info = env.reset(seed=seed)
            agent, n_actions = needs_oracle(env), 0
            terminated = truncated = False
            while not (terminated or truncated) and n_actions < _MAX_ACTIONS:
                expect(not info["success"], "no success before the end", "success", "tell it with terminated")
                action = agent(env, text, info["admissible_actions"])
                text, _, terminated, truncated, info = env.step(tokens_of(env).encode(action))
                n_actions += 1
                fix = "let the oracle say a text of the command set"
                expect(not info["invalid_action"], "the oracle's actions to be valid", f"{action!r}", fix)
            end = f"terminated={terminated}, truncated={truncated}, success={info['success']} in {n_actions} actions"
            fix = "correct the oracle, or give the task more time"
            expect(terminated and info["success"], f"the oracle to succeed with seed {seed}", end, fix)


# ---------------------------------------------------------------------- values that are no action


def _wrong_actions(space: TokenSequence) -> dict[str, Any]:
    zeros = np.zeros(space.max_length, dtype=np.int64)
    return {
        "a float array": zeros.astype(np.float32),
        "a batch of one": zeros[None],
        "an array that is too short": zeros[:-1],
        "a token id that is too large": np.full_like(zeros, space.vocab_size),
        "a negative token id": np.full_like(zeros, -1),
        "a str": "look around",
        "an int": 3,
    }


def wrong_actions(make: Make) -> None:
    """An action of the wrong type, shape or range raises ActionError and leaves the state as it was."""
    with make() as env, make() as untouched:
        walks = [walk_from_reset(each, randomly(0), 3, seed=0) for each in (env, untouched)]
        get_state = getattr(language_env(env), "get_state", lambda: None)
        state = get_state()
        is_comparable = same(state, get_state())  # generators of NumPy are not
        fix = "decode it with self.action_space.decode_finished(action), which raises for you"
        for name, action in _wrong_actions(tokens_of(env)).items():
            for stepped in (env, language_env(env)):
                _expect_error(stepped, action, ActionError, f"for {name}", fix)
        fix = "decode the action first: text = self.action_space.decode_finished(action)"
        is_same = not is_comparable or same(get_state(), state)
        expect(is_same, "the state to be the same after wrong actions", "another", fix)
        after = [walk(each, randomly(1), 5, where(walks[0][1], ("", {}))) for each in (env, untouched)]
        expect_same_walk(("", after[0]), ("", after[1]), expected="wrong actions to change nothing", fix=fix)


def _expect_error(env: gym.Env[Any, Any], action: Any, kind: type[Exception], when: str, fix: str) -> None:
    try:
        env.step(action)
    except kind:
        return
    except Exception as error:  # of another type: reported
        raise ConformanceError(
            f"Expected {kind.__name__} {when}; got {type(error).__name__}: {error}. Fix: {fix}."
        ) from error
    expect(False, f"{kind.__name__} {when}", "a step", fix)


def step_before_reset(make: Make) -> None:
    """A step before the first reset raises gymnasium.error.ResetNeeded."""
    with make() as env:
        fix = "raise gymnasium.error.ResetNeeded in step() until reset() was called"
        for stepped in (language_env(env), env):
            _expect_error(stepped, env.action_space.sample(), gym.error.ResetNeeded, "before reset()", fix)


def step_after_the_end(make: Make) -> None:
    """A step after the end keeps the state: reward 0, same observation, flags and list, a warning."""
    with make() as outer:
        env = language_env(outer)  # a time limit that a wrapper sets is not the environment's
        text, info = env.reset(seed=0)
        agent, over, n_actions = capable_agent(env, 0), False, 0
        while not over and n_actions < _MAX_ACTIONS:
            action = tokens_of(env).encode(agent(env, text, info["admissible_actions"]))
            text, _, terminated, truncated, info = env.step(action)
            over, n_actions = terminated or truncated, n_actions + 1
        if not over:
            raise NotApplicableError(f"no episode ended within {_MAX_ACTIONS} actions")
        end = (text, 0.0, terminated, truncated, info["success"], info["admissible_actions"])
        for action in (env.action_space.sample(), tokens_of(env).unfinished()):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                text, reward, terminated, truncated, info = env.step(action)
            fix = "return the last observation, reward 0.0 and the same flags, and warn, until reset()"
            got = (text, float(reward), terminated, truncated, info["success"], info["admissible_actions"])
            expect(same(got, end), f"{end} again after the end", f"{got}", fix)
            expect(bool(caught), "a warning on a step after the end", "none", fix)
