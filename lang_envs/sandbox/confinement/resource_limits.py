"""Bounds on memory, processor time, open files and stack of a process (rlimits), enforced by the kernel."""

from __future__ import annotations

import os
import sys

_STACK_BYTES = 8 << 20  # the default of Linux, and enough for Python's own recursion limit
_OPEN_FILES = 64


def limit_resources(*, memory_bytes: int, cpu_seconds: int) -> None:
    """Bound the resources of this process from here on; hard limits are only ever lowered.

    The number of processes has no limit here: the kernel would count those of the whole user, and exempts root.

    Args:
        memory_bytes: Address space beyond the present mappings; in all, where `/proc` is missing.
        cpu_seconds: Processor time of the process since its start. SIGXCPU comes at its end, SIGKILL a second later.

    Raises:
        ValueError: If a budget is not positive.
        OSError: If the system refuses a limit.
    """
    import resource

    if memory_bytes <= 0 or cpu_seconds <= 0:
        raise ValueError(f"Expected budgets above 0; got {memory_bytes=}, {cpu_seconds=}.")
    wanted = {
        "RLIMIT_CPU": (cpu_seconds, cpu_seconds + 1),
        "RLIMIT_FSIZE": (0, 0),  # the answer goes through a pipe, not a file
        "RLIMIT_CORE": (0, 0),
        "RLIMIT_NOFILE": (_OPEN_FILES, _OPEN_FILES),
        "RLIMIT_STACK": (_STACK_BYTES, _STACK_BYTES),
        "RLIMIT_MEMLOCK": (0, 0),
        "RLIMIT_MSGQUEUE": (0, 0),
        "RLIMIT_SIGPENDING": (0, 0),  # all processes of a user share the room for signals that wait
    }
    if sys.platform == "linux":  # macOS neither counts nor enforces address space reliably
        wanted["RLIMIT_AS"] = (_mapped_bytes() + memory_bytes,) * 2
    for name, (soft, hard) in wanted.items():
        kind = getattr(resource, name, None)
        if kind is None:
            continue
        ceiling = resource.getrlimit(kind)[1]
        if ceiling != resource.RLIM_INFINITY:
            soft, hard = min(soft, ceiling), min(hard, ceiling)
        resource.setrlimit(kind, (soft, hard))


def _mapped_bytes() -> int:
    try:
        file = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return 0
    try:
        return int(os.read(file, 64).split()[0]) * os.sysconf("SC_PAGE_SIZE")
    finally:
        os.close(file)
