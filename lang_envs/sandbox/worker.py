"""The child: confines itself, receives one split, runs the agent's code on it, reports, and is gone.

It is forked from a warm process, so scikit-learn is loaded, and it lives for one split, so that its memory ends
with it (the labels of its training half are test labels of another split). The agent's code shares this process, so the
parent trusts no part of its report.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import signal
import socket
import struct
import warnings
from collections.abc import Collection
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from lang_envs.sandbox.confinement.layers import Layer, Prepared, confine_early, confine_late
from lang_envs.sandbox.confinement.privileges import close_other_files, die_with_parent
from lang_envs.sandbox.extraction import AgentCode, CodeSyntaxError, extract
from lang_envs.sandbox.meters import outer_pid
from lang_envs.sandbox.protocol import Channel, read_array, write_array

AGENT_FILE = "<agent>"
"""File name of the agent's code in tracebacks."""
MAX_STDOUT = 4096
"""Maximum number of characters of output that are kept."""
REPORT_HEAD = struct.Struct("!I")
_MAX_MESSAGE = 4096


class Task(NamedTuple):
    """One split of one evaluation, as the child gets it.

    Attributes:
        code: Code of the agent.
        seed: Seed of Python's and numpy's global generators.
        x_train: Features to learn from, float64, shape (n_train, n_features).
        y_train: Classes to learn from, int64, shape (n_train,).
        x_test: Features to predict for, float64, shape (n_test, n_features).
        table: Name of the table; the same for the same features.
        labels: Key of the labels that the task holds. Tasks of one table run at the same time only where this is equal:
            the training labels of one split are test labels of another.
    """

    code: str
    seed: int
    x_train: NDArray[np.float64]
    y_train: NDArray[np.int64]
    x_test: NDArray[np.float64]
    table: str = ""
    labels: str = ""


_EXERCISE = Task(
    "from sklearn.naive_bayes import GaussianNB\nmodel = GaussianNB().fit(x_train, y_train)",
    0,
    np.array([[0.0], [1.0], [2.0], [4.0]]),
    np.array([0, 0, 1, 1]),
    np.array([[3.0]]),
)
"""Task that every child runs while it waits for work, to copy the touched pages of the forker's memory in advance."""


def write_task(task: Task, descriptor: int) -> None:
    """Write a task into an open file."""
    with os.fdopen(os.dup(descriptor), "wb") as file:
        head = json.dumps({"code": task.code, "seed": task.seed}).encode()
        file.write(REPORT_HEAD.pack(len(head)) + head)
        for array in (task.x_train, task.y_train, task.x_test):
            write_array(file, array)


def _read_task(descriptor: int) -> Task:
    os.lseek(descriptor, 0, os.SEEK_SET)
    with os.fdopen(descriptor, "rb") as file:
        (length,) = REPORT_HEAD.unpack(file.read(REPORT_HEAD.size))
        head = json.loads(file.read(length))
        return Task(head["code"], head["seed"], read_array(file), read_array(file), read_array(file))


def serve_one(control: socket.socket, parent_pid: int, prepared: Prepared, without: Collection[Layer]) -> NoReturn:
    """Serve as a forked child; never return.

    Args:
        control: Socket that receives the task: one message with two descriptors, the task's file and the report's pipe.
        parent_pid: Process id of the forker, whose end also ends the child.
        prepared: Resources that were made for all children.
        without: Layers of confinement to leave out, for the ablation test only.
    """
    try:
        _enter(control, parent_pid)
        _confine(control, prepared, without)
        run_task(_EXERCISE)
        channel = Channel(control)
        channel.send({"pid": outer_pid()})
        ((message, (task_file, report_pipe)),) = channel.receive()
        channel.close()
        task = _read_task(task_file)
        confine_late(without, prepared, memory_bytes=message["memory_bytes"], cpu_seconds=message["cpu_seconds"])
        _write_report(report_pipe, *run_task(task))
    except (EOFError, BrokenPipeError):
        os._exit(0)  # the client is gone
    except BaseException:  # a fork must not run handlers of its parent
        os._exit(70)
    os._exit(0)


def _enter(control: socket.socket, parent_pid: int) -> None:
    die_with_parent(parent_pid)
    os.setsid()
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)


def _confine(control: socket.socket, prepared: Prepared, without: Collection[Layer]) -> None:
    kept = {0, 1, 2, control.fileno()}
    close_other_files(kept if prepared.ruleset is None else {*kept, prepared.ruleset})
    confine_early(without, prepared)  # closes the ruleset


# ---------------------------------------------------------------------- running the code


class _Output(io.StringIO):
    """Keep the beginning of the printed text."""

    def write(self, text: str) -> int:
        room = MAX_STDOUT - self.tell()
        if room > 0:
            super().write(text[:room])
        return len(text)

    def close(self) -> None:
        """Stay open: the printed text is still to be reported."""


def run_task(task: Task) -> tuple[dict[str, Any], NDArray[np.float64] | None]:
    """Return the report of a task, run in this very process: a header, and the probabilities if there are any."""
    output = _Output()
    random.seed(task.seed)
    np.random.seed(task.seed)  # the generator that agents' code uses
    try:
        code = extract(task.code)
    except CodeSyntaxError as error:  # the parent has parsed it already
        return {"error": "SyntaxError", "message": error.message, "line": error.line, "stdout": ""}, None
    probabilities = None
    header: dict[str, Any] = {}
    # Redirected, not printed: the descriptors lead to /dev/null, and C code's output is of no use to a model.
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        try:
            probabilities = _probabilities(code, task)
        except BaseException as error:  # SystemExit and classes of hostile code
            header = _describe_error(error)
    return {**header, "stdout": output.getvalue()}, probabilities


def _probabilities(code: AgentCode, task: Task) -> NDArray[np.float64]:
    from joblib import parallel_config

    compiled = compile(code.tree, AGENT_FILE, "exec", dont_inherit=True)
    module: dict[str, Any] = {"__name__": "agent"}
    # joblib's own workers would need semaphores and processes that do not exist here
    with warnings.catch_warnings(), parallel_config(backend="sequential"):
        warnings.simplefilter("ignore")
        exec(compiled, module)  # noqa: S102 - confined by now
        model = module["build_model"](task.x_train, task.y_train)
        return np.array(model.predict_proba(task.x_test), dtype=np.float64)


def _describe_error(error: BaseException) -> dict[str, Any]:
    line = None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == AGENT_FILE:
            line = trace.tb_lineno
        trace = trace.tb_next
    try:
        # numpy raises a class of its own
        name = "MemoryError" if isinstance(error, MemoryError) else type(error).__name__
        message = str(error)[:_MAX_MESSAGE]
    except BaseException:  # its __str__ is the agent's
        name, message = "Exception", ""
    return {"error": str(name)[:80], "message": message, "line": line}


def _write_report(pipe: int, header: dict[str, Any], probabilities: NDArray[np.float64] | None) -> None:
    body = io.BytesIO()
    if probabilities is not None:
        write_array(body, probabilities)
    head = json.dumps(header).encode()
    data = memoryview(REPORT_HEAD.pack(len(head)) + head + body.getvalue())
    while data:
        data = data[os.write(pipe, data) :]
