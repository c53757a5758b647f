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
import tempfile
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
        [(1, 0), (1, 1), (1, 9), (1, 0x109), (1, FAR * 128), (1, 127), *((1, one) for one in PI_FUTEXES)],
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
# name: number on x86_64, number on aarch64 (None: the call does not exist there)
DANGEROUS = {
    "clone": (56, 220), "clone3": (435, 435),
    "fork": (57, None), "vfork": (58, None), "execve": (59, 221), "execveat": (322, 281), "wait4": (61, 260),
    "waitid": (247, 95), "kill": (62, 129), "tkill": (200, 130), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240), "ptrace": (101, 117), "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271), "pidfd_open": (434, 434), "pidfd_send_signal": (424, 424),
    "pidfd_getfd": (438, 438), "kcmp": (312, 272), "process_madvise": (440, 440), "process_mrelease": (448, 448),
    "socket": (41, 198), "connect": (42, 203), "accept": (43, 202), "sendto": (44, 206), "recvfrom": (45, 207),
    "sendmsg": (46, 211), "recvmsg": (47, 212), "shutdown": (48, 210), "bind": (49, 200), "listen": (50, 201),
    "socketpair": (53, 199), "setsockopt": (54, 208), "accept4": (288, 242), "recvmmsg": (299, 243),
    "sendmmsg": (307, 269), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427), "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194),
    "shmat": (30, 196), "shmctl": (31, 195), "semget": (64, 190), "semop": (65, 193), "semctl": (66, 191),
    "msgget": (68, 186), "msgsnd": (69, 189), "msgrcv": (70, 188), "msgctl": (71, 187), "mq_open": (240, 180),
    "creat": (85, None), "link": (86, None), "linkat": (265, 37), "unlink": (87, None), "unlinkat": (263, 35),
    "symlink": (88, None), "symlinkat": (266, 36), "rename": (82, None), "renameat": (264, 38),
    "renameat2": (316, 276), "mkdir": (83, None), "mkdirat": (258, 34), "rmdir": (84, None), "chmod": (90, None),
    "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452), "chown": (92, None), "fchown": (93, 55),
    "lchown": (94, None), "fchownat": (260, 54), "mknod": (133, None), "mknodat": (259, 33), "truncate": (76, 45),
    "ftruncate": (77, 46), "fallocate": (285, 47), "utime": (132, None), "utimes": (235, None),
    "utimensat": (280, 88), "futimesat": (261, None), "setxattr": (188, 5), "lsetxattr": (189, 6),
    "fsetxattr": (190, 7), "getxattr": (191, 8), "removexattr": (197, 14), "setxattrat": (463, 463), "flock": (73, 32),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "fsopen": (430, 430),
    "move_mount": (429, 429), "open_tree": (428, 428), "mount_setattr": (442, 442), "unshare": (272, 97),
    "setns": (308, 268), "setuid": (105, 146), "setgid": (106, 144), "setreuid": (113, 145), "setregid": (114, 143),
    "setresuid": (117, 147), "setresgid": (119, 149), "setgroups": (116, 159), "setfsuid": (122, 151),
    "capset": (126, 91), "setrlimit": (160, 164), "setpriority": (141, 140), "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119), "sched_setaffinity": (203, 122), "sched_setattr": (314, 274),
    "ioprio_set": (251, 30), "setpgid": (109, 154), "setsid": (112, 157), "setitimer": (38, 103),
    "alarm": (37, None), "timer_create": (222, 107), "timerfd_create": (283, 85), "keyctl": (250, 219),
    "add_key": (248, 217), "request_key": (249, 218), "bpf": (321, 280), "perf_event_open": (298, 241),
    "userfaultfd": (323, 282), "inotify_init1": (294, 26), "fanotify_init": (300, 262),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265), "seccomp": (317, 277),
    "landlock_create_ruleset": (444, 444), "landlock_add_rule": (445, 445), "personality": (135, 92),
    "init_module": (175, 105), "finit_module": (313, 273), "kexec_load": (246, 104), "reboot": (169, 142),
    "settimeofday": (170, 170), "clock_settime": (227, 112), "clock_adjtime": (305, 266), "adjtimex": (159, 171),
    "sethostname": (170, 161), "syslog": (103, 116), "acct": (163, 89), "swapon": (167, 224), "quotactl": (179, 60),
    "iopl": (172, None), "ioperm": (173, None), "mbind": (237, 235), "migrate_pages": (256, 238),
    "move_pages": (279, 239), "modify_ldt": (154, None), "vhangup": (153, 58), "chdir": (80, 49), "fchdir": (81, 50),
    "splice": (275, 76), "sendfile": (40, 71),
    "copy_file_range": (326, 285), "vmsplice": (278, 75), "mlock": (149, 228),
    "mlockall": (151, 230), "epoll_create1": (291, 20), "eventfd2": (290, 19), "signalfd4": (289, 74),
    "getdents64": (217, 61), "getdents": (78, None), "fstatfs": (138, 44), "sysinfo": (99, 179),
    "getpgid": (121, 155), "getsid": (124, 156), "getpriority": (140, 141), "capget": (125, 90),
    "membarrier": (324, 283), "ioprio_get": (252, 31),
    "sched_getscheduler": (145, 120), "sched_getparam": (143, 121), "sched_getattr": (315, 275),
    "get_robust_list": (274, 100), "set_tid_address": (218, 96), "futex_waitv": (449, 449), "futex_wake": (454, 454),
    "futex_wait": (455, 455), "futex_requeue": (456, 456), "msync": (26, 227), "mlock2": (325, 284),
    "cachestat": (451, 451), "readahead": (187, 213), "fadvise64": (221, 223), "get_mempolicy": (239, 236),
    "mincore": (27, 232), "pkey_alloc": (330, 289), "io_setup": (206, 0), "remap_file_pages": (216, 234),
}  # fmt: skip


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
def test_every_dangerous_call_is_refused(architecture):
    column = ARCHITECTURES.index(architecture)
    for name, numbers in DANGEROUS.items():
        if numbers[column] is not None:
            for arguments in ((), (OWN_PID,) * 6, (15,) * 6, (2**64 - 1,) * 6):
                assert verdict(architecture, numbers[column], *arguments) in ("EPERM", "ENOSYS"), name


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
@pytest.mark.parametrize("audit", [0x40000003, 0x40000028, 0xC00000F3, 0, 0xFFFFFFFF])
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


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_program_is_one_the_kernel_takes(architecture):
    code = seccomp.program(architecture, OWN_PID)
    count, rest = divmod(len(code), 8)
    assert rest == 0
    assert count <= 4096
    for index in range(count):
        operation, if_true, if_false, _ = struct.unpack_from("<HBBI", code, 8 * index)
        if operation in (0x15, 0x35, 0x45):
            assert index + 1 + max(if_true, if_false) < count
    assert struct.unpack_from("<H", code, len(code) - 8) == (0x06,)


@pytest.mark.parametrize(("pid", "other"), [(1, 2), (2**31 - 1, 1), (0x06, 0x15)])
def test_the_process_id_is_the_only_difference(pid, other):
    one, two = seccomp.program("x86_64", pid), seccomp.program("x86_64", other)
    for number in (234, 204, 302):
        assert run_filter(one, number, (pid,), audit=AUDIT["x86_64"]) == 0x7FFF0000
        assert run_filter(two, number, (pid,), audit=AUDIT["x86_64"]) != 0x7FFF0000
    assert sum(a != b for a, b in zip(one, two, strict=True)) <= 3 * 4


def test_program_names_what_it_does_not_know():
    with pytest.raises(ValueError, match=r"Expected architecture to be one of .*; got 'riscv64'"):
        seccomp.program("riscv64", 1)
    for pid in (0, -1, 2**31):
        with pytest.raises(ValueError, match="Expected pid to be a process id"):
            seccomp.program("x86_64", pid)


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
CHECKOUT_FILE = Path(__file__).resolve()
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


@pytest.fixture
def victim():
    """A world-writable file, open to the programs without confinement."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        file = Path(folder, "victim")
        file.write_text("unharmed")
        file.chmod(0o666)
        yield file
        assert file.read_text() == "unharmed"
        assert names(Path(folder)) == ["victim"]


PREFIX = "import ctypes, os, socket, signal, subprocess, resource\nlibc = ctypes.CDLL(None, use_errno=True)\n"
CALL = """
def call(number, *arguments):
    ctypes.set_errno(0)
    value = libc.syscall(ctypes.c_long(number), *map(ctypes.c_long, arguments))
    return value if value >= 0 else -ctypes.get_errno()
"""
# blocked by both walls: one leaves no file to open, the other allows libraries only
HIDDEN = {
    "read passwd": "open('/etc/passwd').read()",
    "read the checkout": f"open({str(CHECKOUT_FILE)!r}).read()",
    "read the package": f"open({confinement.__file__!r}).read()",
    "read labels bundled with sklearn": "import sklearn; open(sklearn.__path__[0] + '/datasets/data/iris.csv').read()",
    "read the parent's memory map": "open(f'/proc/{os.getppid()}/maps').read()",
    "read the parent's environment": "open(f'/proc/{os.getppid()}/environ', 'rb').read()",
    "read what everybody may": "open('{victim}').read()",
    "read through one's own root link": "open('/proc/self/root/etc/passwd').read()",
    "list processes": "os.listdir('/proc')",
    "list root": "os.listdir('/')",
    "list tmp": "os.listdir('/tmp')",
    "write a file": "open('{victim}', 'w')",
    "create a file by flags": "os.open('{victim}-new', os.O_CREAT | os.O_RDONLY)",
    "nameless file": "os.open('/tmp', os.O_TMPFILE | os.O_RDWR)",
    "write to null": "open('/dev/null', 'w')",
    "write one's own memory file": "open('/proc/self/mem', 'r+b')",
}
# allowed by Landlock, or invisible to it: each of them leaves a trace, or reads one
LOOKED_UP = {
    "open null": "os.open('/dev/null', 0)",
    "read a library": "open(os.__file__).read()",
    "list a library": "os.listdir(os.path.dirname(os.__file__))",
    "look at a file": "os.stat('/etc/passwd')",
    "look at a name that is not there": "os.lstat('/usr/lib/none')",
    "ask for access": "if not os.access('/', os.F_OK): raise FileNotFoundError",
    "read a link": "os.readlink('/proc/self')",
    "where it is": "os.getcwd()",
    "file system": "if libc.statfs(b'/', bytes(256)): raise FileNotFoundError",
    "file system of Python's": "if not os.path.exists('/usr'): raise FileNotFoundError",
    "bytes": "os.stat(b'/')",
    "a path from a descriptor": "os.stat('..', dir_fd=0)",
}
REFUSED = {
    "unlink": "os.unlink('{victim}')",
    "rename": "os.rename('{victim}', '{victim}-new')",
    "mkdir": "os.mkdir('{victim}-new')",
    "symlink": "os.symlink('/etc/passwd', '{victim}-new')",
    "hard link": "os.link('{victim}', '{victim}-new')",
    "fifo": "os.mkfifo('{victim}-new')",
    "chmod": "os.chmod('{victim}', 0o666)",
    "chown": "os.chown('{victim}', -1, -1)",
    "utime": "os.utime('{victim}')",
    "truncate": "os.truncate('{victim}', 0)",
    "extended attribute": "os.setxattr('{victim}', 'user.a', b'b')",
    "chdir": "os.chdir('/')",
    "tcp": "socket.socket()",
    "udp": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM)",
    "unix socket": "socket.socket(socket.AF_UNIX)",
    "socket pair": "socket.socketpair()",
    "memory file": "os.memfd_create('a')",
    "fork": "os._exit(3) if os.fork() == 0 else 0",
    "exec": "os.execv('/bin/true', ['true'])",
    "subprocess": "subprocess.run(['/bin/true'])",
    "kill the parent": "os.kill(os.getppid(), 0)",
    "kill everybody": "os.kill(-1, 0)",
    "raise a limit of the parent": "resource.prlimit(os.getppid(), resource.RLIMIT_CORE, (0, 0))",
    "setuid": "os.setuid(os.getuid())",
    "new group of processes": "os.setsid()",
    "priority": "os.nice(5)",
    "processors": "os.sched_setaffinity(0, {0})",
    "owner of signals": "import fcntl; fcntl.fcntl(0, 8, os.getppid())",
    "session": "os.getsid(0)",
    "group of another process": "os.getpgid(os.getppid())",
    "processors of another process": "os.sched_getaffinity(os.getppid())",
    "limits of another process": "resource.prlimit(os.getppid(), resource.RLIMIT_CORE)",
    "use of dead children": "resource.getrusage(resource.RUSAGE_CHILDREN)",
    "signals that queue up": "signal.raise_signal(signal.SIGRTMIN)",
    "pages of a library": "import mmap; mmap.mmap(-1, 4096).madvise(3)",
}  # fmt: skip
# raw calls, where Python has none: number on x86_64, on aarch64, arguments
RAW_REFUSED = {
    "vfork": (58, None), "ptrace": (101, 117), "process_vm_readv": (310, 270), "unshare": (272, 97, 0x10000000),
    "setns": (308, 268), "bpf": (321, 280), "userfaultfd": (323, 282), "perf_event_open": (298, 241),
    "io_uring_setup": (425, 425, 8), "pidfd_open": (434, 434, 1), "pidfd_getfd": (438, 438), "shmget": (29, 194, 0, 64),
    "keyctl": (250, 219), "seccomp": (317, 277), "memfd_secret": (447, 447), "landlock_restrict_self": (446, 446),
    "setitimer": (38, 103), "prlimit64 of its own": (302, 261, 0, 0, 1, 0), "setrlimit": (160, 164, 0, 1),
    "thread": (56, 220, 0x3D0F00), "membarrier": (324, 283, 1), "mincore": (27, 232), "mlock": (149, 228),
    "futex of all processes": (202, 98, 0, 1, 1), "futex of a thread": (202, 98, 0, 134, 0),
    "file mapping": (9, 222, 0, 4096, 1, 2, 0, 0), "msync": (26, 227),
    "huge pages": (9, 222, 0, 1 << 21, 3, 0x40022, -1, 0), "getpgid": (121, 155, 1), "capget": (125, 90),
    "survive the parent": (157, 167, 1, 0), "dumpable": (157, 167, 4, 1), "tgkill the parent": (234, 131, 1, 1, 9),
}  # fmt: skip


def errors_of(laboratory, victim, programs, without=()):
    answers = laboratory.run([PREFIX + code.replace("{victim}", str(victim)) for code in programs.values()], without)
    assert {answer["status"] for answer in answers} == {0}
    return {name: answer.get("error") for name, answer in zip(programs, answers, strict=True)}


@pytest.mark.matrix
@needs_kernel
def test_what_is_refused(laboratory, victim):
    assert errors_of(laboratory, victim, REFUSED) == dict.fromkeys(REFUSED, "PermissionError")


@pytest.mark.matrix
@needs_kernel
def test_there_are_no_files(laboratory, victim):
    programs = HIDDEN | LOOKED_UP
    assert errors_of(laboratory, victim, programs) == dict.fromkeys(programs, "FileNotFoundError")
    assert errors_of(laboratory, victim, programs, [Layer.LANDLOCK]) == dict.fromkeys(programs, "FileNotFoundError")


@pytest.mark.matrix
@needs_kernel
def test_landlock_is_a_second_wall(laboratory, victim):
    assert errors_of(laboratory, victim, HIDDEN, [Layer.SECCOMP]) == dict.fromkeys(HIDDEN, "PermissionError")


@needs_kernel
def test_clocks_of_others_are_none(laboratory):
    code = "import os, time\ntime.{call}((~{pid} << 3) | 2)"
    calls = [("clock_gettime", pid) for pid in ("os.getppid()", "os.getpid()", 1)] + [("clock_getres", "os.getppid()")]
    answers = laboratory.run([code.format(call=call, pid=pid) for call, pid in calls])
    assert [answer.get("errno") for answer in answers] == [errno.EINVAL] * len(calls)


@needs_kernel
def test_signals_do_not_queue_up_even_without_a_filter(laboratory):
    code = "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, {40})\nsignal.raise_signal(40)"
    assert laboratory.run([code], [Layer.SECCOMP])[0].get("errno") == errno.EAGAIN


@needs_kernel
def test_a_module_that_was_not_loaded_is_not_found(laboratory):
    names = ["xml.dom.minidom", "antigravity", "sklearn.datasets.none", "lang_envs.envs.datascicoding.env"]
    answers = laboratory.run([f"import sys\nassert {name!r} not in sys.modules\nimport {name}" for name in names])
    assert [answer.get("error") for answer in answers] == ["ModuleNotFoundError"] * len(names), answers


@pytest.mark.matrix_after(1)
@needs_kernel
def test_raw_calls_are_refused(laboratory):
    column = ARCHITECTURES.index(os.uname().machine)
    calls = {name: (entry[column], *entry[2:]) for name, entry in RAW_REFUSED.items() if entry[column] is not None}
    answers = laboratory.run([f"{PREFIX}{CALL}result = call(*{arguments})" for arguments in calls.values()])
    results = {name: answer.get("result", answer) for name, answer in zip(calls, answers, strict=True)}
    assert results == dict.fromkeys(calls, -errno.EPERM)


FITS = """
import warnings, numpy as np
warnings.simplefilter("error")
rng = np.random.default_rng(0)
x = rng.normal(size=(300, 6)); y = (x[:, 0] + x[:, 1] ** 2 > 0.5).astype(int)
{line}
p = model.fit(x[:200], y[:200]).predict_proba(x[200:])
result = float((p.argmax(1) == y[200:]).mean())
"""
MODELS = {
    "GaussianNB": "from sklearn.naive_bayes import GaussianNB; model = GaussianNB()",
    "LogisticRegression": "from sklearn.linear_model import LogisticRegression; model = LogisticRegression()",
    "KNN": "from sklearn.neighbors import KNeighborsClassifier; model = KNeighborsClassifier()",
    "brute KNN": "from sklearn.neighbors import KNeighborsClassifier; model = KNeighborsClassifier(algorithm='brute')",
    "RandomForest": "from sklearn.ensemble import RandomForestClassifier; model = RandomForestClassifier(20)",
    "MLP": "from sklearn.neural_network import MLPClassifier; model = MLPClassifier((8,), solver='lbfgs')",
    "HistGradientBoosting": (
        "from sklearn.ensemble import HistGradientBoostingClassifier as Boosting; model = Boosting(max_iter=20)"
    ),
    # not imported before the fork
    "gaussian process": (
        "from sklearn.gaussian_process import GaussianProcessClassifier; model = GaussianProcessClassifier()"
    ),
    "pipeline": (
        "from sklearn.pipeline import make_pipeline; from sklearn.kernel_approximation import Nystroem\n"
        "from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis\n"
        "model = make_pipeline(Nystroem(n_components=20, random_state=0), QuadraticDiscriminantAnalysis(reg_param=0.1))"
    ),
    "semi-supervised": "from sklearn.semi_supervised import LabelSpreading; model = LabelSpreading()",
}  # fmt: skip


@pytest.mark.matrix_after(1)
@needs_kernel
def test_models_are_fitted(laboratory):
    answers = laboratory.run([FITS.format(line=line) for line in MODELS.values()])
    for name, answer in zip(MODELS, answers, strict=True):
        assert answer.get("result", 0) > 0.65, (name, answer)


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


@pytest.mark.matrix_after(1)
@needs_kernel
@pytest.mark.parametrize(("n_jobs", "every"), [(2, 5), (None, 1), (2, 1)])
def test_classifiers_give_the_same_as_outside(laboratory, n_jobs, every):
    code = f"N_JOBS, EVERY = {n_jobs}, {every}\n{CLASSIFIERS}"
    (inside,), (outside,) = laboratory.run([code]), laboratory.run([code], list(Layer))
    assert inside["result"] == outside["result"]
    assert sum(isinstance(outcome, list) for outcome in inside["result"].values()) >= 30 // every


IS_OPEN = """
import errno, os
def is_pipe(number):
    try: return os.lseek(number, 0, 1) is None
    except OSError as error: return error.errno == errno.ESPIPE
"""
WORKS = {
    "waiting": "import time, threading\nresult = [threading.Event().wait(0.01), time.sleep(0.01)]",
    "locks": "import threading, queue\nwith threading.RLock(), threading.Condition(): result = queue.Queue().qsize()",
    "scipy": ("import scipy.optimize as o\nresult = round(o.brentq(lambda x: x * x - 2, 0, 2), 6)", 1.414214),
    "random": "import os\nresult = [len(os.urandom(8)) - 8, len(os.getrandom(4)) - 4]",
    "own limits": (PREFIX + "result = resource.getrlimit(resource.RLIMIT_FSIZE)", [0, 0]),
    "own use": (PREFIX + "result = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > 1000", True),
    "own signals": (
        "import os, signal\nseen = []\nsignal.signal(signal.SIGUSR1, lambda *a: seen.append(a[0]))\n"
        "signal.raise_signal(signal.SIGUSR1)\nresult = seen",
        [signal.SIGUSR1],
    ),
    "processors": "import os, joblib\nresult = [joblib.cpu_count() < 1, len(os.sched_getaffinity(0)) < 1]",
    "fewer threads": (
        "import numpy as np\nfrom sklearn.cluster import KMeans\n"
        "result = len(set(KMeans(3, n_init=1).fit_predict(np.eye(9))))",
        3,
    ),
    "what is open": (IS_OPEN + "(pipe,) = filter(is_pipe, range(64))\nopen(os.dup(pipe), 'wb').close()\nresult = 0", 0),
    "no terminal": ("import os\nresult = [os.isatty(n) for n in range(64)]", [False] * 64),
    "what is not there": (
        "import glob, os, pathlib\n"
        "result = [os.path.exists('/'), os.path.isdir('.'), glob.glob('/*'), list(os.walk('/')), "
        "pathlib.Path('/usr').exists()]",
        [False, False, [], [], False],
    ),
    "errors are described": (
        "import traceback, warnings\nwarnings.simplefilter('always')\n"
        "try: 1 / 0\nexcept ZeroDivisionError: result = traceback.format_exc().endswith('by zero\\n')",
        True,
    ),
    "clocks": "import time\nresult = [time.process_time() < 0, time.localtime().tm_year < 2000]",
    "memory": "import mmap\nwith mmap.mmap(-1, 1 << 20) as m: m.madvise(4)\nresult = 0",
    "spectral": (
        "import numpy as np\nresult = round(float(np.linalg.svd(np.ones((50, 40)))[1][0]), 6)",
        44.721360,
    ),
}  # fmt: skip


@needs_kernel
def test_what_honest_code_does_besides(laboratory):
    programs = {name: entry if isinstance(entry, tuple) else (entry, None) for name, entry in WORKS.items()}
    answers = laboratory.run([code for code, _ in programs.values()])
    for (name, (_, expected)), answer in zip(programs.items(), answers, strict=True):
        assert "result" in answer, (name, answer)
        if expected is not None:
            assert answer["result"] == expected, name
        else:
            assert not any(answer["result"] if isinstance(answer["result"], list) else [answer["result"]]), name


ENDS = {
    "abort": ("import os; os.abort()", -signal.SIGABRT),
    "own signal": ("import signal; signal.raise_signal(signal.SIGTERM)", -signal.SIGTERM),
    "segmentation fault": ("import ctypes; ctypes.string_at(1)", -signal.SIGSEGV),
    "exit": ("import os; os._exit(7)", 7),
    "no thread": (
        "import threading, os\ntry: threading.Thread(target=int).start()\nexcept RuntimeError: os._exit(6)",
        6,
    ),
}


@needs_kernel
def test_how_a_process_can_end(laboratory):
    answers = laboratory.run([code for code, _ in ENDS.values()])
    assert {n: a["status"] for n, a in zip(ENDS, answers, strict=True)} == {n: s for n, (_, s) in ENDS.items()}


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
    (Layer.SECCOMP, [], "import os\nos.utime('/dev/null')\nresult = True", "PermissionError"),
    (Layer.RESOURCE_LIMITS, [], MEMORY_BOMB, "OSError"),
    (Layer.NO_NEW_PRIVILEGES, [Layer.SECCOMP], NO_NEW_PRIVILEGES, None),
    (Layer.NO_NEW_PRIVILEGES, [], READ_PASSWD, "FileNotFoundError"),
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


@needs_kernel
def test_writing_stays_impossible_without_either_of_the_two(laboratory, victim):
    create = f"import os\nos.open('{victim}', os.O_CREAT | os.O_WRONLY)"
    for layer, error in ((Layer.LANDLOCK, "FileNotFoundError"), (Layer.SECCOMP, "PermissionError")):
        assert laboratory.run([create], [layer])[0]["error"] == error


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
def test_landlock_needs_no_new_privileges_and_says_so():
    script = """
from lang_envs.sandbox.confinement import landlock, seccomp, privileges
import os
privileges.drop_capabilities()
for attempt in (lambda: landlock.restrict([]), seccomp.install):
    try: attempt()
    except OSError as error: assert "forbid_new_privileges()" in str(error), error
    else: raise SystemExit(1)
assert privileges.prctl(39) == 0  # PR_GET_NO_NEW_PRIVS
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_landlock_without_a_kernel_for_it():
    with pytest.raises(OSError, match=r"Expected a kernel with Landlock"):
        landlock.restrict([], abi=0)


@pytest.mark.matrix_after(3)
@pytest.mark.parametrize(
    ("abi", "fields"),
    [
        (1, (0x1FFF,)), (2, (0x3FFF,)), (3, (0x7FFF,)), (4, (0x7FFF, 3)), (5, (0xFFFF, 3)), (6, (0xFFFF, 3, 3)),
        (7, (0xFFFF, 3, 3)), (8, (0xFFFF, 3, 3)), (9, (0x1FFFF, 3, 3)), (12, (0x1FFFF, 3, 3)),
    ],
)  # fmt: skip
def test_every_right_of_an_abi_is_handled(abi, fields):
    assert landlock._ruleset_attributes(abi) == struct.pack(f"={len(fields)}Q", *fields)


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


@pytest.mark.parametrize("budgets", [(0, 1), (1, 0), (-1, 5)])
def test_budgets_are_positive(budgets):
    with pytest.raises(ValueError, match="Expected budgets above 0; got memory_bytes="):
        resource_limits.limit_resources(memory_bytes=budgets[0], cpu_seconds=budgets[1])


@pytest.mark.skipif(sys.platform != "linux", reason="address space is counted on Linux only")
@pytest.mark.parametrize(("size", "fits"), [(100 << 20, True), (300 << 20, False)])
def test_memory_is_counted_from_what_is_mapped(size, fits):
    def action():
        resource_limits.limit_resources(memory_bytes=200 << 20, cpu_seconds=10)
        try:
            bytearray(size)
        except MemoryError:
            return not fits
        return fits

    assert in_a_fork(action) == 0


@pytest.mark.matrix_after(1)
@pytest.mark.parametrize(("ignore", "expected"), [(False, signal.SIGXCPU), (True, signal.SIGKILL)])
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


def test_a_child_whose_parent_is_gone_ends_at_once():
    def action():
        privileges.die_with_parent(os.getppid() + 1)
        return True

    assert in_a_fork(action) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child of its parent's end")
def test_a_child_dies_with_its_parent():
    read, write = os.pipe()
    parent = os.fork()
    if parent == 0:
        os.close(read)
        own = os.getpid()
        if os.fork() == 0:
            privileges.die_with_parent(own)
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


def test_becoming_root_is_no_way_down():
    with pytest.raises(ValueError, match="Expected user to be above 0"):
        privileges.become(0)


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


def test_namespaces_that_are_forbidden_are_none(monkeypatch):
    def refuse(flags):
        raise PermissionError(flags)

    monkeypatch.setattr(namespaces, "unshare", refuse)
    assert namespaces.enter() == frozenset()


def test_a_halfway_refusal_enters_nothing(monkeypatch):
    # as where a security module lets a user namespace be made and strips it of its power
    monkeypatch.setattr(namespaces, "_FLAGS", dict.fromkeys(namespaces._FLAGS, 0))
    monkeypatch.setattr(namespaces, "_map_ids", lambda user, group: (_ for _ in ()).throw(PermissionError()))
    monkeypatch.setattr(namespaces, "_CHOICES", (("user", "net"),))
    assert namespaces.enter() == frozenset()


# ---------------------------------------------------------------------- together


def test_the_probe_agrees_with_a_look_at_the_system():
    found = confinement.probe()
    assert found.active | found.missing.keys() == frozenset(Layer)
    assert not found.active & found.missing.keys()
    assert found.active - {Layer.NAMESPACES} == confinement.available_layers()
    assert found.is_sufficient == (found.active >= set(Layer) - {Layer.NAMESPACES})
    assert privileges.prctl(PR_GET_NO_NEW_PRIVS) == 0  # the caller stays free
    for layer, sentence in found.missing.items():
        assert sentence.startswith(f"Without {layer}, ")


def test_a_probe_that_fails_finds_nothing_and_says_so(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    found = confinement.probe()
    assert found.active == frozenset()
    assert not found.is_sufficient
    assert "by the filter of system calls only: the trial itself failed" in found.missing[Layer.LANDLOCK]


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
