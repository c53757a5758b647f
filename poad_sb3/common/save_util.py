"""Checkpoints: the members beside SB3's own in the zip file; writing and verifying the file."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import pathlib
import random
import zipfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.save_util import json_to_data, open_path

from lang_envs.errors import LangEnvsError
from lang_envs.files import replacing
from lang_envs.report.schemas import WrongValueError, compile_schema
from poad_sb3.errors import CheckpointError, PoadError

Target = str | pathlib.Path | io.BufferedIOBase
HEADER = "poad.json"
FORMAT = 5
"""Version of the layout. Since 2 every environment has a sampling generator of its own, since 3 there are digests,
since 4 a rollout names its estimator and the header the version of the package, since 5 a rollout has an entry for each
token."""
_DIGESTS, _OWN_DIGEST = "sha256", "header_sha256"
_LONGEST = 200
"""Maximum number of characters of another error that are shown."""
_OTHER_FAULTS = (PoadError, LangEnvsError, OSError, ImportError, MemoryError, torch.OutOfMemoryError)
"""Errors that say nothing of the values in a checkpoint."""
_MEMBERS = frozenset({"data", "policy.pth"})
_TEXT = {"type": "string"}
_FIELDS = {
    "algorithm": _TEXT,
    "num_timesteps": {"type": "integer", "minimum": 0},
    "model": _TEXT,
    "action_sampling": {"type": ["string", "null"]},
    "prompt": {"type": "object"},
    "base_fingerprint": _TEXT,
    _DIGESTS: {"type": "object", "additionalProperties": _TEXT},
}
_check_header = compile_schema({"type": "object", "required": list(_FIELDS), "properties": _FIELDS})


@contextlib.contextmanager
def atomic_target(target: Target) -> Iterator[Target]:
    """Yield a target for writing, so that `target` is either the old file or the whole new one.

    Adds `.zip` to a path without suffix and makes its folder, as SB3 does. A file object gets the bytes at the end.

    Raises:
        IsADirectoryError: If the path is a folder.
        ValueError: If the target is neither a path nor a binary file opened for writing.
    """
    if not isinstance(target, str | pathlib.Path):
        if isinstance(target, io.TextIOBase) or not hasattr(target, "write") or not target.writable():
            raise ValueError(
                f"Expected a path, or a binary file opened for writing; got {target!r}. Fix: pass open(path, 'wb')."
            )
        buffer = io.BytesIO()
        yield buffer
        target.write(buffer.getvalue())
        return
    with replacing(_final(target)) as draft:
        yield draft


def prepare_path(target: Target) -> None:
    """Make the folder of a checkpoint that is written later, and see whether it can be.

    Raises:
        OSError: If the path is a folder, or its folder cannot be made or written to.
        ValueError: If the target is no path: a file object may be closed by then.
    """
    if not isinstance(target, str | pathlib.Path):
        raise ValueError(  # noqa: TRY004 - the type is right elsewhere
            f"Expected a path in the middle of a rollout, at whose end the checkpoint is written; got {target!r:.80}. "
            "Fix: pass a path, or save after learn()."
        )
    folder = _final(target).parent
    folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK):
        raise PermissionError(f"Expected a folder to write in; {folder} is read-only. Fix: name a file elsewhere.")


def _final(target: str | pathlib.Path) -> pathlib.Path:
    final = pathlib.Path(target)
    final = final if final.suffix else final.with_name(f"{final.name}.zip")
    if final.is_dir():
        raise IsADirectoryError(f"Expected a file to write; {final} is a folder. Fix: name a file in it.")
    return final


def add_header(target: Target, header: dict[str, Any]) -> None:
    """Append the header, a JSON member that can be read without unpickling anything.

    It holds the SHA-256 of every other member, and that of itself without this field.
    """
    with zipfile.ZipFile(target, mode="a") as archive:
        header = {**header, _DIGESTS: {name: _sha256(archive, name) for name in sorted(archive.namelist())}}
        archive.writestr(HEADER, json.dumps({**header, _OWN_DIGEST: _own_sha256(header)}, indent=2))


def _sha256(archive: zipfile.ZipFile, name: str) -> str:
    with archive.open(name) as member:
        return hashlib.file_digest(member, "sha256").hexdigest()  # type: ignore[arg-type]  # a zip member is a file


def _own_sha256(header: dict[str, Any]) -> str:
    rest = {name: value for name, value in header.items() if name != _OWN_DIGEST}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def read_header(target: Target) -> dict[str, Any]:
    """Verify a checkpoint whole, by the SHA-256 of its members, and return its header.

    Raises:
        CheckpointError: If the file is truncated, corrupt, changed, or not a checkpoint of this package.
        FileNotFoundError: If there is no such file.
    """
    file = open_path(target, "r", verbose=0, suffix="zip")
    try:
        with zipfile.ZipFile(file) as archive:
            header = _verified_header(archive, target)
    except CheckpointError:
        raise
    except Exception as error:  # a damaged archive can raise anything
        raise CheckpointError(
            f"Expected a checkpoint written by save(); {target} is truncated or corrupt "
            f"({' '.join(str(error).split()) or type(error).__name__}). Fix: use an earlier checkpoint."
        ) from error
    finally:
        if isinstance(target, str | pathlib.Path):
            file.close()
        else:
            file.seek(0)
    return header


def _verified_header(archive: zipfile.ZipFile, target: Target) -> dict[str, Any]:
    names = archive.namelist()
    if HEADER not in names and "policy.pth" in names:
        raise CheckpointError(
            f"Expected a checkpoint of poad_sb3; {target} is one of Stable-Baselines3. Fix: load it with its "
            "own class, such as PPO.load()."
        )
    if HEADER not in names:
        raise _damaged(target, HEADER, "missing")
    header: dict[str, Any] = json.loads(archive.read(HEADER))
    if not isinstance(header, dict):
        raise _damaged(target, HEADER, "wrong (no mapping)")
    if header.get("format") != FORMAT:
        raise CheckpointError(
            f"Expected a checkpoint of layout {FORMAT}; {target} is of layout {header.get('format')}, written by "
            f"lang-envs {header.get('version', '0.1.0')}. Fix: load it with that version, or train again."
        )
    if header.get(_OWN_DIGEST) != _own_sha256(header):
        raise _damaged(target, HEADER, "damaged")
    try:
        _check_header(header)
    except WrongValueError as error:
        raise _damaged(target, HEADER, f"wrong ({error})") from error
    digests: dict[str, str] = header[_DIGESTS]
    for name in sorted(_MEMBERS | digests.keys()):
        if names.count(name) != 1:
            raise _damaged(target, name, "missing" if name not in names else "there twice")
    for name in names:
        if name != HEADER and digests.get(name) != _sha256(archive, name):
            raise _damaged(target, name, "damaged" if name in digests else "not of this checkpoint")
    return header


def _damaged(target: Target, member: str, how: str) -> CheckpointError:
    return CheckpointError(
        f"Expected a whole checkpoint; in {target} member {member!r} is {how}. "
        "Fix: use an earlier checkpoint, or load it with the algorithm that wrote it."
    )


@contextlib.contextmanager
def reading(target: object, *passing: type[Exception]) -> Iterator[None]:
    """Raise `CheckpointError` for any error in the block: values of wrong types can raise anything, anywhere.

    Args:
        target: Checkpoint that is read, for the message.
        *passing: Errors that are raised as they are, beside those of the packages, of files and of memory.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, (*_OTHER_FAULTS, *passing)):
            raise
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"[:_LONGEST].rstrip(".")
        raise CheckpointError(
            f"Expected a checkpoint written by save(); {target} holds values that cannot be loaded ({reason}). "
            "Fix: use an earlier checkpoint."
        ) from error


def read_data(target: Target, *names: str) -> dict[str, Any]:
    """Return attributes of the algorithm in a checkpoint that `read_header` has verified.

    Args:
        target: Path or file of the checkpoint.
        *names: Names of the attributes, so that others are not unpickled; all if there are none.

    Raises:
        CheckpointError: If they are missing or cannot be read.
    """
    file = open_path(target, "r", verbose=0, suffix="zip")
    try:
        with reading(target), zipfile.ZipFile(file) as archive:
            stored = json.loads(archive.read("data"))
            data: dict[str, Any] = json_to_data(json.dumps({name: stored[name] for name in names or stored}))
            return data
    finally:
        if isinstance(target, str | pathlib.Path):
            file.close()
        else:
            file.seek(0)


def capture_rng() -> dict[str, Any]:
    """Return the states of the process's global generators (callbacks and third-party code may use them)."""
    return {"python": random.getstate(), "numpy": np.random.get_state(), "torch": torch.get_rng_state().numpy()}


def restore_rng(state: dict[str, Any]) -> None:
    """Put the global generators back."""
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    torch.set_rng_state(torch.from_numpy(state["torch"]))
