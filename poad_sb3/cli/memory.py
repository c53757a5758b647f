"""The expected memory of a training, in a line and in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from stable_baselines3.common.callbacks import BaseCallback

from lang_envs.cli.common import echo
from poad_sb3.common.on_policy_algorithm import LLMOnPolicyAlgorithm
from poad_sb3.memory.doctor import MARGIN, usable_memory
from poad_sb3.memory.dry_run import Expected, expect, remedy

_STEP = 1000


def size(n_bytes: int) -> str:
    """Format a number of bytes in the unit that suits it."""
    value, unit = float(n_bytes), "B"
    for larger in ("kB", "MB", "GB"):
        if value >= _STEP:
            value, unit = value / _STEP, larger
    return f"{value:.1f} {unit}"


def plain(value: Any) -> Any:
    """Convert nested named tuples to mappings, for JSON."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {name: plain(item) for name, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, (tuple, list)) else value


def fix(expected: Expected, usable: int) -> str:
    """Return the advice for a training that does not fit."""
    changes = remedy(expected, usable)
    if changes is None:
        return "Fix: a smaller model (`poad doctor` lists them), fewer bits, or another device."
    said = (f"--set policy_kwargs.{name}={str(value).lower()}" for name, value in changes.items())
    return f"Fix: {' '.join(said)}, which learns the same, more slowly."


class MemoryLine(BaseCallback):
    """Shows the expected memory of the training before it begins, and warns where less is free.

    Args:
        console: Console to print to.
        free: Free memory of the device before the model was made, in bytes; None if unknown.
    """

    model: LLMOnPolicyAlgorithm

    def __init__(self, console: Console, free: int | None) -> None:
        super().__init__()
        self._console, self._free = console, free

    def _on_training_start(self) -> None:
        usable = usable_memory(self._free)
        try:
            expected = expect(self.model, self.model._last_obs)
        except Exception as error:  # an estimate that cannot be made, for any reason, is no reason not to train
            self._say(f"memory: not estimated ({' '.join(str(error).split())})")
            return
        there = "free memory unknown" if self._free is None else f"{size(self._free)} free"
        self._say(f"memory: {size(expected.needed.total)} needed, {there} on {self.model.device} (--dry-run says more)")
        if usable is not None and expected.needed.total > usable:
            needed, left = size(expected.needed.total), f"{MARGIN:.0%} of what is free is left alone"
            there = f"{size(usable)} may be taken on {self.model.device} ({left})"
            echo(f"poad: warning: {needed} may be needed, {there}. {fix(expected, usable)}", err=True)

    def _on_step(self) -> bool:
        return True

    def _say(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)
