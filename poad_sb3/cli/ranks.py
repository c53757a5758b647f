"""`poad train --n-procs`: start the ranks, and restart them from the last checkpoint when one is lost.

The launcher imports neither transformers nor peft, for which the ranks would have to wait.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import typer

from lang_envs.cli.common import echo
from poad_sb3.cli.common import fail
from poad_sb3.cli.train_options import Options, default_folder
from poad_sb3.common.save_util import read_header
from poad_sb3.distributed import start_ranks
from poad_sb3.distributed.launch import LOST_RANK, launch
from poad_sb3.errors import CheckpointError, LostRankError
from poad_sb3.runs.run_folder import RunFolder

_MAX_FAILURES = 3
"""Maximum number of losses of a rank without a new checkpoint between them; the next one ends the command."""


def join_ranks(n_procs: int) -> None:
    """Join the other ranks, if the command is one of several processes."""
    if not start_ranks(n_procs).is_first:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - until the process ends


def launch_ranks(n_procs: int, options: Options, out: Path | None) -> None:
    """Run this command in several ranks, and resume from the last checkpoint when one is lost."""
    if n_procs & (n_procs - 1):
        fail(f"Expected --n-procs to be a power of two, since gradients are added along a binary tree; got {n_procs}.")
    folder = RunFolder(out or default_folder(options))
    arguments, failures, before = sys.argv[1:], 0, -1
    while True:
        try:
            code = launch(n_procs, arguments)
        except LostRankError as error:
            reached = _steps(folder)
            failures = failures + 1 if reached == before else 1
            before = reached
            if failures > _MAX_FAILURES:
                fail(
                    f"{error} It was the {failures}th loss without progress. Fix: fewer ranks, or more memory.",
                    LOST_RANK,
                )
            echo(f"poad: {error} Resuming from step {reached}.", err=True)
            if "--resume" not in arguments:
                arguments = [*arguments, "--resume"]
            continue
        if code:
            raise typer.Exit(code)
        return


def _steps(folder: RunFolder) -> int:
    try:
        return int(read_header(folder.latest)["num_timesteps"])
    except (CheckpointError, FileNotFoundError):
        return 0
