"""Misbehaving agents, users and files."""

from __future__ import annotations

import importlib
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hostile_users
import numpy as np
import pytest
from PIL import Image
from rich.console import Console
from third_party import PaidDoors

from benchmarks.agents import AgentError, make_agent
from benchmarks.reports.credit_picture import credit_picture
from benchmarks.reports.folders import report_of_folder
from benchmarks.reports.html_report import write_html
from benchmarks.reports.report import improvements, markdown_tables, overview_table, write_report
from benchmarks.reports.rollouts import Rollout, RolloutStep, read_rollout
from benchmarks.reports.statistics import probability_of_improvement
from benchmarks.runner.episodes import play_episode
from benchmarks.runner.errors import AgentFailedError, BenchmarkError, ResultFileError
from benchmarks.runner.files import write_picture
from benchmarks.runner.lines import read_lines
from benchmarks.runner.plan import Plan, header_of
from benchmarks.runner.players import Player, Workers
from benchmarks.runner.results import load
from benchmarks.runner.session import measure
from lang_envs.errors import RewardError
from lang_envs.redaction import without_secrets
from lang_envs.report import ReportError
from lang_envs.report.results import steps_file
from lang_envs.wrappers import TextAction
from poad_sb3.common.episodes import EpisodeInPlay
from poad_sb3.prompts.templates import ContextSpec

KEYS, KITCHEN = "KeyToken-v0", "Overcooked-TomatoSalad-v0"


@pytest.fixture(autouse=True)
def _users_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "support"))


def _plan(agent: str, **changes: Any) -> Plan:
    return Plan(**{"agent": f"hostile_users:{agent}", "envs": (KEYS,), "episodes": 3, "seeds": 1, **changes})


def _episodes(path: Path) -> list[dict[str, Any]]:
    return [line.record for line in read_lines(path)][1:]


# ---------------------------------------------------------------------- agents


def test_an_agent_that_writes_into_info_changes_no_result(tmp_path: Path) -> None:
    for agent in ("First", "Cheats"):
        measure(_plan(agent, envs=(KEYS, KITCHEN), episodes=1, steps=True), tmp_path / f"{agent}.jsonl")
    ignored = {"agent"}
    honest, cheating = (
        [{key: value for key, value in one.items() if key not in ignored} for one in _episodes(tmp_path / name)]
        for name in ("First.jsonl", "Cheats.jsonl")
    )
    assert cheating == honest
    assert all(step["admissible_actions"] for step in _episodes(steps_file(tmp_path / "Cheats.jsonl")))


def test_an_agent_that_leaves_the_program_has_failed(tmp_path: Path) -> None:
    with pytest.raises(AgentFailedError, match=r"KeyToken-v0, seed 0, episode 0 .* got SystemExit: 0"):
        measure(_plan("Exits"), tmp_path / "exits.jsonl")


def test_a_worker_that_dies_is_told_of(tmp_path: Path) -> None:
    with pytest.raises(AgentFailedError, match="Expected the worker processes to live"):
        measure(_plan("Dies"), tmp_path / "dies.jsonl", n_workers=2)


def test_numbers_of_numpy_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "numpy.jsonl"
    measure(_plan("Answers", agent_settings={"which": "numpy"}), path)
    episode = _episodes(path)[0]
    assert (episode["prompt_tokens"], episode["cost"]) == (2 * episode["steps"], 0.5 * episode["steps"])


@pytest.mark.parametrize(
    ("which", "message"),
    [
        ("nan", "Expected a Usage of numbers, finite and not below 0"),
        ("negative", "Expected a Usage of numbers, finite and not below 0"),
        ("tuple", r"Expected a Usage of numbers.*got \(1, 2, 3\)"),
        ("note", "Expected a note that is a str; got object"),
        ("credit", "Expected finite log_probs and values"),
    ],
)
def test_answers_that_could_not_be_written_name_the_episode(which: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(AgentFailedError, match=f"KeyToken-v0, seed 0, episode 0 .*{message}"):
        measure(_plan("Answers", agent_settings={"which": which}), tmp_path / "bad.jsonl")


PLAYERS: dict[str, Callable[[TextAction], float]] = {
    "runner": lambda env: play_episode(env, make_agent("random"), 0, 1.0).episode_return,
    "poad eval": lambda env: EpisodeInPlay(0, KEYS, 0, env, ContextSpec()).step("take the red door")["reward"],
}


@pytest.mark.parametrize("player", PLAYERS)
def test_a_reward_is_one_finite_number(player: str) -> None:
    env = TextAction(PaidDoors(n_tries=1, pay=np.array([2.0])))
    assert PLAYERS[player](env) == 2.0
    for pay in (None, float("nan"), np.array([1.0, 2.0])):
        env = TextAction(PaidDoors(n_tries=1, pay=pay))
        with pytest.raises(RewardError, match=r"Expected a (finite )?number as reward of <PaidDoors.*; got .*\. Fix: "):
            PLAYERS[player](env)


def test_an_agent_without_name_or_settings_has_those_of_its_place() -> None:
    for name in ("First", "one_object"):
        agent = make_agent(f"hostile_users:{name}")
        assert agent.name == f"hostile_users:{name}"
        assert "source_sha256" in agent.settings


def test_a_callable_that_remembers_is_refused(tmp_path: Path) -> None:
    """Its episodes would depend on each other, and on the number of workers."""
    with pytest.raises(AgentFailedError, match=r"to begin every episode alike; its 'n' has changed .*begin\(self"):
        measure(_plan("Remembers"), tmp_path / "bad.jsonl")
    files = [tmp_path / f"{n}.jsonl" for n in (1, 2)]
    for n, path in enumerate(files, start=1):
        measure(_plan("RemembersAnEpisode"), path, n_workers=n, workers=Workers.THREADS)
    assert _episodes(files[0]) == _episodes(files[1])
    with pytest.raises(BenchmarkError, match="Expected an agent of its own for every thread"):
        measure(_plan("remembering", envs=(KITCHEN,)), tmp_path / "shared.jsonl", n_workers=3, workers=Workers.THREADS)


def test_a_record_of_its_own_is_a_copy(tmp_path: Path) -> None:
    measure(_plan("CountsInOneDict", steps=True, episodes=1), tmp_path / "own.jsonl")
    steps = [line.record for line in read_lines(tmp_path / "own.steps.jsonl")][1:]
    assert [step["error"] for step in steps] == [f"step {n}" for n in range(len(steps))]


@pytest.mark.parametrize(
    ("which", "message"),
    [
        ("tokens", "Expected the texts of tokens; got others"),
        ("options", r"as many entries as in tokens in token_options .*got 7"),
    ],
)
def test_steps_that_could_not_be_read_again_are_not_written(which: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(AgentFailedError, match=message):
        measure(_plan("Steps", agent_settings={"which": which}, steps=True), tmp_path / "bad.jsonl")


def test_an_agent_that_cannot_be_made_shows_why(tmp_path: Path) -> None:
    with pytest.raises(AgentFailedError, match=r"'hostile_users:Unmade' to make an agent; got KeyError: 'model'"):
        measure(_plan("Unmade"), tmp_path / "bad.jsonl")
    with pytest.raises(AgentError, match=r"to be called with \[\]; got missing a required .*'colour'"):
        make_agent("hostile_users:remembers_with")


def test_only_a_results_file_is_begun_again(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text('{"agent": "smith", "precious": 1}\n')
    with pytest.raises(ResultFileError, match="Expected a results file, or none"):
        measure(_plan("First"), path)
    assert "precious" in path.read_text()


def test_different_agents_of_one_name_are_no_row(tmp_path: Path) -> None:
    for name, temper in (("a", "calm"), ("b", "wild")):
        plan = Plan("runner_users:Valued", (KEYS if name == "a" else KITCHEN,), 1, 1, agent_settings={"temper": temper})
        measure(plan, tmp_path / f"{name}.jsonl")
    paths = sorted(tmp_path.glob("?.jsonl"))
    with pytest.raises(ResultFileError, match=r"Expected one agent of each name; valued of .* Fix: .*--label"):
        load(paths)
    report = report_of_folder(tmp_path)
    assert {one.agent for one in report.scores} == {"valued"}
    assert "b.jsonl is left out. Expected one agent of each name" in report.about[-1]


def test_an_id_may_name_its_module(tmp_path: Path) -> None:
    (tmp_path / "own_doors.py").write_text(
        "import gymnasium as gym\nfrom lang_envs.envs.multikey.env import MultiKeyEnv\n"
        "gym.register('Own/Doors-v0', MultiKeyEnv, max_episode_steps=9)\n"
    )
    sys.path.append(str(tmp_path))
    try:
        importlib.import_module("own_doors")
        for n, path in enumerate((tmp_path / "1.jsonl", tmp_path / "2.jsonl"), start=1):
            measure(Plan("random", ("own_doors:Own/Doors-v0",), 2, 1), path, n_workers=n, workers=Workers.THREADS)
    finally:
        sys.path.remove(str(tmp_path))
    assert _episodes(tmp_path / "1.jsonl") == _episodes(tmp_path / "2.jsonl")


def test_settings_that_are_no_json_are_refused() -> None:  # they would be others in every process
    with pytest.raises(AgentError, match="in terms of JSON"):
        make_agent("hostile_users:Unnamable")


def test_a_module_that_ends_the_program_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "script_without_guard.py").write_text("import sys\nsys.exit(2)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(AgentError, match="cannot be imported"):
        make_agent("script_without_guard:agent")


def test_threads_do_not_share_an_agent(tmp_path: Path) -> None:
    plan = _plan("one_object", envs=(KITCHEN,), episodes=4)
    with pytest.raises(BenchmarkError, match="Expected an agent of its own for every thread"):
        measure(plan, tmp_path / "shared.jsonl", n_workers=4, workers=Workers.THREADS)
    measure(_plan("Counts", envs=(KITCHEN,), episodes=4), tmp_path / "own.jsonl", n_workers=4, workers=Workers.THREADS)
    assert len(_episodes(tmp_path / "own.jsonl")) == 4


# ---------------------------------------------------------------------- names and texts in reports


def test_names_are_shown_as_they_are_and_never_run(tmp_path: Path) -> None:
    path = tmp_path / "hostile.jsonl"
    measure(_plan("Marked", label=hostile_users.HOSTILE, steps=True), path)
    measure(Plan("random", (KEYS,), 3, 1), tmp_path / "random.jsonl")
    written = {one.name: one for one in write_report([path, tmp_path / "random.jsonl"], tmp_path / "report")}
    text = written["report.md"].read_text(encoding="utf-8")
    assert "<img" not in text
    assert "[b](javascript" not in text
    assert "\\[b\\](javascript" in text
    assert all(line.count(" | ") - line.count("\\| ") == 7 for line in text.split("\n") if line.startswith("| &lt;img"))
    write_html([path, tmp_path / "random.jsonl"], tmp_path / "report.html", pictures=0)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<img" not in page
    assert '" onmouseover' not in page
    with Image.open(written["credit.png"]) as picture:
        assert picture.width < 8_000
    assert {"scores.png", "improvement.png"} <= written.keys()


@pytest.mark.matrix
def test_the_legend_of_credit_is_red_where_all_credit_is_green(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).uniform(0.0, 1.0, (20, 8)).tolist()
    steps = [RolloutStep("You see it.", ("word",) * 8, 0.0, (), {}, {"POAD": row, "NTPO": row}) for row in rows]
    drawn = credit_picture(Rollout("green", ("POAD", "NTPO"), steps))
    with Image.open(write_picture(tmp_path / "credit.png", drawn)) as picture:
        shown = np.asarray(picture.convert("RGB"), dtype=int)
    assert np.abs(shown - np.asarray(drawn, dtype=int)).max() < 24  # the median cut had made brown of the red


def test_a_legend_names_an_agent_that_begins_with_an_underscore(tmp_path: Path) -> None:
    from benchmarks.reports.plots import plot_scores

    measure(Plan("random", (KEYS,), 2, 1, label="_mine"), tmp_path / "mine.jsonl")
    figure = plot_scores(load([tmp_path / "mine.jsonl"]))
    assert any("_mine" in text.get_text() for text in figure.legends[0].get_texts())


def test_other_arguments_are_another_task(tmp_path: Path) -> None:
    measure(Plan("random", (KEYS,), 2, 2, env_settings={"horizon": 2}), tmp_path / "short.jsonl")
    measure(Plan("oracle", (KEYS,), 2, 2), tmp_path / "whole.jsonl")
    cells = load([tmp_path / "short.jsonl", tmp_path / "whole.jsonl"])
    assert improvements(cells) == []
    text = markdown_tables(cells)
    assert f"## {KEYS} (horizon=2)\n" in text
    assert f"## {KEYS}\n" in text


def test_every_machine_of_a_report_is_named(tmp_path: Path) -> None:
    paths = [tmp_path / "one.jsonl", tmp_path / "other.jsonl"]
    for label, path in zip(("one", "other"), paths, strict=True):
        measure(Plan("random", (KEYS,), 1, 1, label=label), path)
    lines = paths[1].read_text().split("\n")
    paths[1].write_text("\n".join([json.dumps({**json.loads(lines[0]), "cpu": "Another CPU"}), *lines[1:]]))
    text = write_report(paths, tmp_path / "report")[0].read_text()
    assert text.count("cores; Python") == 2
    assert "On Another CPU" in text


def test_numbers_are_whole_in_the_terminal_however_long_the_names(tmp_path: Path) -> None:
    measure(Plan("random", (KITCHEN,), 2, 2, label="a long name " * 9), tmp_path / "long.jsonl")
    console = Console(width=100, file=io.StringIO())
    console.print(overview_table(load([tmp_path / "long.jsonl"])))
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert "\u2026" not in shown
    assert "invalid actions" in shown


# ---------------------------------------------------------------------- files


def test_a_file_that_nothing_was_played_into_is_called_empty(tmp_path: Path) -> None:
    (tmp_path / "none.jsonl").touch()
    with pytest.raises(ReportError, match=r"Expected a header in line 1 of .*none\.jsonl; got none"):
        load([tmp_path / "none.jsonl"])


def test_files_put_together_are_no_results_file(tmp_path: Path) -> None:
    for label in ("one", "other"):
        measure(Plan("random", (KEYS,), 1, 1, label=label), tmp_path / f"{label}.jsonl")
    both, twice = tmp_path / "both.jsonl", tmp_path / "twice.jsonl"
    first, other = ((tmp_path / f"{label}.jsonl").read_text() for label in ("one", "other"))
    both.write_text(first + other)
    with pytest.raises(ReportError, match=r"line 3 of .*both"):
        load([both])
    twice.write_text(first + first.split("\n")[1] + "\n")
    with pytest.raises(ReportError, match=r"line 3 of .*twice"):
        load([twice])


def test_a_file_with_other_line_ends_or_a_mark_is_read_and_gone_on_with(tmp_path: Path) -> None:
    path, plan = tmp_path / "own.jsonl", Plan("random", (KEYS,), 3, 1)
    measure(plan, path)
    whole = path.read_bytes()
    path.write_bytes(b"\xef\xbb\xbf" + b"\r\n".join(whole.split(b"\n")[:-2]) + b"\r\n")
    assert measure(plan, path).played == 1
    assert [one["episode"] for one in load([path])[0].episodes] == [0, 1, 2]


@pytest.mark.parametrize(
    ("change", "fault"),
    [({"steps": None}, "an integer .*; got null"), ({"return": "x"}, 'a finite number .*; got "x"')],
)
def test_rejects_an_episode_of_wrong_types_where_a_run_goes_on(
    change: dict[str, Any], fault: str, tmp_path: Path
) -> None:
    path, plan = tmp_path / "own.jsonl", Plan("random", (KEYS,), 2, 1, steps=True)
    measure(plan, path)
    header, first, _ = path.read_text().splitlines()
    path.write_text(f"{header}\n{json.dumps({**json.loads(first), **change})}\n")
    with pytest.raises(ResultFileError, match=rf"Expected {fault}\. Fix: restore the file"):
        measure(plan, path)
    path.write_text(f"{header}\n{'[' * 100_000}\n")
    with pytest.raises(ResultFileError, match="Expected a JSON object in every line; line 2"):
        measure(plan, path)


def test_an_episode_without_a_line_of_its_own_is_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    measure(_plan("Marked", envs=(KITCHEN,), episodes=1, steps=True), path)
    assert read_rollout(path) is not None
    path.write_bytes(path.read_bytes().split(b"\n")[0] + b"\n")
    assert read_rollout(path) is None


def test_the_shown_episode_is_the_first_that_succeeded_or_the_one_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    measure(_plan("Marked", steps=True), path)
    files = {file: [json.loads(line) for line in file.read_bytes().splitlines()] for file in (path, steps_file(path))}
    for succeeded, shown in ((1, 1), (2, 2), (None, 0)):
        for file, (head, *lines) in files.items():
            for line in lines:
                line["success"] = line["episode"] == succeeded
            file.write_text("".join(json.dumps(one) + "\n" for one in (head, *lines)), encoding="utf-8")
        titles = [read_rollout(path, wanted).title for wanted in (None, f"{KEYS}/0/{shown}")]
        assert titles[0] == titles[1]
    assert read_rollout(path, f"{KEYS}/0/9") is None


def test_a_recorded_action_may_hold_any_separator_of_lines(tmp_path: Path) -> None:
    (tmp_path / "steps.jsonl").write_text(json.dumps({"action": "a\u2028b\x85c"}, ensure_ascii=False) + "\n", "utf-8")
    (tmp_path / "plain.txt").write_bytes(b"\xef\xbb\xbfwait\r\nlook\r\n")
    for name, actions in (("steps.jsonl", ["a\u2028b\x85c"]), ("plain.txt", ["wait", "look"])):
        agent = make_agent(f"scripted:{tmp_path / name}")
        agent.begin(None, 0)  # type: ignore[arg-type]
        assert [agent.act("", {}).text for _ in actions] == actions


def test_a_changed_script_is_another_agent(tmp_path: Path) -> None:
    script, settings = tmp_path / "plain.txt", []
    for text in ("wait\n", "look\n"):
        script.write_text(text)
        settings.append(make_agent(f"scripted:{script}").settings)
    assert settings[0] != settings[1]


# ---------------------------------------------------------------------- secrets, and many seeds


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://user:word@host:1/v1?key=x#y", "http://host:1/v1"),
        ("base_url=https://user:w@rd@host/v1", "base_url=https://host/v1"),
        ("https://host/v1", "https://host/v1"),
        ("checkpoint:runs/a?b@c", "checkpoint:runs/a?b@c"),
        ("api_key=sk-1", "api_key=..."),
        ("--agent-set=password=a b", "--agent-set=password=..."),
        ("mine:Agent,token=abc,n=1", "mine:Agent,token=...,n=1"),
        ("password: 'a b' and more", "password: '...' and more"),
        ("options.token=SECRET", "options.token=..."),
        ('options={"token": "SECRET", "n": 1}', 'options={"token": "...", "n": 1}'),
        ("X-Api-Key=SECRET", "X-Api-Key=..."),
        ('{"Authorization": "Bearer SECRET"}', '{"Authorization": "..."}'),
        ("TypeError: sorted(scores, key=scores.get) failed", "TypeError: sorted(scores, key=scores.get) failed"),
        ("key=north", "key=north"),
        ("gamma_token=0.95", "gamma_token=0.95"),
        ("api_key_env=OPENAI_API_KEY", "api_key_env=OPENAI_API_KEY"),
    ],
)
def test_texts_are_shown_without_secrets(text: str, shown: str) -> None:
    assert without_secrets(text) == shown


def test_no_secret_of_an_address_gets_into_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    address = "http://user:SECRET@host/v1?token=SECRET"
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--agent-set", f"base_url={address}"])
    plan = Plan("random", (KEYS,), 1, 1, agent_settings={"base_url": address})
    header = header_of(plan, {0: Player(Plan("random", (KEYS,), 1, 1)).identity(0)})
    assert "SECRET" not in json.dumps(header)
    assert header["agent"]["arguments"]["base_url"] == "http://host/v1"


def test_no_secret_setting_gets_into_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--agent-set", "api_key=SECRET words"])
    secrets = {"api_key": ["SECRET"], "options": {"hf_token": "SECRET"}, "Authorization": "Bearer SECRET"}
    plan = Plan("random", (KEYS,), 1, 1, agent_settings=secrets, env_settings={"private_key": "SECRET"})
    identity = Player(Plan("random", (KEYS,), 1, 1)).identity(0)
    header = header_of(plan, {0: identity._replace(settings={"api_key": "SECRET", "key_env": "NAME"})})
    assert "SECRET" not in json.dumps(header)
    assert "words" not in header["command"]
    assert header["agent"]["settings"] == {"api_key": "...", "key_env": "NAME"}


def test_hundreds_of_seeds_are_compared_in_little_memory() -> None:
    import tracemalloc

    scores = np.random.default_rng(0).normal(size=200)
    tracemalloc.start()
    try:
        found = probability_of_improvement([scores], [scores])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.value == pytest.approx(0.5)
    assert peak < 100e6  # all pairs of all resamples were 1.6 GB
