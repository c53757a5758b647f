"""A server on the loopback interface that plays a service: it records requests, and fails on demand.

    with OpenmlStandIn(datasets={1169: table}) as server:
        server.fail(Cut(after=1000), path=".pq")
        ...  # a child process under server.environment(home) fetches
        assert [request.status for request in server.requests] == [200, 200, 200]

It also is the proxy of its children, so that their requests to any other host arrive here (and are refused): `strays`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import SplitResult, urlsplit

__all__ = ["Answer", "Corrupt", "Cut", "Fault", "Hang", "Request", "Slow", "StandIn", "Status", "serve_bytes"]

_MODIFIED = "Tue, 04 Mar 2025 05:06:07 GMT"
_PIECE_SECONDS = 0.05
_BLOCK_BYTES = 65_536
_PRIVATE = (
    "hf_",
    "huggingface_",
    "hugging_face_",
    "kaggle_",
    "openml_",
    "xdg_cache_home",
    "xdg_config_home",
    "netrc",
    "verbose",
)
"""How variables begin that hold credentials or settings of the real clients."""


class Cut(NamedTuple):
    """The whole length is declared, the first `after` bytes of a longer body are sent, and the connection ends.

    It ends with FIN, so that all of these bytes arrive.
    """

    after: int


class Status(NamedTuple):
    """Another answer than the right one."""

    code: int
    body: bytes = b""
    content_type: str = "text/plain"


class Hang(NamedTuple):
    """Wait for `seconds` without an answer, then end the connection. With 0 it just ends."""

    seconds: float = 3600.0


class Slow(NamedTuple):
    """The body comes at `bytes_per_second`."""

    bytes_per_second: int


class Corrupt(NamedTuple):
    """The byte in the middle of the body is another."""

    def applied(self, body: bytes) -> bytes:
        """The body with that byte changed."""
        changed = bytearray(body)
        changed[len(body) // 2] ^= 1
        return bytes(changed)


Fault = Cut | Status | Hang | Slow | Corrupt


@dataclass
class Request:
    """A request, and its outcome.

    `headers` have names in lower case. `status` is 0 until the answer begins. `n_sent` counts the body's bytes that
    were handed to the connection; a client that leaves early need not have read them.
    """

    method: str
    url: SplitResult
    headers: Mapping[str, str]
    body: bytes
    status: int = 0
    n_sent: int = 0

    @property
    def host(self) -> str:
        """Host, with the port if one was given."""
        return self.url.netloc

    @property
    def path(self) -> str:
        """Path, without the query."""
        return self.url.path


class Answer(NamedTuple):
    """An answer as the service means it, before faults. For HEAD the body is left out."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = {}


@dataclass
class _Order:
    """A fault, and the requests that it is for."""

    fault: Fault
    path: str
    method: str
    left: int | None
    used: bool = False

    def fits(self, request: Request, answer: Answer) -> bool:
        """Whether this answer can fail so."""
        if self.left == 0 or self.path not in request.url.geturl() or self.method not in ("", request.method):
            return False
        n_bytes = 0 if request.method == "HEAD" else len(answer.body)
        match self.fault:
            case Cut(after=after):
                return n_bytes > after
            case Slow() | Corrupt():
                return n_bytes > 0
        return True


class StandIn(ABC):
    """A service on the loopback interface, while the `with` block lasts.

    Attributes:
        requests: All requests, in order of arrival.
    """

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.errors: list[BaseException] = []
        self.stopping = threading.Event()
        self._orders: list[_Order] = []
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.stopping.set()
        self._server.stop()
        self._thread.join()
        if error is None and self.errors:
            raise self.errors[0]
        unused = [order.fault for order in self._orders if not order.used]
        if error is None and unused:
            raise AssertionError(f"Expected every fault to meet a request; got none for {unused}. Fix: its `path`.")

    @property
    def port(self) -> int:
        """Where it listens on 127.0.0.1."""
        return int(self._server.server_address[1])

    @property
    @abstractmethod
    def hosts(self) -> frozenset[str]:
        """The hosts it plays."""

    @property
    def strays(self) -> list[Request]:
        """Requests to other hosts."""
        return [request for request in self.requests if request.host not in self.hosts]

    @abstractmethod
    def answer(self, request: Request) -> Answer:
        """Answer a request for one of its hosts."""

    def fail(self, fault: Fault, *, path: str = "", method: str = "", times: int | None = 1) -> None:
        """Let the next answers fail, each by the first fault that fits it.

        Args:
            fault: How. A `Cut`, `Slow` or `Corrupt` waits for an answer whose body it can be seen in.
            path: Part of the URLs it is for.
            method: The method it is for; "" for all.
            times: For how many answers; None for all that come.

        Raises:
            AssertionError: At the end of the `with` block, for a fault that no request met.
        """
        self._orders.append(_Order(fault, path, method, times))

    def environment(self, home: Path) -> dict[str, str]:
        """Environment of a child process without the user's settings, with this server as the proxy for all hosts."""
        proxies = {
            spelt: value
            for name, value in {"HTTP_PROXY": self.proxy, "HTTPS_PROXY": self.proxy, "NO_PROXY": ""}.items()
            for spelt in (name, name.lower())
        }
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.lower().startswith(_PRIVATE) and not name.lower().endswith("_proxy")
        }
        home.mkdir(parents=True, exist_ok=True)
        return {**kept, **proxies, "HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config")}

    @property
    def proxy(self) -> str:
        """URL of the server itself; it takes requests for any host there."""
        return f"http://127.0.0.1:{self.port}"

    def next_fault(self, request: Request, answer: Answer) -> Fault | None:
        """The fault for this answer, if any; it counts as used."""
        with self._lock:
            for order in self._orders:
                if order.fits(request, answer):
                    order.used = True
                    order.left = None if order.left is None else order.left - 1
                    return order.fault
        return None


class _Server(ThreadingHTTPServer):
    """Threads that can be stopped: it knows their connections."""

    daemon_threads = False

    def __init__(self, stand_in: StandIn) -> None:
        self.stand_in = stand_in
        self._connections: set[socket.socket] = set()
        super().__init__(("127.0.0.1", 0), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exc_info()[1]
        if error is not None and not isinstance(error, ConnectionError):  # a client may leave when it likes
            self.stand_in.errors.append(error)

    def stop(self) -> None:
        self.shutdown()
        for connection in list(self._connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self.server_close()  # waits for the threads


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def respond(self) -> None:
        stand_in = self.server.stand_in
        request = self._read()
        stand_in.requests.append(request)
        if request.host in stand_in.hosts:
            answer = stand_in.answer(request)
        else:
            answer = Answer(502, b"This stand-in plays another host.")
        fault = stand_in.next_fault(request, answer)
        match fault:
            case Hang(seconds=seconds):
                stand_in.stopping.wait(seconds)
                self._hang_up()
            case Status(code=code, body=body, content_type=content_type):
                self._send(request, Answer(code, body, {"Content-Type": content_type}), None)
            case _:
                self._send(request, answer, fault)

    def _read(self) -> Request:
        headers = {name.lower(): value for name, value in self.headers.items()}
        target = f"//{self.path}" if self.command == "CONNECT" else self.path
        url = urlsplit(target)
        if not url.netloc:
            url = url._replace(scheme="http", netloc=headers.get("host", ""))
        return Request(self.command, url, headers, self.rfile.read(int(headers.get("content-length", 0))))

    def _send(self, request: Request, answer: Answer, fault: Fault | None) -> None:
        body = fault.applied(answer.body) if isinstance(fault, Corrupt) else answer.body
        request.status = answer.status
        self.send_response(answer.status)
        for name, value in {**answer.headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if request.method == "HEAD":
            return
        if isinstance(fault, Slow):
            self._drip(request, body, fault.bytes_per_second)
        elif isinstance(fault, Cut):
            self._write(request, body[: fault.after])
            self._hang_up()
        else:
            self._write(request, body)

    def _write(self, request: Request, data: bytes) -> None:
        for start in range(0, len(data), _BLOCK_BYTES):
            block = data[start : start + _BLOCK_BYTES]
            request.n_sent += len(block)  # before it is sent: who has it all may look at once
            self.wfile.write(block)

    def _drip(self, request: Request, body: bytes, bytes_per_second: int) -> None:
        size = max(1, int(bytes_per_second * _PIECE_SECONDS))
        for start in range(0, len(body), size):
            self._write(request, body[start : start + size])
            if self.server.stand_in.stopping.wait(size / bytes_per_second):
                self._hang_up()
                return

    def _hang_up(self) -> None:
        self.close_connection = True
        self.rfile.close()  # it shares the socket, and the last user closes it
        self.connection.close()

    def log_message(self, format: str, *args: Any) -> None:
        """Do not log."""


for _method in ("GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT"):
    setattr(_Handler, f"do_{_method}", _Handler.respond)


def serve_bytes(request: Request, body: bytes, content_type: str) -> Answer:
    """A file as a storage service answers for it: ETag, ranges, conditions.

    Args:
        request: Its headers Range (one range), If-Range and If-Match are kept to.
        body: The whole file.
        content_type: Its media type.
    """
    tag = f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"'
    headers = {"Content-Type": content_type, "ETag": tag, "Last-Modified": _MODIFIED, "Accept-Ranges": "bytes"}
    if request.headers.get("if-match", tag).strip('"') not in ("*", tag.strip('"')):
        return Answer(412, b"", headers)
    chosen = request.headers.get("range", "")
    if not chosen.startswith("bytes=") or request.headers.get("if-range", tag) not in (tag, _MODIFIED):
        return Answer(200, body, headers)
    first, _, last = chosen.removeprefix("bytes=").partition("-")
    start = int(first) if first else max(0, len(body) - int(last))
    end = min(int(last) + 1, len(body)) if first and last else len(body)
    if start >= end:
        return Answer(416, b"", {**headers, "Content-Range": f"bytes */{len(body)}"})
    return Answer(206, body[start:end], {**headers, "Content-Range": f"bytes {start}-{end - 1}/{len(body)}"})


class LoopbackStandIn(StandIn):
    """A server that its client addresses by `url`, instead of a service that is reached through a proxy."""

    @property
    def hosts(self) -> frozenset[str]:
        return frozenset({f"127.0.0.1:{self.port}"})

    @property
    def url(self) -> str:
        """Base of its addresses."""
        return f"{self.proxy}/v1"
