"""A Ray cluster of two nodes on this machine, in a process of its own, that loses a node when asked."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType

import psutil

_SMALL = {"object_store_memory": 100 << 20}


class SimulatedCluster:
    """Start a head and a second node with one core each.

    Attributes:
        address: Address of the head.
    """

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="rt", dir="/tmp")  # paths of sockets are short
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # loopback only, of its drivers too; see ray_cluster.py
        environment = {**os.environ, "RAY_TMPDIR": self._folder, "RAY_USAGE_STATS_ENABLED": "0"}
        command = [sys.executable, __file__, self._folder]
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
                self.address = line[1:].strip()
                return
        raise AssertionError("the cluster has ended")

    def lose_second(self, *, replace: bool = True) -> None:
        """Kill the second node at once, and start another one."""
        assert self._process.stdin is not None
        self._process.stdin.write("replace\n" if replace else "lose\n")
        self._process.stdin.flush()
        self._hear()

    def lose_head(self) -> None:
        """Kill the control service, that the head runs."""
        for process in psutil.Process(self._process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if process.name() == "gcs_server":
                    process.kill()

    def __enter__(self) -> SimulatedCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        tree = [*psutil.Process(self._process.pid).children(recursive=True), psutil.Process(self._process.pid)]
        for process in tree:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)
        self._process.communicate()
        psutil.wait_procs(tree, 30)
        shutil.rmtree(self._folder, ignore_errors=True)


def _serve(folder: str) -> None:
    from ray.cluster_utils import Cluster

    Path(folder, "ray").mkdir()
    head = {**_SMALL, "num_cpus": 1, "include_dashboard": False, "temp_dir": f"{folder}/head"}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    word = "replace\n"
    while word in ("replace\n", "lose\n"):  # else the test was killed
        second = cluster.add_node(num_cpus=1, **_SMALL) if word == "replace\n" else None
        sys.stdout.write(f"#{cluster.address}\n")
        sys.stdout.flush()
        word = sys.stdin.readline()
        if word and second is not None:
            cluster.remove_node(second, allow_graceful=False)
    cluster.shutdown()


if __name__ == "__main__":
    _serve(sys.argv[1])
