"""A stand-in for vLLM's completions with token ids: runs a model itself, loads adapters, and goes wrong on request."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from peft import set_peft_model_state_dict
from safetensors.torch import load_file
from standins.server import Answer, LoopbackStandIn, Request
from transformers import AutoTokenizer, LlamaConfig

from benchmarks.performance.synthetic import random_model
from poad_sb3.distributions.free import generate
from poad_sb3.language_model.language_model import LanguageModel
from poad_sb3.language_model.loading import ModelFactory
from poad_sb3.pocket import POCKET_FOLDER
from poad_sb3.settings.sampling import SamplingSettings

__all__ = ["TokenStandIn", "flat_model"]

BASE = "base"
TOP_K = 50


def flat_model() -> tuple[Any, Any]:
    """Return a tiny Llama in bfloat16 whose next token is nearly uniform, as `model=` of a policy takes it."""
    tokenizer = AutoTokenizer.from_pretrained(POCKET_FOLDER)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=256, bos_token_id=1, eos_token_id=2, pad_token_id=0,
        initializer_range=0.1, tie_word_embeddings=False,
    )  # fmt: skip
    return random_model(config, "bfloat16"), tokenizer


def retokenized(lm: LanguageModel, ids: Sequence[int], rng: np.random.Generator) -> list[int] | None:
    """Return ids of the same text and number, two neighbours of them changed; None if no neighbours allow it."""
    special = {*lm.tokenizer.all_special_tokens}
    words = {word: token for word, token in lm.tokenizer.get_vocab().items() if word not in special}
    names = lm.tokenizer.convert_ids_to_tokens(list(ids))
    for index in rng.permutation(len(ids) - 1).tolist():
        text, length = names[index] + names[index + 1], len(names[index])
        cuts = [at for at in range(1, len(text)) if at != length and text[:at] in words and text[at:] in words]
        if cuts and special.isdisjoint(names[index : index + 2]):
            cut = cuts[rng.integers(len(cuts))]
            return [*ids[:index], words[text[:cut]], words[text[cut:]], *ids[index + 2 :]]
    return None


class TokenStandIn(LoopbackStandIn):
    """Completions of a model, as vLLM's server answers.

    Args:
        model: The model, as `policy_kwargs["model"]`.
        fault: `"noise"` adds normal noise to the log-probabilities; `"cut"` draws from the `TOP_K` most probable
            tokens, with their log-probabilities among these; `"retokenized"` returns other ids of the same text;
            `"stale"` ignores new weights; `"foreign"` returns ids of another vocabulary, `"short"` a log-probability
            too few, `"renamed"` the name of another model, `"reread"` another prompt; `"unlisted"` does not list
            adapters, and `"plain"` knows no token ids.
        noise: Standard deviation of the noise.
        key: Key that requests must have.
    """

    def __init__(self, model: ModelFactory, fault: str = "", noise: float = 0.0, key: str = "") -> None:
        super().__init__()
        self.lm, self.fault, self.noise = LanguageModel(model), fault, noise
        self.adapters: dict[str, str] = {}
        self.key = key
        self._active = ""

    def bodies(self, path: str) -> list[dict[str, Any]]:
        """The bodies of the requests for a path."""
        return [json.loads(request.body) for request in self.requests if request.path == path]

    def answer(self, request: Request) -> Answer:
        if self.key and request.headers.get("authorization") != f"Bearer {self.key}":
            return Answer(401, b'{"error": "Unauthorized"}')
        body = json.loads(request.body or b"{}")
        with self._lock:
            match request.path:
                case "/v1/load_lora_adapter":
                    return self._load(body["lora_name"], body["lora_path"])
                case "/v1/unload_lora_adapter":
                    if self.adapters.pop(body["lora_name"], None) is None:
                        return Answer(404, b'{"error": {"message": "no such adapter"}}')
                    return Answer(200, b"Success")
                case "/v1/models":
                    shown = {} if self.fault == "unlisted" else self.adapters
                    cards = [{"id": BASE, "root": BASE}, *({"id": name, "root": at} for name, at in shown.items())]
                    return _json({"object": "list", "data": cards})
                case "/v1/completions":
                    return self._complete(body)
        return Answer(404, b'{"error": {"message": "no such path"}}')

    def _load(self, name: str, folder: str) -> Answer:
        digest = hashlib.sha256((Path(folder) / "adapter_model.safetensors").read_bytes()).hexdigest()
        if digest not in name:
            return Answer(400, b'{"error": {"message": "not the named weights"}}')
        self.adapters[name] = folder
        return Answer(200, f"Success: LoRA adapter '{name}' added successfully.".encode())

    def _complete(self, body: dict[str, Any]) -> Answer:
        if body["model"] not in self.adapters:
            return Answer(404, b'{"error": {"message": "The model does not exist."}}')
        if body["model"] != self._active and not (self._active and self.fault == "stale"):
            path = Path(self.adapters[body["model"]]) / "adapter_model.safetensors"
            set_peft_model_state_dict(self.lm.network, load_file(path))
            self._active = body["model"]
        prompt, rng = tuple(body["prompt"]), np.random.default_rng(body["seed"])
        sampling = SamplingSettings(
            max_new_tokens=body["max_tokens"],
            temperature=body["temperature"],
            stop=body["stop"],
            top_k=TOP_K if self.fault == "cut" else body["top_k"],
        )
        (written,) = generate(self.lm, [prompt], sampling, rng.random((1, sampling.max_new_tokens)))
        ids, log_probs = [*written.path.action], written.log_probs.astype(float)
        log_probs += self.noise * rng.standard_normal(len(ids)) if self.fault == "noise" else 0.0
        if self.fault == "retokenized":
            ids = retokenized(self.lm, ids, rng) or ids
        if self.fault == "foreign":
            ids[-1] = len(self.lm.tokenizer)
        listed = log_probs.tolist()[: -1 if self.fault == "short" else None]
        name = BASE if self.fault == "renamed" else body["model"]
        parts = []
        for position, token in enumerate(ids):  # a part for each token; vLLM may send several together
            choice = {
                "index": 0,
                "text": "",
                "finish_reason": "stop" if token is ids[-1] else None,
                "logprobs": {"token_logprobs": listed[position : position + 1]},
                "token_ids": [token],
                "prompt_token_ids": None if position else [*prompt, 5] if self.fault == "reread" else [*prompt],
            }
            if self.fault == "plain":
                del choice["token_ids"]
            parts.append(json.dumps({"object": "text_completion", "model": name, "choices": [choice]}))
        return events(*parts, "[DONE]")


def events(*parts: str) -> Answer:
    """A streamed answer."""
    body = "".join(f"data: {part}\n\n" for part in parts)
    return Answer(200, body.encode(), {"Content-Type": "text/event-stream; charset=utf-8"})


def _json(content: dict[str, Any]) -> Answer:
    return Answer(200, json.dumps(content).encode(), {"Content-Type": "application/json"})
