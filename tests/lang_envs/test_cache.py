"""The cache of evaluations: bounded, shared, and never worth an error."""

from __future__ import annotations

import multiprocessing
import sqlite3
from pathlib import Path

import pytest

from lang_envs import cache as cache_module
from lang_envs.cache import Cache, key_of


def test_what_is_put_is_got_by_another(tmp_path: Path) -> None:
    cache, other = Cache(tmp_path), Cache(tmp_path)
    assert cache.get("a") is None
    cache.put("a", {"scores": [0.25, 0.1 + 0.2], "text": "\ud800é\0"})
    assert other.get("a") == cache.get("a") == {"scores": [0.25, 0.1 + 0.2], "text": "\ud800é\0"}


def test_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "_MAX_IN_MEMORY", 3)
    monkeypatch.setattr(cache_module, "_MAX_ON_DISK", 5)
    monkeypatch.setattr(cache_module, "_EVICT_EVERY", 1)
    monkeypatch.setattr(cache_module, "_USE_SECONDS", 0.0)
    cache = Cache(tmp_path)
    for number in range(20):
        cache.put(str(number), {"n": number})
        Cache(tmp_path).get("0")  # used, so not the one to go
    assert len(cache._memory) == 3
    held = [number for number in range(20) if Cache(tmp_path).get(str(number)) is not None]
    assert held == [0, 16, 17, 18, 19]


def test_a_changed_entry_is_no_entry(tmp_path: Path) -> None:
    Cache(tmp_path).put("a", {"score": 0.5})
    with sqlite3.connect(tmp_path / "evaluations.sqlite3") as database:
        database.execute("UPDATE evaluations SET entry = ?", ('{"score": 1.0}',))
    database.close()
    assert Cache(tmp_path).get("a") is None


def test_a_damaged_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "evaluations.sqlite3").write_bytes(b"no database at all" * 100)
    cache = Cache(tmp_path)
    assert cache.get("a") is None
    cache.put("a", {"n": 1})
    assert Cache(tmp_path).get("a") == {"n": 1}


def test_a_folder_that_cannot_be_is_memory_only(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = Cache(tmp_path / "file" / "below")
    cache.put("a", {"n": 1})
    assert cache.get("a") == {"n": 1}


def test_a_file_that_is_busy_costs_time_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "_BUSY_SECONDS", 0.05)
    cache = Cache(tmp_path)
    cache.put("a", {"n": 1})
    database = sqlite3.connect(tmp_path / "evaluations.sqlite3", isolation_level=None)
    database.execute("BEGIN EXCLUSIVE")
    cache.put("b", {"n": 2})
    assert (cache.get("b"), Cache(tmp_path).get("a")) == ({"n": 2}, None)
    database.execute("ROLLBACK")
    database.close()
    assert Cache(tmp_path).get("a") == {"n": 1}


def _put(folder: Path, first: int) -> None:
    cache = Cache(folder)
    for number in range(first, first + 50):
        cache.put(str(number), {"n": number})


@pytest.mark.process
def test_processes_write_at_once(tmp_path: Path) -> None:
    workers = [multiprocessing.get_context("spawn").Process(target=_put, args=(tmp_path, 50 * n)) for n in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    cache = Cache(tmp_path)
    assert [cache.get(str(number)) for number in range(100)] == [{"n": number} for number in range(100)]


def test_clear(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.put("a", {"n": 1})
    cache.clear()
    assert list(tmp_path.iterdir()) == []
    assert cache.get("a") is None
    cache.put("a", {"n": 2})
    assert Cache(tmp_path).get("a") == {"n": 2}


def test_keys_tell_everything_apart() -> None:
    parts = {"code": "x = 1", "limits": (30.0, 1 << 30), "random_states": (0, 1)}
    others = [parts | {"code": "x = 1 "}, parts | {"limits": (30.5, 1 << 30)}, parts | {"random_states": (1, 0)}]
    assert len({key_of(entry) for entry in (parts, *others)}) == 4
    assert key_of(dict(reversed(parts.items()))) == key_of(parts)
