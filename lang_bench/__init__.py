"""Measure agents on the tasks of `lang_envs`: the command `lang-bench`."""

from __future__ import annotations

from lang_envs.cli import run_app

__all__ = ["main"]


def main() -> None:
    """Run the command `lang-bench`."""
    run_app("lang_bench.app", "lang-bench", "bench")
