"""Rows with a driver of their own: killed drivers, and removed nodes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ray_nodes import SimulatedCluster
from ray_users import alive, relatives, until

ROOT = Path(__file__).parents[3]
HEAD = """
import json, os, sys
from poad_sb3.distributed.ray_cluster import RayConnection

def tell(**facts):
    print("#" + json.dumps(facts), flush=True)
"""
ENVS = """
from functools import partial
import numpy as np
from ray_users import *
from stable_baselines3.common.env_util import make_vec_env
from poad_sb3.distributed.ray_vec_env import make_ray_envs
from poad_sb3.vec_env.make_envs import make_envs
"""


class Driver:
    """A Python process that runs a program and tells facts."""

    def __init__(self, folder: Path, program: str, *arguments: str, imports: str = ENVS) -> None:
        file = folder / "driver.py"
        file.write_text(HEAD + imports + program)
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests" / "support")])}
        self.errors = folder / "errors.txt"
        with self.errors.open("w") as errors:
            command = [sys.executable, str(file), *arguments]
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=folder, env=env
            )

    def hear(self) -> dict[str, Any]:
        """Return the next facts."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("#"):
                facts: dict[str, Any] = json.loads(line[1:])
                return facts
        raise AssertionError(self.errors.read_text()[-3000:])

    def end(self) -> None:
        assert self.process.stdout is not None
        self.process.stdout.read()
        assert self.process.wait(60) == 0, self.errors.read_text()[-3000:]


@pytest.fixture
def drivers() -> Iterator[list[Driver]]:
    started: list[Driver] = []
    yield started
    for driver in started:
        driver.process.kill()
        driver.process.wait()
        if driver.process.stdout is not None:
            driver.process.stdout.close()


@pytest.fixture(scope="module")
def killed() -> Iterator[list[set[int]]]:
    """Processes of killed drivers: none is left at the end of this file.

    Ray's two agents live for a minute after their driver; other tests run meanwhile.
    """
    families: list[set[int]] = []
    yield families
    for family in families:
        until(lambda family=family: not alive(family), 150)


LIVES = """
env = make_ray_envs(partial(TracedLamps, sys.argv[1], float(sys.argv[2])), {}, 2, 2, demand={})
env.reset()
tell(folder=str(RayConnection._folder), actors=env.env_method("process"))
if float(sys.argv[2]):
    env.step(np.stack([env.action_space.encode("wait")] * 2))
env.close()
tell(left=[name for name in os.environ if name.startswith("RAY_AUTH")])
sys.stdin.read() if len(sys.argv) > 3 else None
"""


@pytest.mark.process
@pytest.mark.timeout(240)
def test_a_killed_driver_leaves_no_process(drivers: list[Driver], killed: list[set[int]], tmp_path: Path) -> None:
    drivers.append(Driver(tmp_path, LIVES, str(tmp_path), "300"))
    facts = drivers[0].hear()
    until(lambda: list(tmp_path.glob(f"{facts['actors'][1]}-*")))  # in mid-step
    family = relatives(drivers[0].process.pid)
    assert set(facts["actors"]) <= family
    drivers[0].process.send_signal(signal.SIGKILL)
    drivers[0].process.wait()
    until(lambda: not alive(set(facts["actors"])), 30)
    killed.append(family)


@pytest.mark.process
@pytest.mark.timeout(240)
def test_closed_environments_leave_no_process_and_no_file(drivers: list[Driver], tmp_path: Path) -> None:
    shared = set(Path("/dev/shm").glob("*"))
    drivers.append(Driver(tmp_path, LIVES, str(tmp_path), "0"))
    facts, family = drivers[0].hear(), relatives(drivers[0].process.pid)
    assert set(facts["actors"]) < family
    assert drivers[0].hear() == {"left": []}
    assert not alive(set(facts["actors"]))
    assert not Path(facts["folder"]).exists()
    drivers[0].end()
    until(lambda: not alive(family), 150)
    left = set(Path("/dev/shm").glob("*")) - shared
    assert not [file for file in left if "ray" in file.name or "plasma" in file.name]


NODES = """
from ray_nodes import SimulatedCluster

make = partial(TracedLamps, sys.argv[1])
wanted = play(make_vec_env(make, 4), 8)
with SimulatedCluster() as cluster:
    import ray  # after the cluster, which sets where Ray listens

    env = make_ray_envs(make, {}, 4, 2, address=cluster.address)
    before = env.env_method("process")
    np.testing.assert_equal(play(env, 8, {4: cluster.lose_second}), wanted)
    tell(before=before, after=env.env_method("process"))
    env.close()
    tell(connected=ray.is_initialized())
    ray.shutdown()
"""


@pytest.mark.process
@pytest.mark.timeout(240)
def test_a_removed_node(drivers: list[Driver], tmp_path: Path) -> None:
    drivers.append(Driver(tmp_path, NODES, str(tmp_path)))
    facts = drivers[0].hear()
    kept = [before == other for before, other in zip(facts["before"], facts["after"], strict=True)]
    assert kept in ([True, True, False, False], [False, False, True, True]), "one actor of each node"
    assert drivers[0].hear() == {"connected": True}, "the cluster is not ours to leave"
    drivers[0].end()


CONNECT = """
from poad_sb3.errors import WorkerError
from poad_sb3.distributed.ray_cluster import room
try:
    RayConnection(sys.argv[1])
    tell(cores=room({"CPU": 1.0}), error="")
except WorkerError as error:
    tell(cores=0, error=str(error))
"""


@pytest.mark.process
@pytest.mark.timeout(240)
def test_an_address_gets_a_token_where_asked(
    drivers: list[Driver], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("ab" * 32)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.delenv("RAY_AUTH_TOKEN_PATH", raising=False)
    with SimulatedCluster() as cluster:
        drivers.append(Driver(tmp_path, CONNECT, cluster.address, imports=""))
        assert drivers[0].hear() == {"cores": 2, "error": ""}
        drivers[0].end()
        monkeypatch.setenv("RAY_NUM_REDIS_GET_RETRIES", "1")  # 20 attempts by default, one in a second
        monkeypatch.delenv("RAY_AUTH_MODE")  # else a cluster elsewhere would get the token of this one
        drivers.append(Driver(tmp_path, CONNECT, cluster.address, imports=""))
        assert "copy its ~/.ray/auth_token to this machine and set RAY_AUTH_MODE=token" in drivers[1].hear()["error"]
        drivers[1].end()
