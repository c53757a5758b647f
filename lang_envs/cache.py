"""Cache of evaluations, in memory and on disk: the same code on the same table gives the same reward.

Only the trusted process reads and writes it; code in the sandbox has no way to the file. A cache that cannot be used
(a full disk, a network file system without locks, a damaged file) costs time, never a result.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from lang_envs.errors import LangEnvsError

if TYPE_CHECKING:
    import sqlite3

__all__ = ["Cache", "cache_folder", "key_of"]

_MAX_IN_MEMORY = 512
_MAX_ON_DISK = 20_000
"""Maximum number of entries, each of some 2 kB."""
_EVICT_EVERY = 256
_BUSY_SECONDS = 2.0
_USE_SECONDS = 3600.0
"""Age of the last noted use at which a read notes another: mostly, reading needs no lock and no writable file."""

_TABLE = """CREATE TABLE IF NOT EXISTS evaluations
    (key TEXT PRIMARY KEY, entry TEXT NOT NULL, digest TEXT NOT NULL, used REAL NOT NULL)"""

Entry = dict[str, Any]
Result = TypeVar("Result")


def cache_folder() -> Path:
    """Return the folder of the caches: `$LANG_ENVS_CACHE`, or `lang_envs` in the user's cache folder."""
    chosen = os.environ.get("LANG_ENVS_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    try:
        return Path(chosen).expanduser() if chosen else Path(base).expanduser() / "lang_envs"
    except RuntimeError:  # the home folder of an unknown user
        return _of_this_process()


@cache
def _of_this_process() -> Path:
    return Path(tempfile.mkdtemp(prefix="lang-envs-"))


def key_of(parts: Mapping[str, Any]) -> str:
    """Return the digest of everything that an evaluation depends on."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode("utf-8", "surrogatepass")).hexdigest()


class Cache:
    """A bounded map from digests to JSON objects; the least recently used are forgotten.

    Args:
        folder: Folder of the cache file; None for memory only.
    """

    def __init__(self, folder: Path | None) -> None:
        self._path = None if folder is None else folder / "evaluations.sqlite3"
        self._memory: OrderedDict[str, str] = OrderedDict()
        self._n_written = 0

    def get(self, key: str) -> Entry | None:
        """Return the stored value as a fresh object, or None."""
        text = self._memory.get(key)
        if text is None:
            text = self._in_file(lambda database: self._read(database, key))
        if text is None:
            return None
        try:
            entry: Entry = json.loads(text)
        except ValueError:
            return None
        self._remember(key, text)
        return entry

    def put(self, key: str, entry: Mapping[str, Any]) -> None:
        """Remember an object of JSON's types."""
        text = json.dumps(entry)
        self._remember(key, text)
        self._in_file(lambda database: self._write(database, key, text))

    def _remember(self, key: str, text: str) -> None:
        self._memory[key] = text
        self._memory.move_to_end(key)
        while len(self._memory) > _MAX_IN_MEMORY:
            self._memory.popitem(last=False)

    def _write(self, database: sqlite3.Connection, key: str, text: str) -> None:
        row = (key, text, _digest(text), time.time())
        database.execute("INSERT OR REPLACE INTO evaluations VALUES (?, ?, ?, ?)", row)
        if self._n_written % _EVICT_EVERY == 0:
            kept = "SELECT key FROM evaluations ORDER BY used DESC LIMIT ?"
            database.execute(f"DELETE FROM evaluations WHERE key NOT IN ({kept})", (_MAX_ON_DISK,))
        self._n_written += 1

    def _read(self, database: sqlite3.Connection, key: str) -> str | None:
        import sqlite3

        row = database.execute("SELECT entry, digest, used FROM evaluations WHERE key = ?", (key,)).fetchone()
        if row is None or _digest(row[0]) != row[1]:
            return None
        now = time.time()
        if now - row[2] > _USE_SECONDS:
            database.execute("PRAGMA busy_timeout = 0")
            with contextlib.suppress(sqlite3.OperationalError):  # busy or read-only: the entry counts nevertheless
                database.execute("UPDATE evaluations SET used = ? WHERE key = ?", (now, key))
        return str(row[0])

    def _in_file(self, work: Callable[[sqlite3.Connection], Result]) -> Result | None:
        """Do something in one transaction; None without a usable file.

        It opens the file each time (0.2 ms beside an evaluation's 50): a connection must not be carried through a fork.
        """
        if self._path is None:
            return None
        try:
            import sqlite3
        except ImportError:  # Python was built without it
            self._path = None
            return None
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.closing(sqlite3.connect(self._path, timeout=_BUSY_SECONDS)) as database, database:
                database.execute(_TABLE)
                return work(database)
        except sqlite3.OperationalError:  # busy, full or read-only: perhaps another time
            return None
        except sqlite3.DatabaseError:  # damaged
            with contextlib.suppress(OSError):
                self._path.unlink()
            return None
        except OSError:
            self._path = None
            return None

    def clear(self) -> None:
        """Forget everything.

        Raises:
            LangEnvsError: If the file cannot be removed.
        """
        self._memory.clear()
        if self._path is not None:
            try:
                self._path.unlink(missing_ok=True)
            except OSError as error:
                raise LangEnvsError(f"Expected to remove {self._path}; got {error}. Fix: remove it by hand.") from error


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]
