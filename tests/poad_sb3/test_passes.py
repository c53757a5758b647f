"""Passes: their bound, the last layer at what is read, and products with few rows."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from toy import randomise

from poad_sb3.lm import LanguageModel, TokenRow
from poad_sb3.models.few_rows import FewRowsLinear, multiplying_few_rows
from poad_sb3.models.last_layer import last_layer_of, reading_only
from poad_sb3.models.packing import Packed
from poad_sb3.models.passes import decoder_pass


@pytest.fixture
def lm() -> LanguageModel:
    made = LanguageModel("pocket")
    randomise(made)
    return made


def numbers(*sizes: int, seed: int = 0) -> tuple[int, ...]:
    return tuple(torch.randint(3, 800, sizes, generator=torch.Generator().manual_seed(seed)).tolist())


def alone(lm: LanguageModel, rows: list[TokenRow]) -> Tensor:
    return torch.cat([lm.hidden_states([row]) for row in rows])


# ------------------------------------------------------------------ the bound


def test_rows_that_merge_further_than_planned_keep_the_bound(
    lm: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Among all rows long ones stand between the short ones; in a chunk of short ones nothing does."""
    limit, start = 256, numbers(10)
    monkeypatch.setattr(lm, "max_tokens_per_forward", limit)
    short = [TokenRow((*start, 10 * k, *numbers(2, seed=k)), None, (12,)) for k in range(1, 11)]
    long = [TokenRow((*start, 10 * k + 5, *numbers(limit - 11, seed=k)), None, (limit - 1,)) for k in range(1, 11)]
    others = [TokenRow(numbers(5, seed=100 + k), None, (4,)) for k in range(20)]
    rows, seen = [*short, *long, *others], []
    real = torch.zeros(len(rows))

    def counted(model: Any, packed: Packed, **kwargs: Any) -> Tensor:
        seen.append(tuple(packed.ids.shape))
        return decoder_pass(model, packed, **kwargs)

    monkeypatch.setattr("poad_sb3.lm.decoder_pass", counted)
    with torch.no_grad():
        for chunk in lm.chunks(rows):
            together = lm.hidden_states([rows[index] for index in chunk])
            for index, hidden in zip(chunk, together, strict=True):
                real[index] = (hidden - alone(lm, [rows[index]])[0]).abs().max()
    assert all(n == 1 or n * longest <= limit for n, longest in seen)
    assert real.max() < 1e-4


def test_a_read_of_nothing_is_nothing(lm: LanguageModel) -> None:
    assert lm.hidden_states([TokenRow((5, 6, 7), None, ())]).shape == (0, lm.hidden_size)


# ------------------------------------------------------------------ the last layer


def test_the_last_layer_computes_what_is_read(lm: LanguageModel) -> None:
    """Hidden states and gradients are those of whole passes."""
    assert lm.trims
    rows = [TokenRow(numbers(30, seed=seed), None, (3, 29)) for seed in range(3)]
    found = []
    for trims in (True, False):
        lm.trims = trims
        hidden = lm.hidden_states(rows)
        gradients = torch.autograd.grad(hidden.square().sum(), [one for one in lm.parameters() if one.requires_grad])
        found.append((hidden.detach(), *gradients))
    for ours, whole in zip(*found, strict=True):
        assert (ours - whole).norm() < 1e-4 * whole.norm()


def test_no_hook_is_left(lm: LanguageModel) -> None:
    layer = last_layer_of(lm.base)
    assert layer is not None
    before = len(layer._forward_pre_hooks)
    with (
        pytest.raises(RuntimeError),
        reading_only(layer, torch.zeros(1, 1, dtype=torch.int64), torch.zeros(1, 1, 1, 9)),
    ):
        raise RuntimeError
    assert len(layer._forward_pre_hooks) == before


def test_a_hook_belongs_to_its_thread(lm: LanguageModel) -> None:
    """Another thread that asks the model meanwhile gets all positions."""
    layer, found = last_layer_of(lm.base), []
    ids = torch.tensor([numbers(12)])

    def ask() -> None:
        with torch.no_grad():
            found.append(lm.base.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state)

    ask()
    with reading_only(layer, torch.tensor([[11]]), torch.zeros(1, 1, 1, 12)):
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
        ask()
    whole, elsewhere, here = found
    assert torch.equal(elsewhere, whole)
    torch.testing.assert_close(here, whole[:, 11:], rtol=0, atol=1e-5)


# ------------------------------------------------------------------ the head


@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`")
def test_a_head_that_is_trained_alone_gets_its_gradient() -> None:
    lm = LanguageModel("pocket", lora={"target_modules": ["lm_head"]})
    randomise(lm)
    hidden, tokens = lm.hidden_states([TokenRow(numbers(9), None, (5, 8))]), (7, 9)
    trained = [one for one in lm.parameters() if one.requires_grad]
    lm.child_log_probs(hidden, [(token,) for token in tokens]).sum().backward()  # type: ignore[no-untyped-call]
    ours = [one.grad for one in trained]
    table = lm.vocabulary_logits(hidden).log_softmax(-1)
    plain = torch.autograd.grad(table[0, 7] + table[1, 9], trained)
    for one, other in zip(ours, plain, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


# ------------------------------------------------------------------ few rows


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(1,), (8,), (9,), (4, 1), (2, 3), (3, 5), (0,)])
def test_few_rows_are_multiplied_as_many(shape: tuple[int, ...], bias: bool) -> None:
    torch.manual_seed(0)
    plain, x = nn.Linear(6, 5, bias=bias), torch.randn(*shape, 6)
    expected = plain(x)
    with multiplying_few_rows(nn.Sequential(plain)):
        assert type(plain) is FewRowsLinear
        found = plain(x)
    assert found.is_contiguous()
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_layers_are_plain_again_after_an_error() -> None:
    class Own(nn.Linear):
        """Of a library, with its own idea of a product."""

    layers, within = nn.Sequential(nn.Linear(2, 2), Own(2, 2)), []

    def fails() -> None:
        within.extend(type(one) for one in layers)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), multiplying_few_rows(layers):
        fails()
    assert within == [FewRowsLinear, Own]
    assert [type(one) for one in layers] == [nn.Linear, Own]
