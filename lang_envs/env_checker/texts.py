"""Checks of texts outside the command set: they never raise, are invalid, and cost time only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from lang_envs.core import Tokens, language_env, oracle
from lang_envs.env_checker.base import Make, NotApplicableError, expect
from lang_envs.env_checker.walks import Start, needs_oracle, randomly, same, tokens_of, walk, walk_from_reset, where
from lang_envs.wrappers import TextAction

_DEPTHS = (0, 3)  # actions of random play before a text is tried: at the start, and in mid-episode
_MAX_PLAN = 200

_STRANGE_TEXTS = {
    "empty": "",
    "over-long": "x" * 1_000_000,
    "NUL": "\0" * 7,
    "lone surrogate": "\ud800",
    "beyond the basic plane": "\U0001f345" * 3,
    "combining": "a" + "\u0301" * 9,
    "special tokens": "<|endoftext|></s><pad>",
}

_ALTERATIONS: tuple[Callable[[str], str], ...] = (
    str.swapcase,
    lambda phrase: f" {phrase}",
    lambda phrase: f"{phrase}\n",
    lambda phrase: f"{phrase}\0",
    lambda phrase: f"\ufeff{phrase}",
    lambda phrase: f'"{phrase}"',
    lambda phrase: f"{phrase}, {phrase}",
    lambda phrase: phrase.replace(" ", "\u00a0", 1),
    lambda phrase: phrase.replace("o", "\u043e", 1),
)
"""Look-alikes of a listed phrase: case, white space, invisible characters, quotes, repetition, Cyrillic letters."""


class _Effect(NamedTuple):
    """Effect of a step, apart from the wording of the observation."""

    invalid: bool
    reward: float
    terminated: bool
    truncated: bool
    success: bool
    listed: list[str] | None
    has_error: bool


def _effect_of(env: gym.Env[Any, Any], action: Tokens, depth: int) -> _Effect:
    """Return the effect of an action after `depth` actions of random play, always the same ones."""
    walk_from_reset(env, randomly(depth), depth, seed=0)
    _, reward, terminated, truncated, info = env.step(action)
    has_error = bool(info.get("answer_error"))
    listed = info["admissible_actions"]
    return _Effect(info["invalid_action"], float(reward), terminated, truncated, info["success"], listed, has_error)


def _listed_at(env: gym.Env[Any, Any], depth: int) -> list[str] | None:
    start: Start = env.reset(seed=0)
    _, info = where(walk(env, randomly(depth), depth, start), start)
    return info["admissible_actions"]  # type: ignore[no-any-return]


def _expect_refused(env: gym.Env[Any, Any], actions: Iterable[tuple[str, Tokens]], depth: int) -> None:
    """Raise unless each action is invalid and, like an unfinished sentence, only lets time pass."""
    before = _listed_at(env, depth)
    ordinary = _effect_of(env, tokens_of(env).unfinished(), depth)
    commands = [tokens_of(env).encode(text) for text in before or ["a sentence"]]
    # An invalid text may end what every action ends, such as a task of one step.
    ends = ordinary.terminated and all(_effect_of(env, command, depth).terminated for command in commands)
    for name, action in actions:
        effect = _effect_of(env, action, depth)
        fix = "compare the text as it stands with the command set; let only time pass otherwise"
        for field in ("invalid", "terminated", "success"):
            got, wanted = getattr(effect, field), field == "invalid" or (field == "terminated" and ends)
            expect(got is wanted, f"{field}={wanted} after {name} (random action {depth + 1})", f"{got}", fix)
        expected = f"{name} to have the effect of an unfinished sentence, {ordinary}"
        expect(same(effect, ordinary), expected, f"{effect}", fix)
        unchanged = ends or effect.truncated or effect.listed == before
        expect(unchanged, f"{name} to leave the world, so the list {before}", effect.listed, fix)
    plans = _plan_after(env, depth, []), _plan_after(env, depth, [tokens_of(env).unfinished()])
    fix = "let only time pass after a text outside the command set: a clock goes on, nothing is drawn or moved"
    # where an oracle keeps improving until its time is over, it has a unit less
    same_world = plans[1] is None or (plans[0] is not None and plans[1] in (plans[0], plans[0][:-1]))
    expect(same_world, f"it to leave the world, so the oracle's plan {plans[0]}", plans[1], fix)


def _plan_after(env: gym.Env[Any, Any], depth: int, actions: Sequence[Tokens]) -> list[str] | None:
    """Return the oracle's actions from there to the goal; None where there is no oracle, or too little time."""
    walk_from_reset(env, randomly(depth), depth, seed=0)
    world, plan = language_env(env), list[str]()
    terminated = truncated = False
    for action in actions:
        *_, terminated, truncated, _ = world.step(action)
    try:
        needs_oracle(env)
    except NotApplicableError:
        return None
    while not (terminated or truncated) and len(plan) < _MAX_PLAN:
        plan.append(oracle(env))
        *_, terminated, truncated, _ = world.step(tokens_of(env).encode(plan[-1]))
    return plan if terminated else None


def strange_texts(make: Make) -> None:
    """A text that is no sentence never raises, is invalid and costs time only; with open actions it is valid."""
    with make() as env:
        tokens = tokens_of(env)
        for depth in _DEPTHS:
            listed = _listed_at(env, depth)
            tried = [
                (f"the text {name!r}", TextAction(env).action(text))
                for name, text in _STRANGE_TEXTS.items()
                if text not in (listed or ())
            ]
            if listed is None:  # with open actions every text that fits is a command, or has an error
                fix = "take any text, list what is taken, or tell what is wrong in info['answer_error']"
                fitting = [(name, action) for name, action in tried if tokens.decode_finished(action) is not None]
                tried = [(name, action) for name, action in tried if tokens.decode_finished(action) is None]
                for name, action in fitting:
                    effect = _effect_of(env, action, depth)
                    valid = effect.has_error or not effect.invalid
                    expect(valid, f"{name} to be valid where nothing is listed", "invalid_action", fix)
                    if effect.has_error:  # then it is invalid, and must cost time only
                        tried.append((name, action))
            _expect_refused(env, tried, depth)


def near_misses(make: Make) -> None:
    """A text that resembles a listed one is another text, and invalid."""
    with make() as env:
        for depth in _DEPTHS:
            listed = _listed_at(env, depth)
            if listed is None:
                raise NotApplicableError("open action space: every text that fits is a command")
            # one phrase for each alteration; a replacement without a match leaves a listed text
            pairs = [(alter, listed[number % len(listed)]) for number, alter in enumerate(_ALTERATIONS)]
            texts = [alter(phrase) for alter, phrase in pairs]
            tried = [(f"the text {text!r}", TextAction(env).action(text)) for text in texts if text not in listed]
            _expect_refused(env, tried, depth)


def unfinished_sentences(make: Make) -> None:
    """An array that is full without an end token is invalid, never a shorter sentence."""
    with make() as env:
        tokens = tokens_of(env)
        for depth in _DEPTHS:
            tried = [("unfinished()", tokens.unfinished())]
            for phrase in _listed_at(env, depth) or ["a sentence"]:
                for filler in (" ", "\0", " and so on"):
                    ids = tokens.tokenizer.encode(phrase + filler * tokens.max_length)[: tokens.max_length]
                    if len(ids) == tokens.max_length:  # a tokenizer may have one token for many spaces
                        tried.append((f"{phrase!r}, filled up with {filler!r}", np.array(ids, dtype=np.int64)))
            _expect_refused(env, tried, depth)
