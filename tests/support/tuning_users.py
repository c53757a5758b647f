"""Trainings and jobs whose process is killed, for the tests of searches."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lang_envs.files import write_bytes

LOG = "TUNING_TEST_LOG"


def killed_training(_: Any, tried: Mapping[str, Any], *__: Any) -> tuple[list[float], bool]:
    """Have the process killed where `clip_range` is 0.1."""
    with Path(os.environ[LOG]).open("a") as log:
        log.write(f"{tried['clip_range']}\n")
    if tried["clip_range"] == 0.1:
        os.kill(os.getpid(), signal.SIGKILL)
    return [1.0], False


def wait_to_be_killed(path: Path) -> None:
    """Write the number of the process, and wait."""
    write_bytes(path, str(os.getpid()).encode())
    time.sleep(300)
