"""Fetches a table: starts the process that talks to the service, watches it, and lets one process at a time do so.

Nothing here runs unless somebody asks for a table that is not on this machine.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import pickle
import selectors
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import lang_envs
from lang_envs.datasets import clients, errors, store
from lang_envs.datasets.manifest import Manifest, Service
from lang_envs.errors import MissingExtraError, install_command

__all__ = ["Progress", "fetch", "fetch_by_hand", "is_reachable"]

DEFAULT_TIMEOUT = 30.0
"""Seconds without a byte after which a service counts as dead."""
_GRACE = 15.0
"""Seconds more until the process itself counts as dead: name servers, imports."""
_PREPARE_SECONDS = 600.0
"""For making arrays of a file; airlines as ARFF takes some ten seconds."""
_PROBE_SECONDS = 1.2
_POLL = 0.2
_RESUMABLE = {
    kind.__name__
    for kind in (errors.InterruptedFetchError, errors.OfflineError, errors.ServiceError, errors.TimedOutError)
}
_HOSTS = {Service.OPENML: "https://www.openml.org", Service.KAGGLE_DATASET: "https://api.kaggle.com"}


class Progress(NamedTuple):
    """How far a fetch is.

    Attributes:
        stage: `"waiting"` (for another process), `"fetching"`, `"again"` (after `detail`) or `"preparing"`.
        done: Bytes.
        total: Bytes; 0 if the service does not say.
        detail: What there is to say of it.
    """

    stage: str
    done: int = 0
    total: int = 0
    detail: str = ""


Watch = Callable[[Progress], None]


def fetch(
    wanted: Manifest,
    *,
    force: bool = False,
    timeout: float = DEFAULT_TIMEOUT,
    watch: Watch = lambda progress: None,
) -> store.Receipt:
    """Fetch a table from its service, unless it is here.

    Args:
        wanted: Its manifest.
        force: Fetch even if it is here.
        timeout: Seconds without a byte after which the service counts as dead.
        watch: Told how far it is.

    Raises:
        DataError: Of the kind of what went wrong; a table that was here before is still here.
        MissingExtraError: Without the client.
    """
    client = "openml" if wanted.service is Service.OPENML else "kaggle"
    if any(importlib.util.find_spec(package) is None for package in (client, "pandas")):
        raise MissingExtraError(
            f"Expected {client} and pandas, to fetch the {wanted.name} table; at least one is not installed. "
            f"Fix: `{install_command('data')}`."
        )
    with _partial_folder(wanted, watch) as (folder, lock):
        receipt = store.read_receipt(wanted.name)
        if receipt is not None and not force and store.is_whole(wanted):
            return receipt
        _run_client(wanted, folder, lock, timeout, watch)
        shutil.rmtree(folder, ignore_errors=True)
    receipt = store.read_receipt(wanted.name)
    if receipt is None:
        raise errors.StorageError(f"Expected the {wanted.name} table in {store.data_folder()}; something removed it.")
    return receipt


def fetch_by_hand(wanted: Manifest, file: Path) -> store.Receipt:
    """Keep a file that somebody downloaded: CSV, parquet, ARFF, or an archive from Kaggle with the file in it.

    Raises:
        DataError: If it is not the file, or cannot be kept; a table that was here before is still here.
    """
    try:
        if file.exists() and not file.is_file():  # looked at first: a pipe would be waited for
            raise OSError("no ordinary file")
        with file.open("rb") as opened:
            opened.read(1)
    except OSError as error:
        raise errors.DataMissingError(
            f"Expected a file to read at {str(file)!r}; got {error.strerror or error}. Fix: the path of the file that "
            f"you downloaded."
        ) from None
    with _partial_folder(wanted, lambda progress: None) as (folder, _):
        try:
            with store.storage_errors(store.data_folder()):
                if file.suffix.lower() == ".zip":
                    file = clients.unpack(file, wanted, folder)
                return store.install(wanted, file, store.Origin("by hand"))
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _partial_folder(wanted: Manifest, watch: Watch) -> Iterator[tuple[Path, int]]:
    """The folder of what has come so far, and an open lock file that makes it this process's own."""
    try:
        import fcntl
    except ImportError as error:  # Windows, where no code could be run on the table either
        raise errors.StorageError("Expected Linux or macOS, whose file locks this uses. Fix: WSL2.") from error
    base = store.data_folder() / ".partial"
    folder = base / wanted.name
    with store.storage_errors(store.data_folder()):
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(base / f"{wanted.name}.lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    watch(Progress("waiting", detail="another process is fetching it"))
                    time.sleep(_POLL)
            folder.mkdir(parents=True, exist_ok=True)  # the one before may have removed it
            yield folder, lock
        finally:
            os.close(lock)


# ---------------------------------------------------------------------- the process that talks


def _run_client(wanted: Manifest, folder: Path, lock: int, timeout: float, watch: Watch) -> None:
    order = clients.Order(wanted, str(folder), timeout, _running_openml())
    with tempfile.TemporaryDirectory(prefix="lang-envs-") as scratch, tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "lang_envs.datasets.clients"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            env={**os.environ, **_python_path(), **_quiet_environment(wanted, folder, Path(scratch))},
            pass_fds=(lock,),  # so that it keeps the folder to itself, should this process be killed
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            with contextlib.suppress(BrokenPipeError), process.stdin as stdin:
                pickle.dump(order, stdin)
            problem = _follow(process.stdout.fileno(), wanted, timeout, watch)
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
        if problem is None:
            said.seek(max(0, said.seek(0, os.SEEK_END) - 500))
            told = said.read().decode(errors="replace").strip() or f"exit code {process.returncode}"
            raise errors.DataError(f"Expected an answer of the process that fetches {wanted.name}; it died: {told}")
    kind, message = problem
    if kind and kind not in _RESUMABLE:
        shutil.rmtree(folder, ignore_errors=True)  # nothing of it is worth going on from
    if kind == MissingExtraError.__name__:
        raise MissingExtraError(message)
    if kind:
        raise errors.error_class(kind)(message)


def _follow(pipe: int, wanted: Manifest, timeout: float, watch: Watch) -> tuple[str, str] | None:
    """Pass events on until the process is done.

    Returns:
        Class name and message of the error, both empty if there was none; None if the process died.
    """
    patience, left = timeout + _GRACE, b""
    os.set_blocking(pipe, False)
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while selector.select(patience):
            chunk = os.read(pipe, 1 << 16)
            if not chunk:
                return None
            *lines, left = (left + chunk).split(b"\n")
            for event, content in map(json.loads, lines):
                if event == "error":
                    return content[0], content[1]
                if event == "done":
                    return "", ""
                if event == "preparing":
                    patience = _PREPARE_SECONDS
                watch(_progress(event, content))
    return errors.TimedOutError.__name__, (
        f"Expected the {wanted.name} table from {wanted.service.label}; nothing came for {patience:g} s. Fix: fetch "
        f"again, which goes on where this stopped, or with a longer --timeout."
    )


def _progress(event: str, content: Any) -> Progress:
    if event == "progress":
        return Progress("fetching", *content)
    return Progress(event, detail=str(content))


def _python_path() -> dict[str, str]:
    """The child runs this very package, and (by -P) nothing that lies in the working directory."""
    root = str(Path(lang_envs.__file__).parents[1])
    return {"PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH", ""))))}


def _home(otherwise: Path) -> Path:
    try:
        return Path.home()
    except RuntimeError:  # nobody's
        return otherwise


def _quiet_environment(wanted: Manifest, folder: Path, scratch: Path) -> dict[str, str]:
    """Variables that keep a client from making folders in the user's home; what is there, it still reads."""
    home = _home(scratch)
    config = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    if wanted.service is Service.OPENML:
        quiet = {"OPENML_CACHE_DIR": str(folder)}
        linux = sys.platform.startswith("linux")
        if linux and not (config / "openml").is_dir() and not (config / "config").exists():
            quiet["XDG_CONFIG_HOME"] = str(scratch)
        if not linux and not (home / ".openml").is_dir():
            quiet["HOME"] = str(scratch)
        return quiet
    chosen = os.environ.get("KAGGLE_CONFIG_DIR")
    folders = [Path(chosen)] if chosen else [home / ".kaggle", config / "kaggle"]
    return {} if any(one.is_dir() for one in folders) else {"KAGGLE_CONFIG_DIR": str(scratch)}


def _running_openml() -> dict[str, str]:
    """What the user has set in an `openml` of this process."""
    config = getattr(sys.modules.get("openml"), "config", None)
    return {} if config is None else {"server": config.server, "apikey": config.apikey}


# ---------------------------------------------------------------------- whether to try at all

_PROBE = """
import socket, sys
host, port, seconds, through = sys.argv[1:]
with socket.create_connection((host, int(port)), float(seconds)) as connection:
    if through:  # a proxy answers for itself; ask it for the service
        connection.sendall(f"CONNECT {through} HTTP/1.1\\r\\nHost: {through}\\r\\n\\r\\n".encode())
        sys.exit(connection.recv(64).split(b" ")[1:2] != [b"200"])
"""


def is_reachable(service: Service) -> bool:
    """Whether a connection to a service, or to the proxy before it, comes about within 1.2 s.

    Asked in a process of its own: a name server that does not answer cannot be interrupted from within.
    """
    try:
        parts, through = urlsplit(_address(service)), ""
        proxies = getproxies()
        proxy = proxies.get(parts.scheme) or proxies.get("all")
        if proxy and not proxy_bypass(parts.hostname or ""):
            if parts.scheme == "https" and "@" not in proxy:
                through = f"{parts.hostname}:{parts.port or 443}"
            parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        port = parts.port or (443 if parts.scheme == "https" else 80)
        command = [
            sys.executable,
            "-I",
            "-S",
            "-c",
            _PROBE,
            parts.hostname or "",
            str(port),
            str(_PROBE_SECONDS),
            through,
        ]
        done = subprocess.run(command, timeout=_PROBE_SECONDS, stderr=subprocess.DEVNULL, check=False)
    except (subprocess.TimeoutExpired, ValueError):
        return False
    return done.returncode == 0


def _address(service: Service) -> str:
    if service is not Service.OPENML:
        local = os.environ.get("KAGGLE_API_ENVIRONMENT") == "LOCALHOST"
        return "http://localhost" if local else _HOSTS[Service.KAGGLE_DATASET]
    return _running_openml().get("server") or _configured_openml() or _HOSTS[Service.OPENML]


def _configured_openml() -> str:
    """The server of the client's settings, for those who have a mirror; importing it to ask takes 1.5 s."""
    linux = sys.platform.startswith("linux")
    home = _home(Path(os.devnull))
    config = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config") / "openml"
    file = (config if linux else home / ".openml") / "config"
    with contextlib.suppress(OSError, UnicodeDecodeError):
        for line in file.read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition("=")
            if key.strip() == "server":
                return value.strip()
    return ""
