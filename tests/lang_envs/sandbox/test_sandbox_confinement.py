"""The layers of confinement, one by one and together: the filter on paper, then real processes, as root and `nobody`.

The system calls below are written down by hand from the kernel's own tables, so that they can disagree with the
module's.
"""

import errno
import json
import os
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from lang_envs.sandbox.confinement import landlock, namespaces, privileges, resource_limits, seccomp
from lang_envs.sandbox.confinement import layers as confinement
from lang_envs.sandbox.confinement.layers import Layer

ARCHITECTURES = ("x86_64", "aarch64")
AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
OWN_PID = 4242
FAR = 1 << 32  # a number whose low half is 0
ALLOW, KILL = "allow", "kill"

# ---------------------------------------------------------------------- the filter, run by a machine of our own


def run_filter(code, number, arguments=(), *, audit):
    """The kernel's decision: a classic BPF machine on `struct seccomp_data`."""
    padded = [*arguments, 0, 0, 0, 0, 0, 0][:6]
    data = struct.pack("<IIQ6Q", number, audit, 0x7F00_0000_1000, *padded)
    accumulator, counter = 0, 0
    for _ in range(10_000):
        operation, if_true, if_false, constant = struct.unpack_from("<HBBI", code, 8 * counter)
        counter += 1
        match operation:
            case 0x20:
                assert constant % 4 == 0
                (accumulator,) = struct.unpack_from("<I", data, constant)
            case 0x54:
                accumulator &= constant
            case 0x15:
                counter += if_true if accumulator == constant else if_false
            case 0x35:
                counter += if_true if accumulator >= constant else if_false
            case 0x45:
                counter += if_true if accumulator & constant else if_false
            case 0x06:
                return constant
            case _:
                pytest.fail(f"no such instruction: {operation:#x}")
    return pytest.fail("the filter does not end")


PROGRAMS = {architecture: seccomp.program(architecture, OWN_PID) for architecture in ARCHITECTURES}


def verdict(architecture, number, *arguments, audit=None):
    code = PROGRAMS[architecture]
    action = run_filter(code, number, arguments, audit=AUDIT[architecture] if audit is None else audit)
    if action == 0x7FFF0000:
        return ALLOW
    if action == 0x80000000:
        return KILL
    assert action & 0xFFFF0000 == 0x00050000, f"{action:#x}"
    return errno.errorcode[action & 0xFFFF]


# by number: calls allowed with any arguments; in the order of the kernel's tables
NEEDED = {
    "x86_64": {
        *(0, 1, 3, 5, 8, 10, 11, 12, 13, 14, 15, 17, 19, 20, 24, 25, 32, 33, 34, 35, 39, 60, 63, 96, 97, 100, 102),
        *(104, 107, 108, 110, 115, 118, 120, 127, 128, 130, 131, 186, 201, 219, 231, 292, 309, 318),
    },
    "aarch64": {
        *(23, 24, 57, 62, 63, 64, 65, 66, 67, 80, 93, 94, 101, 124, 128, 132, 133, 134, 135, 136, 137, 139, 148, 150),
        *(153, 158, 160, 163, 168, 169, 172, 173, 174, 175, 176, 177, 178, 214, 215, 216, 226, 278),
    },
}
OTHER_CLOCKS = [(~pid << 3 | kind) % 2**32 for pid in (1, OWN_PID) for kind in (0, 1, 2, 4, 6)]
CLOCKS = [(clock,) for clock in range(12)], [(clock,) for clock in (*OTHER_CLOCKS, *map(FAR.__or__, OTHER_CLOCKS), 12)]
PR_GET_NO_NEW_PRIVS = 39
PI_FUTEXES = (134, 135, 136, 139, 140, 141)  # they look up the thread that a number in memory names
# name: number on x86_64, number on aarch64, then arguments that pass, arguments that must not, and the result of these
CONDITIONAL = {
    "mmap": (
        (9, 222),
        [(0, 4096, 3, flags) for flags in (0x22, 0x21, 0x4022, 0x20022)],
        [(0, 4096, 1, flags) for flags in (2, 1, 0x812, 0x40022, 0x40002, FAR * 0x20 | 2)],
        "EPERM",
    ),
    "madvise": (
        (28, 233),
        [(0, 4096, advice) for advice in (0, 4, 8, 14, 15, 16, 17)],
        [(0, 4096, advice) for advice in (1, 2, 3, 5, 9, 10, 11, 12, 13, 18, 19, 20, 21, 22, 23, 24, 25, 100, 101)],
        "EPERM",
    ),
    "futex": (
        (202, 98),
        [(1, 128), (1, 129), (1, 0x189), (1, 138)],
        [(1, 0), (1, 1), (1, 9), (1, 0x109), (1, FAR * 128), (1, 127), *((1, operation) for operation in PI_FUTEXES)],
        "EPERM",
    ),
    "clock_gettime": ((228, 113), *CLOCKS, "EINVAL"),
    "clock_getres": ((229, 114), *CLOCKS, "EINVAL"),
    "clock_nanosleep": ((230, 115), *CLOCKS, "EINVAL"),
    "getrusage": ((98, 165), [(0,), (1,)], [(2**32 - 1,), (2**64 - 1,), (2**32 - 2,), (2,)], "EPERM"),
    "sched_getaffinity": ((204, 123), [(0,), (OWN_PID,)], [(1,), (OWN_PID + 1,), (OWN_PID - 1,)], "EPERM"),
    "prlimit64": (
        (302, 261),
        [(0, 7, 0, 1), (0, 9, 0, FAR), (OWN_PID, 7, 0, 1)],
        [(0, 7, 1, 0), (0, 7, FAR), (0, 7, 0x7FFF_0000_1000, 0), (1, 7, 0, 1), (OWN_PID + 1, 7), (OWN_PID, 7, 1)],
        "EPERM",
    ),
    "tgkill": (
        (234, 131),
        [(OWN_PID, 9, 6), (OWN_PID, 10, 15), (OWN_PID, 10, 31), (OWN_PID, 10, 0)],
        [(OWN_PID, 10, 9), (1, 1, 9), (1, 1, 15), (OWN_PID - 1, OWN_PID, 9), (0,), (OWN_PID, 10, 32), (OWN_PID, 1, 64)],
        "EPERM",
    ),
    "prctl": ((157, 167), [(16, 1)], [(option,) for option in range(80) if option != 16], "EPERM"),
    "fcntl": (
        (72, 25),
        [(1, command) for command in (0, 1, 2, 3, 1030)],
        [(1, command) for command in (*range(4, 1030), 1031, 1032, 1033, 1034)],
        "EPERM",
    ),
}  # fmt: skip
FAILING = {
    "x86_64": {
        16: "ENOTTY",
        **dict.fromkeys((2, 4, 6, 21, 79, 89, 137, 257, 262, 267, 269, 332, 437, 439), "ENOENT"),
    },
    "aarch64": {29: "ENOTTY", **dict.fromkeys((17, 43, 48, 56, 78, 79, 291, 437, 439), "ENOENT")},
}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_exactly_the_needed_calls_are_allowed_whatever_their_arguments(architecture):
    column = ARCHITECTURES.index(architecture)
    conditional = {entry[0][column] for entry in CONDITIONAL.values()}
    everything = [(), (1,) * 6, (2**64 - 1,) * 6, (OWN_PID,) * 6, (0x3D0F00,) * 6]
    for number in range(601):
        if number in conditional:
            continue
        verdicts = {verdict(architecture, number, *arguments) for arguments in everything}
        expected = ALLOW if number in NEEDED[architecture] else FAILING[architecture].get(number)
        if expected is None:
            expected = "EPERM" if number < 450 else "ENOSYS"
        assert verdicts == {expected}, number


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", CONDITIONAL)
def test_conditions_on_arguments(architecture, name):
    numbers, good, bad, refusal = CONDITIONAL[name]
    number = numbers[ARCHITECTURES.index(architecture)]
    for arguments in good:
        assert verdict(architecture, number, *arguments) == ALLOW, arguments
    for arguments in bad:
        assert verdict(architecture, number, *arguments) == refusal, arguments


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("audit", [0x40000003, 0])
def test_a_foreign_calling_convention_kills(architecture, audit):
    for number in range(0, 601, 7):
        assert verdict(architecture, number, audit=audit) == KILL
    other = AUDIT[ARCHITECTURES[1 - ARCHITECTURES.index(architecture)]]
    assert verdict(architecture, 0, audit=other) == KILL


def test_x32_kills_and_numbers_out_of_range_fail():
    for number in (0x40000000, 0x40000001, 0x40000000 + 520, 0x7FFFFFFF, 0xFFFFFFFF):
        assert verdict("x86_64", number) == KILL
        assert verdict("aarch64", number) == "ENOSYS"
    assert verdict("x86_64", 0x3FFFFFFF) == "ENOSYS"


# ---------------------------------------------------------------------- real processes

# Warm, single-threaded, forks a child per program: the supervisor in small.
LABORATORY = """
import ctypes, fcntl, json, mmap, os, resource, signal, socket, subprocess, sys, threading, warnings
import sklearn.ensemble, sklearn.linear_model, sklearn.naive_bayes, sklearn.neighbors, sklearn.neural_network
import sklearn.utils, sklearn.utils.parallel
sklearn.classifiers = sklearn.utils.all_estimators(type_filter="classifier")
sklearn.utils.parallel._get_threadpool_controller()
from lang_envs.sandbox.confinement import privileges
from lang_envs.sandbox.confinement.layers import Layer, confine_early, confine_late, prepare
user, memory = json.loads(sys.argv[1])
prepared = prepare()
if user is not None:
    privileges.become(user)

def child(code, without, write):
    layers = {Layer(name) for name in without}
    answer = {}
    try:
        privileges.close_other_files({write, prepared.ruleset})
        confine_early(layers, prepared)
        confine_late(layers, prepared, memory_bytes=memory, cpu_seconds=30)
        scope = {"__name__": "agent"}
        exec(code, scope)
        answer = {"result": scope.get("result")}
    except BaseException as error:
        answer = {"error": type(error).__name__, "errno": getattr(error, "errno", None), "message": str(error)[:500]}
    os.write(write, json.dumps(answer).encode())
    os._exit(0)

def experiment(code, without):
    read, write = os.pipe()
    if os.fork() == 0:
        child(code, without, write)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        answer = json.loads(file.read() or b"{}")
    return {**answer, "status": os.waitstatus_to_exitcode(os.wait()[1])}

for line in sys.stdin:
    print(json.dumps([experiment(*job) for job in json.loads(line)]), flush=True)
"""
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PATH": os.environ.get("PATH", "")}
MEMORY = 1 << 30
NOBODY = 65534

needs_kernel = pytest.mark.skipif(
    landlock.abi_version() < 1 or not seccomp.supported(), reason="this kernel has no Landlock or no seccomp filter"
)
USERS = [
    pytest.param(None, id="as-is"),
    pytest.param(
        NOBODY,
        id="nobody",
        marks=[
            pytest.mark.matrix,
            pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can turn nobody"),
        ],
    ),
]


class Laboratory:
    """A warm process of one user that runs programs in confined children."""

    def __init__(self, user):
        self.user = user
        command = [sys.executable, "-W", "error", "-c", LABORATORY, json.dumps([user, MEMORY])]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT, bufsize=1
        )

    def run(self, codes, without=()):
        """One answer for each program: `result` or `error` and `message`; and `status`."""
        self.process.stdin.write(json.dumps([[code, list(without)] for code in codes]) + "\n")
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(60)


@pytest.fixture(scope="module", params=USERS)
def laboratory(request):
    room = Laboratory(request.param)
    yield room
    room.close()


PREFIX = "import ctypes, os, socket, signal, subprocess, resource\nlibc = ctypes.CDLL(None, use_errno=True)\n"
CALL = """
def call(number, *arguments):
    ctypes.set_errno(0)
    value = libc.syscall(ctypes.c_long(number), *map(ctypes.c_long, arguments))
    return value if value >= 0 else -ctypes.get_errno()
"""


@needs_kernel
def test_clocks_of_others_are_none(laboratory):
    code = "import os, time\ntime.{call}((~{pid} << 3) | 2)"
    calls = [("clock_gettime", pid) for pid in ("os.getppid()", "os.getpid()", 1)] + [("clock_getres", "os.getppid()")]
    answers = laboratory.run([code.format(call=call, pid=pid) for call, pid in calls])
    assert [answer.get("errno") for answer in answers] == [errno.EINVAL] * len(calls)


# Every classifier of the library that can be made without arguments, or the reason why it cannot be fitted.
CLASSIFIERS = """
import warnings, numpy as np
from joblib import parallel_config
from sklearn import classifiers
warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
y = np.arange(60) % 3
x = np.abs(rng.normal(size=(60, 4)) + y[:, None])

def outcome(kind):
    try:
        model = kind()
        known = model.get_params()
        model.set_params(**{key: value for key, value in {"random_state": 0, "n_jobs": N_JOBS}.items() if key in known})
        model.fit(x[:42], y[:42])
        return getattr(model, "predict_proba", model.predict)(x[42:]).tolist()
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:100]

with parallel_config(backend="sequential"):
    result = {name: outcome(kind) for name, kind in classifiers[::EVERY]}
"""


@needs_kernel
@pytest.mark.parametrize(("n_jobs", "every"), [(2, 5), pytest.param(None, 1, marks=pytest.mark.matrix)])
def test_classifiers_give_the_same_as_outside(laboratory, n_jobs, every):
    code = f"N_JOBS, EVERY = {n_jobs}, {every}\n{CLASSIFIERS}"
    (inside,), (outside,) = laboratory.run([code]), laboratory.run([code], list(Layer))
    assert inside["result"] == outside["result"]
    assert sum(isinstance(outcome, list) for outcome in inside["result"].values()) >= 30 // every


@needs_kernel
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the other calling conventions are those of x86_64")
def test_an_x32_call_kills_the_process(laboratory):
    (answer,) = laboratory.run([f"{PREFIX}{CALL}call(0x40000000 + 39)"])
    assert answer["status"] == -signal.SIGSYS


READ_PASSWD = "result = len(open('/etc/passwd').read()) > 0"
FORK = "import os\nchild = os.fork()\nif child == 0: os._exit(0)\nresult = True"
UDP = "import socket\nresult = socket.socket(socket.AF_INET, socket.SOCK_DGRAM).fileno() >= 0"
MEMORY_BOMB = "import mmap\nresult = len(mmap.mmap(-1, 1500 << 20)) > 0"
NO_NEW_PRIVILEGES = "result = 'NoNewPrivs:\\t0' in open('/proc/self/status').read()"
CAPABLE = "result = 'CapEff:\\t0000000000000000' not in open('/proc/self/status').read()"
LOOK = "import os\nresult = os.stat('/').st_nlink > 0"
THREAD = "import threading\nt = threading.Thread(target=int)\nt.start()\nt.join()\nresult = True"
# the layer, the part left out with and without it, a program that gives True without it, and its error with it
ABLATIONS = [
    (Layer.LANDLOCK, [Layer.SECCOMP], READ_PASSWD, "PermissionError"),
    (Layer.SECCOMP, [Layer.LANDLOCK], READ_PASSWD, "FileNotFoundError"),
    (Layer.SECCOMP, [], LOOK, "FileNotFoundError"),
    (Layer.SECCOMP, [], THREAD, "RuntimeError"),
    (Layer.SECCOMP, [], FORK, "PermissionError"),
    (Layer.SECCOMP, [], UDP, "PermissionError"),
    (Layer.RESOURCE_LIMITS, [], MEMORY_BOMB, "OSError"),
    (Layer.NO_NEW_PRIVILEGES, [Layer.SECCOMP], NO_NEW_PRIVILEGES, None),
    (Layer.CAPABILITIES, [Layer.SECCOMP], CAPABLE, None),
]  # fmt: skip


@needs_kernel
@pytest.mark.parametrize(
    ("layer", "left_out", "code", "error"), ABLATIONS, ids=[f"{a[0]}-{i}" for i, a in enumerate(ABLATIONS)]
)
def test_every_layer_stops_what_the_others_let_through(layer, left_out, code, error, laboratory):
    if layer is Layer.CAPABILITIES and (laboratory.user is not None or not has_capabilities()):
        pytest.skip("this user has no capability to lose")
    (full,), (ablated,) = laboratory.run([code], left_out), laboratory.run([code], [*left_out, layer])
    assert (full.get("error"), full.get("result", False)) == (error, False)
    assert ablated.get("result") is True, ablated


def has_capabilities():
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("CapEff")).split()[1], 16) > 0


# ---------------------------------------------------------------------- Landlock


def in_a_fork(action):
    """Exit status of a forked child that runs `action`; 0 for True."""
    child = os.fork()
    if child == 0:
        status = 99
        try:
            status = 0 if action() else 1
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def refuses(action):
    try:
        action()
    except PermissionError:
        return True
    return False


def names(folder):
    return sorted(entry.name for entry in folder.iterdir())


@needs_kernel
@pytest.mark.parametrize("abi", range(1, 8))
def test_rules_for_files_and_folders(abi, tmp_path):
    if abi > landlock.abi_version():
        pytest.skip(f"this kernel's Landlock is of version {landlock.abi_version()}")
    (tmp_path / "open").mkdir()
    (tmp_path / "listed" / "inner").mkdir(parents=True)
    for name in ("open/a", "listed/b", "listed/inner/c", "single", "other"):
        (tmp_path / name).write_text(name)

    def action():
        privileges.forbid_new_privileges()
        readable = [str(tmp_path / name) for name in ("open", "single", "absent")]
        landlock.restrict(readable, [str(tmp_path / "listed")], abi=abi)
        return (
            (tmp_path / "open/a").read_text() == "open/a"
            and (tmp_path / "single").read_text() == "single"
            and names(tmp_path / "open") == ["a"]
            and names(tmp_path / "listed") == ["b", "inner"]
            and names(tmp_path / "listed/inner") == ["c"]
            and all(
                refuses(attempt)
                for attempt in (
                    (tmp_path / "listed/b").read_text,
                    (tmp_path / "other").read_text,
                    lambda: names(tmp_path),
                    lambda: (tmp_path / "open/a").write_text("x"),
                    lambda: (tmp_path / "open/new").write_text("x"),
                    (tmp_path / "open/a").unlink,
                    lambda: os.execv("/bin/true", ["true"]),
                )
            )
        )

    assert in_a_fork(action) == 0
    assert (tmp_path / "open/a").read_text() == "open/a"


@needs_kernel
@pytest.mark.skipif(landlock.abi_version() < 6, reason="Landlock scopes signals from version 6 on")
def test_landlock_alone_keeps_signals_inside(laboratory):
    code = "import os, signal\nos.kill(os.getppid(), 0)"
    everything_else = [layer for layer in Layer if layer not in (Layer.LANDLOCK, Layer.NO_NEW_PRIVILEGES)]
    (answer,) = laboratory.run([code], everything_else)
    assert answer["error"] == "PermissionError"


# ---------------------------------------------------------------------- files


def test_library_paths_hold_no_labels_no_checkout_and_no_foreign_package():
    readable, listable = confinement.library_paths()

    def is_readable(path):
        path = Path(path).resolve()
        return any(str(parent) in readable for parent in (path, *path.parents))

    import numpy
    import sklearn

    tables = Path(sklearn.__file__).parent / "datasets"
    assert is_readable(numpy.__file__)
    assert is_readable(sklearn.__file__)
    assert is_readable(tables / "_base.py")
    assert is_readable(json.__file__)
    assert is_readable("/dev/null")
    for hidden in (tables / "data" / "iris.csv", tables / "tests" / "data", pytest.__file__, __file__, "/etc/passwd"):
        assert not is_readable(hidden), hidden
    assert not is_readable(confinement.__file__)
    assert str(Path(numpy.__file__).resolve().parents[1]) in listable
    assert not any(Path(path) == Path.cwd() for path in (*readable, *listable))
    assert all(Path(path).exists() for path in (*readable, *listable))


# ---------------------------------------------------------------------- privileges


@pytest.mark.skipif(sys.platform != "linux", reason="no capabilities elsewhere")
def test_dropped_capabilities_are_gone_everywhere():
    def action():
        privileges.drop_capabilities()
        privileges.drop_capabilities()
        lines = Path("/proc/self/status").read_text().splitlines()
        sets = {line.split()[0]: int(line.split()[1], 16) for line in lines if line.startswith("Cap")}
        bounding = sets.pop("CapBnd:")
        return not any(sets.values()) and (bounding == 0 or not had)

    had = has_capabilities()
    assert in_a_fork(action) == 0


def test_limits_are_only_lowered():
    resource = pytest.importorskip("resource")

    def action():
        os.closerange(3, 4096)  # files that other tests left open would count against the limit
        resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))
        resource.setrlimit(resource.RLIMIT_STACK, (1 << 20, 4 << 20))
        resource_limits.limit_resources(memory_bytes=1 << 28, cpu_seconds=3)
        resource_limits.limit_resources(memory_bytes=1 << 40, cpu_seconds=300)
        return (
            resource.getrlimit(resource.RLIMIT_NOFILE) == (32, 32)
            and resource.getrlimit(resource.RLIMIT_STACK) == (4 << 20, 4 << 20)
            and resource.getrlimit(resource.RLIMIT_CPU) == (4, 4)
            and resource.getrlimit(resource.RLIMIT_FSIZE) == (0, 0)
            and resource.getrlimit(resource.RLIMIT_CORE) == (0, 0)
        )

    assert in_a_fork(action) == 0


@pytest.mark.parametrize(
    ("ignore", "expected"),
    [(False, signal.SIGXCPU), pytest.param(True, signal.SIGKILL, marks=pytest.mark.matrix)],
)
def test_processor_time_ends_a_process(ignore, expected):
    def action():
        if ignore:
            signal.signal(signal.SIGXCPU, signal.SIG_IGN)
        resource_limits.limit_resources(memory_bytes=1 << 30, cpu_seconds=1)
        while True:
            pass

    assert in_a_fork(action) == -expected


def test_other_files_are_closed():
    kept_read, kept_write = os.pipe()
    other_read, other_write = os.pipe()

    def is_open(descriptor):
        try:
            os.fstat(descriptor)
        except OSError:
            return False
        return True

    def action():
        privileges.close_other_files({kept_write})
        return [n for n in (0, 1, 2, kept_read, kept_write, other_read, other_write) if is_open(n)] == [kept_write]

    try:
        assert in_a_fork(action) == 0
    finally:
        for descriptor in (kept_read, kept_write, other_read, other_write):
            os.close(descriptor)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child of its parent's end")
def test_a_child_dies_with_its_parent():
    read, write = os.pipe()
    parent = os.fork()
    if parent == 0:
        os.close(read)
        pid = os.getpid()
        if os.fork() == 0:
            privileges.die_with_parent(pid)
            os.write(write, b"x")
            signal.pause()
        os.close(write)
        signal.pause()
    os.close(write)
    with os.fdopen(read, "rb") as file:
        assert file.read(1) == b"x"
        os.kill(parent, signal.SIGKILL)
        assert file.read() == b""  # the end of the last process that could write
    os.waitpid(parent, 0)


# ---------------------------------------------------------------------- namespaces

NAMESPACED = """
import json, os, socket, sys
from lang_envs.sandbox.confinement import namespaces, privileges
user = json.loads(sys.argv[1])
if user is not None:
    privileges.become(user)
before = os.getuid(), os.getgid()
entered = namespaces.enter(pid=json.loads(sys.argv[2]))
assert (os.getuid(), os.getgid()) == before
outer = os.getpid()
init = os.fork()
if init == 0:
    privileges.die_with_parent(0 if "pid" in entered else outer)
    own = os.getpid()
    if os.fork() == 0:
        privileges.die_with_parent(own)
        interfaces = [name for _, name in socket.if_nameindex()]
        print(json.dumps([sorted(entered), own, os.getpid(), interfaces]), flush=True)
        os._exit(0)
    os._exit(os.waitstatus_to_exitcode(os.wait()[1]))
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(init, 0)[1]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="no namespaces elsewhere")
@pytest.mark.parametrize("pid", [True, False])
@pytest.mark.parametrize("user", USERS)
def test_namespaces(user, pid):
    command = [sys.executable, "-c", NAMESPACED, json.dumps(user), json.dumps(pid)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    entered, init, inner, interfaces = json.loads(done.stdout)
    if not entered:
        pytest.skip("this system grants no namespace to this user")
    assert "net" in entered
    assert ("pid" in entered) <= pid
    assert interfaces == ["lo"]
    assert ((init, inner) == (1, 2)) == ("pid" in entered)


# ---------------------------------------------------------------------- together


def test_the_probe_agrees_with_a_look_at_the_system():
    probe = confinement.probe()
    assert probe.active | probe.missing.keys() == frozenset(Layer)
    assert not probe.active & probe.missing.keys()
    assert probe.active - {Layer.NAMESPACES} == confinement.available_layers()
    assert probe.is_sufficient == (probe.active >= set(Layer) - {Layer.NAMESPACES})
    assert privileges.prctl(PR_GET_NO_NEW_PRIVS) == 0  # the caller stays free
    for layer, sentence in probe.missing.items():
        assert sentence.startswith(f"Without {layer}, ")


def test_a_probe_that_fails_finds_nothing_and_says_so(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    probe = confinement.probe()
    assert probe.active == frozenset()
    assert not probe.is_sufficient
    assert "by the filter of system calls only: the trial itself failed" in probe.missing[Layer.LANDLOCK]


def test_elsewhere_than_on_linux_nothing_is_promised(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert landlock.abi_version() == 0
    assert not seccomp.supported()
    assert confinement.available_layers() == {Layer.RESOURCE_LIMITS}
    assert namespaces.enter() == frozenset()
    assert confinement.confine_early() == frozenset()
    privileges.drop_capabilities()
    with pytest.raises(OSError, match=r"Expected Linux, which has prctl; got darwin"):
        privileges.forbid_new_privileges()
    with pytest.raises(OSError, match=r"Expected Linux on x86_64 or aarch64; got darwin"):
        seccomp.install(1)


@needs_kernel
def test_the_shared_ruleset_is_closed_in_the_child():
    # whoever holds it could add rules for the children to come
    prepared = confinement.prepare()

    def action():
        layers = confinement.confine_early((), prepared)
        try:
            os.fstat(prepared.ruleset)
        except OSError:
            return layers == {Layer.NO_NEW_PRIVILEGES, Layer.LANDLOCK, Layer.CAPABILITIES}
        return False

    try:
        assert in_a_fork(action) == 0
        assert privileges.prctl(PR_GET_NO_NEW_PRIVS) == 0
    finally:
        os.close(prepared.ruleset)
