"""Trainings in 1, 2 and 4 processes: equal bit for bit, also when a process is lost."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from rank_cases import CASES
from rank_runs import (
    ENVIRONMENT,
    EVERY,
    STEPS,
    TRAIN,
    members,
    output,
    poad,
    processes,
    reached_step,
    undisturbed,
    wait_for_step,
)
from ray_users import outside, relatives

from poad_sb3.distributed.leftovers import remove_leftovers

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without torch.distributed"),
]
SCRIPT = Path(__file__).parents[2] / "support" / "rank_cases.py"


def start(
    n_procs: int, folder: Path, *names: str, script: Path = SCRIPT, **environment: str
) -> subprocess.CompletedProcess[str]:
    folder.mkdir()
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(n_procs)]
    return subprocess.run(
        [*command, str(script), *names],
        env={**os.environ, **ENVIRONMENT, "RANK_CASES_OUT": str(folder), **environment},
        capture_output=True,
        text=True,
        timeout=280,
    )


def torchrun(
    n_procs: int, folder: Path, *names: str, script: Path = SCRIPT, answer: str = "digests.json"
) -> dict[str, Any]:
    done = start(n_procs, folder, *names, script=script)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads((folder / answer).read_text())
    return found


# One test for all cases: rows of a product would each start the processes again in every worker of pytest-xdist.
@pytest.mark.timeout(900)
def test_any_number_of_ranks_gives_the_same_training(tmp_path: Path) -> None:
    alone, two = (torchrun(size, tmp_path / str(size), *CASES) for size in (1, 2))
    assert set(alone) == set(CASES)
    assert two == alone
    del alone["POAD, SubprocVecEnv"]
    assert torchrun(4, tmp_path / "4", *alone) == alone


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="no SIGSTOP")
def test_a_stopped_rank_is_noticed_within_the_time_out(tmp_path: Path) -> None:
    """Under plain torchrun: rank 0 names the cause, and torchrun ends both."""
    done = start(2, tmp_path / "out", "POAD, trie", RANK_CASES_STOP="1", RANK_CASES_TIMEOUT="5")
    assert done.returncode == 1
    assert "RankError: Expected all 2 ranks to reach an exchange; rank 0 waits in vain" in done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_killed_ranks_cost_no_step(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = poad("--n-procs", "2", folder=folder)
    for number, rank in enumerate(("1", "0"), 1):
        wait_for_step(folder, 2 * number * EVERY, process)
        assert outside({process.pid, *relatives(process.pid)}) == [], "ranks listen on the loopback interface only"
        os.kill(processes(folder)[rank], signal.SIGKILL)
        wait_for_step(folder, (2 * number + 1) * EVERY, process)
        assert f"Rank {rank} of 2 was lost (signal 9). Resuming from step" in output(folder)
    assert process.wait(250) == 0, output(folder)
    assert members(folder) == undisturbed()
    assert processes(folder) == {}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_full_disk_ends_the_run_and_leaves_its_checkpoint(tmp_path: Path) -> None:
    import resource  # not on Windows

    folder = tmp_path / "run"
    process = poad("--n-procs", "2", folder=folder)
    wait_for_step(folder, EVERY, process)
    limit = (10 << 10, resource.RLIM_INFINITY)
    resource.prlimit(processes(folder)["0"], resource.RLIMIT_FSIZE, limit)  # a checkpoint is larger
    assert process.wait(120) == 3, output(folder)
    assert re.search(r"The training stopped at step \d+ \(OSError: .*File too large", output(folder))
    assert "was lost" not in output(folder)
    assert EVERY <= reached_step(folder) < STEPS
    assert {file.name for file in folder.glob("latest*")} == {"latest.zip"}
    assert poad("--resume", folder=folder).wait(200) == 0, output(folder)
    assert members(folder) == undisturbed()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_killed_launcher_leaves_no_process(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = poad("--n-procs", "2", folder=folder)
    wait_for_step(folder, EVERY, process)
    process.kill()
    process.wait()
    (left,) = Path(tempfile.gettempdir()).glob(f"poad-ranks-{process.pid}-*")
    remove_leftovers("poad-ranks-")
    assert not left.exists(), "as the next command does"
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


@pytest.mark.timeout(600)
def test_sharded_weights_learn_the_same(tmp_path: Path) -> None:
    """Value loss, entropy and gradient norm of up to 20 updates; and the checkpoint loads into parts as it was."""
    script = SCRIPT.with_name("sharded_cases.py")
    alone, two = (torchrun(size, tmp_path / str(size), script=script, answer="losses.json") for size in (1, 2))
    assert set(alone) == set(two) == {"lora", "all weights", "bfloat16", "free text", "cloned"}
    assert two.pop("cloned") == pytest.approx(alone.pop("cloned"), abs=1e-6)
    for name, expected in alone.items():
        assert len(expected["losses"]) == {"free text": 2, "bfloat16": 4}.get(name, 19)
        for one, other in zip(expected["losses"], two[name]["losses"], strict=True):
            assert one[:2] == pytest.approx(other[:2], abs=1e-5), name
            assert one[2] == pytest.approx(other[2], rel=1e-4), name
        assert expected["loaded"]
        assert two[name]["loaded"]
        assert two[name]["sums"] == pytest.approx(expected["sums"], abs=1e-2), name
