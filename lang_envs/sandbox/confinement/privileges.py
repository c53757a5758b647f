"""Rights that a process gives up by itself: new privileges, outliving its parent, capabilities, resources, open files.

Plain `prctl`, `capset` and `setrlimit`; they need no privilege and cannot be taken back.
Elsewhere than on Linux only the resource limits and the closing of files have an effect.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import struct
import sys
from collections.abc import Collection

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_CAPBSET_READ = 23
_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_SIGKILL = 9

_CAPABILITY_HEADER = struct.pack("=Ii", 0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, the calling thread
_CapabilitySets = ctypes.c_uint32 * 6  # two times effective, permitted, inheritable: low and high 32 capabilities


@functools.cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    # c_void_p takes numbers, in all 64 bits of a register, and bytes as the address of their content.
    libc.syscall.argtypes = [ctypes.c_long] + [ctypes.c_void_p] * 5
    libc.syscall.restype = ctypes.c_long
    libc.prctl.argtypes = [ctypes.c_int] + [ctypes.c_void_p] * 4
    libc.prctl.restype = ctypes.c_int
    # All looked up now, before any fork: each costs a child a tenth of a millisecond.
    for name in ("capget", "capset", "unshare"):
        if hasattr(libc, name):
            getattr(libc, name).restype = ctypes.c_int
    return libc


def system_call(number: int, *arguments: int | bytes) -> int:
    """Make a system call that the C library has no name for.

    Args:
        number: Number of the call on this machine.
        arguments: At most five: numbers, or buffers passed by address. Those left out are 0.

    Returns:
        The result of the kernel.

    Raises:
        OSError: If the kernel refused.
    """
    return _checked(_libc().syscall(number, *arguments, *[0] * (5 - len(arguments))))


def prctl(option: int, a: int | bytes = 0, b: int | bytes = 0) -> int:
    """Call `prctl(2)`.

    Args:
        option: Number of the operation.
        a: First argument: a number, or a buffer passed by address.
        b: Second argument.

    Returns:
        The result of the kernel.

    Raises:
        OSError: If the kernel refused, and on systems without `prctl`.
    """
    if sys.platform != "linux":
        raise OSError(f"Expected Linux, which has prctl; got {sys.platform}.")
    return _checked(_libc().prctl(option, a, b, 0, 0))


def unshare(flags: int) -> None:
    """Call `unshare(2)`.

    Args:
        flags: Namespaces to leave for new ones, CLONE_NEW* bits.

    Raises:
        OSError: If the kernel refused.
    """
    _checked(_libc().unshare(flags))


def _checked(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def forbid_new_privileges() -> None:
    """Set `no_new_privs`: no program started from here gains rights by set-user-id or file capabilities.

    Landlock and seccomp ask for it of everybody who is not an administrator.

    Raises:
        OSError: On systems other than Linux 3.5 or later.
    """
    prctl(_PR_SET_NO_NEW_PRIVS, 1)


def die_with_parent(parent_pid: int) -> None:
    """Have the kernel kill this process when its parent ends, and end at once if the parent has ended already.

    The kernel forgets the request at `setuid` and when a user namespace is entered: call this after both. It follows
    the *thread* that forked, so the parent must fork from the thread that lives longest.

    Args:
        parent_pid: Result of `os.getpid()` in the parent before the fork. It is 0, as `os.getppid()` gives then, where
            the parent lives outside of this process's pid namespace.
    """
    if sys.platform == "linux":
        prctl(_PR_SET_PDEATHSIG, _SIGKILL)
    if os.getppid() != parent_pid:
        os._exit(1)  # not SIGKILL: the first process of a pid namespace is immune to its own signals


def become(user: int) -> None:
    """Turn from root into another user, for good: no supplementary groups, a group id equal to the user id.

    The kernel then hides the process from its new user as if it had been started set-user-id: `/proc/self` would
    stay root's, and no namespace could be entered. That is taken back; the memory has no secret of root's.

    Args:
        user: User id, above 0.

    Raises:
        ValueError: If the user id is not above 0.
        OSError: If the caller lacks the right.
    """
    if user <= 0:
        raise ValueError(f"Expected user to be above 0, an id without privileges; got {user}.")
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
    if sys.platform == "linux":
        prctl(_PR_SET_DUMPABLE, 1)


def drop_capabilities() -> None:
    """Empty the bounding, ambient, effective, permitted and inheritable sets; no-op for a process without any.

    User id 0 stays the owner of its files: Landlock and seccomp stop root's access as an owner.

    Raises:
        OSError: If the kernel refuses to take a capability away.
    """
    if sys.platform != "linux" or not any(_capabilities()):
        return
    drop_bounding_set()
    with contextlib.suppress(OSError):  # a kernel before 4.3 has no ambient set
        prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    _checked(_libc().capset(_CAPABILITY_HEADER, _CapabilitySets()))


def drop_bounding_set() -> None:
    """Empty the set of capabilities that a program started from here could ever have; those held now stay.

    Part of `drop_capabilities`, and most of its time: a process that forks many children and starts no program may
    call it once, after it has entered its namespaces, to save them a tenth of a millisecond each.
    """
    if sys.platform != "linux":
        return
    # EINVAL behind the last capability; EPERM without CAP_SETPCAP, when only no_new_privs keeps the set shut.
    with contextlib.suppress(OSError):
        for capability in range(64):
            if prctl(_PR_CAPBSET_READ, capability):
                prctl(_PR_CAPBSET_DROP, capability)


def _capabilities() -> tuple[int, ...]:
    sets = _CapabilitySets()
    _checked(_libc().capget(_CAPABILITY_HEADER, sets))
    return tuple(sets)


def close_other_files(keep: Collection[int]) -> None:
    """Close every file descriptor of this process but those in `keep`.

    Args:
        keep: Descriptors that stay open; include 0, 1 and 2 if they shall.
    """
    try:
        # A list, not a range: the limit on descriptors may be a billion, and may have been lowered below one in use.
        open_files = [int(name) for name in os.listdir("/dev/fd")]  # noqa: PTH208 - names, not paths
    except OSError:
        open_files = list(range(min(os.sysconf("SC_OPEN_MAX"), 65536)))
    for descriptor in open_files:
        if descriptor not in keep:
            with contextlib.suppress(OSError):  # the one that was listing
                os.close(descriptor)
