"""Checks of everything that is to be the same again: seeds, copies, states, and generators left alone."""

from __future__ import annotations

import copy
import pickle
import random
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

from lang_envs.core import language_env
from lang_envs.env_checker.base import Make, NotApplicableError, expect
from lang_envs.env_checker.walks import (
    N_STEPS,
    Start,
    expect_same_walk,
    randomly,
    same,
    walk,
    walk_from_reset,
    where,
)


def same_seed_same_trajectory(make: Make) -> None:
    """Two environments with one seed and the same actions show the same."""
    walks = []
    for _ in range(2):
        with make() as env:
            walks.append(walk_from_reset(env, randomly(0), N_STEPS, seed=11))
    fix = "draw everything random from self.np_random, after super().reset(seed=seed)"
    expect_same_walk(*walks, expected="two environments with one seed to show the same", fix=fix)


def reset_starts_over(make: Make) -> None:
    """reset(seed=...) starts over after any history."""
    with make() as env:
        walks = [walk_from_reset(env, randomly(0), N_STEPS, seed=11) for _ in range(2)]
    fix = "put back everything that step() changes in reset()"
    expect_same_walk(*walks, expected="reset(seed=11) to start the same episode again", fix=fix)


def copy_by_pickle(make: Make) -> None:
    """A pickled copy in mid-episode goes on equally, and on its own."""
    _check_copy(make, lambda env: pickle.loads(pickle.dumps(env)), "hold plain data: no lambdas, files, generators")


def copy_by_deepcopy(make: Make) -> None:
    """A deep copy in mid-episode goes on equally, and on its own."""
    _check_copy(make, copy.deepcopy, "let the world be plain data, shared with no other environment")


def _check_copy(make: Make, duplicate: Callable[[Any], gym.Env[Any, Any]], fix: str) -> None:
    with make() as env:
        original = language_env(env)
        _, steps = walk_from_reset(original, randomly(1), 7, seed=5)
        now = where(steps, ("", {}))
        twin = duplicate(original)
        twin_steps = walk(twin, randomly(2), N_STEPS, now)
        original_steps = walk(original, randomly(2), N_STEPS, now)
        expect_same_walk(
            ("", twin_steps), ("", original_steps), expected="a copy to go on as the original does", fix=fix
        )


def state(make: Make) -> None:
    """A state from get_state goes on exactly the same, in a fresh environment and again and again."""
    with make() as env, make() as other:
        raw: Any = language_env(env)
        fresh: Any = language_env(other)
        if not (raw.has_wrapper_attr("get_state") and raw.has_wrapper_attr("set_state")):
            raise NotApplicableError("the environment has no get_state() and set_state(): no exact resume of trainings")
        get_state = raw.get_wrapper_attr("get_state")
        if not hasattr(fresh, "set_state"):  # that of an environment inside, where Gymnasium may insist on a reset
            fresh.reset()
        fix = "capture world, counters and the state of self.np_random, and put all of them back"
        for n_steps in (0, 1, 9):
            start: Start = raw.reset(seed=21)
            now = where(walk(raw, randomly(6), n_steps, start), start)
            captured = pickle.dumps(get_state())
            future = walk(raw, randomly(7), N_STEPS, now)
            for restored in (fresh, raw):
                restored.get_wrapper_attr("set_state")(pickle.loads(captured))
                restored_steps = walk(restored, randomly(7), N_STEPS, now)
                expected = f"the state after {n_steps} steps to go on the same"
                expect_same_walk(("", restored_steps), ("", future), expected=expected, fix=fix)


def global_generators(make: Make) -> None:
    """The global generators of random and numpy.random are neither used nor seeded."""
    before = random.getstate(), np.random.get_state()
    try:
        random.seed(0xC0FFEE)  # states that no environment arrives at by a seed of its own
        np.random.seed(0xC0FFEE)
        expected_states = random.getstate(), np.random.get_state()
        with make() as env:
            walk_from_reset(env, randomly(0), N_STEPS, seed=3)
            walk_from_reset(env, randomly(0), 3, seed=None)
            env.action_space.sample(), env.observation_space.sample()
        used = [
            name
            for name, was, now in zip(
                ("random", "numpy.random"), (random.getstate(), np.random.get_state()), expected_states, strict=True
            )
            if not same(was, now)
        ]
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])
    expect(not used, "no global generator to be used", " and ".join(used), "draw from self.np_random")
