"""The sandbox as a service: deadlines, deaths, sharing, and leftovers. Attacks on it are in tests/attacks."""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.forkserver
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lang_envs.sandbox import client, rendezvous
from lang_envs.sandbox.client import Answer, End, Limits, Sandbox
from lang_envs.sandbox.confinement.library_files import LIBRARIES
from lang_envs.sandbox.errors import SandboxError, SandboxUnavailableError, SandboxWarning
from lang_envs.sandbox.protocol import parse_array, write_array
from lang_envs.sandbox.rendezvous import Place
from lang_envs.sandbox.worker import Task

HONEST = "from sklearn.naive_bayes import GaussianNB\nmodel = GaussianNB().fit(x_train, y_train)"
TOLERANCE = 0.2
"""Seconds that a deadline may be missed by."""


def task_of(code: str, n: int = 40, seed: int = 0) -> Task:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(2 * n, 3))
    return Task(code, seed, x[:n], (x[:n, 0] > 0).astype(np.int64), x[n:])


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    """A supervisor of these tests' own, and of this worker's: they kill it."""
    with tempfile.TemporaryDirectory(prefix="le") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", folder)
        sandbox = Sandbox(Place(cores=2))
        yield sandbox
        sandbox.close()


@pytest.fixture(scope="module")
def expected(sandbox: Sandbox) -> bytes:
    (answer,) = sandbox.run([task_of(HONEST)], Limits())
    assert answer.worked
    return answer.probabilities.tobytes()


@pytest.fixture
def meeting_place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A private meeting place; the path of a socket is limited to some hundred bytes, less than `tmp_path` takes."""
    with tempfile.TemporaryDirectory(prefix="le") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        yield Path(folder)


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def wait_for_end(pid: int, seconds: float = 5.0) -> bool:
    until = time.monotonic() + seconds
    while is_alive(pid) and time.monotonic() < until:
        time.sleep(0.02)
    return not is_alive(pid)


def children_of(supervisor: int) -> list[int]:
    """Children that run code, or wait for it: they are those of the supervisor's forker."""

    def forked_by(pid: int) -> list[int]:
        return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))

    (forker,) = forked_by(supervisor)
    return forked_by(forker)


# ---------------------------------------------------------------------- answers


def test_the_answer_is_what_scikit_learn_says(sandbox: Sandbox) -> None:
    from sklearn.naive_bayes import GaussianNB

    task = task_of(HONEST)
    (answer,) = sandbox.run([task], Limits())
    wanted = GaussianNB().fit(task.x_train, task.y_train).predict_proba(task.x_test)
    np.testing.assert_array_equal(answer.probabilities, wanted)
    assert (answer.end, answer.code, answer.header) == (End.EXIT, 0, {"stdout": ""})
    assert 0 < answer.cpu_seconds < 5
    assert answer.peak_rss > 1 << 20


def test_answers_come_in_the_order_of_the_tasks(sandbox: Sandbox) -> None:
    tasks = [task_of(f"import time\ntime.sleep({0.2 - 0.02 * n})\n{HONEST}", n=10 + n) for n in range(8)]
    answers = sandbox.run(tasks, Limits())
    assert [len(answer.probabilities) for answer in answers] == list(range(10, 18))


def test_seeds_are_of_the_task(sandbox: Sandbox) -> None:
    code = """
import random
class Random:
    def predict_proba(self, x):
        return [[random.random(), np.random.rand()] for _ in x]
model = Random()"""
    runs = [sandbox.run([task_of(code, seed=0), task_of(code, seed=1)], Limits()) for _ in range(2)]
    for answer, repeated in zip(*runs, strict=True):
        np.testing.assert_array_equal(answer.probabilities, repeated.probabilities)
    assert (runs[0][0].probabilities != runs[0][1].probabilities).all()


def test_the_first_failure_is_the_same_whichever_is_faster(sandbox: Sandbox) -> None:
    slow, quick = task_of("import time\ntime.sleep(0.3)\n1 / 0"), task_of("1 / 0")
    answers = sandbox.run([task_of(HONEST), slow, quick, task_of("import time\ntime.sleep(60)")], Limits(5.0))
    assert answers[0].worked
    assert answers[1].header["error"] == "ZeroDivisionError"
    assert answers[3].end is End.CANCELLED


def test_no_other_package_can_be_imported(sandbox: Sandbox) -> None:
    """Of all packages installed here, code sees the libraries that the cache key names, and no other."""
    names = sorted({*packages_distributions(), "lang_envs", "sitecustomize", "_distutils_hack"} - LIBRARIES.keys())
    names = [name for name in names if name not in sys.stdlib_module_names and name.isidentifier()]
    assert {"lang_envs", "gymnasium"} <= set(names)
    code = f"""
import importlib, sys
seen, classes = set(), [object]
while classes:
    below = [kind for kind in type.__subclasses__(classes.pop()) if kind not in seen]
    seen.update(below)
    classes += below
modules = {{*sys.modules, *(kind.__module__ for kind in seen if isinstance(kind.__module__, str))}}
imported = [name for name in modules if name.partition(".")[0] in set({names}) - {{"lang_envs"}}]
imported += ["lang_envs"] * ("lang_envs" in sys.modules)  # its sandbox has classes here
imported += [sys.path_importer_cache, sys.path] * bool(sys.path_importer_cache or sys.path)  # listings of folders
for name in {names}:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        continue
    imported.append(name)
assert not imported, imported
{HONEST}"""
    (answer,) = sandbox.run([task_of(code)], Limits())
    assert answer.worked, answer.header


def test_output_is_kept_up_to_a_bound(sandbox: Sandbox) -> None:
    (answer,) = sandbox.run([task_of(f"print('x' * 10**7)\n{HONEST}")], Limits())
    assert answer.worked
    assert answer.header["stdout"] == "x" * 4096


# ---------------------------------------------------------------------- deadlines

BUSY = {
    "Python loop": "while True:\n    pass",
    "C loop": "sum(range(10**13))",
    "ignored signals": """
import signal
for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
while True:
    pass""",
}
ASLEEP = {
    "sleep": "import time\ntime.sleep(1000)",
    "pause": "import signal\nsignal.pause()",
}


@pytest.mark.parametrize("code", BUSY.values(), ids=BUSY)
def test_a_deadline_of_cpu_time(code: str, sandbox: Sandbox) -> None:
    (answer,) = sandbox.run([task_of(code)], Limits(0.5))
    assert answer.end is End.TIME
    assert 0.5 <= answer.cpu_seconds < 0.5 + TOLERANCE


@pytest.mark.parametrize("code", ASLEEP.values(), ids=ASLEEP)
def test_a_deadline_of_sleep(code: str, sandbox: Sandbox) -> None:
    late = []
    for _ in range(3):  # a loaded machine delays a look at the clock now and then
        (answer,) = sandbox.run([task_of(code)], Limits(0.5))
        assert answer.end is End.TIME
        assert answer.wall_seconds >= 0.5
        late.append(answer.wall_seconds - 0.5)
        if late[-1] < TOLERANCE:
            break
    assert min(late) < TOLERANCE


def test_splits_share_the_budget_of_sleep(sandbox: Sandbox) -> None:
    """Each split sleeps for less than the limit, all of them together for twice as long."""
    answers = sandbox.run([task_of(f"import time\ntime.sleep(0.3)\n{HONEST}")] * 6, Limits(1.0))
    assert {answer.end for answer in answers} >= {End.EXIT, End.TIME}


def test_a_wait_for_a_core_is_not_charged(sandbox: Sandbox) -> None:
    """Sixteen splits on two cores each take a fifth of a second: more than the limit in all but CPU time."""
    code = f"import time\nwhile time.process_time() < 0.05:\n    pass\n{HONEST}"
    answers = sandbox.run([task_of(code)] * 16, Limits(1.5))
    assert all(answer.worked for answer in answers)


def test_memory_has_a_limit(sandbox: Sandbox) -> None:
    (answer,) = sandbox.run([task_of("data = [np.ones(1 << 20) for _ in range(64)]")], Limits(memory_bytes=256 << 20))
    assert answer.header["error"] == "MemoryError"
    (answer,) = sandbox.run([task_of(f"data = np.ones(1 << 20)\n{HONEST}")], Limits(memory_bytes=256 << 20))
    assert answer.worked


# ---------------------------------------------------------------------- many at once


@pytest.mark.process
def test_a_wait_is_not_taken_for_a_dead_supervisor(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_SILENCE_SECONDS", 0.4)
    pid = sandbox.about()["pid"]
    answers = sandbox.run([task_of(f"import time\ntime.sleep(1.0)\n{HONEST}")] * 4, Limits(6.0))
    assert all(answer.worked for answer in answers)
    assert sandbox.about()["pid"] == pid


def test_an_evaluation_has_a_bounded_number_of_splits(sandbox: Sandbox) -> None:
    with pytest.raises(SandboxError, match=r"Expected at most 100 splits .*; got 101. Fix:"):
        sandbox.run([task_of(HONEST)] * 101, Limits())
    assert all(answer.worked for answer in sandbox.run([task_of(HONEST, n=4)] * 100, Limits()))


# ---------------------------------------------------------------------- labels apart


def test_a_split_does_not_stay_open_while_another_is_wanted(sandbox: Sandbox) -> None:
    """Programs of one split follow each other without a gap; one of another split gets its turn."""
    is_over = threading.Event()
    done: list[int] = []
    first = task_of(HONEST)._replace(table="t", labels="first")

    def go_on() -> None:
        while not is_over.is_set():
            done.append(len(sandbox.run([first], Limits())))

    threads = [threading.Thread(target=go_on) for _ in range(4)]
    for thread in threads:
        thread.start()
    while len(done) < 8:
        time.sleep(0.01)
    (answer,) = sandbox.run([first._replace(labels="second")], Limits())
    is_over.set()
    for thread in threads:
        thread.join()
    assert answer.worked


@pytest.mark.parametrize("reconnects", [False, True])
def test_programs_that_loop_do_not_starve_another_on_their_table(sandbox: Sandbox, reconnects: bool) -> None:
    """Three threads evaluate endless loops again and again; a fourth has a program of five quick splits, three times.

    Nine or ten loops end meanwhile; were they let into an open split as others are, 26.
    """
    is_over = threading.Event()
    limits = Limits(0.5)
    loops: list[None] = []

    def evaluation(code: str) -> list[Task]:
        return [task_of(code)._replace(table="starved", labels=str(split)) for split in range(5)]

    def loop() -> None:
        while not is_over.is_set():
            client = Sandbox(sandbox.place) if reconnects else sandbox
            client.run(evaluation(BUSY["Python loop"]), limits)
            loops.append(None)

    threads = [threading.Thread(target=loop, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        while len(loops) < 3 and all(thread.is_alive() for thread in threads):
            time.sleep(0.01)
        answers = [answer for _ in range(3) for answer in sandbox.run(evaluation(HONEST), limits)]
        n_loops = len(loops) - 3
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
    assert all(answer.worked for answer in answers)
    assert n_loops < 18


# ---------------------------------------------------------------------- deaths


@pytest.mark.process
@pytest.mark.parametrize("delay", [0.0, 0.1])
def test_killing_the_supervisor_costs_one_retry(delay: float, sandbox: Sandbox, expected: bytes) -> None:
    pid = sandbox.about()["pid"]
    code = f"import time\ntime.sleep(0.15)\n{HONEST}"
    killer = threading.Timer(delay, os.kill, (pid, signal.SIGKILL))
    killer.start()
    answers = sandbox.run([task_of(code)] * 3, Limits(5.0))
    killer.join()
    assert [answer.probabilities.tobytes() for answer in answers] == [expected] * 3
    assert wait_for_end(pid)
    assert sandbox.about()["pid"] != pid


@pytest.mark.process
def test_a_stopped_supervisor_is_replaced(meeting_place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_HELLO_SECONDS", 0.5)
    monkeypatch.setattr(client, "_SILENCE_SECONDS", 0.5)
    sandbox, other = Sandbox(), Sandbox()
    pid = sandbox.about()["pid"]
    os.kill(pid, signal.SIGSTOP)
    assert other.run([task_of(HONEST)], Limits())[0].worked
    assert wait_for_end(pid)
    assert sandbox.about()["pid"] != pid or sandbox.run([task_of(HONEST)], Limits(0.5))[0].worked
    sandbox.close()
    other.close()


@pytest.mark.process
def test_a_supervisor_that_dies_every_time_is_an_outcome(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(self: object, tasks: object, limits: object) -> list[Answer]:
        raise EOFError

    monkeypatch.setattr("lang_envs.sandbox.client._Connection.run", run)
    assert sandbox.run([task_of(HONEST)], Limits()) == [Answer(End.LOST)]


@pytest.mark.parametrize("data", [b"\0" * 100, b"\xff" * 100, b"\0\0\1\0" + b"[" * 256, b"\0\0\0\2{}"], ids=range(4))
def test_a_client_that_sends_garbage_is_dropped(data: bytes, sandbox: Sandbox, expected: bytes) -> None:
    pid = sandbox.about()["pid"]
    connection, _ = rendezvous.connect(sandbox.place)
    connection.sendall(data)
    connection.settimeout(0.3)
    with contextlib.suppress(TimeoutError, ConnectionResetError):
        while connection.recv(4096):
            pass
    connection.close()
    (answer,) = sandbox.run([task_of(HONEST)], Limits())
    assert answer.probabilities.tobytes() == expected
    assert sandbox.about()["pid"] == pid


@pytest.mark.usefixtures("ctrl_c")
def test_an_interrupt_leaves_nothing(sandbox: Sandbox, expected: bytes) -> None:
    sandbox.run([task_of(HONEST)], Limits())
    before = len(list(Path("/proc/self/fd").iterdir()))
    for delay in (0.2, 0.3, 0.4):
        sandbox.about()
        timer = threading.Timer(delay, os.kill, (os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - the timer must not be early
            timer.start()
            sandbox.run([task_of(ASLEEP["sleep"])] * 3, Limits(5.0))
        timer.join()
    (answer,) = sandbox.run([task_of(HONEST)], Limits())
    assert answer.probabilities.tobytes() == expected
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 1


def test_killing_children_costs_one_retry(sandbox: Sandbox, expected: bytes) -> None:
    pid = sandbox.about()["pid"]
    code = f"import time\ntime.sleep(0.3)\n{HONEST}"

    def kill_children() -> None:
        for child in children_of(pid):  # waiting ones too
            os.kill(child, signal.SIGKILL)

    killer = threading.Timer(0.15, kill_children)
    killer.start()
    (answer,) = sandbox.run([task_of(code)], Limits(5.0))
    killer.join()
    assert answer.probabilities.tobytes() == expected


PARENT = """
import sys; sys.path[:0] = {path!r}
import numpy as np
from lang_envs.sandbox.client import Limits, Sandbox
from lang_envs.sandbox.rendezvous import Place
from lang_envs.sandbox.worker import Task
sandbox = Sandbox(Place(cores=3))
print(sandbox.about()["pid"], flush=True)
x = np.zeros((4, 1))
sandbox.run([Task("import time\\ntime.sleep(1000)", 0, x, np.array([0, 1, 0, 1]), x)] * 3, Limits(500.0))
"""


@pytest.mark.process
def test_killing_the_parent_leaves_nothing_behind() -> None:
    code = PARENT.format(path=[str(Path(rendezvous.__file__).parents[2])])
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent.stdout:
        pid = int(parent.stdout.readline())
        until = time.monotonic() + 10
        while len(children_of(pid)) < 9 and time.monotonic() < until:  # three at work, six in waiting
            time.sleep(0.05)
        children = children_of(pid)
        assert len(children) >= 3
        parent.kill()
        parent.wait()
    assert wait_for_end(pid)
    assert [child for child in children if is_alive(child)] == []


def test_a_client_that_leaves_frees_the_cores(sandbox: Sandbox, expected: bytes) -> None:
    leaving = Sandbox(sandbox.place)
    connection = leaving._connect()

    def ask() -> None:
        with pytest.raises((OSError, EOFError, ValueError)):
            connection.run([task_of(ASLEEP["sleep"])] * 4, Limits(30.0))

    thread = threading.Thread(target=ask)
    thread.start()
    time.sleep(0.3)
    connection._channel.socket.shutdown(socket.SHUT_RDWR)
    thread.join()
    connection.close()
    (answer,) = sandbox.run([task_of(HONEST)], Limits())
    assert answer.probabilities.tobytes() == expected


# ---------------------------------------------------------------------- sharing


def _pid_and_answer(sandbox: Sandbox, queue: multiprocessing.Queue) -> None:
    (answer,) = sandbox.run([task_of(HONEST)], Limits())
    queue.put((sandbox.about()["pid"], answer.probabilities.tobytes()))


@pytest.mark.parametrize(
    "method",
    [
        "fork",
        pytest.param("forkserver", marks=pytest.mark.matrix),
        pytest.param("spawn", marks=pytest.mark.matrix),
    ],
)
def test_processes_share_a_supervisor(method: str, sandbox: Sandbox, expected: bytes) -> None:
    if method == "forkserver":  # one that an earlier test has started may have that test's environment variables
        multiprocessing.forkserver._forkserver._stop()  # type: ignore[attr-defined]
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    pid = sandbox.about()["pid"]
    workers = [context.Process(target=_pid_and_answer, args=(sandbox, queue)) for _ in range(2)]
    for worker in workers:
        worker.start()
    assert [queue.get(timeout=60) for _ in workers] == [(pid, expected)] * 2
    for worker in workers:
        worker.join()
    assert sandbox.about()["pid"] == pid
    (answer,) = sandbox.run([task_of(HONEST)], Limits())
    assert answer.probabilities.tobytes() == expected


@pytest.mark.process
def test_the_supervisor_ends_with_its_last_client(meeting_place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = Sandbox(), Sandbox()
    pid = first.about()["pid"]
    assert second.about()["pid"] == pid
    first.close()
    time.sleep(0.3)
    assert is_alive(pid)
    second.close()
    assert wait_for_end(pid)
    assert [path for path in meeting_place.rglob("*") if path.is_file() or path.is_socket()] == []


def test_a_folder_that_others_can_enter_is_refused(meeting_place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = meeting_place / f"lang-envs-{os.getuid()}"
    folder.mkdir(mode=0o700)
    folder.chmod(0o755)
    with pytest.raises(SandboxError, match=r"Expected .* that only user .* can enter; got mode drwxr-xr-x .* Fix:"):
        Sandbox().about()
    folder.rmdir()
    folder.symlink_to("/tmp")
    with pytest.raises(SandboxError, match="got mode l"):
        Sandbox().about()


def test_a_supervisor_that_cannot_start_says_why(meeting_place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "_START", "raise ImportError('no such library')")
    with pytest.raises(
        SandboxError, match=r"(?s)Expected the sandbox's supervisor to start; got .*no such library.* Fix: pip"
    ):
        Sandbox().about()


@pytest.mark.process
def test_confinement_can_be_required(meeting_place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    meeting = Place(without=("landlock",))
    with pytest.raises(SandboxUnavailableError, match=r"got a machine without landlock: .* Fix: Linux"):
        Sandbox(meeting, "require").about()
    relaxed = Sandbox(meeting)
    with pytest.warns(SandboxWarning, match="without landlock"):
        assert "landlock" not in relaxed.about()["layers"]
    relaxed.close()


# ---------------------------------------------------------------------- pieces


def npy(array: np.ndarray) -> bytes:
    import io

    file = io.BytesIO()
    write_array(file, array)
    return file.getvalue()


BAD_ARRAYS = {
    "noise": b"\x00" * 100,
    "pickle": b"\x80\x04K\x01.",
    "objects": b"\x93NUMPY\x01\x00v\x00{'descr': '|O', 'fortran_order': False, 'shape': (1,), }" + b" " * 58 + b"\n",
    "int64": npy(np.zeros(3, dtype=np.int64)),
    "big-endian": npy(np.zeros(3, dtype=">f8")),
    "too short": npy(np.zeros(3))[:-1],
    "too long": npy(np.zeros(3)) + b"\0",
    "claims 8 TB": npy(np.zeros(3)).replace(b"(3,), }        ", b"(1" + b"0" * 9 + b",), }"),
    "a deep expression": b"\x93NUMPY\x01\x00" + (9000).to_bytes(2, "little") + b"-" * 9000,
    "negative": npy(np.zeros(3)).replace(b"(3,), } ", b"(-3,), }"),
}


@pytest.mark.parametrize("data", BAD_ARRAYS.values(), ids=BAD_ARRAYS)
def test_anything_else_is_no_array(data: bytes) -> None:
    assert data != npy(np.zeros(3))
    with pytest.raises(ValueError):
        parse_array(data)


@given(st.binary(max_size=200), st.integers(0, 200), st.integers(0, 255))
def test_no_bytes_crash_the_parser(data: bytes, position: int, value: int) -> None:
    from lang_envs.sandbox.client import _parse

    header, array = _parse(data)
    assert header is None or isinstance(header, dict)
    good = bytearray(b"\0\0\0\2{}" + npy(np.zeros((2, 2))))
    good[position % len(good)] = value
    header, array = _parse(bytes(good))
    assert array is None or array.dtype == np.float64
