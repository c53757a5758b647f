"""Landlock: allow the calling thread and all its descendants to read some files; refuse all other access.

An unprivileged access control of Linux 5.13 and later, `man 7 landlock`. Each kernel knows the rights of its ABI
version, and a right that a ruleset does not *handle* stays granted: therefore every known one is handled.
`stat`, `chmod`, `chown`, `utime` and extended attributes are outside of Landlock's scope; `seccomp` covers them.
"""

from __future__ import annotations

import contextlib
import os
import stat
import struct
import sys
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from lang_envs.sandbox.confinement.privileges import system_call

# Calls added after the tables of all architectures were merged: the same numbers everywhere.
_CREATE_RULESET = 444
_ADD_RULE = 445
_RESTRICT_SELF = 446
_CREATE_RULESET_VERSION = 1
_RULE_PATH_BENEATH = 1
_LOG_SAME_EXEC_OFF = 1

READ_FILE = 1 << 2
READ_DIR = 1 << 3
# The last filesystem right of each ABI version, as a number of bits: 13 rights in version 1, then one by one
# REFER (2), TRUNCATE (3), IOCTL_DEV (5) and RESOLVE_UNIX (9).
_FILESYSTEM_BITS = {1: 13, 2: 14, 3: 15, 5: 16, 9: 17}
_NETWORK_ABI = 4
_NETWORK_RIGHTS = 0b11  # bind and connect of TCP
_SCOPE_ABI = 6
_SCOPES = 0b11  # abstract unix sockets, signals
_QUIET_ABI = 7

_PATH_BENEATH = struct.Struct("=Qi")


class Rule(NamedTuple):
    """Rights at and beneath one path.

    Attributes:
        path: Absolute path.
        access: `READ_FILE`, `READ_DIR` or both.
    """

    path: str
    access: int


def abi_version() -> int:
    """Return the version of Landlock that the running kernel offers, 0 without any."""
    if sys.platform != "linux":
        return 0
    try:
        return system_call(_CREATE_RULESET, 0, 0, _CREATE_RULESET_VERSION)
    except OSError:
        return 0


def plan(readable: Iterable[str], listable: Iterable[str] = ()) -> tuple[Rule, ...]:
    """Find out the kind of each path: the kernel takes the right to list for directories only.

    Args:
        readable: Directories whose files may be read and listed, all the way down, and single files.
        listable: Directories that may be listed, all the way down.

    Returns:
        One rule for each path that exists.
    """
    access: dict[str, int] = {}
    for right, paths in ((READ_FILE | READ_DIR, readable), (READ_DIR, listable)):
        for path in paths:
            with contextlib.suppress(OSError):
                is_directory = stat.S_ISDIR(os.stat(path).st_mode)  # noqa: PTH116 - hot, and of plain strings
                granted = right if is_directory else right & READ_FILE
                access[path] = access.get(path, 0) | granted
    return tuple(Rule(path, right) for path, right in access.items() if right)


def restrict(readable: Sequence[str], listable: Sequence[str] = (), *, abi: int | None = None) -> None:
    """Refuse the calling thread, for good, all TCP and every access to files but reading the given ones.

    No file may be written, created, removed or executed anywhere. `dlopen` still works: mapping a library needs no
    more than the right to read it. From ABI 6 on, signals and abstract unix sockets end at the threads and
    descendants of the caller as well. A second call narrows the first.

    Args:
        readable: Directories whose files may be read and listed, all the way down, and single files. Here and below,
            a path that does not exist is skipped.
        listable: Directories that may be listed, all the way down.
        abi: Version of Landlock to use, at most that of the kernel; None for the kernel's.

    Raises:
        OSError: If the kernel has no Landlock or `no_new_privs` is not set.
    """
    abi = abi_version() if abi is None else abi
    ruleset = open_ruleset(plan(readable, listable), abi=abi)
    try:
        enforce(ruleset, abi=abi)
    finally:
        os.close(ruleset)


def open_ruleset(rules: Iterable[Rule], *, abi: int) -> int:
    """Write rules down in the kernel, ahead of the threads that are going to be bound by them.

    Args:
        rules: Rights to grant; a path that does not exist (any more) is skipped.
        abi: Version of Landlock to use, at most that of the kernel.

    Returns:
        A file descriptor, for `enforce`; it may be inherited, is closed at `exec`, and takes no further rules.

    Raises:
        OSError: If the kernel has no Landlock.
    """
    if abi < 1:
        raise OSError("Expected a kernel with Landlock, Linux 5.13 or later with landlock among its security modules.")
    attributes = _ruleset_attributes(abi)
    ruleset = system_call(_CREATE_RULESET, attributes, len(attributes))
    try:
        _add_rules(ruleset, rules)
    except BaseException:
        os.close(ruleset)
        raise
    return ruleset


def enforce(ruleset: int, *, abi: int) -> None:
    """Bind the calling thread and all it starts by a ruleset, on top of those that already do.

    Args:
        ruleset: Result of `open_ruleset`.
        abi: Version of Landlock that the ruleset was opened with.

    Raises:
        OSError: If `no_new_privs` is not set, and after 16 rulesets.
    """
    try:
        # Refusals are frequent here: kept out of the audit log.
        system_call(_RESTRICT_SELF, ruleset, _LOG_SAME_EXEC_OFF if abi >= _QUIET_ABI else 0)
    except OSError as error:
        message = f"Expected Landlock to be applied; got {error.strerror}. Fix: call forbid_new_privileges() before."
        raise OSError(error.errno, message) from error


def _ruleset_attributes(abi: int) -> bytes:
    bits = max(count for version, count in _FILESYSTEM_BITS.items() if version <= abi)
    fields = [(1 << bits) - 1]
    if abi >= _NETWORK_ABI:
        fields.append(_NETWORK_RIGHTS)
    if abi >= _SCOPE_ABI:
        fields.append(_SCOPES)
    return struct.pack(f"={len(fields)}Q", *fields)


def _add_rules(ruleset: int, rules: Iterable[Rule]) -> None:
    for path, access in rules:
        try:
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            system_call(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, _PATH_BENEATH.pack(access, descriptor))
        finally:
            os.close(descriptor)
