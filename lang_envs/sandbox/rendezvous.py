"""Where environments find the supervisor, and who starts it.

The processes of one run that use the same libraries meet at one socket, in a folder that only their user can enter. A
run is named by the environment variable `LANG_ENVS_RUN`, set by importing `lang_envs` and inherited by processes:
another run, another checkout and another user have another socket. The first process listens there on the
supervisor's behalf and starts it, holding a lock meanwhile; the supervisor removes socket and lock when its last client
is gone. A crash leaves a dead socket; the next process replaces it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

from lang_envs.machine import n_cores
from lang_envs.sandbox.confinement.library_files import LIBRARIES
from lang_envs.sandbox.errors import SandboxError, SandboxUnavailableError, fix_of
from lang_envs.sandbox.meters import is_dead
from lang_envs.sandbox.protocol import anonymous_file

try:
    import fcntl
except ModuleNotFoundError as _error:
    raise SandboxUnavailableError(
        f"Expected a system with fork and file locks, to run code on; got {sys.platform}. Fix: Linux, macOS or WSL2."
    ) from _error

_PACKAGES = Path(__file__).parents[2]
"""Folder of this very package: the supervisor must not find another one."""
_CONNECT_SECONDS = 10.0
_BACKLOG = 1024
"""Maximum number of connections that wait to be accepted."""
_MAX_SOCKET_PATH = 100  # sun_path holds 108 bytes on Linux, 104 on macOS
_START = """
import json, sys, types
settings = json.loads(sys.argv[1])
sys.path[:] = settings["path"]
package = sys.modules["lang_envs"] = types.ModuleType("lang_envs")
package.__path__ = [settings["path"][0] + "/lang_envs"]
from lang_envs.sandbox.start import start_from_arguments
start_from_arguments(settings)
"""
"""Program of the process that becomes the supervisor. `lang_envs/__init__.py` is not run: it imports gymnasium."""

_ENVIRONMENT = {
    # one thread each: a fork of a process with OpenMP threads hangs, and splits share the cores anyway
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS"), "1"),
    "LOKY_MAX_CPU_COUNT": "1",
    "MALLOC_ARENA_MAX": "1",  # a thread's own arena would count as 128 MiB of address space
    "PYTHONHASHSEED": "0",  # results of code may depend on the order of a set of strings
    "PYTHONDONTWRITEBYTECODE": "1",
    "LANG": "C.UTF-8",
    "PATH": "/usr/bin:/bin",
}
_INHERITED_VARIABLES = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""Variables that help an interpreter to find its libraries, on clusters with modules for instance."""


class Place(NamedTuple):
    """Key of a supervisor: clients with equal keys share one.

    Attributes:
        cores: Number of children that run at a time; None for as many as there are cores.
        without: Layers of confinement to leave out, for the ablation test only.
        user: User id to become, for tests.
    """

    cores: int | None = None
    without: tuple[str, ...] = ()
    user: int | None = None


@cache
def library_versions() -> Mapping[str, str]:
    """Return the versions that a reward may depend on: Python's, and those of all packages that code may import."""
    versions = {"python": sys.version.split()[0], "machine": os.uname().machine}
    for name in (name.replace("_", "-") for name in LIBRARIES.values()):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "absent"
    return versions


def connect(place: Place) -> tuple[socket.socket, int | None]:
    """Connect to the supervisor; start one if there is none.

    Returns:
        The connection, and the descriptor of stderr of a supervisor started here.

    Raises:
        SandboxError: If other users can access the folder, or the supervisor cannot be started or does not answer.
    """
    path = _socket_path(place)
    try:
        with _locked(path.with_suffix(".lock")):
            connection = socket.socket(socket.AF_UNIX)
            try:
                _connect_in_turn(connection, path)
            except (ConnectionRefusedError, FileNotFoundError):  # no supervisor
                connection.close()
                path.unlink(missing_ok=True)
                return _start(path, place)
            except OSError:
                connection.close()
                raise
            return connection, None
    except OSError as error:
        raise SandboxError(
            f"Expected to meet the sandbox's supervisor at {path}; got {error}. "
            f"{fix_of(error) or 'Fix: set XDG_RUNTIME_DIR to a folder of yours.'}"
        ) from error


def _connect_in_turn(connection: socket.socket, path: Path) -> None:
    """Connect, when those that wait to be accepted leave room."""
    connection.settimeout(_CONNECT_SECONDS)
    until = time.monotonic() + _CONNECT_SECONDS
    while True:
        try:
            return connection.connect(str(path))
        except BlockingIOError:  # the queue is full, not a sign of death
            if time.monotonic() > until:
                raise TimeoutError("no answer") from None
            time.sleep(0.01)


def end_stuck_supervisor(place: Place) -> None:
    """Kill a supervisor that listens but does not answer (stopped or stuck), so that another can be started."""
    with contextlib.suppress(OSError, ValueError):
        pid = int(_socket_path(place).with_suffix(".lock").read_text())
        if b"start_from_arguments" in Path(f"/proc/{pid}/cmdline").read_bytes():  # ids are used again
            os.kill(pid, signal.SIGKILL)
            until = time.monotonic() + _CONNECT_SECONDS
            while not is_dead(pid) and time.monotonic() < until:  # until then somebody listens at its socket
                time.sleep(0.01)


def _socket_path(place: Place) -> Path:
    run = os.environ.get("LANG_ENVS_RUN", "")
    name = hashlib.sha256(json.dumps([run, place, sys.executable, str(_PACKAGES), dict(library_versions())]).encode())
    return _folder() / f"{name.hexdigest()[:16]}.sock"


def _folder() -> Path:
    problems = []
    for base in filter(None, (os.environ.get("XDG_RUNTIME_DIR"), os.environ.get("TMPDIR"), "/tmp", "/var/tmp")):
        folder = Path(base, f"lang-envs-{os.getuid()}")
        if len(str(folder)) + 22 > _MAX_SOCKET_PATH:
            problems.append(f"{base}: too long for a socket's path")
            continue
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:  # not ours to write in, as often after su
            problems.append(f"{base}: {error.strerror}")
            continue
        about = folder.lstat()
        if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid() or about.st_mode & 0o077:
            raise SandboxError(
                f"Expected {folder} to be a folder that only user {os.getuid()} can enter; got mode "
                f"{stat.filemode(about.st_mode)} of user {about.st_uid}. Fix: remove it, or set XDG_RUNTIME_DIR."
            )
        return folder
    raise SandboxError(
        f"Expected a folder for the sandbox's socket; got {', '.join(problems)}. "
        "Fix: set XDG_RUNTIME_DIR to a folder with a short path and some space that you can write to."
    )


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    while True:
        with path.open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not _is_at(path, lock.fileno()):  # a supervisor that ended has removed it
                continue
            yield
            return


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _start(path: Path, place: Place) -> tuple[socket.socket, int]:
    stderr = anonymous_file("supervisor-stderr")
    try:
        with contextlib.ExitStack() as opened:
            listener = opened.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(str(path))
            listener.listen(_BACKLOG)
            # Of its own: a lock belongs to who has opened the file, and ours is held by us.
            lock = opened.enter_context(path.with_suffix(".lock").open("a"))
            folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
            opened.callback(os.close, folder)
            _launch((listener.fileno(), folder, lock.fileno()), path.name, place, stderr)
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(str(path))  # also while we listen: only an answer proves another supervisor
    except OSError:
        os.close(stderr)
        raise
    return connection, stderr


def _launch(meeting: tuple[int, int, int], socket_name: str, place: Place, stderr: int) -> None:
    """Run the process that forks the supervisor to its end, so that there is no child to wait for."""
    options = {
        "socket_name": socket_name,
        "cores": place.cores or n_cores(),
        "without": place.without,
        "user": place.user,
    }
    settings = {"meeting": meeting, "path": [str(_PACKAGES), *filter(None, sys.path)], "options": options}
    subprocess.Popen(
        # -P: no module of the current folder; -S: none that a .pth file in site-packages imports.
        [sys.executable, "-P", "-S", "-c", _START, json.dumps(settings)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        env={**_ENVIRONMENT, **{name: os.environ[name] for name in _INHERITED_VARIABLES if name in os.environ}},
        pass_fds=meeting,
        start_new_session=True,
    ).wait()
