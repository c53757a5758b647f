"""The command `poad`: train, evaluate, export, and look at presets."""

from __future__ import annotations

from lang_envs.cli import run_app

__all__ = ["main"]


def main() -> None:
    """Run the command `poad`."""
    run_app("poad_sb3.cli.app", "poad", "cli,llm")
