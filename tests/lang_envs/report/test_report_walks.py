"""Ways through a page: keys, links, comparisons; and damage and private texts in the files."""

from __future__ import annotations

import copy
import platform
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import report_data
from browsing import Visit
from report_data import KITCHEN, episode_of, header_of
from report_pages import READY, Open, episode_link, go, report_of, settled

from lang_bench.runner.plan import Job
from lang_envs.report import Metric, Report, ReportError, Score, read_run, write_report
from lang_envs.report.pictures import frames_of

Record = dict[str, Any]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Report, Path]:
    folder = tmp_path_factory.mktemp("walks")
    report = report_of(report_data.small(folder / "small", n_episodes=2))
    return report, write_report(report, folder / "small.html", pictures=0)


def state(visited: Visit) -> dict[str, str]:
    """Return the state of the page, which the address follows within a moment."""
    return visited.page.evaluate("present()")


# ---------------------------------------------------------------------- keys


def test_every_key_does_what_the_list_of_keys_says(visit: Open, small: tuple[Report, Path]) -> None:
    report, page = small
    episode = report.episodes[1]
    steps = episode["steps_list"]
    visited = visit(page)
    visited.until(READY)
    press = visited.page.keyboard.press
    go(visited, episode_link(episode))

    def at(name: str = "step") -> int:
        return int(state(visited).get(name, "1"))

    for key, step in (("ArrowRight", 2), ("ArrowRight", 3), ("ArrowLeft", 2), ("End", 31), ("Home", 1)):
        press(key)
        assert at() == step, key
        assert f"step {step} of 30" in visited.page.inner_text(".where") or step == 31
    n_tokens = len(steps[0]["tokens"])
    for key, token in (*(("j", min(number, n_tokens)) for number in range(2, n_tokens + 3)), ("k", n_tokens - 1)):
        press(key)
        assert at("token") == token, key
        assert visited.page.evaluate("document.activeElement.dataset.token") == str(token - 1)
    visited.page.evaluate("document.activeElement.blur()")
    names = ["POAD", "NTPO", "action-level", "bi-level", "own \u03b3_token", "POAD, own critic"]
    rules = "[...document.querySelectorAll('tr[data-rule]')].map((row) => row.dataset.rule)"
    shown = {*names} - {"own \u03b3_token"}
    assert set(visited.page.evaluate(rules)) == shown
    for number, name in enumerate(names, 1):
        press(str(number))
        shown ^= {name}
        assert set(visited.page.evaluate(rules)) == shown, number
    colours = ["value", "delta", "probability", "entropy", "advantage"]
    for colour in colours:
        press("v")
        assert state(visited)["colour"] == colour
        assert visited.page.input_value("#colour") == colour
    rewarded = [number for number, step in enumerate(steps) if step["reward"] != 0]
    press("r")
    assert at() == next((number for number in rewarded if number > 0), rewarded[0]) + 1
    title, first = visited.page.inner_text("#view h2"), at("n")
    for key, number in (("n", 0), ("p", first)):  # the episode after it is of the other task
        press(key)  # the address changes at once, the view when its block is unpacked
        visited.until(
            lambda number=number: (
                at("n") == number  # type: ignore[misc]
                and (visited.page.inner_text("#view h2") == title) == (number == first)
            )
        )
    press("g")
    assert visited.page.evaluate("document.activeElement.ariaLabel") == "step"
    press("c")
    visited.until(lambda: state(visited)["v"] == "compare")
    for key, view in (("l", "episodes"), ("u", "runs"), ("o", "overview")):
        press(key)
        visited.until(lambda view=view: state(visited)["v"] == view)  # type: ignore[misc]
    press("/")
    assert visited.page.evaluate("document.activeElement.id") == "find"
    visited.page.keyboard.type("tu?")  # while typing they are letters
    assert visited.page.input_value("#find") == "tu?"
    press("Escape")
    press("?")
    assert visited.page.evaluate("document.getElementById('keys').open")
    visited.page.uncheck("#single-keys")
    press("Escape")
    before = state(visited)
    for key in "tlu?/":
        press(key)
    assert state(visited) == before
    assert not visited.page.evaluate("document.getElementById('keys').open")
    assert visited.is_quiet, visited.said()


# ---------------------------------------------------------------------- links


def test_links_open_the_same_step_and_token_in_a_new_page(visit: Open, small: tuple[Report, Path]) -> None:
    report, page = small
    rng = np.random.default_rng(4)
    visited = visit(page)
    visited.until(READY)
    for _ in range(4):
        episode = report.episodes[rng.integers(len(report.episodes))]
        step = int(rng.integers(1, len(episode["steps_list"]) + 1))
        token = int(rng.integers(1, len(episode["steps_list"][step - 1]["tokens"]) + 1))
        by = ["POAD", "NTPO", "bi-level"][: rng.integers(1, 4)]
        visited.page.goto("about:blank")
        visited.open(page, episode_link(episode, step=step, token=token, by=",".join(by), colour="value"))
        visited.until(READY)
        settled(visited)
        heading = f"{episode['agent']}, {episode['task']}, seed {episode['seed']}, episode {episode['episode']}"
        assert visited.page.inner_text("#view h2") == heading
        assert f"step {step} of 30" in visited.page.inner_text(".where")
        assert (
            visited.page.evaluate("document.querySelector('[data-token][aria-current]').dataset.token")
            == f"{token - 1}"
        )
        rules = visited.page.evaluate("[...document.querySelectorAll('tr[data-rule]')].map((row) => row.dataset.rule)")
        assert list(dict.fromkeys(rules)) == by
        assert visited.page.input_value("#colour") == "value"
    assert not visited.console, visited.said()
    assert not visited.errors, visited.said()


# ---------------------------------------------------------------------- compare, find, print


@pytest.fixture(scope="module")
def parted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Report, Path]:
    """Three agents in one situation: the second sees another text at step 4, the third does the same as the first."""
    report = report_of(report_data.small(tmp_path_factory.mktemp("parted") / "a", n_episodes=1))
    episodes = [episode for episode in report.episodes if episode["env"] == KITCHEN]
    second, third = copy.deepcopy(episodes[1]), episodes[2]
    second["steps_list"][7]["action"] = "Dance"
    second["steps_list"][3]["observation"] += " needle" + " hay" * 250_000 + " NEEDLE in 3.5 kg of hay."
    second["steps_list"][9]["admissible_actions"] = [f"go to place {n}" for n in range(2000)]
    second["steps_list"][9].pop("action_probs")
    report = Report(report.title, report.runs, report.metrics, report.scores, (), [episodes[0], second, third])
    return report, write_report(report, tmp_path_factory.mktemp("page") / "parted.html", pictures=0)


def _compare(first: Record, second: Record) -> str:
    return episode_link(first, a2=second["agent"], t2=second["task"], s2=second["seed"], n2=second["episode"]).replace(
        "v=episode", "v=compare"
    )


def _first_difference(first: Record, second: Record) -> int | None:
    fields = ("observation", "action", "reward")
    pairs = zip(first["steps_list"], second["steps_list"], strict=False)
    return next(
        (number for number, (left, right) in enumerate(pairs) if any(left[f] != right[f] for f in fields)), None
    )


def test_episodes_are_compared_up_to_the_step_that_python_finds(visit: Open, parted: tuple[Report, Path]) -> None:
    report, page = parted
    first, second, third = report.episodes
    visited = visit(page)
    visited.until(READY)
    go(visited, _compare(first, third))
    assert _first_difference(first, third) is None
    assert "The two episodes are identical." in visited.page.inner_text("#view")
    at = _first_difference(first, second)
    assert at == 3
    go(visited, _compare(first, second))
    assert f"are equal for {at} steps and part at step {at + 1}." in visited.page.inner_text("#parting-sentence")
    assert visited.page.inner_text("#parting").split() == [f"{at + 1}", "≠"]
    assert visited.page.locator(".sides a", has_text="Dance").count() == 1
    go(visited, episode_link(second, step=5))  # observations keep every character, those around decimal points too
    text = visited.page.inner_text("[aria-label=observation]")
    assert text == second["steps_list"][4]["observation"]
    assert visited.is_quiet, visited.said()


# ---------------------------------------------------------------------- damage


def test_a_number_that_is_not_finite_is_refused_and_leaves_the_old_page(tmp_path: Path) -> None:
    path = write_report(Report("a"), tmp_path / "page.html")
    before = path.read_bytes()
    score = Score("a", "t", "return", float("inf"), None, None, 1, 1, 1)
    with pytest.raises(ReportError, match="finite numbers"):
        write_report(Report("a", metrics=(Metric("return", "return"),), scores=(score,)), path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]


# ---------------------------------------------------------------------- private texts


def test_keys_home_folder_and_host_name_are_not_in_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, visit: Open
) -> None:
    home, key, host = "/data/people/marie", "sk-Planted0123456789", platform.node()
    monkeypatch.setattr(Path, "home", lambda: Path(home))
    agent = f"model of {home}/models/best"
    steps = copy.deepcopy(list(report_data.walk(KITCHEN, 0)))
    steps[0]["error"] = f'File "{home}/lib/a.py", line 1: /home/pierre/b.py'
    header = header_of(agent, (KITCHEN,), 1, [0], command=f"lang-bench run --agent x:api_key={key},a=1 {home}")
    header["agent"] |= {
        "arguments": {"api_key": key, "options": {"password": key}, "url": f"https://me:{key}@server/v1"},
        "spec": f"{home}/agent.py:Agent,api_key={key}",
    }
    header |= {"env_settings": {"tokenizer": f"{home}/tokenizer", "max_episode_steps": 30}}
    path = report_data.write(tmp_path / "a.jsonl", header, [episode_of(Job(KITCHEN, 0, 0), agent, steps)])
    report = report_of([path])
    page = write_report(report, tmp_path / "page.html", pictures=1)
    visited = visit(page)
    visited.until(READY)
    everything = page.read_text() + visited.page.evaluate(
        """async () => {
          const names = [...document.querySelectorAll('[id^="data-"]')].map((block) => block.id.slice(5));
          const texts = await Promise.all(names.filter((name) => name !== "tiles").map(inflate));
          return JSON.stringify(texts);
        }"""
    )
    assert "~/agent.py:Agent,api_key=..." in everything
    assert "~/models/best" in everything
    assert "--agent x:api_key=...,a=1 ~" in everything
    for private in (key, home, "marie", "pierre", str(tmp_path), *([host] if len(host) > 3 else [])):
        assert private not in everything, private


def test_a_tokenizer_of_a_file_is_not_loaded_for_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = report_data.small(tmp_path, n_episodes=1)[0]
    _, (episode, *_) = read_run(path)
    asked: list[object] = []
    monkeypatch.setattr(
        "lang_envs.core.resolve_tokenizer", lambda spec: asked.append(spec) or (_ for _ in ()).throw(OSError)
    )
    header = {**episode["header"], "env_settings": {**episode["header"]["env_settings"], "tokenizer": "/etc"}}
    assert "OSError" in frames_of(header, episode)  # type: ignore[operator]
    assert asked == ["byte"]
