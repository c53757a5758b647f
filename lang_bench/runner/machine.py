"""The machine that a result was measured on: recorded beside every committed figure."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from importlib import metadata
from pathlib import Path

from lang_envs.machine import commit_of
from lang_envs.redaction import without_secrets

_PACKAGES = ("lang-envs", "gymnasium", "numpy", "scikit-learn", "torch", "stable-baselines3", "transformers", "peft")


def describe_machine() -> dict[str, object]:
    """Return command, commit, hardware, threads and versions.

    Results of one seed are equal to the last bit only where processor, capability and threads are equal: vector units
    of other widths sum in other orders. The last two are those of torch, where it is loaded.
    """
    cpuinfo, torch = Path("/proc/cpuinfo"), sys.modules.get("torch")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    program = ["python", "-m", spec.name.removesuffix(".__main__")] if spec is not None else [Path(sys.argv[0]).name]
    described = {
        "command": shlex.join([*program, *map(without_secrets, sys.argv[1:])]),
        "commit": commit_of(Path(__file__), "data/results/studies"),
        "cpu": next(
            (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor()
        ),
    }
    if torch is not None:
        described |= {"cpu_capability": torch.backends.cpu.get_cpu_capability(), "threads": torch.get_num_threads()}
    distributions = {name: list(metadata.distributions(name=name)) for name in _PACKAGES}
    versions = {
        name: found_distributions[0].version
        for name, found_distributions in distributions.items()
        if found_distributions
    }
    return {**described, "cores": os.cpu_count(), "python": platform.python_version(), "versions": versions}
