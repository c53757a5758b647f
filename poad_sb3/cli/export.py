"""`poad export`: write an agent for use without this package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lang_envs.cli.common import echo
from poad_sb3.cli.common import Moved, Source, moved_model, require_llm


def export(
    source: Source,
    folder: Annotated[Path, typer.Argument(metavar="OUT", help="The folder to make.")],
    merge: Annotated[
        bool, typer.Option("--merge", help="Merge the adapter into the base model, and write the whole.")
    ] = False,
    settings: Moved = None,
) -> None:
    """Write an agent as a PEFT adapter or a whole model, for use without poad_sb3."""
    require_llm()
    from poad_sb3.export.export import export_policy
    from poad_sb3.runs.loading import find_checkpoint, load_checkpoint

    moved = moved_model(settings)
    model = load_checkpoint(find_checkpoint(source)[0], policy_kwargs=moved)
    exported = export_policy(model, folder, merge=merge)
    n_bytes = sum(path.stat().st_size for path in exported.iterdir())
    echo(f"{exported}: {n_bytes / 1e6:.1f} MB; README.md has the lines of Python that load it")
