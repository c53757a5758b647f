"""Ranks and actors killed at random moments: the training is the same as without."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rank_runs import members, output, poad, processes, reached_step

N_KILLS = 20


def actors(folder: Path) -> list[int]:
    """Return the actors of a run, without Ray's own agents, that a node ends with."""
    driver = processes(folder).get("0")
    if driver is None:
        return []
    tree = subprocess.run(["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in tree.splitlines()[1:]]
    below, found = {driver}, []
    for _ in range(4):
        below |= {int(pid) for pid, parent, _ in rows if int(parent) in below}
    for pid, _, words in rows:
        if int(pid) in below and words.startswith("ray::") and not any(one in words for one in ("IDLE", "Agent")):
            found.append(int(pid))
    return found


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_twenty_kills_cost_no_step(tmp_path: Path) -> None:
    alone, rng, killed = tmp_path / "alone", random.Random(0), []
    assert poad(folder=alone).wait(300) == 0, output(alone)
    for run in range(N_KILLS):
        folder = tmp_path / str(run)
        process = poad("--n-procs", "2", "--ray", "local", "--n-actors", "2", folder=folder)
        reached = 0
        while process.poll() is None:
            time.sleep(0.1)
            step = reached_step(folder)
            if step == reached:
                continue  # four losses without a new checkpoint end the command
            reached = step
            time.sleep(rng.uniform(0, 3))
            ranks = {f"rank {rank}": pid for rank, pid in processes(folder).items() if rank != "launcher"}
            found = [*ranks.items(), *((f"actor {pid}", pid) for pid in actors(folder))]
            if found and len(killed) < N_KILLS:
                name, pid = rng.choice(found)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed.append(name)
        assert process.returncode == 0, (killed, output(folder))
        assert members(folder) == members(alone), (run, killed)
        if len(killed) == N_KILLS:
            break
    assert len(killed) == N_KILLS, killed
    assert {name.split()[0] for name in killed} == {"rank", "actor"}
