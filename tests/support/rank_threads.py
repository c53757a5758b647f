"""Ranks as threads of one process, with a store in memory and without gloo."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch.distributed as dist

from poad_sb3.distributed import Ranks

__all__ = ["in_ranks"]


def in_ranks(*programs: Callable[[Ranks], Any]) -> list[Any]:
    """Run a program in each rank; return results, or exceptions."""
    store = dist.HashStore()
    ranks = [Ranks(number, len(programs), store) for number in range(len(programs))]

    def run(number: int) -> Any:
        try:
            return programs[number](ranks[number])
        except Exception as error:
            return error

    with ThreadPoolExecutor(len(programs)) as pool:
        return list(pool.map(run, range(len(programs))))
