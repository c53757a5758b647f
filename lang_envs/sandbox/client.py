"""The environment's side: send the splits of an evaluation out, and validate the answers.

Labels to score with never come here: a `Task` holds a training half and the features of the test half.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import selectors
import signal
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, Literal, NamedTuple

from numpy.typing import NDArray

from lang_envs.errors import install_command
from lang_envs.sandbox.confinement.layers import Layer
from lang_envs.sandbox.errors import SandboxError, SandboxUnavailableError, SandboxWarning, fix_of
from lang_envs.sandbox.protocol import MAX_TASKS, Channel, Message, anonymous_file, parse_array
from lang_envs.sandbox.rendezvous import Place, connect, end_stuck_supervisor
from lang_envs.sandbox.worker import REPORT_HEAD, Task, write_task

__all__ = ["Answer", "Confining", "End", "Limits", "Sandbox"]

_START_SECONDS = 120.0
"""Longest wait in seconds for a supervisor that is being started."""
_HELLO_SECONDS = 20.0
"""Longest wait in seconds for a supervisor that was running already."""
_SILENCE_SECONDS = 30.0
"""Longest time in seconds that a supervisor may take to answer; it is pinged after as long without a message."""
_MAX_REPORT = 8 << 20
"""Maximum number of bytes of a report beyond those of probabilities of the right shape."""
_MAX_HEADER = 1 << 17
"""Maximum number of bytes of a report's header: message and output at their bounds, every character escaped."""
_N_TRIES = 3
"""Number of tries: one, one after a death, and one more, as the cause may have killed the next child too."""
_REQUIRED_LAYERS = {Layer.LANDLOCK.value, Layer.SECCOMP.value}

Confining = Literal["auto", "require"]


class Limits(NamedTuple):
    """Limits of one evaluation.

    Attributes:
        time_limit: CPU seconds of all its splits together, and as many seconds that they may be asleep or wait for
            anything but a core, together too. With the cores to itself, an evaluation ends within twice the limit.
        memory_bytes: Address space of a split, beyond that of a process with the libraries loaded.
    """

    time_limit: float = 30.0
    memory_bytes: int = 1 << 30


class End(StrEnum):
    """How a split ended, as the supervisor saw it."""

    EXIT = "exit"
    SIGNAL = "signal"
    TIME = "time"
    CANCELLED = "cancelled"
    LOST = "lost"


class Answer(NamedTuple):
    """Outcome of one split.

    Attributes:
        end: End of the process, as the supervisor reports it.
        code: Exit code or signal of the process.
        header: Report of the child (`error`, `message`, `line`, `stdout`), from untrusted code; None if it cannot be
            read.
        probabilities: Array that the child reported, not yet checked.
        cpu_seconds: CPU time used.
        wall_seconds: Wall time from the start of the split to its end.
        peak_rss: Largest resident memory in bytes, the libraries included.
        n_bytes: Length of the report in bytes.
    """

    end: End
    code: int = 0
    header: dict[str, Any] | None = None
    probabilities: NDArray[Any] | None = None
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    peak_rss: int = 0
    n_bytes: int = 0

    @property
    def worked(self) -> bool:
        """Whether the code ran to its end and answered with an array."""
        return self.end is End.EXIT and self.code == 0 and self.probabilities is not None


class Sandbox:
    """Runs agents' code, split by split, in processes of the shared supervisor. Threads may share one.

    Args:
        place: Place of the supervisor; the default is shared by all environments of the user.
        confinement: `"auto"`: warn where code is not kept from files and network; `"require"`: refuse to run it.

    Raises:
        SandboxError: From `run` and `about`, if the supervisor cannot be started or the machine's limits are too low.
        SandboxUnavailableError: From `run` and `about`, if `confinement` asks for more than this machine has.
    """

    def __init__(self, place: Place = Place(), confinement: Confining = "auto") -> None:  # noqa: B008 - immutable
        self.place, self.confinement = place, confinement
        self.is_confined = True
        """Whether the last supervisor had the layers that keep code from files and network; True before the first."""
        self._idle: list[_Connection] = []
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def run(self, tasks: Sequence[Task], limits: Limits) -> list[Answer]:
        """Run the tasks of one evaluation, concurrently as cores and the labels that they hold allow.

        When one fails, those after it are cancelled and those before it are awaited, so that the first failure does
        not depend on speed.

        Returns:
            One answer for each task; `End.LOST` where supervisor or children died every time.
        """
        if len(tasks) > MAX_TASKS:
            raise SandboxError(
                f"Expected at most {MAX_TASKS} splits in an evaluation; got {len(tasks)}. Fix: evaluate them in parts."
            )
        for _ in range(_N_TRIES):
            try:
                with self._connection() as connection:
                    answers = connection.run(tasks, limits)
            except (OSError, EOFError, ValueError) as error:  # the supervisor is gone or broken
                self.close()  # other connections were to the same one
                if isinstance(error, OSError) and fix_of(error):  # no, it is this process that lacks something
                    raise SandboxError(f"Expected to run code in the sandbox; got {error}. {fix_of(error)}") from error
                continue
            if not any(_was_killed(answer) for answer in answers):
                return answers
        return [Answer(End.LOST) for _ in tasks]

    def about(self) -> Message:
        """Return the supervisor's description of itself: `pid`, `layers` and `namespaces`."""
        with self._connection() as connection:
            return connection.hello

    def close(self) -> None:
        """Close the connections; the supervisor ends with its last connection."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    @contextmanager
    def _connection(self) -> Iterator[_Connection]:
        if self._pid != os.getpid():
            self._forget_parent()
        with self._lock:
            idle = self._idle.pop() if self._idle else None
        connection = idle or self._connect()
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        with self._lock:
            self._idle.append(connection)

    def _forget_parent(self) -> None:
        """Forget connections after a fork: they are the parent's, and another of its threads may have held the lock."""
        self._lock = threading.Lock()
        idle, self._idle, self._pid = self._idle, [], os.getpid()
        for connection in idle:
            connection.close()

    def _connect(self) -> _Connection:
        """Open a connection; warn or raise where layers are missing that keep code from files and network."""
        try:
            connection = _Connection(self.place)
        except SandboxError:  # it has died, or ended with its last client, as we came
            connection = _Connection(self.place)
        missing = sorted(_REQUIRED_LAYERS - set(connection.hello["layers"]))
        self.is_confined = not missing
        if not missing:
            return connection
        message = (
            f"Expected Landlock and seccomp to confine code; got a machine without {' and '.join(missing)}: code may "
            "get at this user's files or the network. Fix: Linux 5.13 or later; see lang-envs sandbox doctor."
        )
        if self.confinement == "require":
            connection.close()
            raise SandboxUnavailableError(message)
        warnings.warn(message, SandboxWarning, stacklevel=2)
        return connection

    def __getstate__(self) -> dict[str, Any]:
        return {"place": self.place, "confinement": self.confinement}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def __del__(self) -> None:
        if getattr(self, "_idle", None):
            self.close()


def _was_killed(answer: Answer) -> bool:
    """Return whether something from outside (the kernel short of memory, a person) ended the process, not its code."""
    return answer.end is End.SIGNAL and answer.code == signal.SIGKILL


class _Connection:
    """One conversation with the supervisor; one evaluation at a time."""

    def __init__(self, place: Place) -> None:
        connection, stderr = connect(place)
        self._channel = Channel(connection)
        self._number = 0
        connection.settimeout(_START_SECONDS if stderr is not None else _HELLO_SECONDS)
        try:
            (hello,) = self._messages()
            self.hello: Message = hello["hello"]
        except SandboxError:
            self._channel.close()
            raise
        except (OSError, EOFError, ValueError) as error:
            self._channel.close()
            if isinstance(error, TimeoutError):
                end_stuck_supervisor(place)
            got = f"{type(error).__name__}: {_read_all(stderr)[-2000:].strip()}"
            fix = "" if "Fix:" in got else f" Fix: {install_command('datasci')}, then lang-envs sandbox doctor."
            raise SandboxError(f"Expected the sandbox's supervisor to start; got {got}{fix}") from error
        finally:
            if stderr is not None:
                os.close(stderr)

    def close(self) -> None:
        self._channel.close()

    def run(self, tasks: Sequence[Task], limits: Limits) -> list[Answer]:
        self._number += 1
        held = [(task.table, task.labels) for task in tasks]
        who = {"evaluation": self._number, "process": os.getpid(), "thread": threading.get_native_id()}
        request = {**who, "limits": _as_message(limits), "held": held}
        self._channel.send(request)
        with selectors.DefaultSelector() as selector, contextlib.ExitStack() as opened:
            selector.register(self._channel, selectors.EVENT_READ)
            self._await_admission(selector)
            pipes = self._send_tasks(tasks, opened)
            for pipe in pipes:
                selector.register(pipe.read_end, selectors.EVENT_READ, pipe)
            return self._answers(selector, pipes)

    def _await_admission(self, selector: selectors.BaseSelector) -> None:
        """Wait for admission, before any file of the tasks is open."""
        while True:
            self._wait(selector)
            if any(message.get("admitted") == self._number for message in self._messages()):
                return

    def _send_tasks(self, tasks: Sequence[Task], opened: contextlib.ExitStack) -> list[_Pipe]:
        pipes: list[_Pipe] = []
        passed: list[int] = []
        for task in tasks:
            pipes.append(_Pipe(_MAX_REPORT + 8 * len(task.x_test) * (int(task.y_train.max(initial=0)) + 1)))
            opened.callback(pipes[-1].close)
            passed += [anonymous_file("task"), pipes[-1].write_end]
            opened.callback(os.close, passed[-2])
            write_task(task, passed[-2])
        self._channel.send({"files": self._number}, passed)
        for pipe in pipes:
            pipe.close_write_end()
        return pipes

    def _answers(self, selector: selectors.BaseSelector, pipes: list[_Pipe]) -> list[Answer]:
        answers: list[Answer | None] = [None] * len(pipes)
        while any(answer is None for answer in answers):
            for key in self._wait(selector):
                if key.data is None:
                    self._note(answers, pipes)
                elif not key.data.drain():
                    selector.unregister(key.data.read_end)
        return [answer for answer in answers if answer is not None]

    def _wait(self, selector: selectors.BaseSelector) -> list[selectors.SelectorKey]:
        """Wait for input. A supervisor that works, or makes us wait, answers a ping."""
        for _ in range(2):
            ready = selector.select(_SILENCE_SECONDS)
            if ready:
                return [key for key, _ in ready]
            self._channel.send({"ping": self._number})
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(self.hello["pid"], signal.SIGKILL)  # stopped or stuck: of no use to anybody
        raise TimeoutError("the supervisor says nothing")

    def _messages(self) -> list[Message]:
        messages = [message for message, _ in self._channel.receive()]
        for message in messages:
            if "refused" in message:
                raise SandboxError(message["refused"])
        return messages

    def _note(self, answers: list[Answer | None], pipes: list[_Pipe]) -> None:
        for message in self._messages():
            if message.get("evaluation") != self._number:
                continue
            split = int(message["split"])
            pipes[split].drain()
            answer = _answer(message, bytes(pipes[split].data))
            answers[split] = answer
            if not answer.worked and answer.end is not End.CANCELLED:
                self._channel.send({"cancel": self._number, "first_split": split + 1})


def _as_message(limits: Limits) -> Message:
    cpu_seconds = math.ceil(limits.time_limit) + 1
    return {"time_limit": limits.time_limit, "memory_bytes": limits.memory_bytes, "cpu_seconds": cpu_seconds}


def _answer(message: Message, data: bytes) -> Answer:
    header, probabilities = _parse(data)
    return Answer(
        End(message["end"]),
        int(message["code"]),
        header,
        probabilities,
        float(message.get("cpu", 0.0)),
        float(message.get("wall", 0.0)),
        int(message.get("peak_rss", 0)),
        len(data),
    )


def _parse(data: bytes) -> tuple[dict[str, Any] | None, NDArray[Any] | None]:
    """Parse the bytes that a child wrote, unchecked."""
    try:
        (length,) = REPORT_HEAD.unpack_from(data)
        if length > _MAX_HEADER:  # its objects could take twenty times its size
            return None, None
        header = json.loads(data[REPORT_HEAD.size : REPORT_HEAD.size + length])
        body = data[REPORT_HEAD.size + length :]
        if not isinstance(header, dict):
            return None, None
        return header, parse_array(body) if body else None
    except Exception:  # of json: ValueError, struct.error, RecursionError
        return None, None


class _Pipe:
    """Read the bytes of a child up to a bound; the rest is read and dropped."""

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self.read_end, self.write_end = os.pipe()
        os.set_blocking(self.read_end, False)
        self.data = bytearray()
        self._is_writable = True

    def drain(self) -> bool:
        """Read the available bytes; return False at the end of the stream."""
        while True:
            try:
                part = os.read(self.read_end, 1 << 20)
            except BlockingIOError:
                return True
            if not part:
                return False
            self.data += part[: self._bound - len(self.data)]

    def close_write_end(self) -> None:
        if self._is_writable:
            os.close(self.write_end)
            self._is_writable = False

    def close(self) -> None:
        self.close_write_end()
        os.close(self.read_end)


def _read_all(descriptor: int | None) -> str:
    if descriptor is None:
        return ""
    os.lseek(descriptor, 0, os.SEEK_SET)
    return os.read(descriptor, 1 << 16).decode(errors="replace")
