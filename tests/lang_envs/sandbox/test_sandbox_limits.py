"""Limits of the machine that the sandbox runs into: an error that names them, never an outcome of honest code."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lang_envs.sandbox import rendezvous

PACKAGES = Path(rendezvous.__file__).parents[2]
NOBODY = 65533
"""A user without other processes."""

SCRIPT = """
import resource, subprocess, sys
from lang_envs.datasets import load
from lang_envs.envs.datascicoding.evaluation import Evaluator
from lang_envs.sandbox.client import Sandbox
from lang_envs.envs.datascicoding.sandbox_doctor import HONEST_CODE
from lang_envs.sandbox.errors import SandboxError
from lang_envs.sandbox.rendezvous import Place
user, n_splits = {user!r}, {n_splits}
evaluate = Evaluator(load("balance-scale"), range(n_splits), sandbox=Sandbox(Place(cores=2, user=user)))
try:
{before}
    evaluation = evaluate(HONEST_CODE)
    print(evaluation.status, evaluation.score)
except SandboxError as error:
    print("SandboxError:", error)
"""


@pytest.fixture
def meeting_place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="le") as folder:
        yield Path(folder)


def outcome(folder: Path, *before: str, user: int | None = None, n_splits: int = 5, command: str = "") -> str:
    """Return the reward of honest code, or the error, after some statements.

    Args:
        folder: Where the supervisor is met.
        before: Statements, run before the evaluation.
        user: Who runs the code.
        n_splits: Splits of the evaluation.
        command: Shell commands to run before Python, in a mount namespace of its own.
    """
    code = SCRIPT.format(user=user, n_splits=n_splits, before="\n".join(f"    {line}" for line in (*before, "pass")))
    run = [sys.executable, "-c", code]
    if command:
        run = ["unshare", "--mount", "sh", "-ec", f'{command}; exec "$0" "$@"', *run]
    env = {**os.environ, "PYTHONPATH": str(PACKAGES), "XDG_RUNTIME_DIR": str(folder), "TMPDIR": str(folder)}
    done = subprocess.run(run, env=env, cwd=PACKAGES, capture_output=True, text=True, timeout=120, check=False)
    if command and "mount:" in done.stderr + done.stdout:
        pytest.skip("this system lets us mount nothing")
    assert done.stdout, done.stderr
    return done.stdout.strip()


def limit(name: str, value: int) -> str:
    return f"resource.setrlimit(resource.{name}, ({value}, {value}))"


@pytest.mark.process
def test_size_of_files(meeting_place: Path) -> None:
    found = outcome(meeting_place, limit("RLIMIT_FSIZE", 0))
    assert found.startswith("SandboxError: Expected to run code in the sandbox; got ")
    assert found.endswith("File too large. Fix: raise the limit on the size of files (ulimit -f).")


@pytest.mark.process
@pytest.mark.parametrize("warm", [False, True])
def test_open_files(warm: bool, meeting_place: Path) -> None:
    """Of the process that asks, and of the supervisor, if it is started with that limit."""
    found = outcome(meeting_place, *["evaluate(HONEST_CODE)"] * warm, limit("RLIMIT_NOFILE", 16))
    assert found.startswith("SandboxError: Expected ")
    assert "Fix: raise the limit on open files (ulimit -n)" in found


@pytest.mark.process
def test_few_open_files_are_enough_for_few_splits(meeting_place: Path) -> None:
    assert outcome(meeting_place, limit("RLIMIT_NOFILE", 160)) == "ok 0.785829624536637"
    found = outcome(meeting_place, limit("RLIMIT_NOFILE", 160), n_splits=30)
    assert found.startswith("SandboxError: Expected at most 24 splits in an evaluation")
    assert found.endswith("got 30. Fix: evaluate fewer splits at a time, or raise the limit on open files (ulimit -n).")


@pytest.mark.process
def test_connections_are_bounded(meeting_place: Path) -> None:
    """Of a supervisor that may open 128 files, 96 are not for clients."""
    more = "others = [Sandbox(Place(cores=2)) for _ in range(40)]; [other.about() for other in others]"
    found = outcome(meeting_place, limit("RLIMIT_NOFILE", 128), more)
    assert found == (
        "SandboxError: Expected at most 32 connections to the sandbox's supervisor; got one more. "
        "Fix: evaluate fewer programs at a time, or raise the limit on open files (ulimit -n)."
    )


needs_root = pytest.mark.skipif(os.getuid() != 0, reason="root runs code as another user, whose processes are counted")
PROCESSES = "Fix: raise the limit on processes (ulimit -u), or end some of this user's."
CROWD = f"""crowd = [subprocess.Popen(["sleep", "60"], user={NOBODY}) for _ in range(30)]"""


@pytest.mark.process
@needs_root
def test_processes_at_the_start(meeting_place: Path) -> None:
    found = outcome(meeting_place, limit("RLIMIT_NPROC", 1), user=NOBODY)
    assert found.startswith("SandboxError: Expected the sandbox's supervisor to start; got ")
    assert found.endswith(PROCESSES)


@pytest.mark.process
@needs_root
def test_processes_later(meeting_place: Path) -> None:
    """The children that wait are used up; then the system refuses every fork."""
    soft = "resource.setrlimit(resource.RLIMIT_NPROC, ({}, resource.getrlimit(resource.RLIMIT_NPROC)[1]))"
    lines = [soft.format(20), "evaluate(HONEST_CODE)", soft.format(1000), CROWD]
    finish = ["try:", "    [evaluate(HONEST_CODE) for _ in range(3)]", "finally:", "    [one.kill() for one in crowd]"]
    found = outcome(meeting_place, *lines, *finish, user=NOBODY)
    assert found.startswith("SandboxError: Expected the sandbox to start a process; got ")
    assert found.endswith(PROCESSES)


def test_processes_of_the_one_who_asks(monkeypatch: pytest.MonkeyPatch, meeting_place: Path) -> None:
    """The fork that starts the supervisor, of a user without privileges."""
    from lang_envs.sandbox.client import Sandbox
    from lang_envs.sandbox.errors import SandboxError

    def refuse(*arguments: object, **options: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setenv("XDG_RUNTIME_DIR", str(meeting_place))
    monkeypatch.setattr(subprocess, "Popen", refuse)
    with pytest.raises(SandboxError, match=r"ulimit -u"):
        Sandbox().about()


@pytest.mark.process
def test_children_that_never_get_ready(monkeypatch: pytest.MonkeyPatch, meeting_place: Path) -> None:
    from test_sandbox import HONEST, task_of

    from lang_envs.sandbox.client import Limits, Sandbox
    from lang_envs.sandbox.errors import SandboxError

    broken = "import os; from lang_envs.sandbox import forker; "
    broken += "forker.serve_one = lambda *_: os._exit(70)"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(meeting_place))
    monkeypatch.setattr(rendezvous, "_START", rendezvous._START.replace("\nstart_from", f"\n{broken}\nstart_from"))
    sandbox = Sandbox()
    with pytest.raises(SandboxError, match=r"got 20 in a row that ended before. Fix: .*ulimit -a"):
        sandbox.run([task_of(HONEST)], Limits())
    sandbox.close()


# ---------------------------------------------------------------------- the folder of the socket

READ_ONLY = "mount -t tmpfs -o ro none {}"
NO_INODES = "mount -t tmpfs -o nr_inodes=1 none {}"
NO_BLOCKS = "mount -t tmpfs -o size=4k none {0} && (head -c 4096 /dev/zero > {0}/full)"

needs_mounts = pytest.mark.skipif(
    os.getuid() != 0 or shutil.which("unshare") is None, reason="only root mounts a file system"
)


@pytest.mark.process
@needs_mounts
@pytest.mark.skipif(
    any(
        Path(folder) in (*Path(sys.executable).parents, *Path(__file__).parents)
        for folder in ("/tmp", "/var/tmp", "/mnt")
    ),
    reason="the mounts would hide this checkout",
)
@pytest.mark.parametrize(("mount", "reason"), [(READ_ONLY, "Read-only file system"), (NO_INODES, "No space left")])
def test_no_folder_can_be_made(mount: str, reason: str, meeting_place: Path) -> None:
    command = "; ".join(mount.format(folder) for folder in ("/tmp", "/var/tmp", "/mnt"))
    found = outcome(Path("/mnt"), command=command)
    assert found.startswith(f"SandboxError: Expected a folder for the sandbox's socket; got /mnt: {reason}")
    assert f"/tmp: {reason}" in found
    assert "Fix: set XDG_RUNTIME_DIR to a folder" in found


@pytest.mark.process
@needs_mounts
@pytest.mark.parametrize(
    ("mount", "reason", "fix"),
    [
        ("mount -t tmpfs none {0} && mkdir -m 700 {0}/lang-envs-0 && mount -o remount,ro {0}", "Read-only", "write to"),
        ("mount -t tmpfs -o nr_inodes=2 none {0} && mkdir -m 700 {0}/lang-envs-0", "No space left", "free space"),
    ],
)
def test_the_folder_cannot_be_used(mount: str, reason: str, fix: str) -> None:
    found = outcome(Path("/mnt"), command=mount.format("/mnt"))
    assert found.startswith("SandboxError: Expected to meet the sandbox's supervisor at /mnt/lang-envs-0/")
    assert reason in found
    assert f"{fix}" in found.partition("Fix: ")[2]


@pytest.mark.process
@needs_mounts
def test_a_folder_without_space_for_data_is_enough() -> None:
    assert outcome(Path("/mnt"), command=NO_BLOCKS.format("/mnt")) == "ok 0.785829624536637"
