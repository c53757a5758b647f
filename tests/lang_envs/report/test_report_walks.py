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

from benchmarks.runner.plan import Job
from lang_envs.report import Metric, Report, ReportError, Score, read_run, write_report
from lang_envs.report.pictures import frames_of

Record = dict[str, Any]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Report, Path]:
    folder = tmp_path_factory.mktemp("walks")
    report = report_of(report_data.small(folder / "small", n_episodes=2))
    return report, write_report(report, folder / "small.html", pictures=0)


def state(seen: Visit) -> dict[str, str]:
    """Return the state of the page, which the address follows within a moment."""
    return seen.page.evaluate("present()")


# ---------------------------------------------------------------------- keys


def test_every_key_does_what_the_list_of_keys_says(visit: Open, small: tuple[Report, Path]) -> None:
    report, page = small
    episode = report.episodes[1]
    steps = episode["steps_list"]
    seen = visit(page)
    seen.until(READY)
    press = seen.page.keyboard.press
    go(seen, episode_link(episode))

    def at(name: str = "step") -> int:
        return int(state(seen).get(name, "1"))

    for key, step in (("ArrowRight", 2), ("ArrowRight", 3), ("ArrowLeft", 2), ("End", 31), ("Home", 1)):
        press(key)
        assert at() == step, key
        assert f"step {step} of 30" in seen.page.inner_text(".where") or step == 31
    n_tokens = len(steps[0]["tokens"])
    for key, token in (*(("j", min(place, n_tokens)) for place in range(2, n_tokens + 3)), ("k", n_tokens - 1)):
        press(key)
        assert at("token") == token, key
        assert seen.page.evaluate("document.activeElement.dataset.token") == str(token - 1)
    seen.page.evaluate("document.activeElement.blur()")
    names = ["POAD", "NTPO", "action-level", "bi-level", "own \u03b3_token", "POAD, own critic"]
    rules = "[...document.querySelectorAll('tr[data-rule]')].map((one) => one.dataset.rule)"
    shown = {*names} - {"own \u03b3_token"}
    assert set(seen.page.evaluate(rules)) == shown
    for place, name in enumerate(names, 1):
        press(str(place))
        shown ^= {name}
        assert set(seen.page.evaluate(rules)) == shown, place
    colours = ["value", "delta", "probability", "entropy", "advantage"]
    for colour in colours:
        press("v")
        assert state(seen)["colour"] == colour
        assert seen.page.input_value("#colour") == colour
    rewarded = [place for place, step in enumerate(steps) if step["reward"] != 0]
    press("r")
    assert at() == next((place for place in rewarded if place > 0), rewarded[0]) + 1
    invalid = [place for place, step in enumerate(steps) if step["invalid"]]
    press("Home")
    press("i")
    if invalid:
        assert at() == next((place for place in invalid if place > 0), invalid[0]) + 1
    press("Home")
    seen.page.select_option("[aria-label=speed]", "5")
    seen.page.evaluate("document.activeElement.blur()")
    press("Space")
    seen.until(lambda: at() > 1, "a step that is played")
    press("Space")
    stopped = at()
    seen.page.wait_for_timeout(450)  # time for two more steps
    assert at() == stopped
    title, first = seen.page.inner_text("#view h2"), at("n")
    for key, number in (("n", 0), ("p", first)):  # the episode after it is of the other task
        press(key)  # the address changes at once, the view when its block is unpacked
        seen.until(
            lambda number=number: (
                at("n") == number  # type: ignore[misc]
                and (seen.page.inner_text("#view h2") == title) == (number == first)
            )
        )
    press("g")
    assert seen.page.evaluate("document.activeElement.ariaLabel") == "step"
    press("c")
    seen.until(lambda: state(seen)["v"] == "compare")
    for key, view in (("l", "episodes"), ("u", "runs"), ("o", "overview")):
        press(key)
        seen.until(lambda view=view: state(seen)["v"] == view)  # type: ignore[misc]
    for name in ("light", "dark", "system"):
        press("t")
        assert seen.page.inner_text("#theme") == f"theme: {name}"
    press("/")
    assert seen.page.evaluate("document.activeElement.id") == "find"
    seen.page.keyboard.type("tulojn?")  # while typing they are letters
    assert seen.page.input_value("#find") == "tulojn?"
    assert state(seen)["v"] == "overview"
    press("Escape")
    press("?")
    assert seen.page.evaluate("document.getElementById('keys').open")
    press("l")  # not while the list of keys is open
    seen.page.uncheck("#single-keys")
    press("Escape")
    assert not seen.page.evaluate("document.getElementById('keys').open")
    before = state(seen)
    for key in "tlu?/":
        press(key)
    assert state(seen) == before
    assert seen.page.inner_text("#theme") == "theme: system"
    assert not seen.page.evaluate("document.getElementById('keys').open")
    assert seen.is_quiet, seen.said()


# ---------------------------------------------------------------------- links


@pytest.mark.parametrize("n_links", [4, pytest.param(24, marks=pytest.mark.matrix)])
def test_links_open_the_same_step_and_token_in_a_new_page(
    visit: Open, small: tuple[Report, Path], n_links: int
) -> None:
    report, page = small
    rng = np.random.default_rng(n_links)
    seen = visit(page)
    seen.until(READY)
    for _ in range(n_links):
        episode = report.episodes[rng.integers(len(report.episodes))]
        step = int(rng.integers(1, len(episode["steps_list"]) + 1))
        token = int(rng.integers(1, len(episode["steps_list"][step - 1]["tokens"]) + 1))
        by = ["POAD", "NTPO", "bi-level"][: rng.integers(1, 4)]
        seen.page.goto("about:blank")
        seen.open(page, episode_link(episode, step=step, token=token, by=",".join(by), colour="value"))
        seen.until(READY)
        settled(seen)
        place = f"{episode['agent']}, {episode['task']}, seed {episode['seed']}, episode {episode['episode']}"
        assert seen.page.inner_text("#view h2") == place
        assert f"step {step} of 30" in seen.page.inner_text(".where")
        assert (
            seen.page.evaluate("document.querySelector('[data-token][aria-current]').dataset.token") == f"{token - 1}"
        )
        rules = seen.page.evaluate("[...document.querySelectorAll('tr[data-rule]')].map((one) => one.dataset.rule)")
        assert list(dict.fromkeys(rules)) == by
        assert seen.page.input_value("#colour") == "value"
    assert not seen.console, seen.said()
    assert not seen.errors, seen.said()


# ---------------------------------------------------------------------- compare, find, print


@pytest.fixture(scope="module")
def parted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Report, Path]:
    """Three agents in one situation: the second sees another text at step 4, the third does the same as the first."""
    report = report_of(report_data.small(tmp_path_factory.mktemp("parted") / "a", n_episodes=1))
    episodes = [one for one in report.episodes if one["env"] == KITCHEN]
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
    return next((place for place, (one, two) in enumerate(pairs) if any(one[f] != two[f] for f in fields)), None)


def test_episodes_are_compared_up_to_the_step_that_python_finds(visit: Open, parted: tuple[Report, Path]) -> None:
    report, page = parted
    first, second, third = report.episodes
    seen = visit(page)
    seen.until(READY)
    go(seen, _compare(first, third))
    assert _first_difference(first, third) is None
    assert "The two episodes are identical." in seen.page.inner_text("#view")
    at = _first_difference(first, second)
    assert at == 3
    go(seen, _compare(first, second))
    assert f"are equal for {at} steps and part at step {at + 1}." in seen.page.inner_text("#parting-sentence")
    assert seen.page.inner_text("#parting").split() == [f"{at + 1}", "≠"]
    assert seen.page.locator(".sides a", has_text="Dance").count() == 1
    go(seen, episode_link(second, step=5))  # observations keep every character, those around decimal points too
    text = seen.page.inner_text("[aria-label=observation]")
    assert text == second["steps_list"][4]["observation"]
    assert seen.is_quiet, seen.said()


# ---------------------------------------------------------------------- damage


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_number_that_is_not_finite_is_refused_and_leaves_the_old_page(tmp_path: Path, number: float) -> None:
    path = write_report(Report("a"), tmp_path / "page.html")
    before = path.read_bytes()
    score = Score("a", "t", "return", number, None, None, 1, 1, 1)
    with pytest.raises(ReportError, match="finite numbers"):
        write_report(Report("a", metrics=(Metric("return", "return"),), scores=(score,)), path)
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["page.html"]


def test_an_error_in_a_view_is_shown(visit: Open, small: tuple[Report, Path]) -> None:
    seen = visit(small[1])
    seen.until(READY)
    seen.page.evaluate("report.index.runs = null; location.hash = '#v=runs'")
    seen.until(lambda: "This view cannot be drawn" in seen.page.inner_text("#view"))
    assert len(seen.errors) == 1  # the console has it as well
    go(seen, "#v=episodes")
    assert seen.page.inner_text("#count") == "12 of 12 episodes"


# ---------------------------------------------------------------------- private texts


def test_keys_home_folder_and_host_name_are_not_in_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, visit: Open
) -> None:
    home, key, host = "/data/people/marie", "sk-Planted0123456789", platform.node()
    monkeypatch.setattr(Path, "home", lambda: Path(home))
    agent = f"model of {home}/models/best"
    steps = copy.deepcopy(list(report_data.walk(KITCHEN, 0)))
    steps[0]["error"] = f'File "{home}/lib/a.py", line 1: /home/pierre/b.py'
    header = header_of(
        agent, (KITCHEN,), 1, [0], command=f"python -m benchmarks run --agent x:api_key={key},a=1 {home}"
    )
    header["agent"] |= {
        "arguments": {"api_key": key, "options": {"password": key}, "url": f"https://me:{key}@server/v1"},
        "spec": f"{home}/agent.py:Agent,api_key={key}",
    }
    header |= {"env_settings": {"tokenizer": f"{home}/tokenizer", "max_episode_steps": 30}}
    path = report_data.write(tmp_path / "a.jsonl", header, [episode_of(Job(KITCHEN, 0, 0), agent, steps)])
    report = report_of([path])
    page = write_report(report, tmp_path / "page.html", pictures=1)
    seen = visit(page)
    seen.until(READY)
    everything = page.read_text() + seen.page.evaluate(
        """async () => {
          const names = [...document.querySelectorAll('[id^="data-"]')].map((one) => one.id.slice(5));
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
