"""The forker: the process that forks the children of a supervisor, and never hears of evaluations.

A child is a copy of the process that forks it, freed memory included, and code can read all of it. Were that process
the supervisor, a run with true labels could leave a message in its own memory use or CPU time, and a later rehearsal
could read it there. So the supervisor sends this process sockets for children, and gets their ids and their ends back.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import socket
import struct
import sys
import traceback
from collections import deque
from collections.abc import Collection
from enum import IntEnum
from typing import NamedTuple, NoReturn

from lang_envs.sandbox.confinement.layers import Layer, Prepared
from lang_envs.sandbox.confinement.privileges import close_other_files, die_with_parent
from lang_envs.sandbox.worker import serve_one

_LONGEST_WAIT = 30
"""Longest wait in seconds for a fork."""


class _Time(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("micros", ctypes.c_int if sys.platform == "darwin" else ctypes.c_long))


class _Usage(ctypes.Structure):  # struct rusage
    _fields_ = (("user", _Time), ("system", _Time), ("peak", ctypes.c_long), ("others", ctypes.c_long * 13))


class _Kind(IntEnum):
    FORKED = 0
    REFUSED = 1
    ENDED = 2


class _Record(ctypes.Structure):
    """A message to the supervisor: the id of a child, and the errno of a fork or the status of an end."""

    _fields_ = (("kind", ctypes.c_int), ("pid", ctypes.c_int), ("status", ctypes.c_int), ("usage", _Usage))


_SIZE = ctypes.sizeof(_Record)


class Ended(NamedTuple):
    """The end of a child.

    Attributes:
        pid: Process id of the child.
        status: Wait status, as `os.wait4` returns it.
        cpu_seconds: User and system CPU time.
        peak_rss: Largest resident memory in bytes.
    """

    pid: int
    status: int
    cpu_seconds: float
    peak_rss: int


class Forker:
    """The supervisor's side. The process is a child of the caller, forked now, and dies with it.

    Args:
        prepared: Resources for all children.
        without: Layers of confinement to leave out, for the ablation test only.
    """

    def __init__(self, prepared: Prepared, without: Collection[Layer]) -> None:
        self.socket, child_socket = socket.socketpair()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", _LONGEST_WAIT, 0))
        self._ended: deque[Ended] = deque()
        parent = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                _serve(child_socket, parent, prepared, without)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(70)
        child_socket.close()

    def fork(self, control: socket.socket) -> int:
        """Let the forker fork a child, and return the process id of the child.

        Args:
            control: Child's end of the socket for its task.

        Raises:
            OSError: If the system refuses the fork.
            EOFError: If the forker is gone, or stuck.
        """
        socket.send_fds(self.socket, [b"f"], [control.fileno()])
        try:
            while (record := self._read()).kind == _Kind.ENDED:
                self._ended.append(_as_ended(record))
        except BlockingIOError:
            raise EOFError("the forker is stuck") from None
        if record.kind == _Kind.REFUSED:
            raise OSError(record.status, os.strerror(record.status))
        return int(record.pid)

    @property
    def has_ended(self) -> bool:
        """Whether an end has been read that `ended` has not returned yet."""
        return bool(self._ended)

    def ended(self) -> list[Ended]:
        """Return the children that have ended since the last call.

        Raises:
            EOFError: If the forker is gone.
        """
        with contextlib.suppress(ChildProcessError):  # orphans: without seccomp, code may start processes
            while pid := os.waitpid(-1, os.WNOHANG)[0]:
                if pid == self._pid:
                    raise EOFError("the forker is gone")
        with contextlib.suppress(BlockingIOError):
            while True:
                self._ended.append(_as_ended(self._read(socket.MSG_DONTWAIT)))
        ended = list(self._ended)
        self._ended.clear()
        return ended

    def close(self) -> None:
        """Wait until all children, which the caller has killed, and the process itself have ended."""
        self.socket.close()
        os.waitpid(self._pid, 0)

    def _read(self, flags: int = 0) -> _Record:
        data = self.socket.recv(_SIZE, flags)
        if 0 < len(data) < _SIZE:
            data += self.socket.recv(_SIZE - len(data), socket.MSG_WAITALL)
        if len(data) < _SIZE:
            raise EOFError("the forker is gone")
        return _Record.from_buffer_copy(data)


def _as_ended(record: _Record) -> Ended:
    usage = record.usage
    cpu = sum(time.seconds + time.micros / 1e6 for time in (usage.user, usage.system))
    return Ended(record.pid, record.status, cpu, usage.peak * (1 if sys.platform == "darwin" else 1024))


def _serve(supervisor: socket.socket, parent_pid: int, prepared: Prepared, without: Collection[Layer]) -> NoReturn:
    """Fork a child for every byte that arrives, with the socket beside it; end with the supervisor.

    Exit status and usage of a child are the work of its code. They pass from the kernel to the socket in one buffer,
    which is cleared, and never become Python objects, whose memory the next child would inherit.
    """
    die_with_parent(parent_pid)
    kept = {0, 1, 2, supervisor.fileno()}
    close_other_files(kept if prepared.ruleset is None else {*kept, prepared.ruleset})
    wait4 = ctypes.CDLL(None).wait4
    record, own_pid = _Record(), os.getpid()
    status, usage = (ctypes.byref(record, getattr(_Record, name).offset) for name in ("status", "usage"))

    def send() -> None:
        with contextlib.suppress(BrokenPipeError):  # the end of the supervisor is seen below
            supervisor.sendall(record)
        ctypes.memset(ctypes.byref(record), 0, _SIZE)

    wake, wake_end = socket.socketpair()
    wake.setblocking(False)
    wake_end.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(wake_end.fileno(), warn_on_full_buffer=False)
    while True:
        ready, _, _ = select.select([supervisor, wake], [], [])
        if wake in ready:
            wake.recv(4096)
        while (pid := wait4(-1, status, os.WNOHANG, usage)) > 0:
            record.kind, record.pid = _Kind.ENDED, pid
            send()
        if supervisor not in ready:
            continue
        data, files, _, _ = socket.recv_fds(supervisor, 1, 1)
        if not data:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            while wait4(-1, status, 0, usage) > 0:
                pass
            os._exit(0)
        control = socket.socket(fileno=files[0])
        record.kind = _Kind.FORKED
        try:
            record.pid = os.fork()
        except OSError as error:
            record.kind, record.status = _Kind.REFUSED, error.errno or 0
        if record.kind == _Kind.FORKED and record.pid == 0:
            serve_one(control, own_pid, prepared, without)
        control.close()
        send()
