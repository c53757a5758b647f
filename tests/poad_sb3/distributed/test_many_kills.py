"""Ranks, actors and nodes killed at random moments: the training is the same as without."""

from __future__ import annotations

import contextlib
import random
import sys
import time
from pathlib import Path

import psutil
import pytest
from rank_runs import members, output, poad, processes, reached_step, undisturbed
from ray_nodes import SimulatedCluster

N_KILLS = 20


def victims(folder: Path, cluster: SimulatedCluster) -> list[tuple[str, psutil.Process]]:
    """Return what a run can lose now: its ranks, its actors, and the second node if an actor is on it."""
    found: list[tuple[str, psutil.Process]] = []
    with contextlib.suppress(psutil.NoSuchProcess):  # one that ends meanwhile
        found += [("rank", psutil.Process(pid)) for rank, pid in processes(folder).items() if rank != "launcher"]
        actors = cluster.actors()
        found += [("actor", one) for one in actors]
        if any(cluster.second in one.parents() for one in actors):
            found.append(("node", cluster.second))
    return found


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_twenty_kills_cost_no_step(tmp_path: Path) -> None:
    rng, killed = random.Random(0), []
    for run in range(N_KILLS):
        folder = tmp_path / str(run)
        with SimulatedCluster(head_cores=2) as cluster:  # room for both actors where a node is lost
            options = ("--n-procs", "2", "--ray", cluster.address, "--n-actors", "2")
            process = poad(*options, folder=folder)
            reached = 0
            while process.poll() is None:
                time.sleep(0.1)
                step = reached_step(folder)
                if step == reached:
                    continue  # four losses without a new checkpoint end the command
                reached = step
                time.sleep(rng.uniform(0, 3))
                found = victims(folder, cluster)
                if found and len(killed) < N_KILLS:
                    kind, victim = rng.choice(found)
                    with contextlib.suppress(psutil.NoSuchProcess):
                        if kind == "node":
                            cluster.lose_second()
                        else:
                            victim.kill()
                        killed.append(kind)
        assert process.returncode == 0, (killed, output(folder))
        assert members(folder) == undisturbed(), (run, killed)
        if len(killed) == N_KILLS:
            break
    assert len(killed) == N_KILLS, killed
    assert set(killed) == {"rank", "actor", "node"}
