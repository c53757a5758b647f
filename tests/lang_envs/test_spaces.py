"""`TextSpace` and `TokenSequence`: membership, copies, encoding, and their way through shared memory."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
import pickletools
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from gymnasium.vector import utils as vector_utils
from gymnasium.vector.utils import (
    create_empty_array,
    create_shared_memory,
    read_from_shared_memory,
    write_to_shared_memory,
)
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lang_envs import ActionError, ByteTokenizer, EncodingError, HuggingFaceTokenizer, TextSpace, TokenSequence

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=40)
TRICKY_TEXTS = ["", "a\0\n\t ", "é漢字🍅🏳️‍🌈\U0010ffff\ud800", "0" * 40]


# ---------------------------------------------------------------------- TextSpace


@pytest.mark.parametrize("text", TRICKY_TEXTS)
def test_text_space_contains_any_unicode_of_its_length(text: str) -> None:
    assert text in TextSpace(40)
    assert text in TextSpace(max(len(text), 1))
    assert text + "x" not in TextSpace(max(len(text), 1)) or text == ""
    assert np.str_(text) in TextSpace(40)
    assert np.array(text, dtype=object) in TextSpace(40)


@pytest.mark.parametrize("thing", [None, b"bytes", np.array(["a"])], ids=repr)
def test_text_space_contains_nothing_else(thing: Any) -> None:
    assert thing not in TextSpace(40)


@pytest.mark.parametrize("max_length", [0, 2.0])
def test_text_space_refuses_bad_lengths(max_length: Any) -> None:
    with pytest.raises(ValueError, match=r"Expected max_length to be a positive integer; got .* Fix: "):
        TextSpace(max_length)


# ---------------------------------------------------------------------- shared memory


@settings(max_examples=50, deadline=None)
@given(texts=st.lists(ANY_TEXT, min_size=3, max_size=3))
def test_text_survives_shared_memory(texts: list[str]) -> None:
    space = TextSpace(40)
    memory = create_shared_memory(space, n=3)
    live = read_from_shared_memory(space, memory, n=3)
    assert copy.deepcopy(live) == create_empty_array(space, n=3) == ("", "", "")
    for index in (2, 0, 1):
        write_to_shared_memory(space, index, texts[index], memory)
    assert copy.deepcopy(live) == tuple(live) == live[:] == tuple(texts)
    assert (len(live), live[1], repr(live)) == (3, texts[1], repr(tuple(texts)))
    snapshot = copy.deepcopy(live)
    write_to_shared_memory(space, 1, "another", memory)
    assert (snapshot[1], live[1], live[0], live[2]) == (texts[1], "another", texts[0], texts[2])


@pytest.mark.parametrize("value", ["x" * 41, 3], ids=["long", "int"])
def test_shared_memory_refuses_what_it_cannot_hold(value: Any) -> None:
    space = TextSpace(40)
    memory = create_shared_memory(space, n=2, ctx=multiprocessing.get_context("spawn"))
    with pytest.raises(ValueError, match=r"Expected a str of at most 40 characters; got .* Fix: "):
        write_to_shared_memory(space, 0, value, memory)
    assert tuple(read_from_shared_memory(space, memory, n=2)) == ("", "")


# ---------------------------------------------------------------------- TokenSequence


@pytest.fixture(params=["byte", "hugging face"])
def tokens(request: pytest.FixtureRequest, tiny_tokenizer: Path) -> TokenSequence:
    tokenizer = ByteTokenizer() if request.param == "byte" else HuggingFaceTokenizer(str(tiny_tokenizer))
    return TokenSequence(tokenizer, 170)


def test_any_text_survives_encoding(tokens: TokenSequence) -> None:
    @settings(deadline=None)
    @given(st.text(max_size=40))
    @example("<pad></s>")
    def check(text: str) -> None:
        array = tokens.encode(text)
        assert (array.dtype, array.shape) == (np.int64, (170,))
        assert array in tokens
        assert tokens.decode(array) == tokens.decode_finished(array) == text

    check()


def test_any_array_of_the_space_has_a_text_or_is_unfinished(tokens: TokenSequence) -> None:
    stops = {tokens.tokenizer.end_token_id, tokens.tokenizer.pad_token_id}
    for seed in range(100):
        tokens.seed(seed)
        array = tokens.sample()
        assert array in tokens
        assert type(tokens.decode(array)) is str
        assert (tokens.decode_finished(array) is None) is not bool(stops & set(array.tolist()))


def test_the_text_ends_at_the_first_end_or_padding(tokens: TokenSequence) -> None:
    for stop in (tokens.tokenizer.end_token_id, tokens.tokenizer.pad_token_id):
        array = tokens.encode("chop nothing")
        array[len(tokens.tokenizer.encode("chop"))] = stop
        assert tokens.decode(array) == tokens.decode_finished(array) == "chop"


def test_a_text_that_just_fits_and_one_that_does_not() -> None:
    space = TokenSequence(max_length=8)
    assert space.decode_finished(space.encode("1234567")) == "1234567"
    for text in ("12345678", "ééééé", "x" * 100_000):
        with pytest.raises(
            EncodingError, match=r"Expected a text of at most 7 tokens; got \d+ .* Fix: .*max_action_length"
        ):
            space.encode(text)


def test_a_text_without_an_encoding_is_refused(tokens: TokenSequence) -> None:
    with pytest.raises(EncodingError, match=r"Expected valid Unicode; got .* Fix: "):
        tokens.encode("lone \ud800 surrogate")


def test_only_a_str_is_encoded(tokens: TokenSequence) -> None:
    with pytest.raises(ActionError, match=r"Expected a str to encode; got .* Fix: "):
        tokens.encode(b"bytes")


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(8), "dtype float64"),
        (np.zeros(7, dtype=int), r"shape \(8,\); got ndarray .* shape \(7,\)"),
        (np.zeros((1, 8), dtype=int), r"shape \(1, 8\)"),
        (np.full(8, 258), "Expected token ids from 0 to 257; got ids from 258 to 258"),
        ("serve", "got str"),
        ([[1], [1, 2]], "got list"),
    ],
    ids=["float", "short", "batch", "large", "str", "ragged"],
)
def test_a_wrong_array_is_refused(array: Any, message: str) -> None:
    space = TokenSequence(max_length=8)
    assert array not in space
    for decode in (space.decode, space.decode_finished):
        with pytest.raises(ActionError, match=message):
            decode(array)


@pytest.mark.parametrize("max_length", [1, True])
def test_token_sequence_refuses_bad_lengths(max_length: Any) -> None:
    with pytest.raises(ValueError, match=r"Expected max_length to be an integer of at least 2 .*; got .* Fix: "):
        TokenSequence(max_length=max_length)


def test_token_sequence_pickles_small_and_without_its_tokenizer(tokens: TokenSequence) -> None:
    expected = tokens.encode("serve the dish").tolist()  # loads the tokenizer
    tokens.seed(1)
    data = pickle.dumps(tokens)
    twin = pickle.loads(data)
    assert len(data) < 4096
    names = {argument.split(".")[0] for _, argument, _ in pickletools.genops(data) if isinstance(argument, str)}
    assert "lang_envs" in names
    assert names & {"transformers", "tokenizers"} == set()
    assert twin == tokens
    assert twin.encode("serve the dish").tolist() == expected
    assert (twin.nvec.tolist(), twin.start.tolist()) == (tokens.nvec.tolist(), tokens.start.tolist())
    assert np.array_equal(twin.sample(), tokens.sample())


# ---------------------------------------------------------------------- gymnasium.vector.utils


def dispatched() -> list[Any]:
    """Every function of `gymnasium.vector.utils` that depends on the class of a space."""
    functions = [getattr(vector_utils, name) for name in vector_utils.__all__]
    return [function for function in functions if hasattr(function, "registry")]


@pytest.mark.parametrize("function", dispatched(), ids=lambda function: function.__name__)
@pytest.mark.parametrize("space", [TextSpace, TokenSequence])
def test_every_vector_function_knows_the_spaces(function: Any, space: type[Any]) -> None:
    """But for `iterate`: Gymnasium iterates over a batch of texts only while a single text is no batch to it."""
    assert (space in function.registry) == ((space, function) != (TextSpace, vector_utils.iterate))


@pytest.mark.parametrize("kind", [SyncVectorEnv, partial(AsyncVectorEnv, shared_memory=False), AsyncVectorEnv])
def test_environments_whose_spaces_may_differ_run_in_one_vector(kind: Any) -> None:
    makes = [partial(gym.make, "Overcooked-TomatoSalad-v0", shuffle_actions=shuffled) for shuffled in (False, True)]
    envs = kind(makes, observation_mode="different")
    try:
        texts, _ = envs.reset(seed=0)
        assert texts in envs.observation_space
        actions = np.stack([envs.single_action_space.encode("take the bowl")] * 2)
        assert envs.step(actions)[0] != texts
    finally:
        envs.close()
