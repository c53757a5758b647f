from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from toy import randomise
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from poad_sb3 import ModelError, PoadError
from poad_sb3.language_model.language_model import LanguageModel, pass_tokens
from poad_sb3.language_model.packing import TokenRow

pytestmark = pytest.mark.usefixtures("every_check")


@pytest.fixture(autouse=True)
def _no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


def chain(tokens: Sequence[int], reads: Sequence[int] | None = None) -> TokenRow:
    return TokenRow(tuple(tokens), None, tuple(range(len(tokens))) if reads is None else tuple(reads))


# ------------------------------------------------------------------ chunks


def passed(lm: LanguageModel, rows: Sequence[TokenRow]) -> tuple[int, ...]:
    """Shape of the true input of the model."""
    shapes: list[tuple[int, ...]] = []
    decoder = lm.base.get_decoder()

    def note(_: Any, __: Any, given: dict[str, Any]) -> None:
        shapes.append(tuple(given["input_ids"].shape))

    hook = decoder.register_forward_pre_hook(note, with_kwargs=True)
    lm.hidden_states(rows)
    hook.remove()
    return shapes[0]


@pytest.mark.parametrize("bound", [1, 40])
def test_chunks_of_rows_that_begin_alike_keep_the_bound(
    lm: LanguageModel, monkeypatch: pytest.MonkeyPatch, bound: int
) -> None:
    """A merged row is as long as its distinct tokens; a row is alone if it is longer by itself."""
    monkeypatch.setattr(lm, "max_tokens_per_forward", bound)
    total = alone = 0
    for seed in range(12):
        random = np.random.default_rng(seed)
        starts = [tuple(random.integers(1, 4, size=9).tolist()) for _ in range(2)]
        lengths = random.integers(1, 14, size=(14, 2))
        rows = [chain((*starts[n % 2][:first], *random.integers(1, 4, size=rest).tolist()), [0])
                for n, (first, rest) in enumerate(lengths)]  # fmt: skip
        chunks = list(lm.chunks(rows))
        assert sorted(index for chunk in chunks for index in chunk) == list(range(len(rows)))
        for chunk in chunks:
            n_rows, longest = passed(lm, [rows[index] for index in chunk])
            assert n_rows * longest <= bound or len(chunk) == 1
            total, alone = total + n_rows * longest, alone + sum(len(rows[index].tokens) for index in chunk)
    assert bound < 40 or total < 0.8 * alone, "much is computed once"


# ------------------------------------------------------------------ models from a folder, and wrong ones

WORDS = ("<unk>", "</s>", "press", "the", "red", "green", "button", "wait")


def save_tiny_llama(folder: Path, *, words: Sequence[str] = WORDS, eos_token: str | None = "</s>") -> Path:
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", eos_token=eos_token).save_pretrained(folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(words),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=12,
        eos_token_id=1,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return save_tiny_llama(tmp_path / "tiny")


def test_the_fingerprint_knows_the_model(tiny: Path) -> None:
    fingerprint = LanguageModel(str(tiny)).fingerprint
    torch.manual_seed(123)
    twin = LanguageModel(str(tiny), lora={"r": 4})
    randomise(twin)
    assert twin.fingerprint == fingerprint, "the adapter is no part of it"
    weights = load_file(tiny / "model.safetensors")
    name = next(name for name in weights if "k_proj" in name)
    weights[name][3, 5] += 1e-3
    save_file(weights, tiny / "model.safetensors", metadata={"format": "pt"})
    assert LanguageModel(str(tiny)).fingerprint != fingerprint


def test_the_fingerprint_knows_the_vocabulary(tiny: Path) -> None:
    fingerprint = LanguageModel(str(tiny)).fingerprint
    file = tiny / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary["red"], vocabulary["green"] = vocabulary["green"], vocabulary["red"]
    file.write_text(json.dumps(tokenizer))
    assert LanguageModel(str(tiny)).fingerprint != fingerprint


def test_a_tokenizer_without_an_end_is_refused(tmp_path: Path) -> None:
    folder = save_tiny_llama(tmp_path, eos_token=None)
    with pytest.raises(ModelError, match=r"Expected a tokenizer with an end-of-sequence token.*Fix: set eos_token"):
        LanguageModel(str(folder))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lora_dropout": 0.1}, "Expected lora_dropout 0; got 0.1"),
        ({"target_modules": ["query_key_value"]}, r"fit LlamaForCausalLM.*query_key_value.*Fix: target_modules"),
    ],
)
def test_adapters_that_do_not_fit_are_refused(tiny: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        LanguageModel(str(tiny), lora=settings)


def test_a_folder_with_missing_weights_is_refused(tiny: Path) -> None:
    tensors = load_file(tiny / "model.safetensors")
    gone = next(name for name in sorted(tensors) if "k_proj" in name)
    del tensors[gone]
    save_file(tensors, tiny / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"Expected all weights .*1 are missing, .*k_proj.*Fix: complete"):
        LanguageModel(str(tiny))


def test_an_empty_prompt_without_a_start_token_is_refused(tiny: Path) -> None:
    """No position precedes its first action token; position -1 would be the last one of whichever row is longest."""
    model = LanguageModel(str(tiny))
    with pytest.raises(PoadError, match="Expected"):
        model.prompt_ids("")


def test_an_impossible_bound_is_refused() -> None:
    with pytest.raises(ValueError, match="Expected max_tokens_per_forward to be a positive integer or None; got 0"):
        LanguageModel(max_tokens_per_forward=0)


def test_passes_of_a_gpu_are_as_large_as_its_memory_allows(lm: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    weights, config = lm.base.get_memory_footprint(), lm.base.config
    of_token = 50 * config.num_hidden_layers * config.hidden_size * 4
    device = SimpleNamespace(total_memory=0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: device)
    for tokens, expected in ((0, 1024), (2047, 1024), (2048, 2048), (8191, 4096), (8192, 8192), (10**6, 8192)):
        device.total_memory = weights + 2 * tokens * of_token
        assert pass_tokens(lm.base, "cuda") == expected
        device.total_memory += 4 * weights
        assert pass_tokens(lm.base, "cuda", trains_all=True) == expected
    assert pass_tokens(lm.base, "cpu") == lm.max_tokens_per_forward == 1024


def test_an_over_long_prompt_is_refused(tiny: Path) -> None:
    model = LanguageModel(str(tiny))
    fits = chain(model.prompt_ids("press " * 12))
    assert model.hidden_states([fits]).shape == (12, 16)
    with pytest.raises(ModelError, match=r"Expected a prompt of at most 12 tokens.*takes 13.*Fix: shorten"):
        model.prompt_ids("press " * 13)
    with pytest.raises(ModelError, match=r"Expected at most 12 tokens of prompt and action.*got 13.*Fix: shorten"):
        model.hidden_states([fits, chain((2,) * 13)])
