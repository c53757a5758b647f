"""Models and tokenizers of the zoo against their stated properties."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jinja2
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from zoo import PADDED, WINDOW, ZOO, Space, save

PROMPT = "The lamp is red. The tomato is on the table. You have 3 moves left. You wait and look. You"

TALK = [
    {"role": "user", "content": "The lamp is red."},
    {"role": "assistant", "content": "press the red button"},
    {"role": "user", "content": "The lamp is green."},
]
SYSTEM = {"role": "system", "content": "You are a cook."}

every_model = pytest.mark.parametrize("name", ZOO)


@pytest.fixture(autouse=True)
def _no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


# ------------------------------------------------------------------ properties


@every_model
def test_it_loads_as_what_it_is(zoo_folder: Callable[[str], Path], name: str) -> None:
    facts, folder = ZOO[name], zoo_folder(name)
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    assert type(model).__name__ == facts.architecture
    assert 300 <= len(tokenizer) <= model.config.vocab_size <= 600
    assert (model.config.vocab_size > len(tokenizer)) is (name in PADDED)
    assert model.config.max_position_embeddings >= 512
    assert sum(parameter.numel() for parameter in model.parameters()) < 100_000
    ids = torch.tensor([tokenizer.encode(PROMPT)])
    probabilities = model(input_ids=ids).logits[0].softmax(-1)
    entropy = -(probabilities * probabilities.log()).sum(-1).mean()
    assert entropy < 0.9 * torch.log(torch.tensor(len(tokenizer))), "far from uniform"
    assert len(ids[0]) > WINDOW, "longer than the windows"


@every_model
def test_it_is_the_same_each_time(zoo_folder: Callable[[str], Path], tmp_path: Path, name: str) -> None:
    save(tmp_path / "again", name)
    for file in sorted(zoo_folder(name).iterdir()):
        assert (tmp_path / "again" / file.name).read_bytes() == file.read_bytes(), file.name


@every_model
def test_its_tokenizer_treats_spaces_as_its_kind_does(zoo_folder: Callable[[str], Path], name: str) -> None:
    facts, tokenizer = ZOO[name], AutoTokenizer.from_pretrained(zoo_folder(name))

    def ids(text: str) -> list[int]:
        return tokenizer.encode(text, add_special_tokens=False)

    for word in ("press", "tomato", "wait"):
        assert len(ids(f" {word}")) <= 3
        alone, behind = ids(word), ids(f" {word}")
        if facts.space is Space.IMPLIED:
            assert alone == behind
        elif facts.space is Space.DOUBLED:
            assert alone == behind[1:]
        else:
            assert alone[0] != behind[0]
        assert tokenizer.decode(alone) == word
        assert tokenizer.decode(behind) == (word if facts.space is Space.IMPLIED else f" {word}")
        in_mid_text = ids(f"The {word}")[len(ids("The")) :]
        assert tokenizer.decode(in_mid_text) == (f" {word}" if facts.space is Space.KEPT else word)
    for text in ("wait, é\n", "def f(x):\n    return  x\n\t\ty", "x" * 30, "<s> </think>"):
        assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)) == text


@every_model
def test_its_special_tokens_are_those_of_its_kind(zoo_folder: Callable[[str], Path], name: str) -> None:
    facts, folder = ZOO[name], zoo_folder(name)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert (tokenizer.bos_token_id is not None) is facts.has_bos
    with_start = tokenizer.encode("wait")
    without = tokenizer.encode("wait", add_special_tokens=False)
    assert with_start == ([tokenizer.bos_token_id, *without] if facts.adds_bos else without)
    assert tokenizer.encode(tokenizer.eos_token, add_special_tokens=False)[-1] == tokenizer.eos_token_id
    split = tokenizer.encode(f"wait{tokenizer.eos_token}", add_special_tokens=False, split_special_tokens=True)
    assert tokenizer.eos_token_id not in split
    ends = json.loads((folder / "generation_config.json").read_text())["eos_token_id"]
    if facts.turn_end is not None:
        assert tokenizer.convert_tokens_to_ids(facts.turn_end) in (ends if isinstance(ends, list) else [ends])
    assert isinstance(ends, list) is (name in ("llama3", "gemma", "gemma2", "phi3"))


@every_model
def test_its_template_is_that_of_its_kind(zoo_folder: Callable[[str], Path], name: str) -> None:
    facts, tokenizer = ZOO[name], AutoTokenizer.from_pretrained(zoo_folder(name))
    assert (tokenizer.chat_template is not None) is facts.has_chat_template
    if facts.turn_end is None:
        return
    asked = tokenizer.apply_chat_template(TALK, tokenize=False, add_generation_prompt=True)
    assert asked.count("The lamp is green.") == 1
    answered = tokenizer.apply_chat_template([*TALK, {"role": "assistant", "content": " wait\n"}], tokenize=False)
    assert answered.startswith(asked)
    assert facts.turn_end in answered[len(asked) :]
    ids = tokenizer.apply_chat_template(TALK, add_generation_prompt=True, return_dict=False)
    assert ids == tokenizer.encode(asked, add_special_tokens=False)
    assert ids.count(tokenizer.convert_tokens_to_ids(facts.turn_end)) >= 1
    if facts.supports_system:
        assert "You are a cook." in tokenizer.apply_chat_template([SYSTEM, *TALK], tokenize=False)
    else:
        with pytest.raises(jinja2.TemplateError, match=r"roles|not supported"):
            tokenizer.apply_chat_template([SYSTEM, *TALK], tokenize=False)


def test_templates_have_their_peculiarities(zoo_folder: Callable[[str], Path]) -> None:
    def render(name: str, talk: Sequence[dict[str, str]] = TALK, **kwargs: Any) -> str:
        tokenizer = AutoTokenizer.from_pretrained(zoo_folder(name))
        return str(tokenizer.apply_chat_template(list(talk), tokenize=False, **kwargs))

    assert render("llama2").startswith("<s>[INST] The lamp is red. [/INST] press the red button </s><s>[INST] ")
    assert "<<SYS>>\nYou are a cook.\n<</SYS>>\n\nThe lamp" in render("llama2", [SYSTEM, *TALK])
    assert "Today Date: 01 Jan 2020\n" in render("llama3", date_string="01 Jan 2020")
    assert "Today Date: " in render("llama3")
    assert "You are a helpful assistant." in render("qwen2")
    assert "You are a helpful assistant." not in render("qwen2", [SYSTEM, *TALK])
    assert render("qwen3", add_generation_prompt=True).endswith("<|im_start|>assistant\n")
    assert render("qwen3", add_generation_prompt=True, enable_thinking=False).endswith("<think>\n\n</think>\n\n")
    assert render("gemma", add_generation_prompt=True).endswith("<start_of_turn>model\n")
    assert render("phi3").endswith("<|end|>\n<|endoftext|>")
    with pytest.raises(jinja2.TemplateError, match="alternate"):
        render("mistral", [*TALK, TALK[0]])
