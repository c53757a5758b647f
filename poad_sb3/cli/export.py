"""`poad export`: write an agent for use without this package, and upload it to the hub."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from poad_sb3.cli.common import checkpoint_at, fail, moved_model
from poad_sb3.common.on_policy_algorithm import LLMOnPolicyAlgorithm
from poad_sb3.errors import PoadError
from poad_sb3.export.export import Export, export_policy, push
from poad_sb3.runs.loading import writer_of


def export_run(
    console: Console,
    source: Path,
    folder: Path,
    settings: Sequence[str],
    *,
    merge: bool,
    overwrite: bool,
    check: str | None,
    repo_id: str | None,
    public: bool,
) -> None:
    """Write an agent, show how to load it, and upload it on request.

    Args:
        console: Console to print to.
        source: Folder of a run, or a checkpoint.
        folder: Folder to create.
        settings: NAME=VALUE arguments of `policy_kwargs`, over those of the checkpoint, for a base model that has
            moved.
        merge: Whether to merge the adapter into the base model.
        overwrite: Whether to replace an earlier export.
        check: Response to a merged model with other log-probabilities; that of the checkpoint if None.
        repo_id: Id of the repository on the hub to upload to; None for no upload.
        public: Whether the repository may be public; a new one then is, an existing one keeps its visibility.
    """
    if public and repo_id is None:
        fail("Expected --push USER/REPO with --public; got --public alone. Fix: leave it out.")
    moved = moved_model(settings)
    checkpoint, _ = checkpoint_at(source)
    try:
        model = _load(checkpoint, moved)
        exported = export_policy(model, folder, merge=merge, overwrite=overwrite, check=check)
    except (PoadError, OSError, ValueError, TypeError) as error:
        fail(str(error))
    _show(console, exported)
    if repo_id is None:
        return
    if exported.local_base:
        line = (
            "Others need the base model too: it is a folder of this machine, which the files name. --merge writes a "
            "model that needs none."
        )
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    try:
        address = push(exported.folder, repo_id, private=not public)
    except PoadError as error:
        fail(str(error))
    console.print(address, markup=False, highlight=False, soft_wrap=True)


def _load(checkpoint: Path, moved: Mapping[str, Any]) -> LLMOnPolicyAlgorithm:
    kind = writer_of(checkpoint)
    if not issubclass(kind, LLMOnPolicyAlgorithm):
        fail(
            f"Expected a checkpoint whose language model was trained; {checkpoint} is of {kind.__name__}, which trains "
            "Q-values beside it and leaves its weights as they were. Fix: export an agent of an on-policy method, such "
            "as POAD."
        )
    return kind.load(checkpoint, policy_kwargs=moved)


def _show(console: Console, exported: Export) -> None:
    size = f"{exported.n_bytes / 1e6:.1f} MB"
    lines = f"{exported.folder}: {exported.n_tensors} tensors, {size}\n{exported.code}"
    console.print(lines, markup=False, highlight=False, soft_wrap=True)
