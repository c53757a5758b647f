"""Results files, format 1: `NAME.jsonl` with a line for each episode, and `NAME.steps.jsonl` with one for each step.

`schema/*.schema.json` describe the lines. Files written by `lang-bench run`, by `poad train` and by other
programs are read alike.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lang_envs.report.errors import ReportError
from lang_envs.report.schemas import WrongValueError, checker_of, load_schema, shown

__all__ = ["Results", "check", "check_step", "read_results", "steps_file"]

_PER_TOKEN = ("log_probs", "values", "token_options", "alternatives", "entropies")
_PER_TOKEN_BY_NAME = ("advantages", "credits")
_SAME = ("agent", "envs", "env_settings", "episodes", "seeds", "training")
"""Fields of the header that are equal in both files of a measurement; command and hardware may differ."""
_TOLERANCE = 1e-6
"""Difference from the number that follows from the steps: other programs may round."""


class Results(NamedTuple):
    """Content of a results file.

    Attributes:
        header: First line.
        episodes: Lines of the episodes, in order. `steps_list` has the lines of the steps; None where there are none.
        steps_header: First line of the file of steps; None where there is no such file.
        cut: Names of files whose last line is incomplete; these lines are left out.
    """

    header: dict[str, Any]
    episodes: list[dict[str, Any]]
    steps_header: dict[str, Any] | None = None
    cut: tuple[str, ...] = ()


class _Line(NamedTuple):
    record: dict[str, Any]
    place: str
    """Position in words, such as `line 3 of runs/a.jsonl`."""


def steps_file(path: Path) -> Path:
    """Return the path of the steps of a results file."""
    return path.with_suffix(".steps.jsonl")


def read_results(path: Path, *, with_steps: bool = True) -> Results:
    """Read a results file, and its file of steps where there is one.

    An incomplete last line, left by a killed process, is skipped, and so are the steps of an episode that has no line
    yet.

    Args:
        path: Path of the file of episodes, `NAME.jsonl`.
        with_steps: Whether to read the steps too.

    Raises:
        ReportError: If a line does not agree with the schemas, an episode does not agree with its steps, or lines are
            missing, doubled, reordered or of another measurement. The message is a sentence with file, line and field.
    """
    lines = _File(path)
    header = lines.header()
    if "content" in header.record:
        raise _refused("no content (a file of episodes)", shown(header.record["content"]), "content", header.place)
    episode_lines = list(_in_order(header.record, lines.records("episode")))
    for line in episode_lines:
        line.record["steps_list"] = None
    episodes = [line.record for line in episode_lines]
    if not with_steps or not steps_file(path).exists():
        return Results(header.record, episodes, None, lines.cut)
    steps = _File(steps_file(path))
    steps_header = steps.header()
    _require_steps(steps_header)
    _require_same(header.record, steps_header)
    _join(header.record, episode_lines, steps)
    return Results(header.record, episodes, steps_header.record, lines.cut + steps.cut)


def check(path: Path) -> str:
    """Read a results file and return the number of its episodes and steps as text.

    Args:
        path: Path `NAME.jsonl`, together with its file of steps if there is one, or a file of steps alone.

    Raises:
        ReportError: If a file cannot be read or is not valid, as in `read_results`.
    """
    if path.name.endswith(".steps.jsonl"):
        file = _File(path)
        _require_steps(file.header())
        n_steps = [len(steps) for steps in _by_episode(file)]
        counts, cut = {"episode": len(n_steps), "step": sum(n_steps)}, file.cut
    else:
        results = read_results(path)
        counts, cut = {"episode": len(results.episodes)}, results.cut
        if results.steps_header is not None:
            counts["step"] = sum(len(episode["steps_list"] or ()) for episode in results.episodes)
    text = ", ".join(f"{count:,} {name}{'' if count == 1 else 's'}" for name, count in counts.items())
    return text + "".join(f"; the incomplete last line of {name} is left out" for name in cut)


def _refused(expected: str, got: str, field: str, place: str) -> ReportError:
    return ReportError(f"Expected {expected} in {field} of {place}; got {got}.")


# ---------------------------------------------------------------------- lines


class _File:
    """Lines of a file.

    Attributes:
        path: Path of the file.
        cut: Name of the file, once an incomplete last line has been found.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cut: tuple[str, ...] = ()
        self._decoder = json.JSONDecoder(parse_constant=self._constant)
        self._has_constant = False
        self._lines = self._read()

    def header(self) -> _Line:
        """Return the first line."""
        line = next(self._lines, None)
        if line is None:
            raise ReportError(f"Expected a header in line 1 of {self.path}; got none.")
        return self._checked("header", line)

    def records(self, kind: str) -> Iterator[_Line]:
        """Yield the lines after the header."""
        return (self._checked(kind, line) for line in self._lines)

    def _read(self) -> Iterator[_Line]:
        blank = ""
        try:
            with self.path.open("rb") as file:
                for number, text in enumerate(file, start=1):
                    position = f"line {number} of {self.path}"
                    if not text.endswith(b"\n") and not self._is_whole(text):
                        self.cut = (self.path.name,)
                    elif not text.strip():
                        blank = blank or position
                    elif blank:
                        raise ReportError(f"Expected a JSON object in {blank}; got an empty line.")
                    else:
                        yield self._parse(text, position)
        except OSError as error:
            raise ReportError(f"Expected a file that can be read; got {self.path} ({error.strerror}).") from error

    def _is_whole(self, text: bytes) -> bool:
        """Return whether a last line lacks only its newline: no beginning of a JSON object is an object itself."""
        return isinstance(self._decoded(text), dict)

    def _decoded(self, text: bytes) -> Any:
        try:
            return self._decoder.decode(text.decode("utf-8-sig", "surrogatepass"))
        except (ValueError, RecursionError):
            return None

    def _parse(self, text: bytes, position: str) -> _Line:
        record = self._decoded(text)
        if not isinstance(record, dict):
            raise ReportError(f"Expected a JSON object in {position}; got {text.strip()[:60]!r}.")
        return _Line(record, position)

    def _constant(self, name: str) -> float:
        self._has_constant = True
        return float(name)

    def _checked(self, kind: str, line: _Line) -> _Line:
        """Return a line that agrees with its schema; integers that are written as 3.0 become integers."""
        _check_schema(kind, line)
        if self._has_constant:
            raise ReportError(f"Expected finite numbers in {line.place}; got NaN or Infinity.")
        for name, field in load_schema(kind)["properties"].items():
            if "integer" in field["type"] and isinstance(value := line.record.get(name), float):
                line.record[name] = int(value)
        return line


# ---------------------------------------------------------------------- episodes


def _in_order(header: Mapping[str, Any], lines: Iterator[_Line]) -> Iterator[_Line]:
    """Yield the lines of episodes that the header announces, each once and in its order."""
    ranks = [
        {value: index for index, value in enumerate(row)}
        for row in ([env["id"] for env in header["envs"]], header["seeds"])
    ]
    discounts = {env["id"]: env["discount"] for env in header["envs"]}
    is_training = header.get("training", False)
    before: tuple[int, ...] = ()
    seen = set()
    for line in lines:
        record = line.record
        if record["agent"] != header["agent"]["name"]:
            raise _refused(
                f"{shown(header['agent']['name'])} as in line 1", shown(record["agent"]), "agent", line.place
            )
        for name, ranks_of in zip(("env", "seed"), ranks, strict=True):
            if record[name] not in ranks_of:
                raise _refused("a value of the header", shown(record[name]), name, line.place)
        if record["discount"] != discounts[record["env"]]:
            expected = f"{shown(discounts[record['env']])} as in line 1"
            raise _refused(expected, shown(record["discount"]), "discount", line.place)
        if record["episode"] >= header["episodes"]:
            raise _refused(f"an integer below {header['episodes']}", shown(record["episode"]), "episode", line.place)
        if is_training and "training_steps" not in record:
            raise _refused("a value", "none", "training_steps", line.place)
        key = _key_of(record)
        if key in seen:
            raise ReportError(f"Expected every episode once; got {_named(record)} again in {line.place}.")
        seen.add(key)
        planned = ranks[0][record["env"]], ranks[1][record["seed"]], record["episode"]
        rank = (record["training_steps"],) if is_training else planned
        if rank < before:
            raise ReportError(f"Expected the episodes in the order of the header; {line.place} has {_named(record)}.")
        before = rank
        yield line


def _key_of(record: Mapping[str, Any]) -> tuple[Any, ...]:
    return record["env"], record["seed"], record["episode"], record.get("training_steps")


def _named(record: Mapping[str, Any]) -> str:
    at = f", training step {record['training_steps']}" if "training_steps" in record else ""
    return f"{shown(record['env'])[1:-1]}, seed {record['seed']}, episode {record['episode']}{at}"


# ---------------------------------------------------------------------- steps


def _require_steps(header: _Line) -> None:
    if "content" not in header.record:
        raise _refused('"steps" (a file of steps)', "none", "content", header.place)


def _require_same(header: Mapping[str, Any], other: _Line) -> None:
    for name in _SAME:
        expected, got = header.get(name), other.record.get(name)
        if expected != got:
            raise _refused(f"{shown(expected)} as in the file of the episodes", shown(got), name, other.place)


def _by_episode(file: _File) -> Iterator[list[_Line]]:
    """Yield the steps of each episode, numbered from 0."""
    steps: list[_Line] = []
    for line in file.records("step"):
        record = line.record
        if steps and record["step"] == 0:
            yield steps
            steps = []
        first = steps[0].record if steps else record
        if record["step"] != len(steps) or _key_of(record) != _key_of(first):
            expected = f"step {len(steps)} of {_named(first)}"
            raise _refused(expected, f"step {record['step']} of {_named(record)}", "step", line.place)
        _check_lengths(line)
        steps.append(line)
    if steps:
        yield steps


def check_step(record: dict[str, Any]) -> None:
    """Check the line of a step before it is written.

    Raises:
        ReportError: If the line could not be read again.
    """
    line = _Line(record, "the step")
    _check_schema("step", line)
    _check_lengths(line)


def _check_schema(kind: str, line: _Line) -> None:
    try:
        checker_of(kind)(line.record)
    except WrongValueError as error:
        raise _refused(error.expected, error.got, error.path or "the object", line.place) from error


def _check_lengths(line: _Line) -> None:
    record = line.record
    lists = [(name, record.get(name, ()), "tokens") for name in _PER_TOKEN]
    for name in _PER_TOKEN_BY_NAME:
        lists += [(f"{name}.{shown(key)[1:-1]}", row, "tokens") for key, row in record.get(name, {}).items()]
    lists.append(("action_probs", record.get("action_probs", ()), "admissible_actions"))
    for name, values, by in lists:
        if values and len(values) != len(record.get(by) or ()):
            raise _refused(f"as many entries as in {by}", str(len(values)), name, line.place)


def _join(header: Mapping[str, Any], episodes: Sequence[_Line], file: _File) -> None:
    """Give each episode its steps. An episode has all of them or none; both files have the same order."""
    rest, waiting = iter(episodes), None
    for steps in _by_episode(file):
        first, last = steps[0], steps[-1]
        if waiting is not None:  # steps without an episode are at the end only, where a process was killed
            raise ReportError(
                f"Expected steps of an episode of the other file; {waiting.place} has {_named(waiting.record)}."
            )
        line = next((episode for episode in rest if _belongs(first.record, episode.record)), None)
        if line is None:
            is_training = header.get("training", False) and "training_steps" not in first.record
            if not is_training and any(_belongs(first.record, written.record) for written in episodes):
                raise ReportError(
                    "Expected the steps of every episode once and in order; "
                    f"{first.place} has {_named(first.record)} again."
                )
            waiting = first
            continue
        episode = line.record
        if len(steps) != episode["steps"]:
            raise ReportError(
                f"Expected {episode['steps']} steps of {_named(episode)}; "
                f"they end with step {last.record['step']} in {last.place}."
            )
        for name in ("terminated", "truncated"):
            if last.record[name] != episode[name]:
                raise _refused(
                    f"{shown(episode[name])} as in the line of the episode", shown(last.record[name]), name, last.place
                )
        records = [step.record for step in steps]
        _require_recomputed(line, records)
        episode["steps_list"] = records
    if waiting is not None and waiting.record["env"] not in (env["id"] for env in header["envs"]):
        raise _refused("a value of the header", shown(waiting.record["env"]), "env", waiting.place)


def _require_recomputed(line: _Line, steps: Sequence[Mapping[str, Any]]) -> None:
    for name, value in _totals(line.record["discount"], steps).items():
        if name in line.record and not _agree(value, written := line.record[name]):
            raise _refused(f"{shown(value)} as the steps give it", shown(written), name, line.place)


def _totals(discount: float, steps: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the fields of an episode that follow from its steps."""
    discounted, moves = 0.0, 0
    for step in steps:
        discounted += discount**moves * step["reward"]
        moves += step["moves"]
    totals = {
        "return": sum(step["reward"] for step in steps),
        "discounted_return": discounted,
        "success": bool(steps[-1]["success"]),
        "moves": moves,
        "invalid_actions": sum(step["invalid"] for step in steps),
    }
    if any(step.get("status") for step in steps):
        totals["ran_share"] = sum(step.get("status") == "ok" for step in steps) / len(steps)
        scores = [step["score"] for step in steps if step.get("score") is not None]
        totals["best_score"] = max(scores, default=None)
    return totals


def _agree(value: Any, written: Any) -> bool:
    if type(value) in (int, float) and type(written) in (int, float):
        return math.isclose(value, written, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
    return bool(written) == value if type(value) is bool else bool(written == value)


def _belongs(step: Mapping[str, Any], episode: Mapping[str, Any]) -> bool:
    names = ("env", "seed", "episode", *(["training_steps"] if "training_steps" in step else []))
    return all(step[name] == episode.get(name) for name in names)
