"""Times and memory of measured work, in this process or in one of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import torch

from lang_bench.runner.errors import BenchmarkError

T = TypeVar("T")


def milliseconds(work: Callable[[], object], clock: Callable[[], float] = time.process_time) -> float:
    """Return the time of some work; processor time of all threads by default, so that other load counts little."""
    started = clock()
    work()
    return 1e3 * (clock() - started)


def gpu_name(device: str) -> str | None:
    """Return the name of a GPU; None for another device.

    Raises:
        BenchmarkError: If there is no such GPU.
    """
    if torch.device(device).type != "cuda":
        return None
    try:
        return torch.cuda.get_device_name(device)
    except (RuntimeError, AssertionError) as error:  # AssertionError: PyTorch was built without CUDA
        raise BenchmarkError(
            f"Expected a GPU for --device {device}; PyTorch {torch.__version__} finds none. "
            "Fix: --device cpu, or a machine with a GPU and PyTorch for it."
        ) from error


def synchronized(device: str) -> Callable[[], float]:
    """Return a clock of wall time, in seconds, that first waits for the kernels of a device."""

    def now() -> float:
        if torch.device(device).type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    return now


def in_turns(works: Mapping[str, Callable[[], T]], n: int) -> dict[str, list[T]]:
    """Call each work n times, in turns, so that other load of the machine meets all alike. Returns their results."""
    results: dict[str, list[T]] = {name: [] for name in works}
    for _ in range(n):
        for name, work in works.items():
            results[name].append(work())
    return results


def in_new_process(function: Callable[..., Any], *arguments: object) -> Any:
    """Call a function in a fresh Python process."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def resident_bytes(field: str) -> int:
    """Return the memory of this process on Linux: the present one (`VmRSS`) or the peak (`VmHWM`).

    `ru_maxrss` would begin at the parent's peak.
    """
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith(field)))
