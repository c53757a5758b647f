"""`GradientTree`: the gradient of a minibatch as a sum that does not depend on the ranks that compute its parts."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from poad_sb3.distributed.ranks import Ranks

_Gradient = list[Tensor | None]
"""Gradient of each parameter; None where no pass has reached it."""


class GradientTree:
    """Adds the gradients of micro-batches along a fixed binary tree: `(g0 + g1) + (g2 + g3)`.

    Floating-point sums depend on their order. Here it is that of the tree, for one rank as for several: each rank adds
    its branch, the branches are gathered, and every rank adds them in the same order.

    Gradients of sharded weights (FSDP2) are added up in the backward passes already.

    Call `begin` with the number of a micro-batch before its backward passes, numbers ascending, and `finish` after all.

    Args:
        parameters: Parameters; their `.grad` holds the gradient of the passes since `begin`, and in the end the sum.
        n_parts: Number of micro-batches of a minibatch, a power of two and a multiple of the number of ranks.
        ranks: Ranks of the training.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], n_parts: int, ranks: Ranks) -> None:
        self._parameters, self._n_parts, self._ranks = list(parameters), n_parts, ranks
        self._is_summed = any(isinstance(parameter, DTensor) for parameter in self._parameters)
        self._part: int | None = None
        # Sums of whole branches: number of micro-batches in each, the first of them, and the gradient.
        self._branches: list[tuple[int, int, _Gradient]] = []

    def begin(self, part: int | None) -> None:
        """Assign the passes that follow to a micro-batch."""
        if part != self._part and not self._is_summed:
            self._take()
            self._part = part

    def finish(self) -> None:
        """Leave the sum over the micro-batches of all ranks in `.grad`."""
        if self._is_summed:
            return
        self._take()
        if not self._ranks.is_data_parallel:
            total = self._join(0, self._n_parts)
        else:
            size = self._n_parts // self._ranks.size
            subtotal = self._join(self._ranks.rank * size, size)
            self._branches = [
                (size, rank * size, branch)
                for rank, branch in enumerate(_gathered(self._parameters, subtotal, self._ranks))
            ]
            total = self._join(0, self._n_parts)
        for parameter, gradient in zip(self._parameters, total, strict=True):
            parameter.grad = gradient

    def _take(self) -> None:
        if self._part is None:
            return
        gradient = [parameter.grad for parameter in self._parameters]
        for parameter in self._parameters:
            parameter.grad = None
        self._branches.append((1, self._part, gradient))
        self._part = None
        while len(self._branches) > 1:  # two branches of one node become one: at most one of each size is kept
            (size, first, left), (other, second, right) = self._branches[-2:]
            if size != other or first // size % 2 or second != first + size:
                break
            self._branches[-2:] = [(2 * size, first, _sum(left, right))]

    def _join(self, first: int, size: int) -> _Gradient:
        """Return the sum of the branches among some micro-batches, a node of the tree."""
        branches = [branch for branch in self._branches if first <= branch[1] < first + size]
        if len(branches) <= 1:
            return branches[0][2] if branches else [None] * len(self._parameters)
        half = size // 2
        return _sum(self._join(first, half), self._join(first + half, half))


def _sum(left: _Gradient, right: _Gradient) -> _Gradient:
    return [
        gradient if other is None else other if gradient is None else gradient.add_(other)
        for gradient, other in zip(left, right, strict=True)
    ]


def _gathered(parameters: Sequence[nn.Parameter], gradients: _Gradient, ranks: Ranks) -> list[_Gradient]:
    """Return the gradient of each rank, in their order."""
    reached = [float(gradient is not None) for gradient in gradients]
    filled = [
        (torch.zeros_like(parameter) if gradient is None else gradient).float().flatten()
        for parameter, gradient in zip(parameters, gradients, strict=True)
    ]
    flat = torch.cat([torch.tensor(reached, device=filled[0].device), *filled])
    gathered: list[_Gradient] = []
    for branch in ranks.gather_tensors(flat):
        parts = torch.split(branch[len(reached) :], [parameter.numel() for parameter in parameters])
        gathered.append(
            [
                part.view_as(parameter).to(parameter.dtype) if is_reached else None
                for part, parameter, is_reached in zip(parts, parameters, branch[: len(reached)].tolist(), strict=True)
            ]
        )
    return gathered
