"""Folders of exports: written whole or not at all, with a manifest of their files."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from poad_sb3.errors import ExportError

MANIFEST = "poad_export.json"
"""Name of the file with the facts of the export and the names of its other files. It marks a folder as an export."""


@contextlib.contextmanager
def new_folder(folder: str | Path, *, overwrite: bool) -> Iterator[Path]:
    """Yield a scratch folder, so that `folder` is either unchanged or the whole new one (see `_put_in_place`).

    Args:
        folder: Folder to create. An empty one may be there.
        overwrite: Whether to replace an earlier export in its place.

    Raises:
        ExportError: If something else is in its place, or it cannot be written. It is then unchanged.
    """
    final = Path(folder).resolve()
    _require_free(final, overwrite)
    scratch = final.with_name(f".{final.name}.{secrets.token_hex(4)}.tmp")
    try:
        scratch.mkdir(parents=True)
        yield scratch
        _sync(scratch)
        _require_free(final, overwrite)  # who came in the meantime
        _put_in_place(scratch, final)
    except (OSError, SafetensorError) as error:
        raise ExportError(
            f"Expected to write the folder {final}; got {type(error).__name__}: {error}. "
            "Fix: make room or choose another folder. What was there is as it was."
        ) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _require_free(final: Path, overwrite: bool) -> None:
    if final in (Path.cwd(), *Path.cwd().parents):
        raise ExportError(
            f"Expected a folder of its own for the export; got {final}, which is the present one or above it. "
            "Fix: name a folder in it."
        )
    if not final.is_dir():
        if final.exists():
            raise ExportError(f"Expected a folder to write to; {final} is a file. Fix: choose another name.")
        return
    existing = _files(final)
    if not existing:
        return
    if not overwrite:
        raise ExportError(
            f"Expected a new or empty folder; {final} holds {existing[0]}. "
            "Fix: choose another folder, or pass overwrite=True (poad export --overwrite)."
        )
    written = _exported_files(final)
    foreign = [name for name in existing if name not in written]
    if foreign:
        raise ExportError(
            f"Expected an earlier export to overwrite; {final} also holds {foreign[0]}, which would be lost. "
            "Fix: move it away, or choose another folder."
        )


def _files(folder: Path) -> list[str]:
    """Return the paths in a folder, sorted, relative to it and with forward slashes; empty folders in it count too."""
    paths = (path for path in folder.rglob("*") if not path.is_dir() or not any(path.iterdir()))
    return sorted(path.relative_to(folder).as_posix() for path in paths)


def _sync(folder: Path) -> None:
    mode = (folder / MANIFEST).stat().st_mode
    for path in folder.rglob("*"):
        if path.is_file():
            path.chmod(mode)  # safetensors makes its files readable by their owner alone
            with path.open("r+b") as file:  # Windows syncs only files open for writing
                os.fsync(file.fileno())


def _put_in_place(scratch: Path, final: Path) -> None:
    """Move a folder to its name.

    A process killed between the two renames leaves the earlier folder as `.NAME.XXXXXXXX.old`.
    """
    if not final.exists():
        scratch.rename(final)
        return
    aside = scratch.with_suffix(".old")
    final.rename(aside)
    try:
        scratch.rename(final)
    except BaseException:  # Ctrl-C too
        aside.rename(final)
        raise
    shutil.rmtree(aside, ignore_errors=True)


# ---------------------------------------------------------------------- the manifest


def write_manifest(folder: Path, about: Mapping[str, Any]) -> None:
    """Write the manifest of a folder, with its origin and the names of its files.

    Args:
        folder: Folder with all other files of the export.
        about: Facts of the export, as JSON values.
    """
    (folder / MANIFEST).write_text(
        json.dumps({"format": 1, **about, "files": _files(folder)}, indent=2) + "\n", "utf-8"
    )


def _exported_files(folder: Path) -> set[str]:
    """Return the names of the files that an export has written.

    Raises:
        ExportError: If the folder is no export.
    """
    try:
        return {MANIFEST, *json.loads((folder / MANIFEST).read_text("utf-8"))["files"]}
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise ExportError(
            f"Expected a folder that an export has written; {folder} has no {MANIFEST} that can be read "
            f"({type(error).__name__}: {error}). Fix: name the folder of an export, or export again elsewhere."
        ) from error
