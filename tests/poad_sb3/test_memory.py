"""Memory: sizes against real models, estimates against recorded and measured peaks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from toy import LampEnv
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from benchmarks.files import RESULTS
from benchmarks.performance.memory import WAYS, WORKLOAD, LiveBytes, config_of, measure_logits
from poad_sb3 import POAD
from poad_sb3.language_model.decoding import CachedDecoding
from poad_sb3.memory import (
    MemoryEstimate,
    ModelSize,
    Workload,
    _free_in_container,
    estimate,
    estimate_training,
)
from poad_sb3.settings import ModelSettings

# Free texts of an untrained model are longer than the action space of the lamps holds.
pytestmark = pytest.mark.filterwarnings("ignore:Expected texts that the action space holds:RuntimeWarning")
SMALL = {
    "vocab_size": 101, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
GPT2 = {"vocab_size": 101, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 64, "eos_token_id": 2}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "tied, with biases": ("llama", {**SMALL, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}),
    "gemma2": ("gemma2", {**SMALL, "head_dim": 16}),
    "gpt2": ("gpt2", GPT2),
}
FREE = {"action_sampling": "free", "max_new_tokens": 24}
METHODS: dict[str, dict[str, Any]] = {
    "trie": {},
    "paper mode": {"action_sampling": "candidates", "paper_mode": True},
    "free": FREE,
    "think": {"action_sampling": "think", "max_thought_tokens": 24},
}


# ---------------------------------------------------------------------- sizes


@pytest.mark.parametrize("name", MODELS)
def test_weights_are_counted_as_transformers_makes_them(name: str) -> None:
    kind, settings = MODELS[name]
    config = CONFIG_MAPPING[kind](**settings)
    model = AutoModelForCausalLM.from_config(config)
    size = ModelSize.of(config, ModelSettings(lora={"target_modules": "all-linear"}))
    layers = model.get_decoder().h if kind == "gpt2" else model.get_decoder().layers
    matrices = [weight for layer in layers for weight in layer.parameters() if weight.dim() == 2]
    assert size.parameters == sum(parameter.numel() for parameter in model.parameters())
    assert size.frozen == 4 * size.parameters
    adapted = sum(matrix.numel() for matrix in matrices)
    assert size.trained == 8 * sum(sum(matrix.shape) for matrix in matrices)
    bits8, bits4 = (ModelSize.of(config, ModelSettings(dtype="bfloat16", quantization=q)) for q in ("8bit", "4bit"))
    assert bits8.frozen == 2 * size.parameters - adapted
    assert bits4.frozen == pytest.approx(2 * size.parameters - 1.4375 * adapted, abs=1)


def test_a_model_without_attention_is_counted() -> None:
    config = CONFIG_MAPPING["mamba"](vocab_size=101, hidden_size=32, num_hidden_layers=2)
    size = ModelSize.of(config)
    assert size.parameters == AutoModelForCausalLM.from_config(config).num_parameters()
    assert (size.kv_width, size.saved > 0) == (0, True)


def test_a_pass_that_needs_numbers_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Expected an architecture whose .*; 'mixtral' raises .*Fix: start a short"):
        ModelSize.of(CONFIG_MAPPING["mixtral"](**SMALL))


def test_measuring_a_size_changes_nothing() -> None:
    config, state = LlamaConfig(**SMALL), torch.get_rng_state()
    before = config.to_dict()
    ModelSize.of(config)
    assert torch.equal(torch.get_rng_state(), state)
    assert config.to_dict() == before
    assert LlamaForCausalLM(config).config._attn_implementation == "sdpa"


def test_full_fine_tuning_keeps_a_copy_unless_the_critic_reads_the_model_as_it_is() -> None:
    config = LlamaConfig(**SMALL)
    size = ModelSize.of(config, ModelSettings(lora=None))
    assert (size.frozen, size.trained) == (4 * size.parameters, size.parameters)
    assert ModelSize.of(config, ModelSettings(lora=None, critic_trunk="live")).frozen == 0


# ---------------------------------------------------------------------- the arithmetic


def test_an_estimate_by_hand() -> None:
    size = ModelSize(
        parameters=900, frozen=3600, trained=100, vocabulary=10, hidden=8, layers=2, kv_width=16,
        itemsize=4, saved=1000,
    )  # fmt: skip
    workload = Workload(
        pass_tokens=6, scored=3, children=5.0, n_texts=3, text_tokens=9, rollout_tokens=7, gradient_sums=2
    )
    needed = estimate(size, ModelSettings(critic_arch=(4,)), workload)
    assert needed == MemoryEstimate(
        weights=3600,
        trained=16 * 100,
        critic=16 * (8 * 4 + 4) + 2 * 4 * (64 + 8),
        rollout=7 * (4 * 8 + 25),
        activations=6 * (1000 + 200 + 5 * 6),  # saved tensors, work space, mask
        logits=3 * 5 * 8 * (4 + 4 + 4),  # rows of the head, hidden states, and the product
        gradients=2 * 4 * 100,
        decoding=3 * (4 * 16 * 9 * 3 // 2 + 9 * 500),
        values=4 * 7 * 2 * (8 + 4),
    )
    assert needed.total == sum(needed[:4]) + needed.decoding, "rollout and update take turns"
    assert needed._replace(decoding=0).total == sum(needed[:4]) + sum(needed[4:7])
    again = estimate(size, ModelSettings(gradient_checkpointing=True), workload)
    assert again.activations == 6 * (2 * 4 * 8 + 500 + 200 + 5 * 6)  # inputs of the layers, one of them
    without = estimate(size, workload=workload._replace(n_texts=0, critic_networks=0))
    assert (without.critic, without.values, without.decoding) == (0, 0, 0)


# ---------------------------------------------------------------------- against measurement


def recorded(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text())


def test_recorded_passes_are_met_within_a_quarter() -> None:
    errors = {}
    for case in recorded("memory")["cases"]:
        settings = ModelSettings(gradient_checkpointing=case["gradient_checkpointing"], **WAYS[case["trained"]])
        needed = estimate(ModelSize.of(config_of(case["model"]), settings), settings, WORKLOAD)
        errors[case["model"], case["trained"], case["gradient_checkpointing"]] = needed.activations / case["peak"] - 1
    assert len(errors) == 24
    assert max(map(abs, errors.values())) < 0.25, errors


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_bounds_recorded_trainings_on_a_gpu(dtype: str) -> None:
    """SmolLM2-135M on Tomato Salad, with passes of at most 1,024 tokens that were not full."""
    config = LlamaConfig(
        vocab_size=49_152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
        num_key_value_heads=3, tie_word_embeddings=True,
    )  # fmt: skip
    settings = ModelSettings(dtype=dtype)
    workload = Workload(pass_tokens=1024, scored=64, children=5.0, n_texts=0, rollout_tokens=2048)
    needed = estimate(ModelSize.of(config, settings), settings, workload)
    assert 1 <= needed.total / recorded("gpu")["memory"][dtype]["peak"] < 1.5


@pytest.mark.parametrize("sampling", ["trie", "candidates", "free"])
def test_the_head_holds_what_is_estimated(sampling: str) -> None:
    peak, estimated = measure_logits(sampling, 1200)
    assert estimated == pytest.approx(peak, rel=0.25)


@pytest.mark.parametrize("n_texts", [1, 20])
def test_decoding_holds_at_most_what_is_estimated(n_texts: int) -> None:
    """A pass over prompts of 90 tokens, and 70 tokens more."""
    model = LlamaForCausalLM(LlamaConfig(
        hidden_size=64, num_hidden_layers=6, intermediate_size=176, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=100,
    )).eval()  # fmt: skip
    with torch.no_grad(), LiveBytes() as live:
        decoding = CachedDecoding(
            model, [tuple((7 * text + position) % 100 for position in range(90)) for text in range(n_texts)]
        )
        for _ in range(70):
            decoding.advance(range(n_texts), [1] * n_texts)
    workload = Workload(n_texts=n_texts, text_tokens=160)
    needed = estimate(ModelSize.of(model.config), workload=workload)
    assert live.peak <= needed.decoding <= 2.5 * live.peak


# ---------------------------------------------------------------------- a training


def trained(max_tokens: int = 512, **settings: Any) -> Any:
    kwargs = {"max_tokens_per_forward": max_tokens, **settings.pop("policy_kwargs", {})}
    model = POAD(
        "LLMPolicy", LampEnv(moves=30), seed=0, n_steps=64, batch_size=64, n_epochs=1, n_critic_epochs=1,
        micro_batches=1, target_kl=None, policy_kwargs=kwargs, **settings,
    )  # fmt: skip
    return model.learn(64)


def bytes_of(tensors: Any) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def learnt(optimizer: torch.optim.Optimizer) -> int:
    """Bytes of trained parameters, their gradients and their moments."""
    states = optimizer.state.items()
    return sum(bytes_of([weight, weight.grad, state["exp_avg"], state["exp_avg_sq"]]) for weight, state in states)


def test_what_is_held_between_passes() -> None:
    model = trained()
    needed, policy = estimate_training(model, model._last_obs), model.policy
    frozen = bytes_of(weight for weight in policy.lm.parameters() if not weight.requires_grad)
    assert needed.weights == pytest.approx(frozen, abs=1024)  # buffers are counted too
    assert needed.trained == learnt(policy.optimizer)
    biases = sum(bias.numel() for bias in policy.critic.mlp.parameters() if bias.dim() == 1)
    whitening = bytes_of(policy.critic.whitening.buffers())
    assert needed.critic == pytest.approx(learnt(policy.critic_optimizer) + whitening - 16 * biases, abs=16)
    flat = model.rollout_buffer.all_samples()
    assert needed.rollout >= bytes_of([flat.features])


@pytest.mark.parametrize(
    "name", ["trie", *(pytest.param(n, marks=pytest.mark.matrix) for n in ("paper mode", "free", "think"))]
)
def test_an_update_holds_at_most_what_is_estimated(name: str) -> None:
    """Passes are taken as full and merged as far as they can be."""
    model = trained(**METHODS[name])
    needed = estimate_training(model, model._last_obs)
    with LiveBytes() as live, pytest.warns(RuntimeWarning, match="first ratio"):  # learnt from already
        model.train()
    assert live.peak <= needed.activations + needed.logits + needed.gradients + needed.values + needed.rollout


def test_thoughts_are_counted_as_written_texts() -> None:
    needed = {
        sampling: estimate_training(model, model.env.reset())
        for sampling in ("trie", "think")
        for model in [POAD("LLMPolicy", LampEnv(), seed=0, action_sampling=sampling)]
    }
    assert needed["think"].decoding > needed["trie"].decoding == 0
    assert needed["think"].rollout > 2 * needed["trie"].rollout
    assert needed["think"].logits > needed["trie"].logits


def test_what_is_not_counted_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = POAD("LLMPolicy", LampEnv(), seed=0)
    assert model.env is not None
    observation = model.env.reset()
    with monkeypatch.context() as patch:
        patch.setattr(model, "policy_kwargs", {"fsdp": True})
        with pytest.raises(ValueError, match=r"^Expected weights on one device; fsdp shards them\. Fix: "):
            estimate_training(model, observation)
    monkeypatch.setattr(model, "max_rollout_steps", lambda: None)
    with pytest.raises(ValueError, match=r"^Expected rollouts of a known length; .*Fix: a limit in its registration"):
        estimate_training(model, observation)


def test_free_memory_of_a_container(tmp_path: Path) -> None:
    assert _free_in_container(tmp_path) is None
    (tmp_path / "memory.current").write_text("700\n")
    (tmp_path / "memory.stat").write_text("anon 500\ninactive_file 200\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert _free_in_container(tmp_path) is None
    (tmp_path / "memory.max").write_text("1000\n")
    assert _free_in_container(tmp_path) == 500
