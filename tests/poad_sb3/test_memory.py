"""Memory: shapes against real models, formulas against what a training pass holds."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from benchmarks.memory import LiveBytes, measure, measure_logits, training_pass
from poad_sb3.memory import (
    SHAPES,
    MemoryEstimate,
    ModelShape,
    TrainingSettings,
    activation_bytes,
    estimate,
    largest_that_fits,
)
from poad_sb3.models.decoding import CachedDecoding

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
SEVEN = SHAPES["Llama-2-7B"]


# ---------------------------------------------------------------------- shapes


@pytest.mark.parametrize("name", MODELS)
def test_weights_are_counted_as_transformers_makes_them(name: str) -> None:
    kind, settings = MODELS[name]
    config = CONFIG_MAPPING[kind](**settings)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    shape = ModelShape.of(config)
    assert shape.parameters == sum(parameter.numel() for parameter in model.parameters())
    decoder = model.get_decoder()
    assert shape.trunk_parameters == sum(parameter.numel() for parameter in decoder.parameters())
    layers = (named for layer in decoder.layers for named in layer.named_parameters()) if kind != "gpt2" else (
        named for layer in decoder.h for named in layer.named_parameters()
    )  # fmt: skip
    assert shape.matrix_parameters == sum(parameter.numel() for _, parameter in layers if parameter.dim() == 2)


def test_common_models_have_their_published_sizes() -> None:
    assert {name: shape.parameters for name, shape in SHAPES.items()} == PUBLISHED
    assert list(SHAPES) == sorted(SHAPES, key=lambda name: PUBLISHED[name])


def test_a_shape_has_the_name_that_is_given() -> None:
    config = CONFIG_MAPPING["llama"](**SMALL)
    assert ModelShape.of(config).name == "llama"
    assert ModelShape.of(config, "mine").name == "mine"


def test_an_unknown_architecture_is_refused() -> None:
    config = CONFIG_MAPPING["mamba"](vocab_size=101, hidden_size=32, num_hidden_layers=1)
    with pytest.raises(ValueError, match=r"Expected a config of an .*; got 'mamba'\..*Fix: give the numbers"):
        ModelShape.of(config)


def test_fused_matrices_are_the_sum_of_their_parts() -> None:
    whole = SEVEN.matrix("qkv_proj")
    assert whole.outputs == sum(SEVEN.matrix(name).outputs for name in ("q_proj", "k_proj", "v_proj"))
    assert whole.inputs == SEVEN.matrix("q_proj").inputs
    with pytest.raises(ValueError, match=r"Expected a matrix that the layers of Llama-2-7B have; got 'q_prj'.*q_proj"):
        SEVEN.matrix("q_prj")


# ---------------------------------------------------------------------- the arithmetic


def test_one_by_hand() -> None:
    shape = ModelShape("hand", 2, 8, 16, 2, 1, 4, 10)
    settings = TrainingSettings(
        lora_rank=2, max_tokens_per_forward=6, row_tokens=3, action_share=0.5, children=5.0, critic_arch=(4,),
        decode_batch=3, decode_context=5, rollout_tokens=7, host_bytes=1000,
    )  # fmt: skip
    layer = 2 * 8 * 8 + 2 * 8 * 4 + 3 * 8 * 16 + 2 * 8  # q and o, k and v, MLP, norms
    weights = 2 * layer + 2 * 10 * 8 + 8
    adapter = 2 * 2 * ((8 + 8) + (8 + 4))  # layers, rank, q and v
    token_in_layer = 4 * (2 * 8 + 4 * 8 + 3 * 16 + 8 + 2 * 2) + 4 * 2  # norms, attention, MLP, what LoRA reads; heads
    token = 2 * token_in_layer + 4 * 8 + 4 * (3 * 16 + 2 * 8) + 5 * 6  # layers, last norm, work space, mask
    assert estimate(shape, settings) == MemoryEstimate(
        weights=4 * weights,
        trained=16 * adapter,
        critic=16 * (8 * 4 + 4) + 2 * 4 * (64 + 8),
        features=4 * 8 * 7,
        activations=6 * token,
        logits=3 * 5 * 8 * (4 + 4 + 4),  # places, children: their rows of the head, hidden states, and the product
        kv_cache=3 * (2 * 2 * 4 * 4 * (5 + 64) + 5 * 4 * (3 * 16 + 3 * 8))
        + 4 * 2 * (8 * 8 + 8 * 4),  # the last: q and v, merged
        values=4 * 7 * 2 * (8 + 4),
        tokens=25 * 7 + 1000,
    )
    assert shape.parameters == weights


def test_rollout_and_update_take_turns() -> None:
    parts = MemoryEstimate(1, 2, 4, 8, 16, 32, 64)
    assert parts.total == 15 + 64
    assert parts._replace(kv_cache=1).total == 15 + 48
    assert parts._replace(values=128, tokens=3).total == 15 + 128 + 3


SMALLER: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "weights": ({"dtype": "bfloat16"}, {}),
    "weights of 8 bits": ({"dtype": "bfloat16", "quantization": "8bit"}, {"dtype": "bfloat16"}),
    "weights of 4 bits": ({"quantization": "4bit"}, {"quantization": "8bit"}),
    "trained": ({"lora_rank": 4}, {"lora_rank": 8}),
    "trained of fewer": ({"lora_targets": ("q_proj",)}, {}),
    "trained of an adapter": ({}, {"lora_rank": None}),
    "critic": ({"critic_arch": (64,)}, {}),
    "features": ({"rollout_tokens": 1}, {}),
    "activations": ({"gradient_checkpointing": True}, {}),
    "activations of rows that are not merged": ({"merged_tokens": 512}, {}),
    "activations of rows within a pass": ({}, {"row_tokens": 1025}),
    "activations of smaller passes": ({"max_tokens_per_forward": 512}, {}),
    "activations in bfloat16": ({"dtype": "bfloat16"}, {}),
    "activations of fewer matrices": ({}, {"lora_targets": ("q_proj", "v_proj", "up_proj")}),
    "activations of 4 bits": ({"quantization": "4bit"}, {"quantization": "8bit"}),
    "logits": ({"action_share": 0.1}, {}),
    "logits of fewer children": ({"children": 2.0}, {}),
    "logits of tries": ({}, {"action_sampling": "candidates"}),
    "logits of an adapter": ({}, {"lora_rank": None}),
    "logits of fewer candidates": ({"action_sampling": "free", "action_share": 0.01}, {"action_sampling": "free"}),
    "kv_cache": ({"decode_batch": 1}, {}),
    "kv_cache of a shorter context": ({"decode_context": 1}, {}),
    "kv_cache in bfloat16": ({"dtype": "bfloat16"}, {}),
}


@pytest.mark.parametrize("name", SMALLER)
def test_what_needs_less(name: str) -> None:
    less, more = (estimate(SEVEN, TrainingSettings(**changes)) for changes in SMALLER[name])
    part = name.partition(" ")[0]
    assert getattr(less, part) < getattr(more, part)


@pytest.mark.parametrize(
    "changes", [{"layers": 33}, {"hidden": 4224}, {"intermediate": 11_009}, {"vocabulary": 33_000}]
)
@pytest.mark.parametrize("lora_rank", [8, None])
def test_a_larger_model_needs_more(changes: dict[str, int], lora_rank: int | None) -> None:
    settings = TrainingSettings(lora_rank=lora_rank)
    less, more = (estimate(shape, settings) for shape in (SEVEN, replace(SEVEN, **changes)))
    assert less.total < more.total
    assert all(first <= second for first, second in zip(less, more, strict=True))


def test_a_pass_has_at_least_one_row() -> None:
    assert TrainingSettings(max_tokens_per_forward=16, row_tokens=300).tokens == 300


def test_full_fine_tuning_keeps_a_copy_unless_the_critic_reads_the_model_as_it_is() -> None:
    needed = estimate(SEVEN, TrainingSettings(lora_rank=None))
    assert needed.weights == 4 * SEVEN.parameters
    assert needed.trained == 16 * SEVEN.parameters
    assert estimate(SEVEN, TrainingSettings(lora_rank=None, critic_trunk="live")) == needed._replace(weights=0)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"dtype": "bfloat61"}, "Expected a known dtype; got 'bfloat61'. Did you mean bfloat16"),
        ({"quantization": "4-bit"}, "Expected a known quantization; got '4-bit'. Did you mean 4bit"),
        ({"action_sampling": "tree"}, "Expected a known action_sampling; got 'tree'"),
        ({"lora_rank": 0}, "Expected lora_rank >= 1; got 0"),
        ({"row_tokens": 0}, "Expected row_tokens >= 1; got 0"),
        ({"action_share": 2.0}, r"Expected action_share between 0 and 1; got 2\.0"),
        ({"lora_rank": None, "dtype": "bfloat16"}, "full fine-tuning .* got dtype='bfloat16'.*train an adapter"),
        ({"lora_rank": None, "quantization": "4bit"}, "got dtype='float32', quantization='4bit'"),
    ],
)
def test_settings_that_do_not_go_together(settings: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        TrainingSettings(**settings)


def test_the_largest_that_fits() -> None:
    settings = TrainingSettings(dtype="bfloat16", gradient_checkpointing=True)
    needed = {name: estimate(shape, settings).total for name, shape in SHAPES.items()}
    assert largest_that_fits(needed["Qwen2.5-3B"], settings) is SHAPES["Qwen2.5-3B"]
    assert largest_that_fits(needed["Qwen2.5-3B"] - 1, settings) is SHAPES["Qwen2.5-1.5B"]
    assert largest_that_fits(1e15) is SHAPES["Llama-3-70B"]
    assert largest_that_fits(1e6) is None
    assert largest_that_fits(1e15, settings, [SEVEN]) is SEVEN


# ---------------------------------------------------------------------- against measurement

MEASURED: dict[str, dict[str, Any]] = {
    "float32": {},
    "bfloat16": {"dtype": "bfloat16"},
    "all matrices": {"dtype": "bfloat16", "lora_targets": SEVEN.matrices},
    "full": {"lora_rank": None},
}


def made(settings: TrainingSettings) -> tuple[Callable[[], torch.Tensor], Any, ModelShape]:
    config = LlamaConfig(
        hidden_size=64, num_hidden_layers=6, intermediate_size=176, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=50,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    return training_pass(model, settings), model, ModelShape.of(config)


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("name", MEASURED)
def test_activations_are_those_of_a_training_pass(name: str, checkpointing: bool) -> None:
    settings = TrainingSettings(
        **MEASURED[name], gradient_checkpointing=checkpointing, max_tokens_per_forward=512, row_tokens=64
    )
    forward, model, shape = made(settings)
    peak = measure(forward, [*model.parameters(), *model.buffers()]).peak
    assert activation_bytes(shape, settings) == pytest.approx(peak, rel=0.25 if checkpointing else 0.1)


@pytest.mark.parametrize(
    ("kept", "in_slice"), [(1 << 24, 1 << 22), (1 << 24, 300_000), (600_000, 300_000), (0, 300_000), (0, 1)]
)
@pytest.mark.parametrize("sampling", ["trie", "candidates", "free"])
def test_what_is_asked_of_the_head_is_what_is_estimated(
    monkeypatch: pytest.MonkeyPatch, sampling: str, kept: int, in_slice: int
) -> None:
    """Kept; in slices that are kept, of which some are, of which none is; and in slices of a row."""
    for module in ("memory", "models.head"):
        monkeypatch.setattr(f"poad_sb3.{module}.MAX_LOGITS", kept)
        monkeypatch.setattr(f"poad_sb3.{module}.SLICE_LOGITS", in_slice)
    peak, estimated = measure_logits(sampling, 1200 if in_slice > 1 else 40)
    if in_slice == 1:  # the gradient of the hidden states is more than all tables
        assert estimated <= peak <= estimated + 40 * 128 * 4
    else:
        assert 0.83 * estimated <= peak <= 1.11 * estimated


@pytest.mark.parametrize("sampling", ["trie", "free"])
def test_a_trained_head_has_a_gradient_of_its_own(sampling: str) -> None:
    adapter, full = (
        estimate(SEVEN, TrainingSettings(action_sampling=sampling, lora_rank=rank)).logits for rank in (8, None)
    )
    assert full - adapter == 4 * 32_000 * 4096


@pytest.mark.parametrize("texts", [1, 20])
def test_decoding_holds_what_is_estimated(texts: int) -> None:
    """A pass over prompts of 90 tokens, and 70 tokens more, for which the cache moves once."""
    model = LlamaForCausalLM(LlamaConfig(
        hidden_size=64, num_hidden_layers=6, intermediate_size=176, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=100,
    )).eval()  # fmt: skip
    settings = TrainingSettings(decode_batch=texts, decode_context=160)
    with torch.no_grad(), LiveBytes() as live:
        decoding = CachedDecoding(
            model, [tuple((7 * text + place) % 100 for place in range(90)) for text in range(texts)]
        )
        for _ in range(70):
            decoding.advance(range(texts), [1] * texts)
    assert live.peak <= estimate(ModelShape.of(model.config), settings).kv_cache <= 2 * live.peak


def test_importing_needs_no_torch() -> None:
    script = "import sys, poad_sb3.memory, poad_sb3.fitting, poad_sb3.doctor; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
