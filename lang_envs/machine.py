"""The machine that a process runs on, and the commit of its code."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

__all__ = ["commit_of", "n_cores"]


def n_cores() -> int:
    """Return the number of cores that this process may use; a container often has fewer than the machine."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def commit_of(file: Path, *results: str) -> str | None:
    """Return the commit of a file, with a plus sign where tracked files differ from it; None outside a checkout.

    Args:
        file: File of the repository. An environment may lie in a repository of the user, whose commit says nothing
            about a file that is not in it.
        *results: Folders from the top of the repository that do not count: results that no run reads.
    """
    git, excluded = ["git", "-C", str(file.parent)], [f":(top,exclude){name}" for name in results]
    try:
        subprocess.run([*git, "ls-files", "--error-unmatch", str(file)], capture_output=True, check=True)
        commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
        changed = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", ":/", *excluded], check=False).returncode
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{commit}+" if changed else commit
