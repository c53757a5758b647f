"""Passes: their root module, their bound, and products with few rows."""

from __future__ import annotations

from typing import Any

import pytest
from torch import Tensor, nn
from toy import make_method, randomise

from poad_sb3.language_model.forward import decoder_pass
from poad_sb3.language_model.language_model import LanguageModel
from poad_sb3.language_model.packing import Packed, TokenRow


@pytest.fixture
def lm() -> LanguageModel:
    model = LanguageModel("pocket")
    randomise(model)
    return model


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


# ------------------------------------------------------------------ the root


@pytest.mark.parametrize("name", ["POAD", "TWOSOME", "POAD, free"])
def test_every_pass_over_the_weights_enters_through_the_language_model(name: str) -> None:
    """Sharded weights are gathered by hooks of the root module: a pass beside it would see empty ones."""
    agent = make_method(name, n_steps=6, kl_coef=0.0 if name == "TWOSOME" else 0.1)
    lm, depth = agent.policy.lm, [0]
    inside: list[nn.Module] = []
    outside: list[nn.Module] = []

    def note(module: nn.Module, *_: Any) -> None:
        (inside if depth[0] else outside).append(module)

    lm.register_forward_pre_hook(lambda *_: depth.__setitem__(0, depth[0] + 1))
    lm.register_forward_hook(lambda *_: depth.__setitem__(0, depth[0] - 1), always_call=True)
    for module in lm.base.modules():
        if [*module.parameters(recurse=False)]:
            module.register_forward_pre_hook(note)
    agent.learn(6)
    assert inside
    assert not outside
