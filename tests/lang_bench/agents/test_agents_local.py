"""Random, oracle, coder, script and person."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from playing import play, texts

from lang_bench.agents import AgentError, make_agent
from lang_envs.envs.datascicoding.coder import RandomCoder

FOOD, SALAD = "VirtualHome-FoodPreparation-v0", "Overcooked-TomatoSalad-v0"
CODING = "DataSciCoding-iris-v0"


def test_random_is_a_function_of_the_seed_whatever_was_played_before() -> None:
    agent = make_agent("random")
    first, second = (texts(play(FOOD, agent, seed=seed)) for seed in (0, 1))
    assert first != second
    assert texts(play(FOOD, agent, seed=0)) == first
    assert texts(play(FOOD, make_agent("random"), seed=1)) == second


def test_the_coder_is_the_random_coder_of_the_seed_and_writes_code_only() -> None:
    steps = play(CODING, make_agent("coder"), seed=5, most=1)
    assert texts(steps) == [RandomCoder(5)(None, steps[0].observation)]  # type: ignore[arg-type]
    with pytest.raises(AgentError, match=r"takes code for 'coder'; got VirtualHome.*lists its actions"):
        play(FOOD, make_agent("coder"))
    with pytest.raises(ValueError, match="probability"):
        make_agent("coder", spoiled=2.0)


# ---------------------------------------------------------------------- scripts


def test_a_script_of_lines_is_said_line_by_line_in_every_episode(tmp_path: Path) -> None:
    known = texts(play(SALAD, make_agent("oracle")))
    (tmp_path / "salad.txt").write_text("\n".join(known) + "\n\n", encoding="utf-8")
    agent = make_agent(f"scripted:{tmp_path / 'salad.txt'}")
    for _ in range(2):
        assert play(SALAD, agent)[-1].info["success"]


def test_recorded_episodes_are_played_again_by_number(tmp_path: Path) -> None:
    file = tmp_path / "episodes.jsonl"
    episodes = [{"seed": n, "steps": [{"action": f"jump\n{n}", "reward": 0}]} for n in range(2)]
    file.write_text("".join(json.dumps(one) + "\n" for one in episodes), encoding="utf-8")
    assert texts(play(FOOD, make_agent(f"scripted:{file}", episode=1), most=1)) == ["jump\n1"]
    header, of = {"format": 1, "content": "steps"}, {"env": FOOD, "seed": 0}
    steps = [{**of, "episode": n, "step": step, "action": f"{n}.{step}"} for n in range(2) for step in range(2)]
    file.write_text("".join(json.dumps(one) + "\n" for one in (header, *steps)), encoding="utf-8")
    assert texts(play(FOOD, make_agent(f"scripted:{file}", episode=1), most=2)) == ["1.0", "1.1"]
    file.write_text('{"action": "a"}\n{"action": "b"}\n', encoding="utf-8")
    assert texts(play(FOOD, make_agent(f"scripted:{file}"), most=2)) == ["a", "b"]


def test_an_episode_that_outlasts_its_script_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("jump", encoding="utf-8")
    with pytest.raises(AgentError, match=r"script of 'scripted:short.txt', 1 actions; it goes on"):
        play(FOOD, make_agent(f"scripted:{tmp_path / 'short.txt'}"))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.txt", None, "cannot be read"),
        ("empty.txt", "\n", "it holds none. Fix: an action on each line"),
        ("bad.jsonl", "walk\n", "in line 1 .* got 'walk'"),
        ("bad.jsonl", '{"reward": 1}\n', "KeyError"),
    ],
)
def test_what_is_no_script_is_refused(tmp_path: Path, name: str, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(AgentError, match=message):
        make_agent(f"scripted:{tmp_path / name}")


# ---------------------------------------------------------------------- a person


def test_a_person_is_shown_the_task_and_asked(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("99\n1\nfly away\nq\n"))
    pytest.importorskip("rich")
    with pytest.raises(KeyboardInterrupt):
        play(FOOD, make_agent("human"))
    said = capsys.readouterr().out
    assert "  1  walk to" in said
    assert "Expected a number from 1 to" in said
    assert "fly away: not understood; reward" in said
