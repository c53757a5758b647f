"""The page of a report in a browser: one file, no network, no surprise, whatever the results files hold."""

from __future__ import annotations

import base64
import hashlib
import html
import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import report_data
from PIL import Image
from report_pages import READY, Open, episode_link, go, link, report_of, settled

pytest.importorskip("lang_envs.report.page", reason="the page of a report is not here yet")

from lang_envs.report import LearningCurve, Metric, Report, Score, read_run, write_report
from lang_envs.report.pictures import frames_of

SOURCES = Path(__file__).parents[3] / "lang_envs/report/page"
STATIC_VIEWS = ("overview", "episodes", "curves", "runs")
WCAG = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reports")


@pytest.fixture(scope="module")
def small(folder: Path) -> Report:
    return report_of(report_data.small(folder / "small"))


@pytest.fixture(scope="module")
def small_page(small: Report, folder: Path) -> Path:
    return write_report(small, folder / "a b#ü%" / "report.html", pictures=2)


def links_of(report: Report) -> Iterator[str]:
    """Yield a link to each view: of the first episode, and of the first two agents on its task."""
    yield from map(link, STATIC_VIEWS)
    yield link("find", q="song")
    for episode in report.episodes[:1]:
        yield episode_link(episode, step=2, token=1)
        other = next((e["agent"] for e in report.episodes if e["agent"] != episode["agent"]), episode["agent"])
        yield link("compare", a=episode["agent"], b=other, t=episode["task"], s=episode["seed"], n=episode["episode"])


# ---------------------------------------------------------------------- one file


def test_it_opens_from_disk_in_any_folder(visit: Open, small: Report, small_page: Path) -> None:
    assert small_page.parent.name == "a b#ü%"
    visited = visit(small_page)
    visited.until(READY)
    for fragment in links_of(small):
        go(visited, fragment)
        assert visited.is_quiet, f"{fragment}: {visited.said()}"
        assert "cannot be drawn" not in visited.page.inner_text("body")


def test_the_scores_stand_there_without_javascript(visit: Open, small: Report, small_page: Path) -> None:
    visited = visit(small_page, java_script_enabled=False)
    text = visited.page.inner_text("body")
    for agent in report_data.AGENTS:
        assert agent in text
    for score in small.scores:
        assert f"{score.value:z.3f}" in text
    assert visited.is_quiet, visited.said()


def test_the_overview_of_one_agent_plays_its_last_episode(visit: Open, tmp_path: Path) -> None:
    run, episodes = read_run(report_data.training(tmp_path / "run"))
    last = episodes[-1]
    curve = LearningCurve(last["task"], last["agent"], "return", [0, 8], [0.0, 1.0])
    score = Score(last["agent"], last["task"], "return", 0.625, None, None, 1, 1, 1)
    report = Report("One", [run], [Metric("return", "return")], [score], [curve], episodes)
    visited = visit(write_report(report, tmp_path / "page.html", pictures=1, shown=1))
    visited.until(READY)
    overview, player = visited.page.locator("#overview"), visited.page.locator("#overview-player")
    assert visited.page.locator("#overview-chart svg").count() == 2, "the learning curve and the scores"
    assert "0.625" in overview.inner_text()
    assert f"episode {last['episode']}, at step {last['training_steps']}" in player.inner_text()
    player.get_by_label("next step").click()
    settled(visited)
    assert f"step 2 of {last['steps']}" in player.inner_text()
    assert visited.is_quiet, visited.said()


def test_the_same_content_gives_the_same_bytes(small: Report, small_page: Path, tmp_path: Path) -> None:
    again = report_of(report_data.small(tmp_path / "small"))
    page = write_report(again, tmp_path / "again.html", pictures=2)
    assert page.read_bytes() == small_page.read_bytes()
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ""] == ["again.html"]  # no draft is left


# ---------------------------------------------------------------------- episodes of every kind


def _without(*fields: str) -> Callable[[dict[str, Any]], None]:
    def change(episode: dict[str, Any]) -> None:
        for step in episode["steps_list"]:
            for field in fields:
                step.pop(field, None)

    return change


TOKEN_FIELDS = ("tokens", "log_probs", "values", "advantages", "token_options", "alternatives", "entropies", "credits")
KINDS: dict[str, Callable[[dict[str, Any]], object]] = {
    "no steps": lambda episode: episode.update(steps_list=None),
    "no tokens": _without(*TOKEN_FIELDS, "prompt_tokens", "action_probs", "final_value"),
    "no list": lambda episode: [
        (step.update(admissible_actions=None), step.pop("action_probs")) for step in episode["steps_list"]
    ],
    "no such environment": lambda episode: episode.update(env="Nowhere-v0", task="Nowhere-v0"),
}


@pytest.mark.parametrize("kind", [*KINDS][:2] + [pytest.param(kind, marks=pytest.mark.matrix) for kind in [*KINDS][2:]])
def test_episodes_of_every_kind_are_drawn(visit: Open, tmp_path: Path, kind: str) -> None:
    report = report_of(report_data.small(tmp_path, n_episodes=1))
    for episode in report.episodes:
        KINDS[kind](episode)
    visited = visit(write_report(report, tmp_path / "page.html", pictures=1))
    visited.until(READY)
    for fragment in links_of(report):
        go(visited, fragment)
        assert visited.is_quiet, f"{fragment}: {visited.said()}"
        assert "cannot be drawn" not in visited.page.inner_text("body")


@pytest.mark.parametrize("fragment", ["#v=compare", "#v=episodes&sort=-nothing&q=%F0%9F&success=maybe"])
def test_a_link_to_something_else_is_no_error(visit: Open, small_page: Path, fragment: str) -> None:
    visited = visit(small_page, fragment)
    visited.until(READY)
    settled(visited)
    assert visited.is_quiet, visited.said()
    assert visited.page.inner_text("main").strip()
    assert "cannot be drawn" not in visited.page.inner_text("body")


# ---------------------------------------------------------------------- hostile texts

HANDLERS = "document.evaluate(\"boolean(//@*[starts-with(name(), 'on')])\", document).booleanValue"


@pytest.fixture(scope="module")
def hostile(folder: Path) -> tuple[Report, Path]:
    report = report_of(report_data.hostile(folder / "hostile"), title=report_data.PAYLOADS[0])
    return report, write_report(report, folder / "hostile.html", pictures=5)


@pytest.mark.matrix
def test_payloads_are_inert_text(visit: Open, hostile: tuple[Report, Path], small: Report, small_page: Path) -> None:
    """The page holds all payloads; the episode of each is opened."""
    report, page = hostile
    assert len({episode["agent"] for episode in report.episodes}) >= 30
    code = report_of([report_data.code(page.with_name("code.jsonl"), n_episodes=1)])
    ours = {name for path in SOURCES.glob("*.js") for name in re.findall(r'\bel\("(\w+)"', path.read_text())}
    for calm_report, calm_page in (
        (small, small_page),
        (code, write_report(code, page.with_name("code.html"))),
    ):
        calm = visit(calm_page)
        calm.until(READY)
        for fragment in links_of(calm_report):
            go(calm, fragment)
            ours |= calm.element_names()
    visited = visit(page)
    visited.until(READY)
    visited.page.evaluate("document.body.setAttribute('onward', '')")
    assert visited.page.evaluate(HANDLERS), "a handler is found"
    visited.page.evaluate("document.body.removeAttribute('onward')")
    n_shown = 0
    for fragment, payload in [
        *((link(view), "") for view in STATIC_VIEWS),
        *((episode_link(episode), episode["agent"]) for episode in report.episodes[::2]),
    ]:
        go(visited, fragment)
        assert visited.element_names() <= ours, fragment
        assert not visited.page.evaluate(HANDLERS), fragment
        assert not visited.is_true("window.pwned"), fragment
        assert visited.is_quiet, f"{fragment}: {visited.said()}"
        text = visited.page.evaluate("document.getElementById('view').textContent")
        assert "cannot be drawn" not in text, fragment
        if payload.isprintable() and payload.strip() and len(payload) < 1000:  # others are shown in part, or as signs
            assert payload in text, fragment
            n_shown += 1
    assert n_shown >= 20


# ---------------------------------------------------------------------- policy and sources


def test_the_policy_names_the_only_script_and_style(small_page: Path) -> None:
    text = small_page.read_bytes().decode()
    policy = html.unescape(re.search(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', text)[1])  # type: ignore[index]
    assert text.index("Content-Security-Policy") < min(
        text.index(f"<{name}") for name in ("title", "style", "script", "body")
    )
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    for kind, pattern in (("script", r"<script>(.*?)</script>"), ("style", r"<style>(.*?)</style>")):
        (source,) = re.findall(pattern, text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
        assert rules[f"{kind}-src"] == f"'sha256-{digest}'"
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == rules["trusted-types"] == "'none'"
    assert rules["require-trusted-types-for"] == "'script'"
    assert rules["img-src"] == "data: blob:"
    assert not rules.keys() & {"connect-src", "frame-src", "worker-src", "object-src", "font-src", "media-src"}
    assert "unsafe" not in policy
    assert set(re.findall(r"<script([^>]*)>", text)) - {""} <= set(
        re.findall(r'<script( type="application/[a-z-]+" id="[\w-]+")>', text)
    )


# ---------------------------------------------------------------------- pictures, looks, accessibility


def test_the_picture_is_the_drawing_of_the_environment(visit: Open, small: Report, small_page: Path) -> None:
    episode = small.episodes[0]
    frames = frames_of(episode["header"], episode)
    assert not isinstance(frames, str)
    visited = visit(small_page)
    visited.until(READY)
    for step in (0, 1, 17, 30):
        go(visited, episode_link(episode, step=step + 1))
        drawn = f"[...document.querySelectorAll('canvas')].find((canvas) => canvas.dataset.drawn === '{step}')"
        visited.until(f"Boolean({drawn})", f"picture {step}")
        address = visited.page.evaluate(f"{drawn}.toDataURL('image/png')")
        shown = Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2])))
        assert np.asarray(shown.convert("RGB")).tobytes() == frames[step].tobytes()
        assert shown.mode == "RGB" or shown.getextrema()[3] == (255, 255)


@pytest.mark.parametrize(
    ("scheme", "views"),
    [("light", slice(0, None, 7)), pytest.param("dark", slice(None), marks=pytest.mark.matrix)],
)
def test_axe_finds_no_violation(visit: Open, small: Report, small_page: Path, scheme: str, views: slice) -> None:
    visited = visit(small_page, color_scheme=scheme)
    visited.until(READY)
    violations = []
    for fragment in list(links_of(small))[views]:
        go(visited, fragment)
        violations += [f"{fragment}: {violation}" for violation in visited.axe(*WCAG)]
    assert violations == []
