"""Reports for the tests of pages, and ways to go about in a page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
from browsing import Visit

from lang_envs.report import Metric, Report, Score, read_run

__all__ = ["READY", "Open", "episode_link", "go", "link", "report_of", "settled"]

Open = Callable[..., Visit]
READY = "document.body.dataset.ready === '1'"


def report_of(paths: Sequence[Path], title: str = "Agents in two tasks") -> Report:
    """Return the report of some results files, with the mean returns as scores."""
    runs, episodes = [], []
    for path in paths:
        run, recorded = read_run(path)
        runs.append(run)
        episodes += recorded
    groups: dict[tuple[str, str], list[float]] = {}
    for episode in episodes:
        groups.setdefault((episode["agent"], episode["task"]), []).append(episode["return"])
    scores = [
        Score(agent, task, "return", float(np.mean(recorded)), None, None, 1, len(recorded), len(recorded))
        for (agent, task), recorded in groups.items()
    ]
    return Report(title, runs, (Metric("return", "return"),), scores, (), episodes)


def link(view: str, **state: object) -> str:
    return f"#{urlencode({'v': view, **state}, errors='surrogatepass')}"


def episode_link(episode: Mapping[str, Any], **state: object) -> str:
    names = {"a": "agent", "t": "task", "s": "seed", "n": "episode"}
    return link("episode", **{short: episode[name] for short, name in names.items()}, **state)


def go(visit: Visit, fragment: str) -> None:
    """Follow a link within the page, and wait until its view is drawn."""
    visit.page.evaluate(
        """async (hash) => {
          const before = location.href;
          const followed = new Promise((resolve) => addEventListener("hashchange", resolve, {once: true}));
          location.hash = hash;
          if (location.href !== before) await followed;
        }""",
        fragment,
    )
    settled(visit)


def settled(visit: Visit) -> None:
    """Wait until the view is drawn, and the links to other episodes below it, which come later."""
    visit.until("document.getElementById('main').ariaBusy === 'false'", "a view that is drawn")
    before, size = -1, visit.n_elements()
    while size != before:
        visit.page.wait_for_timeout(25)
        before, size = size, visit.n_elements()
