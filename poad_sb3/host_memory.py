"""Memory of the host that this process may use: a container is given less than the machine has."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

__all__ = ["HostMemory", "host_memory"]

_MACHINE = Path("/")


class HostMemory(NamedTuple):
    """Bytes of main memory.

    Attributes:
        total: That this process could ever have.
        available: That is free now, or would be given back if asked for.
        limited: Whether it is a control group (a container, a job of a scheduler) that sets the bound.
    """

    total: int
    available: int
    limited: bool = False


def host_memory(root: Path = _MACHINE) -> HostMemory | None:
    """What there is, within the limits of the control groups; None where the system does not say.

    Args:
        root: Where `proc` and `sys` are; another folder in tests.
    """
    found = _meminfo(root) or _psutil() or _sysconf()
    if found is None:
        return None
    for limit, used in _limits(root):
        free = max(limit - used, 0)
        if limit < found.total or free < found.available:
            found = HostMemory(min(found.total, limit), min(found.available, free), limited=True)
    return found


# ---------------------------------------------------------------------- the machine


def _meminfo(root: Path) -> HostMemory | None:
    """Linux."""
    lines = (line.split() for line in _read(root / "proc/meminfo").splitlines())
    sizes = {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines if len(words) > 1 and words[1].isdigit()}
    if "MemTotal" not in sizes:
        return None
    return HostMemory(sizes["MemTotal"], sizes.get("MemAvailable", sizes.get("MemFree", sizes["MemTotal"])))


def _psutil() -> HostMemory | None:
    """MacOS and Windows."""
    try:
        import psutil
    except ImportError:
        return None
    memory = psutil.virtual_memory()
    return HostMemory(memory.total, memory.available)


def _sysconf() -> HostMemory | None:
    """Any POSIX system; some do not say how much is free."""
    names = os.sysconf_names if hasattr(os, "sysconf_names") else {}
    if not {"SC_PAGE_SIZE", "SC_PHYS_PAGES"} <= names.keys():
        return None
    page, pages = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_PHYS_PAGES")
    free = os.sysconf("SC_AVPHYS_PAGES") if "SC_AVPHYS_PAGES" in names else pages
    return HostMemory(page * pages, page * free)


# ---------------------------------------------------------------------- control groups


def _limits(root: Path) -> Iterator[tuple[int, int]]:
    """Limit and use of each control group that this process is in, version 2 and version 1."""
    for line in _read(root / "proc/self/cgroup").splitlines() or ["0::/"]:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers:
            yield from _limits_of(root / "sys/fs/cgroup", path, "memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            yield from _limits_of(root / "sys/fs/cgroup/memory", path, *names)


def _limits_of(mount: Path, path: str, limit: str, usage: str, reclaimable: str) -> Iterator[tuple[int, int]]:
    """The group and all above it: each may have a limit. In a container the mount itself often is the group."""
    group = mount / path.strip("/")
    while group == mount or mount in group.parents:
        bound, used = _read(group / limit).strip(), _read(group / usage).strip()
        if bound.isdigit() and used.isdigit():  # without a limit it is "max"; of version 1, more than there is
            yield int(bound), max(int(used) - _statistic(group, reclaimable), 0)
        group = group.parent


def _statistic(group: Path, name: str) -> int:
    """Bytes of the page cache that would be given back: they count as used, but do not keep anyone from more."""
    pairs = (line.split() for line in _read(group / "memory.stat").splitlines())
    return next((int(words[1]) for words in pairs if len(words) == 2 and words[0] == name), 0)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""
