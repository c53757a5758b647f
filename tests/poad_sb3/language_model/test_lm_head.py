"""Queries of an LM head, against plain autograd over whole tables in float64."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from toy import randomise

from poad_sb3.language_model import lm_head as heads
from poad_sb3.language_model.language_model import LanguageModel
from poad_sb3.language_model.lm_head import (
    Picks,
    adjust_logits,
    all_logits,
    can_gather,
    gathered_logits,
    vocabulary_statistics,
)
from poad_sb3.language_model.packing import TokenRow

WIDTH, WORDS = 6, 11
CHILDREN = ((3,), (0, 3, 3, 10), (), (1, 2), (7,), (9, 0))
"""Of each row: one pick, several and equal ones, none."""
BOUNDS = {
    "whole": (1 << 22, 1 << 24),
    "slices of a row, kept": (1, 1 << 24),
    "slices of a row, recomputed": (1, 0),
    "slices of two rows, some kept": (2 * WORDS + 1, 4 * WORDS),
}
"""Logits of a slice, and those that are kept."""
CONFIGS = {
    "plain": {},
    "Gemma 2": {"final_logit_softcapping": 2.0},
    "Cohere": {"logit_scale": 0.3},
    "Granite": {"logits_scaling": 1.7},
}


@pytest.fixture(params=BOUNDS)
def bounds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(heads, "SLICE_LOGITS", BOUNDS[request.param][0])
    monkeypatch.setattr(heads, "MAX_LOGITS", BOUNDS[request.param][1])
    return str(request.param)


class Case(NamedTuple):
    """A head, hidden states, temperatures, and the log-probabilities of another distribution."""

    layer: nn.Linear
    hidden: Tensor
    temperatures: Tensor
    other: Tensor

    def head(self, config: Any = None) -> Callable[[Tensor], Tensor]:
        return lambda hidden: adjust_logits(self.layer(hidden), SimpleNamespace(**(config or {})))

    def reference(self, rows: slice) -> Tensor:
        return self.other[rows].clone()

    def leaves(self) -> list[Tensor]:
        return [self.hidden, *self.layer.parameters()]


def case(dtype: torch.dtype = torch.float64, *, bias: bool = True, n_rows: int = len(CHILDREN)) -> Case:
    generator = torch.Generator().manual_seed(0)

    def normal(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator, dtype=torch.float64).to(dtype)

    layer = nn.Linear(WIDTH, WORDS, bias=bias, dtype=dtype)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(normal(*parameter.shape))
    temperatures = 0.3 + normal(n_rows).abs()
    return Case(layer, normal(n_rows, WIDTH).requires_grad_(), temperatures, normal(n_rows, WORDS).log_softmax(-1))


def plainly(
    logits: Tensor, children: Sequence[Sequence[int]], temperatures: Tensor | None, other: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """The same by whole tables that autograd knows."""
    scaled = logits if temperatures is None else logits / temperatures[:, None]
    table = scaled.log_softmax(-1)
    picks = [table[row, token] for row, tokens in enumerate(children) for token in tokens]
    kl = torch.zeros_like(table[:, 0]) if other is None else (table.exp() * (table - other)).sum(-1)
    return torch.stack(picks) if picks else table.new_zeros(0), -(table.exp() * table).sum(-1), kl


def weighted(parts: Sequence[Tensor]) -> Tensor:
    """A loss with a different weight for every number."""
    total = torch.zeros((), dtype=parts[0].dtype)
    for number, part in enumerate(parts):
        total = total + (torch.cos(torch.arange(len(part)) * 1.3 + number).to(part.dtype) * part).sum()
    return total


def gradients(loss: Tensor, leaves: Sequence[Tensor], **kwargs: Any) -> list[Tensor]:
    for leaf in leaves:
        leaf.grad = None
    loss.backward(**kwargs)  # type: ignore[no-untyped-call]
    return [torch.zeros_like(leaf) if leaf.grad is None else leaf.grad.clone() for leaf in leaves]


def close(ours: Sequence[Tensor], expected: Sequence[Tensor], tolerance: float = 1e-12) -> None:
    for tensor, other in zip(ours, expected, strict=True):
        torch.testing.assert_close(tensor, other.to(tensor.dtype), rtol=tolerance, atol=tolerance)


# ------------------------------------------------------------------ the whole vocabulary


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("tempered", [True, False])
@pytest.mark.parametrize("compared", [True, False])
def test_statistics_and_their_gradients_are_those_of_whole_tables(
    bounds: str, config: str, tempered: bool, compared: bool
) -> None:
    """Also the gradients of the head's trained parameters."""
    problem = case()
    head, temperatures = problem.head(CONFIGS[config]), problem.temperatures if tempered else None
    expected = plainly(head(problem.hidden), CHILDREN, temperatures, problem.other if compared else None)
    slopes = gradients(weighted(expected), problem.leaves())
    assert all(slope.abs().max() > 1e-3 for slope in slopes)
    ours = vocabulary_statistics(
        head, WORDS, problem.hidden, Picks.of(CHILDREN, problem.hidden.device), temperatures,
        problem.reference if compared else None,
    )  # fmt: skip
    close(ours, expected)
    close(gradients(weighted(ours), problem.leaves()), slopes)


def test_slices_of_no_rows_change_nothing(bounds: str) -> None:
    problem = case()
    picks = Picks.of(CHILDREN, problem.hidden.device)
    arguments = (problem.head(), WORDS, problem.hidden, picks, problem.temperatures, problem.reference)
    plain, padded = vocabulary_statistics(*arguments), vocabulary_statistics(*arguments, least_slices=9)
    close(padded, plain)
    close(gradients(weighted(padded), problem.leaves()), gradients(weighted(plain), problem.leaves()))


def test_statistics_of_a_head_in_bfloat16(bounds: str) -> None:
    """Against plain autograd through the same head: both round alike, except for sums over slices."""
    problem = case(torch.bfloat16, bias=False)
    hidden = problem.hidden.detach().float().requires_grad_()
    leaves = [hidden, *problem.layer.parameters()]

    def head(hidden: Tensor) -> Tensor:
        return all_logits(problem.layer, hidden)

    expected = plainly(head(hidden), CHILDREN, problem.temperatures.float(), problem.other.float())
    slopes = gradients(weighted(expected), leaves)
    picks = Picks.of(CHILDREN, hidden.device)
    ours = vocabulary_statistics(
        head, WORDS, hidden, picks, problem.temperatures.float(), lambda rows: problem.other[rows].float()
    )
    assert {tensor.dtype for tensor in ours} == {torch.float32}
    close(ours, expected, 2e-2)
    close(gradients(weighted(ours), leaves), slopes, 5e-2)
    assert all(slope.abs().max() > 0.3 for slope in slopes)


def test_no_rows_have_no_statistics(bounds: str) -> None:
    problem = case(n_rows=0)
    statistics = vocabulary_statistics(problem.head(), WORDS, problem.hidden, Picks.of([], problem.hidden.device))
    assert [len(statistic) for statistic in statistics] == [0, 0, 0]
    statistics[1].sum().backward()
    assert problem.hidden.grad is not None
    assert problem.hidden.grad.shape == (0, WIDTH)


@pytest.mark.parametrize("compared", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_impossible_words_have_no_weight(bounds: str, dtype: torch.dtype, compared: bool) -> None:
    """Logits of minus infinity, in both distributions, have no weight: as if there were no such words."""
    problem = case(dtype)
    barred = torch.zeros(WORDS, dtype=dtype)
    barred[[4, 10]] = -torch.inf
    left = [word for word in range(WORDS) if word not in (4, 10)]
    children = [[3], [0, 3], [], [1, 2], [7], [9]]
    fewer = [[left.index(token) for token in tokens] for tokens in children]
    other = problem.other[:, left].log_softmax(-1)
    whole = torch.full_like(problem.other, -torch.inf)
    whole[:, left] = other
    expected = plainly(problem.head()(problem.hidden)[:, left], fewer, None, other if compared else None)
    slopes = gradients(5 * weighted(expected), problem.leaves())
    reference = (lambda rows: whole[rows].clone()) if compared else None
    picks = Picks.of(children, problem.hidden.device)
    ours = vocabulary_statistics(
        lambda hidden: problem.head()(hidden) + barred, WORDS, problem.hidden, picks, None, reference
    )
    tolerance = 1e-12 if dtype == torch.float64 else 3e-5
    close(ours, expected, tolerance)
    close(gradients(5 * weighted(ours), problem.leaves()), slopes, tolerance)


def test_the_divergence_is_infinite_where_the_reference_is_zero() -> None:
    """Then the divergence is infinite, and that must be seen."""
    problem = case()
    whole = problem.other.clone()
    whole[2, 4] = -torch.inf
    picks = Picks.of(CHILDREN, problem.hidden.device)
    *_, kl = vocabulary_statistics(problem.head(), WORDS, problem.hidden, picks, None, lambda rows: whole[rows].clone())
    assert torch.isinf(kl).tolist() == [False, False, True, False, False, False]


# ------------------------------------------------------------------ some of it


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("bias", [True, False])
def test_gathered_logits_are_those_of_the_table(dtype: torch.dtype, bias: bool) -> None:
    problem = case(dtype, bias=bias)
    assert can_gather(problem.layer)
    exact = copy.deepcopy(problem.layer).double()
    hidden = problem.hidden.detach().double().requires_grad_()
    table = exact(hidden)
    expected = torch.stack([table[row, token] for row, tokens in enumerate(CHILDREN) for token in tokens])
    slopes = gradients(weighted([expected]), [hidden, *exact.parameters()])
    ours = gathered_logits(problem.layer, problem.hidden, Picks.of(CHILDREN, problem.hidden.device))
    assert ours.dtype == torch.float32
    close([ours], [expected], 1e-5)
    tolerance = 1e-2 if dtype == torch.bfloat16 else 1e-5  # gradients have the type of their tensors
    close([gradient.double() for gradient in gradients(weighted([ours]), problem.leaves())], slopes, tolerance)


# ------------------------------------------------------------------ as a model asks it

ROWS = [TokenRow((1, 20, 30, 40, 50), None, (1, 3, 4)), TokenRow((1, 20, 31), None, (2,))]
SAID = [(5, 7, 9), (100,), (), (8, 800)]


def head_adapted() -> LanguageModel:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of peft, that the head is tied
        lm = LanguageModel(lora={"target_modules": ["lm_head"]})
    randomise(lm)
    return lm


def test_an_adapter_on_the_head_alone_is_trained() -> None:
    lm = head_adapted()
    assert not can_gather(lm.base.get_output_embeddings())
    trained = [parameter for parameter in lm.parameters() if parameter.requires_grad]
    assert len(trained) == 2
    expected = lm.base(torch.tensor([ROWS[0].tokens])).logits[0, [1, 3, 4]].log_softmax(-1)
    flat = torch.cat([expected[row, list(tokens)] for row, tokens in enumerate(SAID[:3])])
    slopes = gradients(weighted([flat]), trained)
    assert all(slope.abs().max() > 1e-3 for slope in slopes)
    ours = lm.child_log_probs(lm.hidden_states(ROWS[:1]), SAID[:3])
    close([ours], [flat], 1e-5)
    close(gradients(weighted([ours]), trained), slopes, 1e-5)


def test_children_of_a_head_that_cannot_be_gathered(bounds: str) -> None:
    """They come in slices too, and up to a constant of each hidden state."""
    lm = head_adapted()
    hidden = lm.hidden_states(ROWS)
    for frozen in (False, True):
        table = lm.vocabulary_logits(hidden, reference=frozen)
        ours = lm.child_logits(hidden, SAID, reference=frozen).split([len(tokens) for tokens in SAID])
        for row, (part, tokens) in enumerate(zip(ours, SAID, strict=True)):
            close([part.log_softmax(0)], [table[row, list(tokens)].log_softmax(0)], 1e-5)
    assert (lm.child_logits(hidden, SAID) - lm.child_logits(hidden, SAID, reference=True)).abs().max() > 1e-2


def test_children_of_a_plain_head_make_no_table(lm: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = lm.hidden_states(ROWS)
    table = lm.vocabulary_logits(hidden)
    expected = torch.cat([table[row, list(tokens)] for row, tokens in enumerate(SAID)])
    monkeypatch.setattr(lm, "vocabulary_logits", None)
    close([lm.child_logits(hidden, SAID)], [expected], 1e-5)
