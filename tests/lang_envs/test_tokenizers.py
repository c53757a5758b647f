"""Tokenizers of action spaces, and the values of `tokenizer=`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import gymnasium as gym
import pytest
from hypothesis import given
from hypothesis import strategies as st
from walk import oracle_policy, walk_from_reset

from lang_envs import (
    ByteTokenizer,
    EncodingError,
    HuggingFaceTokenizer,
    LangEnvsError,
    MissingExtraError,
    TokenizerError,
)
from lang_envs.tokenizers import resolve_tokenizer
from lang_envs.wrappers import TextAction


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """No look-up on the hub: the constant was read from the environment when huggingface_hub was imported."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)


# ---------------------------------------------------------------------- bytes


@given(text=st.text())
def test_bytes_lose_nothing(text: str) -> None:
    tokenizer = ByteTokenizer()
    ids = tokenizer.encode(text)
    assert bytes(ids) == text.encode()
    assert tokenizer.decode(ids) == text


# ---------------------------------------------------------------------- hugging face


@pytest.mark.one_table
def test_environment_with_a_tokenizer_folder(env_id: str, tiny_tokenizer: Path) -> None:
    short = {"max_attempts": 1} if env_id.startswith("DataSciCoding") else {}
    env = gym.make(env_id, tokenizer=str(tiny_tokenizer), **short)
    assert env.action_space.tokenizer == HuggingFaceTokenizer(str(tiny_tokenizer))
    text, steps = walk_from_reset(env, oracle_policy, 30, seed=0)
    _, expected = walk_from_reset(gym.make(env_id, **short), oracle_policy, 30, seed=0)
    assert any(step.terminated or step.truncated for step in steps)
    assert [step[1:5] for step in steps] == [step[1:5] for step in expected]
    assert len(env.action_space.tokenizer.encode(text)) < len(ByteTokenizer().encode(text))


def test_a_path_object_is_refused(tiny_tokenizer: Path) -> None:
    """It could not be part of an environment's JSON spec."""
    with pytest.raises(TokenizerError, match=r"got PosixPath\. Fix: pass a string"):
        resolve_tokenizer(tiny_tokenizer)  # type: ignore[arg-type]


def test_without_padding_token_the_end_token_pads(make_tokenizer: Callable[..., Path], tmp_path: Path) -> None:
    spec = HuggingFaceTokenizer(str(make_tokenizer(tmp_path, eos_token="</s>")))
    assert spec.pad_token_id == spec.end_token_id
    space = gym.make("Overcooked-TomatoSalad-v0", tokenizer=str(tmp_path)).action_space
    assert space.decode_finished(space.encode("serve the dish")) == "serve the dish"
    assert space.decode_finished(space.unfinished()) is None


def test_a_tokenizer_without_end_token_is_refused(make_tokenizer: Callable[..., Path], tmp_path: Path) -> None:
    make_tokenizer(tmp_path, pad_token="<pad>")
    with pytest.raises(
        TokenizerError, match=r"Expected a tokenizer with an end-of-sequence token; .* Fix: set eos_token"
    ):
        resolve_tokenizer(str(tmp_path))


def test_a_tokenizer_that_changes_texts_makes_no_action_out_of_another(
    make_tokenizer: Callable[..., Path], tmp_path: Path
) -> None:
    make_tokenizer(tmp_path, lowercase=True, eos_token="</s>", pad_token="<pad>")
    env = gym.make("Overcooked-TomatoSalad-v0", tokenizer=str(tmp_path))
    with pytest.raises(EncodingError, match="comes back as 'serve nothing'"):
        env.action_space.encode("Serve Nothing")
    talking = TextAction(env)
    talking.reset(seed=0)
    assert talking.step("Serve Nothing")[-1]["invalid_action"] is True
    assert talking.step("serve nothing")[-1]["invalid_action"] is False


# ---------------------------------------------------------------------- errors


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("name", ["no-such/tokenizer", "/nowhere/at/all"])
def test_an_unknown_tokenizer_is_refused(name: str) -> None:
    with pytest.raises(TokenizerError, match=r"(?s)Expected 'byte', a folder .*; got .* could not be loaded .* Fix: "):
        gym.make("Overcooked-TomatoSalad-v0", tokenizer=name)


def test_rejects_a_tokenizer_of_another_type(env_id: str) -> None:
    with pytest.raises(TokenizerError, match=r"Expected 'byte', a Hugging Face id or folder, or .*; got \w+. Fix: "):
        gym.make(env_id, tokenizer=["byte"])


def test_without_transformers_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)  # import raises ImportError
    folder = tmp_path / "never loaded before"  # loading is cached by name
    with pytest.raises(MissingExtraError, match=r'needs the transformers package.* pip install .*\[llm\]"') as got:
        gym.make("Overcooked-TomatoSalad-v0", tokenizer=str(folder))
    assert isinstance(got.value, LangEnvsError)
    assert isinstance(got.value, ImportError)
    gym.make("Overcooked-TomatoSalad-v0").reset()  # bytes need no package
