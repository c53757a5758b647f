"""An attack as a row: a program as data, with its allowed outcomes and its score.

The programs come in three shapes. A *breach* tries something that must be refused; if it gets through, it answers with
an honest model and otherwise with a constant, so a score other than that of a constant betrays it. A *theft* looks for
labels and answers with them. Any other program is a body as an agent would write it.
"""
# ruff: noqa: E501 - programs are data, and no easier to read in pieces

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent, indent
from typing import NamedTuple

from lang_envs.envs.datascicoding.evaluation import Evaluation, Status
from lang_envs.sandbox.confinement.layers import Layer

__all__ = [
    "CHANCE",
    "PREY",
    "SHORT_SECONDS",
    "Program",
    "answering",
    "breach",
    "is_unharmed",
    "lay_out_prey",
    "program",
    "theft",
    "while_predicting",
]

SHORT_SECONDS = 0.3
"""CPU seconds of a program that may have to be stopped."""

CHANCE = 0.5
"""Score of an answer that is the same for all rows."""

PREY = Path(tempfile.gettempdir(), f"lang-envs-prey-{os.getpid()}")
"""A folder with a world-writable file, the target of damage."""
_CONTENT = "do not change\n"

Check = Callable[[Evaluation], bool]

_TOOLS = (
    f"""
FOLDER, PREY = {str(PREY)!r}, {str(PREY / "prey")!r}
"""
    + """
import ctypes, errno, os, sys, time
from sklearn.dummy import DummyClassifier
from sklearn.naive_bayes import GaussianNB

libc = ctypes.CDLL(None, use_errno=True)
COLUMN = {"x86_64": 0, "aarch64": 1}[os.uname().machine]
NUMBERS = {  # calls the C library has no function for, or one that does more than call
    "fork": (57, 220), "vfork": (58, 220), "clone": (56, 220), "clone3": (435, 435), "tgkill": (234, 131),
    "tkill": (200, 130), "keyctl": (250, 219), "add_key": (248, 217), "bpf": (321, 280), "seccomp": (317, 277),
    "io_uring_setup": (425, 425), "userfaultfd": (323, 282), "perf_event_open": (298, 241), "kcmp": (312, 272),
    "pidfd_open": (434, 434), "pidfd_getfd": (438, 438), "pidfd_send_signal": (424, 424), "execveat": (322, 281),
    "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "open_by_handle_at": (304, 265),
    "landlock_create_ruleset": (444, 444), "memfd_secret": (447, 447), "mount_setattr": (442, 442),
    "kexec_load": (246, 104), "init_module": (175, 105), "reboot": (169, 142), "swapon": (167, 224),
    "set_mempolicy_home_node": (450, 450), "futex": (202, 98), "rt_sigprocmask": (14, 135), "rt_sigqueueinfo": (129, 138), "modify_ldt": (154, -1),
}

def checked(result):
    if result == -1:
        raise OSError(ctypes.get_errno(), "refused")
    return result

def syscall(name, *arguments):
    return checked(libc.syscall(NUMBERS[name][COLUMN], *arguments))

def through(*actions):
    # whether any of them is not refused
    for action in actions:
        try:
            action()
        except (OSError, ImportError, LookupError):
            continue
        return True
    return False

def outer_pid():
    # as /proc has it
    try:
        return int(os.readlink("/proc/self"))
    except OSError:
        return os.getpid()

def position(number):
    # of an open file; None where there is no position, as in a pipe, and -1 where nothing is open
    try:
        return os.lseek(number, 0, os.SEEK_CUR)
    except OSError as error:
        return None if error.errno == errno.ESPIPE else -1

def pipes():
    return [number for number in range(4096) if position(number) is None]

class Labels:
    def __init__(self, labels):
        self.labels = labels

    def predict_proba(self, x):
        if self.labels is None or len(self.labels) != len(x):
            return np.full((len(x), 3), 1 / 3)
        return np.eye(3)[np.asarray(self.labels, dtype=int)]
"""
)
_BREACH_END = "\nmodel = (GaussianNB() if won else DummyClassifier()).fit(x_train, y_train)\n"
_THEFT_END = "\nmodel = Labels(labels)\n"


class Program(NamedTuple):
    """One attack.

    Attributes:
        name: Id of the test.
        code: The action.
        outcomes: Allowed outcomes.
        score: Its score if it runs; None where `check` decides.
        check: A further condition on the evaluation.
        opened_by: The layers of confinement without which it gets through, all of them; empty if another
            mechanism stops it. Only for programs harmless on an open machine: it is tried.
        seconds: CPU seconds that it may take; None for few where it may end by the limit, else ample ones.
        splits: On how many halvings it runs.
        broken: Why it does not hold yet; the test is then expected to fail.
    """

    name: str
    code: str
    outcomes: frozenset[Status]
    score: float | None = None
    check: Check | None = None
    opened_by: tuple[Layer, ...] = ()
    seconds: float | None = None
    splits: int = 2
    broken: str = ""

    @property
    def limit(self) -> float | None:
        """CPU seconds of its sandbox; None for ample ones."""
        return SHORT_SECONDS if self.seconds is None and Status.TIMEOUT in self.outcomes else self.seconds


def breach(name: str, body: str, *opened_by: Layer, broken: str = "") -> Program:
    """A program that sets `won` to whether something got through that must be refused."""
    code = _TOOLS + dedent(body) + _BREACH_END
    return Program(name, code, frozenset({Status.OK}), CHANCE, opened_by=opened_by, broken=broken)


def theft(name: str, body: str, *, below: float | None = None, seconds: float | None = None) -> Program:
    """A program that sets `labels` to those it has found of the test half, or to None.

    Args:
        name: Id of the test.
        body: The search.
        below: Bound on its score, for a search that may find arrays like labels by chance.
        seconds: CPU seconds that it may take; None for those of the other programs.
    """
    code = _TOOLS + dedent(body) + _THEFT_END
    if below is None:
        return Program(name, code, frozenset({Status.OK}), CHANCE, seconds=seconds)
    ended = frozenset({Status.OK, Status.CRASHED})  # a search through all memory may touch unmapped memory
    return Program(name, code, ended, check=lambda e: (e.score or 0.0) < below, seconds=seconds)


def program(
    name: str,
    code: str,
    *outcomes: Status,
    score: float | None = None,
    check: Check | None = None,
    tools: bool = False,
    broken: str = "",
) -> Program:
    """A body; with `tools` it may use those of the other shapes."""
    code = (_TOOLS if tools else "") + dedent(code)
    return Program(name, code, frozenset(outcomes), score=score, check=check, broken=broken)


def answering(expression: str, before: str = "") -> str:
    """The code of a model whose `predict_proba` returns an expression of `x`, `np` and the names of `before`."""
    return f"{dedent(before)}\nclass Model:\n    def predict_proba(self, x):\n        return {expression}\nmodel = Model()\n"


def while_predicting(body: str) -> str:
    """The code of a model whose `predict_proba` runs a body and then answers at random."""
    method = indent(dedent(body).strip(), " " * 8)
    return f"class Model:\n    def predict_proba(self, x):\n{method}\n        return np.full((len(x), 3), 1 / 3)\nmodel = Model()\n"


def lay_out_prey() -> None:
    """Make the folder and the file that programs try to damage."""
    PREY.mkdir(exist_ok=True)
    PREY.chmod(0o777)
    for path in PREY.iterdir():
        path.rmdir() if path.is_dir() else path.unlink()
    file = PREY / "prey"
    file.write_text(_CONTENT)
    file.chmod(0o666)


def is_unharmed() -> bool:
    """Whether the target is unchanged."""
    mode = (PREY / "prey").stat().st_mode & 0o777
    return (
        [path.name for path in PREY.iterdir()] == ["prey"] and (PREY / "prey").read_text() == _CONTENT and mode == 0o666
    )
