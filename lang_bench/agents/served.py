"""Models behind a server that speaks OpenAI's protocol: OpenAI's own, vLLM, llama.cpp, Ollama and similar."""

from __future__ import annotations

import json
import os
import re
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lang_bench.agents.base import AgentError, Usage
from lang_bench.agents.texts import Reply, TextAgent
from lang_envs import LangEnv
from lang_envs.redaction import without_secrets

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletion


SYSTEM = "You act in a text environment. Each message is an observation. Answer with your next action only."
_NO_KEY = "none"
_PER_PRICE = 1_000_000
_THOUGHT = re.compile(r"\s*<think>(.*?)(?:</think>\s*|\Z)", re.DOTALL)
_THOUGHT_WITHOUT_BEGIN = re.compile(r"((?:(?!<think>|```).)*?)</think>[ \t]*(?:\n\s*|\Z)", re.DOTALL)
"""Reasoning before an answer; some servers leave it in the content, and some chat templates write its first tag."""
_REASONING = ("reasoning_content", "reasoning")
"""Fields of a message that hold it apart: of DeepSeek, SGLang and vLLM; of OpenRouter and newer vLLM."""
_TOO_LONG = re.compile(r"context (?:length|size|window)", re.IGNORECASE)
"""Message of a 400 that is about the length of a prompt."""
_ACCOUNT = re.compile(r"\b(basic|bearer)\s+\S+", re.IGNORECASE)
_MAX_DECISIONS = 1_000
"""Maximum number of requests of an episode; more would reuse the seeds of the next episode."""
_MAX_LETTERS = 1_000
"""Maximum length of a server's message that is shown."""
_REFUSALS = ("context_length_exceeded", "content_filter")
"""Codes of an error that is about the prompt."""
_MAX_TOKENS = 1 << 53
"""Bound of a number of tokens; a larger one is no count."""
_INTERRUPTED = ("error", "abort", "insufficient_system_resource")
"""Finish reasons of OpenRouter, vLLM and DeepSeek for an answer that the server broke off."""
_BAD_GATEWAY = 502
_SENT = "status_sent"
"""Extension of a response: the status that the server sent, where `_restore_status` has replaced it."""


class ServedAgent(TextAgent):
    """A model behind a server, asked by the `openai` client for one chat completion for each action.

    Failed requests (429, 5xx, timeouts, broken connections, answers of 200 that hold an error or no completion) are
    repeated by the client, with growing pauses or as the server demands. A prompt that the server refuses for good, as
    too long or by a content filter, is answered by an empty text. Agents share no state: for several episodes at once
    make an agent for each thread.

    Args:
        model: Name of the model on the server.
        base_url: Base URL of the server, such as `http://127.0.0.1:8000/v1`; `OPENAI_BASE_URL` or OpenAI's own if None.
        api_key_env: Environment variable that holds the key. A server of one's own may need none.
        temperature: Sampling temperature; None for the server's default, as some models require.
        max_tokens: Maximum number of tokens of an answer; None for the server's own limit.
        send_seed: Whether requests carry a seed that follows from the episode's. Most servers promise best effort only.
        system: System message; empty for none.
        timeout: Seconds that the server may be silent; an answer that arrives slowly takes longer.
        retries: Maximum number of repetitions of a failed request.
        price_in: Price of a million tokens read, in any currency.
        price_out: Price of a million tokens written.
        extra: Other fields of the request, such as `{"max_completion_tokens": 512}` with `max_tokens=None`.

    Raises:
        AgentError: If there is no model or key, the base URL is not HTTP, or a number is out of range.
    """

    incidental = frozenset({"base_url", "timeout", "retries", "price_in", "price_out"})

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key_env: str = "OPENAI_API_KEY",
        temperature: float | None = 0.0,
        max_tokens: int | None = 512,
        send_seed: bool = True,
        system: str = SYSTEM,
        timeout: float = 60.0,
        retries: int = 5,
        price_in: float = 0.0,
        price_out: float = 0.0,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        from openai import DefaultHttpxClient, OpenAI

        if not model:
            raise AgentError("Expected the name of a model; got none. Fix: openai:MODEL, as the server calls it.")
        _at_least(0, temperature=temperature, retries=retries, price_in=price_in, price_out=price_out)
        _at_least(1, max_tokens=max_tokens)
        if not 0 < timeout < float("inf"):
            raise AgentError(f"Expected timeout in seconds, above 0; got {timeout!r}. Fix: timeout=60.")
        base_url = base_url or os.environ.get("OPENAI_BASE_URL")
        if base_url is not None and not base_url.startswith(("http://", "https://")):
            raise AgentError(
                f"Expected base_url to begin with http:// or https://; got {without_secrets(base_url)!r}. "
                "Fix: base_url=http://127.0.0.1:8000/v1."
            )
        key = os.environ.get(api_key_env)
        if not key and base_url is None:
            raise AgentError(
                f"Expected a key for OpenAI's server in the environment variable {api_key_env}; it is not set. "
                "Fix: export it, or base_url=http://... for a server of your own."
            )
        self.name = f"openai:{model}"
        wanted = {"model": model, "temperature": temperature, "max_tokens": max_tokens}
        self.settings = {
            **wanted,
            "base_url": without_secrets(base_url),
            "send_seed": send_seed,
            "system": system,
            "timeout": timeout,
            "retries": retries,
            "price_in": price_in,
            "price_out": price_out,
            "extra": dict(extra or {}),
        }
        self._fields = {name: value for name, value in wanted.items() if value is not None}
        self._extra = dict(extra or {})
        self._before = [{"role": "system", "content": system}] if system else []
        self._send_seed, self._prices = send_seed, (price_in, price_out)
        self._seed, self._n_asked, self._has_answered = 0, 0, False
        http_client = DefaultHttpxClient(event_hooks={"response": [_restore_status]})
        self._client = OpenAI(
            api_key=key or _NO_KEY, base_url=base_url, timeout=timeout, max_retries=retries, http_client=http_client
        )
        weakref.finalize(self, http_client.close)  # the client closes only connections of its own making

    def begin(self, env: LangEnv[Any], seed: int) -> None:
        """See `Agent.begin`."""
        self._seed, self._n_asked = seed, 0

    def reply(self, prompt: str) -> Reply:
        """See `TextAgent.reply`.

        Raises:
            AgentError: If the server refuses, cannot be reached, or answers with no chat completion.
        """
        fields = dict(self._fields)
        if self._send_seed:  # another for each action of each episode, and the same when it is played again
            fields["seed"] = (self._seed * _MAX_DECISIONS + self._n_asked) % 2**31
        self._n_asked += 1
        return self._ask({**fields, "messages": [*self._before, {"role": "user", "content": prompt}]})

    def _ask(self, body: dict[str, Any]) -> Reply:
        import openai

        try:
            answer: ChatCompletion = self._client.chat.completions.create(**body, extra_body=self._extra)
        except openai.OpenAIError as error:
            response = error.response if isinstance(error, openai.APIStatusError) else None
            failure = None if response is None else _error_of(_body_of(response.content))
            if response is not None and _SENT in response.extensions and failure is None:
                raise self._not_a_completion(response.text) from None
            reason = self._without_key(str(error) if response is None else _reason(response, failure))
            if isinstance(error, openai.BadRequestError) and self._is_of_prompt(error.code, reason):
                return Reply("", note=f"The server refused the prompt: {reason.rstrip('.')}.")  # and always will
            cause = f" ({type(error.__cause__).__name__})" if error.__cause__ else ""  # of a broken connection
            raise AgentError(
                f"Expected an answer of {self.settings['base_url'] or 'the server'} for {self.name}; "
                f"got {type(error).__name__}{cause}: {reason.rstrip('.')}. "
                "Fix: check model, base_url and key, or raise timeout and retries."
            ) from None  # the server's message may hold the key: keep it out of logs
        self._has_answered = True
        return self._read(answer)

    def _without_key(self, message: str) -> str:
        message = _ACCOUNT.sub(r"\1 ...", " ".join(without_secrets(message).split()))
        key = self._client.api_key
        return (message if key == _NO_KEY else message.replace(key, "(the key)"))[:_MAX_LETTERS]

    def _not_a_completion(self, answer: str) -> AgentError:
        return AgentError(
            "Expected a chat completion with a choice whose content is a text; "
            f"got {self._without_key(answer)[:200]!r}. "
            "Fix: base_url of a server that speaks OpenAI's chat completions, with its /v1."
        )

    def _is_of_prompt(self, code: str | None, reason: str) -> bool:
        """Return whether a 400 is about the prompt of one action, not about the model or a setting.

        If the context is too short for the very first request, `max_tokens` is the likely cause.
        """
        is_too_long = code == "context_length_exceeded" or _TOO_LONG.search(reason) is not None
        return code == "content_filter" or (is_too_long and self._has_answered)

    def _read(self, answer: ChatCompletion) -> Reply:
        try:
            choice = answer.choices[0]
            ended, is_filtered = choice.finish_reason, _is_filtered(choice.finish_reason)
            content = None if is_filtered else choice.message.content
            if not isinstance(content, str | None):  # the client does not look
                raise TypeError(type(content).__name__)
        except (AttributeError, IndexError, TypeError):
            raise self._not_a_completion(str(answer)) from None
        message = getattr(choice, "message", None)  # a filtered answer may have none
        apart = (getattr(message, name, None) for name in _REASONING)
        reasoning = next((words.strip() for words in apart if words and isinstance(words, str)), "")
        text, notes = content or "", [reasoning]
        if reasoning:
            text = text.lstrip()  # servers that cut off the thought leave the blank lines behind it
        while thought := _THOUGHT.match(text) or _THOUGHT_WITHOUT_BEGIN.match(text):
            text = text[thought.end() :]
            notes.append(thought[1].strip())
        if ended == "length":
            notes.append(f"The answer was cut at max_tokens{'' if text.strip() else ' before an action'}.")
        elif is_filtered:  # the words before it are not the model's action
            notes.append("The server's content filter stopped the answer.")
        elif content is None:  # a refusal, or a call of an unknown tool: no text
            notes.append("The model answered without a text.")
        usage = self._usage(answer)
        if usage is None:
            notes.append("The server reported no usage: tokens and cost of this request are not counted.")
        return Reply(text, usage or Usage(requests=1), "\n".join(note for note in notes if note))

    def _usage(self, answer: ChatCompletion) -> Usage | None:
        """Return the usage that the server reports; None if none or an invalid one is reported."""
        try:
            read, written = answer.usage.prompt_tokens or 0, answer.usage.completion_tokens or 0
        except AttributeError:
            return None
        if not all(isinstance(count, int) and 0 <= count < _MAX_TOKENS for count in (read, written)):
            return None
        price_in, price_out = self._prices
        return Usage(1, read, written, (read * price_in + written * price_out) / _PER_PRICE)

    def close(self) -> None:
        """See `Agent.close`."""
        self._client.close()


# ---------------------------------------------------------------------- failures in answers of 200


def _restore_status(response: Any) -> None:
    """Replace status 200 by the status of the failure that the answer holds.

    Gateways answer so when the provider behind them fails. With its true status the client repeats the request, or
    raises the error, as it does for any other.
    """
    if response.is_success:
        response.read()
        status = _status_of(_body_of(response.content))
        if status is not None:
            response.extensions[_SENT], response.status_code = response.status_code, status


def _status_of(body: Mapping[str, Any]) -> int | None:
    """Return the status of the failure in an answer; None if it is a completion."""
    choice, error = _choice_of(body), _error_of(body)
    if error is not None:
        fields = error if isinstance(error, Mapping) else {}
        try:
            status = int(fields.get("code", 0))
        except (TypeError, ValueError, OverflowError):
            status = 0
        if 400 <= status < 600:
            return status
        is_refusal = fields.get("code") in _REFUSALS or fields.get("type") == "invalid_request_error"
        return 400 if is_refusal or _TOO_LONG.search(str(error)) else _BAD_GATEWAY
    ended, message = choice.get("finish_reason"), choice.get("message")
    if _is_filtered(ended):
        return None
    if not isinstance(message, Mapping):
        return _BAD_GATEWAY
    has_begun = any(message.get(name) for name in ("content", "refusal", "tool_calls"))
    return None if has_begun or ended is not None else _BAD_GATEWAY


def _body_of(content: bytes) -> Mapping[str, Any]:
    """Return the JSON object of an answer, also from a list of one as Google sends it; empty if it is none."""
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    body = body[0] if isinstance(body, list) and body else body
    return body if isinstance(body, Mapping) else {}


def _choice_of(body: Mapping[str, Any]) -> Mapping[str, Any]:
    choices = body.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    return choice if isinstance(choice, Mapping) else {}


def _error_of(body: Mapping[str, Any]) -> object:
    """Return the error of an answer: of the whole, or of its choice where the provider failed in between."""
    choice = _choice_of(body)
    error = body.get("error") or choice.get("error") or (body if body.get("object") == "error" else None)
    if error is None and str(choice.get("finish_reason")).lower() in _INTERRUPTED:
        return {"message": f"the server broke the answer off (finish_reason {choice['finish_reason']!r})"}
    return error


def _reason(response: Any, error: object) -> str:
    """Return status and message of a failed request; a gateway adds the words of the provider behind it."""
    message: object = error
    if isinstance(error, Mapping):
        metadata = error.get("metadata")
        words = (error.get("message"), metadata.get("raw") if isinstance(metadata, Mapping) else None)
        message = ": ".join(str(part) for part in words if part) or dict(error)
    return f"Error code: {response.status_code} - {message or response.text}"


def _is_filtered(finish_reason: object) -> bool:
    return str(finish_reason).startswith("content_filter")  # Google adds the kind of filter


def _at_least(minimum: float, **numbers: float | None) -> None:
    for name, value in numbers.items():
        if value is not None and not minimum <= value < float("inf"):
            raise AgentError(f"Expected {name} of at least {minimum}; got {value!r}. Fix: a number from {minimum} on.")
