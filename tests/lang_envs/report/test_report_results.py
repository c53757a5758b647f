"""Results files: files of the runner are read, damaged ones are refused by a sentence, and the schemas agree."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import report_data

from lang_bench.runner.plan import Plan
from lang_bench.runner.session import measure
from lang_envs.report import ReportError, check, read_results
from lang_envs.report.results import steps_file
from lang_envs.report.schemas import KINDS, WrongValueError, checker_of, load_schema

ROOT = Path(__file__).parents[3]
Record = dict[str, Any]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of an agent with tokens and values, with steps: 2 seeds of 3 episodes on 2 tasks."""
    path = tmp_path_factory.mktemp("measured") / "valued.jsonl"
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "tests/support"))
        plan = Plan("runner_users:Valued", ("KeyToken-v0", "Overcooked-TomatoSalad-v0"), 3, 2, steps=True)
        measure(plan, path)
    return path


@pytest.fixture
def files(measured: Path, tmp_path: Path) -> tuple[Path, Path]:
    """Copies of the measured files."""
    path = tmp_path / "valued.jsonl"
    for source, copied in ((measured, path), (steps_file(measured), steps_file(path))):
        copied.write_bytes(source.read_bytes())
    return path, steps_file(path)


def records(path: Path) -> list[Record]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def rewrite(path: Path, change: Callable[[list[bytes]], object]) -> None:
    """Change the lines of a file."""
    lines = path.read_bytes().splitlines(keepends=True)
    change(lines)
    path.write_bytes(b"".join(lines))


def edit(path: Path, number: int, **fields: Any) -> None:
    """Set fields of the line with a number, from 1; a field that is `...` is removed."""

    def change(lines: list[bytes]) -> None:
        record = {**json.loads(lines[number - 1]), **fields}
        kept = {name: value for name, value in record.items() if value is not ...}
        lines[number - 1] = json.dumps(kept).encode() + b"\n"

    rewrite(path, change)


# ---------------------------------------------------------------------- whole files


def test_files_of_the_runner_are_read_whole(files: tuple[Path, Path]) -> None:
    path, steps = files
    results = read_results(path)
    header, *episodes = records(path)
    steps_header, *lines = records(steps)
    assert results.header == header
    assert results.steps_header == steps_header
    assert results.cut == ()
    assert [{**episode, "steps_list": ...} for episode in results.episodes] == [
        {**episode, "steps_list": ...} for episode in episodes
    ]
    assert [step for episode in results.episodes for step in episode["steps_list"]] == lines
    assert check(path) == f"12 episodes, {len(lines)} steps"
    assert check(steps) == f"12 episodes, {len(lines)} steps"


def test_without_steps_or_episodes(files: tuple[Path, Path]) -> None:
    path, steps = files
    steps.unlink()
    results = read_results(path)
    assert results.steps_header is None
    assert [episode["steps_list"] for episode in results.episodes] == [None] * 12
    assert check(path) == "12 episodes"
    rewrite(path, lambda lines: lines.__delitem__(slice(2, None)))
    assert check(path) == "1 episode"
    rewrite(path, lambda lines: lines.__delitem__(slice(1, None)))
    assert read_results(path).episodes == []


@pytest.mark.parametrize("ending", [b'{"env":"KeyTok', "\u00e9".encode()[:1]])
def test_an_incomplete_last_line_is_left_out(files: tuple[Path, Path], ending: bytes) -> None:
    path, steps = files
    before = read_results(path)
    for file in files:
        file.write_bytes(file.read_bytes() + ending)
    after = read_results(path)
    assert after.episodes == before.episodes
    assert after.cut == (path.name, steps.name)
    assert "; the incomplete last line of valued.jsonl is left out" in check(path)


def test_steps_of_an_unfinished_episode_are_left_out(files: tuple[Path, Path]) -> None:
    path, _ = files
    whole = read_results(path)
    rewrite(path, lambda lines: lines.pop())  # a process was killed between the two writes
    assert read_results(path).episodes == whole.episodes[:-1]


def test_a_training_has_an_episode_again_at_each_checkpoint(tmp_path: Path) -> None:
    path = report_data.training(tmp_path / "run")
    results = read_results(path)
    assert len({episode["reset_seed"] for episode in results.episodes}) < len(results.episodes)
    assert all(episode["steps_list"] for episode in results.episodes)
    header = records(path)[0]
    edit(path, 1, training=False)
    with pytest.raises(ReportError, match=r"Expected the episodes in the order of the header; line \d+ of"):
        read_results(path)
    edit(path, 1, **header)
    edit(path, 2, training_steps=...)
    with pytest.raises(ReportError, match=r"Expected a value in training_steps of line 2 of .*; got none\."):
        read_results(path)


# ---------------------------------------------------------------------- damaged files

DAMAGED: dict[str, tuple[int, Callable[[list[bytes]], object], str]] = {
    "not JSON": (0, lambda lines: lines.insert(2, b"{'env'}\n"), "Expected a JSON object in line 3 of FILE; got"),
    "no header": (0, lambda lines: lines.pop(0), "Expected a value in format of line 1 of FILE; got none."),
    "episode twice": (
        0,
        lambda lines: lines.insert(3, lines[2]),
        "Expected every episode once; got KeyToken-v0, seed 0, episode 1 again in line 4 of FILE.",
    ),
    "step missing": (
        1,
        lambda lines: lines.pop(2),
        "Expected step 1 of KeyToken-v0, seed 0, episode 0 in step of line 3",
    ),
    "last step missing": (
        1,
        lambda lines: lines.pop(),
        "steps of Overcooked-TomatoSalad-v0, seed 1, episode 2; they end with step",
    ),
    "episode of steps twice": (
        1,
        lambda lines: lines.extend(line for line in lines[1:] if b'"KeyToken-v0","seed":0,"episode":0' in line),
        "Expected the steps of every episode once and in order; ",
    ),
}


def as_pattern(message: str, path: Path) -> str:
    return message.replace("FILE", str(path)).replace("STEPS", str(steps_file(path)))


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_lines_are_refused_by_place(files: tuple[Path, Path], name: str) -> None:
    which, change, message = DAMAGED[name]
    rewrite(files[which], change)
    with pytest.raises(ReportError) as caught:
        read_results(files[0])
    assert as_pattern(message, files[0]) in str(caught.value)
    assert "\n" not in str(caught.value)


WRONG_EPISODES: list[tuple[Record, str]] = [
    ({"return": "0.5"}, 'Expected a finite number in return of LINE; got "0.5".'),
    ({"steps": 77}, "Expected 77 steps of KeyToken-v0, seed 0, episode 0; they end with step"),
    ({"seed": 7}, "Expected a value of the header in seed of LINE; got 7."),
    ({"ran_share": 1.5}, "Expected a finite number of at least 0 and at most 1 or null in ran_share of LINE; got 1.5."),
    (
        {"best_score": "0.9"},
        'Expected a finite number of at least 0 and at most 1 or null in best_score of LINE; got "0.9".',
    ),
    ({"cost": -0.1}, "Expected a finite number of at least 0 in cost of LINE; got -0.1."),
    ({"agent": "\x1b[2J\n" * 40}, 'Expected "valued" as in line 1 in agent of LINE; got "\\u001b[2J\\n'),
]


@pytest.mark.parametrize(("fields", "message"), WRONG_EPISODES)
def test_wrong_fields_of_episodes_are_named(files: tuple[Path, Path], fields: Record, message: str) -> None:
    edit(files[0], 2, **fields)
    with pytest.raises(ReportError) as caught:
        read_results(files[0])
    assert message.replace("LINE", f"line 2 of {files[0]}") in str(caught.value)
    assert str(caught.value).isascii()
    assert str(caught.value).isprintable()


WRONG_STEPS: list[tuple[Record, str]] = [
    ({"admissible_actions": "a"}, 'Expected a list or null in admissible_actions of LINE; got "a".'),
    ({"values": [0.5]}, "Expected as many entries as in tokens in values of LINE; got 1."),
    ({"log_probs": [0.5, float("-inf")]}, "Expected a finite number in log_probs[1] of LINE; got -Infinity."),
    ({"action_probs": [0.5]}, "Expected as many entries as in admissible_actions in action_probs of LINE; got 1."),
]


@pytest.mark.parametrize(("fields", "message"), WRONG_STEPS)
def test_wrong_fields_of_steps_are_named(files: tuple[Path, Path], fields: Record, message: str) -> None:
    edit(files[1], 2, **fields)
    with pytest.raises(ReportError) as caught:
        read_results(files[0])
    assert message.replace("LINE", f"line 2 of {files[1]}") in str(caught.value)


@pytest.mark.parametrize("name", ["terminated", "truncated"])
def test_the_end_of_the_steps_is_that_of_the_episode(files: tuple[Path, Path], name: str) -> None:
    episode = records(files[0])[1]
    edit(files[1], 1 + episode["steps"], **{name: not episode[name]})
    with pytest.raises(ReportError, match=f"as in the line of the episode in {name} of line"):
        read_results(files[0])


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("return", lambda value: 999),
        ("success", lambda value: not value),
    ],
)
def test_rejects_an_episode_that_disagrees_with_its_steps(
    tmp_path: Path, name: str, change: Callable[[Any], Any]
) -> None:
    path = report_data.code(tmp_path / "code.jsonl", n_episodes=2, n_tokens=2)
    value = records(path)[1][name]
    wrong = change(value)
    edit(path, 2, **{name: wrong})
    pattern = rf"Expected (.*) as .* in {name} of line 2 of .*code\.jsonl; got {json.dumps(wrong)}\."
    with pytest.raises(ReportError) as caught:
        read_results(path)
    message = re.fullmatch(pattern, str(caught.value))
    assert message is not None
    assert json.loads(message[1]) == pytest.approx(value)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none.jsonl", tmp_path):
        with pytest.raises(ReportError, match="Expected a file that can be read; got"):
            read_results(path)


# ---------------------------------------------------------------------- the schemas


def wrong_records(kind: str, record: Record) -> list[Record]:
    """Return the record with each documented field in many forms, most of them wrong."""
    values: list[Any] = ["0.5", 1, -1, 1.5, True, None, [], {}, [1], ["a"], [None], [[["a", 1]]], [[["a"]]], "steps"]
    names = [*load_schema(kind)["properties"], "unknown"]
    changed = [{**record, name: value} for name in names for value in values]
    return changed + [{key: value for key, value in record.items() if key != name} for name in record]


@pytest.mark.parametrize("kind", KINDS)
def test_the_checker_agrees_with_jsonschema(kind: str, measured: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = load_schema(kind)
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    header, first = records(steps_file(measured))[:2]
    record = {"header": header, "episode": records(measured)[1], "step": first}[kind]
    verdicts = []
    for candidate in [record, *wrong_records(kind, record)]:
        try:
            checker_of(kind)(copy.deepcopy(candidate))
        except WrongValueError:
            verdicts.append(False)
        else:
            verdicts.append(True)
        assert validator.is_valid(candidate) == verdicts[-1], candidate
    assert verdicts[0]
    assert verdicts.count(False) > len(verdicts) / 3
