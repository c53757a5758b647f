"""Architectures that score packed trees or logits in their own ways, as tiny random models."""

import shutil

import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, AutoTokenizer

from poad_sb3.pocket import POCKET_FOLDER

VOCABULARY = len(AutoTokenizer.from_pretrained(POCKET_FOLDER))
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
    "granite": ("granite", {**SMALL, "logits_scaling": 8.0}, True),
    "gemma2, window 8, cap 3": ("gemma2", {**SMALL, "sliding_window": 8, "final_logit_softcapping": 3.0}, False),
    "gpt2": ("gpt2", GPT2, True),
    "cohere": ("cohere", {**SMALL, "logit_scale": 0.25}, True),
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
