"""Limits of the machine that the sandbox runs into: an error that names them, never an outcome of honest code."""

from __future__ import annotations

import os
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
    """Return the reward of honest code, or the error, after statements, and shell commands in a mount namespace."""
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
    message = outcome(meeting_place, limit("RLIMIT_FSIZE", 0))
    assert message.startswith("SandboxError: Expected to run code in the sandbox; got ")
    assert message.endswith("File too large. Fix: raise the limit on the size of files (ulimit -f).")


@pytest.mark.process
@pytest.mark.parametrize("warm", [False, True])
def test_open_files(warm: bool, meeting_place: Path) -> None:
    """Of the process that asks, and of the supervisor, if it is started with that limit."""
    message = outcome(meeting_place, *["evaluate(HONEST_CODE)"] * warm, limit("RLIMIT_NOFILE", 16))
    assert message.startswith("SandboxError: Expected ")
    assert "Fix: raise the limit on open files (ulimit -n)" in message


needs_root = pytest.mark.skipif(os.getuid() != 0, reason="root runs code as another user, whose processes are counted")
PROCESSES = "Fix: raise the limit on processes (ulimit -u), or end some of this user's."
CROWD = f"""crowd = [subprocess.Popen(["sleep", "60"], user={NOBODY}) for _ in range(30)]"""


@pytest.mark.process
@needs_root
def test_processes_later(meeting_place: Path) -> None:
    """The children that wait are used up; then the system refuses every fork."""
    soft = "resource.setrlimit(resource.RLIMIT_NPROC, ({}, resource.getrlimit(resource.RLIMIT_NPROC)[1]))"
    lines = [soft.format(20), "evaluate(HONEST_CODE)", soft.format(1000), CROWD]
    finish = [
        "try:",
        "    [evaluate(HONEST_CODE) for _ in range(3)]",
        "finally:",
        "    [process.kill() for process in crowd]",
    ]
    message = outcome(meeting_place, *lines, *finish, user=NOBODY)
    assert message.startswith("SandboxError: Expected the sandbox to start a process; got ")
    assert message.endswith(PROCESSES)


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
