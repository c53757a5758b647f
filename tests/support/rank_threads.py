"""Ranks as threads of one process, with a store in memory and without gloo."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from poad_sb3.distributed import Ranks

__all__ = ["in_ranks"]


def in_ranks(*programs: Callable[[Ranks], Any], timeout: float = 20.0) -> list[Any]:
    """Run a program in each rank; return results, or exceptions."""
    store = dist.HashStore()
    ranks = [Ranks(rank, len(programs), store, None, timedelta(seconds=timeout)) for rank in range(len(programs))]

    def run(place: int) -> Any:
        try:
            return programs[place](ranks[place])
        except Exception as error:
            return error

    with ThreadPoolExecutor(len(programs)) as pool:
        found = list(pool.map(run, range(len(programs))))
    for one in ranks:
        one.end()
    return found
