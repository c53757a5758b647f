"""Continuing prompts: prompts that are equal, adapters that are added up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from peft.tuners import lora
from torch import Tensor, nn
from toy import properties, randomise

from poad_sb3.distributions.free import generate
from poad_sb3.language_model.language_model import LanguageModel
from poad_sb3.language_model.lora import merged
from poad_sb3.language_model.packing import TokenRow
from poad_sb3.settings.sampling import SamplingSettings


@pytest.fixture(autouse=True)
def _no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


@pytest.fixture(scope="module")
def models(zoo_folder: Callable[[str], Path]) -> Callable[[str], LanguageModel]:
    @cache
    def make(name: str) -> LanguageModel:
        torch.manual_seed(0)
        lm = LanguageModel("pocket" if name == "pocket" else str(zoo_folder(name)))
        randomise(lm)
        return lm

    return make


def whole(lm: LanguageModel, texts: Sequence[Sequence[int]]) -> Tensor:
    return torch.cat([lm.hidden_states([TokenRow(tuple(text), None, (len(text) - 1,))]) for text in texts])


def near(ours: Tensor, expected: Tensor) -> None:
    scale = expected.abs().max()
    torch.testing.assert_close(ours / scale, expected / scale, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "name", ["pocket", "gemma2", *(pytest.param(n, marks=pytest.mark.matrix) for n in ("gpt2", "phi3"))]
)
def test_decoding_equals_whole_passes(models: Callable[[str], LanguageModel], name: str) -> None:
    """Of prompts that come more than once, and end one by one, with the adapter added."""
    lm = models(name)
    assert lm.caches
    random = np.random.default_rng(0)
    prompts = [tuple(random.integers(2, 60, size=size).tolist()) for size in (7, 3, 19, 3)]
    prompts = [prompts[0], prompts[1], prompts[0], prompts[2], prompts[3], prompts[1], prompts[0]]
    texts, shapes = [list(prompt) for prompt in prompts], []
    hook = lm.base.get_input_embeddings().register_forward_pre_hook(lambda _, given: shapes.append(given[0].shape))
    with lm.decoding():
        ours = lm.start_decoding(prompts)
        states = [(ours.hidden, [list(text) for text in texts])]
        for step in range(12):
            keep = sorted(random.permutation(len(texts))[: max(1, len(texts) - step % 2)].tolist())
            texts = [[*texts[index], int(random.integers(2, 60))] for index in keep]
            ours.advance(keep, [text[-1] for text in texts])
            states.append((ours.hidden, [list(text) for text in texts]))
    hook.remove()
    assert shapes[0] == (4, 19), "equal prompts go through the model once"
    assert [shape[0] for shape in shapes[1:3]] == [7, 6], "and go apart from there"
    for hidden, tokens in states:
        near(hidden, whole(lm, tokens))


@properties
@hypothesis.given(lengths=st.lists(st.integers(1, 40), max_size=30), n_new=st.integers(1, 20), bound=st.integers(1, 60))
def test_batches_hold_each_prompt_once_within_their_bound(
    lm: LanguageModel, lengths: list[int], n_new: int, bound: int
) -> None:
    """Eight tokens in the cache for each of a pass, those to come included; the longest first."""
    before = lm.max_tokens_per_forward
    lm.max_tokens_per_forward = bound
    try:
        batches = list(lm.decode_batches([(1,) * length for length in lengths], n_new))
    finally:
        lm.max_tokens_per_forward = before
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    sizes = [[lengths[index] + n_new for index in batch] for batch in batches]
    for number, size in enumerate(sizes, start=1):
        assert len(size) * max(size) <= 8 * bound or len(size) == 1
        assert number == len(sizes) or (len(size) + 1) * max(size) > 8 * bound, "no batch is smaller than it has to be"
    assert [length for size in sizes for length in size] == sorted((length + n_new for length in lengths), reverse=True)


# ------------------------------------------------------------------ the adapter, added up

PLAIN: dict[str, dict[str, Any]] = {
    "default": {},
    "every layer": {"target_modules": "all-linear"},
    "ranks of their own": {"rank_pattern": {"q_proj": 2}, "alpha_pattern": {"v_proj": 64}},
}
KEPT: dict[str, dict[str, Any]] = {"DoRA": {"use_dora": True}, "biases": {"lora_bias": True}}
ROWS = [TokenRow((1, 20, 30, 40, 50), None, (1, 3, 4)), TokenRow((1, 21, 31), None, (2,))]


def adapted(changes: dict[str, Any], **kwargs: Any) -> LanguageModel:
    torch.manual_seed(0)
    lm = LanguageModel(lora=changes, **kwargs)
    randomise(lm)
    return lm


def layers(lm: LanguageModel) -> dict[str, nn.Module]:
    return dict(lm.network.named_modules(remove_duplicate=False))


def same(before: dict[str, nn.Module], after: dict[str, nn.Module]) -> bool:
    return list(before) == list(after) and all(before[name] is after[name] for name in before)


@pytest.mark.parametrize("changes", PLAIN)
def test_a_merged_adapter_changes_no_hidden_state(changes: str) -> None:
    lm = adapted(PLAIN[changes])
    before, weights = layers(lm), {name: weight.clone() for name, weight in lm.state_dict().items()}
    expected, off = lm.hidden_states(ROWS), lm.hidden_states(ROWS, reference=True)
    assert (expected - off).abs().max() > 0.1
    with merged(lm.base):
        assert not any(isinstance(module, lora.LoraLayer) for module in lm.base.modules())
        near(lm.hidden_states(ROWS), expected)
        assert not any(parameter.requires_grad for parameter in lm.base.parameters())
    assert same(before, layers(lm))
    assert torch.equal(lm.hidden_states(ROWS), expected)
    now = lm.state_dict()
    assert list(now) == list(weights)
    assert all(torch.equal(weight, weights[name]) for name, weight in now.items()), "bit by bit"


@pytest.mark.filterwarnings("ignore:`lora_bias=True` was passed")
@pytest.mark.parametrize("changes", KEPT)
def test_adapters_without_a_plain_sum_are_not_merged(changes: str) -> None:
    lm = adapted(KEPT[changes])
    for name, parameter in lm.named_parameters():
        if parameter.requires_grad:
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(len(name))))
    before, expected = layers(lm), lm.hidden_states(ROWS)
    with merged(lm.base):
        assert same(before, layers(lm))
        assert torch.equal(lm.hidden_states(ROWS), expected)


def test_an_error_in_decoding_restores_the_adapter(lm: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the adapter is back after any error there."""
    before, has_adapter = layers(lm), []

    def fails(hidden: Tensor) -> Tensor:
        has_adapter.append(any(isinstance(module, lora.LoraLayer) for module in lm.base.modules()))
        raise KeyboardInterrupt

    monkeypatch.setattr(lm, "vocabulary_logits", fails)
    with pytest.raises(KeyboardInterrupt):
        generate(lm, [lm.prompt_ids("The lamp is red.")], SamplingSettings(max_new_tokens=3), None)
    assert has_adapter == [False]
    assert same(before, layers(lm))
