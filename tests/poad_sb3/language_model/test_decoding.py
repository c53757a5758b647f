"""Continuing prompts, equal ones among them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

import hypothesis
import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor
from toy import properties, randomise

from poad_sb3.language_model.language_model import LanguageModel
from poad_sb3.language_model.packing import TokenRow, tree_row


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


@pytest.mark.parametrize(
    "name", ["pocket", *(pytest.param(n, marks=pytest.mark.matrix) for n in ("llama3", "qwen3", "gpt2", "phi3"))]
)
def test_trees_behind_a_decoding_are_read_on_its_keys_and_values(
    models: Callable[[str], LanguageModel], name: str
) -> None:
    """Of some prompts or all, which go on afterwards as if nothing had been read."""
    lm = models(name)
    assert lm.shares_keys
    random = np.random.default_rng(0)
    texts = [random.integers(2, 60, size=size).tolist() for size in (7, 3, 19, 3)]
    decoding, shapes = lm.start_decoding([tuple(text) for text in texts]), []
    hook = lm.base.get_input_embeddings().register_forward_pre_hook(lambda _, given: shapes.append(given[0].shape))
    branches = [[(), (5,), (5, 6), (5, 7, 8), (9,)], [()], [(4, 4, 4)]]
    for some, kinds in ([0, 1, 2, 3], [0, 1, 2, 0]), ([1, 3], [1, 2]), ([2], [0]):
        prompts = [(*texts[row], *random.integers(2, 60, size=1 + row).tolist()) for row in some]
        trees = [tree_row(prompt, branches[kind]) for prompt, kind in zip(prompts, kinds, strict=True)]
        ours = decoding.read(some, trees)
        assert shapes[-1][1] < 12, "the new tokens alone"
        near(ours, torch.cat([lm.hidden_states([tree]) for tree in trees]))
        texts = [[*text, int(random.integers(2, 60))] for text in texts]
        decoding.advance(range(4), [text[-1] for text in texts])
        near(decoding.hidden, whole(lm, texts))
    hook.remove()


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
