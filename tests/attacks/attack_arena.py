"""A small table, a watched evaluator, and the state that must be the same afterwards."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import time
from pathlib import Path

import numpy as np
from attack_rows import PREY, SHORT_SECONDS, Program, is_unharmed

from lang_envs.cache import Cache
from lang_envs.datasets import Dataset
from lang_envs.envs.datascicoding.evaluation import Evaluation, Evaluator, Status
from lang_envs.envs.datascicoding.scoring import Split, splits
from lang_envs.sandbox.client import Limits, Sandbox
from lang_envs.sandbox.rendezvous import Place

__all__ = ["HONEST", "LIMITS", "PLACES", "Arena", "marked_files", "peak_bytes", "resident_bytes", "small_table"]

NOBODY = 65534
N_READY = 6
LIMITS = Limits(time_limit=SHORT_SECONDS, memory_bytes=256 << 20)
AMPLE_SECONDS = 5.0  # for programs that end by themselves: on a loaded machine 0.1 s of work cost up to 0.33 s
BANNED = ("GridSearchCV", "SVC")
HONEST = "from sklearn.naive_bayes import GaussianNB\nmodel = GaussianNB().fit(x_train, y_train)"
PLACES = {"own user": Place(cores=2), "nobody": Place(cores=2, user=NOBODY)}
if os.getuid() != 0:
    del PLACES["nobody"]  # who is not root cannot become another


def small_table(seed: int = 7) -> Dataset:
    """120 rows of 4 features and 3 overlapping classes."""
    generator = np.random.default_rng(seed)
    y = generator.permutation(np.arange(120) % 3)
    x = generator.normal(size=(120, 4)) + y[:, None] * np.array([0.8, -0.5, 0.0, 0.3])
    return Dataset("small", "a small table", "Every row is a draw.", x, y, published=False, source="drawn")


class Arena:
    """An evaluator whose sandbox, processes, files and memory are watched.

    Attributes:
        evaluate: Without a cache, on two halvings of the small table.
        honest: Score of honest code before anything else has run.
    """

    def __init__(self, place: Place) -> None:
        self.sandbox = Sandbox(place, "require" if not place.without else "auto")
        self._evaluators: dict[tuple[float, int], Evaluator] = {}
        first = self.evaluate(HONEST)
        assert first.status is Status.OK, first
        self.honest = first.scores
        self._files = _open_files()

    def evaluate(self, code: str, seconds: float | None = None, splits: int = 2) -> Evaluation:
        """Evaluate code without the cache."""
        limits = LIMITS._replace(time_limit=AMPLE_SECONDS if seconds is None else seconds)
        key = limits.time_limit, splits
        if key not in self._evaluators:
            options = {"banned": BANNED, "limits": limits, "sandbox": self.sandbox}
            self._evaluators[key] = Evaluator(small_table(), range(splits), **options)
        return self._evaluators[key](code)

    def remembering(self, folder: Path) -> Evaluator:
        """An evaluator with a cache of its own."""
        return Evaluator(
            small_table(), range(2), limits=LIMITS._replace(time_limit=2.0), sandbox=self.sandbox, cache=Cache(folder)
        )

    def run(self, program: Program) -> Evaluation:
        """Evaluate, and check that honest code still gets the same score."""
        self._files = _open_files()
        evaluation = self.evaluate(program.code, program.limit, program.splits)
        again = self.evaluate(HONEST, splits=1)
        assert again.scores == self.honest[:1], "honest code no longer gets its score"
        return evaluation

    def split(self, number: int) -> Split:
        """The rows of one of the halvings."""
        return splits(small_table(), [number])[0]

    def leftovers(self) -> list[str]:
        """Leftovers of the last `run`: processes, descriptors, damage."""
        found = [f"descriptor {name}" for name in _open_files() - self._files]
        supervisor = int(self.sandbox.about()["pid"])
        deadline = time.monotonic() + 5
        while (processes := _more_than_ready(supervisor)) and time.monotonic() < deadline:
            time.sleep(0.01)
        found += [f"process {pid}" for pid in processes]
        return found if is_unharmed() else [*found, f"damage in {PREY}"]


def _open_files() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}


def _more_than_ready(supervisor: int) -> list[int]:
    """The descendants of a supervisor if there are others than the children that wait for work."""
    forker, *orphans = _children(supervisor)
    children = _children(forker)
    grandchildren = [pid for child in children for pid in _children(child)]
    return [] if len(children) <= N_READY and not (orphans or grandchildren) else [*orphans, *children, *grandchildren]


def _children(parent: int) -> list[int]:
    found = []
    for thread in Path(f"/proc/{parent}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += [int(pid) for pid in thread.read_text().split()]
    return found


def marked_files() -> list[str]:
    """Files that programs of these tests have made where they should not."""
    folders = (Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"), Path("/run"), Path.home(), Path.cwd(), Path("/"))
    return [str(path) for folder in folders if folder.is_dir() for path in folder.glob("*lang-envs-attack*")]


def peak_bytes() -> int:
    """Largest resident memory since it was last reset through /proc/self/clear_refs."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) << 10


def resident_bytes() -> int:
    """Memory in use, without the allocator's reserve."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
