"""Programs that run at the same time can signal to each other; none may hold the test labels of another."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pytest
from attack_arena import LIMITS, small_table

from lang_envs.envs.datascicoding.evaluation import Evaluator, Status
from lang_envs.sandbox.client import Answer, Limits, Sandbox
from lang_envs.sandbox.rendezvous import Place
from lang_envs.sandbox.worker import Task

CLOCK = """
import time
began = time.monotonic()
print("rehearse me")
time.sleep(0.05)
class Clock:
    def predict_proba(self, x):
        ended = time.monotonic()
        return np.tile([began, ended, 1.0 - began - ended], (len(x), 1))
model = Clock()"""
"""Three columns that add up to one, two of them the time of the run: it is scored, and rehearsed."""


class Run(NamedTuple):
    """When a program ran, by the clock of the machine."""

    task: Task
    began: float
    ended: float


class Watched(Sandbox):
    """Records the labels of each run."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.runs: list[Run] = []

    def run(self, tasks: Sequence[Task], limits: Limits) -> list[Answer]:
        answers = super().run(tasks, limits)
        for task, answer in zip(tasks, answers, strict=True):
            assert answer.probabilities is not None, answer
            self.runs.append(Run(task, *answer.probabilities[0][:2]))
        return answers


@pytest.mark.process
def test_no_program_runs_beside_one_that_holds_its_test_labels() -> None:
    """Eight evaluators, some on other splits of the table, some on another table; rehearsals among them."""
    sandbox = Watched(Place(cores=4))
    tables = [small_table(seed=8 if number == 7 else 7) for number in range(8)]
    states = [(2, 3, 4) if number == 5 else (0, 1, 2) for number in range(8)]
    found: list[Status] = []

    def evaluate(number: int) -> None:
        evaluator = Evaluator(tables[number], states[number], limits=LIMITS._replace(time_limit=20.0), sandbox=sandbox)
        found.extend(evaluator(CLOCK).status for _ in range(2))

    threads = [threading.Thread(target=evaluate, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sandbox.close()
    assert found == [Status.OK] * 16
    assert len(sandbox.runs) == 16 * 6  # three splits, then three rehearsals
    beside = [
        (one.task, other.task)
        for one, other in combinations(sandbox.runs, 2)
        if one.began < other.ended and other.began < one.ended
    ]
    assert [pair for pair in beside if pair[0].table == pair[1].table and _is_true(pair[0]) != _is_true(pair[1])] == []
    true_runs = [pair for pair in beside if pair[0].table == pair[1].table and _is_true(pair[0])]
    assert all(set(map(bytes, one.x_train)) == set(map(bytes, other.x_train)) for one, other in true_runs)
    assert true_runs  # of one split, though


NAME = "a name of the supervisor's"
SEARCH = f"""
import sys
name = " ".join({NAME.split()})
frame, found, reached = sys._getframe().f_back, 0, set()
while frame is not None:
    todo = list(frame.f_locals.values())
    for _ in range(8):
        todo = [item for item in todo if id(item) not in reached]
        reached.update(map(id, todo))
        found += sum(type(item) is str and item == name for item in todo)
        nested = []
        for one in todo:
            if "sandbox" in getattr(type(one), "__module__", ""):
                nested += vars(one).values() if hasattr(one, "__dict__") else one if isinstance(one, tuple) else ()
            elif type(one) in (list, tuple, set) or type(one).__name__ == "deque":
                nested += one
            elif type(one) is dict:
                nested += [*one, *one.values()]
        todo = nested
    frame = frame.f_back
class Found:
    def predict_proba(self, x):
        return np.full((len(x), 2), float(found))
model = Found()"""
"""Code that looks for a name in all that the frames of its process lead to."""


def test_children_descend_from_a_process_that_knows_no_evaluation() -> None:
    """Twelve tasks: children of the later ones are forked while the supervisor has the names of all of them."""
    x, y = np.zeros((4, 1)), np.array([0, 1, 0, 1])
    sandbox = Sandbox(Place(cores=1))
    answers = sandbox.run([Task(SEARCH, 0, x, y, x, NAME, NAME)] * 12, LIMITS._replace(time_limit=20.0))
    sandbox.close()
    assert all(answer.probabilities is not None for answer in answers), answers
    assert [float(answer.probabilities[0, 0]) for answer in answers] == [0.0] * 12


def _is_true(task: Task) -> bool:
    """Whether it holds the labels of its rows, and not permuted ones."""
    known = {bytes(row) for row in task.x_train}
    table = next(one for one in (small_table(7), small_table(8)) if known <= set(map(bytes, one.x)))
    label_of = dict(zip(map(bytes, table.x), table.y, strict=True))
    return [label_of[bytes(row)] for row in task.x_train] == task.y_train.tolist()
