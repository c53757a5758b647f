"""Checks of vector environments: they return the same as single environments."""

from __future__ import annotations

import importlib
import importlib.util
import multiprocessing
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from lang_envs.core import Tokens
from lang_envs.env_checker.base import ConformanceError, Make, NotApplicableError, expect
from lang_envs.env_checker.walks import N_STEPS, capable_agent, randomly, same, walk

WORKER_SECONDS = 60.0
"""Time limit in seconds for a whole comparison; workers that need more are taken for dead."""

_N_ENVS, _SEED = 2, 7
_REWARD_TOLERANCE = 1e-6  # SB3's DummyVecEnv keeps rewards as float32
_FIX = "share nothing between environments, and let nothing depend on the process"


class _Row(NamedTuple):
    """Result of one environment after a step; `final_text` closed the episode that `text` does not belong to."""

    text: str
    reward: float
    terminated: bool
    truncated: bool
    listed: list[str] | None
    final_text: str | None


_Rows = list[list[_Row]]  # one list for each environment, its first row from the reset


def vector_sync(make: Make) -> None:
    """Gymnasium's SyncVectorEnv returns the same as single environments, in both autoreset modes."""
    _check_gymnasium(make, SyncVectorEnv)


def vector_async(make: Make) -> None:
    """Gymnasium's AsyncVectorEnv (shared memory) returns the same as single environments, in both autoreset modes."""
    _check_gymnasium(make, AsyncVectorEnv)


def vector_sb3_dummy(make: Make) -> None:
    """SB3's DummyVecEnv returns the same as single environments."""
    _check_sb3(make, "DummyVecEnv")


def vector_sb3_subproc(make: Make) -> None:
    """SB3's SubprocVecEnv returns the same as single environments."""
    methods = multiprocessing.get_all_start_methods()
    start_method = "fork" if "fork" in methods else None  # a forked worker does not import SB3 again
    _check_sb3(make, "SubprocVecEnv", start_method=start_method)


def _check_gymnasium(make: Make, kind: Any) -> None:
    actions = _actions(make)
    for mode in (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP):
        with _running(partial(kind, [make] * _N_ENVS, autoreset_mode=mode)) as envs:
            got = _gymnasium_rows(envs, actions)
        _expect_same_rows(got, _rows_alone(make, actions, mode), f"{kind.__name__}, {mode.value}")


def _check_sb3(make: Make, kind: str, **settings: Any) -> None:
    if importlib.util.find_spec("stable_baselines3") is None:
        raise NotApplicableError("stable_baselines3 is not installed")
    # by name, only in this check and only where it is there: lang_envs does not depend on it
    vec_env = importlib.import_module("stable_baselines3.common.vec_env")
    actions = _actions(make)
    with _running(partial(getattr(vec_env, kind), [make] * _N_ENVS, **settings)) as envs:
        got = _sb3_rows(envs, actions)
    alone = _rows_alone(make, actions, AutoresetMode.SAME_STEP)
    # SB3 counts a step that both terminates and is cut by a wrapper as terminated.
    wanted = [[row._replace(truncated=row.truncated and not row.terminated) for row in rows] for rows in alone]
    _expect_same_rows(got, wanted, kind)


def _actions(make: Make) -> list[Tokens]:
    """Return an array for each step, with one action for each environment.

    One environment is played well, so that episodes end, and one randomly.
    """
    columns = []
    for number in range(_N_ENVS):
        with make() as env:
            start = env.reset(seed=_SEED + number)
            agent = randomly(number) if number else capable_agent(env, number)
            columns.append([step.action for step in walk(env, agent, N_STEPS, start)])
    return [np.stack(pair) for pair in zip(*columns, strict=True)]


def _rows_alone(make: Make, actions: list[Tokens], mode: AutoresetMode) -> _Rows:
    """Return the results expected of a vector: those of single environments, with the vector's way of resetting."""
    results: _Rows = []
    for number in range(_N_ENVS):
        with make() as env:
            rows = [_first_row(*env.reset(seed=_SEED + number))]
            for action in actions:
                if mode is AutoresetMode.NEXT_STEP and (rows[-1].terminated or rows[-1].truncated):
                    rows.append(_first_row(*env.reset()))
                    continue
                text, reward, terminated, truncated, info = env.step(action[number])
                text, final_text = str(text), None
                if mode is AutoresetMode.SAME_STEP and (terminated or truncated):
                    final_text, (text, info) = text, env.reset()
                listed = info["admissible_actions"]
                rows.append(_Row(str(text), float(reward), terminated, truncated, listed, final_text))
        results.append(rows)
    return results


def _first_row(text: str, info: dict[str, Any]) -> _Row:
    return _Row(str(text), 0.0, False, False, info["admissible_actions"], None)


def _gymnasium_rows(envs: Any, actions: list[Tokens]) -> _Rows:
    texts, info = envs.reset(seed=_SEED)
    firsts = zip(texts, info["admissible_actions"], strict=True)
    rows = [[_first_row(text, {"admissible_actions": listed})] for text, listed in firsts]
    for action in actions:
        texts, rewards, terminated, truncated, info = envs.step(action)
        finals = info.get("final_obs", [None] * _N_ENVS)
        texts = [str(text) for text in texts]
        finals = [None if text is None else str(text) for text in finals]
        columns = (texts, rewards.tolist(), terminated.tolist(), truncated.tolist(), info["admissible_actions"], finals)
        for number, values in enumerate(zip(*columns, strict=True)):
            rows[number].append(_Row(*values))
    return rows


def _sb3_rows(envs: Any, actions: list[Tokens]) -> _Rows:
    envs.seed(_SEED)
    texts = envs.reset()
    rows = [[_first_row(str(text), info)] for text, info in zip(texts, envs.reset_infos, strict=True)]
    for action in actions:
        texts, rewards, dones, infos = envs.step(action)
        for number, info in enumerate(infos):
            cut = bool(info.get("TimeLimit.truncated", False))
            shown = (str(texts[number]), float(rewards[number]), bool(dones[number]) and not cut, cut)
            current = envs.reset_infos[number] if dones[number] else info  # `info` is of the episode that ended
            final = info.get("terminal_observation")
            rows[number].append(_Row(*shown, current["admissible_actions"], None if final is None else str(final)))
    return rows


def _expect_same_rows(got: _Rows, wanted: _Rows, kind: str) -> None:
    for number, pair in enumerate(zip(got, wanted, strict=True)):
        for step, (row, wanted_row) in enumerate(zip(*pair, strict=True)):
            near = abs(row.reward - wanted_row.reward) <= _REWARD_TOLERANCE
            equal = near and same(row._replace(reward=0.0), wanted_row._replace(reward=0.0))
            expected = f"environment {number} of {kind} to show at step {step} what it shows alone, {wanted_row}"
            expect(equal, expected, f"{row}", _FIX)


@contextmanager
def _running(create: Callable[[], Any]) -> Iterator[Any]:
    """Yield a vector environment, closed at the end; turn waiting for a dead worker into a failure.

    SB3's `SubprocVecEnv` waits for ever when one of several workers dies: the remaining ones keep its pipe open.
    """
    before = set(multiprocessing.active_children())

    def kill_workers() -> list[multiprocessing.process.BaseProcess]:
        workers = [worker for worker in multiprocessing.active_children() if worker not in before]
        for worker in workers:
            worker.kill()
        return workers

    envs = None
    timer = threading.Timer(WORKER_SECONDS, kill_workers)
    timer.daemon = True
    timer.start()
    try:
        envs = create()
        yield envs
        envs.close()
    except (EOFError, BrokenPipeError, ConnectionResetError) as error:
        raise ConformanceError(
            f"Expected workers that answer within {WORKER_SECONDS:g} s; got {type(error).__name__}. "
            "Fix: see the worker's error on stderr."
        ) from error
    finally:
        timer.cancel()
        for worker in kill_workers():  # left by a failure
            worker.join()
        if envs is not None:
            envs.closed = True  # or its destructor would wait for them
