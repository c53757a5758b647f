"""Tiny random language models, each with its own kind of tokenizer, saved as ordinary Hugging Face folders."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
import zoo_templates as templates
from tokenizers import AddedToken
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, PreTrainedTokenizerFast
from zoo_tokenizers import GPT2_WORDS, LLAMA3_WORDS, QWEN_WORDS, byte_level, sentence_piece

WINDOW = 16
"""Of the models that see no further; shorter than the prompts of the tests."""

PADDED = ("qwen2", "qwen3", "phi3")
"""Models with more rows in the head than their tokenizers have tokens; these can be sampled too."""

CHATML = ("<|im_start|>", "<|im_end|>")
HEADERS = ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|end_of_text|>")


class Facts(NamedTuple):
    """Properties of a model of the zoo.

    Attributes:
        turn_end: Text of the token that ends an answer; None without a chat template.
        supports_system: Whether the template takes a system turn.
        packs_trees: Whether the branches of a tree can go through the model in one row.
    """

    turn_end: str | None = None
    supports_system: bool = False
    packs_trees: bool = True

    @property
    def has_chat_template(self) -> bool:
        """Whether the tokenizer has a template."""
        return self.turn_end is not None


ZOO: Mapping[str, Facts] = {
    "llama2": Facts(turn_end="</s>", supports_system=True),
    "llama3": Facts(turn_end="<|eot_id|>", supports_system=True),
    "qwen2": Facts(turn_end="<|im_end|>", supports_system=True),
    "qwen3": Facts(turn_end="<|im_end|>", supports_system=True),
    "gpt2": Facts(),
    "gemma2": Facts(turn_end="<end_of_turn>", packs_trees=False),
    "phi3": Facts(turn_end="<|end|>", supports_system=True),
}
"""Every model, by name."""

_SMALL = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 512, "attention_dropout": 0.0,
}  # fmt: skip
_GPT2 = {
    "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 512, "attn_pdrop": 0.0, "embd_pdrop": 0.0,
    "resid_pdrop": 0.0,
}  # fmt: skip
_SHARED = {name: value for name, value in _SMALL.items() if name != "head_dim"}  # where heads share the width
_GEMMA2 = {"sliding_window": WINDOW, "final_logit_softcapping": 8.0, "attn_logit_softcapping": 5.0}
_SETTINGS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "llama2": ("llama", _SMALL),
    "llama3": ("llama", {**_SMALL, "rope_theta": 500000.0}),
    "qwen2": ("qwen2", _SHARED),
    "qwen3": ("qwen3", _SMALL),
    "gpt2": ("gpt2", _GPT2),
    "gemma2": ("gemma2", {**_SMALL, **_GEMMA2, "query_pre_attn_scalar": 8}),
    "phi3": ("phi3", {**_SHARED, "embd_pdrop": 0.0, "resid_pdrop": 0.0}),
}

_GEMMA_TOKENS = [AddedToken(token, normalized=False, special=True) for token in ("<start_of_turn>", "<end_of_turn>")]
_PHI3_TOKENS = [  # a space after one of them is swallowed, as in the original
    AddedToken(token, rstrip=True, normalized=False, special=True)
    for token in ("<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<|endoftext|>")
]
_TOKENIZERS: Mapping[str, Callable[[], PreTrainedTokenizerFast]] = {
    "llama2": partial(sentence_piece, "</s>", "<s>", dummy_prefix="metaspace", chat_template=templates.LLAMA2),
    "llama3": partial(
        byte_level, LLAMA3_WORDS, "<|eot_id|>", special=HEADERS[1:], start=HEADERS[0], chat_template=templates.LLAMA3
    ),
    "qwen2": partial(
        byte_level, QWEN_WORDS, "<|im_end|>", special=("<|endoftext|>", *CHATML), pad_token="<|endoftext|>",
        chat_template=templates.QWEN2,
    ),
    "qwen3": partial(
        byte_level, QWEN_WORDS, "<|im_end|>", special=("<|endoftext|>", *CHATML), added=("<think>", "</think>"),
        pad_token="<|endoftext|>", chat_template=templates.QWEN3,
    ),
    "gpt2": partial(byte_level, GPT2_WORDS, "<|endoftext|>", start="<|endoftext|>"),
    "gemma2": partial(
        sentence_piece, "<eos>", "<bos>", dummy_prefix="none", special=_GEMMA_TOKENS, pad_token="<pad>",
        chat_template=templates.GEMMA,
    ),
    "phi3": partial(
        sentence_piece, "<|endoftext|>", "<s>", dummy_prefix="normalizer", special=_PHI3_TOKENS, adds_start=False,
        pad_token="<|endoftext|>", chat_template=templates.PHI3,
    ),
}  # fmt: skip


def save(folder: Path, name: str) -> None:
    """Write a model of the zoo, its tokenizer and its generation config.

    Args:
        folder: A new folder.
        name: One of `ZOO`.
    """
    shutil.rmtree(folder, ignore_errors=True)
    tokenizer = _TOKENIZERS[name]()
    tokenizer.save_pretrained(folder)
    kind, settings = _SETTINGS[name]
    ends = [tokenizer.eos_token_id]
    if ZOO[name].turn_end is not None:
        ends = list(dict.fromkeys([*ends, tokenizer.convert_tokens_to_ids(ZOO[name].turn_end)]))
    if name == "llama3":
        ends.append(tokenizer.convert_tokens_to_ids("<|end_of_text|>"))
    config = CONFIG_MAPPING[kind](
        **settings,
        vocab_size=len(tokenizer) + (24 if name in PADDED else 0),
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng():
        torch.manual_seed(sum(map(ord, name)))
        model = AutoModelForCausalLM.from_config(config)
        _sharpen(model)
    model.generation_config.eos_token_id = ends if len(ends) > 1 else ends[0]
    model.save_pretrained(folder)


def _sharpen(model: torch.nn.Module) -> None:
    """Tiny random models are nearly uniform and have biases of 0; differences should show."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("norm.weight") and not parameter.any():
                parameter.fill_(0.8)  # Gemma's norms scale by 1 + weight
            if "q_norm" not in name and "k_norm" not in name:  # their product would make attention all or none
                parameter.mul_(3.5)
            if parameter.dim() == 1:
                parameter.add_(0.3 * torch.randn(parameter.shape))
