"""`poad export`: write an agent for use without this package."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from poad_sb3.cli.common import checkpoint_at, fail, moved_model
from poad_sb3.errors import PoadError
from poad_sb3.export.export import export_policy
from poad_sb3.runs.loading import load_checkpoint


def export_run(
    console: Console, source: Path, folder: Path, settings: Sequence[str], *, merge: bool, overwrite: bool
) -> None:
    """Write an agent, and show how to load it.

    Args:
        console: Console to print to.
        source: Folder of a run, or a checkpoint.
        folder: Folder to create.
        settings: NAME=VALUE arguments of `policy_kwargs`, over those of the checkpoint, for a base model that has
            moved.
        merge: Whether to merge the adapter into the base model.
        overwrite: Whether to replace an earlier export.
    """
    moved = moved_model(settings)
    checkpoint, _ = checkpoint_at(source)
    try:
        model = load_checkpoint(checkpoint, policy_kwargs=moved)
        exported = export_policy(model, folder, merge=merge, overwrite=overwrite)
    except (PoadError, OSError, ValueError, TypeError) as error:
        fail(str(error))
    n_bytes = sum(path.stat().st_size for path in exported.folder.iterdir())
    lines = f"{exported.folder}: {n_bytes / 1e6:.1f} MB\n{exported.code}"
    console.print(lines, markup=False, highlight=False, soft_wrap=True)
