"""Checkpoints: what is beside SB3's own zip members, and how a file is written and verified."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pathlib
import random
import zipfile
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium.wrappers import FrameStackObservation, NormalizeObservation, NormalizeReward
from stable_baselines3.common.save_util import json_to_data, open_path
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper

from poad_sb3.env_groups import EnvGroups
from poad_sb3.errors import CheckpointError
from poad_sb3.observations import VecAdmissibleObservation

__all__ = [
    "FORMAT",
    "Target",
    "add_header",
    "atomic_target",
    "capture_envs",
    "capture_rng",
    "read_header",
    "read_policy_kwargs",
    "restore_envs",
    "restore_rng",
]

Target = str | pathlib.Path | io.BufferedIOBase
HEADER = "poad.json"
FORMAT = 2
"""Version of the layout. Since 2 every environment has a sampling generator of its own."""
_STATEFUL_WRAPPERS = (NormalizeReward, NormalizeObservation, FrameStackObservation)
"""Wrappers that keep statistics or observations which nobody can capture."""
_MEMBERS = frozenset({"data", "policy.pth", "policy.optimizer.pth", "policy.critic_optimizer.pth", HEADER})
_COUNTERS = ("rewards", "_elapsed_steps", "episode_context")
"""Attributes of SB3's Monitor, Gymnasium's TimeLimit and our AdmissibleObservation: of an episode in progress."""


@contextlib.contextmanager
def atomic_target(target: Target) -> Iterator[Target]:
    """Where to write so that `target` is either the old file or the whole new one.

    Adds `.zip` to a path without suffix and makes its folder, as SB3 does. A file object gets the bytes at the end.
    """
    if not isinstance(target, str | pathlib.Path):
        buffer = io.BytesIO()
        yield buffer
        target.write(buffer.getvalue())
        return
    final = pathlib.Path(target)
    final = final if final.suffix else final.with_name(f"{final.name}.zip")
    final.parent.mkdir(parents=True, exist_ok=True)
    scratch = final.with_name(f".{final.name}.{os.getpid()}.tmp")
    try:
        yield scratch
        with scratch.open("r+b") as file:  # Windows syncs only what is open for writing
            os.fsync(file.fileno())
        scratch.replace(final)
    finally:
        scratch.unlink(missing_ok=True)


def add_header(target: Target, header: dict[str, Any]) -> None:
    """Append the header, a JSON member that can be read without unpickling anything."""
    with zipfile.ZipFile(target, mode="a") as archive:
        archive.writestr(HEADER, json.dumps(header, indent=2))


def read_header(target: Target) -> dict[str, Any]:
    """Verify a checkpoint whole and return its header.

    Raises:
        CheckpointError: If it is truncated, corrupt or no checkpoint of this package.
        FileNotFoundError: If there is no such file.
    """
    file = open_path(target, "r", verbose=0, suffix="zip")
    try:
        with zipfile.ZipFile(file) as archive:
            damaged = archive.testzip()
            missing = sorted(_MEMBERS - set(archive.namelist()))
            if damaged or missing:
                raise CheckpointError(
                    f"Expected a whole checkpoint; in {target} member {damaged or missing[0]!r} is "
                    f"{'damaged' if damaged else 'missing'}. "
                    "Fix: use an earlier checkpoint, or load it with the algorithm that wrote it."
                )
            header: dict[str, Any] = json.loads(archive.read(HEADER))
    except (zipfile.BadZipFile, EOFError, NotImplementedError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise CheckpointError(
            f"Expected a checkpoint written by save(); {target} is truncated or corrupt ({error}). "
            "Fix: use an earlier checkpoint."
        ) from error
    finally:
        if isinstance(target, str | pathlib.Path):
            file.close()
        else:
            file.seek(0)
    if header.get("format") != FORMAT:
        raise CheckpointError(
            f"Expected a checkpoint of layout {FORMAT}; {target} is of layout {header.get('format')}, which another "
            "version of this package wrote. Fix: load it with that version, or train anew."
        )
    return header


def read_policy_kwargs(target: Target) -> dict[str, Any]:
    """Arguments of the policy in a checkpoint that `read_header` has verified; no weights are read."""
    file = open_path(target, "r", verbose=0, suffix="zip")
    try:
        with zipfile.ZipFile(file) as archive:
            kept: dict[str, Any] = json_to_data(archive.read("data").decode())["policy_kwargs"]
            return kept
    finally:
        if isinstance(target, str | pathlib.Path):
            file.close()
        else:
            file.seek(0)


def capture_rng() -> dict[str, Any]:
    """States of the process's global generators (callbacks and third-party code may use them)."""
    return {"python": random.getstate(), "numpy": np.random.get_state(), "torch": torch.get_rng_state().numpy()}


def restore_rng(state: dict[str, Any]) -> None:
    """Put the global generators back."""
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    torch.set_rng_state(torch.from_numpy(state["torch"]))


def capture_envs(env: VecEnv) -> list[dict[str, Any]] | None:
    """State of every environment and of its wrappers' counters; None if an environment has no `get_state`."""
    if any(any(env.env_is_wrapped(wrapper)) for wrapper in _STATEFUL_WRAPPERS):
        return None
    if not env.has_attr("get_state"):  # asking first: a missing method would kill a subprocess worker
        return None
    kept = {name: env.get_attr(name) for name in _COUNTERS if env.has_attr(name)}
    memories = _memories(env)
    return [
        {
            "env": state,
            "counters": {name: values[index] for name, values in kept.items()},
            "context": memory and memory.wrapper.contexts[memory.place],
        }
        for index, (state, memory) in enumerate(zip(env.env_method("get_state"), memories, strict=True))
    ]


class _Memory(NamedTuple):
    """Where the episode of an environment is remembered."""

    wrapper: VecAdmissibleObservation
    place: int


def _memories(env: VecEnv) -> list[_Memory | None]:
    """That of each environment; None without the wrapper."""
    if isinstance(env, VecAdmissibleObservation):
        return [_Memory(env, place) for place in range(env.num_envs)]
    if isinstance(env, VecEnvWrapper):
        return _memories(env.venv)
    if isinstance(env, EnvGroups):
        return [memory for group in env.groups for memory in _memories(group)]
    return [None] * env.num_envs


def restore_envs(env: VecEnv, states: list[dict[str, Any]] | None) -> bool:
    """Put the environments where they were.

    Returns:
        False if that cannot be done: no states, or another number or kind of environments. They need a reset then.
    """
    if states is None or len(states) != env.num_envs or not env.has_attr("set_state"):
        return False
    present = env.env_method("get_state")
    if any(_identity(state["env"]) != _identity(now) for state, now in zip(states, present, strict=True)):
        return False
    env.reset()  # wrappers that insist on a reset before a step have had it
    for index, (state, memory) in enumerate(zip(states, _memories(env), strict=True)):
        env.env_method("set_state", state["env"], indices=[index])
        for name, value in state["counters"].items():
            env.env_method("set_wrapper_attr", name, value, force=False, indices=[index])
        if memory is not None and state.get("context") is not None:
            memory.wrapper.contexts[memory.place] = state["context"]
    env.unwrapped._reset_seeds()  # a seed that waits for the next reset was used before the checkpoint
    return True


def _identity(state: Any) -> Any:  # noqa: ANN401 - third-party environments choose what their state is
    """Which environment a state belongs to, where it says so (`LangEnv` does)."""
    return state.get("env") if isinstance(state, dict) else None
