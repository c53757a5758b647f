"""Passes: their root module, their bound, and products with few rows."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from toy import make_method, randomise

from poad_sb3.language_model.cpu_fast_path import few_rows_product
from poad_sb3.language_model.forward import decoder_pass
from poad_sb3.language_model.language_model import LanguageModel
from poad_sb3.language_model.packing import Packed, TokenRow, moved


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
    """Among all rows long ones stand between the short ones; in a chunk of short ones there are none between."""
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

    monkeypatch.setattr("poad_sb3.language_model.language_model.decoder_pass", counted)
    with torch.no_grad():
        for chunk in lm.chunks(rows):
            together = lm.hidden_states([rows[index] for index in chunk])
            for index, hidden in zip(chunk, together, strict=True):
                real[index] = (hidden - alone(lm, [rows[index]])[0]).abs().max()
    assert all(n == 1 or n * longest <= limit for n, longest in seen)
    assert real.max() < 1e-4


def test_a_read_of_nothing_is_nothing(lm: LanguageModel) -> None:
    row = TokenRow((5, 6, 7), None, ())
    assert lm.hidden_states([row]).shape == (0, lm.hidden_size)
    lm.use_plain_passes()
    assert lm.hidden_states([row]).shape == (0, lm.hidden_size)


@pytest.mark.usefixtures("every_check")
def test_an_error_that_keeps_texts_from_sharing_a_pass_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(model: Any, packed: Packed) -> Tensor:
        if len(packed.ids) > 1:
            raise RuntimeError("no such kernel")
        return decoder_pass(model, packed)

    monkeypatch.setattr("poad_sb3.language_model.language_model.decoder_pass", broken)
    with pytest.warns(RuntimeWarning, match=r"Several texts cannot share a pass of 'pocket' \(RuntimeError: no such"):
        assert LanguageModel("pocket").plain_passes


def test_an_expanded_tensor_is_pinned_as_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    pinned = []

    def pin_memory(tensor: Tensor) -> Tensor:
        pinned.append(tensor)
        return tensor

    monkeypatch.setattr(Tensor, "pin_memory", pin_memory)
    monkeypatch.setattr(Tensor, "to", lambda tensor, *_, **__: tensor)
    positions = torch.arange(3).expand(2, -1)
    assert torch.equal(moved(positions, torch.device("cuda")), positions)
    assert [one.is_contiguous() for one in pinned] == [True]


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
@pytest.mark.parametrize("n", [0, 1, 8, 9])
def test_few_rows_are_multiplied_as_many(n: int, bias: bool) -> None:
    torch.manual_seed(0)
    plain, x = nn.Linear(6, 5, bias=bias), torch.randn(n, 6)
    torch.testing.assert_close(few_rows_product(x, plain.weight, plain.bias), plain(x), rtol=1e-5, atol=1e-6)


# ------------------------------------------------------------------ the root


@pytest.mark.matrix_after(3)
@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("name", ["POAD", "TWOSOME", "POAD, free"])
def test_every_pass_over_the_weights_enters_through_the_language_model(name: str, fast: bool) -> None:
    """Sharded weights are gathered by hooks of the root module: a pass beside it would see empty ones."""
    agent = make_method(
        name, n_steps=6, kl_coef=0.0 if name == "TWOSOME" else 0.1, policy_kwargs={"cpu_fast_path": fast}
    )
    lm, depth = agent.policy.lm, [0]
    inside: list[nn.Module] = []
    outside: list[nn.Module] = []

    def note(module: nn.Module, *_: Any) -> None:
        (inside if depth[0] else outside).append(module)

    lm.register_forward_pre_hook(lambda *_: depth.__setitem__(0, depth[0] + 1))
    lm.register_forward_hook(lambda *_: depth.__setitem__(0, depth[0] - 1), always_call=True)
    ends = [lm.base.get_input_embeddings(), lm.base.get_output_embeddings()]
    # Hooks on its layers would turn the fast path off.
    for module in ends if fast else [one for one in lm.base.modules() if [*one.parameters(recurse=False)]]:
        module.register_forward_pre_hook(note)
    agent.learn(6)
    assert inside
    assert not outside
