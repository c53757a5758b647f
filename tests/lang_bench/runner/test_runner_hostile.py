"""Misbehaving agents, users and files."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hostile_users
import numpy as np
import pytest
from third_party import PaidDoors

from lang_bench.agents import AgentError, make_agent
from lang_bench.reports.comparisons import comparison_tables
from lang_bench.reports.html_report import write_html
from lang_bench.runner.episodes import play_episode
from lang_bench.runner.errors import AgentFailedError, BenchmarkError, ResultFileError
from lang_bench.runner.lines import read_lines
from lang_bench.runner.plan import Plan, header_of
from lang_bench.runner.players import Player, Workers
from lang_bench.runner.results import load
from lang_bench.runner.session import measure
from lang_envs.errors import RewardError
from lang_envs.redaction import without_secrets
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
        [{key: value for key, value in episode.items() if key not in ignored} for episode in _episodes(tmp_path / name)]
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


@pytest.mark.parametrize(
    ("which", "message"),
    [
        ("nan", "Expected a Usage of numbers, finite and not below 0"),
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


def test_steps_that_could_not_be_read_again_are_not_written(tmp_path: Path) -> None:
    with pytest.raises(AgentFailedError, match=r"as many entries as in tokens in token_options .*got 7"):
        measure(_plan("Steps", steps=True), tmp_path / "bad.jsonl")


def test_an_agent_that_cannot_be_made_shows_why(tmp_path: Path) -> None:
    with pytest.raises(AgentFailedError, match=r"'hostile_users:Unmade' to make an agent; got KeyError: 'model'"):
        measure(_plan("Unmade"), tmp_path / "bad.jsonl")
    with pytest.raises(AgentError, match=r"to be called with \[\]; got missing a required .*'colour'"):
        make_agent("hostile_users:remembers_with")


def test_different_agents_of_one_name_are_no_row(tmp_path: Path) -> None:
    for name, temper in (("a", "calm"), ("b", "wild")):
        plan = Plan("runner_users:Valued", (KEYS if name == "a" else KITCHEN,), 1, 1, agent_settings={"temper": temper})
        measure(plan, tmp_path / f"{name}.jsonl")
    paths = sorted(tmp_path.glob("?.jsonl"))
    with pytest.raises(ResultFileError, match=r"Expected one agent of each name; valued of .* Fix: .*--label"):
        load(paths)


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


# ---------------------------------------------------------------------- names and texts in reports


def test_names_are_shown_as_they_are_and_never_run(tmp_path: Path) -> None:
    path = tmp_path / "hostile.jsonl"
    measure(_plan("Marked", label=hostile_users.HOSTILE, steps=True), path)
    measure(Plan("random", (KEYS,), 3, 1), tmp_path / "random.jsonl")
    write_html([path, tmp_path / "random.jsonl"], tmp_path / "report.html", pictures=0)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<img" not in page
    assert '" onmouseover' not in page


def test_other_arguments_are_another_task(tmp_path: Path) -> None:
    measure(Plan("random", (KEYS,), 2, 2, env_settings={"horizon": 2}), tmp_path / "short.jsonl")
    measure(Plan("oracle", (KEYS,), 2, 2), tmp_path / "whole.jsonl")
    cells = load([tmp_path / "short.jsonl", tmp_path / "whole.jsonl"])
    assert comparison_tables(cells) == []
    assert [cell.task for cell in cells] == [f"{KEYS} (horizon=2)", KEYS]


def test_arguments_in_another_order_are_the_same_task(tmp_path: Path) -> None:
    for agent, names in (("random", ("horizon", "n_tokens")), ("oracle", ("n_tokens", "horizon"))):
        measure(Plan(agent, (KEYS,), 2, 2, env_settings=dict.fromkeys(names, 3)), tmp_path / f"{agent}.jsonl")
    assert {cell.task for cell in load(sorted(tmp_path.glob("??????.jsonl")))} == {f"{KEYS} (horizon=3, n_tokens=3)"}


def test_a_listed_action_that_does_not_fit_is_no_fault_of_the_agent(tmp_path: Path) -> None:
    with pytest.raises(AgentFailedError, match=r"Expected listed actions to be valid; .* Fix: a larger max_action_len"):
        measure(Plan("random", (KEYS,), 1, 1, env_settings={"max_action_length": 10}), tmp_path / "short.jsonl")


def test_one_id_with_and_without_its_module_is_one_task() -> None:
    with pytest.raises(BenchmarkError, match=f"Expected every environment once; got {KEYS} again"):
        Plan("random", (KEYS, f"lang_envs:{KEYS}"))


def test_another_table_of_one_name_is_another_measurement(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    table, path = tmp_path / "own.csv", tmp_path / "own.jsonl"
    plan = Plan("oracle", ("DataSciCoding-v0",), 2, 1, env_settings={"table": str(table), "target": "y"})
    table.write_text("a,y\n" + "".join(f"{n},{n % 2}\n" for n in range(40)))
    measure(plan, path)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    table.write_text("a,y\n" + "".join(f"{n},{n // 20}\n" for n in range(40)))
    with pytest.raises(
        ResultFileError, match=r"holds another measurement\. worlds\.DataSciCoding-v0\.dataset: expected"
    ):
        measure(plan, path)


# ---------------------------------------------------------------------- files


def test_rejects_an_episode_of_wrong_types_where_a_run_goes_on(tmp_path: Path) -> None:
    path, plan = tmp_path / "own.jsonl", Plan("random", (KEYS,), 2, 1, steps=True)
    measure(plan, path)
    header, first, _ = path.read_text().splitlines()
    path.write_text(f"{header}\n{json.dumps({**json.loads(first), 'steps': None})}\n")
    with pytest.raises(ResultFileError, match=r"Expected an integer .*; got null\. Fix: restore the file"):
        measure(plan, path)


# ---------------------------------------------------------------------- secrets, and many seeds


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("base_url=https://user:w@rd@host/v1", "base_url=https://host/v1"),
        ("api_key=sk-1", "api_key=..."),
        ("--agent-set=password=a b", "--agent-set=password=..."),
        ("password: 'a b' and more", "password: '...' and more"),
        ('options={"token": "SECRET", "n": 1}', 'options={"token": "...", "n": 1}'),
        ('{"Authorization": "Bearer SECRET"}', '{"Authorization": "..."}'),
        ("gamma_token=0.95", "gamma_token=0.95"),
        ("api_key_env=OPENAI_API_KEY", "api_key_env=OPENAI_API_KEY"),
    ],
)
def test_texts_are_shown_without_secrets(text: str, shown: str) -> None:
    assert without_secrets(text) == shown


def test_no_secret_setting_gets_into_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--agent-set", "api_key=SECRET words"])
    secrets = {"api_key": ["SECRET"], "options": {"hf_token": "SECRET"}, "base_url": "http://user:SECRET@host/v1"}
    plan = Plan("random", (KEYS,), 1, 1, agent_settings=secrets, env_settings={"private_key": "SECRET"})
    identity = Player(Plan("random", (KEYS,), 1, 1)).identity(0)
    header = header_of(
        plan, {0: identity._replace(settings={"api_key": "SECRET", "key_env": "NAME"})}, envs_are_here=False
    )
    assert "SECRET" not in json.dumps(header)
    assert "words" not in header["command"]
    assert header["agent"]["settings"] == {"api_key": "...", "key_env": "NAME"}
