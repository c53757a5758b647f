from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from browsing import Browser, Visit, start_browser

_RUNNING: list[Browser] = []
"""The browser of this test process, or none."""
_HERE = Path(__file__).parent


@pytest.fixture
def browser() -> Browser:
    """Return the browser of this test process."""
    if not _RUNNING:
        _RUNNING.append(start_browser())
    return _RUNNING[0]


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """End the browser before tests of other folders: its driver runs an event loop, and has processes."""
    if _RUNNING and (nextitem is None or _HERE not in nextitem.path.parents):
        _RUNNING.pop().close()


@pytest.fixture
def visit(browser: Browser) -> Iterator[Callable[..., Visit]]:
    """Open files: `visit(path, fragment, before="", **options)`, in a context of its own each."""
    visits: list[Visit] = []

    def open_file(path: Path | str, fragment: str = "", *, before: str = "", **options: Any) -> Visit:
        visits.append(Visit(browser, **options))
        return visits[-1].open(path, fragment, before=before)

    yield open_file
    for visit in visits:
        visit.close()
