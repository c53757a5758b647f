"""Runs of `poad train` in processes: their output, their processes, and the checkpoint they leave."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

from poad_runs import invoke
from ray_users import until

from lang_envs.files import lock
from poad_sb3.common.save_util import read_header

ENVIRONMENT = {"OMP_NUM_THREADS": "1", **({"GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else {})}
STEPS, EVERY = 1024, 128
TRAIN = [
    *("train", "MultiKey-v0", "--steps", str(STEPS), "--n-envs", "8", "--set", "n_steps=16"),
    *("--save-every", str(EVERY), "--record-episodes", "0"),
]


def poad(*arguments: str, folder: Path) -> subprocess.Popen[str]:
    with (folder.parent / f"{folder.name}.log").open("w") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "poad_sb3.cli", *TRAIN, "--out", str(folder), *arguments],
            env={**os.environ, **ENVIRONMENT},
            stdout=log,
            stderr=subprocess.STDOUT,
            text=True,
        )


def resume(folder: Path, *arguments: str) -> None:
    """Go on with a run, in this process."""
    invoke(*TRAIN, "--out", str(folder), "--resume", *arguments)


def output(folder: Path) -> str:
    return (folder.parent / f"{folder.name}.log").read_text()


def processes(folder: Path) -> dict[str, int]:
    """Return the processes of a run: ranks by number, `launcher` for the one that started them."""
    pids = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            variables = dict(
                part.split(b"=", 1) for part in (process / "environ").read_bytes().split(b"\0") if b"=" in part
            )
        except (OSError, ValueError):
            continue
        if str(folder).encode() in words:
            pids[variables.get(b"RANK", b"launcher").decode()] = int(process.name)
    return pids


def reached_step(folder: Path) -> int:
    """Return the step of the last checkpoint; 0 without one."""
    latest = folder / "latest.zip"
    return int(read_header(latest)["num_timesteps"]) if latest.exists() else 0


def wait_for_step(folder: Path, step: int, process: subprocess.Popen[str]) -> None:
    """Wait until a checkpoint of a step is there."""
    while process.poll() is None:
        if reached_step(folder) >= step:
            return
        time.sleep(0.1)
    raise AssertionError(output(folder))


def members(folder: Path) -> dict[str, str]:
    """Return the digests of the parts of the last checkpoint, as its header has them."""
    header = read_header(folder / "latest.zip")
    assert header["num_timesteps"] == STEPS
    return {name: digest for name, digest in header["sha256"].items() if name.endswith(".pth")}


def undisturbed() -> dict[str, str]:
    """Return the `members` of a run in one process, made once in a test run."""
    folder = Path(os.environ["LANG_ENVS_CACHE"], "undisturbed")
    folder.mkdir(exist_ok=True)
    with (folder / ".lock").open("w") as file:  # a worker that finds it locked waits for the one that makes the run
        until(lambda: _is_locked(file.fileno()), 280)
        if not (folder / "whole").exists():
            invoke(*TRAIN, "--out", str(folder / "run"))
            (folder / "whole").touch()
    return members(folder / "run")


def _is_locked(file: int) -> bool:
    with contextlib.suppress(BlockingIOError):
        lock(file)
        return True
    return False
