"""The numbers of a page: those of the library, of the results files, and of Python's own sorting."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import report_data
from browsing import Visit
from report_data import episode_of, header_of
from report_pages import READY, Open, episode_link, go, link, report_of

from benchmarks.reports.html_report import report_of as measured_report
from benchmarks.runner.plan import Job
from lang_envs.report import LearningCurve, Report, build_page, check, write_report
from lang_envs.report.statistics import estimate, learning_curve, mean
from poad_sb3.credit.advantages import bilevel_gae, next_state_values, token_gae

Record = dict[str, Any]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Report, Path]:
    folder = tmp_path_factory.mktemp("numbers")
    report = report_of(report_data.small(folder / "small", n_episodes=2))
    return report, write_report(report, folder / "small.html", pictures=0)


# ---------------------------------------------------------------------- credit


def credits_of(
    rewards: Sequence[float],
    values: Sequence[Sequence[float]],
    final: float,
    numbers: Mapping[str, float],
    decisions: Sequence[Sequence[bool]] | None,
) -> dict[str, list[list[float]]]:
    """Advantages by `poad_sb3.credit`, by the names of the page's estimators."""
    lengths = np.array([[len(row)] for row in values])
    padded = np.full((len(values), 1, lengths.max()), np.nan)
    for place, row in enumerate(values):
        padded[place, 0, : len(row)] = row
    ends = np.zeros((len(values), 1), dtype=bool)
    ends[-1] = True
    following = next_state_values(padded[:, :, 0], np.zeros(1), ends, np.full((len(values), 1), final))
    paid = np.array(rewards)[:, None]
    decided = np.zeros(padded.shape, dtype=bool)
    for step, row in enumerate(decisions or []):
        decided[step, 0, : len(row)] = row
    gamma = numbers["gamma"]
    inside: Any = {"gae_lambda_token": numbers["lambdaToken"], "decisions": None if decisions is None else decided}
    given = {"gamma": gamma, "gae_lambda": numbers["lambda"]}

    def rows(found: np.ndarray) -> list[list[float]]:
        return [found[place, 0, : len(row)].tolist() for place, row in enumerate(values)]

    def tokens(gamma_token: float) -> list[list[float]]:
        return rows(token_gae(paid, padded, lengths, following, ends, gamma_token=gamma_token, **given, **inside))

    whole = token_gae(
        paid, padded[:, :, :1], np.ones_like(lengths), following, ends, gamma_token=1.0, gae_lambda_token=1.0, **given
    )
    both = bilevel_gae(paid, padded, lengths, following, ends, gamma_token=1.0, **given, **inside)
    return {
        "POAD": tokens(1.0),
        "NTPO": tokens(gamma),
        "action-level": [[whole[place, 0, 0]] * len(row) for place, row in enumerate(values)],
        "bi-level": rows(both),
        "own \u03b3_token": tokens(numbers["gammaToken"]),
    }


def test_the_page_computes_the_advantages_of_the_library(visit: Open, small: tuple[Report, Path]) -> None:
    rng = np.random.default_rng(0)
    episodes = []
    for number in range(200):
        n_steps = 1 if number % 10 == 0 else int(rng.integers(2, 12))
        most = 300 if number % 40 == 7 else 1 if number % 10 == 3 else 12
        lengths = rng.integers(1, most + 1, size=n_steps)
        names = ("gamma", "lambda", "gammaToken", "lambdaToken")
        exact = number % 7 == 0  # the ends of the sliders
        episodes.append(
            {
                "rewards": rng.normal(size=n_steps).tolist(),
                "values": [rng.normal(size=length).tolist() for length in lengths],
                "decisions": [(rng.random(n) < 0.6).tolist() for n in lengths] if number % 2 else None,
                "finalValue": float(rng.normal()) if number % 3 == 0 else 0.0,
                **{name: float(rng.integers(2)) if exact else float(rng.uniform(0.5, 1)) for name in names},
            }
        )
    seen = visit(small[1])
    seen.until(READY)
    found = seen.page.evaluate(
        "(episodes) => episodes.map((one) => RULES.map((rule) => [rule.name, rule.compute(one)]))", episodes
    )
    for episode, pairs in zip(episodes, found, strict=True):
        names = ("rewards", "values", "finalValue")
        expected = credits_of(*(episode[name] for name in names), episode, episode["decisions"])
        assert dict(pairs).keys() == expected.keys()
        for name, rows in pairs:
            for got, row in zip(rows, expected[name], strict=True):
                assert got == pytest.approx(row, rel=1e-12, abs=1e-12), name


# ---------------------------------------------------------------------- scores, curves, counts


def _measured(folder: Path) -> list[Path]:
    """Two agents on one task: 4 seeds of 3 episodes, of one step each."""
    rng = np.random.default_rng(4)
    paths = []
    for number, agent in enumerate(("one", "two")):
        episodes = []
        for seed in range(4):
            for place in range(3):
                step = {
                    "observation": "Here.", "admissible_actions": ["go"], "action": "go", "invalid": False,
                    "reward": float(rng.normal() - number), "success": bool(rng.random() < 0.5), "moves": 1,
                    "terminated": True, "truncated": False, "note": "",
                }  # fmt: skip
                episodes.append(episode_of(Job(report_data.KITCHEN, seed, place), agent, [step]))
        header = header_of(agent, (report_data.KITCHEN,), 3, range(4))
        paths.append(report_data.write(folder / f"{agent}.jsonl", header, episodes))
    return paths


def test_scores_curves_and_counts_are_those_of_the_statistics(visit: Open, tmp_path: Path) -> None:
    report = measured_report(_measured(tmp_path))
    rng = np.random.default_rng(2)
    points = {seed: [(100 * k, rng.normal()) for k in range(9)] for seed in range(3)}
    curve = learning_curve(points, mean)
    line = LearningCurve(
        report_data.KITCHEN, "one", "return", curve.steps.tolist(), curve.values.tolist(), curve.low.tolist(),
        curve.high.tolist(), {str(seed): row.tolist() for seed, row in zip(points, curve.by_seed, strict=True)},
    )  # fmt: skip
    report = Report(report.title, report.runs, report.metrics, report.scores, [line], report.episodes, report.about)
    seen = visit(write_report(report, tmp_path / "page.html"))
    seen.until(READY)
    cells = seen.page.evaluate(
        "[...document.querySelector('#overview table').rows]"
        ".map((row) => [...row.children].map((one) => one.textContent))"
    )
    head, *rows = cells
    for agent, count, *values in rows:
        own = [one for one in report.episodes if one["agent"] == agent]
        assert count == "12"
        for title, factor, field, digits in (
            ("discounted return", 1, "discounted_return", 3),
            ("success", 100, "success", 1),
        ):
            place = next((n for n, name in enumerate(head[2:]) if name == title), None)
            assert place is not None, head
            by_seed = [np.mean([float(one[field]) for one in own if one["seed"] == seed]) for seed in range(4)]
            value, low, high = (factor * one for one in estimate([np.array(by_seed)], mean))  # type: ignore[operator]
            unit = " %" if factor == 100 else ""
            texts = [f"{one:.{digits}f}" for one in (value, low, high)]
            interval = f" [{texts[1]}, {texts[2]}]" if len(set(texts)) > 1 else ""
            assert values[place] == f"{texts[0]}{unit}{interval}"
    assert "24 episodes of 2 agents on 1 task." in seen.page.inner_text("#overview")
    go(seen, link("curves"))
    seen.page.click("summary")
    seen.until("document.querySelectorAll('#view tbody tr').length === 9")
    numbers = seen.page.evaluate(
        "[...document.querySelectorAll('#view tbody tr')].map((row) => [...row.children].map((one) => one.textContent))"
    )
    for place, (label, step, value, interval, *seeds) in enumerate(numbers):
        assert (label, step) == ("one", f"{100 * place}")
        assert float(value) == pytest.approx(curve.values[place], rel=1e-3)
        assert [*map(float, interval.split(" to "))] == pytest.approx([curve.low[place], curve.high[place]], rel=1e-3)
        assert [*map(float, seeds)] == pytest.approx(curve.by_seed[:, place], rel=1e-3)
    embedded = seen.page.evaluate("report.index.curves[0]")
    assert embedded["values"] == pytest.approx(curve.values, rel=1e-5)
    assert seen.is_quiet, seen.said()


# ---------------------------------------------------------------------- the file of an episode


def _equal(got: object, recorded: object) -> bool:
    """Whether a value of a downloaded line is the recorded one, numbers rounded to 0.001 or 0.00005."""
    if isinstance(recorded, list) and isinstance(got, list):
        return len(got) == len(recorded) and all(map(_equal, got, recorded))
    if isinstance(recorded, float) and isinstance(got, int | float):
        return abs(got - recorded) <= 0.0005 + 1e-9
    return got == recorded


@pytest.mark.matrix_after(2)
@pytest.mark.parametrize("kind", ["agent", "training", "code"])
def test_the_downloaded_file_has_the_recorded_lines(visit: Open, tmp_path: Path, kind: str) -> None:
    path = {
        "agent": lambda: report_data.small(tmp_path, n_episodes=1)[0],
        "training": lambda: report_data.training(tmp_path, checkpoints=(0, 256), n_episodes=1),
        "code": lambda: report_data.code(tmp_path / "code.jsonl", n_episodes=2),
    }[kind]()
    report = report_of([path])
    recorded = [json.loads(line) for line in path.with_suffix(".steps.jsonl").read_bytes().splitlines()[1:]]
    seen = visit(write_report(report, tmp_path / "page.html", pictures=0))
    seen.until(READY)
    episode = report.episodes[1]
    more = {} if episode.get("training_steps") is None else {"at": episode["training_steps"]}
    go(seen, episode_link(episode, **more))
    with seen.page.expect_download() as download:
        seen.page.get_by_role("button", name="download as JSONL").click()
    text = Path(download.value.path()).read_text()
    (tmp_path / "own.steps.jsonl").write_text(text)
    assert check(tmp_path / "own.steps.jsonl") == f"1 episode, {episode['steps']} steps"
    _, *lines = (json.loads(line) for line in text.splitlines())
    own = recorded[len(report.episodes[0]["steps_list"]) :][: len(lines)]
    assert len(lines) == episode["steps"]
    exact = ("reward", "observation", "action", "admissible_actions", "step", "env", "tokens", "credits", "scores")
    for got, line in zip(lines, own, strict=True):
        left = {name: one for name, one in line.items() if one is not None and name != "advantages"}
        if kind == "training":
            left["training_steps"] = 256
        assert {name for name, one in got.items() if one is not None} - left.keys() <= {"note"}
        assert left.keys() - got.keys() == set()
        for name, one in left.items():
            assert got[name] == one if name in exact else _equal(got[name], one), name
        for name in ("values",):
            assert got.get(name, []) == pytest.approx(line.get(name, []), abs=2.5e-5 + 1e-9)
    assert seen.is_quiet, seen.said()


# ---------------------------------------------------------------------- the list

FIELDS = {
    "agent": "agent",
    "task": "task",
    "seed": "seed",
    "episode": "episode",
    "at": "training_steps",
    "success": "success",
    "return": "return",
    "steps": "steps",
    "invalid": "invalid_actions",
}
"""Columns of the list, and the fields of an episode that they show."""


def _listed() -> list[Record]:
    rng = np.random.default_rng(3)
    found = []
    for number in range(60):
        terminated = bool(rng.random() < 0.5)
        found.append(
            {
                "agent": ["b", "a", "B", "ä", "a/b", "100 %"][number % 6],
                "task": ["Salad-v0", "Salad-v0 (max_episode_steps=30)"][number // 30],
                "env": "Salad-v0",
                "seed": int(rng.choice([0, 2, 10])),
                "episode": number,
                "training_steps": None if number % 4 == 0 else int(rng.choice([0, 900, 1000, 20_000])),
                "reset_seed": number,
                "return": float(rng.choice([-1.5, -1, 0, 0.5, 2, 10])),
                "discounted_return": 0.0,
                "success": [None, True, False][number % 3],
                "steps": int(rng.integers(1, 120)),
                "invalid_actions": int(rng.integers(0, 3)),
                "terminated": terminated,
                "truncated": not terminated,
                "steps_list": None,
            }
        )
    return found


def _places(seen: Visit) -> list[int]:
    """Return the numbers of the episodes in the rows of the list."""
    return seen.page.evaluate(
        "[...document.querySelectorAll('.list [role=row]:not(.head) a')]"
        ".map((one) => Number(new URLSearchParams(one.hash.slice(1)).get('n')))"
    )


@pytest.mark.matrix
def test_the_list_sorts_and_filters_as_python_does(visit: Open, tmp_path: Path) -> None:
    episodes = _listed()
    seen = visit(write_report(Report("list", episodes=episodes), tmp_path / "page.html"))
    seen.until(READY)
    for name, field in FIELDS.items():
        missing = [one for one in episodes if one[field] is None]
        known = sorted((one for one in episodes if one[field] is not None), key=lambda one: one[field])
        falling = sorted(known, key=lambda one: one["episode"])
        falling.sort(key=lambda one: one[field], reverse=True)  # stable in either direction
        for order, rows in ((name, known), (f"-{name}", falling)):
            found = seen.page.evaluate("(order) => chosenRows({sort: order}).map((row) => row.episode)", order)
            assert found == [one["episode"] for one in [*rows, *missing]], order
    go(seen, link("episodes"))
    page = seen.page
    page.click('[data-sort="return"]')
    page.click('[data-sort="return"]')
    assert _places(seen) == [one["episode"] for one in sorted(episodes, key=lambda one: one["return"], reverse=True)]
    filters = [
        ("a", "a/b", lambda one: one["agent"] == "a/b"),
        ("a", "100 %", lambda one: one["agent"] == "100 %"),
        ("t", "Salad-v0", lambda one: one["task"] == "Salad-v0"),
        ("s", "10", lambda one: one["seed"] == 10),
        ("at", "900", lambda one: one["training_steps"] == 900),
        ("success", "1", lambda one: one["success"] is True),
        ("success", "0", lambda one: one["success"] is False),
        ("ended", "truncated", lambda one: one["truncated"]),
        ("invalid", "1", lambda one: one["invalid_actions"] > 0),
        ("from", "-1", lambda one: one["return"] >= -1),
        ("to", "0.5", lambda one: one["return"] <= 0.5),
        ("q", "STEPS=3", lambda one: "steps=3" in one["task"]),
    ]
    for name, value, test in filters:
        field = page.locator(f'.filters [name="{name}"]')
        is_select = field.evaluate("(one) => one.tagName") == "SELECT"
        if is_select:
            field.select_option(value)
        else:
            field.press_sequentially(value)
        expected = sum(map(test, episodes))
        assert 0 < expected < 60
        assert page.inner_text("#count") == f"{expected} of 60 episodes", name
        assert len(_places(seen)) == expected
        assert page.evaluate("document.activeElement.name") == name or is_select
        field.select_option("") if is_select else field.fill("")
        assert page.inner_text("#count") == "60 of 60 episodes"

    assert seen.is_quiet, seen.said()


# ---------------------------------------------------------------------- pointer and keyboard


@pytest.mark.parametrize(
    ("settings", "shown"),
    [
        ({"api_key": None}, {"api_key": None}),
        ({"token": 5}, {"token": "..."}),
        ({"password": True}, {"password": "..."}),
        ({"a": {"api_key": 'x"y'}}, {"a": {"api_key": "..."}}),
        ({"url": "http://h/x?q=1"}, {"url": "http://h/x"}),
    ],
)
def test_settings_are_packed_without_secrets(
    small: tuple[Report, Path], settings: dict[str, Any], shown: dict[str, Any]
) -> None:
    report, _ = small
    episode = {**report.episodes[0], "header": {**report.episodes[0]["header"], "env_settings": settings}}
    page = build_page(replace(report, episodes=[episode]), pictures=0).decode()
    block = re.search(r'id="data-index">([^<]*)<', page)
    assert block is not None
    (origin,) = json.loads(gzip.decompress(base64.b64decode(block[1])))["origins"]
    assert origin["env_settings"] == shown
