"""A server that speaks OpenAI's chat completions."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from .server import Answer, LoopbackStandIn, Request

__all__ = ["ChatStandIn", "completion"]


def completion(
    text: str | None, usage: tuple[int, int] | None = (10, 2), finish_reason: str = "stop", **fields: Any
) -> Answer:
    """A chat completion with one choice; `usage` counts tokens read and written, `fields` are others of its message."""
    message = {"role": "assistant", "content": text, **fields}
    body: dict[str, Any] = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "a-model",
        "choices": [{"index": 0, "message": message, "finish_reason": finish_reason}],
    }
    if usage is not None:
        read, written = usage
        body["usage"] = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
    return Answer(200, json.dumps(body).encode(), {"Content-Type": "application/json"})


class ChatStandIn(LoopbackStandIn):
    """Returns prepared answers in order, then the values of a function of the last message.

    Args:
        answers: Returned first, one a request.
        say: From the last message to an answer.
    """

    def __init__(self, answers: Sequence[Answer] = (), say: Callable[[str], str] = lambda _: "stay") -> None:
        super().__init__()
        self._answers, self._say = list(answers), say

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """The request bodies, parsed."""
        return [json.loads(request.body) for request in self.requests]

    def answer(self, request: Request) -> Answer:
        if request.path != "/v1/chat/completions":
            return Answer(404, b'{"error": {"message": "no such path"}}', {"Content-Type": "application/json"})
        with self._lock:
            if self._answers:
                return self._answers.pop(0)
        return completion(self._say(json.loads(request.body)["messages"][-1]["content"]))
