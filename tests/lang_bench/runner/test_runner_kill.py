"""Runs that are really killed, and disks that are really full, in processes of their own."""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lang_envs.report.results import steps_file

ROOT = Path(__file__).parents[3]
N_EPISODES = 40
COMMAND = (
    *(sys.executable, "-m", "lang_bench", "run", "--agent", "runner_users:Valued", "--agent-set", "seconds=0.004"),
    *("--env", "KeyToken-v0", "--episodes", str(N_EPISODES // 2), "--seeds", "2", "--steps"),
    *("--out", "out.jsonl", "--workers", "2"),
)


def _start(folder: Path, *more: str, largest_file: int | None = None, group: bool = False) -> subprocess.Popen[bytes]:
    folder.mkdir(exist_ok=True)
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "tests/support")))

    def limit() -> None:
        if largest_file is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))

    return subprocess.Popen(
        [*COMMAND, *more],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        preexec_fn=limit,
        start_new_session=group,
    )


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    with _start(folder) as process:
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors.decode()
    return folder / "out.jsonl"


@pytest.mark.process
@pytest.mark.skipif(not Path("/proc").exists(), reason="looks at processes in /proc")
def test_a_run_that_is_killed_again_and_again_ends_at_the_same_bytes(undisturbed: Path, tmp_path: Path) -> None:
    whole = undisturbed.stat().st_size
    path = tmp_path / "killed" / "out.jsonl"
    chance, kills = random.Random(0), 0
    for share in (0.25, 0.5, 0.75):
        with _start(path.parent) as process:
            wanted = (share - 0.2 * chance.random()) * whole
            while _size(path) < wanted and process.poll() is None:
                time.sleep(chance.random() * 0.003)
            workers = _children(process.pid)
            process.kill()
            process.wait()
            kills += process.returncode == -signal.SIGKILL
        deadline = time.monotonic() + 20
        while any(map(_runs, workers)) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not [pid for pid in workers if _runs(pid)], "workers of a killed run go on without it"
        assert undisturbed.read_bytes().startswith(path.read_bytes()[: path.read_bytes().rfind(b"\n") + 1])
    assert kills == 3
    with _start(path.parent) as process:
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors.decode()
    assert path.read_bytes() == undisturbed.read_bytes()
    assert steps_file(path).read_bytes() == steps_file(undisturbed).read_bytes()
    assert path.read_bytes().count(b"\n") == 1 + N_EPISODES


@pytest.mark.process
def test_a_full_disk_stops_the_run_and_keeps_whole_episodes(undisturbed: Path, tmp_path: Path) -> None:
    """The limit of a file's size stands in for the disk: the last write is a short one, as there."""
    path = tmp_path / "full" / "out.jsonl"
    limit = int(0.7 * steps_file(undisturbed).stat().st_size) + 7
    with _start(path.parent, largest_file=limit) as process:
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 1
    assert b"lang-bench: Expected room for" in errors
    assert b"Fix: make room, and give the same command again." in errors
    assert steps_file(path).read_bytes().endswith(b"\n")
    assert 1 < path.read_bytes().count(b"\n") < 1 + N_EPISODES
    with _start(path.parent) as process:
        process.communicate(timeout=120)
    assert path.read_bytes() == undisturbed.read_bytes()
    assert steps_file(path).read_bytes() == steps_file(undisturbed).read_bytes()


def test_a_second_process_is_locked_out(undisturbed: Path, tmp_path: Path) -> None:
    path = tmp_path / "both" / "out.jsonl"
    with _start(path.parent) as first:
        while _size(path) < 0.1 * undisturbed.stat().st_size:
            time.sleep(0.005)
        os.kill(first.pid, signal.SIGSTOP)  # so that it cannot be done before the other begins
        try:
            with _start(path.parent) as second:
                _, errors = second.communicate(timeout=120)
        finally:
            os.kill(first.pid, signal.SIGCONT)
        first.communicate(timeout=120)
    assert (first.returncode, second.returncode) == (0, 1)
    assert b"another process is writing it" in errors
    assert path.read_bytes() == undisturbed.read_bytes()


@pytest.mark.process
@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_ends_a_run_between_two_episodes(undisturbed: Path, tmp_path: Path) -> None:
    path = tmp_path / "stopped" / "out.jsonl"
    with _start(path.parent, group=True) as process:
        while _size(path) < 0.2 * undisturbed.stat().st_size:
            time.sleep(0.005)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    assert b"Traceback" not in errors
    assert undisturbed.read_bytes().startswith(path.read_bytes())
    assert path.read_bytes().endswith(b"\n")


@pytest.mark.process
@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_ends_a_run_whose_agent_never_answers(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    command = ("--agent", "hostile_users:Hangs", "--in", "threads")
    with _start(folder, *command, group=True) as process:
        while len(list(folder.glob("hangs-*"))) < 2:
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=20)
    assert process.returncode == 130
    assert b"Traceback" not in errors, errors.decode()
