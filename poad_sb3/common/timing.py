"""`Stopwatch`: wall-clock timers for the phases of training."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, get_args

Part = Literal["acting", "values", "update", "env"]
"""Parts of a training: the model in the rollout; the critic after it; the update; waiting for environments."""


class Stopwatch:
    """Adds up the seconds of the parts of a training, since it was last restarted."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Set all times to zero."""
        self._began = time.perf_counter()
        self._seconds = dict.fromkeys(get_args(Part), 0.0)

    @contextmanager
    def timing(self, part: Part) -> Iterator[None]:
        """Add the wall time of the block to a part."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[part] += time.perf_counter() - started

    def read(self) -> dict[str, float]:
        """Return the seconds of each part, and the remaining wall time as `overhead`."""
        passed = time.perf_counter() - self._began
        parts: dict[str, float] = {**self._seconds}
        return {**parts, "overhead": passed - sum(parts.values())}
