"""Tables whose labels can be had without learning, by id: remarks on the meaning of their scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lang_envs import ENV_ROWS
from lang_envs.datasets import DATASETS
from lang_envs.datasets.generated import NAME


def labels_remark(env_id: str, settings: Mapping[str, Any]) -> str:
    """Explain how the labels of an id of DataSciCoding can be known, in a sentence; empty if they cannot or are absent.

    Args:
        env_id: Id of any environment.
        settings: Arguments that differ from the registered ones.
    """
    registered = next((row.kwargs for row in ENV_ROWS if row.id == env_id), {})
    arguments = {**registered, **settings}
    dataset = arguments.get("dataset")
    if dataset == NAME:
        return "Every table follows from the seed of its episode: whoever knows the seeds can regenerate the labels."
    if dataset not in DATASETS or arguments.get("data") == "synthetic":
        return ""
    return f"Memorizable: the labels are {DATASETS[dataset].known_labels}, so a score can be memory."
