"""`EndpointDistribution`: free actions that a server of token completions generates, in the manner of vLLM.

Prompts are sent as token ids, and token ids come back with their log-probabilities; no text is tokenized. Before the
first action under changed weights the adapter is written to a temporary folder and loaded by the server, by a name that
holds its version and the SHA-256 of its file. The server must therefore share the file system, run the policy's base
model in the policy's dtype, and report log-probabilities after temperature:

    VLLM_ALLOW_RUNTIME_LORA_UPDATING=True vllm serve MODEL --enable-lora --logprobs-mode processed_logprobs

Requests follow vLLM's `CompletionRequest` and `LoadLoRAAdapterRequest`; answers are streamed, so that a slow one is no
failed one. A key is read from the environment variable `VLLM_API_KEY`, as the server does. A server does not prove that
it computes with the adapter that it lists: the gate of the update compares its log-probabilities with the learner's.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import math
import os
import shutil
import tempfile
import time
import urllib.error
import urllib.request
import uuid
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import numpy as np
import torch

from poad_sb3.credit.mismatch import CleanMismatch, measure_mismatch
from poad_sb3.distributions.action_trie import Decision, TokenIds
from poad_sb3.distributions.base import SampledAction, ScoreCache, TokenPath
from poad_sb3.distributions.free import FreeDistribution, free_action, generate, has_ended
from poad_sb3.errors import EndpointError, ModelError
from poad_sb3.language_model.language_model import LanguageModel
from poad_sb3.prompts import Question
from poad_sb3.settings.sampling import SamplingSettings

__all__ = ["Completion", "EndpointDistribution", "TokenServer"]

T = TypeVar("T")

_CALIBRATION = 64
"""Number of responses of the policy's own model that the clean mismatch is measured on."""
_KEY = "VLLM_API_KEY"
"""Environment variable that holds the key of the server; vLLM reads its own from the same."""
_PAUSE = 1.0
"""Time between attempts to reach a server that is gone, in seconds."""


class _UnknownError(EndpointError):
    """A model, adapter or path that the server does not know."""


class Completion(NamedTuple):
    """Tokens written after a prompt, and their log-probabilities."""

    tokens: TokenIds
    log_probs: tuple[float, ...]


class TokenServer:
    """Client of a server of token completions.

    Args:
        url: Address of the server, with its `/v1`.
        timeout: Maximum time without a token or another answer, in seconds. A server that has answered before and
            whose connections fail is asked again for as long; refusals and time-outs are not repeated.
    """

    def __init__(self, url: str, *, timeout: float = 120.0) -> None:
        self.url, self.timeout = url.rstrip("/"), timeout
        self._key = os.environ.get(_KEY, "")
        is_local = urlsplit(url).hostname in ("localhost", "127.0.0.1", "::1")  # which a proxy does not reach
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({} if is_local else None))
        self._has_answered = False

    def load_adapter(self, name: str, folder: Path) -> None:
        """Let the server load an adapter from a folder, and check that it lists it.

        Raises:
            EndpointError: If a request fails, or the server does not list the adapter afterwards.
        """
        self._send("/load_lora_adapter", {"lora_name": name, "lora_path": str(folder), "load_inplace": True})
        models = self._json(self._send("/models")).get("data")
        listed = [model for model in models if isinstance(model, dict)] if isinstance(models, list) else []
        if not any(model.get("id") == name and model.get("root") == str(folder) for model in listed):
            raise EndpointError(
                f"Expected {self.url} to list the adapter {name!r} of {folder} after loading it; it lists "
                f"{[model.get('id') for model in listed]}. Fix: a server with adapters that can be loaded at run time."
            )

    def unload_adapter(self, name: str) -> None:
        """Let the server unload an adapter."""
        self._send("/unload_lora_adapter", {"lora_name": name})

    def complete(self, model: str, prompt: TokenIds, vocabulary: int, **settings: Any) -> Completion:
        """Return the completion of a prompt.

        Args:
            model: Name of the model or adapter, as the server lists it.
            prompt: Token ids of the prompt.
            vocabulary: Size of the policy's vocabulary.
            **settings: Other fields of the request.

        Raises:
            EndpointError: If the server fails, answers for another model or prompt, or with anything but token ids of
                the vocabulary and as many finite log-probabilities.
        """
        fields = {"model": model, "prompt": [*prompt], "logprobs": 0, "return_token_ids": True, "stream": True}
        tokens: list[int] = []
        log_probs: list[float] = []
        answered, echoed = model, None
        answer: dict[str, Any] = {}
        try:
            for answer in map(self._json, self._send("/completions", {**fields, **settings}, _events)):
                answered = answered if answer["model"] == model else answer["model"]
                if tokens and not answer["choices"]:  # the usage, at the end of a stream
                    continue
                (choice,) = answer["choices"]
                echoed = echoed or [*choice["prompt_token_ids"]]  # of the first part
                tokens += choice["token_ids"]
                log_probs += choice["logprobs"]["token_logprobs"]
            largest = max(tokens, default=None)
            whole = all(type(token) is int and 0 <= token < vocabulary for token in tokens)
            finite = all(math.isfinite(log_prob) for log_prob in log_probs)
            is_right = whole and finite and len(tokens) == len(log_probs) > 0
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise EndpointError(
                f"Expected one choice with token_ids, prompt_token_ids and logprobs of {self.url}; got "
                f"{str(answer)[:200]} ({type(error).__name__}: {error}). Fix: a server that knows return_token_ids."
            ) from error
        if answered != model or echoed != [*prompt]:
            raise EndpointError(
                f"Expected a completion by {model!r} of the prompt that was sent, {len(prompt)} token ids; {self.url} "
                f"answered by {answered!r} for {len(echoed or ())}. "
                "Fix: a server that keeps adapters and prompts as they are."
            )
        if not is_right:
            raise EndpointError(
                f"Expected token ids below {vocabulary} and as many finite log-probabilities; {self.url} returned "
                f"{len(tokens)} ids up to {largest} and {len(log_probs)} log-probabilities. Fix: let "
                "the server run the policy's base model with its tokenizer."
            )
        return Completion(tuple(tokens), tuple(map(float, log_probs)))

    def _send(
        self,
        path: str,
        body: Mapping[str, Any] | None = None,
        read: Callable[[http.client.HTTPResponse], T] = http.client.HTTPResponse.read,  # type: ignore[assignment]
    ) -> T:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}{path}", data, {"Content-Type": "application/json"})
        if self._key:
            request.add_unredirected_header("Authorization", f"Bearer {self._key}")
        until, kind, fix = math.inf, EndpointError, ""
        while True:
            try:
                with self._opener.open(request, timeout=self.timeout) as response:
                    answer = read(response)
                self._has_answered = True
                return answer
            except urllib.error.HTTPError as error:
                why = f"status {error.code}: "
                with error, contextlib.suppress(OSError, http.client.HTTPException):  # cut in the body
                    why += error.read(300).decode(errors="replace")
                if error.code in (401, 403):
                    fix = f"export {_KEY}, the key that the server was started with"
                elif error.code == 404:
                    kind = _UnknownError
                elif path == "/load_lora_adapter":
                    fix = "let it run the policy's base model, with a --max-lora-rank that the adapter fits in"
                else:
                    fix = "see the log of the server"
                break
            except (OSError, http.client.HTTPException) as error:
                cause = getattr(error, "reason", error)
                why = f"{type(cause).__name__}: {cause}"
                if isinstance(cause, TimeoutError):
                    why = f"nothing for {self.timeout:g} s"
                    fix = "see whether the server hangs; if it is only slow, fewer generation_requests"
                if not isinstance(cause, ConnectionError | http.client.HTTPException) or not self._has_answered:
                    break
                until = min(until, time.monotonic() + self.timeout)
                if time.monotonic() > until:
                    why += f" (for {self.timeout:g} s)"
                    break
                time.sleep(min(_PAUSE, self.timeout))
        why = " ".join(why.split())
        raise kind(
            f"Expected an answer of {self.url}{path}; got {why.replace(self._key, '...') if self._key else why}. Fix: "
            + (fix or "check that the server runs there, with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True")
            + "."
        )

    def _json(self, content: bytes) -> dict[str, Any]:
        try:
            answer = json.loads(content)
        except ValueError as error:
            raise EndpointError(
                f"Expected JSON of {self.url}; got {content[:100]!r}. Fix: the URL of the server, with its /v1."
            ) from error
        if not isinstance(answer, dict):
            raise EndpointError(f"Expected a JSON object of {self.url}; got {content[:100]!r}. Fix: its URL with /v1.")
        if "error" in answer:
            raise EndpointError(
                f"Expected a completion of {self.url}; got the error {str(answer['error'])[:300]}. "
                "Fix: see the log of the server."
            )
        return answer


def _events(response: http.client.HTTPResponse) -> list[bytes]:
    """Return the parts of a streamed answer as they come; an answer in one piece is one part."""
    if response.headers.get_content_type() != "text/event-stream":
        return [response.read()]
    parts: list[bytes] = []
    for line in response:
        if line.startswith(b"data:"):
            part = line[5:].strip()
            if part == b"[DONE]":
                return parts
            parts.append(part)
    raise http.client.HTTPException("the answer was cut")


class EndpointDistribution(FreeDistribution):
    """Ordinary sampling by a server; greedy decoding and scores by the policy's own model.

    Args:
        lm: Language model with an adapter.
        sampling: Sampling settings with `generation_endpoint`.

    Raises:
        ModelError: If there is no adapter to send, or several ranks.
    """

    samples_elsewhere = True

    def __init__(self, lm: LanguageModel, sampling: SamplingSettings) -> None:
        super().__init__(lm, sampling)
        has_adapter = hasattr(lm.network, "peft_config")
        if not has_adapter or lm.ranks.size > 1:
            raise ModelError(
                f"Expected an adapter and one rank with generation_endpoint; got {lm.ranks.size} ranks and lora="
                f"{'an adapter' if has_adapter else None}. Fix: leave generation_endpoint out."
            )
        self._sent: tuple[tuple[int, int], ...] = ()
        self._version = 0
        self._clean: CleanMismatch | None = None
        assert sampling.generation_endpoint is not None
        self.server = TokenServer(sampling.generation_endpoint)
        self.adapter = ""
        """Name of the adapter on the server: version, hash and training."""
        self._name = uuid.uuid4().hex[:8]  # trainings that begin alike have equal adapters
        self._remove: Callable[[], object] = lambda: None
        """Function that removes the folder of the adapter."""

    def sample(
        self, questions: Sequence[Question], rngs: Sequence[np.random.Generator], cache: ScoreCache
    ) -> list[SampledAction]:
        """See `ActionDistribution.sample`; each request has a seed from its generator.

        Raises:
            EndpointError: If a request fails or an answer is not as asked, see `TokenServer`.
        """
        self.send_weights()
        prompts = [self.prompt(question) for question in questions]
        seeds = [int(rng.integers(2**31)) for rng in rngs]
        try:
            return self._all_written(prompts, seeds)
        except _UnknownError:  # the server was started again, without the adapter
            self._sent = ()
            self.send_weights()
            return self._all_written(prompts, seeds)

    def _all_written(self, prompts: Sequence[TokenIds], seeds: Sequence[int]) -> list[SampledAction]:
        with ThreadPoolExecutor(self._sampling.generation_requests) as threads:
            return list(threads.map(self._written, prompts, seeds))

    def _written(self, prompt: TokenIds, seed: int) -> SampledAction:
        sampling = self._sampling
        fields = {
            "max_tokens": max(1, min(sampling.max_new_tokens, self.lm.max_length - len(prompt))),
            "temperature": sampling.temperature,
            "seed": seed,
            "stop": [*sampling.stop],
            "stop_token_ids": sorted(self.lm.prompter.end_tokens),
            "ignore_eos": True,  # an end token of the model's config may be an ordinary word
            # A server's own defaults come from the model's generation_config.json.
            "top_k": 0,
            "top_p": 1.0,
            "min_p": 0.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "repetition_penalty": 1.0,
        }
        vocabulary = int(self.lm.base.config.get_text_config().vocab_size)
        tokens, log_probs = self.server.complete(self.adapter, prompt, vocabulary, **fields)
        tokens = tokens[: sampling.max_new_tokens]
        ended = partial(has_ended, self.lm, sampling, prompt)
        n = next((n for n in range(1, len(tokens)) if ended(tokens[:n])), len(tokens))
        decisions = [Decision(position, (), token) for position, token in enumerate(tokens[:n])]
        return free_action(self.lm, sampling, prompt, tokens[:n], log_probs[:n], decisions)

    def send_weights(self) -> None:
        """Give the server the present weights of the adapter, unless it has them."""
        trained = [parameter for parameter in self.lm.network.parameters() if parameter.requires_grad]
        weights = tuple((parameter.data_ptr(), parameter._version) for parameter in trained)
        if weights == self._sent:
            return
        folder = Path(tempfile.mkdtemp(prefix="poad-adapter-"))
        remove = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self.lm.network.save_pretrained(folder, save_embedding_layers=False)
        digest = hashlib.sha256((folder / "adapter_model.safetensors").read_bytes()).hexdigest()
        name = f"poad-{self._version + 1}-{digest}-{self._name}"
        try:
            self.server.load_adapter(name, folder)
        except EndpointError:
            remove()
            raise
        self._sent, self._version = weights, self._version + 1
        (before, remove_before), (self.adapter, self._remove) = (self.adapter, self._remove), (name, remove)
        if before:
            with contextlib.suppress(EndpointError):  # a server that was started again does not know it
                self.server.unload_adapter(before)
        remove_before()

    @torch.no_grad()
    def clean_mismatch(self, paths: Sequence[TokenPath]) -> CleanMismatch:
        """Measure the mismatch of the policy's own decoding, once: 64 responses to the prompts of some paths."""
        if self._clean is None:
            prompts = [paths[number % len(paths)].prompt for number in range(_CALIBRATION)]
            uniforms = np.random.default_rng(0).random((len(prompts), self._sampling.max_new_tokens))
            responses = generate(self.lm, prompts, self._sampling, uniforms)
            lengths = [len(response.path.decisions) for response in responses]
            scored = torch.empty(sum(lengths))
            for part in self.evaluate([response.path for response in responses]):
                scored[part.units.cpu()] = part.log_prob.float().cpu()
            sampled = np.concatenate([response.log_probs for response in responses])
            self._clean = CleanMismatch.of(measure_mismatch(sampled, scored, lengths))
        return self._clean
