"""Trainings in 1, 2 and 4 processes: equal bit for bit, also when a process is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from rank_cases import CASES

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without torch.distributed"),
]
SCRIPT = Path(__file__).parents[2] / "support" / "rank_cases.py"
ENVIRONMENT = {"OMP_NUM_THREADS": "1", **({"GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else {})}
STEPS, EVERY = 1024, 128
TRAIN = [
    *("train", "MultiKey-v0", "--steps", str(STEPS), "--n-envs", "8", "--set", "n_steps=16"),
    *("--save-every", str(EVERY), "--record-episodes", "0"),
]


def torchrun(
    n_procs: int, folder: Path, *names: str, script: Path = SCRIPT, answer: str = "digests.json"
) -> dict[str, Any]:
    folder.mkdir()
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(n_procs)]
    done = subprocess.run(
        [*command, str(script), *names],
        env={**os.environ, **ENVIRONMENT, "RANK_CASES_OUT": str(folder)},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads((folder / answer).read_text())
    return found


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, dict[str, str]]]:
    folder = tmp_path_factory.mktemp("ranks")
    return {size: torchrun(size, folder / str(size), *CASES) for size in (1, 2, 4)}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", CASES)
def test_any_number_of_ranks_gives_the_same_training(results: dict[int, Any], name: str) -> None:
    assert results[2][name] == results[1][name]
    assert results[4][name] == results[1][name]


def poad(*arguments: str, folder: Path) -> subprocess.Popen[str]:
    with (folder.parent / f"{folder.name}.log").open("w") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "poad_sb3.cli", *TRAIN, "--out", str(folder), *arguments],
            env={**os.environ, **ENVIRONMENT},
            stdout=log,
            stderr=subprocess.STDOUT,
            text=True,
        )


def output(folder: Path) -> str:
    return (folder.parent / f"{folder.name}.log").read_text()


def processes(folder: Path) -> dict[str, int]:
    """Return the processes of a run: ranks by number, `launcher` for the one that started them."""
    found = {}
    for one in Path("/proc").glob("[0-9]*"):
        try:
            words = (one / "cmdline").read_bytes().split(b"\0")
            variables = dict(
                part.split(b"=", 1) for part in (one / "environ").read_bytes().split(b"\0") if b"=" in part
            )
        except (OSError, ValueError):
            continue
        if str(folder).encode() in words:
            found[variables.get(b"RANK", b"launcher").decode()] = int(one.name)
    return found


def wait_for_step(folder: Path, step: int, process: subprocess.Popen[str]) -> None:
    """Wait until a checkpoint of a step is there."""
    from poad_sb3.common.save_util import read_header

    while process.poll() is None:
        if (folder / "latest.zip").exists() and read_header(folder / "latest.zip")["num_timesteps"] >= step:
            return
        time.sleep(0.1)
    raise AssertionError(output(folder))


def members(folder: Path) -> dict[str, str]:
    """Return the digests of the parts of the last checkpoint, as its header has them."""
    from poad_sb3.common.save_util import read_header

    header = read_header(folder / "latest.zip")
    assert header["num_timesteps"] == STEPS
    return {name: digest for name, digest in header["sha256"].items() if name.endswith(".pth")}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    assert poad(folder=folder).wait(200) == 0, output(folder)
    return members(folder)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("rank", ["0", "1"])
def test_a_killed_rank_costs_no_step(tmp_path: Path, undisturbed: dict[str, str], rank: str) -> None:
    folder = tmp_path / "run"
    process = poad("--n-procs", "2", folder=folder)
    wait_for_step(folder, 3 * EVERY, process)
    os.kill(processes(folder)[rank], signal.SIGKILL)
    assert process.wait(250) == 0, output(folder)
    assert f"Rank {rank} of 2 was lost (signal 9). Going on from step" in output(folder)
    assert members(folder) == undisturbed
    assert processes(folder) == {}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_killed_launcher_leaves_no_process(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = poad("--n-procs", "2", folder=folder)
    wait_for_step(folder, EVERY, process)
    process.kill()
    end = time.monotonic() + 60
    while processes(folder):
        assert time.monotonic() < end, processes(folder)
        time.sleep(0.2)


def test_an_error_of_the_training_is_shown_once_and_not_tried_again(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = poad("--n-procs", "2", "--set", "micro_batches=1", folder=folder)
    assert process.wait(120) == 1
    assert output(folder).count("Expected micro_batches to be a multiple of the 2 ranks") == 1


BROKEN = """
import time
from gymnasium.envs.registration import register
from lang_envs.envs.multikey.env import MultiKeyEnv

class Broken(MultiKeyEnv):
    n_steps = 0

    def step(self, action):
        Broken.n_steps += 1
        if Broken.n_steps == 300:
            raise ValueError("the door is stuck")
        return super().step(action)

    def close(self):
        time.sleep(0.3)

register("Broken-v0", entry_point=Broken, max_episode_steps=20)
"""


def test_an_error_in_an_environment_is_shown_once_and_not_tried_again(tmp_path: Path) -> None:
    """Rank 0 takes longer to end than the others."""
    (tmp_path / "broken_envs.py").write_text(BROKEN)
    command = [*TRAIN, "--out", str(tmp_path / "run"), "--n-procs", "2"]
    command[1] = "broken_envs:Broken-v0"
    done = subprocess.run(
        [sys.executable, "-m", "poad_sb3.cli", *command],
        env={**os.environ, **ENVIRONMENT},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert done.returncode == 3, done.stderr[-3000:]
    assert done.stderr.count("The training stopped at step 296 (ValueError: the door is stuck).") == 1
    assert "was lost" not in done.stderr


@pytest.mark.usefixtures("ctrl_c")
def test_an_interrupted_launcher_ends_in_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = poad("--n-procs", "2", "--steps", "1000000", folder=folder)
    wait_for_step(folder, EVERY, process)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130, output(folder)
    assert "poad: interrupted; " in output(folder)
    assert "Traceback" not in output(folder)


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Any]:
    folder = tmp_path_factory.mktemp("sharded")
    script = SCRIPT.with_name("sharded_cases.py")
    return {size: torchrun(size, folder / str(size), script=script, answer="losses.json") for size in (1, 2)}


@pytest.mark.parametrize("name", ["lora", "all weights", "bfloat16"])
def test_divided_weights_learn_the_same(sharded: dict[int, Any], name: str) -> None:
    """Value loss, entropy and gradient norm of 20 updates; and the checkpoint loads into parts as it was."""
    alone, together = (sharded[size][name] for size in (1, 2))
    assert len(alone["losses"]) == 19
    for one, other in zip(alone["losses"], together["losses"], strict=True):
        assert one[:2] == pytest.approx(other[:2], abs=1e-5)
        assert one[2] == pytest.approx(other[2], rel=1e-4)
    assert alone["loaded"]
    assert together["loaded"]
    for name, total in alone["sums"].items():
        assert together["sums"][name] == pytest.approx(total, abs=1e-2)
