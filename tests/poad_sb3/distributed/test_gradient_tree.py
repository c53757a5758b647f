"""Sums of gradients that do not depend on the ranks that compute their parts."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from poad_sb3.distributed.gradient_tree import GradientTree
from poad_sb3.distributed.ranks import Ranks
from poad_sb3.language_model.forward import parts_of

SHAPES = ((3, 5), (7,))


class SimulatedRank(Ranks):
    """A rank whose exchanges are with ranks that have run before it, in the same process."""

    def __init__(self, rank: int, size: int, branches: list[Tensor]) -> None:
        super().__init__(rank, size)
        self.branches = branches

    @property
    def is_data_parallel(self) -> bool:
        return self.size > 1

    def gather_tensors(self, own: Tensor) -> list[Tensor]:
        if len(self.branches) < self.size:
            self.branches.append(own.clone())
        return [branch.clone() for branch in self.branches] if len(self.branches) == self.size else [own] * self.size


def gradients(n_parts: int, empty: tuple[int, ...]) -> list[list[Tensor]]:
    """Return a gradient of each micro-batch whose sum depends on the order of its terms."""
    generator = torch.Generator().manual_seed(3)
    scales = 10.0 ** torch.randint(-3, 4, (n_parts,), generator=generator)
    tensors = [[torch.randn(shape, generator=generator) * scale for shape in SHAPES] for scale in scales]
    return [[] if part in empty else tensors[part] for part in range(n_parts)]


def total(n_parts: int, size: int, given: list[list[Tensor]]) -> list[Tensor | None]:
    branches: list[Tensor] = []
    summed: list[Tensor | None] = []
    for rank in [*range(size), 0]:  # rank 0 again, when all branches are known
        parameters = [nn.Parameter(torch.zeros(shape)) for shape in SHAPES]
        ranks = SimulatedRank(rank, size, branches)
        tree = GradientTree(parameters, n_parts, ranks)
        for part, gradient in enumerate(given):
            if gradient and ranks.owns(part, n_parts):
                tree.begin(part)
                for _ in range(2):  # two passes of one micro-batch
                    sum((p * g / 2).sum() for p, g in zip(parameters, gradient, strict=True)).backward()  # type: ignore[union-attr]
        tree.finish()
        summed = [parameter.grad for parameter in parameters]
    assert len(branches) == (size if size > 1 else 0), "each of several ranks was asked for its branch"
    return summed


@pytest.mark.parametrize("n_parts", [1, 2, 4, 8])
@pytest.mark.parametrize("empty", [(), (0,), (1, 2, 3), (0, 1), (0, 1, 2, 3, 4, 5, 6, 7)])
def test_any_number_of_ranks_gives_the_same_bits(n_parts: int, empty: tuple[int, ...]) -> None:
    given = gradients(n_parts, empty)
    alone = total(n_parts, 1, given)
    for size in (2, 4, 8):
        if size <= n_parts:
            for gradient, other in zip(alone, total(n_parts, size, given), strict=True):
                assert (gradient is None and other is None) or torch.equal(gradient, other)  # type: ignore[arg-type]
    exact = [sum(g[k].double() for g in given if g) for k in range(len(SHAPES))]
    for gradient, wanted in zip(alone, exact, strict=True):
        if gradient is not None:
            torch.testing.assert_close(gradient.double(), wanted, rtol=1e-4, atol=1e-3)
    assert (alone[0] is None) == (not any(given))


@pytest.mark.parametrize("sizes", [[], [5], [600] * 3, [2000, 900, 30, 20, 10], [512] * 64, [1] * 5000])
@pytest.mark.parametrize("n_parts", [1, 2, 4, 8])
def test_parts_are_whole_in_order_and_of_similar_size(sizes: list[int], n_parts: int) -> None:
    parts = parts_of(sizes, n_parts, 512)
    assert len(parts) == n_parts
    assert [index for part in parts for index in part] == list(range(len(sizes)))
    filled = [sum(sizes[index] for index in part) for part in parts if part]
    n_wanted = n_parts
    while n_wanted > 1 and sum(sizes) < n_wanted * 512:
        n_wanted //= 2
    assert len(filled) <= n_wanted
    if max(sizes, default=0) * n_wanted < sum(sizes):
        assert len(filled) == n_wanted
        assert max(filled) - min(filled) <= 2 * max(sizes)


def test_small_work_is_left_to_ranks_far_apart() -> None:
    """Two parts of eight go to the first and the fifth, so that two ranks have one each."""
    parts = parts_of([600, 600], 8, 512)
    assert [number for number, part in enumerate(parts) if part] == [0, 4]
