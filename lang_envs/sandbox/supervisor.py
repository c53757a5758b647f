"""The supervisor: it gives every split to a confined child, and owns the children's deadlines.

It is shared by every environment of a run, in any process, so that `n_envs` environments hold one scikit-learn in
memory and run on the cores that there are. It never reads a task or an answer, has children forked by a process that
knows of no evaluation (see `forker`), and ends when its last client is gone.

Children wait, confined and ready, before there is work: the fork and most of the confinement are paid in advance.

Children that run at the same time can pass on information through the load of the processor. So those of one table
hold the same labels: one split of a table is open at a time, for the evaluations of all clients, and another
opens when the last child of it has ended.

Any number of evaluations may wait, and the processes of the clients take turns. A bounded number of tasks is admitted
at a time, and only then do their files come here: waiting costs neither descriptors nor any of a child's time.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import selectors
import signal
import socket
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from lang_envs.sandbox.confinement.layers import Layer, Prepared
from lang_envs.sandbox.errors import fix_of
from lang_envs.sandbox.forker import Forker
from lang_envs.sandbox.meters import cpu_seconds, is_runnable, waiting_seconds
from lang_envs.sandbox.protocol import Channel, Message

_N_READY = 6
"""Number of children that wait for work: one evaluation of the published protocol, and one to spare."""
_MAX_ADMITTED = 128
"""Maximum number of admitted tasks, with two files each; less where the limit on open files is low."""
_N_OTHER_FILES = 64
"""Number of descriptors for everything but clients and tasks."""
_TICK = 0.02
"""Seconds between two looks at the clocks of the children that run."""
_FIRST_CLIENT_SECONDS = 60.0
_PREFERRED_SHARE = 0.1
"""Share of the time limit for which a split may take tasks while an older evaluation waits for another split."""
_PAUSE = 0.1
"""Seconds until a fork that the system refused is tried again."""


_REFUSED_SECONDS = 5.0
"""Time in seconds that the system may refuse every fork before the clients get an error."""
_MAX_BROKEN = 20
"""Maximum number of children in a row that may end before they are ready."""
_TOO_MANY = (
    "Expected at most {} connections to the sandbox's supervisor; got one more. "
    "Fix: evaluate fewer programs at a time, or raise the limit on open files (ulimit -n)."
)
_TOO_LARGE = (
    "Expected at most {} splits in an evaluation, for the files that the supervisor may open; got {}. "
    "Fix: evaluate fewer splits at a time, or raise the limit on open files (ulimit -n)."
)
_BROKEN = (
    f"Expected the sandbox's children to get ready; got {_MAX_BROKEN} in a row that ended before. "
    "Fix: see lang-envs sandbox doctor, and the limits of this process (ulimit -a)."
)


class Options(NamedTuple):
    """How a supervisor is started.

    Attributes:
        socket_name: Name of the socket in its folder; removed when the supervisor ends.
        cores: Number of children that run at a time.
        without: Layers of confinement to leave out (`Layer` values), for the ablation test only.
        user: User id that the supervisor takes once its libraries are loaded, or None.
    """

    socket_name: str
    cores: int
    without: tuple[str, ...] = ()
    user: int | None = None


class Meeting(NamedTuple):
    """Where clients come from, opened before the supervisor gave up the right to open it.

    Attributes:
        listener: Socket that clients connect to.
        folder: Descriptor of the socket's folder.
        lock: Descriptor of the lock file, locked by a client about to connect, or by a supervisor about to end.
    """

    listener: socket.socket
    folder: int
    lock: int


@dataclass(eq=False)
class _Child:
    pid: int
    control: socket.socket
    outer_pid: int = 0
    cpu_before: float = 0.0
    started: float = 0.0
    waited_before: float = 0.0
    slept: float = 0.0
    task: _Task | None = None


@dataclass(eq=False)
class _Evaluation:
    """The tasks of one request share one budget of CPU time.

    Attributes:
        client: Channel of the client.
        process: Process id of the client.
        thread: Thread of that process; threads take turns with connections.
        number: Number that the client has given the evaluation.
        held: Table and labels of each task.
        limits: Limits of the evaluation.
        n_open: Number of tasks without an outcome.
        cpu_used: CPU seconds of the children that have ended.
        slept: Seconds that these were asleep, or waited for anything but a core.
        children: Children that run.
        ran_out_of_time: Whether it was ended for its CPU time or time asleep.
    """

    client: Channel
    process: int
    thread: int
    number: int
    held: list[tuple[str, str]]
    limits: dict[str, Any]
    n_open: int
    cpu_used: float = 0.0
    slept: float = 0.0
    children: list[_Child] = field(default_factory=list)
    ran_out_of_time: bool = False


@dataclass(eq=False)
class _Task:
    evaluation: _Evaluation
    split: int
    table: str
    labels: str  # name of the table's labels that it holds
    files: list[int]
    end: str | None = None  # why the supervisor ended it

    def close(self) -> None:
        while self.files:
            os.close(self.files.pop())


class Supervisor:
    """The event loop.

    Args:
        meeting: Meeting place of the clients.
        options: Options of the supervisor.
        prepared: Resources for all children.
        hello: First message to every client.
    """

    def __init__(self, meeting: Meeting, options: Options, prepared: Prepared, hello: Message) -> None:
        self._forker = Forker(prepared, frozenset(Layer(name) for name in options.without))
        self._meeting, self._options, self._hello = meeting, options, hello
        self._listener = listener = meeting.listener
        self._preparing: dict[socket.socket, _Child] = {}
        self._ready: deque[_Child] = deque()
        self._running: dict[int, _Child] = {}
        self._waiting: list[_Evaluation] = []
        self._admitted: list[_Evaluation] = []
        self._queue: deque[_Task] = deque()
        self._served: dict[int, int] = {}
        self._n_served = 0
        self._opened: dict[str, float] = {}
        """Time when the split that is open was opened, by table."""
        self._clients: set[Channel] = set()
        self._ran_out_of_time: set[tuple[int, int]] = set()
        """Processes and threads whose last evaluation used up its time: the next one probably will, too."""
        n_files = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _N_OTHER_FILES
        self._max_admitted = min(_MAX_ADMITTED, n_files // 4)
        self._max_clients = n_files - 2 * self._max_admitted
        self._selector = selectors.DefaultSelector()
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ)
        self._selector.register(self._forker.socket, selectors.EVENT_READ)
        self._no_fork_until = 0.0
        self._refused_since: float | None = None
        self._n_broken = 0
        self._idle_since: float | None = time.monotonic() + _FIRST_CLIENT_SECONDS

    def run(self) -> None:
        """Serve until the last client is gone."""
        while not self._is_over():
            for key, _ in self._selector.select(self._timeout()):
                self._handle(key.fileobj)
            self._reap()
            self._enforce()
            self._admit()
            self._dispatch()
            self._prepare_one()
        self._end()

    def _timeout(self) -> float | None:
        if self._wants_child() or self._forker.has_ended:
            return 0.0
        if self._running:
            return _TICK
        if self._queue or time.monotonic() < self._no_fork_until:
            return _PAUSE
        return None if self._clients else 0.1

    # ------------------------------------------------------------------ clients

    def _handle(self, ready: Any) -> None:
        if ready is self._listener:
            self._accept()
        elif ready in self._preparing:
            self._greet(ready)
        elif ready in self._clients:
            try:
                for message, files in ready.receive():
                    self._take(ready, message, files)
            except Exception:  # it is gone, or no client of ours
                self._drop(ready)

    def _accept(self) -> None:
        """Greet all who have come; some may have left already."""
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            connection.settimeout(5.0)  # no client may delay another
            channel = Channel(connection)
            if len(self._clients) >= self._max_clients:
                with contextlib.suppress(OSError):
                    channel.send({"refused": _TOO_MANY.format(self._max_clients)})
                channel.close()
                continue
            self._clients.add(channel)
            self._selector.register(channel, selectors.EVENT_READ)
            self._tell(channel, self._hello)

    def _take(self, client: Channel, message: Message, files: list[int]) -> None:
        if "ping" in message:
            self._tell(client, {"pong": message["ping"]})
        elif "cancel" in message:
            self._cancel(client, message)
        elif "files" in message:
            (evaluation,) = (
                admitted
                for admitted in self._admitted
                if admitted.client is client and admitted.number == message["files"]
            )
            pairs = [files[start : start + 2] for start in range(0, len(files), 2)]
            self._queue.extend(
                _Task(evaluation, split, table, labels, pair)
                for split, ((table, labels), pair) in enumerate(zip(evaluation.held, pairs, strict=True))
            )
        else:
            held = [(str(table), str(labels)) for table, labels in message["held"]]
            if len(held) > self._max_admitted:
                self._tell(client, {"refused": _TOO_LARGE.format(self._max_admitted, len(held))})
                return
            number, process, thread = (int(message[key]) for key in ("evaluation", "process", "thread"))
            self._waiting.append(_Evaluation(client, process, thread, number, held, message["limits"], len(held)))

    def _cancel(self, client: Channel, message: Message) -> None:
        self._finish_queued([task for task in self._queue if _is_of(task, client, message)], "cancelled")
        running = [child.task for child in self._running.values() if child.task]
        self._kill([task for task in running if _is_of(task, client, message)], "cancelled")

    def _turn(self, evaluation: _Evaluation) -> int:
        """Return the turn of a process: the number of the child last started for it.

        The process that has waited longest is first.
        """
        return self._served.get(evaluation.process, 0)

    def _admit(self) -> None:
        """Ask for the files of evaluations that have waited, while there is room."""
        while self._waiting:
            evaluation = min(self._waiting, key=self._turn)
            if sum(len(admitted.held) for admitted in self._admitted) + len(evaluation.held) > self._max_admitted:
                return
            self._waiting.remove(evaluation)
            self._admitted.append(evaluation)
            self._tell(evaluation.client, {"admitted": evaluation.number})

    def _drop(self, client: Channel) -> None:
        if client not in self._clients:
            return
        self._clients.remove(client)
        self._selector.unregister(client)
        client.close()
        self._waiting = [evaluation for evaluation in self._waiting if evaluation.client is not client]
        self._admitted = [evaluation for evaluation in self._admitted if evaluation.client is not client]
        for task in [task for task in self._queue if task.evaluation.client is client]:
            self._queue.remove(task)
            task.close()
        running = [child.task for child in self._running.values() if child.task]
        self._kill([task for task in running if task.evaluation.client is client], "cancelled")

    def _tell(self, client: Channel, message: Message) -> None:
        if client in self._clients:
            try:
                client.send(message)
            except OSError:
                self._drop(client)

    # ------------------------------------------------------------------ children

    def _wants_child(self) -> bool:
        """Return whether to fork: children get ready on idle cores, and one is always ready or in preparation."""
        n_children = len(self._preparing) + len(self._ready)
        is_busy = self._queue and len(self._running) + len(self._preparing) >= self._options.cores
        return n_children < (1 if is_busy else _N_READY) and time.monotonic() >= self._no_fork_until

    def _prepare_one(self) -> None:
        if self._wants_child():
            self._fork()

    def _fork(self) -> None:
        """Fork a child that gets ready for a task, unless the system has no process or descriptor left just now."""
        with contextlib.ExitStack() as opened:
            try:
                connection, child_connection = (opened.enter_context(end) for end in socket.socketpair())
                pid = self._forker.fork(child_connection)
            except OSError as error:
                self._note_refusal(error)
                return
            opened.pop_all()
        child_connection.close()
        self._refused_since = None
        self._preparing[connection] = _Child(pid, connection)
        self._selector.register(connection, selectors.EVENT_READ)

    def _greet(self, control: socket.socket) -> None:
        """Note that a child is ready, or has ended before."""
        self._selector.unregister(control)
        child = self._preparing.pop(control)
        try:
            ((message, _),) = Channel(control).receive()
        except (OSError, EOFError):
            control.close()
            self._n_broken += 1
            if self._n_broken >= _MAX_BROKEN:
                self._n_broken = 0
                self._refuse(_BROKEN)
            return
        self._n_broken = 0
        child.outer_pid = message["pid"]
        self._ready.append(child)

    def _note_refusal(self, error: OSError) -> None:
        now = time.monotonic()
        self._no_fork_until = now + _PAUSE
        self._refused_since = now if self._refused_since is None else self._refused_since
        is_stuck = not (self._running or self._preparing or self._ready)
        if is_stuck and now - self._refused_since > _REFUSED_SECONDS:
            self._refuse(f"Expected the sandbox to start a process; got {error}. {fix_of(error)}")

    def _refuse(self, sentence: str) -> None:
        """Tell all who wait that there will be no answer, and why."""
        for client in {evaluation.client for evaluation in (*self._waiting, *self._admitted)}:
            self._tell(client, {"refused": sentence})
            self._drop(client)

    def _next_task(self) -> _Task | None:
        """Return the first task, processes taking turns, that may run beside those that run.

        On a table without running tasks, the first opens a split. Others that hold the same labels may join; while one
        before them waits for other labels, only for a part of their time limit, which bounds that wait, and not if the
        last evaluation of their thread ran out of time.
        """
        now = time.monotonic()
        running = {child.task.table: child.task.labels for child in self._running.values() if child.task}
        is_awaited: set[str] = set()
        for task in sorted(self._queue, key=lambda queued: self._turn(queued.evaluation)):
            if running.get(task.table, task.labels) != task.labels:
                is_awaited.add(task.table)
            elif task.table not in is_awaited or (
                (task.evaluation.process, task.evaluation.thread) not in self._ran_out_of_time
                and now - self._opened[task.table] < _PREFERRED_SHARE * task.evaluation.limits["time_limit"]
            ):
                return task
        return None

    def _dispatch(self) -> None:
        while self._ready and len(self._running) < self._options.cores and (task := self._next_task()) is not None:
            child = self._ready.popleft()
            # Before the task is sent: its end may be seen before these clocks.
            child.cpu_before, child.waited_before = cpu_seconds(child.pid), waiting_seconds(child.outer_pid)
            try:
                Channel(child.control).send(task.evaluation.limits, task.files)
            except OSError:  # killed while it waited
                continue
            finally:
                child.control.close()
            self._queue.remove(task)
            self._n_served += 1
            self._served[task.evaluation.process] = self._n_served
            task.close()
            child.task, child.started = task, time.monotonic()
            self._opened.setdefault(task.table, child.started)
            task.evaluation.children.append(child)
            self._running[child.pid] = child

    def _reap(self) -> None:
        for end in self._forker.ended():
            child = self._running.pop(end.pid, None)
            if child is None:
                self._forget(end.pid)
                continue
            cpu = max(0.0, end.cpu_seconds - child.cpu_before)
            wall = time.monotonic() - child.started
            assert child.task is not None
            if all(other.task and other.task.table != child.task.table for other in self._running.values()):
                self._opened.pop(child.task.table, None)
            child.task.evaluation.children.remove(child)
            child.task.evaluation.cpu_used += cpu
            child.task.evaluation.slept += child.slept
            usage = {"cpu": cpu, "wall": wall, "peak_rss": end.peak_rss}
            self._finish(child.task, *_cause(child.task, end.status), usage)

    def _forget(self, pid: int) -> None:
        """Handle the end of a child that waited for work."""
        for child in [waiting for waiting in self._ready if waiting.pid == pid]:
            self._ready.remove(child)
            child.control.close()

    def _enforce(self) -> None:
        """End evaluations whose time is used up: CPU time, or time asleep, of all splits together."""
        for evaluation in {id(e): e for e in (c.task.evaluation for c in self._running.values() if c.task)}.values():
            used, slept = evaluation.cpu_used, evaluation.slept
            for child in evaluation.children:
                cpu = cpu_seconds(child.pid) - child.cpu_before
                waited = waiting_seconds(child.outer_pid) - child.waited_before
                # A present wait for a core is not counted yet, and a process that is gone has no clocks.
                if cpu >= 0 and not is_runnable(child.outer_pid):
                    child.slept = time.monotonic() - child.started - waited - cpu
                used += cpu
                slept += child.slept
            if max(used, slept) > evaluation.limits["time_limit"]:
                evaluation.ran_out_of_time = True
                self._finish_queued([task for task in self._queue if task.evaluation is evaluation], "time")
                self._kill([child.task for child in evaluation.children if child.task], "time")

    def _kill(self, tasks: Iterable[_Task], why: str) -> None:
        doomed = {id(task) for task in tasks}
        for child in self._running.values():
            if child.task and id(child.task) in doomed:
                child.task.end = child.task.end or why
                _kill_group(child.pid)

    def _finish_queued(self, tasks: Sequence[_Task], end: str) -> None:
        """Finish tasks that have not been started."""
        for task in tasks:  # all of them first: an unreachable client is dropped together with its queue
            self._queue.remove(task)
        for task in tasks:
            self._finish(task, end, 0, {})

    def _finish(self, task: _Task, end: str, code: int, usage: Message) -> None:
        task.close()
        task.evaluation.n_open -= 1
        if task.evaluation.n_open == 0 and task.evaluation in self._admitted:
            self._admitted.remove(task.evaluation)
            mark = self._ran_out_of_time.add if task.evaluation.ran_out_of_time else self._ran_out_of_time.discard
            mark((task.evaluation.process, task.evaluation.thread))
        about = {"evaluation": task.evaluation.number, "split": task.split, "end": end, "code": code}
        self._tell(task.evaluation.client, {**about, **usage})

    # ------------------------------------------------------------------ the end

    def _is_over(self) -> bool:
        if self._clients:
            self._idle_since = None
            return False
        now = time.monotonic()
        self._idle_since = now if self._idle_since is None else self._idle_since
        if now < self._idle_since:
            return False
        try:
            fcntl.flock(self._meeting.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # somebody is about to connect
            return False
        self._accept()
        if self._clients:
            fcntl.flock(self._meeting.lock, fcntl.LOCK_UN)
            return False
        for suffix in (".sock", ".lock"):
            with contextlib.suppress(OSError):  # the next process replaces a dead socket
                os.unlink(self._options.socket_name.removesuffix(".sock") + suffix, dir_fd=self._meeting.folder)
        return True

    def _end(self) -> None:
        for child in [*self._preparing.values(), *self._ready, *self._running.values()]:
            _kill_group(child.pid)
        self._forker.close()


def _is_of(task: _Task, client: Channel, message: Message) -> bool:
    evaluation = task.evaluation
    return (
        evaluation.client is client and evaluation.number == message["cancel"] and task.split >= message["first_split"]
    )


def _cause(task: _Task, status: int) -> tuple[str, int]:
    """Return the cause of a child's end, and the exit code or signal."""
    if task.end is not None:
        return task.end, 0
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return ("time" if number == signal.SIGXCPU else "signal"), number
    return "exit", os.WEXITSTATUS(status)


def _kill_group(pid: int) -> None:
    """End a child and all that it may have started; it may not have a group of its own yet."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)
