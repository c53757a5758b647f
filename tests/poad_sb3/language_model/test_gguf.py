"""Models in GGUF files: their weights, training, checkpoints and exports, and refusals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_gguf import write_gguf

from poad_sb3 import POAD, ModelError
from poad_sb3.errors import ExportError
from poad_sb3.export.export import export_policy
from poad_sb3.language_model import loading
from poad_sb3.language_model.language_model import LanguageModel
from poad_sb3.language_model.loading import ModelSource

ENV_ID = "KeyToken-v0"


@pytest.mark.parametrize("quantized", [False, True])
def test_weights_are_those_of_the_file(tmp_path: Path, quantized: bool) -> None:
    weights = write_gguf(tmp_path / "tiny.gguf", quantized=quantized)
    base, tokenizer = loading.load(ModelSource(str(tmp_path / "tiny.gguf")))
    for name, ours in (("token_embd", "embed_tokens"), ("blk.1.ffn_down", "layers.1.mlp.down_proj")):
        assert torch.equal(base.model.get_submodule(ours).weight, torch.from_numpy(weights[name]))
    assert tokenizer.decode(tokenizer.encode("cab I")) == "cab I"
    assert tokenizer.eos_token == "</s>"
    (tmp_path / "tiny.gguf").rename(tmp_path / "blob")  # known by its first bytes
    half, _ = loading.load(ModelSource(str(tmp_path / "blob"), dtype="bfloat16", attn_implementation="eager"))
    assert all(torch.equal(half.state_dict()[name], weight.bfloat16()) for name, weight in base.state_dict().items())


def test_a_model_of_a_file_trains_and_is_exported(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    write_gguf(path)
    model = POAD("LLMPolicy", ENV_ID, n_steps=8, batch_size=8, seed=0, policy_kwargs={"model": str(path)}).learn(8)
    model.save(tmp_path / "model.zip")
    again = POAD.load(tmp_path / "model.zip")
    assert again.policy.lm.fingerprint == LanguageModel(str(path)).fingerprint
    with pytest.raises(ExportError, match=r"got tiny\.gguf, a GGUF file\. Fix: pass merge=True"):
        export_policy(model, tmp_path / "adapter")
    export_policy(model, tmp_path / "merged", merge=True)
    assert LanguageModel(str(tmp_path / "merged")).fingerprint != again.policy.lm.fingerprint


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.unlink(), r"Expected a GGUF file; there is no /.*tiny\.gguf"),
        (lambda path: path.write_bytes(b"hello"), r"Expected a GGUF file .*got '.*tiny\.gguf' \(.*Fix: fetch"),
        (lambda path: path.write_bytes(path.read_bytes()[:9_000]), r"Expected a GGUF file .*Fix: fetch the file again"),
        (lambda path: write_gguf(path, "rwkv7"), r"an architecture that transformers reads; got .*rwkv7 is not supp"),
    ],
    ids=["missing", "another format", "cut off", "architecture"],
)
def test_an_unusable_file_is_refused(tmp_path: Path, damage: Callable[[Path], Any], message: str) -> None:
    path = tmp_path / "tiny.gguf"
    write_gguf(path)
    damage(path)
    with pytest.raises(ModelError, match=message):
        LanguageModel(str(path))
