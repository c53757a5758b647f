"""Every causal architecture of transformers, as a tiny random model.

Each is built from a generic recipe of small sizes, saved to a folder, and measured as `poad doctor FOLDER` measures a
model (`poad_sb3.distributions.sampling_check`): errors of the ratio, of log-probabilities and of a merged export. One
process for each, with a time limit, so that a crash or an endless loop costs one line of the table.

Writes architectures.json; with names as arguments, only shows those.
"""

from __future__ import annotations

import multiprocessing
import shutil
import sys
import tempfile
import warnings
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, AutoTokenizer, PreTrainedConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from transformers.utils import logging

from benchmarks.files import write_result
from benchmarks.reports.tables import show_records
from poad_sb3.distributions.sampling_check import examine_model
from poad_sb3.pocket import POCKET_FOLDER

ARCHITECTURES = tuple(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
LIMIT = 60
"""Time limit for one architecture, in seconds."""
_LONGEST = 160
"""Maximum number of characters of a reason."""

SMALL: dict[str, Any] = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "embedding_size"), 32),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "decoder_ffn_dim", "encoder_ffn_dim", "d_inner", "dim_ff"), 48),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size", "shared_intermediate_size"), 16),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers", "encoder_layers"), 4),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads", "decoder_attention_heads"), 4),
    "encoder_attention_heads": 4,
    "num_key_value_heads": 2,
    **dict.fromkeys(("head_dim", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim", "index_head_dim"), 8),
    **dict.fromkeys(("kv_lora_rank", "q_lora_rank"), 16),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "n_ctx", "max_target_positions"), 256),
    **dict.fromkeys(("sliding_window", "window_size", "attention_window_size"), 16),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "moe_topk"), 2),
    **dict.fromkeys(("n_group", "topk_group", "n_shared_experts"), 1),
    "index_topk": 8,
    "index_n_heads": 2,
    "keep_window_size": 16,
}
"""Small sizes by the names of settings that architectures share; windows and sparse indices are shorter than the
longest prompt that is measured."""

_ALTERNATING = ["linear_attention", "full_attention"] * 2
_ROPE = {"rope_type": "default", "rope_theta": 10_000.0}
_HEADS = {"head_dim": 8, "num_key_value_heads": 2}
_MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 8}
SPECIAL: dict[str, dict[str, Any]] = {
    "bailing_hybrid": {"layer_group_size": 2},
    "bamba": {**_MAMBA, "attn_layer_indices": [1, 3]},
    "codegen": {"rotary_dim": 4},
    "cohere_compass_text": {"rope_parameters": {"full_attention": _ROPE, "sliding_attention": _ROPE}},
    "cpmant": {"init_std": 0.02},
    "dbrx": {"attn_config": {"kv_n_heads": 2}, "ffn_config": {"hidden_size": 32, "ffn_hidden_size": 48}},
    "deepseek_v2": {"num_experts_per_tok": 2},
    "deepseek_v4": {"num_key_value_heads": 1, "o_groups": 2, "o_lora_rank": 16, "qk_rope_head_dim": 4},
    "dots1": {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2},
    "falcon_h1": {**_MAMBA, "mamba_d_ssm": 64, "mamba_d_state": 16},
    "gemma3n_text": {"num_kv_shared_layers": 0, "layer_types": ["sliding_attention", "full_attention"] * 2},
    "gpt_neo": {"attention_types": [[["global", "local"], 2]]},
    "gptj": {"rotary_dim": 4},
    "granitemoehybrid": {**_MAMBA, "layer_types": ["mamba", "attention"] * 2},
    "hunyuan_v1_dense": _HEADS,
    "hunyuan_v1_moe": _HEADS,
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "kimi_linear": {"layer_types": _ALTERNATING, "linear_head_dim": 8, "linear_num_heads": 4},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 2},
    "mamba2": {"num_heads": 8, "head_dim": 8},
    "ministral": _HEADS,
    "nemotron": _HEADS,
    "qwen4_exp_text": {
        "indexer_n_heads": 2, "indexer_kv_heads": 1, "indexer_head_dim": 8, "indexer_budget": 8,
        "indexer_compress_ratio": 2,
    },
    "zamba2": {"layers_block_type": ["linear_attention", "hybrid"] * 2},
    "zaya": {"num_experts_per_tok": 1},
}  # fmt: skip
"""Settings of architectures that the generic sizes do not fit."""


def tiny_config(kind: str) -> PreTrainedConfig:
    """Return a small config of an architecture, with the vocabulary of the pocket model."""
    tokenizer = AutoTokenizer.from_pretrained(POCKET_FOLDER)
    words = {"vocab_size": len(tokenizer), "bos_token_id": tokenizer.bos_token_id}
    words |= {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id or 0}
    return CONFIG_MAPPING[kind](**_settings(CONFIG_MAPPING[kind], words))


def _settings(kind: type[PreTrainedConfig], words: dict[str, Any]) -> dict[str, Any]:
    """Return small values of the settings that a config class has, and those of its nested configs."""
    default, defaults = kind(), kind().to_dict()
    names = {kind.attribute_map.get(name, name): value for name, value in SMALL.items()}
    settings = {name: value for name, value in names.items() if type(defaults.get(name)) is int}
    settings |= {name: value for name, value in words.items() if hasattr(default, name)}
    if "kv_lora_rank" in settings:  # latent attention has keys for every head
        settings["num_key_value_heads"] = 4
    if hasattr(default, "is_decoder") and not default.is_encoder_decoder:
        settings["is_decoder"] = True
    for name in kind.sub_configs:
        if isinstance(inner := getattr(default, name, None), PreTrainedConfig):
            settings[name] = _settings(type(inner), words)
    return {**settings, **SPECIAL.get(kind.model_type, {})}


def build(kind: str, folder: Path) -> None:
    """Save a tiny random model of an architecture, with the pocket model's tokenizer."""
    torch.manual_seed(0)
    config = tiny_config(kind)
    model = AutoModelForCausalLM.from_config(config)
    sharpen(model)
    model.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(POCKET_FOLDER / name, folder)


@torch.no_grad()
def sharpen(model: torch.nn.Module) -> None:
    """Let differences show: tiny random models are nearly uniform."""
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.mul_(3)


def measure(kind: str, limit: float = LIMIT) -> dict[str, Any]:
    """Measure an architecture in a process of its own; without figures, the reason in one line."""
    context = multiprocessing.get_context("fork")  # inherits the imports
    sender, receiver = context.Pipe()
    process = context.Process(target=_send, args=(sender, kind))
    process.start()
    sender.close()
    row = {"name": kind, "verdict": "not measured", "reason": f"took more than {limit} s"}
    if receiver.poll(limit):
        try:
            row = receiver.recv()
        except EOFError:
            process.join()
            row["reason"] = f"the process ended with code {process.exitcode}"
    process.kill()
    process.join()
    return row


def _send(pipe: Connection, kind: str) -> None:
    torch.set_num_threads(1)
    pipe.send(measure_here(kind))


def measure_here(kind: str) -> dict[str, Any]:
    """Build and measure an architecture in this process."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            build(kind, Path(folder))
        except Exception as error:  # of any config or model class
            return {"name": kind, "verdict": "not built", "reason": _line(error)}
        try:
            return {"name": kind, **examine_model(folder)._asdict()}
        except Exception as error:
            return {"name": kind, "verdict": "refused", "reason": _line(error).replace(folder, kind)}


def _line(error: Exception) -> str:
    text = " ".join(str(error).split())
    _, bracket, inside = text.partition("cannot be scored (")
    text = inside.partition("). Fix")[0] if bracket else text
    return f"{type(error).__name__}: {text[:_LONGEST]}"


def architectures(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Only these, and nothing is written.")
    ] = None,
) -> None:
    """Measure every causal architecture of transformers, as a tiny random model."""
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    rows = []
    for name in names or ARCHITECTURES:
        rows.append(measure(name))
        print(f"{name}: {rows[-1]['verdict']}", file=sys.stderr)
    columns = ("ratio", "log_prob", "export", "passes", "verdict")
    show_records("architecture", {row["name"]: row for row in rows}, columns)
    if not names:
        print(write_result("architectures", {"rows": rows}))
