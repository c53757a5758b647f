"""What a result was measured with: recorded beside every committed figure."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from importlib import metadata
from pathlib import Path

from benchmarks.addresses import without_secrets

__all__ = ["RESULTS", "describe_machine"]

RESULTS = Path(__file__).parent / "results"
_PACKAGES = ("lang-envs", "gymnasium", "numpy", "scikit-learn", "torch", "stable-baselines3", "transformers", "peft")


def describe_machine() -> dict[str, object]:
    """Command, hardware and versions."""
    cpu = next(
        (line.split(":", 1)[1].strip() for line in _cpu_lines() if line.startswith("model name")), platform.processor()
    )
    return {
        "command": f"python -m {shlex.join([_module(), *map(without_secrets, sys.argv[1:])])}",
        "cpu": cpu,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": {name: version for name in _PACKAGES if (version := _version(name)) is not None},
    }


def _version(name: str) -> str | None:
    """Version of a package; None if it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _cpu_lines() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def _module() -> str:
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec.name.removesuffix(".__main__") if spec is not None else Path(sys.argv[0]).name
