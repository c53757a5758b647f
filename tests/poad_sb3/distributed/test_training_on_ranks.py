"""Trainings in 1, 2 and 4 processes: equal bit for bit, also when a process is lost."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import rank_cases
import sharded_cases
import torch
from rank_runs import (
    ENVIRONMENT,
    EVERY,
    STEPS,
    members,
    output,
    poad,
    processes,
    reached_step,
    resume,
    undisturbed,
    wait_for_step,
)
from ray_users import outside, relatives, until

from poad_sb3.distributed import current_ranks
from poad_sb3.language_model import lm_head

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without torch.distributed"),
]
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no os.fork")
SUPPORT = Path(__file__).parents[2] / "support"


def start(*command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        env={**os.environ, **ENVIRONMENT, **variables},
        capture_output=True,
        text=True,
        timeout=280,
    )


def ranks_of(module: str, n_procs: int, folder: Path, *names: str) -> dict[str, Any]:
    """Return what the ranks of a module of `tests/support` have left."""
    folder.mkdir()
    path = os.pathsep.join(filter(None, (str(SUPPORT), os.environ.get("PYTHONPATH"))))
    run = f"import {module}; {module}.run()"
    done = start("-c", run, str(n_procs), *names, RANK_CASES_OUT=str(folder), PYTHONPATH=path)
    assert done.returncode == 0, done.stderr[-3000:]
    (file,) = folder.glob("*.json")
    results: dict[str, Any] = json.loads(file.read_text())
    return results


# One test for all cases: rows of a product would each start the processes again in every worker of pytest-xdist.
@needs_fork
@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("ignore")
def test_any_number_of_ranks_gives_the_same_training(tmp_path: Path) -> None:
    """Sums of 4 and 8 ranks are those of one by `test_gradient_tree.py`; here whole trainings of four, of each kind."""
    alone = rank_cases.trainings(rank_cases.CASES, current_ranks(), tmp_path)
    assert set(alone) == set(rank_cases.CASES)
    assert ranks_of("rank_cases", 2, tmp_path / "2", *alone) == alone
    some = ("POAD, trie", "GRPO, free")
    assert ranks_of("rank_cases", 4, tmp_path / "4", *some) == {name: alone[name] for name in some}


# The stopped rank goes on after rank 0 has given up, so that torchrun can end it without waiting for half a minute.
STOPPED = """
import os, signal, subprocess, threading
from datetime import timedelta
from poad_sb3.distributed import start_ranks

ranks = start_ranks(2, timeout=timedelta(seconds=5))
if not ranks.is_first:
    subprocess.Popen(["sh", "-c", f"sleep 12; kill -CONT {os.getpid()}"], start_new_session=True)
    threading.Timer(1, lambda: os.kill(os.getpid(), signal.SIGSTOP)).start()
while True:
    ranks.require_equal("text", "same")
"""


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="no SIGSTOP")
def test_a_stopped_rank_is_noticed_at_the_time_out(tmp_path: Path) -> None:
    """Under plain torchrun: rank 0 names the cause, and torchrun ends both."""
    (script := tmp_path / "stopped.py").write_text(STOPPED)
    done = start("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script))
    assert done.returncode == 1
    assert "RankError: Expected all 2 ranks to reach an exchange; rank 0 waits in vain" in done.stderr


@pytest.mark.timeout(900)
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_killed_rank_and_a_full_disk_cost_no_step(tmp_path: Path) -> None:
    """A lost rank is followed by a resumed run at once; a full disk ends the run, and leaves its checkpoint."""
    import resource  # not on Windows

    folder = tmp_path / "run"
    process = poad("--n-procs", "2", folder=folder)
    wait_for_step(folder, 2 * EVERY, process)
    assert outside({process.pid, *relatives(process.pid)}) == [], "ranks listen on the loopback interface only"
    os.kill(processes(folder)["0"], signal.SIGKILL)
    until(lambda: "Rank 0 of 2 was lost (signal 9). Resuming from step" in output(folder))
    wait_for_step(folder, reached_step(folder) + EVERY, process)
    limit = (10 << 10, resource.RLIM_INFINITY)
    resource.prlimit(processes(folder)["0"], resource.RLIMIT_FSIZE, limit)  # a checkpoint is larger
    assert process.wait(120) == 3, output(folder)
    assert len(re.findall(r"The training stopped at step \d+ \(OSError: .*File too large", output(folder))) == 1
    assert output(folder).count("was lost") == 1
    assert 3 * EVERY <= reached_step(folder) < STEPS
    assert {file.name for file in folder.glob("latest*")} == {"latest.zip"}
    assert processes(folder) == {}
    resume(folder)
    assert members(folder) == undisturbed()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_killed_launcher_leaves_no_process(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = poad("--n-procs", "2", folder=folder)
    wait_for_step(folder, EVERY, process)
    process.kill()
    process.wait()
    end = time.monotonic() + 60
    while processes(folder):
        assert time.monotonic() < end, processes(folder)
        time.sleep(0.2)


@needs_fork
@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore")
def test_sharded_weights_learn_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Value loss, entropy and gradient norm of up to 20 updates; and the checkpoint loads into parts as it was."""
    monkeypatch.setattr(lm_head, "SLICE_LOGITS", lm_head.SLICE_LOGITS)  # the cases set it
    alone = json.loads(json.dumps(sharded_cases.trainings(current_ranks(), tmp_path)))
    two = ranks_of("sharded_cases", 2, tmp_path / "2")
    assert set(alone) == set(two) == {"lora", "all weights", "bfloat16", "free text", "cloned"}
    assert two.pop("cloned") == pytest.approx(alone.pop("cloned"), abs=1e-6)
    for name, expected in alone.items():
        assert len(expected["losses"]) == {"free text": 3, "bfloat16": 3}.get(name, 20)
        for losses, other in zip(expected["losses"], two[name]["losses"], strict=True):
            assert losses[:2] == pytest.approx(other[:2], abs=1e-5), name
            assert losses[2] == pytest.approx(other[2], rel=1e-4), name
        assert expected["loaded"]
        assert two[name]["loaded"]
        assert two[name]["sums"] == pytest.approx(expected["sums"], abs=1e-5), name
