"""A stand-in for vLLM's completions with token ids: runs a model itself, loads adapters, and goes wrong on request."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from peft import set_peft_model_state_dict
from safetensors.torch import load_file
from standins.server import Answer, LoopbackStandIn, Request

from benchmarks.performance.mismatch import TOP_K, retokenized
from poad_sb3.distributions.free import generate
from poad_sb3.language_model.language_model import LanguageModel
from poad_sb3.language_model.loading import ModelFactory
from poad_sb3.settings.sampling import SamplingSettings

__all__ = ["TokenStandIn"]

BASE = "base"


class TokenStandIn(LoopbackStandIn):
    """Completions of a model, as vLLM's server answers.

    Args:
        model: The model, as `policy_kwargs["model"]`.
        fault: `"noise"`, `"cut"` and `"retokenized"` are those of `benchmarks.performance.mismatch`; `"stale"` ignores
            new weights; `"foreign"` returns ids of another vocabulary, `"short"` a log-probability too few, `"renamed"`
            the name of another model, `"reread"` another prompt; `"unlisted"` does not list adapters, and `"plain"`
            knows no token ids.
        noise: Standard deviation of the noise.
    """

    def __init__(self, model: ModelFactory, fault: str = "", noise: float = 0.0) -> None:
        super().__init__()
        self.lm, self.fault, self.noise = LanguageModel(model), fault, noise
        self.adapters: dict[str, str] = {}
        self._active = ""

    def bodies(self, path: str) -> list[dict[str, Any]]:
        """The bodies of the requests for a path."""
        return [json.loads(request.body) for request in self.requests if request.path == path]

    def answer(self, request: Request) -> Answer:
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
        choice = {
            "index": 0,
            "text": written.text,
            "finish_reason": "stop",
            "logprobs": {"token_logprobs": log_probs.tolist()[: -1 if self.fault == "short" else None]},
            "token_ids": ids,
            "prompt_token_ids": [*prompt, 5] if self.fault == "reread" else [*prompt],
        }
        if self.fault == "plain":
            del choice["token_ids"]
        name = BASE if self.fault == "renamed" else body["model"]
        return _json({"object": "text_completion", "model": name, "choices": [choice]})


def _json(content: dict[str, Any]) -> Answer:
    return Answer(200, json.dumps(content).encode(), {"Content-Type": "application/json"})
