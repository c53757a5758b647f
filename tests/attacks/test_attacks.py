"""Hostile and broken programs: each has a typed outcome, an earned score, and no leftovers."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import attack_answers
import attack_endings
import attack_kernel
import attack_labels
import attack_patches
import attack_traces
import pytest
from attack_arena import HONEST, PLACES, Arena, marked_files, peak_bytes, resident_bytes
from attack_rows import CHANCE, Program

from lang_envs.envs.datascicoding.evaluation import Status

Opener = Callable[[str], Arena]

FILES = {
    "labels": attack_labels.PROGRAMS,
    "kernel": attack_kernel.PROGRAMS,
    "traces": attack_traces.PROGRAMS,
    "endings": attack_endings.PROGRAMS,
    "patches": attack_patches.PROGRAMS,
    "answers": attack_answers.PROGRAMS,
    "texts": attack_patches.TEXTS,
}
PROGRAMS = [program for programs in FILES.values() for program in programs]
# The outcome of answers and texts is decided by the parent: the user of the child does not matter.
PROGRAMS_OF_ANY_USER = [
    program for name, programs in FILES.items() if name not in ("answers", "texts") for program in programs
]


def _cases() -> list[object]:
    """All programs and users; in `make test` the first program of each file."""
    cases, files = [], set()
    for place in PLACES:
        for row in PROGRAMS if place == "own user" else PROGRAMS_OF_ANY_USER:
            file = next(name for name, programs in FILES.items() if row in programs)
            marks = [pytest.mark.matrix] if file in files else []
            files.add(file)
            if row.broken:
                marks.append(pytest.mark.xfail(strict=True, raises=AssertionError, reason=row.broken))
            cases.append(pytest.param(place, row, id=f"{place}: {row.name}".replace(" ", "-"), marks=marks))
    return cases


@pytest.fixture(scope="module")
def watched(arenas: Opener) -> Iterator[Opener]:
    """The sandboxes; when all programs have run, no leftovers of them exist."""
    for place in PLACES:
        arenas(place)
    files, memory = set(marked_files()), resident_bytes()
    yield arenas
    assert set(marked_files()) == files
    assert resident_bytes() - memory < 48 << 20


@pytest.mark.parametrize(("place", "program"), _cases())
def test_a_program_gets_what_it_deserves(watched: Opener, place: str, program: Program) -> None:
    arena = watched(place)
    evaluation = arena.run(program)
    assert evaluation.status in program.outcomes, evaluation
    assert (evaluation.status is Status.OK) == (evaluation.error is None)
    assert all(0 <= score <= 1 for score in (*evaluation.scores, *evaluation.aucs))
    if program.score is not None and evaluation.status is Status.OK:
        assert evaluation.scores == (program.score,) * len(evaluation.scores)
    if program.check is not None:
        assert program.check(evaluation), evaluation
    if evaluation.status is Status.TIMEOUT:
        assert evaluation.cpu_seconds < (program.limit or 0) + 1  # CPU seconds until it is stopped
    assert arena.leftovers() == []


def test_a_report_cannot_fill_the_memory_of_the_parent(own_arena: Arena) -> None:
    (row,) = [row for row in PROGRAMS if row.name == "a header of a million small objects"]
    Path("/proc/self/clear_refs").write_text("5")
    before = peak_bytes()
    own_arena.evaluate(row.code, seconds=5)
    assert peak_bytes() - before < 64 << 20


def test_there_is_something_to_steal(own_arena: Arena) -> None:
    assert all(CHANCE + 0.1 < score < 0.95 for score in own_arena.honest)  # a constant, honest work and theft differ


def test_every_program_has_a_name_of_its_own() -> None:
    assert len(PROGRAMS_OF_ANY_USER) >= 70
    assert len({row.name for row in PROGRAMS}) == len(PROGRAMS)


# ---------------------------------------------------------------------- the cache

_LUCK = "import random\nfrom sklearn.naive_bayes import GaussianNB\nx_train[:, 0] *= random.SystemRandom().random()\n"
_LUCK += "x_train[:, 1] += random.SystemRandom().random()\nmodel = GaussianNB().fit(x_train, y_train)"


def test_code_that_is_another_each_time_is_evaluated_once(own_arena: Arena, tmp_path: Path) -> None:
    evaluate = own_arena.remembering(tmp_path)
    first = evaluate(_LUCK)
    assert first.status is Status.OK
    assert [evaluate(_LUCK), own_arena.remembering(tmp_path)(_LUCK)] == [first, first]
    assert own_arena.evaluate(_LUCK).scores != first.scores


def test_code_that_only_looks_the_same_is_not_taken_for_the_same(own_arena: Arena, tmp_path: Path) -> None:
    evaluate = own_arena.remembering(tmp_path)
    ending = "from sklearn.dummy import DummyClassifier\nmodel = DummyClassifier().fit(x_train, y_train)"
    wide = HONEST.replace("model", "\uff4dodel")  # the same name to Python
    texts = [HONEST, f"if False:\n    pass\n{ending}", f"if False:\n  pass\n{HONEST}", wide]
    scores = [evaluate(text).scores for text in texts * 2]
    assert scores == [own_arena.honest, (CHANCE, CHANCE), own_arena.honest, own_arena.honest] * 2


@pytest.mark.matrix
def test_what_depends_on_the_machine_is_not_remembered(own_arena: Arena, tmp_path: Path) -> None:
    evaluate = own_arena.remembering(tmp_path)
    for code in ("while True: pass", "np.empty(1 << 40)", "import os\nos.abort()"):
        assert evaluate(code).status in (Status.TIMEOUT, Status.MEMORY, Status.LOST, Status.CRASHED)
    assert own_arena.remembering(tmp_path).cache is not None
    database = tmp_path / "evaluations.sqlite3"
    assert not database.exists() or _n_entries(database) == 0


def test_an_entry_that_somebody_has_changed_is_not_believed(own_arena: Arena, tmp_path: Path) -> None:
    evaluate = own_arena.remembering(tmp_path)
    honest = evaluate(HONEST).scores
    with contextlib.closing(sqlite3.connect(tmp_path / "evaluations.sqlite3")) as database, database:
        database.execute("UPDATE evaluations SET entry = replace(entry, ?, '1.0')", (repr(honest[0]),))
    assert own_arena.remembering(tmp_path)(HONEST).scores == honest


def _n_entries(path: Path) -> int:
    with contextlib.closing(sqlite3.connect(path)) as database:
        return int(database.execute("SELECT count(*) FROM evaluations").fetchone()[0])
