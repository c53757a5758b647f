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
from poad_sb3.language_model.packing import Packed, TokenRow


@pytest.fixture
def lm() -> LanguageModel:
    made = LanguageModel("pocket")
    randomise(made)
    return made


# ------------------------------------------------------------------ the bound


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
