"""A Llama of two layers with a byte-level tokenizer, as a GGUF file."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np

WIDTH, HIDDEN, LAYERS = 32, 64, 2
VOCABULARY = ["<unk>", "<s>", "</s>", *map(chr, range(33, 127)), "Ġ", "Ċ", "ab"]
SHAPES = {
    "attn_norm": (WIDTH,), "ffn_norm": (WIDTH,), "attn_q": (WIDTH, WIDTH), "attn_k": (WIDTH // 2, WIDTH),
    "attn_v": (WIDTH // 2, WIDTH), "attn_output": (WIDTH, WIDTH), "ffn_gate": (HIDDEN, WIDTH),
    "ffn_up": (HIDDEN, WIDTH), "ffn_down": (WIDTH, HIDDEN),
}  # fmt: skip


def write_gguf(path: Path, architecture: str = "llama", *, quantized: bool = True) -> dict[str, Any]:
    """Write the file; return its weights as float32, dequantized, by their names in it."""
    rng, writer = np.random.default_rng(0), gguf.GGUFWriter(path, architecture)
    fields = {
        "name": "tiny", "context_length": 512, "embedding_length": WIDTH, "block_count": LAYERS,
        "feed_forward_length": HIDDEN, "head_count": 2, "head_count_kv": 1, "layer_norm_rms_eps": 1e-5,
        "rope_freq_base": 10_000.0, "vocab_size": len(VOCABULARY), "tokenizer_model": "gpt2", "token_list": VOCABULARY,
        "token_types": [3] * 3 + [1] * (len(VOCABULARY) - 3), "token_merges": ["a b"], "bos_token_id": 1,
        "eos_token_id": 2,
    }  # fmt: skip
    for name, value in fields.items():
        getattr(writer, f"add_{name}")(value)
    names = {f"blk.{layer}.{name}": shape for layer in range(LAYERS) for name, shape in SHAPES.items()}
    weights = {}
    for name, shape in {"token_embd": (len(VOCABULARY), WIDTH), "output_norm": (WIDTH,), **names}.items():
        values = rng.normal(scale=0.3, size=shape).astype(np.float32)
        if quantized and len(shape) == 2:
            kind = gguf.GGMLQuantizationType.Q4_1
            blocks = gguf.quantize(values, kind)
            writer.add_tensor(f"{name}.weight", blocks, raw_dtype=kind)
            values = gguf.dequantize(blocks, kind)
        else:
            writer.add_tensor(f"{name}.weight", values)
        weights[name] = values
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return weights
