"""What a result was measured with: recorded beside every committed figure."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from benchmarks.addresses import without_secrets

__all__ = ["RESULTS", "describe_machine"]

RESULTS = Path(__file__).parent / "results"
_PACKAGES = ("lang-envs", "gymnasium", "numpy", "scikit-learn", "torch", "stable-baselines3", "transformers", "peft")


def describe_machine() -> dict[str, object]:
    """Return command, commit, hardware, threads and versions.

    Results of one seed are equal to the last bit only where processor, capability and threads are equal: vector units
    of other widths sum in other orders. The last two are those of torch, where it is loaded.
    """
    cpu = next(
        (line.split(":", 1)[1].strip() for line in _cpu_lines() if line.startswith("model name")), platform.processor()
    )
    return {
        "command": f"python -m {shlex.join([_module(), *map(without_secrets, sys.argv[1:])])}",
        "commit": _commit(),
        "cpu": cpu,
        **_of_torch(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": {name: version for name in _PACKAGES if (version := _version(name)) is not None},
    }


def _commit() -> str | None:
    """Commit of the checkout, with a plus sign where tracked files differ from it; None outside a repository."""
    git = ["git", "-C", str(Path(__file__).parent)]
    try:
        commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
        changed = subprocess.run([*git, "diff", "--quiet", "HEAD"], check=False).returncode
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{commit}+" if changed else commit


def _of_torch() -> dict[str, object]:
    torch = sys.modules.get("torch")
    if torch is None:
        return {}
    return {"cpu_capability": torch.backends.cpu.get_cpu_capability(), "threads": torch.get_num_threads()}


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
