"""Jobs over processes: killed, shared, failing, out of time."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from studies_users import LOG, FailingJob, KilledJob, LoggedJob, job

from benchmarks.errors import JobFailedError, StudyError
from benchmarks.studies.engine.jobs import Job
from benchmarks.studies.engine.pieces import Pieces
from benchmarks.studies.engine.pool import _failure, work
from poad_sb3.errors import PoadError

HERE = Path(__file__).parents[2] / "support"


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    path = tmp_path / "log"
    monkeypatch.setenv(LOG, str(path))
    return lambda: path.read_text().splitlines() if path.exists() else []


def _pieces(folder: Path) -> list[Path]:
    return sorted((folder / "pieces").glob("[!.]*.json"))


@pytest.mark.process
def test_a_study_killed_at_work_goes_on_and_repeats_nothing(tmp_path: Path, log: Callable[[], list[str]]) -> None:
    command = [sys.executable, str(HERE / "studies_users.py"), str(tmp_path / "pieces")]
    paths = os.pathsep.join(map(str, (HERE.parents[1], HERE)))
    environment = {**os.environ, "PYTHONPATH": paths}
    process = subprocess.Popen(command, env=environment)
    end = time.monotonic() + 60
    while len(_pieces(tmp_path)) < 3 and time.monotonic() < end:
        time.sleep(0.01)
    process.kill()
    process.wait()
    time.sleep(0.5)  # workers end with their parent
    before, begun = {path: path.stat().st_mtime_ns for path in _pieces(tmp_path)}, len(log())
    time.sleep(0.4)
    assert len(log()) == begun, "workers outlive their parent"
    assert 3 <= len(before) < 12
    subprocess.run(command, env=environment, check=True, timeout=60)
    assert len(_pieces(tmp_path)) == 12
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert len(log()) - begun == 12 - len(before)
    assert all(Pieces(tmp_path / "pieces").find(job(seed)) is not None for seed in range(12))


@pytest.mark.process
def test_two_studies_share_their_pieces_and_jobs_may_hang_on_others(
    tmp_path: Path, log: Callable[[], list[str]]
) -> None:
    pieces = Pieces(tmp_path / "pieces")
    first, second = [job(0, LoggedJob), job(1, LoggedJob), job(1, LoggedJob)], [job(1, LoggedJob), job(2, LoggedJob)]

    def listed() -> list[Job]:
        return [*second, *([job(3, LoggedJob)] if all(pieces.find(one) for one in second) else [])]

    assert work(lambda: first, pieces, {}) == (2, True)
    assert work(listed, pieces, {}) == (2, True)
    assert sorted(log()) == sorted(job(seed, LoggedJob).name for seed in range(4))


@pytest.mark.process
def test_no_job_is_begun_when_time_is_up_and_the_rest_is_done_another_time(
    tmp_path: Path, log: Callable[[], list[str]]
) -> None:
    pieces, listed = Pieces(tmp_path / "pieces"), [job(seed, LoggedJob) for seed in range(4)]
    assert work(lambda: listed, pieces, {}, seconds=0) == (0, False)
    done = work(lambda: listed, pieces, {}, seconds=0.1)
    assert done == (1, False)
    assert work(lambda: listed, pieces, {}) == (3, True)
    assert len(log()) == 4


def test_a_job_that_fails_holds_up_no_other(tmp_path: Path, log: Callable[[], list[str]]) -> None:
    pieces, listed = Pieces(tmp_path / "pieces"), [job(1, FailingJob), job(0, FailingJob), job(2, FailingJob)]
    told: list[tuple[str, bool]] = []
    with pytest.raises(JobFailedError, match=r"Expected POAD on KeyToken-v0, 128 .* seed 1 .*RuntimeError: no luck"):
        work(lambda: listed, pieces, {}, watch=lambda one, why: told.append((one.name, why is None)))
    assert sorted(log()) == sorted([job(0, FailingJob).name, job(2, FailingJob).name])
    assert told == [
        (job(1, FailingJob).name, False),
        (job(0, FailingJob).name, True),
        (job(2, FailingJob).name, True),
    ], "at once, not at the end"


def test_the_fix_of_a_job_that_fails_is_that_of_its_error() -> None:
    failure = _failure(job(1), PoadError("Expected 2 ranks; got 1. Fix: n_procs=2."))
    assert str(failure).endswith(
        "got PoadError: Expected 2 ranks; got 1. Fix: n_procs=2. "
        "The pieces before it are kept, and the same command resumes."
    )
    assert "no luck. Fix: correct the cause. The pieces" in str(_failure(job(1), RuntimeError("no luck")))


def test_a_folder_that_takes_no_pieces_is_told_before_any_work(tmp_path: Path, log: Callable[[], list[str]]) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StudyError, match="a folder that pieces can be written to"):
        work(lambda: [job(0, LoggedJob)], Pieces(tmp_path / "file" / "pieces"), {})
    assert log() == []


@pytest.mark.process
def test_a_job_whose_process_is_killed_holds_up_no_other(
    tmp_path: Path, log: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("poad_sb3.distributed.job_executor._RETRIES", 1)
    jobs = [job(0, LoggedJob), job(1, KilledJob), job(2, LoggedJob)]
    with pytest.raises(JobFailedError, match=r"seed 1 .* ended early 2 times. Fix: see the error .* resumes\.$"):
        work(lambda: jobs, Pieces(tmp_path / "pieces"), {})
    assert log() == [job(0, LoggedJob).name, job(2, LoggedJob).name]
