"""What a result was measured with: recorded beside every committed figure."""

from __future__ import annotations

import os
import platform
import sys
from importlib import metadata
from pathlib import Path

__all__ = ["RESULTS", "describe_machine"]

RESULTS = Path(__file__).parent / "results"
_PACKAGES = ("lang-envs", "gymnasium", "numpy", "torch", "stable-baselines3", "transformers", "peft")


def describe_machine() -> dict[str, object]:
    """Command, hardware and versions."""
    cpu = next(
        (line.split(":", 1)[1].strip() for line in _cpu_lines() if line.startswith("model name")), platform.processor()
    )
    return {
        "command": " ".join(["python -m", _module(), *sys.argv[1:]]),
        "cpu": cpu,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": {name: metadata.version(name) for name in _PACKAGES},
    }


def _cpu_lines() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def _module() -> str:
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec.name if spec is not None else Path(sys.argv[0]).name
