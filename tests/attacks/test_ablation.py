"""Every layer is there for something: without it, a program does worse things than with it."""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attack_kernel
import attack_labels
import attack_traces
import numpy as np
import pytest
from attack_arena import LIMITS, Arena, small_table
from attack_rows import CHANCE, Program, breach, lay_out_prey, program
from rows import first_rows

from lang_envs.envs.datascicoding import evaluation as evaluation_module
from lang_envs.envs.datascicoding.evaluation import Evaluation, Status
from lang_envs.sandbox import client, worker
from lang_envs.sandbox.client import Answer, End, Limits, Sandbox
from lang_envs.sandbox.confinement.layers import Layer
from lang_envs.sandbox.errors import SandboxUnavailableError, SandboxWarning
from lang_envs.sandbox.rendezvous import Place
from lang_envs.sandbox.worker import Task

Opener = Callable[[tuple[Layer, ...]], Arena]

BREACHES = [row for row in (*attack_labels.PROGRAMS, *attack_kernel.PROGRAMS, *attack_traces.PROGRAMS) if row.opened_by]

SECRETS = [row for row in BREACHES if row.opened_by == (Layer.LANDLOCK, Layer.SECCOMP)]

MEMORY = program(
    "two gigabytes of addresses",
    "from sklearn.dummy import DummyClassifier\nx = np.empty(1 << 28)\nmodel = DummyClassifier().fit(x_train, y_train)",
    Status.MEMORY,
)
CAPABILITIES = breach(
    "capabilities that are held",
    """
    def held():
        return open("/proc/self/status").read().split("CapEff:")[1].split()[0].strip("0") != ""
    won = through(held) and held()
    """,
    Layer.CAPABILITIES,
    Layer.SECCOMP,
)
FILES = breach("files", 'won = through(lambda: open("/etc/passwd"))', Layer.LANDLOCK, Layer.SECCOMP)
TRACES = breach("names", 'won = through(lambda: os.stat("/"))', Layer.SECCOMP)
PARENT = breach("the process id of the parent", "won = os.getppid() > 9", Layer.NAMESPACES)  # small inside
PRIVILEGES = breach(
    "reading a file, where nothing keeps set-user-id programs from being set-user-id",
    'won = through(lambda: open("/etc/passwd")) and "NoNewPrivs:\\t0" in open("/proc/self/status").read()',
    Layer.NO_NEW_PRIVILEGES,
)
FIRST_WALLS = [CAPABILITIES, FILES, PARENT, PRIVILEGES, TRACES]
"""For each layer of the kernel a program that it stops where the other layers of the program are left out."""
MEMORY_OF_SPLITS = next(row for row in attack_labels.PROGRAMS if row.name == "other split's labels in builtins")


@pytest.fixture(scope="module")
def without(prey: None) -> Iterator[Opener]:
    """Sandboxes that lack some layers, each started once."""
    arenas: dict[tuple[Layer, ...], Arena] = {}

    def open_arena(layers: tuple[Layer, ...]) -> Arena:
        if layers not in arenas:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", SandboxWarning)
                arenas[layers] = Arena(Place(cores=2, without=tuple(layer.value for layer in layers)))
        return arenas[layers]

    yield open_arena
    for arena in arenas.values():
        arena.sandbox.close()


def _gets_through(evaluation: Evaluation) -> bool:
    return evaluation.status is Status.OK and abs((evaluation.score or 0.0) - CHANCE) > 0.1


# ---------------------------------------------------------------------- layers of the kernel


@pytest.mark.parametrize("row", first_rows(2, BREACHES), ids=lambda row: row.name.replace(" ", "-"))
def test_what_a_program_tries_works_where_nothing_stops_it(without: Opener, row: Program) -> None:
    outcome = without(row.opened_by).evaluate(row.code)
    lay_out_prey()
    assert _gets_through(outcome), outcome


@pytest.mark.matrix
@pytest.mark.parametrize("row", FIRST_WALLS, ids=lambda row: row.opened_by[0].value)
def test_a_layer_stops_what_works_without_it(own_arena: Arena, without: Opener, row: Program) -> None:
    layer, *others = row.opened_by
    about = own_arena.sandbox.about()
    if layer is Layer.NAMESPACES and "pid" not in about["namespaces"]:
        pytest.skip("this system grants no namespace of process ids")
    assert own_arena.evaluate(row.code).scores == (CHANCE, CHANCE)
    if others:
        assert without(tuple(others)).evaluate(row.code).scores == (CHANCE, CHANCE)
    assert _gets_through(without(row.opened_by).evaluate(row.code))


@pytest.mark.matrix
@pytest.mark.parametrize("layer", [Layer.LANDLOCK, Layer.SECCOMP])
@pytest.mark.parametrize("row", SECRETS, ids=lambda row: row.name.replace(" ", "-"))
def test_either_of_two_walls_keeps_code_from_files(without: Opener, row: Program, layer: Layer) -> None:
    outcome = without((layer,)).evaluate(row.code)
    assert not _gets_through(outcome), outcome


def test_a_rehearsal_sees_no_trace_of_the_true_run(own_arena: Arena, without: Opener) -> None:
    split = own_arena.split(0)
    labels = small_table().y[split.train]
    code = attack_traces.reading_in_the_rehearsal
    assert _n_right(own_arena.evaluate(code()).error or "", labels) < 32
    opened = without((Layer.SECCOMP,))  # there the attack works, though not each time on a busy machine
    assert any(_n_right(opened.evaluate(code()).error or "", labels) > 40 for _ in range(5))


def _n_right(error: str, labels: np.ndarray) -> int:
    """Labels that the words of an error spell."""
    words = [word for word in re.findall(r"\w+", error.split(" (line")[0]) if word in attack_traces.WORDS]
    numbers = [attack_traces.WORDS.index(word) for word in words]
    told = [number // place % 3 for number in numbers for place in (27, 9, 3, 1)]
    return sum(label == guess for label, guess in zip(labels, told, strict=False))


def test_reading_leaves_no_trace_even_without_a_filter(without: Opener) -> None:
    """Access times are a memory: with one file for every row and label, they carry labels from split to split."""
    arena = without((Layer.SECCOMP,))
    if "mnt" not in arena.sandbox.about()["namespaces"]:
        pytest.skip("this system grants no namespace of mounts")
    file = Path(np.__file__).parent / "_core" / "umath.py"
    about = file.stat()
    if about.st_uid != os.getuid():
        pytest.skip("the library's files are another user's")
    long_ago = about.st_atime_ns - 3 * 86400 * 10**9
    os.utime(file, ns=(long_ago, about.st_mtime_ns))
    code = f"open({str(file)!r}).read()\nfrom sklearn.dummy import DummyClassifier\n"
    evaluation = arena.evaluate(code + "model = DummyClassifier().fit(x_train, y_train)")
    assert evaluation.status is Status.OK
    assert file.stat().st_atime_ns == long_ago


def test_limits_stop_what_works_without_them(own_arena: Arena, without: Opener) -> None:
    assert own_arena.evaluate(MEMORY.code).status is Status.MEMORY
    assert without((Layer.RESOURCE_LIMITS,)).evaluate(MEMORY.code).status is Status.OK


def test_every_layer_has_a_program() -> None:
    assert {row.opened_by[0] for row in FIRST_WALLS} | {Layer.RESOURCE_LIMITS} == set(Layer)


@pytest.mark.parametrize("layer", [Layer.LANDLOCK, Layer.SECCOMP])
def test_a_sandbox_that_lacks_what_keeps_code_from_files_says_so(without: Opener, layer: Layer) -> None:
    place = without((layer,)).sandbox.place
    with pytest.warns(SandboxWarning, match=f"without {layer}"):
        Sandbox(place).about()
    with pytest.raises(SandboxUnavailableError, match=f"without {layer}"):
        Sandbox(place, "require").about()


# ---------------------------------------------------------------------- layers of our own


def test_one_process_for_each_split_keeps_them_apart(own_arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    assert own_arena.evaluate(MEMORY_OF_SPLITS.code, 2.0).scores == (CHANCE, CHANCE)

    def run_all_here(tasks: Sequence[Task], limits: Limits) -> list[Answer]:
        return [Answer(End.EXIT, 0, *worker.run_task(task), n_bytes=1) for task in tasks]

    states = np.random.get_state()
    monkeypatch.setattr(own_arena.sandbox, "run", run_all_here)
    monkeypatch.setattr("builtins.memory", {}, raising=False)
    first, second = own_arena.evaluate(MEMORY_OF_SPLITS.code, 2.0).scores
    np.random.set_state(states)
    assert first == CHANCE
    assert second > 0.6


@pytest.mark.matrix
def test_the_deadline_ends_what_would_go_on(own_arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    code = f"import time\nfrom sklearn.dummy import DummyClassifier\ntime.sleep({LIMITS.time_limit + 0.3})\n"
    code += "model = DummyClassifier().fit(x_train, y_train)"
    assert own_arena.evaluate(code, LIMITS.time_limit).status is Status.TIMEOUT
    as_message = client._as_message
    monkeypatch.setattr(client, "_as_message", lambda limits: as_message(limits._replace(time_limit=60.0)))
    assert own_arena.evaluate(code).status is Status.OK


def test_checks_of_answers_keep_what_cannot_be_scored_out(own_arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "class Model:\n    def predict_proba(self, x):\n        return np.full((len(x), 3), 2.0)\nmodel = Model()"
    assert own_arena.evaluate(code).status is Status.BAD_OUTPUT
    monkeypatch.setattr(evaluation_module, "check_probabilities", lambda *_: None)
    with pytest.raises(ValueError, match="sum up to 1"):
        own_arena.evaluate(code)


class _NumpyWithoutPermutations:
    """numpy whose sorting and permuting keep the order."""

    random = SimpleNamespace(default_rng=lambda seed: SimpleNamespace(permutation=lambda values: values))

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    @staticmethod
    def sort(values: np.ndarray) -> np.ndarray:
        return values


@pytest.mark.matrix
def test_rehearsals_keep_words_from_carrying_labels(own_arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["KeyError", "ValueError", "IndexError"]
    code = f"raise [{', '.join(names)}][y_train[{{row}}]]"
    told = [own_arena.evaluate(code.format(row=row)).error or "" for row in range(12)]
    monkeypatch.setattr(evaluation_module, "np", _NumpyWithoutPermutations())
    told_without = [own_arena.evaluate(code.format(row=row)).error or "" for row in range(12)]
    split = own_arena.split(0)
    labels = small_table().y[split.train][:12]
    right = [names[label] for label in labels]
    assert [error.split()[0] for error in told_without] == right
    assert sum(error.split()[0] == name for error, name in zip(told, right, strict=True)) < 10


def test_masking_keeps_values_out_of_messages(own_arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "raise ValueError(y_train.tolist())"
    assert not _has_labels(own_arena.evaluate(code).error or "")
    monkeypatch.setattr(evaluation_module, "mask", lambda text, code, known, limit=300: text[:limit])
    assert _has_labels(own_arena.evaluate(code).error or "")


def _has_labels(text: str) -> bool:
    return re.search(r"[012]\W{1,3}[012]\W{1,3}[012]", text) is not None


if sys.platform != "linux":
    pytestmark = pytest.mark.skip("the layers are those of Linux")
