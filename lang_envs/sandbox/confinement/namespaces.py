"""Namespaces: read-only files, a network without any interface, no other processes, queues or host name.

A layer for systems that offer it: many distributions, containers and clusters forbid user namespaces.
"""

from __future__ import annotations

import os
import struct
import sys
from pathlib import Path

from lang_envs.sandbox.confinement.privileges import system_call, unshare

_MOUNTS = Path("/proc/self/ns/mnt")
_MOUNT_SETATTR = 442  # of every architecture; Linux 5.12
_MOUNT_ATTR_RDONLY = 1
_AT_FDCWD = -100
_AT_RECURSIVE = 0x8000

_FLAGS = {
    "user": 0x10000000,
    "mnt": 0x00020000,
    "net": 0x40000000,
    "ipc": 0x08000000,
    "uts": 0x04000000,
    "pid": 0x20000000,
}
# From the most to the least; without "user" it takes a privileged caller.
_CHOICES = (
    ("user", "mnt", "net", "ipc", "uts", "pid"),
    ("user", "net", "ipc", "uts", "pid"),
    ("user", "net", "ipc", "uts"),
    ("user", "net"),
    ("net", "ipc", "uts", "pid"),
    ("net",),
)


def enter(*, pid: bool = True) -> frozenset[str]:
    """Enter new namespaces, as many as the system grants; the caller keeps its user and group ids.

    To be called once, by a process of a single thread, before `die_with_parent` (a user namespace makes the kernel
    forget it) and before any confinement of the caller.

    **With `"pid"` in the answer, the caller stays where it is; its children live in the new namespace**, and the
    first of them is special. So the supervisor is started in two steps:

    1. The outer process calls `enter()` and forks once. The child is process 1 inside and becomes the supervisor. The
       outer process closes all its descriptors (or the other end of a pipe never sees the end of file), waits for the
       child with `os.waitpid` and ends with its status; it never forks again (after the end of process 1, the kernel
       would answer ENOMEM).
    2. The supervisor calls `die_with_parent(0)`: its parent is out of sight, hence 0. Its forker calls
       `die_with_parent(1)`. With the end of the supervisor, the kernel kills all that is left in the namespace.

    The supervisor, as process 1, is sent no signal that it has no handler for, from outside only SIGKILL and SIGSTOP;
    orphans become its children, so it waits with `waitpid(-1, WNOHANG)` now and then. A process of the inside has an id
    of the inside, unusable outside: supervisor and forker must kill and wait themselves. `seccomp.install()` needs the
    id of the inside, as `os.getpid()` returns it. `/proc` still shows the outside (Landlock closes it);
    `/proc/self` is right all the same. Without `"pid"` none of this applies.

    Args:
        pid: Whether to ask for a process id namespace at all.

    Returns:
        Out of user, mnt, net, ipc, uts and pid, those entered; empty where none is granted. Never raises for that.
    """
    if sys.platform != "linux":
        return frozenset()
    for choice in _CHOICES:
        wanted = tuple(name for name in choice if pid or name != "pid")
        # Tried out first: a refusal halfway, at the id maps, would leave the caller as user "nobody".
        if _granted(wanted) and _unshare(wanted):
            return frozenset(wanted)
    return frozenset()


def _granted(names: tuple[str, ...]) -> bool:
    """Return whether a process like this one may enter these, tried in a child that ends at once."""
    try:
        child = os.fork()
    except OSError:
        return False
    if child == 0:
        os._exit(0 if _unshare(names) else 1)
    return os.waitpid(child, 0)[1] == 0


def _unshare(names: tuple[str, ...]) -> bool:
    user, group = os.geteuid(), os.getegid()
    try:
        outside = _MOUNTS.readlink()
        unshare(sum(_FLAGS[name] for name in names))
        if "user" in names:
            _map_ids(user, group)
        if "mnt" in names and _MOUNTS.readlink() != outside:
            _make_files_immutable()
    except OSError:
        return False
    return True


def _make_files_immutable() -> None:
    """Make every mounted file system read-only, as seen from this namespace.

    Reading then leaves no access time either: code could read that of any file, and use it as a memory.
    """
    attributes = struct.pack("=4Q", _MOUNT_ATTR_RDONLY, 0, 0, 0)
    system_call(_MOUNT_SETATTR, _AT_FDCWD, b"/", _AT_RECURSIVE, attributes, len(attributes))


def _map_ids(user: int, group: int) -> None:
    Path("/proc/self/setgroups").write_text("deny")  # the kernel's condition for an unprivileged group map
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
