"""State of the sandbox on this machine: the layers that hold, the time of an evaluation, the folders."""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from lang_envs.cache import cache_folder
from lang_envs.datasets import load
from lang_envs.envs.datascicoding.evaluation import Evaluator
from lang_envs.errors import LangEnvsError
from lang_envs.machine import n_cores
from lang_envs.sandbox.client import Sandbox
from lang_envs.sandbox.confinement.layers import Confinement, Layer, probe
from lang_envs.sandbox.errors import SandboxUnavailableError, SandboxWarning
from lang_envs.sandbox.rendezvous import Place, library_versions

__all__ = ["HONEST_CODE", "Diagnosis", "Latency", "SupervisorFacts", "Verdict", "diagnose"]

HONEST_CODE = "from sklearn.naive_bayes import GaussianNB\nmodel = GaussianNB().fit(x_train, y_train)"
"""Code that is evaluated to test whether the sandbox works, and how fast."""

_TABLE = "balance-scale"
_SPLITS = range(5)
_N_WARM = 5


class Verdict(StrEnum):
    """Verdict on a machine."""

    FULL = "full"
    REDUCED = "reduced"
    UNUSABLE = "unusable"


class SupervisorFacts(NamedTuple):
    """The supervisor's description of itself.

    Attributes:
        pid: Process id of the supervisor.
        layers: Layers that hold in its children, tried in one of them.
        namespaces: Namespaces it lives in.
        refused: Reason why `confinement="require"` would not run code in it; empty if it would.
    """

    pid: int
    layers: frozenset[Layer]
    namespaces: tuple[str, ...]
    refused: str


class Latency(NamedTuple):
    """Duration of an evaluation of `HONEST_CODE`: 5 splits of the balance scale table, without a cache.

    Attributes:
        first: Seconds of the first evaluation, with the start of a supervisor.
        warm: Median seconds of the five evaluations after it.
        score: Mean ROC AUC of the code.
    """

    first: float
    warm: float
    score: float


@dataclass(frozen=True)
class Diagnosis:
    """Findings.

    Attributes:
        confinement: Layers that hold, both in a trial and in the supervisor, and the gaps of the other layers.
        supervisor: Facts of the supervisor; None if it cannot be started.
        latency: Duration of evaluations; None if honest code does not run.
        problem: Reason why no code can be evaluated here; empty if it can.
        versions: Versions of Python and of the libraries, and the kind of machine.
        cores: Number of splits that run at a time.
        cache: Folder of cached evaluations.
        cache_bytes: Size of that folder in bytes.
    """

    confinement: Confinement
    supervisor: SupervisorFacts | None
    latency: Latency | None
    problem: str
    versions: Mapping[str, str]
    cores: int
    cache: Path
    cache_bytes: int

    @property
    def verdict(self) -> Verdict:
        """`UNUSABLE` if code does not run, `FULL` if every layer holds but perhaps the namespaces, else `REDUCED`."""
        if self.problem:
            return Verdict.UNUSABLE
        return Verdict.FULL if self.confinement.is_sufficient else Verdict.REDUCED


def diagnose(without: Sequence[Layer] = ()) -> Diagnosis:
    """Test everything in a supervisor of its own that ends afterwards; takes some seconds.

    Args:
        without: Layers that the supervisor leaves out, for tests.
    """
    cores = n_cores()
    # The environments leave the number of cores open, so this is another place than theirs, and a start to be timed.
    place = Place(cores=cores, without=tuple(layer.value for layer in without))
    supervisor, latency, problem = _try(place)
    folder, held = cache_folder(), probe()
    return Diagnosis(
        confinement=held if supervisor is None else _both(held, supervisor.layers),
        supervisor=supervisor,
        latency=latency,
        problem=problem,
        versions=library_versions(),
        cores=cores,
        cache=folder,
        cache_bytes=_size(folder),
    )


def _try(place: Place) -> tuple[SupervisorFacts | None, Latency | None, str]:
    """Return the supervisor's facts, its latency, and an error message."""
    sandbox, supervisor = Sandbox(place), None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SandboxWarning)  # the answer has its message
        try:
            evaluate = Evaluator(load(_TABLE), _SPLITS, sandbox=sandbox)
            start = time.perf_counter()
            evaluation = evaluate(HONEST_CODE)
            first = time.perf_counter() - start
            supervisor = _ask(sandbox)
            if evaluation.score is None:
                return supervisor, None, f"Expected honest code to run; got {evaluation.status}: {evaluation.error}."
            warm = statistics.median(_seconds(evaluate) for _ in range(_N_WARM))
            return supervisor, Latency(first, warm, evaluation.score), ""
        except LangEnvsError as error:
            return supervisor, None, str(error)
        finally:
            sandbox.close()


def _seconds(evaluate: Evaluator) -> float:
    start = time.perf_counter()
    evaluate(HONEST_CODE)
    return time.perf_counter() - start


def _ask(sandbox: Sandbox) -> SupervisorFacts:
    about = sandbox.about()
    layers = frozenset(Layer(name) for name in about["layers"])
    return SupervisorFacts(int(about["pid"]), layers, tuple(about["namespaces"]), _refusal(sandbox.place))


def _refusal(place: Place) -> str:
    strict = Sandbox(place, confinement="require")
    try:
        strict.about()
    except SandboxUnavailableError as error:
        return str(error)
    finally:
        strict.close()
    return ""


def _both(held: Confinement, in_children: frozenset[Layer]) -> Confinement:
    """Return the layers that hold in a trial and in the supervisor's children."""
    silent = {
        layer: f"Without {layer}, code is less confined than this machine allows: the supervisor does not apply it."
        for layer in sorted(held.active - in_children)
    }
    return Confinement(held.active & in_children, {**held.missing, **silent})


def _size(folder: Path) -> int:
    try:
        return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    except OSError:  # somebody is writing there
        return 0
