"""Memory: sizes against real models, estimates against the memory of a training pass."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from benchmarks.performance.memory import (
    ALL_MATRICES,
    WAYS,
    WORKLOAD,
    LiveBytes,
    config_of,
    measure,
    measure_logits,
    training_pass,
)
from benchmarks.runner.machine import RESULTS
from poad_sb3.language_model import lm_head
from poad_sb3.language_model.decoding import CachedDecoding
from poad_sb3.memory.common_models import COMMON_MODELS, common_size
from poad_sb3.memory.estimate import MemoryEstimate, ModelSize, Workload, activation_bytes, estimate
from poad_sb3.settings import ModelSettings

SMALL = {
    "vocab_size": 101, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2,
}  # fmt: skip
SQUARE = {key: value for key, value in SMALL.items() if key != "head_dim"}
GPT2 = {
    "vocab_size": 101,
    "n_embd": 32,
    "n_layer": 3,
    "n_head": 4,
    "n_positions": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
BIASED = {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", SMALL),
    "llama, tied, with biases": ("llama", {**SMALL, **BIASED}),
    "mistral": ("mistral", SMALL),
    "qwen2": ("qwen2", SQUARE),
    "qwen3": ("qwen3", SMALL),
    "gemma": ("gemma", SMALL),
    "gemma2": ("gemma2", SMALL),
    "gemma3": ("gemma3_text", SMALL),
    "granite": ("granite", SQUARE),
    "phi": ("phi", SQUARE),
    "phi3": ("phi3", SQUARE),
    "gpt2": ("gpt2", GPT2),
    "gpt2, another width": ("gpt2", {**GPT2, "n_inner": 40, "tie_word_embeddings": False}),
}
PUBLISHED = {
    "Qwen2.5-0.5B": 494_032_768,
    "Llama-3.2-1B": 1_235_814_400,
    "Qwen2.5-1.5B": 1_543_714_304,
    "Qwen2.5-3B": 3_085_938_688,
    "Llama-2-7B": 6_738_415_616,
    "Qwen2.5-7B": 7_615_616_512,
    "Llama-3-8B": 8_030_261_248,
    "Llama-2-13B": 13_015_864_320,
    "Qwen2.5-32B": 32_763_876_352,
    "Llama-3-70B": 70_553_706_496,
}
SEVEN = "Llama-2-7B"
RECORDED = json.loads((RESULTS / "memory.json").read_text())["cases"]


def of_seven(workload: Workload | None = None, **settings: Any) -> MemoryEstimate:
    of_model = ModelSettings(**settings)
    return estimate(common_size(SEVEN, of_model), of_model, workload)


# ---------------------------------------------------------------------- sizes


@pytest.mark.matrix_after(3)
@pytest.mark.parametrize("name", MODELS)
def test_weights_are_counted_as_transformers_makes_them(name: str) -> None:
    kind, settings = MODELS[name]
    config = CONFIG_MAPPING[kind](**settings)
    model = AutoModelForCausalLM.from_config(config)
    size = ModelSize.of(config, ModelSettings(lora={"target_modules": "all-linear"}))
    assert size.parameters == sum(parameter.numel() for parameter in model.parameters())
    assert size.frozen == 4 * size.parameters
    layers = model.get_decoder().h if kind == "gpt2" else model.get_decoder().layers
    matrices = [one for layer in layers for one in layer.parameters() if one.dim() == 2]
    assert size.matrices == size.adapted == sum(one.numel() for one in matrices)
    assert size.largest_matrix == max(one.numel() for one in matrices)
    assert size.trained == 8 * sum(sum(one.shape) for one in matrices)
    assert ModelSize.of(config, ModelSettings(dtype="bfloat16")).frozen == 2 * size.parameters
    assert ModelSize.of(config, ModelSettings(lora=None)).trained == size.parameters


def test_any_architecture_is_counted() -> None:
    config = CONFIG_MAPPING["mamba"](vocab_size=101, hidden_size=32, num_hidden_layers=2)
    size = ModelSize.of(config)
    assert size.parameters == AutoModelForCausalLM.from_config(config).num_parameters()
    assert size.kv_width == 0
    assert size.saved > 0


def test_a_pass_that_needs_numbers_is_refused() -> None:
    config = CONFIG_MAPPING["mixtral"](**SMALL)
    with pytest.raises(ValueError, match=r"Expected an architecture whose .*; 'mixtral' raises .*Fix: start a short"):
        ModelSize.of(config)


def test_measuring_a_size_changes_nothing() -> None:
    config, state = LlamaConfig(**SMALL), torch.get_rng_state()
    before = config.to_dict()
    ModelSize.of(config)
    assert torch.equal(torch.get_rng_state(), state)
    assert config.to_dict() == before
    assert LlamaForCausalLM(config).config._attn_implementation == "sdpa"


def test_common_models_have_their_published_sizes() -> None:
    assert {name: common_size(name).parameters for name in COMMON_MODELS} == PUBLISHED
    assert list(COMMON_MODELS) == sorted(COMMON_MODELS, key=lambda name: PUBLISHED[name])


@pytest.mark.matrix_after(1)
@pytest.mark.parametrize("settings", [{}, {"dtype": "bfloat16"}, {"lora": None}], ids=str)
def test_a_common_model_has_the_size_of_all_its_layers(settings: dict[str, Any]) -> None:
    of_model = ModelSettings(**settings)
    for name, kind in (("Qwen2.5-0.5B", "qwen2"), ("Llama-3.2-1B", "llama")):
        assert common_size(name, of_model) == ModelSize.of(CONFIG_MAPPING[kind](**COMMON_MODELS[name]), of_model)


# ---------------------------------------------------------------------- the arithmetic


def test_one_by_hand() -> None:
    config = LlamaConfig(
        vocab_size=10, hidden_size=8, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1,
    )  # fmt: skip
    settings = ModelSettings(lora={"r": 2}, max_tokens_per_forward=6, critic_arch=(4,))
    workload = Workload(
        row_tokens=3,
        action_share=0.5,
        children=5.0,
        decode_batch=3,
        decode_context=5,
        rollout_tokens=7,
        host_bytes=1000,
        micro_batches=8,
    )
    layer = 2 * 8 * 8 + 2 * 8 * 4 + 3 * 8 * 16 + 2 * 8  # q and o, k and v, MLP, norms
    weights = 2 * layer + 2 * 10 * 8 + 8
    adapter = 2 * 2 * ((8 + 8) + (8 + 4))  # layers, rank, q and v
    # Norms with their scales, attention, MLP, the input of LoRA and its middle; of each head.
    token_in_layer = 4 * (2 * (8 + 1) + 4 * 8 + 3 * 16 + 8 + 2 * 2) + 4 * 2
    size = ModelSize.of(config, settings)
    last_norm, rotary = 4 * (8 + 1), 2 * 4 * 4
    assert size.saved == pytest.approx(2 * token_in_layer + last_norm + rotary, abs=4 * 8 + rotary)
    assert size.read == 2 * 4 * (8 + 8 + 8 + 16)
    token = size.saved + 0.4 * size.saved / 2 + 5 * 6  # layers, work space, mask
    assert estimate(size, settings, workload) == MemoryEstimate(
        weights=4 * weights,
        trained=16 * adapter,
        critic=16 * (8 * 4 + 4) + 2 * 4 * (64 + 8),
        features=4 * 8 * 7,
        activations=pytest.approx(6 * token, abs=1),
        logits=3 * 5 * 8 * (4 + 4 + 4),  # places, children: their rows of the head, hidden states, and the product
        kv_cache=3 * (2 * 2 * 4 * 4 * (5 + 64) + 5 * size.read) + 4 * 2 * (8 * 8 + 8 * 4),  # the last: q and v, merged
        values=4 * 7 * 2 * (8 + 4),
        tokens=25 * 7 + 1000,
        sums=3 * 4 * adapter,  # of four, of two and of one micro-batch
    )
    assert size.parameters == weights


def test_rollout_and_update_take_turns() -> None:
    parts = MemoryEstimate(1, 2, 4, 8, 16, 32, 64)
    assert parts.total == 15 + 64
    assert parts._replace(kv_cache=1).total == 15 + 48
    assert parts._replace(values=128, tokens=3).total == 15 + 128 + 3
    assert parts._replace(sums=32).total == 15 + 80


VOCABULARY = {"children": 0.0}
SMALLER: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "weights": ({"dtype": "bfloat16"}, {}),
    "weights of 8 bits": ({"dtype": "bfloat16", "quantization": "8bit"}, {"dtype": "bfloat16"}),
    "weights of 4 bits": ({"quantization": "4bit"}, {"quantization": "8bit"}),
    "trained of an adapter": ({}, {"lora": None}),
    "sums of two micro-batches": ({"micro_batches": 2}, {}),
    "sums of sharded weights": ({"fsdp": True}, {}),
    "sums of fewer ranks": ({"ranks": 2}, {"ranks": 4}),
    "sums of one rank": ({}, {"ranks": 2}),
    "weights of more ranks": ({"fsdp": True, "ranks": 4}, {"fsdp": True, "ranks": 2}),
    "trained of more ranks": ({"fsdp": True, "ranks": 4}, {"fsdp": True, "ranks": 2}),
    "critic": ({"critic_arch": (64,)}, {}),
    "features": ({"rollout_tokens": 1}, {}),
    "activations": ({"gradient_checkpointing": True}, {}),
    "activations of rows that are not merged": ({"merged_tokens": 512}, {}),
    "activations of rows within a pass": ({}, {"row_tokens": 1025}),
    "activations of smaller passes": ({"max_tokens_per_forward": 512}, {}),
    "activations in bfloat16": ({"dtype": "bfloat16"}, {}),
    "activations of 4 bits": ({"quantization": "4bit"}, {"quantization": "8bit"}),
    "logits": ({"action_share": 0.1}, {}),
    "logits of fewer children": ({"children": 2.0}, {}),
    "logits of tries": ({}, VOCABULARY),
    "logits of an adapter": ({}, {"lora": None}),
    "logits of fewer candidates": ({"action_share": 0.01, **VOCABULARY}, VOCABULARY),
    "kv_cache": ({"decode_batch": 1}, {}),
    "kv_cache of a shorter context": ({"decode_context": 1}, {}),
    "kv_cache in bfloat16": ({"dtype": "bfloat16"}, {}),
}


@pytest.mark.parametrize("name", SMALLER)
def test_what_needs_less(name: str) -> None:
    def needed(changes: dict[str, Any]) -> MemoryEstimate:
        of_workload = {key: value for key, value in changes.items() if key in Workload._fields}
        return of_seven(Workload(**of_workload), **{key: changes[key] for key in changes.keys() - of_workload.keys()})

    less, more = map(needed, SMALLER[name])
    part = name.partition(" ")[0]
    assert getattr(less, part) < getattr(more, part)


def test_a_smaller_adapter_needs_less() -> None:
    config = LlamaConfig(**SMALL)
    sizes = [
        ModelSize.of(config, ModelSettings(lora=lora, dtype="bfloat16"))
        for lora in ({"r": 4}, {"r": 8}, {"r": 8, "target_modules": ALL_MATRICES})
    ]
    assert sizes[0].trained < sizes[1].trained < sizes[2].trained
    assert sizes[0].saved < sizes[1].saved < sizes[2].saved


@pytest.mark.matrix_after(3)
@pytest.mark.parametrize(
    "changes", [{"num_hidden_layers": 4}, {"hidden_size": 64}, {"intermediate_size": 49}, {"vocab_size": 102}]
)
@pytest.mark.parametrize("lora", [{}, None])
def test_a_larger_model_needs_more(changes: dict[str, int], lora: dict[str, Any] | None) -> None:
    settings = ModelSettings(lora=lora)
    less, more = (estimate(ModelSize.of(LlamaConfig(**{**SMALL, **one}), settings), settings) for one in ({}, changes))
    assert less.total < more.total
    assert all(first <= second for first, second in zip(less, more, strict=True))


def test_a_pass_has_at_least_one_row() -> None:
    assert Workload(row_tokens=300).tokens(ModelSettings(max_tokens_per_forward=16)) == 300


def test_full_fine_tuning_keeps_a_copy_unless_the_critic_reads_the_model_as_it_is() -> None:
    needed = of_seven(lora=None)
    assert needed.weights == 4 * PUBLISHED[SEVEN]
    assert needed.trained == 16 * PUBLISHED[SEVEN]
    assert of_seven(lora=None, critic_trunk="live") == needed._replace(weights=0)


# ---------------------------------------------------------------------- against measurement


@pytest.mark.matrix
def test_the_recorded_peaks_are_met_within_a_fifth() -> None:
    assert len(RECORDED) == 24
    errors = {}
    for case in RECORDED:
        name = case["model"], case["trained"], case["gradient_checkpointing"]
        settings = ModelSettings(gradient_checkpointing=case["gradient_checkpointing"], **WAYS[case["trained"]])
        size = ModelSize.of(config_of(case["model"]), settings)
        errors[name] = activation_bytes(size, settings, WORKLOAD) / case["peak"] - 1
        if case.get("saved") is not None:
            assert 1024 * size.saved == pytest.approx(case["saved"], rel=0.02)
    assert len(errors) == 24
    assert max(map(abs, errors.values())) < 0.2, errors


def made(settings: ModelSettings) -> tuple[Callable[[], torch.Tensor], Any, ModelSize]:
    config = LlamaConfig(
        hidden_size=64, num_hidden_layers=6, intermediate_size=176, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=50,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    return training_pass(model, settings), model, ModelSize.of(config, settings)


@pytest.mark.matrix_after(3)
@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("name", WAYS)
def test_activations_are_those_of_a_training_pass(name: str, checkpointing: bool) -> None:
    settings = ModelSettings(**WAYS[name], gradient_checkpointing=checkpointing, max_tokens_per_forward=512)
    forward, _, size = made(settings)
    peak = measure(forward)
    estimated = activation_bytes(size, settings, Workload(row_tokens=64))
    assert estimated == pytest.approx(peak, rel=0.25 if checkpointing else 0.1)


@pytest.mark.matrix_after(5)
@pytest.mark.parametrize(
    ("kept", "in_slice"), [(1 << 24, 1 << 22), (1 << 24, 300_000), (600_000, 300_000), (0, 300_000), (0, 1)]
)
@pytest.mark.parametrize("sampling", ["trie", "candidates", "free"])
def test_what_is_asked_of_the_head_is_what_is_estimated(
    monkeypatch: pytest.MonkeyPatch, sampling: str, kept: int, in_slice: int
) -> None:
    """Kept; in slices, with all of them kept, some, or none; and in slices of a row."""
    monkeypatch.setattr(lm_head, "MAX_LOGITS", kept)
    monkeypatch.setattr(lm_head, "SLICE_LOGITS", in_slice)
    peak, estimated = measure_logits(sampling, 1200 if in_slice > 1 else 40)
    if in_slice == 1:  # the gradient of the hidden states is more than all tables
        assert estimated <= peak <= estimated + 40 * 128 * 4
    else:
        assert 0.83 * estimated <= peak <= 1.11 * estimated


@pytest.mark.parametrize("children", [4.0, 0.0])
def test_a_trained_head_has_a_gradient_of_its_own(children: float) -> None:
    adapter, full = (of_seven(Workload(children=children), **lora).logits for lora in ({}, {"lora": None}))
    assert full - adapter == 4 * 32_000 * 4096


@pytest.mark.matrix_after(1)
@pytest.mark.parametrize("texts", [1, 20])
def test_decoding_holds_what_is_estimated(texts: int) -> None:
    """A pass over prompts of 90 tokens, and 70 tokens more; the cache moves once."""
    model = LlamaForCausalLM(LlamaConfig(
        hidden_size=64, num_hidden_layers=6, intermediate_size=176, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=100,
    )).eval()  # fmt: skip
    workload = Workload(decode_batch=texts, decode_context=160)
    with torch.no_grad(), LiveBytes() as live:
        decoding = CachedDecoding(
            model, [tuple((7 * text + place) % 100 for place in range(90)) for text in range(texts)]
        )
        for _ in range(70):
            decoding.advance(range(texts), [1] * texts)
    needed = estimate(ModelSize.of(model.config), workload=workload)
    assert live.peak <= needed.kv_cache <= 2 * live.peak
