"""Connections to Ray: a cluster of this machine that ends without a trace, or an existing cluster."""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import logging
import os
import secrets
import shutil
import socket
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lang_envs.errors import missing_extra
from lang_envs.machine import n_cores
from poad_sb3.errors import WorkerError

__all__ = ["RayConnection", "local_settings"]

LOCAL = "local"
_LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Variable that must be 0 before `import ray` for Ray to listen on 127.0.0.1 only; measured with 2.60."""
_PREFIX = "le-ray-"
_LONGEST_FOLDER = 45
"""Maximum length of Ray's folder: its sockets lie in it, and the path of a socket has at most 107 bytes."""
_CONNECT_SECONDS = 20.0
_OBJECT_STORE_BYTES = 100 << 20
_REGISTER_SECONDS = 600
"""Longest start of a process. After Ray's own 60 s it kills and repeats the start, on a busy machine without an end."""
_MAX_REBUILDS = 3
"""Maximum number of times that an actor is made again without an answer in between."""

_log = logging.getLogger(__name__)


class RayConnection:
    """Connection of this process to Ray, shared by all its environments.

    `"local"` starts a cluster of this machine, that listens on the loopback interface only, sends no usage statistics,
    and keeps logs, sockets and its token in a folder that no other user can enter. It ends, and the folder is removed,
    with the last connection or with the interpreter. Any other address is one of `ray.init`. A process that is
    connected to Ray already keeps its connection.

    Args:
        address: `"local"`, `"auto"` or the address of a cluster.

    Attributes:
        is_local: Whether the cluster belongs to this process alone.

    Raises:
        MissingExtraError: If Ray is not installed.
        WorkerError: If there is no cluster at the address, or none can be started.
    """

    _folder: Path | None = None
    """Folder of the local cluster of this process."""
    _n_open = 0
    """Number of open connections to the local cluster."""
    _token = ""
    """Token of all local clusters of this process: Ray keeps the first one that a process has used."""
    _before: Mapping[str, str | None] = {}
    """Variables of the user that the local cluster has replaced."""

    def __init__(self, address: str = LOCAL) -> None:
        if importlib.util.find_spec("ray") is None:
            raise missing_extra("scale", "Ray, which the extra 'scale' brings")
        self.is_local, self._is_open = False, True
        if "ray" in sys.modules and sys.modules["ray"].is_initialized():
            if RayConnection._folder is None:
                return  # of the caller, who ends it
        elif address != LOCAL:
            _join(address)
            return
        else:
            _start()
        self.is_local = True
        RayConnection._n_open += 1

    def close(self) -> None:
        """Close the connection; the last one to a local cluster ends it."""
        if self.is_local and self._is_open:
            RayConnection._n_open -= 1
            if RayConnection._n_open <= 0:
                _end()
        self._is_open = False


def local_settings(folder: Path, n_cpus: int) -> dict[str, Any]:
    """Return the arguments of `ray.init` for a cluster of this machine.

    Args:
        folder: Folder for its logs and sockets.
        n_cpus: Number of cores; as many sandboxes run at a time.
    """
    return {
        "address": LOCAL,
        "num_cpus": n_cpus,
        "resources": {"sandbox": n_cpus},
        "include_dashboard": False,
        "log_to_driver": False,
        "logging_level": "ERROR",
        "object_store_memory": _OBJECT_STORE_BYTES,
        "_temp_dir": str(folder),
        "_system_config": {"worker_register_timeout_seconds": _REGISTER_SECONDS},
    }


def _join(address: str) -> None:
    import ray

    try:
        host, colon, port = address.rpartition("://")[2].rpartition(":")
        if colon and port.isdecimal():  # Ray would try for minutes
            socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except Exception as error:  # ConnectionError, ValueError, and errors of gRPC and of authentication
        raise WorkerError(
            f"Expected a Ray cluster at {address!r}; got {type(error).__name__}: {first_line(error)}. "
            "Fix: start one with ray start; to join one of other machines, run ray start --address=... --num-cpus=0 on "
            "this machine first; if it asks for a token, copy its ~/.ray/auth_token to this machine and set "
            "RAY_AUTH_MODE=token; or --ray local."
        ) from error


def _start() -> None:
    if "ray" in sys.modules and not RayConnection._token and os.environ.get(_LOOPBACK) != "0":
        _log.warning("Ray was imported before and listens on all interfaces. Fix: set %s=0 first.", _LOOPBACK)
    folder = _make_folder()
    token = folder / "token"
    token.touch(mode=0o600)
    RayConnection._token = RayConnection._token or secrets.token_hex(32)
    token.write_text(RayConnection._token, encoding="ascii")
    variables = {_LOOPBACK: "0", "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_TOKEN_PATH": str(token)}
    RayConnection._before = {name: os.environ.get(name) for name in (*variables, "RAY_AUTH_MODE")}
    os.environ |= variables
    import ray

    RayConnection._folder = folder
    atexit.register(_end)  # before Ray's own, since it is registered later
    try:
        ray.init(**local_settings(folder / "r", n_cores()))  # Ray opens its own folder to everybody
    except Exception as error:
        _end()
        raise WorkerError(
            f"Expected Ray to start on this machine; got {type(error).__name__}: {first_line(error)}. "
            "Fix: free memory and disk space, or leave --ray out."
        ) from error


def _end() -> None:
    """End the local cluster, and remove its folder."""
    folder, RayConnection._folder, RayConnection._n_open = RayConnection._folder, None, 0
    if folder is None:
        return
    atexit.unregister(_end)
    import ray

    ray.shutdown()
    for name, value in RayConnection._before.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value
    shutil.rmtree(folder, ignore_errors=True)


def _make_folder() -> Path:
    bases = list(dict.fromkeys((tempfile.gettempdir(), "/tmp", "/var/tmp")))
    for base in bases:
        if len(base) + len(_PREFIX) + 9 <= _LONGEST_FOLDER:
            with contextlib.suppress(OSError):
                return Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
    raise WorkerError(
        f"Expected a folder with a path of at most {_LONGEST_FOLDER} characters for Ray's sockets; got none in "
        f"{', '.join(bases)}. Fix: set TMPDIR to a folder with a short path."
    )


def room(demand: Mapping[str, float]) -> int:
    """Return the number of actors with this demand that the living nodes hold together, busy or not.

    Args:
        demand: Amount of each resource that one actor takes.
    """
    import ray

    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    wanted = {name: amount for name, amount in demand.items() if amount > 0}
    if not wanted:
        return sys.maxsize if nodes else 0
    return sum(min(int(node.get(name, 0.0) / amount + 1e-9) for name, amount in wanted.items()) for node in nodes)


def check_room(
    n_actors: int, n_room: int, demand: Mapping[str, float], kind: str = "actors", option: str = "--n-actors"
) -> None:
    """Refuse more actors than there is room for: they would wait without a sign.

    Args:
        n_actors: Number of actors.
        n_room: Number of actors that there is room for, see `room`.
        demand: Amount of each resource that one actor takes.
        kind: Name of the actors in the error.
        option: Option that sets the number of actors.

    Raises:
        WorkerError: If there is room for fewer.
    """
    if n_room < n_actors:
        each = ", ".join(f"{amount:g} {name}" for name, amount in demand.items() if amount)
        raise WorkerError(
            f"Expected room for {n_actors} {kind} with {each} each; the cluster has room for {n_room}. "
            f"Fix: fewer {option}, or more nodes (for sandboxes: ray start --resources '{{\"sandbox\": CORES}}')."
        )


def launch_actor(
    kind: type,
    demand: Mapping[str, float],
    env_vars: Mapping[str, str] | None = None,
    arguments: Sequence[Any] = (),
    retries: int = 0,
) -> Any:
    """Start an actor.

    Args:
        kind: Class of the actor.
        demand: Amount of each resource that the actor takes.
        env_vars: Environment variables of the actor's process.
        arguments: Arguments of the class.
        retries: Number of times that Ray makes a lost actor again and repeats its calls; 0 for one with a state, which
            would be lost.
    """
    import ray

    rest = dict(demand)
    options = {
        "num_cpus": rest.pop("CPU", 0.0),
        "num_gpus": rest.pop("GPU", 0.0),
        "resources": rest,
        "max_restarts": retries,
        "max_task_retries": -1 if retries else 0,  # until there is no restart left; attempts in between count
        "scheduling_strategy": "SPREAD",
        "runtime_env": {"env_vars": {"LANG_ENVS_RUN": os.environ.get("LANG_ENVS_RUN", ""), **(env_vars or {})}},
    }
    return ray.remote(kind).options(**options).remote(*arguments)


def free_amounts(demand: Mapping[str, float]) -> str:
    """Return the amounts of resources that are free now, for an error."""
    import ray

    free = ray.available_resources()
    return ", ".join(f"{free.get(name, 0.0):g} {name}" for name in demand) or "no resource needed"


def cause_of_loss(error: BaseException) -> str:
    """Return the reason that Ray gives for the loss of an actor, in one line."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    text = " ".join(str(error).split())
    detail = text.partition("Worker exit detail: ")[2].partition(" Some common causes")[0].rstrip(".")
    return detail or first_line(error)


def get(answer: Any, seconds: float) -> Any:
    """Wait for the answer of an actor.

    An exception raised by the actor is raised unchanged.

    Args:
        answer: Reference to the answer.
        seconds: Longest wait, in seconds.

    Raises:
        ray.exceptions.RayError: If the actor is lost, or does not answer in time.
    """
    import ray

    try:
        return ray.get(answer, timeout=seconds)
    except ray.exceptions.RayError as error:
        if (cause := original(error)) is None:
            raise
        raise cause from error


def original(error: BaseException) -> Exception | None:
    """Return the exception that an actor raised, from Ray's error; None for a lost actor.

    Ray keeps only the text of an exception that cannot be pickled or loaded again.
    """
    import ray

    cause = getattr(error, "cause", None)
    if isinstance(cause, Exception) and not isinstance(cause, ray.exceptions.RayError):
        return cause
    if isinstance(error, ray.exceptions.RayTaskError | ray.exceptions.UnserializableException):
        text = str(cause or error)
        return RuntimeError(text.partition("Original exception:\n")[2] or text)
    return None


def note_loss(handle: Any, name: str, n_losses: int, error: Exception) -> None:
    """Kill a lost actor, and log its loss.

    Args:
        handle: Handle of the actor.
        name: Name of the actor, with its process and machine.
        n_losses: Number of times that it was lost without an answer in between, this one included.
        error: Error that Ray raised.

    Raises:
        WorkerError: If it was lost too often.
    """
    import ray

    ray.kill(handle, no_restart=True)  # a process that is stopped ends within seconds
    cause = cause_of_loss(error)
    _log.warning("%s was lost: %s.", name[0].upper() + name[1:], cause)
    if n_losses > _MAX_REBUILDS:
        raise WorkerError(
            f"Expected an answer of every actor; {name} was lost {n_losses} times without one in between ({cause}). "
            "Fix: look for its cause there, often too little memory; go on from a checkpoint."
        ) from error


def find_modules(path: Sequence[str]) -> None:
    """Let an actor find modules in the folders of another process, after those of its own.

    Args:
        path: Folders to search, see `module_path`.
    """
    sys.path += [folder for folder in path if folder not in sys.path]


def module_path() -> list[str]:
    """Return the folders of this process for `find_modules`."""
    return list(filter(None, sys.path))


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, without a stop at its end."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")[:300]
