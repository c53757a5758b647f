"""seccomp: an allow-list of system calls for the calling thread and all its descendants.

The filter is a program for the kernel's classic BPF machine, written here for x86_64 and aarch64. It allows the calls
of a computation that has loaded all its code, some with conditions on the arguments: memory, clocks, own signals,
reading and writing of open files. Any other call gets EPERM, and any lookup of a file ENOENT.

Its purpose is more than to prevent harm: *no call may leave a trace in the kernel for a later process*. The code of
one split knows labels that another split is tested on, and would note them down. Names that were looked up stay in a
cache of the kernel, and looking again is faster; process ids count on; clocks of processes can be read. So all files,
threads and names of other processes are refused. A filter sees the numbers that are passed, not the memory behind a
pointer, so it refuses whole calls that take a path or a process.
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

from lang_envs.sandbox.confinement.privileges import prctl

_PR_GET_NAME = 16
_PR_SET_SECCOMP = 22
_MODE_FILTER = 2

_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_KILL_PROCESS = 0x80000000

_LOAD = 0x20  # BPF_LD | BPF_W | BPF_ABS: a 32-bit word of struct seccomp_data
_JUMP_EQUAL = 0x15
_JUMP_AT_LEAST = 0x35
_JUMP_SET = 0x45
_RETURN = 0x06

_NUMBER = 0  # offsets into struct seccomp_data
_ARCHITECTURE = 4
_ARGUMENTS = 16  # 64 bits each

_X32_BIT = 0x40000000

# F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_DUPFD_CLOEXEC. F_SETOWN with F_SETSIG would send any signal to any process.
_FCNTL_COMMANDS = (0, 1, 2, 3, 1030)

# MADV_NORMAL, DONTNEED, FREE, HUGEPAGE, NOHUGEPAGE, DONTDUMP, DODUMP. The rest reach the pages of a library that all
# processes share: PAGEOUT and COLD throw them out, WILLNEED and POPULATE_READ load them, and their speed reveals it.
_ADVICE = (0, 4, 8, 14, 15, 16, 17)
_MAP_ANONYMOUS = 0x20
_MAP_HUGETLB = 0x40000  # from a store that all of the machine share
# WAIT, WAKE, REQUEUE, CMP_REQUEUE, WAKE_OP, WAIT_BITSET, WAKE_BITSET, and the waiting ones by the clock of the day; all
# private: else a futex in a page of a library is one and the same for all processes. Those with priority inheritance
# look up the thread that a number in memory names, and so reveal which processes exist.
_FUTEX_OPERATIONS = tuple(128 | operation for operation in (0, 1, 3, 4, 5, 9, 10, 256, 256 | 9))
_N_CLOCKS = 12  # those above, negative ones included, are clocks of other processes or of devices
_SIGKILL = 9
_FIRST_REALTIME_SIGNAL = 32  # they queue up, and all processes of a user share the room

_FIRST_YOUNG = 450
"""Number of the first call (set_mempolicy_home_node) too young for a C library to rely on.

It and all later ones are answered as by an old kernel.
"""

_Program = list[tuple[int, int, int, int]]  # code, jump if true, jump if false, constant


class Architecture(NamedTuple):
    """Facts of a kind of machine for the filter.

    Attributes:
        audit: AUDIT_ARCH number of the machine.
        column: Column of the machine in the table of system calls.
    """

    audit: int
    column: int


_ARCHITECTURES = {"x86_64": Architecture(0xC000003E, 0), "aarch64": Architecture(0xC00000B7, 1)}

# name: number on x86_64 and on aarch64, -1 where there is none.
_ALLOWED = {
    # memory
    "mprotect": (10, 226), "munmap": (11, 215), "brk": (12, 214), "mremap": (25, 216),
    # open files
    "read": (0, 63), "write": (1, 64), "close": (3, 57), "fstat": (5, 80), "lseek": (8, 62), "pread64": (17, 67),
    "readv": (19, 65), "writev": (20, 66), "dup": (32, 23), "dup2": (33, -1), "dup3": (292, 24),
    # the processor, and the end
    "sched_yield": (24, 124), "getcpu": (309, 168), "exit": (60, 93), "exit_group": (231, 94),
    # signals of its own
    "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139), "rt_sigpending": (127, 136),
    "rt_sigtimedwait": (128, 137), "rt_sigsuspend": (130, 133), "sigaltstack": (131, 132), "pause": (34, -1),
    "restart_syscall": (219, 128),
    # time
    "nanosleep": (35, 101), "gettimeofday": (96, 169), "time": (201, -1), "times": (100, 153),
    # who it is
    "getpid": (39, 172), "gettid": (186, 178), "getppid": (110, 173), "getuid": (102, 174), "getgid": (104, 176),
    "geteuid": (107, 175), "getegid": (108, 177), "getgroups": (115, 158), "getresuid": (118, 148),
    "getresgid": (120, 150), "uname": (63, 160), "getrlimit": (97, 163), "getrandom": (318, 278),
}  # fmt: skip

_CONDITIONAL = {
    "mmap": (9, 222), "madvise": (28, 233), "futex": (202, 98), "clock_gettime": (228, 113), "clock_getres": (229, 114),
    "clock_nanosleep": (230, 115), "getrusage": (98, 165), "sched_getaffinity": (204, 123), "prlimit64": (302, 261),
    "tgkill": (234, 131), "prctl": (157, 167), "fcntl": (72, 25),
}  # fmt: skip

# Python and libraries are prepared for ENOENT: a module is not found, an optional file is absent. `fstat`
# of newer C libraries is newfstatat(file, ""), a path like any other to a filter.
_LOOKUPS = {
    "open": (2, -1), "openat": (257, 56), "openat2": (437, 437), "stat": (4, -1), "lstat": (6, -1),
    "newfstatat": (262, 79), "statx": (332, 291), "access": (21, -1), "faccessat": (269, 48),
    "faccessat2": (439, 439), "readlink": (89, -1), "readlinkat": (267, 78), "getcwd": (79, 17), "statfs": (137, 43),
}  # fmt: skip

# Answers that no descriptor is a terminal.
_IOCTL = (16, 29)


def supported() -> bool:
    """Return whether the filter is written for this machine, and its kernel takes filters."""
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
        pid: Id of the process as it sees itself, the only one that calls may name; None to ask the system.

    Raises:
        OSError: If the machine or kernel has no such filter, or `no_new_privs` is not set.
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
    """Return the filter as the kernel wants it: instructions of 8 bytes.

    Args:
        architecture: `"x86_64"` or `"aarch64"`.
        pid: Id of the process itself, the only one that calls may name, above 0.

    Returns:
        Little-endian `struct sock_filter` records.

    Raises:
        ValueError: If the architecture is unknown, or the process id is out of range.
    """
    if architecture not in _ARCHITECTURES:
        raise ValueError(f"Expected architecture to be one of {list(_ARCHITECTURES)}; got {architecture!r}.")
    if not 0 < pid < 1 << 31:
        raise ValueError(f"Expected pid to be a process id; got {pid}.")
    return struct.pack("<I", pid).join(_template(architecture))


@functools.cache
def _template(architecture: str) -> list[bytes]:
    """Return the program between the places of the process id, the only thing in it that differs between processes."""
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
    return code.split(struct.pack("<I", _OWN_PID))


_OWN_PID = 0xFFFFFFA5  # stands for the process id in the template; occurs nowhere else in it


def _result(action: int) -> tuple[int, int, int, int]:
    return (_RETURN, 0, 0, action)


def _fail(code: int) -> _Program:
    return [_result(_ERRNO | code)]


def _segments(column: int) -> list[tuple[int, _Program]]:
    """Return the decisions by ranges of system calls: ascending first numbers, each with its instructions."""
    decisions: dict[int, _Program] = {numbers[column]: [_result(_ALLOW)] for numbers in _ALLOWED.values()}
    decisions |= {numbers[column]: _fail(errno.ENOENT) for numbers in _LOOKUPS.values()}
    decisions[_IOCTL[column]] = _fail(errno.ENOTTY)
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
    """Return a balanced tree of comparisons: ten instructions to any decision instead of a hundred in a row."""
    if len(segments) == 1:
        return segments[0][1]
    middle = len(segments) // 2
    low, high = _decide(segments[:middle]), _decide(segments[middle:])
    return [(_JUMP_AT_LEAST, len(low), 0, segments[middle][0]), *low, *high]


def _conditions() -> dict[str, _Program]:
    clocks = [(_LOAD, 0, 0, _argument(0)), (_JUMP_AT_LEAST, 0, 1, _N_CLOCKS), *_fail(errno.EINVAL), _result(_ALLOW)]
    return {
        "mmap": [
            (_LOAD, 0, 0, _argument(3)),
            (_JUMP_SET, 2, 0, _MAP_HUGETLB),
            (_JUMP_SET, 0, 1, _MAP_ANONYMOUS),
            _result(_ALLOW),
            *_fail(errno.EPERM),
        ],
        "madvise": _only_with(2, *_ADVICE),
        "futex": _only_with(1, *_FUTEX_OPERATIONS),
        "clock_gettime": clocks,
        "clock_getres": clocks,
        "clock_nanosleep": clocks,
        "getrusage": _only_with(0, 0, 1),  # RUSAGE_SELF, RUSAGE_THREAD
        "sched_getaffinity": _only_with(0, 0, _OWN_PID),
        "prlimit64": [
            (_LOAD, 0, 0, _argument(2)),
            (_JUMP_EQUAL, 0, 6, 0),
            (_LOAD, 0, 0, _argument(2) + 4),
            (_JUMP_EQUAL, 0, 4, 0),
            (_LOAD, 0, 0, _argument(0)),
            (_JUMP_EQUAL, 1, 0, 0),
            (_JUMP_EQUAL, 0, 1, _OWN_PID),
            _result(_ALLOW),
            *_fail(errno.EPERM),
        ],
        "tgkill": [
            (_LOAD, 0, 0, _argument(0)),
            (_JUMP_EQUAL, 0, 3, _OWN_PID),
            (_LOAD, 0, 0, _argument(2)),
            (_JUMP_EQUAL, 1, 0, _SIGKILL),  # or code could pass for a process that somebody else has killed
            (_JUMP_AT_LEAST, 0, 1, _FIRST_REALTIME_SIGNAL),
            *_fail(errno.EPERM),
            _result(_ALLOW),
        ],
        "prctl": _only_with(0, _PR_GET_NAME),
        "fcntl": _only_with(1, *_FCNTL_COMMANDS),
    }


def _argument(index: int) -> int:
    """Return the offset of the low half of an argument.

    The high half of one that the kernel takes as an `int` has no effect.
    """
    return _ARGUMENTS + 8 * index


def _only_with(argument: int, *values: int) -> _Program:
    tests = [(_JUMP_EQUAL, len(values) - index, 0, value) for index, value in enumerate(values)]
    return [(_LOAD, 0, 0, _argument(argument)), *tests, *_fail(errno.EPERM), _result(_ALLOW)]
