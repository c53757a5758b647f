"""Texts of the tokens of a prompt: together they are the prompt, whatever the tokenizer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from poad_sb3.common.token_fields import decode, prompt_texts

TEXTS = ("You are in the kitchen.\n\n  Action:", "Grüße 👍, ünd 日本", "wait")


@pytest.mark.parametrize("name", ["llama2", "gpt2", "gemma2"])
def test_texts_of_a_prompt_are_the_prompt(zoo_folder: Callable[[str], Path], name: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(zoo_folder(name))
    for text in TEXTS:
        prompt = tuple(tokenizer.encode(text))
        texts = prompt_texts(tokenizer, prompt)
        assert len(texts) == len(prompt)
        assert all(texts)
        if "\ufffd" not in decode(tokenizer, prompt) and text.isascii():
            assert "".join(texts) == decode(tokenizer, prompt)
