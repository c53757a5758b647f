"""A served report in a browser: it asks its own server only, and follows the files."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import report_data
from browsing import Visit

from benchmarks.reports.folders import report_of_folder
from benchmarks.reports.serving import LiveReport, ReportServer
from lang_envs.report import build_page


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ReportServer]:
    report_data.small(tmp_path / "runs", n_episodes=1)
    (tmp_path / "runs/more").mkdir()
    for name in ("agent1.jsonl", "agent1.steps.jsonl"):
        (tmp_path / "runs" / name).rename(tmp_path / "runs/more" / name)

    def build(folder: Path, version: str) -> bytes:
        return build_page(report_of_folder(folder), pictures=0, live=version)

    live = LiveReport(tmp_path / "runs", build, every=0)
    with ReportServer(live) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_served_page_follows_the_files_and_keeps_its_view(
    visit: Callable[..., Visit], server: ReportServer, tmp_path: Path
) -> None:
    seen = visit(server.address, "#v=episodes", offline=False)
    seen.until("document.body.dataset.ready === '1'")
    assert report_data.AGENTS[1] in seen.page.inner_text("#view")
    (tmp_path / "runs/more").rename(tmp_path / "gone")  # both files at once: the page reloads once
    gone = f"!document.getElementById('view').textContent.includes('{report_data.AGENTS[1]}')"
    seen.until(f"document.body.dataset.ready === '1' && {gone}", "the reload")
    assert seen.page.url == f"{server.address}#v=episodes"
    assert report_data.AGENTS[0] in seen.page.inner_text("#view")
    assert set(seen.requests) <= {server.address, f"{server.address}version", f"{server.address}favicon.ico"}
    assert not seen.errors
    assert not seen.console, seen.said()
