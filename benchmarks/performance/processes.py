"""Measurements in a Python process of their own."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from types import MappingProxyType
from typing import Any
from unittest.mock import patch


def in_new_process(
    function: Callable[..., Any], *arguments: object, environment: Mapping[str, str] = MappingProxyType({})
) -> Any:
    """Call a function in a fresh Python process, with these environment variables too."""
    with patch.dict(os.environ, environment), ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def resident_bytes(field: str, pid: int | str = "self") -> int:
    """Return the memory of a process on Linux: the present one (`VmRSS`) or the peak (`VmHWM`).

    `ru_maxrss` would begin at the parent's peak.
    """
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith(field)))
