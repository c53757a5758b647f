"""Log-probabilities of sampled actions under the present weights, with gradient: the passes of the update."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from poad_sb3.decisions import Reference, Slots, Taken, taken_log_probs
from poad_sb3.lm import LanguageModel
from poad_sb3.models.packing import moved
from poad_sb3.paths import DecisionRow, TokenPath
from poad_sb3.rollouts import CreditLevel
from poad_sb3.rows import decision_row

__all__ = ["taken_by_chunk"]


def taken_by_chunk(
    lm: LanguageModel, paths: Sequence[TokenPath], device: torch.device, level: CreditLevel, features: Tensor | None
) -> Iterator[tuple[Taken, Tensor, Tensor]]:
    """Score the decisions of some paths chunk by chunk; equal rows go through the model once.

    Args:
        lm: The model.
        paths: Prompts and actions.
        device: Of the returned tensors.
        level: Whether a unit of credit is a token or a whole action.
        features: Frozen-trunk features before each decision, `[D, hidden]`, for the divergence from the base model.

    Yields:
        The decisions of the chunk, its units of credit, and the unit that each decision belongs to.
    """
    children = [decision.children for path in paths for decision in path.decisions]
    rows, slots, unit = _share_rows(paths, level)
    for chunk in lm.chunks([row.row for row in rows]):
        # All of this is known on the host: nothing waits for the device.
        place = torch.full((len(rows),), -1)
        place[chunk] = torch.arange(len(chunk))
        here = (place[slots.row] >= 0).nonzero().squeeze(-1)
        among = (place[slots.row[here]], slots.decision[here], slots.choice[here])
        reference = None
        if features is not None:
            reference = Reference(features[moved(here, device)], [children[which] for which in here.tolist()])
        on_device = Slots(*(moved(part, device) for part in among))
        taken = taken_log_probs(lm, [rows[index] for index in chunk], on_device, reference)
        units, of = torch.unique(unit[here], return_inverse=True)  # all decisions of an action are in one row
        yield taken, moved(units, device), moved(of, device)


def _share_rows(paths: Sequence[TokenPath], level: CreditLevel) -> tuple[list[DecisionRow], Slots, Tensor]:
    """Distinct rows of the paths, where each decision is found among them, and the unit of credit it belongs to."""
    number: dict[DecisionRow, int] = {}
    slots: list[tuple[int, int, int]] = []
    units: list[int] = []
    n_units = 0
    for path in paths:
        row = decision_row(path)
        if row is None:
            continue
        index = number.setdefault(row, len(number))
        nodes = range(len(path.decisions)) if path.tree is None else path.tree.nodes
        slots += [(index, node, decision.choice) for node, decision in zip(nodes, path.decisions, strict=True)]
        of_token = range(n_units, n_units + len(path.decisions))
        units += of_token if level == CreditLevel.TOKEN else [n_units] * len(path.decisions)
        n_units = units[-1] + 1
    return list(number), Slots(*torch.tensor(slots).unbind(1)), torch.tensor(units)
