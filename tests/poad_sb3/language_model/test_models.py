"""Any model: its source, its trained parameters, its number format, its memory."""

from __future__ import annotations

import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig
from tiny_gguf import write_gguf
from toy import Collector, first_gradient, make_agent, randomise
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from poad_sb3 import POAD, CheckpointError, ModelError
from poad_sb3.common.ppo_update import _score_again
from poad_sb3.distributions.free import generate
from poad_sb3.errors import MismatchError
from poad_sb3.language_model.language_model import LanguageModel
from poad_sb3.language_model.lora import adapt
from poad_sb3.language_model.packing import TokenRow
from poad_sb3.pocket import POCKET_FOLDER
from poad_sb3.settings.sampling import SamplingSettings

pytestmark = pytest.mark.usefixtures("every_check")

TARGETS = {"gpt2": {"c_attn"}, "phi3": {"qkv_proj", "o_proj", "gate_up_proj", "down_proj"}}


@pytest.fixture
def folder_of(zoo_folder: Callable[[str], Path]) -> Callable[[str], str]:
    return lambda name: str(zoo_folder(name))


def factory() -> tuple[Any, Any]:
    """A user's own model; that it sets seeds must not become the training's business."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(POCKET_FOLDER)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=256,
    )
    return LlamaForCausalLM(config), tokenizer


# ------------------------------------------------------------------ where it comes from


def test_seeds_of_the_function_are_not_those_of_the_training() -> None:
    def critic(seed: int) -> torch.Tensor:
        agent = make_agent(policy_kwargs={"model": factory, "critic_arch": (8,)}, seed=seed)
        return next(agent.policy.critic.parameters()).detach().clone()

    states = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()  # type: ignore[index]
    LanguageModel(factory)
    assert random.getstate() == states[0]
    assert np.random.get_state()[1].tolist() == states[1]  # type: ignore[index]
    assert torch.equal(critic(3), critic(3))
    assert not torch.equal(critic(3), critic(4))


@pytest.mark.parametrize(
    ("model", "settings", "message"),
    [
        (lambda: None, {}, "Expected .*lambda.* to return a transformers model and its tokenizer; got NoneType"),
        (lambda: (factory()[0], "x"), {}, "str has no added_tokens_decoder"),
        (lambda: (factory()[0].half(), factory()[1]), {}, "Expected weights in one of .*; got torch.float16"),
        (factory, {"dtype": "bfloat16"}, "Expected a function that makes the model as it is to be; got dtype"),
        ("pocket", {"dtype": "float16"}, "Expected dtype to be one of .*; got 'float16'.*Fix: 'bfloat16'"),
        ("pocket", {"lora": None, "dtype": "bfloat16"}, "Expected dtype='float32' with lora=None; got torch.bfloat16"),
    ],
)
def test_refuses_unusable_models(model: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):  # a ModelError is one
        LanguageModel(model, **settings)


def with_adapter() -> tuple[Any, Any]:
    """A model with an adapter inside of it, as transformers loads one: no `PeftModel` is around it."""
    base, tokenizer = factory()
    base.add_adapter(LoraConfig(target_modules=["q_proj"]))
    return base, tokenizer


@pytest.mark.parametrize("model", [with_adapter, lambda: (adapt(factory()[0], {}), factory()[1])])
def test_rejects_a_base_with_an_adapter(model: Callable[[], tuple[Any, Any]]) -> None:
    for trunk in ("frozen", "live"):
        with pytest.raises(ModelError, match=r"Expected a base model without an adapter.*Fix: merge it first"):
            LanguageModel(model, critic_trunk=trunk)


@pytest.mark.parametrize("beside", ["whole model", "gguf"])
def test_rejects_a_folder_with_an_adapter(tmp_path: Path, beside: str) -> None:
    model = tmp_path
    adapt(factory()[0], {"modules_to_save": ["lm_head"]}).save_pretrained(tmp_path)
    if beside == "whole model":
        for part in factory():
            part.save_pretrained(tmp_path)
    else:
        write_gguf(model := tmp_path / "tiny.gguf")
    with pytest.raises(ModelError, match=r"Expected a whole model; .* has an adapter.*Fix: .*poad export --merge"):
        LanguageModel(str(model))


# ------------------------------------------------------------------ trained parameters


@pytest.mark.parametrize("name", ["llama2", "gpt2", "phi3"])
def test_the_adapter_is_on_the_attention_projections(folder_of: Callable[[str], str], name: str) -> None:
    lm = LanguageModel(folder_of(name))
    adapted = {full.split(".lora_")[0].rpartition(".")[2] for full, _ in lm.named_parameters() if ".lora_A" in full}
    assert adapted == TARGETS.get(name, {"q_proj", "v_proj"})


@pytest.mark.parametrize(
    ("name", "trunk", "lora"),
    [("llama2", "frozen", {}), ("gpt2", "live", None), pytest.param("phi3", "live", {}, marks=pytest.mark.matrix)],
)
def test_training_moves_the_policy_and_a_live_trunk(
    folder_of: Callable[[str], str], name: str, trunk: str, lora: dict[str, Any] | None
) -> None:
    kwargs = {"model": folder_of(name), "critic_arch": (8,), "critic_trunk": trunk, "lora": lora}
    model = make_agent(policy_kwargs=kwargs, learning_rate=1e-3, n_epochs=1, target_kl=None)
    lm = model.policy.lm
    probe = [TokenRow(lm.prompt_ids("The lamp is red."), None, (3,))]
    before = {key: value.detach().clone() for key, value in model.policy.named_parameters() if value.requires_grad}
    features, trunk_before = lm.hidden_states(probe).detach(), lm.trunk_features(probe)[0]
    model.learn(32)
    assert model.logger.name_to_value["train/first_ratio_error"] < 1e-4
    still = [key for key, value in model.policy.named_parameters() if key in before and torch.equal(value, before[key])]
    unseen = [key for key in still if not any(word in key for word in ("embed", "wte", "wpe", "lm_head"))]
    assert not [key for key in unseen if lora is None or "lora_" in key]
    assert not torch.equal(lm.hidden_states(probe), features), "the policy has moved"
    assert torch.equal(lm.trunk_features(probe)[0], trunk_before) == (trunk == "frozen")


@pytest.mark.matrix
def test_full_fine_tuning_resumes_exactly(folder_of: Callable[[str], str], tmp_path: Path) -> None:
    kwargs = {"model": folder_of("llama3"), "critic_arch": (8,), "lora": None}
    whole = make_agent(policy_kwargs=kwargs, learning_rate=1e-3).learn(64)
    half = make_agent(policy_kwargs=kwargs, learning_rate=1e-3).learn(32)
    half.save(tmp_path / "half.zip")
    rest = POAD.load(tmp_path / "half.zip", make_agent(policy_kwargs=kwargs).env).learn(32, reset_num_timesteps=False)
    for (name, mine), theirs in zip(whole.policy.named_parameters(), rest.policy.parameters(), strict=True):
        assert torch.equal(mine, theirs), name
    assert set(rest.policy.state_dict()) == set(whole.policy.state_dict())


def test_the_divergence_from_the_base_is_from_what_it_was(folder_of: Callable[[str], str]) -> None:
    """With full fine-tuning the head moves too; the divergence needs the old one."""
    kwargs = {"model": folder_of("llama3"), "critic_arch": (8,), "lora": None}
    settings = {"learning_rate": 3e-2, "target_kl": None, "n_epochs": 1, "batch_size": 16, "ent_coef": 0.5}
    model = make_agent(policy_kwargs=kwargs, kl_coef=1e-9, **settings).learn(16)
    assert model.logger.name_to_value["train/kl_to_base"] == pytest.approx(0, abs=1e-6)
    model.learn(16, reset_num_timesteps=False)
    assert model.logger.name_to_value["train/kl_to_base"] > 1e-4
    with pytest.raises(ValueError, match="Expected kl_coef with critic_trunk='frozen'"):
        make_agent(policy_kwargs={**kwargs, "critic_trunk": "live"}, kl_coef=0.1)


# ------------------------------------------------------------------ the same gradient, however it is accumulated


@pytest.mark.parametrize(("sampling", "lora"), [("trie", {}), pytest.param("free", None, marks=pytest.mark.matrix)])
def test_accumulation_changes_no_gradient(sampling: str, lora: dict[str, Any] | None) -> None:
    """One pass of 16 actions, four of about 4, and 16 of 1."""
    kwargs = {"critic_arch": (8,), "lora": lora}
    more = {"max_new_tokens": 9} if sampling == "free" else {}
    model = make_agent(Collector, policy_kwargs=kwargs, action_sampling=sampling, **more)
    randomise(model.policy)
    model.learn(16)
    assert len(model.rollout_buffer.all_samples().paths) == 16
    whole = first_gradient(model, 100_000, 16)
    assert len(whole) > 5
    scale = max(float(gradient.abs().max()) for gradient in whole.values())
    for bound in (128, 1):
        parts = first_gradient(model, bound, 16)
        assert parts.keys() == whole.keys()
        for name, gradient in whole.items():
            torch.testing.assert_close(parts[name] / scale, gradient / scale, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["llama2", "gpt2"])
def test_gradient_checkpointing_changes_no_gradient(folder_of: Callable[[str], str], name: str) -> None:
    rows: list[TokenRow] = []
    gradients = []
    for recompute in (False, True):
        torch.manual_seed(0)
        lm = LanguageModel(folder_of(name), gradient_checkpointing=recompute)
        randomise(lm)
        rows = [TokenRow(lm.prompt_ids(text), None, (2, 4)) for text in ("The lamp is red. You look.", "Go on. Wait.")]
        lm.zero_grad()
        lm.hidden_states(rows).square().sum().backward()  # type: ignore[no-untyped-call]
        gradients.append({key: value.grad for key, value in lm.named_parameters() if value.grad is not None})
        assert not any(module.training for module in lm.modules() if module is not lm)
    assert gradients[0].keys() == gradients[1].keys()
    for key, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][key], gradient, rtol=1e-5, atol=1e-6)


def test_refuses_checkpointing_with_dropout_inside_a_layer(folder_of: Callable[[str], str]) -> None:
    """OPT asks its layer, not a dropout module, whether it is in training."""
    from transformers import OPTConfig, OPTForCausalLM

    def make() -> tuple[Any, Any]:
        tokenizer = AutoTokenizer.from_pretrained(folder_of("gpt2"))
        config = OPTConfig(vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=2, ffn_dim=32, dropout=0.5,
                           num_attention_heads=2, max_position_embeddings=128, word_embed_proj_dim=32)  # fmt: skip
        return OPTForCausalLM(config), tokenizer

    assert LanguageModel(make).packs_trees is not None
    with pytest.raises(ModelError, match=r"Expected the same hidden states with gradient checkpointing.*Fix"):
        LanguageModel(make, gradient_checkpointing=True)


# ------------------------------------------------------------------ other numbers than float32


@pytest.mark.parametrize(("name", "sampling"), [("qwen3", "trie"), ("llama2", "candidates"), ("gpt2", "free")])
def test_bfloat16_is_scored_again_by_the_update(folder_of: Callable[[str], str], name: str, sampling: str) -> None:
    kwargs = {"model": folder_of(name), "critic_arch": (8,), "dtype": "bfloat16"}
    more = {"max_new_tokens": 6} if sampling == "free" else {}
    model = make_agent(policy_kwargs=kwargs, action_sampling=sampling, learning_rate=1e-3, **more)
    lm = model.policy.lm
    assert {value.dtype for value in lm.parameters() if value.requires_grad} == {torch.float32}
    assert lm.base.dtype == torch.bfloat16
    assert not lm.is_full_precision
    model.learn(48)
    logged = model.logger.name_to_value
    assert 0 <= logged["train/sampling_mismatch"] < 3
    assert logged["train/first_ratio_error"] < 0.2
    assert all(torch.isfinite(value).all() for value in model.policy.parameters())


@pytest.mark.parametrize("level", ["token", "action"])
def test_stored_log_probabilities_are_those_of_the_update(level: str) -> None:
    model = make_agent(Collector, policy_kwargs={"critic_arch": (8,)}, credit_level=level)
    randomise(model.policy)
    model.learn(16)
    stored = model.rollout_buffer.all_samples().old_log_prob
    right, chosen = stored.clone(), model.rollout_buffer.all_samples().is_decision
    stored[chosen] += 0.08 * torch.rand(int(chosen.sum()), generator=torch.Generator().manual_seed(0)) - 0.04
    errors = stored[chosen] - right[chosen]
    logged = _score_again(model.policy, model.rollout_buffer)
    assert logged["sampling_mismatch"] == pytest.approx(float((-errors).expm1().abs().max()), abs=1e-4)
    assert logged["sampling_mismatch"] > 0.02
    assert logged["sampling_mismatch_mean"] == pytest.approx(float(errors.mean()), abs=1e-4)
    assert logged["sampling_mismatch_std"] == pytest.approx(float(errors.std(correction=0)), abs=1e-4)
    torch.testing.assert_close(stored, right, rtol=0, atol=1e-5)


def test_an_update_on_log_probabilities_of_another_policy_takes_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_agent(Collector, policy_kwargs={"critic_arch": (8,)})
    model.learn(16)
    monkeypatch.setattr(model.policy.lm, "is_full_precision", False)
    rollout = model.rollout_buffer.all_samples()
    rollout.old_log_prob[rollout.is_decision] += 0.5
    before = {name: value.clone() for name, value in model.policy.state_dict().items()}
    with pytest.raises(MismatchError, match=r"mean difference of at most .* got 0.5 over"):
        POAD.train(model)
    after = model.policy.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())


def test_weights_of_a_folder_are_taken_in_the_wanted_type(tmp_path: Path) -> None:
    """A folder in bfloat16 is float32 here by default, and the same model to a checkpoint."""
    folder = str(tmp_path / "half")
    AutoModelForCausalLM.from_pretrained(POCKET_FOLDER, dtype=torch.bfloat16).save_pretrained(folder)
    AutoTokenizer.from_pretrained(POCKET_FOLDER).save_pretrained(folder)
    wide, narrow = LanguageModel(folder), LanguageModel(folder, dtype="bfloat16")
    assert (wide.base.dtype, narrow.base.dtype) == (torch.float32, torch.bfloat16)
    assert LanguageModel(folder, dtype=torch.bfloat16).source == narrow.source
    assert wide.fingerprint == narrow.fingerprint


@pytest.mark.skipif("bitsandbytes" not in sys.modules and not __import__("importlib").util.find_spec("bitsandbytes"),
                    reason="the extra 'quant' is not installed")  # fmt: skip
@pytest.mark.parametrize("quantization", ["8bit", "4bit"])
def test_a_quantised_base_trains(tmp_path: Path, quantization: str) -> None:
    folder = str(tmp_path / "base")
    tokenizer = AutoTokenizer.from_pretrained(POCKET_FOLDER)
    # bitsandbytes wants widths of whole blocks of 64.
    config = LlamaConfig(vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128, num_hidden_layers=2,
                         num_attention_heads=2, max_position_embeddings=256)  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    kwargs = {"model": folder, "critic_arch": (8,), "quantization": quantization, "dtype": "bfloat16"}
    model = make_agent(policy_kwargs=kwargs, learning_rate=1e-3).learn(32)
    assert not model.policy.lm.is_full_precision
    assert model.logger.name_to_value["train/first_ratio_error"] < 0.3
    model.save(tmp_path / "saved.zip")
    POAD.load(tmp_path / "saved.zip")
    _assert_gradients_pass(folder, quantization)
    with pytest.raises(ModelError, match=r"Expected an adapter on a quantised base; got lora=None.*QLoRA"):
        LanguageModel(folder, quantization=quantization, lora=None)


def _assert_gradients_pass(folder: str, quantization: str) -> None:
    """Those of the first layer's adapter, through all quantised layers behind it, are those of the model it rounds."""
    torch.manual_seed(0)
    lm = LanguageModel(folder, quantization=quantization)
    torch.manual_seed(0)
    plain = LanguageModel(folder)
    for model in (lm, plain):
        randomise(model, scale=0.5)
        model.eval()
        row = TokenRow(model.prompt_ids("The lamp is red. You look."), None, (2, 6))
        with torch.no_grad():
            model.hidden_states([row])  # sampling first must not change the update
        model.hidden_states([row]).float().square().sum().backward()  # type: ignore[no-untyped-call]
    name = next(key for key, value in lm.named_parameters() if value.requires_grad and "lora_B" in key)
    ours, theirs = (dict(model.named_parameters())[name].grad for model in (lm, plain))
    assert ours is not None
    assert theirs is not None
    assert torch.cosine_similarity(ours.flatten(), theirs.flatten(), 0) > 0.9


def test_a_checkpoint_keeps_its_prompt(folder_of: Callable[[str], str], tmp_path: Path) -> None:
    """Loaded with other policy arguments, it must not start to read its observations in another way."""
    kwargs = {"model": folder_of("qwen2"), "critic_arch": (8,)}
    model = make_agent(policy_kwargs={**kwargs, "prompt": "completion"})
    model.save(tmp_path / "saved.zip")
    assert POAD.load(tmp_path / "saved.zip").policy.lm.prompter.template == model.policy.lm.prompter.template
    moved = str(tmp_path / "moved")
    shutil.copytree(kwargs["model"], moved)
    again = POAD.load(tmp_path / "saved.zip", policy_kwargs={"model": moved})
    assert (again.policy.lm.source.name, tuple(again.policy_kwargs["critic_arch"])) == (moved, (8,)), (
        "laid over the saved ones"
    )
    assert again.policy.lm.prompter.template.kind == "completion"
    assert (
        POAD.load(tmp_path / "saved.zip", policy_kwargs={"prompt": "chat"}).policy.lm.prompter.template.kind == "chat"
    )
    unnamed = make_agent(policy_kwargs=kwargs)
    unnamed.save(tmp_path / "auto.zip")
    tokenizer = AutoTokenizer.from_pretrained(moved)
    tokenizer.chat_template = None
    tokenizer.save_pretrained(moved)
    (Path(moved) / "chat_template.jinja").unlink(missing_ok=True)
    with pytest.raises(CheckpointError, match=r"Expected the prompt the checkpoint was written with.*Fix: name it"):
        POAD.load(tmp_path / "auto.zip", policy_kwargs={"model": moved})


# ------------------------------------------------------------------ look-alikes of an ordinary model


def test_positions_that_depend_on_the_batch_are_kept_short(folder_of: Callable[[str], str]) -> None:
    """LongRoPE takes other factors for all rows as soon as one of them is long."""
    from transformers import Phi3Config, Phi3ForCausalLM

    def make() -> tuple[Any, Any]:
        tokenizer = AutoTokenizer.from_pretrained(folder_of("phi3"))
        factors = {"short_factor": [1.0] * 4, "long_factor": [4.0] * 4}
        config = Phi3Config(vocab_size=512, hidden_size=32, intermediate_size=48, num_hidden_layers=2, pad_token_id=0,
                            num_attention_heads=4, max_position_embeddings=512, original_max_position_embeddings=32,
                            rope_scaling={"rope_type": "longrope", **factors})  # fmt: skip
        return Phi3ForCausalLM(config), tokenizer

    with pytest.warns(UserWarning, match="is used with 32 tokens of context instead of 512"):
        lm = LanguageModel(make, prompt="completion")
    assert lm.max_length == 32
    with pytest.raises(ModelError, match="Expected at most 32 tokens"):
        lm.hidden_states([TokenRow((5,) * 33, None, (32,))])


def test_a_cache_that_ignores_padding_is_not_used(folder_of: Callable[[str], str]) -> None:
    """BART counts positions by itself: beside a longer prompt, a shorter one would be continued wrongly."""
    from transformers import BartConfig, BartForCausalLM

    def make() -> tuple[Any, Any]:
        tokenizer = AutoTokenizer.from_pretrained(folder_of("gpt2"))
        config = BartConfig(vocab_size=len(tokenizer), d_model=32, decoder_layers=2, decoder_attention_heads=4,
                            decoder_ffn_dim=48, max_position_embeddings=128, dropout=0.0)  # fmt: skip
        torch.manual_seed(0)
        model = BartForCausalLM(config)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(5)
        return model, tokenizer

    lm = LanguageModel(make)
    assert not lm.caches
    prompts = [lm.prompt_ids(text) for text in ("The lamp is red. You look.", "Go.")]
    uniforms = np.random.default_rng(0).random((2, 6))
    for prompt, written in zip(
        prompts, generate(lm, prompts, SamplingSettings(max_new_tokens=6), uniforms), strict=True
    ):
        with torch.no_grad():
            logits = lm.base(input_ids=torch.tensor([[*prompt, *written.path.action]]), use_cache=False).logits[0]
        log_probs = logits[len(prompt) - 1 : -1].log_softmax(-1)[range(len(written.path.action)), written.path.action]
        np.testing.assert_allclose(written.log_probs, log_probs, atol=1e-4)


@pytest.mark.parametrize("lora", [{"bias": "all"}, {"init_lora_weights": "pissa"}])
def test_an_adapter_that_cannot_be_taken_off_is_refused(folder_of: Callable[[str], str], lora: dict[str, Any]) -> None:
    """The critic's features, and the divergence from the base, would be of another model."""
    folder = folder_of("qwen2")
    with pytest.raises(ModelError, match=r"Expected an adapter that can be taken off.*Fix: lora with bias='none'"):
        LanguageModel(folder, lora=lora)
    LanguageModel(folder, lora=lora, critic_trunk="live")
    before = LanguageModel(folder, lora={"use_dora": True})
    assert all("lora_B" not in name or not value.any() for name, value in before.named_parameters()), "put back"
