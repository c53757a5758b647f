"""Run an evaluation plan, resuming from its results file."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from lang_bench.runner.credit import CREDITS, GAE_LAMBDA, GAMMA
from lang_bench.runner.errors import ResultFileError
from lang_bench.runner.lines import Line, LineFile, encode
from lang_bench.runner.machine import describe_machine
from lang_bench.runner.plan import Job, Plan, header_of, require_same
from lang_bench.runner.players import Player, Workers, play_all
from lang_bench.runner.records import key_of
from lang_envs.report.results import steps_file
from lang_envs.report.schemas import WrongValueError, checker_of

Watch = Callable[[int, int], None]
"""Called with the number of episodes in the file, and their final number."""


class Done(NamedTuple):
    """Counts of a session.

    Attributes:
        path: Path of the results file.
        found: Number of episodes that the file had already.
        played: Number of episodes that the session added.
        seconds: Wall time of the session.
    """

    path: Path
    found: int
    played: int
    seconds: float


def times_file(path: Path) -> Path:
    """Return the path of the file with sessions and wall times, the parts that differ between equal measurements."""
    return path.with_suffix(".times.jsonl")


def measure(
    plan: Plan,
    path: Path,
    *,
    n_workers: int = 1,
    workers: Workers = Workers.PROCESSES,
    ray: str | None = None,
    watch: Watch = lambda done, of: None,
) -> Done:
    """Play the missing episodes of a file, and write them there in the order of the plan.

    The file holds a header and a line for each episode. It is at all times the beginning of the file that an
    uninterrupted session writes, so that resuming means playing the rest. Steps reach the disk before the line of
    their episode; those of an episode without a line are dropped, and so are episodes from the first one on whose steps
    a crash has lost.

    Args:
        plan: The plan of the measurement.
        path: Path of the results file.
        n_workers: Episodes that are played at a time.
        workers: Kind of workers that play.
        ray: Address of a Ray cluster whose actors play instead: `"local"`, `"auto"` or the address of another.
        watch: Called after every episode.

    Raises:
        ResultFileError: If the file holds another measurement, is damaged, or cannot be written.
        FileBusyError: If another process is writing it.
        AgentFailedError: If an episode fails. The episodes before it are in the file.
    """
    if path.suffix != ".jsonl":
        raise ResultFileError(f"Expected a name that ends in .jsonl; got {path}. Fix: --out {path.stem}.jsonl.")
    started = time.perf_counter()
    player = Player(plan)
    with contextlib.ExitStack() as stack:
        episodes = stack.enter_context(LineFile(path))
        stack.callback(player.close)
        identities = {
            seed: player.identity(seed) for seed in (plan.all_seeds() if plan.is_per_seed else [plan.first_seed])
        }
        if n_workers > 1 or ray is not None:
            player.close()  # the workers have agents of their own
        header = header_of(plan, identities, envs_are_here=ray is None)
        player.agent_name = header["agent"]["name"]
        jobs = plan.jobs()
        recorded, ends = _take_up(episodes, header, jobs)
        n_kept, steps = len(recorded), None
        if plan.steps:
            if recorded and not steps_file(path).exists():
                raise ResultFileError(
                    f"Expected the steps of {len(recorded)} episodes in {steps_file(path)}; there is no such file. "
                    "Fix: restore it, or begin another file with --out."
                )
            steps = stack.enter_context(LineFile(steps_file(path)))
            n_kept = _take_up_steps(steps, _steps_header(header), recorded)
        episodes.cut(ends[n_kept])
        times = stack.enter_context(LineFile(times_file(path)))
        _begin_times(times, n_kept)
        for number, played in enumerate(play_all(player, jobs[n_kept:], n_workers, workers, ray), start=n_kept + 1):
            if steps is not None:
                steps.append(played.steps)
            episodes.append([played.record])
            times.append([{**played.job._asdict(), "seconds": round(played.seconds, 6)}])
            watch(number, len(jobs))
    return Done(path, n_kept, len(jobs) - n_kept, time.perf_counter() - started)


def _take_up(file: LineFile, header: Mapping[str, Any], jobs: Sequence[Job]) -> tuple[list[dict[str, Any]], list[int]]:
    """Return the episodes in a file, and the ends of the header and of each of them in bytes.

    Raises:
        ResultFileError: If the episodes are not the first of these jobs, or belong to another measurement.
    """
    end, lines = _head(file, header)
    records: list[dict[str, Any]] = []
    ends = [end]
    for line in lines:
        if len(records) == len(jobs) or key_of(line.record) != jobs[len(records)]:
            raise ResultFileError(
                f"Expected {jobs[len(records)] if len(records) < len(jobs) else 'no more lines'} in line "
                f"{len(records) + 2} of {file.path}; got {str(line.record)[:80]}. "
                "Fix: restore the file, or begin another with --out."
            )
        try:
            checker_of("episode")(line.record)
        except WrongValueError as error:
            raise ResultFileError(
                f"Expected {error.expected} in {error.path} of line {len(records) + 2} of {file.path}; got "
                f"{error.got}. Fix: restore the file, or begin another with --out."
            ) from error
        records.append(line.record)
        ends.append(line.end)
    return records, ends


def _take_up_steps(file: LineFile, header: Mapping[str, Any], episodes: Sequence[Mapping[str, Any]]) -> int:
    """Return how many of these episodes have all their steps in a file, and truncate it after those.

    Raises:
        ResultFileError: If other steps stand where an episode's should be, or belong to another measurement.
    """
    end, lines = _head(file, header, again=not episodes)
    n_whole = 0
    for episode in episodes:
        steps = list(itertools.islice(lines, int(episode["steps"])))
        if any(key_of(step.record) != key_of(episode) for step in steps):
            raise ResultFileError(
                f"Expected the steps of {key_of(episode)} in {file.path}; got those of another episode. "
                "Fix: restore the file, or begin again with another --out."
            )
        if len(steps) < episode["steps"]:
            break
        end, n_whole = steps[-1].end, n_whole + 1
    file.cut(end)
    return n_whole


def _head(file: LineFile, header: Mapping[str, Any], *, again: bool = False) -> tuple[int, Iterator[Line]]:
    """Return the end of a file's header, and the lines after it; write this header if no episode depends on another."""
    first, more = (*itertools.islice(file.lines(), 2), None, None)[:2]
    if first is None:  # a header that was cut; the rest of it may differ, such as the command
        start, beginning = file.path.read_bytes(), encode({"format": header["format"]}).removesuffix(b"}\n")
        is_ours = start[: len(beginning)] == beginning[: len(start)]
    else:
        is_ours = all(first.record.get(name) == header.get(name) for name in ("format", "content", "training"))
        is_ours = is_ours and isinstance(first.record.get("agent"), Mapping)
    if not is_ours:
        raise ResultFileError(
            f"Expected a results file, or none; {file.path} begins with {file.path.read_bytes()[:60]!r}. "
            "Fix: name another file with --out."
        )
    if first is not None and more:
        require_same(first.record, header, file.path)
        if not again:
            return first.end, itertools.islice(file.lines(), 1, None)
    file.cut(0)  # no episodes, so that its first command does not bind it
    file.append([header])
    return len(encode(header)), iter(())


def _steps_header(header: Mapping[str, Any]) -> dict[str, Any]:
    rules = {name: rule._asdict() for name, rule in CREDITS.items()}
    return {**header, "content": "steps", "credit": {"gamma": GAMMA, "gae_lambda": GAE_LAMBDA, "rules": rules}}


def _begin_times(file: LineFile, done: int) -> None:
    """Drop a half-written line of a killed process, and note that a session begins."""
    file.cut(max((line.end for line in file.lines()), default=0))
    now = datetime.now(UTC).isoformat(timespec="seconds")
    file.append([{"session": now, "from_episode": done, **describe_machine()}])
