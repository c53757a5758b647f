"""Progress of a training as lines of text, for output that goes into a pipe or a file.

Importing this module imports no torch: the first line comes before torch is loaded.
"""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from poad_sb3.common.on_policy_algorithm import LLMOnPolicyAlgorithm

_PERIOD = 5.0
"""Seconds between lines."""
_PHASES = {"acting": "rollout", "env": "rollout", "values": "update", "update": "update"}


class ProgressLines:
    """A context manager that prints the state of a training every few seconds, unless stdout is a terminal.

    Args:
        period: Time between lines, in seconds.

    Attributes:
        phase: Present phase, shown while no model is watched.
    """

    def __init__(self, period: float = _PERIOD) -> None:
        self.phase = "loading packages"
        self._period = period
        self._model: LLMOnPolicyAlgorithm | None = None
        self._total, self._first_step, self._learning_since = 0, 0, 0.0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def watch(self, model: LLMOnPolicyAlgorithm, total: int) -> None:
        """Report the steps of this model from now on.

        Args:
            model: Model that is about to learn.
            total: Number of steps at the end.
        """
        self._total, self._first_step, self._learning_since = total, model.num_timesteps, time.monotonic()
        self._model = model

    def __enter__(self) -> ProgressLines:
        """Print the first line, and start."""
        self._began, self._stream = time.monotonic(), sys.stdout
        if self._stream is not None and not self._stream.isatty():
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop printing."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            try:
                print(self.line(), file=self._stream, flush=True)
            except (OSError, ValueError):  # the reader of the pipe is gone, or the file is closed
                return
            if self._stop.wait(self._period):
                return

    def line(self) -> str:
        """Return phase, steps, mean return of the latest episodes, and time left."""
        now = time.monotonic()
        passed = f"[{duration(now - self._began)}]"
        if self._model is None:
            return f"{passed} {self.phase}"
        done = self._model.num_timesteps
        parts = [_PHASES.get(str(self._model.stopwatch.part), "rollout"), f"{done:,} of {self._total:,} steps"]
        rewards = _returns(self._model.ep_info_buffer)
        parts.append(f"mean reward {sum(rewards) / len(rewards):.3f}" if rewards else "no episode has ended")
        if self._first_step < done < self._total:
            rate = (now - self._learning_since) / (done - self._first_step)
            parts.append(f"{duration(rate * (self._total - done))} left")
        return f"{passed} {', '.join(parts)}"


def _returns(episodes: Any) -> list[float]:
    try:
        return [float(episode["r"]) for episode in tuple(episodes or ())]
    except RuntimeError:  # the training changed it just now
        return []


def duration(seconds: float) -> str:
    """Return a time in its two largest units, such as `3 min 20 s`."""
    whole = round(seconds)
    for size, unit, smaller_size, smaller in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // smaller_size} {smaller}"
    return f"{whole} s"
