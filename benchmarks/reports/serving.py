"""Serve the HTML report of a folder on this machine, and build it again when files have changed."""

from __future__ import annotations

import hashlib
import sys
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from benchmarks.reports.folders import watched_files
from benchmarks.runner.errors import BenchmarkError
from lang_envs.errors import LangEnvsError
from poad_sb3.errors import PoadError

__all__ = ["LiveReport", "ReportServer"]

ADDRESS = "127.0.0.1"
_EVERY = 2.0

Build = Callable[[Path, str], bytes]


class LiveReport:
    """The page of a folder: built at the first request, and again when a file has changed.

    Args:
        folder: Folder with results files and trainings.
        build: Function from a folder and a version to the page; the page compares this version with `/version`.
        every: Minimum number of seconds between two looks at the files.
    """

    def __init__(self, folder: Path, build: Build, *, every: float = _EVERY) -> None:
        self._folder, self._build, self._every = folder, build, every
        self._lock = threading.Lock()
        self._looked = -float("inf")
        self._version = self._built = ""
        self._page = b""

    def version(self) -> str:
        """Return a text that changes with names, sizes and times of the files."""
        with self._lock:
            return self._look()

    def page(self) -> bytes:
        """Return the page of the files as they are now.

        Raises:
            BenchmarkError, LangEnvsError, PoadError: As `build` does.
        """
        with self._lock:
            version = self._look()
            if version != self._built:
                self._page = self._build(self._folder, version)
                self._built = version
            return self._page

    def _look(self) -> str:
        now = time.monotonic()
        if now - self._looked >= self._every:
            digest = hashlib.sha256()
            for path in watched_files(self._folder):
                state = path.stat()
                digest.update(f"{path}\0{state.st_size}\0{state.st_mtime_ns}\0".encode("utf-8", "surrogateescape"))
            self._version, self._looked = digest.hexdigest(), now
        return self._version


class ReportServer(ThreadingHTTPServer):
    """A server of one page, for browsers of this machine alone.

    It listens on the loopback address. A request has to name that address as its host: a page of the internet whose
    name was made to point here is refused. Paths are compared with two constants, never looked up on the disk.

    Args:
        report: Page to serve.
        port: Port; 0 for any free one.
    """

    daemon_threads = True

    def __init__(self, report: LiveReport, port: int = 0) -> None:
        self.report = report
        super().__init__((ADDRESS, port), _Handler)

    @property
    def address(self) -> str:
        """Address of the page."""
        return f"http://{ADDRESS}:{self.server_port}/"

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore a browser that has gone, as in every reload of a page that is still being sent."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]

    @property
    def hosts(self) -> tuple[str, ...]:
        """Accepted values of the Host header."""
        return f"{ADDRESS}:{self.server_port}", f"localhost:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: ReportServer
    timeout = 30  # seconds of silence of a client
    server_version, sys_version = "lang-envs", ""

    def do_GET(self) -> None:
        hosts = self.headers.get_all("Host", [])
        if len(hosts) != 1 or hosts[0].lower() not in self.server.hosts:
            self._answer(HTTPStatus.FORBIDDEN, b"This server answers browsers of its own machine.\n")
        elif self.path == "/":
            self._answer_page()
        elif self.path == "/version":
            self._answer_version()
        else:
            self._answer(HTTPStatus.NOT_FOUND, b"There is one page here: /\n")

    def _answer_version(self) -> None:
        try:
            self._answer(HTTPStatus.OK, self.server.report.version().encode("ascii"))
        except OSError:  # such as a file that vanished between listing and reading: the page asks again
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, b"A file has vanished.\n")

    def _answer_page(self) -> None:
        try:
            page = self.server.report.page()
        except (BenchmarkError, LangEnvsError, PoadError, OSError) as error:  # such as a file that is being copied
            text = f"{error}\n\nThis page tries again every 3 seconds.\n".encode("utf-8", "backslashreplace")
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, text, ("Refresh", "3"))
        else:
            self._answer(HTTPStatus.OK, page, kind="text/html")

    def _answer(self, status: HTTPStatus, content: bytes, *headers: tuple[str, str], kind: str = "text/plain") -> None:
        self.send_response(status)
        for name, value in (
            ("Content-Type", f"{kind}; charset=utf-8"),
            ("Content-Length", str(len(content))),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            ("X-Frame-Options", "DENY"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
            ("Referrer-Policy", "no-referrer"),
            *headers,
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Write no log."""
