"""The layers of confinement together: rights that a child of the sandbox gives up, and the layers of this machine.

The filter of system calls, put up last, is the first wall: behind it no file can be opened or even looked up, no thread
or process started, no other process named, so that code finds no secret and leaves no trace. Landlock is the second: if
a filter fails, it still keeps code from every file but those of the libraries, though not from looking names up. The
other layers bound the remaining risk.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from lang_envs.sandbox.confinement import landlock, namespaces, privileges, resource_limits, seccomp
from lang_envs.sandbox.confinement.library_files import library_paths

__all__ = [
    "Confinement",
    "Layer",
    "Prepared",
    "available_layers",
    "confine_early",
    "confine_late",
    "library_paths",
    "prepare",
    "probe",
]


class Layer(StrEnum):
    """A measure that confines the code, independent of the rest except that Landlock and seccomp need the first."""

    NO_NEW_PRIVILEGES = "no-new-privileges"
    CAPABILITIES = "capabilities"
    LANDLOCK = "landlock"
    SECCOMP = "seccomp"
    RESOURCE_LIMITS = "resource-limits"
    NAMESPACES = "namespaces"


_COST = {
    Layer.NO_NEW_PRIVILEGES: "set-user-id programs keep their power",
    Layer.CAPABILITIES: "code run by an administrator keeps an administrator's rights",
    Layer.LANDLOCK: "code is kept from the files of its user by the filter of system calls only",
    Layer.SECCOMP: "code can open network connections, start processes, signal those of its user and leave notes",
    Layer.RESOURCE_LIMITS: "code can use up memory and processor until its deadline",
    Layer.NAMESPACES: "the network and other processes are kept away by the other layers only",
}


@dataclass(frozen=True)
class Confinement:
    """Layers that a machine grants.

    Attributes:
        active: Layers that were tried and hold.
        missing: Sentence on the open risk and the reason, for each of the other layers.
    """

    active: frozenset[Layer]
    missing: Mapping[Layer, str]

    @property
    def is_sufficient(self) -> bool:
        """Whether every layer holds, except perhaps the namespaces: they only repeat other layers."""
        return self.active >= frozenset(Layer) - {Layer.NAMESPACES}


class Prepared(NamedTuple):
    """Resources that are the same for all children, made once, before any fork.

    Attributes:
        ruleset: File descriptor of a Landlock ruleset, None without Landlock. It must be open in a child until
            `confine_early` closes it: a process with it could add rules for the children to come.
        own_rules: Rules that each child adds for itself.
        abi: Version of Landlock, 0 without.
        layers: Layers of the system.
    """

    ruleset: int | None
    own_rules: tuple[landlock.Rule, ...]
    abi: int
    layers: frozenset[Layer]


def available_layers() -> frozenset[Layer]:
    """Return the layers that `confine_early` and `confine_late` apply here, untried; `probe` tries them."""
    layers = set()
    if sys.platform == "linux":
        layers |= {Layer.NO_NEW_PRIVILEGES, Layer.CAPABILITIES}
    if landlock.abi_version() > 0:
        layers.add(Layer.LANDLOCK)
    if seccomp.supported():
        layers.add(Layer.SECCOMP)
    if sys.platform != "win32":
        layers.add(Layer.RESOURCE_LIMITS)
    return frozenset(layers)


def prepare() -> Prepared:
    """Prepare confinement before the forks, once for all of them; call it with the libraries loaded.

    The rules for a thousand library files are written once. They cannot name `/proc/self` (another folder in every
    process), so they grant `/proc`, and each child narrows that to its own with a few rules more.

    Call it before `privileges.become`, if that is called at all: another user may not be able to read the files.
    """
    layers = available_layers()
    if Layer.RESOURCE_LIMITS in layers:
        import resource  # noqa: F401 - a child would have to find and load it
    if Layer.SECCOMP in layers:
        seccomp.program(platform.machine(), 1)
    abi = landlock.abi_version()
    if abi < 1:
        return Prepared(None, (), 0, layers)
    readable, listable = library_paths()
    own_files = [path for path in readable if path.startswith("/proc/")]
    shared = [path for path in readable if not path.startswith("/proc/")]
    roots = {"/" + path.split("/")[1] for path in (*shared, *listable)}
    ruleset = landlock.open_ruleset(landlock.plan([*shared, "/proc"], listable), abi=abi)
    return Prepared(ruleset, landlock.plan([*sorted(roots), *own_files]), abi, layers)


def confine_early(without: Collection[Layer] = (), prepared: Prepared | None = None) -> frozenset[Layer]:
    """Give up, right after the fork, the rights that no child needs: new privileges, files, capabilities.

    Args:
        without: Layers to leave out, for tests of the effect of each. Without `NO_NEW_PRIVILEGES` there is
            no Landlock and no seccomp either: the kernel asks for it.
        prepared: Result of `prepare` in the parent; None to make it here, in tens of milliseconds.

    Returns:
        The layers applied; those the system does not have are left out.

    Raises:
        OSError: If a layer that the system has cannot be applied. The process must not run any code then.
    """
    prepared = prepare() if prepared is None else prepared
    layers = _chosen(without, prepared) & {Layer.NO_NEW_PRIVILEGES, Layer.LANDLOCK, Layer.CAPABILITIES}
    if Layer.NO_NEW_PRIVILEGES in layers:
        privileges.forbid_new_privileges()
    if Layer.LANDLOCK in layers:
        _confine_files(prepared)
    if prepared.ruleset is not None:
        os.close(prepared.ruleset)
    if Layer.CAPABILITIES in layers:
        privileges.drop_capabilities()
    return layers


def confine_late(
    without: Collection[Layer] = (), prepared: Prepared | None = None, *, memory_bytes: int, cpu_seconds: int
) -> frozenset[Layer]:
    """Bound the resources and filter the system calls, the last thing before the code is run.

    All modules that the code may import must be loaded by now: no file can be opened from here on.

    Args:
        without: Layers to leave out, as for `confine_early`.
        prepared: Result of `prepare` in the parent; None to detect the layers here.
        memory_bytes: Address space beyond the present mappings.
        cpu_seconds: Processor time of the process since its start.

    Returns:
        The layers applied; those the system does not have are left out.

    Raises:
        OSError: If a layer that the system has cannot be applied. The process must not run any code then.
        ValueError: If a budget is not positive.
    """
    layers = _chosen(without, prepared) & {Layer.RESOURCE_LIMITS, Layer.SECCOMP}
    if Layer.RESOURCE_LIMITS in layers:
        resource_limits.limit_resources(memory_bytes=memory_bytes, cpu_seconds=cpu_seconds)
    if Layer.SECCOMP in layers:
        seccomp.install()
    return layers


def _chosen(without: Collection[Layer], prepared: Prepared | None) -> frozenset[Layer]:
    if Layer.NO_NEW_PRIVILEGES in without:
        without = {*without, Layer.LANDLOCK, Layer.SECCOMP}
    return (available_layers() if prepared is None else prepared.layers) - frozenset(without)


def _confine_files(prepared: Prepared) -> None:
    if prepared.ruleset is None:
        raise OSError(
            "Expected prepare() to have met the same kernel; got none with Landlock. Fix: call prepare() in the parent."
        )
    landlock.enforce(prepared.ruleset, abi=prepared.abi)
    ruleset = landlock.open_ruleset(prepared.own_rules, abi=prepared.abi)
    try:
        landlock.enforce(ruleset, abi=prepared.abi)
    finally:
        os.close(ruleset)


# ---------------------------------------------------------------------- layers of this machine

# Importing the package takes half a second; the probe needs only these modules.
_PROBE = """
import json, sys, types
for name, path in json.loads(sys.argv[1]).items():
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [path]
from lang_envs.sandbox.confinement import layers as confinement
sys.stdout.write(json.dumps(confinement.try_layers()))
"""


def probe() -> Confinement:
    """Find out the layers of this machine by trying them in a process of its own; the caller stays unconfined."""
    packages, name, folder = {}, __name__, Path(__file__)
    while "." in name:
        name, folder = name.rpartition(".")[0], folder.parent
        packages[name] = str(folder)
    command = [sys.executable, "-I", "-S", "-c", _PROBE, json.dumps(packages)]
    try:
        answer = subprocess.run(command, capture_output=True, check=True, timeout=60, stdin=subprocess.DEVNULL)
        failures: dict[str, str] = json.loads(answer.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        failures = dict.fromkeys(Layer, f"the trial itself failed: {error}")
    missing = {layer: f"Without {layer}, {_COST[layer]}: {failures[layer]}." for layer in Layer if failures[layer]}
    return Confinement(frozenset(Layer) - missing.keys(), missing)


def try_layers() -> dict[str, str]:
    """Apply every layer to this very process, of no use afterwards.

    Returns:
        For each layer why it does not hold, empty where it does.
    """
    trials = {
        Layer.NAMESPACES: _try_namespaces,
        Layer.NO_NEW_PRIVILEGES: privileges.forbid_new_privileges,
        Layer.CAPABILITIES: _try_capabilities,
        Layer.RESOURCE_LIMITS: _try_resource_limits,  # before Landlock: it loads a module
        Layer.LANDLOCK: _try_landlock,
        Layer.SECCOMP: _try_seccomp,
    }
    failures = {}
    for layer, attempt in trials.items():
        try:
            attempt()
            failures[str(layer)] = ""
        except (OSError, ImportError, ValueError) as error:
            failures[str(layer)] = (str(error) or type(error).__name__).rstrip(".")
    return failures


def _try_namespaces() -> None:
    if not namespaces.enter():
        raise OSError("the system grants no new user or network namespace to this user")


def _try_capabilities() -> None:
    if sys.platform != "linux":
        raise OSError(f"{sys.platform} has none to drop")
    privileges.drop_capabilities()


def _try_landlock() -> None:
    landlock.restrict([])
    _expect_refusal(lambda: os.open("/", os.O_RDONLY), "a folder is opened all the same")


def _try_resource_limits() -> None:
    import resource

    resource_limits.limit_resources(memory_bytes=1 << 30, cpu_seconds=60)
    if resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 0:
        raise OSError("a limit was taken and not kept")


def _try_seccomp() -> None:
    seccomp.install()
    _expect_refusal(lambda: os.kill(os.getpid(), 0), "a refused system call goes through all the same")


def _expect_refusal(action: Callable[[], object], otherwise: str) -> None:
    try:
        action()
    except PermissionError:
        return
    raise OSError(otherwise)
