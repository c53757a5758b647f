"""`python -m benchmarks`: measure agents, report, and the list of studies."""

from __future__ import annotations

from lang_envs.cli import run_app

if __name__ == "__main__":  # workers that are started afresh import this file
    run_app("benchmarks.app", "benchmarks", "cli,bench")
