"""Loading of a trained model from the path of its checkpoint or of its run, by any algorithm."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import poad_sb3
from poad_sb3.common.save_util import read_header
from poad_sb3.errors import CheckpointError
from poad_sb3.presets import ALGORITHMS
from poad_sb3.runs.run_folder import RunConfig, RunError, RunFolder

if TYPE_CHECKING:
    from poad_sb3.badq import BADQ
    from poad_sb3.common.on_policy_algorithm import LLMOnPolicyAlgorithm

_WRITERS = (*ALGORITHMS, "BADQ")


def find_checkpoint(source: Path) -> tuple[Path, RunConfig | None]:
    """Return the checkpoint and the run of a path: the folder of a run, or a checkpoint, in such a folder or not.

    Raises:
        CheckpointError: If there is no checkpoint.
        RunError: If a folder is given whose config cannot be read.
    """
    folder = RunFolder(source if source.is_dir() else source.parent)
    checkpoint = folder.latest if source.is_dir() else source
    if not checkpoint.is_file():
        raise CheckpointError(f"There is no checkpoint {checkpoint}.")
    try:
        return checkpoint, folder.read_config()
    except RunError:
        if source.is_dir():
            raise
        return checkpoint, None  # the config.json beside a checkpoint may be a model's


def writer_of(checkpoint: Path) -> type[LLMOnPolicyAlgorithm | BADQ]:
    """Return the class that wrote a checkpoint, after verifying all of the file.

    Raises:
        CheckpointError: If the checkpoint is damaged, or of a class that is not in this package.
    """
    name = read_header(checkpoint)["algorithm"]
    if name not in _WRITERS:
        raise CheckpointError(
            f"Expected a checkpoint of one of {list(_WRITERS)}; {checkpoint} is of {name!r}. "
            "Fix: load it with the class that wrote it."
        )
    kind: type[LLMOnPolicyAlgorithm | BADQ] = getattr(poad_sb3, name)
    return kind


def load_checkpoint(checkpoint: Path, **arguments: Any) -> LLMOnPolicyAlgorithm | BADQ:
    """Return the model in a checkpoint, for evaluations: it generates actions itself, where a server did so before.

    Args:
        checkpoint: Path of the checkpoint.
        **arguments: Other arguments of `load` of the algorithm.

    Raises:
        CheckpointError: If the checkpoint cannot be loaded.
    """
    kind = writer_of(checkpoint)
    alone = {} if kind.__name__ == "BADQ" else {"generation_endpoint": None}
    return kind.load(checkpoint, **{**alone, **arguments})
