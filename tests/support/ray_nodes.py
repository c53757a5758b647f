"""A Ray cluster of two nodes on this machine, in a process of its own, that loses a node when asked."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

_SMALL = {"object_store_memory": 100 << 20}


class SimulatedCluster:
    """Start a head and a second node with one core.

    Args:
        head_cores: Cores of the head.

    Attributes:
        address: Address of the head.
        second: Process of the second node: its actors are children of it.
    """

    def __init__(self, head_cores: int = 1) -> None:
        self._folder = tempfile.mkdtemp(prefix="rt", dir="/tmp")  # paths of sockets are short
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # loopback only, of its drivers too; see ray_cluster.py
        environment = {**os.environ, "RAY_TMPDIR": self._folder, "RAY_USAGE_STATS_ENABLED": "0"}
        command = [sys.executable, __file__, self._folder, str(head_cores)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        self._hear()

    def _hear(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("#"):  # Ray prints too
                facts: dict[str, Any] = json.loads(line[1:])
                self.address, self.second = str(facts["address"]), psutil.Process(facts["second"])
                return
        raise AssertionError("the cluster has ended")

    def actors(self) -> list[psutil.Process]:
        """Return the processes of the actors, without Ray's agents and idle workers."""
        found = []
        for one in psutil.Process(self._process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                words = " ".join(one.cmdline())
                if words.startswith("ray::") and "IDLE" not in words and "Agent" not in words:
                    found.append(one)
        return found

    def lose_second(self) -> None:
        """Kill the second node at once, and start another one."""
        assert self._process.stdin is not None
        self._process.stdin.write("lose\n")
        self._process.stdin.flush()
        self._hear()

    def lose_head(self) -> None:
        """Kill the control service, that the head runs."""
        for one in psutil.Process(self._process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if one.name() == "gcs_server":
                    one.kill()

    def __enter__(self) -> SimulatedCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        tree = [*psutil.Process(self._process.pid).children(recursive=True), psutil.Process(self._process.pid)]
        for one in tree:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.send_signal(signal.SIGKILL)
        self._process.communicate()
        psutil.wait_procs(tree, 30)
        shutil.rmtree(self._folder, ignore_errors=True)


def _serve(folder: str, head_cores: int) -> None:
    from ray.cluster_utils import Cluster

    Path(folder, "ray").mkdir()
    head = {**_SMALL, "num_cpus": head_cores, "include_dashboard": False, "temp_dir": f"{folder}/head"}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    while True:
        second = cluster.add_node(num_cpus=1, **_SMALL)
        (raylet,) = second.all_processes["raylet"]
        facts = {"address": cluster.address, "second": raylet.process.pid}
        sys.stdout.write(f"#{json.dumps(facts)}\n")
        sys.stdout.flush()
        if sys.stdin.readline() != "lose\n":  # the test was killed
            cluster.shutdown()
            return
        cluster.remove_node(second, allow_graceful=False)


if __name__ == "__main__":
    _serve(sys.argv[1], int(sys.argv[2]))
