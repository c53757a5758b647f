"""seccomp: which system calls the calling thread and all its descendants may make, an allow-list.

The filter is a program for the kernel's classic BPF machine, written here for x86_64 and aarch64. What a numpy and
scikit-learn computation in one process with Python threads needs is allowed, some of it with conditions on the
arguments; whatever else is called gets EPERM, or ENOSYS where the C library then takes an older way.

A filter sees the numbers that are passed, never what a pointer points at: which *files* may be read is Landlock's
part. Both are needed, neither covers the other (`confinement`).
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import platform
import struct
import sys
from typing import NamedTuple

from lang_envs.datascicoding.sandbox.privileges import prctl

__all__ = ["Architecture", "install", "program", "supported"]

_PR_GET_NAME = 16
_PR_SET_NAME = 15
_PR_SET_SECCOMP = 22
_MODE_FILTER = 2

_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_KILL_PROCESS = 0x80000000

_LOAD = 0x20  # BPF_LD | BPF_W | BPF_ABS: a 32-bit word of struct seccomp_data
_AND = 0x54
_JUMP_EQUAL = 0x15
_JUMP_AT_LEAST = 0x35
_JUMP_SET = 0x45
_RETURN = 0x06

_NUMBER = 0  # offsets into struct seccomp_data
_ARCHITECTURE = 4
_ARGUMENTS = 16  # 64 bits each

_X32_BIT = 0x40000000

_CLONE_THREAD = 0x00010000
# A new namespace, a traced child, a process file descriptor: never part of starting a thread.
_CLONE_REFUSED = (
    0x00000080 | 0x00001000 | 0x00002000 | 0x00004000 | 0x00020000 | 0x00800000 | 0x02000000 | 0x7C000000
)  # NEWTIME, PIDFD, PTRACE, VFORK, NEWNS, UNTRACED, NEWCGROUP, and NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
# O_WRONLY, O_RDWR, O_CREAT, O_TRUNC, O_APPEND and the bit that makes O_TMPFILE: equal on both architectures, which
# differ in O_DIRECTORY, O_NOFOLLOW, O_DIRECT and O_LARGEFILE only.
_OPEN_REFUSED = 0o1 | 0o2 | 0o100 | 0o1000 | 0o2000 | 0o20000000
# F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_DUPFD_CLOEXEC. F_SETOWN with F_SETSIG would send any signal to any process.
_FCNTL_COMMANDS = (0, 1, 2, 3, 1030)

# From here on (set_mempolicy_home_node) a call is too young for a C library to rely on it: as if the kernel were old.
_FIRST_YOUNG = 450
_YOUNG_ALLOWED = (453,)  # map_shadow_stack: how threads start where the C library uses shadow stacks

_Program = list[tuple[int, int, int, int]]  # code, jump if true, jump if false, constant


class Architecture(NamedTuple):
    """What the filter must know of a kind of machine.

    Attributes:
        audit: Its AUDIT_ARCH number.
        column: Its column in the table of system calls.
    """

    audit: int
    column: int


_ARCHITECTURES = {"x86_64": Architecture(0xC000003E, 0), "aarch64": Architecture(0xC00000B7, 1)}

# name: number on x86_64 and on aarch64, -1 where there is none.
_ALLOWED = {
    # memory
    "mmap": (9, 222), "mprotect": (10, 226), "munmap": (11, 215), "brk": (12, 214), "mremap": (25, 216),
    "madvise": (28, 233),
    # files that are open, and looking at those that are not
    "read": (0, 63), "write": (1, 64), "close": (3, 57), "stat": (4, -1), "fstat": (5, 80), "lstat": (6, -1),
    "lseek": (8, 62), "pread64": (17, 67), "readv": (19, 65), "writev": (20, 66), "access": (21, -1),
    "dup": (32, 23), "dup2": (33, -1), "dup3": (292, 24), "getcwd": (79, 17), "readlink": (89, -1),
    "readlinkat": (267, 78), "getdents64": (217, 61), "newfstatat": (262, 79), "faccessat": (269, 48),
    "statx": (332, 291), "faccessat2": (439, 439),
    # threads and locks
    "sched_yield": (24, 124), "futex": (202, 98), "sched_getaffinity": (204, 123), "set_robust_list": (273, 99),
    "getcpu": (309, 168), "membarrier": (324, 283), "rseq": (334, 293), "exit": (60, 93), "exit_group": (231, 94),
    # signals of its own
    "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139), "rt_sigpending": (127, 136),
    "rt_sigtimedwait": (128, 137), "rt_sigsuspend": (130, 133), "sigaltstack": (131, 132), "pause": (34, -1),
    "restart_syscall": (219, 128),
    # time
    "nanosleep": (35, 101), "gettimeofday": (96, 169), "time": (201, -1), "clock_gettime": (228, 113),
    "clock_getres": (229, 114), "clock_nanosleep": (230, 115), "times": (100, 153),
    # who and where it is
    "getpid": (39, 172), "gettid": (186, 178), "getppid": (110, 173), "getpgrp": (111, -1), "getpgid": (121, 155),
    "getsid": (124, 156), "getuid": (102, 174), "getgid": (104, 176), "geteuid": (107, 175), "getegid": (108, 177),
    "getgroups": (115, 158), "getresuid": (118, 148), "getresgid": (120, 150), "uname": (63, 160),
    "sysinfo": (99, 179), "getrlimit": (97, 163), "getrusage": (98, 165), "getrandom": (318, 278),
}  # fmt: skip

_CONDITIONAL = {
    "clone": (56, 220), "prlimit64": (302, 261), "open": (2, -1), "openat": (257, 56), "tgkill": (234, 131),
    "prctl": (157, 167), "fcntl": (72, 25),
}  # fmt: skip

# ENOTTY makes Python take fcntl to set close-on-exec, and tells everybody that nothing here is a terminal.
_FAILING = {"ioctl": (16, 29, errno.ENOTTY), "clone3": (435, 435, errno.ENOSYS), "openat2": (437, 437, errno.ENOSYS)}


def supported() -> bool:
    """Whether this machine is one the filter is written for, and its kernel takes filters."""
    if sys.platform != "linux" or platform.machine() not in _ARCHITECTURES or struct.calcsize("P") != 8:
        return False
    try:
        prctl(_PR_SET_SECCOMP, _MODE_FILTER, 0)  # no program at this address: EFAULT where there would be a use for it
    except OSError as error:
        return error.errno == errno.EFAULT
    return True


def install(pid: int | None = None) -> None:
    """Filter the system calls of the calling thread and of all that it starts, for good.

    Args:
        pid: The process's own id as it sees itself, None to ask; the one process that `tgkill` may aim at.

    Raises:
        OSError: Where the machine or kernel has no such filter, or `no_new_privs` is not set.
    """
    machine = platform.machine()
    if sys.platform != "linux" or machine not in _ARCHITECTURES:
        raise OSError(f"Expected Linux on {' or '.join(_ARCHITECTURES)}; got {sys.platform} on {machine}.")
    code = program(machine, os.getpid() if pid is None else pid)
    address = ctypes.cast(ctypes.c_char_p(code), ctypes.c_void_p).value
    # struct sock_fprog: the number of instructions, and where they are
    header = struct.pack("@HP", len(code) // 8, address)
    try:
        prctl(_PR_SET_SECCOMP, _MODE_FILTER, header)
    except OSError as error:
        message = f"Expected a seccomp filter; got {error.strerror}. Fix: call forbid_new_privileges() before."
        raise OSError(error.errno, message) from error


def program(architecture: str, pid: int) -> bytes:
    """The filter as the kernel wants it: instructions of 8 bytes.

    Args:
        architecture: `"x86_64"` or `"aarch64"`.
        pid: The process whose threads `tgkill` may aim at, above 0.

    Returns:
        Little-endian `struct sock_filter` records.

    Raises:
        ValueError: For another architecture, or a process id that is none.
    """
    if architecture not in _ARCHITECTURES:
        raise ValueError(f"Expected architecture to be one of {list(_ARCHITECTURES)}; got {architecture!r}.")
    if not 0 < pid < 1 << 31:
        raise ValueError(f"Expected pid to be a process id; got {pid}.")
    before, after = _template(architecture)
    return before + struct.pack("<I", pid) + after


@functools.cache
def _template(architecture: str) -> tuple[bytes, bytes]:
    """The program before and after the process id, the only thing in it that differs between processes."""
    machine = _ARCHITECTURES[architecture]
    body = _decide(_segments(machine.column))
    if architecture == "x86_64":
        body = [(_JUMP_AT_LEAST, 0, 1, _X32_BIT), _result(_KILL_PROCESS), *body]
    instructions = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_JUMP_EQUAL, 1, 0, machine.audit),
        _result(_KILL_PROCESS),
        (_LOAD, 0, 0, _NUMBER),
        *body,
    ]
    code = b"".join(struct.pack("<HBBI", *instruction) for instruction in instructions)
    before, after = code.split(struct.pack("<I", _OWN_PID))
    return before, after


_OWN_PID = 0xFFFFFFA5  # stands for the process id in the template; occurs nowhere else in it


def _result(action: int) -> tuple[int, int, int, int]:
    return (_RETURN, 0, 0, action)


def _fail(code: int) -> _Program:
    return [_result(_ERRNO | code)]


def _segments(column: int) -> list[tuple[int, _Program]]:
    """What to do from which system call on: ascending first numbers, each with the instructions that decide."""
    decisions: dict[int, _Program] = {numbers[column]: [_result(_ALLOW)] for numbers in _ALLOWED.values()}
    decisions |= {number: [_result(_ALLOW)] for number in _YOUNG_ALLOWED}
    decisions |= {entry[column]: _fail(entry[2]) for entry in _FAILING.values()}
    conditions = _conditions()
    decisions |= {numbers[column]: conditions[name] for name, numbers in _CONDITIONAL.items()}
    decisions.pop(-1, None)
    segments: list[tuple[int, _Program]] = []
    for number in range(max(_FIRST_YOUNG, *decisions) + 2):
        default = _fail(errno.EPERM if number < _FIRST_YOUNG else errno.ENOSYS)
        decision = decisions.get(number, default)
        if not segments or segments[-1][1] != decision:
            segments.append((number, decision))
    return segments


def _decide(segments: list[tuple[int, _Program]]) -> _Program:
    """A balanced tree of comparisons: ten instructions to any decision instead of a hundred in a row."""
    if len(segments) == 1:
        return segments[0][1]
    middle = len(segments) // 2
    low, high = _decide(segments[:middle]), _decide(segments[middle:])
    return [(_JUMP_AT_LEAST, len(low), 0, segments[middle][0]), *low, *high]


def _conditions() -> dict[str, _Program]:
    return {
        "clone": [
            (_LOAD, 0, 0, _argument(0)),
            (_AND, 0, 0, _CLONE_THREAD | _CLONE_REFUSED),
            (_JUMP_EQUAL, 0, 1, _CLONE_THREAD),
            _result(_ALLOW),
            *_fail(errno.EPERM),
        ],
        "prlimit64": [
            (_LOAD, 0, 0, _argument(2)),
            (_JUMP_EQUAL, 0, 3, 0),
            (_LOAD, 0, 0, _argument(2) + 4),
            (_JUMP_EQUAL, 0, 1, 0),
            _result(_ALLOW),
            *_fail(errno.EPERM),
        ],
        "open": _only_for_reading(1),
        "openat": _only_for_reading(2),
        "tgkill": _only_with(0, _OWN_PID),
        "prctl": _only_with(0, _PR_SET_NAME, _PR_GET_NAME),
        "fcntl": _only_with(1, *_FCNTL_COMMANDS),
    }


def _argument(index: int) -> int:
    """Offset of the low half of an argument. The high half of one that the kernel takes as an `int` has no effect."""
    return _ARGUMENTS + 8 * index


def _only_for_reading(flags: int) -> _Program:
    return [
        (_LOAD, 0, 0, _argument(flags)),
        (_JUMP_SET, 0, 1, _OPEN_REFUSED),
        *_fail(errno.EACCES),
        _result(_ALLOW),
    ]


def _only_with(argument: int, *values: int) -> _Program:
    tests = [(_JUMP_EQUAL, len(values) - index, 0, value) for index, value in enumerate(values)]
    return [(_LOAD, 0, 0, _argument(argument)), *tests, *_fail(errno.EPERM), _result(_ALLOW)]
