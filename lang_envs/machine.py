"""The machine that a process runs on."""

from __future__ import annotations

import os

__all__ = ["n_cores"]


def n_cores() -> int:
    """Return the number of cores that this process may use; a container often has fewer than the machine."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
