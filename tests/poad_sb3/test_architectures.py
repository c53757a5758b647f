"""Architectures that score packed trees or logits in their own ways, as tiny random models."""

import shutil

import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, AutoTokenizer

from poad_sb3 import POAD
from poad_sb3.lm import LanguageModel
from poad_sb3.pocket import POCKET_FOLDER
from poad_sb3.prompts import Question
from poad_sb3.rows import prepare

ENV_ID = "Overcooked-TomatoSalad-v0"
VOCABULARY = len(AutoTokenizer.from_pretrained(POCKET_FOLDER))
ACTIONS = ("pick up the tomato", "pick up the bowl", "put the bowl on the table", "chop")
SMALL = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 256, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2,
}  # fmt: skip
GPT2 = {
    "vocab_size": VOCABULARY,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 256,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
MODELS = {
    "llama": ("llama", SMALL, True),
    "qwen2": ("qwen2", SMALL, True),
    "qwen3": ("qwen3", SMALL, True),
    "gpt2": ("gpt2", GPT2, True),
    "granite": ("granite", {**SMALL, "logits_scaling": 8.0}, True),
    "cohere": ("cohere", {**SMALL, "logit_scale": 0.25}, True),
    "mistral, window 8": ("mistral", {**SMALL, "sliding_window": 8}, False),
    "gemma2, window 8, cap 3": ("gemma2", {**SMALL, "sliding_window": 8, "final_logit_softcapping": 3.0}, False),
    "gemma3, window 8": ("gemma3_text", {**SMALL, "sliding_window": 8}, False),
}


def save(folder, kind, settings):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(CONFIG_MAPPING[kind](**settings, attention_dropout=0.0) if kind != "gpt2"
                                             else CONFIG_MAPPING[kind](**settings))  # fmt: skip
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)  # tiny random models are nearly uniform; differences should show
    model.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(POCKET_FOLDER / name, folder)
    return {} if kind != "gpt2" else {"target_modules": ["c_attn"], "fan_in_fan_out": True}


@pytest.mark.parametrize("name", MODELS)
def test_actions_are_scored_as_the_model_itself_scores_them(tmp_path, name):
    kind, settings, packs = MODELS[name]
    lm = LanguageModel(str(tmp_path), lora=save(tmp_path, kind, settings))
    assert lm.packs_trees is packs
    one = prepare(lm, Question("The cook stands beside the old white table in the kitchen and waits. You", ACTIONS))
    with torch.no_grad():
        hidden = lm.hidden_states([one.row.row])
        ours = lm.child_logits(hidden, one.row.children).split([len(children) for children in one.row.children])
        for number, sequence in enumerate(one.trie.sequences):
            logits = lm.network(input_ids=torch.tensor([[*one.prompt, *sequence]])).logits[0]
            for decision in one.trie.decisions[number]:
                node = one.row.children.index(decision.children)
                expected = logits[len(one.prompt) - 1 + decision.position][list(decision.children)].log_softmax(0)
                torch.testing.assert_close(ours[node].log_softmax(0), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", ["gemma2, window 8, cap 3", "granite"])
def test_the_first_ratio_is_one(tmp_path, name):
    kind, settings, _ = MODELS[name]
    lora = save(tmp_path, kind, settings)
    kwargs = {"model": str(tmp_path), "lora": lora, "critic_arch": (16,)}
    model = POAD("LLMPolicy", ENV_ID, n_steps=8, batch_size=8, seed=0, policy_kwargs=kwargs).learn(16)
    assert model.logger.name_to_value["train/first_ratio_error"] < 1e-4


def test_a_recurrent_model_is_not_packed(tmp_path):
    """Mamba has no attention to mask: whatever it cannot do must be found out when it is loaded."""
    settings = {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 1, "state_size": 4}
    config = CONFIG_MAPPING["mamba"](**settings, bos_token_id=1, eos_token_id=2)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(POCKET_FOLDER / name, tmp_path)
    assert LanguageModel(str(tmp_path), lora={"target_modules": ["x_proj"]}).packs_trees is False
