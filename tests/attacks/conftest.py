"""Sandboxes of the tests' own, by user."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator

import pytest
from attack_arena import PLACES, Arena
from attack_rows import PREY, lay_out_prey


@pytest.fixture(scope="session", autouse=True)
def meeting_place() -> Iterator[None]:
    """Supervisors of these tests' own, without other users."""
    before = os.environ.get("XDG_RUNTIME_DIR")
    folder = os.environ["XDG_RUNTIME_DIR"] = tempfile.mkdtemp(prefix="le-")
    yield
    if before is None:
        del os.environ["XDG_RUNTIME_DIR"]
    else:
        os.environ["XDG_RUNTIME_DIR"] = before
    shutil.rmtree(folder, ignore_errors=True)  # a supervisor may be removing its socket


@pytest.fixture(scope="session")
def prey() -> Iterator[None]:
    lay_out_prey()
    yield
    shutil.rmtree(PREY)


@pytest.fixture(scope="session")
def arenas(prey: None) -> Iterator[Callable[[str], Arena]]:
    """The sandbox as it is, by who runs the code: `PLACES`."""
    opened: dict[str, Arena] = {}

    def arena(place: str) -> Arena:
        if place not in opened:
            opened[place] = Arena(PLACES[place])
        return opened[place]

    yield arena
    for arena_of_place in opened.values():
        arena_of_place.sandbox.close()


@pytest.fixture(scope="session")
def own_arena(arenas: Callable[[str], Arena]) -> Arena:
    """The sandbox as the user who runs the tests."""
    return arenas("own user")
