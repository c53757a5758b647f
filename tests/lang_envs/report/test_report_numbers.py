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
from report_data import episode_of, header_of
from report_pages import READY, Open, episode_link, go, link, report_of

from lang_bench.reports.html_report import report_of as measured_report
from lang_bench.runner.plan import Job
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
    for step, row in enumerate(values):
        padded[step, 0, : len(row)] = row
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

    def rows(advantages: np.ndarray) -> list[list[float]]:
        return [advantages[step, 0, : len(row)].tolist() for step, row in enumerate(values)]

    def tokens(gamma_token: float) -> list[list[float]]:
        return rows(token_gae(paid, padded, lengths, following, ends, gamma_token=gamma_token, **given, **inside))

    whole = token_gae(
        paid, padded[:, :, :1], np.ones_like(lengths), following, ends, gamma_token=1.0, gae_lambda_token=1.0, **given
    )
    both = bilevel_gae(paid, padded, lengths, following, ends, gamma_token=1.0, **given, **inside)
    return {
        "POAD": tokens(1.0),
        "NTPO": tokens(gamma),
        "action-level": [[whole[step, 0, 0]] * len(row) for step, row in enumerate(values)],
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
    visited = visit(small[1])
    visited.until(READY)
    computed = visited.page.evaluate(
        "(episodes) => episodes.map((episode) => RULES.map((rule) => [rule.name, rule.compute(episode)]))", episodes
    )
    for episode, pairs in zip(episodes, computed, strict=True):
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
            for number_of_episode in range(3):
                step = {
                    "observation": "Here.", "admissible_actions": ["go"], "action": "go", "invalid": False,
                    "reward": float(rng.normal() - number), "success": bool(rng.random() < 0.5), "moves": 1,
                    "terminated": True, "truncated": False, "note": "",
                }  # fmt: skip
                episodes.append(episode_of(Job(report_data.KITCHEN, seed, number_of_episode), agent, [step]))
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
    visited = visit(write_report(report, tmp_path / "page.html"))
    visited.until(READY)
    cells = visited.page.evaluate(
        "[...document.querySelector('#overview table').rows]"
        ".map((row) => [...row.children].map((it) => it.textContent))"
    )
    head, *rows = cells
    for agent, count, *values in rows:
        played = [episode for episode in report.episodes if episode["agent"] == agent]
        assert count == "12"
        for title, factor, field, digits in (
            ("discounted return", 1, "discounted_return", 3),
            ("success", 100, "success", 1),
        ):
            position = next((n for n, name in enumerate(head[2:]) if name == title), None)
            assert position is not None, head
            by_seed = [np.mean([float(e[field]) for e in played if e["seed"] == seed]) for seed in range(4)]
            value, low, high = (factor * bound for bound in estimate([np.array(by_seed)], mean))  # type: ignore[operator]
            unit = " %" if factor == 100 else ""
            texts = [f"{bound:.{digits}f}" for bound in (value, low, high)]
            interval = f" [{texts[1]}, {texts[2]}]" if len(set(texts)) > 1 else ""
            assert values[position] == f"{texts[0]}{unit}{interval}"
    assert "24 episodes of 2 agents on 1 task." in visited.page.inner_text("#overview")
    go(visited, link("curves"))
    visited.page.click("summary")
    visited.until("document.querySelectorAll('#view tbody tr').length === 9")
    numbers = visited.page.evaluate(
        "[...document.querySelectorAll('#view tbody tr')].map((row) => [...row.children].map((it) => it.textContent))"
    )
    for position, (label, step, value, interval, *seeds) in enumerate(numbers):
        assert (label, step) == ("one", f"{100 * position}")
        assert float(value) == pytest.approx(curve.values[position], rel=1e-3)
        assert [*map(float, interval.split(" to "))] == pytest.approx(
            [curve.low[position], curve.high[position]], rel=1e-3
        )
        assert [*map(float, seeds)] == pytest.approx(curve.by_seed[:, position], rel=1e-3)
    embedded = visited.page.evaluate("report.index.curves[0]")
    assert embedded["values"] == pytest.approx(curve.values, rel=1e-5)
    assert visited.is_quiet, visited.said()


# ---------------------------------------------------------------------- the file of an episode


def _equal(got: object, recorded: object) -> bool:
    """Whether a value of a downloaded line is the recorded one, numbers rounded to 0.001 or 0.00005."""
    if isinstance(recorded, list) and isinstance(got, list):
        return len(got) == len(recorded) and all(map(_equal, got, recorded))
    if isinstance(recorded, float) and isinstance(got, int | float):
        return abs(got - recorded) <= 0.0005 + 1e-9
    return got == recorded


@pytest.mark.parametrize("kind", ["agent", "training"])
def test_the_downloaded_file_has_the_recorded_lines(visit: Open, tmp_path: Path, kind: str) -> None:
    path = {
        "agent": lambda: report_data.small(tmp_path, n_episodes=1)[0],
        "training": lambda: report_data.training(tmp_path, checkpoints=(0, 256), n_episodes=1),
    }[kind]()
    report = report_of([path])
    recorded = [json.loads(line) for line in path.with_suffix(".steps.jsonl").read_bytes().splitlines()[1:]]
    visited = visit(write_report(report, tmp_path / "page.html", pictures=0))
    visited.until(READY)
    episode = report.episodes[1]
    more = {} if episode.get("training_steps") is None else {"at": episode["training_steps"]}
    go(visited, episode_link(episode, **more))
    with visited.page.expect_download() as download:
        visited.page.get_by_role("button", name="download as JSONL").click()
    text = Path(download.value.path()).read_text()
    (tmp_path / "downloaded.steps.jsonl").write_text(text)
    assert check(tmp_path / "downloaded.steps.jsonl") == f"1 episode, {episode['steps']} steps"
    _, *lines = (json.loads(line) for line in text.splitlines())
    expected = recorded[len(report.episodes[0]["steps_list"]) :][: len(lines)]
    assert len(lines) == episode["steps"]
    exact = ("reward", "observation", "action", "admissible_actions", "step", "env", "tokens", "credits", "scores")
    for got, line in zip(lines, expected, strict=True):
        left = {name: value for name, value in line.items() if value is not None and name != "advantages"}
        if kind == "training":
            left["training_steps"] = 256
        assert {name for name, value in got.items() if value is not None} - left.keys() <= {"note"}
        assert left.keys() - got.keys() == set()
        for name, value in left.items():
            assert got[name] == value if name in exact else _equal(got[name], value), name
        assert got.get("values", []) == pytest.approx(line.get("values", []), abs=2.5e-5 + 1e-9)
    assert visited.is_quiet, visited.said()


# ---------------------------------------------------------------------- the list


def _listed(number: int) -> Record:
    return {
        "agent": ["b", "a", "ä", "a/b"][number % 4],
        "task": ["Salad-v0", "Salad-v0 (max_episode_steps=30)"][number // 12],
        "env": "Salad-v0",
        "seed": [0, 2, 10][number % 3],
        "episode": number,
        "training_steps": None,
        "reset_seed": number,
        "return": [-1.5, 0, 0.5, 2, 10][number % 5],
        "discounted_return": 0.0,
        "success": [None, True, False][number % 3],
        "steps": number + 1,
        "invalid_actions": number % 2,
        "terminated": number % 4 > 0,
        "truncated": number % 4 == 0,
        "steps_list": None,
    }


@pytest.mark.matrix
def test_the_list_sorts_and_filters_as_python_does(visit: Open, tmp_path: Path) -> None:
    episodes = [_listed(number) for number in range(24)]
    visited = visit(write_report(Report("list", episodes=episodes), tmp_path / "page.html"))
    visited.until(READY)
    go(visited, link("episodes"))
    page = visited.page
    page.click('[data-sort="return"]')
    page.click('[data-sort="return"]')
    shown = page.evaluate(
        "[...document.querySelectorAll('.list [role=row]:not(.head) a')]"
        ".map((anchor) => Number(new URLSearchParams(anchor.hash.slice(1)).get('n')))"
    )
    assert shown == [row["episode"] for row in sorted(episodes, key=lambda row: row["return"], reverse=True)]
    filters = [
        ("a", "a/b", lambda row: row["agent"] == "a/b"),
        ("s", "10", lambda row: row["seed"] == 10),
        ("success", "0", lambda row: row["success"] is False),
        ("ended", "truncated", lambda row: row["truncated"]),
        ("from", "-1", lambda row: row["return"] >= -1),
        ("q", "STEPS=3", lambda row: "steps=3" in row["task"]),
    ]
    for name, value, test in filters:
        field = page.locator(f'.filters [name="{name}"]')
        is_select = field.evaluate("(element) => element.tagName") == "SELECT"
        field.select_option(value) if is_select else field.press_sequentially(value)
        assert page.inner_text("#count") == f"{sum(map(test, episodes))} of 24 episodes", name
        field.select_option("") if is_select else field.fill("")
        assert page.inner_text("#count") == "24 of 24 episodes"
    assert visited.is_quiet, visited.said()


# ---------------------------------------------------------------------- pointer and keyboard


@pytest.mark.parametrize(
    ("settings", "shown"),
    [
        ({"token": 5}, {"token": "..."}),
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
