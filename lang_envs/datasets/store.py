"""The tables of this machine: `$LANG_ENVS_DATA`, one folder for each.

    airlines/airlines.arff    the file as it was fetched
    airlines/arrays.npz       the arrays of every recipe, and the receipt; read by `gym.make`

Both are written under another name and renamed, the arrays last: a reader always sees a complete state, also after an
interrupt, and of two writers the last one counts.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lang_envs.cache import cache_folder
from lang_envs.datasets.errors import ChecksumError, DataMissingError, StorageError, TableError
from lang_envs.datasets.manifest import Manifest
from lang_envs.files import replacing

__all__ = [
    "ARRAYS_FILE",
    "Arrays",
    "Checked",
    "Origin",
    "Receipt",
    "array_digest",
    "data_folder",
    "file_digest",
    "install",
    "is_whole",
    "read_arrays",
    "read_receipt",
    "storage_errors",
    "table_folder",
    "verify",
]

Arrays = tuple[NDArray[np.float64], NDArray[np.int64]]

ARRAYS_FILE = "arrays.npz"
_LAYOUT = 1
"""Version of the layout of `arrays.npz`; a file of another version counts as missing."""
_DIGEST_DIGITS = 16
_DRAFT = re.compile(r"\..+\.[0-9a-f]+\.tmp")
_NO_STORAGE = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EFBIG, errno.EIO),
    *(errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOENT),  # something else where the folder should be
)


class Origin(NamedTuple):
    """How a file came here.

    Attributes:
        by: Client and its version, or "by hand".
        licence: Licence as the service stated it; empty if it did not.
        checked: Result of the service's own checksum; empty if there was none.
    """

    by: str
    licence: str = ""
    checked: str = ""


class Checked(NamedTuple):
    """The arrays of one recipe.

    Attributes:
        digest: Digest of the arrays.
        verified: Whether the digest is that of the manifest; False where the manifest has none.
    """

    digest: str
    verified: bool


class Receipt(NamedTuple):
    """Record of a table on this machine.

    Attributes:
        file: Name of the file beside the arrays.
        sha256: SHA-256 of the file, hexadecimal.
        size: Size of the file in bytes.
        verified: Whether the manifest has that SHA-256.
        origin: Origin of the file.
        time: Time of the installation in ISO format, UTC.
        recipes: Arrays by the name of the recipe.
        remark: Unexpected property of the file; empty if there is none.
    """

    file: str
    sha256: str
    size: int
    verified: bool
    origin: Origin
    time: str
    recipes: dict[str, Checked]
    remark: str = ""


def data_folder() -> Path:
    """Return the folder of the tables: `$LANG_ENVS_DATA`, or `data` in the folder of the caches."""
    chosen = os.environ.get("LANG_ENVS_DATA")
    try:
        return Path(chosen).expanduser() if chosen else cache_folder() / "data"
    except RuntimeError as error:  # the home folder of an unknown user
        raise StorageError(f"Expected LANG_ENVS_DATA to be a folder; got {chosen!r} ({error}). Fix: a path.") from error


def table_folder(name: str) -> Path:
    """Return the folder of a table's files, whether or not it exists."""
    return data_folder() / name


def array_digest(x: NDArray[np.float64], y: NDArray[np.int64]) -> str:
    """Return the first 16 hex digits of the SHA-256 of the bytes of features (by rows) and classes, little-endian."""
    content = np.ascontiguousarray(x, dtype="<f8").tobytes() + np.ascontiguousarray(y, dtype="<i8").tobytes()
    return hashlib.sha256(content).hexdigest()[:_DIGEST_DIGITS]


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file, hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Raise StorageError where the disk fails."""
    try:
        yield
    except OSError as error:
        if isinstance(error, StorageError) or error.errno not in _NO_STORAGE:
            raise
        raise StorageError(
            f"Expected to write to {path}; got {os.strerror(error.errno or 0)!r}, and nothing was kept. Fix: make room "
            f"or choose another folder, e.g. `LANG_ENVS_DATA=~/lang_envs_data`."
        ) from error


# ---------------------------------------------------------------------- reading


def read_receipt(name: str) -> Receipt | None:
    """Return the record of a table; None if it is not here, or not readable."""
    try:
        with (table_folder(name) / ARRAYS_FILE).open("rb") as file, np.load(file, allow_pickle=False) as archive:
            return _receipt(archive)
    except Exception:  # a damaged archive raises nearly anything: zlib.error, RuntimeError, TokenError ...
        return None


def read_arrays(manifest: Manifest, recipe: str) -> Arrays:
    """Read features (n, d) and classes (n,) of a recipe, as they were installed.

    Raises:
        DataMissingError: If the table is not here.
        ChecksumError: If the arrays are damaged, or differ from those of the manifest.
        StorageError: If the file must not be read.
    """
    name, path = manifest.name, table_folder(manifest.name) / ARRAYS_FILE
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            recorded = _receipt(archive).recipes[recipe]
            x, y = archive[f"{recipe}.x"], archive[f"{recipe}.y"]
    except (FileNotFoundError, NotADirectoryError):
        raise DataMissingError(
            f"Expected the {name} table in {path}; it is not there. Fix: `lang-envs data fetch {name}`, or with a file "
            f"that you have, `lang-envs data fetch {name} --from FILE`."
        ) from None
    except PermissionError as error:
        raise StorageError(f"Expected to read {path}; got {error.strerror!r}. Fix: its permissions.") from error
    except Exception as error:  # as above
        raise _damaged(name, path, str(error)) from error
    if array_digest(x, y) != recorded.digest or not recorded.digest.startswith(manifest.recipes[recipe].digest):
        raise _damaged(name, path, "arrays with another digest")
    return x, y


def _receipt(archive: Any) -> Receipt:
    entry = json.loads(str(archive["receipt"]))
    if entry.pop("layout") != _LAYOUT:
        raise ValueError("another layout")
    recipes = {name: Checked(**checked) for name, checked in entry.pop("recipes").items()}
    return Receipt(origin=Origin(**entry.pop("origin")), recipes=recipes, **entry)


def _damaged(name: str, path: Path, problem: str) -> ChecksumError:
    return ChecksumError(
        f"Expected the arrays of the {name} table in {path}; got a damaged file ({problem.partition('.')[0]:.80}). "
        f"Fix: `lang-envs data fetch {name} --force`, or with its file, `lang-envs data fetch {name} --from FILE`."
    )


# ---------------------------------------------------------------------- writing


def install(manifest: Manifest, source: Path, origin: Origin) -> Receipt:
    """Check a file, make its arrays, and keep both.

    Args:
        manifest: Manifest of the table.
        source: Path of the file; it is copied.
        origin: Origin of the file.

    Raises:
        ChecksumError: If the digest of the file or of its arrays is not the manifest's. The store is then unchanged.
        StorageError: If the file cannot be stored.
        MissingExtraError: If pandas is not installed.
    """
    digest = file_digest(source)
    _expect_digest(manifest, "a file with SHA-256", manifest.sha256, digest)
    arrays, remark = _make_arrays(manifest, source)
    recipes = {}
    for name, (x, y) in arrays.items():
        digest_of_arrays, expected = array_digest(x, y), manifest.recipes[name].digest
        _expect_digest(manifest, f"{name} arrays with digest", expected, digest_of_arrays)
        recipes[name] = Checked(digest_of_arrays, verified=bool(expected))
    now = datetime.now(UTC).isoformat(timespec="seconds")
    file = Path(manifest.file).with_suffix(source.suffix).name
    receipt = Receipt(file, digest, source.stat().st_size, bool(manifest.sha256), origin, now, recipes, remark)
    folder, before = table_folder(manifest.name), read_receipt(manifest.name)
    with storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(folder / receipt.file) as path:
            shutil.copyfile(source, path)
        with replacing(folder / ARRAYS_FILE) as path:
            _write_arrays(path, arrays, receipt)
        _tidy(folder, before, receipt)
    return receipt


def _tidy(folder: Path, before: Receipt | None, now: Receipt) -> None:
    """Remove the previous file and drafts of killed fetches; leave other files alone."""
    if before is not None and before.file != now.file and Path(before.file).name == before.file:
        (folder / before.file).unlink(missing_ok=True)
    for path in folder.glob(".*"):
        if _DRAFT.fullmatch(path.name) and path.is_file():
            path.unlink(missing_ok=True)


def _expect_digest(manifest: Manifest, kind: str, expected: str, got: str) -> None:
    if not got.startswith(expected):
        raise ChecksumError(
            f"Expected of the {manifest.name} table {kind} {expected[:_DIGEST_DIGITS]}; got {got[:_DIGEST_DIGITS]}, "
            f"and kept nothing of it. Fix: take {manifest.file!r} from {manifest.page}; if the service has another "
            f'version by now, use the file as your own table: `gym.make("DataSciCoding-v0", table=..., '
            f"target={manifest.target!r})`."
        )


def _make_arrays(manifest: Manifest, path: Path) -> tuple[dict[str, Arrays], str]:
    """Make the arrays of every recipe, with remarks about the file."""
    from lang_envs.datasets import files, preprocessing

    try:
        frame = files.read_table(path)
        arrays = {name: preprocessing.arrays(frame, manifest, recipe) for name, recipe in manifest.recipes.items()}
    except TableError as error:  # of another file than the one we know
        raise ChecksumError(f"{error} (of {path.name}; nothing of it was kept)") from error
    expected, found = ([_folded(str(name)) for name in names] for names in (manifest.column_names, frame.columns))
    odd = [f"{got!r} for {name!r}" for name, got in zip(expected, found, strict=True) if name != got]
    return arrays, f"columns have other names than expected: {', '.join(odd[:5])}" if odd else ""


def _folded(name: str) -> str:
    return "".join(filter(str.isalnum, name.casefold()))


def _write_arrays(path: Path, arrays: dict[str, Arrays], receipt: Receipt) -> None:
    entry = {
        "layout": _LAYOUT,
        **receipt._asdict(),
        "origin": receipt.origin._asdict(),
        "recipes": {name: checked._asdict() for name, checked in receipt.recipes.items()},
    }
    content: dict[str, Any] = {
        f"{name}.{key}": array for name, pair in arrays.items() for key, array in zip("xy", pair, strict=True)
    }
    with path.open("wb") as file:
        np.savez_compressed(file, receipt=np.array(json.dumps(entry)), **content)


def is_whole(manifest: Manifest) -> bool:
    """Return whether the arrays of every recipe are here and can be read."""
    try:
        for recipe in manifest.recipes:
            read_arrays(manifest, recipe)
    except (DataMissingError, ChecksumError):
        return False
    return True


def verify(manifest: Manifest) -> Receipt:
    """Make the arrays of a table again from its file, and compare everything with receipt and manifest.

    Raises:
        DataMissingError: If table or file is not here.
        ChecksumError: If anything differs.
    """
    name, folder = manifest.name, table_folder(manifest.name)
    kept = {recipe: array_digest(*read_arrays(manifest, recipe)) for recipe in manifest.recipes}
    receipt = read_receipt(name)
    if receipt is None or not (folder / receipt.file).is_file():
        file = "its file" if receipt is None else repr(receipt.file)
        raise DataMissingError(
            f"Expected {file} in {folder}, to compare with; it is not there. "
            f"Fix: `lang-envs data fetch {name} --force`, or --from FILE."
        )
    digest = file_digest(folder / receipt.file)
    if digest != receipt.sha256:
        raise _damaged(name, folder / receipt.file, f"SHA-256 {digest[:_DIGEST_DIGITS]}")
    _expect_digest(manifest, "a file with SHA-256", manifest.sha256, digest)
    for recipe, (x, y) in _make_arrays(manifest, folder / receipt.file)[0].items():
        _expect_digest(manifest, f"{recipe} arrays with digest", manifest.recipes[recipe].digest, kept[recipe])
        if array_digest(x, y) != kept[recipe]:
            raise _damaged(name, folder / ARRAYS_FILE, f"{recipe} arrays that the file does not give")
    return receipt
