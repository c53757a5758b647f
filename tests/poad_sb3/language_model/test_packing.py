"""Rows that begin alike are merged into trees: every read sees its own row and no other."""

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
from torch import Tensor
from toy import properties, randomise

from poad_sb3.language_model.language_model import LanguageModel
from poad_sb3.language_model.packing import Group, Packed, TokenRow, groups_of, pack, path_to

ENDLESS = 10**9


@st.composite
def token_rows(draw: st.DrawFn) -> TokenRow:
    """Few words and short rows, so that many begin alike; a tree branches anywhere, also within a shared prefix."""
    length = draw(st.integers(1, 7))
    tokens = tuple(draw(st.lists(st.integers(1, 3), min_size=length, max_size=length)))
    parents = None
    if draw(st.booleans()):
        parents = (-1, *(draw(st.sampled_from((position - 1, position - 1, draw(st.integers(0, position - 1)))))
                         for position in range(1, length)))  # fmt: skip
    return TokenRow(tokens, parents, tuple(draw(st.lists(st.integers(0, length - 1), max_size=4))))


@st.composite
def related_rows(draw: st.DrawFn) -> list[TokenRow]:
    """Some rows; equal ones, the same ones with other reads, and beginnings of others among them."""
    rows = draw(st.lists(token_rows(), min_size=1, max_size=8))
    for row in draw(st.lists(st.sampled_from(rows), max_size=4)):
        n_tokens = draw(st.integers(1, len(row.tokens)))
        reads = tuple(draw(st.lists(st.integers(0, n_tokens - 1), max_size=3)))
        rows.append(TokenRow(row.tokens[:n_tokens], row.parents and row.parents[:n_tokens], reads))
    return draw(st.permutations(rows))


def cost(n_tokens: int, width: int) -> float:
    """24 h^2 for a token in the matrices of a layer, 4 h for each pair of tokens in its attention."""
    return 24 * width**2 * n_tokens + 4 * width * n_tokens**2


def own_texts(rows: Sequence[TokenRow]) -> list[tuple[int, ...]]:
    """The tokens of each read, walked from it to the start of its row."""
    texts = []
    for row in rows:
        parents = range(-1, len(row.tokens) - 1) if row.parents is None else row.parents
        for read in row.reads:
            text, position = [], read
            while position >= 0:
                text.append(row.tokens[position])
                position = parents[position]
            texts.append(tuple(reversed(text)))
    return texts


def seen_texts(packed: Packed) -> list[tuple[int, ...]]:
    """The attended tokens of each read, in the order of positions; these must count from 0 without gaps."""
    texts = []
    for group, position in zip(packed.batch.tolist(), packed.place.tolist(), strict=True):
        visible = torch.arange(packed.ids.shape[1]) <= position if packed.seen is None else packed.seen[group, position]
        positions, order = packed.positions[group, visible].sort()
        assert positions.tolist() == list(range(len(positions)))
        assert packed.positions[group, position] == len(positions) - 1
        texts.append(tuple(packed.ids[group, visible][order].tolist()))
    return texts


# ------------------------------------------------------------------ pure functions


@properties
@hypothesis.given(rows=related_rows(), width=st.sampled_from((1, 3, 1000)), limit=st.integers(1, 60))
@hypothesis.example(rows=[TokenRow((1, 2, 3), None, (2,))] * 2, width=1000, limit=60)
@hypothesis.example(rows=[TokenRow((1, 2, 3), (-1, 0, 0), (1, 2)), TokenRow((1, 2, 3), None, ())], width=9, limit=60)
def test_every_read_sees_its_own_row(rows: list[TokenRow], width: int, limit: int) -> None:
    groups = groups_of(rows, width, limit)
    everywhere = [row._replace(reads=tuple(range(len(row.tokens)))) for row in rows]
    for variant in (rows, everywhere):
        packed = pack(variant, groups)
        assert seen_texts(packed) == own_texts(variant)
        assert len(packed.ids) == len(groups)
        assert packed.ids.shape[1] == max(group.size for group in groups)
        deepest = max(map(len, own_texts(everywhere)))
        assert deepest <= packed.deepest <= packed.ids.shape[1]
        assert packed.seen is None or packed.deepest == deepest, "the model's limit is on sequences, not on trees"


@properties
@hypothesis.given(rows=related_rows(), width=st.sampled_from((1, 3, 1000)), limit=st.integers(1, 60))
def test_groups_hold_each_row_once_and_cost_no_more(rows: list[TokenRow], width: int, limit: int) -> None:
    groups = groups_of(rows, width, limit)
    assert sorted(index for group in groups for index in group.rows) == list(range(len(rows)))
    for group in groups:
        lengths = [len(rows[index].tokens) for index in group.rows]
        assert group.size == sum(lengths) - sum(group.shared)
        assert group.shared[0] == 0
        assert all(shared > 0 for shared in group.shared[1:])
        assert group.size <= limit or len(lengths) == 1
        assert cost(group.size, width) <= sum(cost(length, width) for length in lengths)


@properties
@hypothesis.given(rows=st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=7), min_size=1, max_size=9))
def test_sequences_become_the_trie_of_their_beginnings(rows: list[list[int]]) -> None:
    """With room for all, each prefix is computed once: one tree for each first token, one place for each prefix."""
    groups = groups_of([TokenRow(tuple(row), None, ()) for row in rows], ENDLESS, ENDLESS)
    beginnings = {tuple(row[:n]) for row in rows for n in range(1, len(row) + 1)}
    assert len(groups) == len({row[0] for row in rows})
    assert sum(group.size for group in groups) == len(beginnings)


# ------------------------------------------------------------------ outputs of a model


@pytest.fixture(scope="module")
def models(zoo_folder: Callable[[str], Path]) -> Iterator[Callable[[str], LanguageModel]]:
    @cache
    def make(name: str) -> LanguageModel:
        torch.manual_seed(0)
        lm = LanguageModel("pocket" if name == "pocket" else str(zoo_folder(name)))
        randomise(lm)
        return lm.double()  # some norms are float32 all the same

    return make


def a_mixture(lm: LanguageModel, seed: int) -> list[TokenRow]:
    """Sequences and trees of one episode: prompts that begin alike, and continuations of each."""
    random = np.random.default_rng(seed)
    vocabulary = min(lm.base.config.get_text_config().vocab_size, 90)
    start = tuple(random.integers(vocabulary, size=20).tolist())
    rows = []
    for _ in range(12):
        prompt = start[: random.integers(1, 21)]
        tail = tuple(random.integers(vocabulary, size=random.integers(1, 12)).tolist())
        tokens, parents = (*prompt, *tail), None
        if random.random() < 0.4:  # some of them branch within the shared prefix
            begins = int(random.integers(1, len(tokens)))
            branching = (int(random.integers(0, position)) for position in range(begins, len(tokens)))
            parents = (*range(-1, begins - 1), *branching)
        n_reads = int(random.integers(0, 4))
        rows.append(TokenRow(tokens, parents, tuple(random.integers(len(tokens), size=n_reads).tolist())))
    return [*rows, rows[0], rows[3]._replace(reads=(0,))]


def apart(rows: Sequence[TokenRow], *_: Any) -> list[Group]:
    return groups_of(rows, 0, 0)


def asked(lm: LanguageModel, rows: Sequence[TokenRow]) -> tuple[Tensor, list[Tensor]]:
    """Hidden states, and the gradients of a loss with a different weight for every number."""
    lm.zero_grad()
    hidden = lm.hidden_states(rows)
    (hidden * torch.cos(torch.arange(hidden.numel()) * 0.7).view_as(hidden)).sum().backward()  # type: ignore[no-untyped-call]
    return hidden.detach(), [parameter.grad.clone() for parameter in lm.parameters() if parameter.grad is not None]


@pytest.mark.parametrize(
    "name", ["pocket", "gpt2", *(pytest.param(n, marks=pytest.mark.matrix) for n in ("qwen3", "phi3"))]
)
def test_merging_changes_no_hidden_state_and_no_gradient(
    models: Callable[[str], LanguageModel], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    lm = models(name)
    rows = a_mixture(lm, seed=0)
    merged, slopes = asked(lm, rows)
    assert lm.packs_trees
    assert len(lm._groups(rows)) < len(rows) - 5, "many of them are merged"
    single = [path_to(row, read) for row in rows for read in row.reads]
    monkeypatch.setattr(lm, "_groups", apart)
    scale = float(merged.abs().max())
    for others in (rows, single):
        alone, expected = asked(lm, others)
        torch.testing.assert_close(merged / scale, alone / scale, rtol=0, atol=1e-5)
        for slope, other in zip(slopes, expected, strict=True):
            size = float(other.abs().max())
            assert size > 0
            torch.testing.assert_close(slope / size, other / size, rtol=0, atol=1e-5)
    one_by_one = torch.cat([lm.hidden_states([row]) for row in single])
    torch.testing.assert_close(merged / scale, one_by_one / scale, rtol=0, atol=1e-5)


def test_models_with_windows_merge_nothing(models: Callable[[str], LanguageModel]) -> None:
    lm = models("gemma2")
    rows = a_mixture(lm, 0)
    assert [group.rows for group in lm._groups(rows)] == [[index] for index in range(len(rows))]
