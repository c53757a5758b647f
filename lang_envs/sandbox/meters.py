"""CPU time and state of other processes, read from the kernel's clocks and /proc."""

from __future__ import annotations

import os
import time
from pathlib import Path


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of all threads of a process; 0 if it is gone or not accessible.

    The clock id is that of `clock_getcpuclockid(3)`; Python does not offer it for processes.
    """
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except (OSError, OverflowError):
        return 0.0


def is_dead(pid: int) -> bool:
    """Return whether a process has ended, its files closed, waited for or not; also True if it is not accessible."""
    return _state(pid) in "ZX"


def is_runnable(pid: int) -> bool:
    """Return whether the main thread of a process runs, or waits for a core."""
    return _state(pid) == "R"


def _state(pid: int) -> str:
    try:
        # Bytes: the name of a process, in front of the parenthesis, may be any.
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0].decode("ascii")
    except (OSError, IndexError):
        return "X"


def outer_pid() -> int:
    """Return the id of this process in the outer namespace of process ids, as /proc shows it."""
    try:
        return int(Path("/proc/self").readlink().name)
    except OSError:
        return os.getpid()


def waiting_seconds(pid: int) -> float:
    """Return the seconds that the main thread of a process was ready to run but had no core; 0 where unknown.

    Wall time less this is the process's own time, working or asleep, under any load. A wait counts when it has ended.
    """
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0
