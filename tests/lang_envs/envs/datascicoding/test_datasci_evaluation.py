"""The score of code, and its message."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split

from lang_envs.cache import Cache
from lang_envs.datasets import Dataset, load
from lang_envs.envs.datascicoding import evaluation as evaluation_module
from lang_envs.envs.datascicoding.evaluation import Evaluation, Evaluator, Status
from lang_envs.sandbox.client import Answer, End, Limits, Sandbox
from lang_envs.sandbox.confinement.library_files import LIBRARIES
from lang_envs.sandbox.shared import shared_sandbox
from lang_envs.sandbox.worker import Task

HONEST = "from sklearn.naive_bayes import GaussianNB\nmodel = GaussianNB().fit(x_train, y_train)"
CONSTANT = """
class Constant:
    def predict_proba(self, x):
        return np.tile([0.5, 0.25, 0.25], (len(x), 1))
model = Constant()"""


def evaluator(**kwargs: Any) -> Evaluator:
    return Evaluator(load("balance-scale"), range(5), **({"sandbox": shared_sandbox()} | kwargs))


@pytest.fixture(scope="module")
def evaluate() -> Callable[[str], Evaluation]:
    return evaluator(banned=("SVC",), limits=Limits(2.0, 256 << 20))


def test_the_score_is_the_published_protocol(evaluate: Callable[[str], Evaluation]) -> None:
    from sklearn.naive_bayes import GaussianNB

    table, areas = load("balance-scale"), []
    for state in range(5):
        x, x_test, y, y_test = train_test_split(table.x, table.y, test_size=0.5, random_state=state, shuffle=True)
        probabilities = GaussianNB().fit(x, y).predict_proba(x_test)
        areas.append(roc_auc_score(y_test, probabilities, multi_class="ovo", average="macro"))
    evaluation = evaluate(HONEST)
    assert evaluation.aucs == evaluation.scores == pytest.approx(tuple(areas), abs=0)
    assert evaluation.score == pytest.approx(0.7858, abs=1e-4)  # the facts' figure
    assert (evaluation.status, evaluation.error, evaluation.stdout) == (Status.OK, None, "")


FAILURES = {
    "1 / 0": (Status.RUNTIME_ERROR, "ZeroDivisionError: division by zero (line 1: 1 / 0)"),
    "model = Forest()": (Status.RUNTIME_ERROR, "NameError: name 'Forest' is not defined (line 1: model = Forest())"),
    "model = (": (Status.SYNTAX_ERROR, "SyntaxError: "),
    "from sklearn.svm import SVC as Model": (Status.BANNED, "SVC must not be used here"),
    CONSTANT.replace("(len(x), 1)", "(3, 1)"): (Status.BAD_OUTPUT, "(3, 3)"),
    CONSTANT.replace("0.5", "np.nan"): (Status.BAD_OUTPUT, ""),
    "while True: pass": (Status.TIMEOUT, "The code ran for more than 2 seconds."),
    "x = [bytes(2**24) for _ in range(99)]": (Status.MEMORY, "The code needed more than 256 MiB of memory"),
    "import os\nos._exit(3)": (Status.CRASHED, "The process of the code ended before it could answer."),
}


@pytest.mark.parametrize(("code", "failure"), FAILURES.items(), ids=range(len(FAILURES)))
def test_failures(code: str, failure: tuple[Status, str], evaluate: Callable[[str], Evaluation]) -> None:
    evaluation = evaluate(code)
    assert evaluation.status is failure[0]
    assert failure[1] in str(evaluation.error)
    assert (evaluation.scores, evaluation.aucs, evaluation.score) == ((), (), None)


# ---------------------------------------------------------------------- messages hold no label


def permuted(table: Dataset) -> Dataset:
    """The same rows with other labels: as many of each class in every half of every split."""
    y = table.y.copy()
    groups: dict[tuple[bool, ...], list[int]] = {}
    sides = np.stack([np.isin(np.arange(len(y)), half.train) for half in evaluator()._splits])
    for row in range(len(y)):
        groups.setdefault(tuple(sides[:, row]), []).append(row)
    rng = np.random.default_rng(0)
    for rows in groups.values():
        y[rows] = y[rng.permutation(rows)]
    assert (y != table.y).sum() > 20
    return Dataset(
        name="other", title=table.title, about=table.about, x=table.x, y=y, published=True, source=table.source
    )


LEAKS = [
    "raise ValueError(y_train)",
    "raise type('Error' + ''.join(map(str, y_train[:20])), (Exception,), {})()",
    "return y_train.tolist()",
]


@pytest.mark.parametrize("code", LEAKS, ids=range(len(LEAKS)))
def test_what_is_said_does_not_depend_on_the_labels(code: str) -> None:
    table = load("balance-scale")
    evaluations = [Evaluator(rows, range(5), sandbox=shared_sandbox())(code) for rows in (table, permuted(table))]
    assert evaluations[0].error == evaluations[1].error
    assert evaluations[0].stdout == evaluations[1].stdout
    assert "1, 0" not in f"{evaluations[0].error}{evaluations[0].stdout}"


def test_a_failure_on_the_true_labels_only_is_not_explained() -> None:
    first = load("balance-scale").y[evaluator()._splits[0].train][:10].tolist()
    evaluation = evaluator()(f"assert y_train[:10].tolist() != {first}, 'evaluation'\n{HONEST}")
    assert evaluation.status is Status.RUNTIME_ERROR
    assert evaluation.error == "The code fails on the true labels only, so its message is withheld."


def test_output_is_of_a_rehearsal_and_masked(evaluate: Callable[[str], Evaluation]) -> None:
    evaluation = evaluate(f"print('fitting', x_train.shape, 'labels', y_train, 'done')\n{HONEST}")
    assert evaluation.status is Status.OK
    assert evaluation.stdout.startswith("fitting (62, 4) labels ")
    assert evaluation.stdout.endswith("done")
    assert not re.search(r"[012][ ,]+[012]", evaluation.stdout)


# ---------------------------------------------------------------------- labels apart


class Listening(Sandbox):
    """Keeps the tasks."""

    def __init__(self) -> None:
        super().__init__(shared_sandbox().place)
        self.tasks: list[Task] = []

    def run(self, tasks: Sequence[Task], limits: Limits) -> list[Answer]:
        self.tasks += tasks
        return super().run(tasks, limits)


def test_tasks_say_which_labels_they_hold() -> None:
    """Splits differ, the same rows are the same, drawn by whomever; no rehearsal holds labels of rows."""
    sandbox, table = Listening(), load("balance-scale")
    for states in (range(3), (2, 0)):
        Evaluator(table, states, sandbox=sandbox)("return 3")
    sandbox.close()
    names = [task.labels for task in sandbox.tasks]
    first, second, third = names[:3]
    assert len({first, second, third}) == 3
    assert names == [first, second, third, *["permuted"] * 3, third, first, "permuted", "permuted"]
    (name,) = {task.table for task in sandbox.tasks}
    other = Dataset("other", "a table", "Rows.", table.x, table.y[::-1], published=False, source="drawn")
    Evaluator(other, [0], sandbox=sandbox)("return 3")
    assert sandbox.tasks[-1].table == name, "labels could be evaluation by trying them"


# ---------------------------------------------------------------------- the cache


class Counting(Sandbox):
    """Counts the runs."""

    n_runs = 0

    def run(self, tasks: Sequence[Task], limits: Limits) -> list[Answer]:
        self.n_runs += 1
        return super().run(tasks, limits)


@pytest.mark.parametrize("code", [HONEST, "1 / 0"])
def test_repeatable_results_are_remembered(code: str) -> None:
    sandbox, cache = Counting(shared_sandbox().place), Cache(None)
    evaluation = evaluator(sandbox=sandbox, cache=cache)(code)
    n_runs = sandbox.n_runs
    assert n_runs > 0
    assert evaluator(sandbox=sandbox, cache=cache)(code) == evaluation
    assert sandbox.n_runs == n_runs
    assert evaluator(sandbox=sandbox, cache=None)(code)._replace(cpu_seconds=0, wall_seconds=0, peak_rss=0) == (
        evaluation._replace(cpu_seconds=0, wall_seconds=0, peak_rss=0)
    )
    assert sandbox.n_runs == 2 * n_runs
    sandbox.close()


def test_results_of_code_that_could_read_files_are_not_remembered() -> None:
    class Unconfined(Counting):
        def run(self, tasks: Sequence[Task], limits: Limits) -> list[Answer]:
            answers = super().run(tasks, limits)
            self.is_confined = False  # as on a machine without Landlock
            return answers

    cache = Cache(None)
    for sandbox, n_runs in ((Unconfined(shared_sandbox().place), 2), (Counting(shared_sandbox().place), 1)):
        assert [evaluator(sandbox=sandbox, cache=cache)(HONEST).status for _ in range(2)] == [Status.OK] * 2
        assert sandbox.n_runs == n_runs
        sandbox.close()


@pytest.mark.parametrize(
    "answer",
    [
        Answer(End.TIME),
        Answer(End.LOST),
        Answer(End.SIGNAL, 11),
        Answer(End.EXIT, 0, {"error": "MemoryError"}, n_bytes=9),
    ],
    ids=["time", "lost", "crash", "memory"],
)
def test_what_depends_on_the_machine_is_not(answer: Answer) -> None:
    class Unlucky(Sandbox):
        def run(self, tasks: Sequence[Task], limits: Limits) -> list[Answer]:
            return [answer] * len(tasks)

    cache = Cache(None)
    assert evaluator(sandbox=Unlucky(), cache=cache)(HONEST).status not in (Status.OK, Status.RUNTIME_ERROR)
    assert evaluator(cache=cache)(HONEST).status is Status.OK


@pytest.mark.parametrize(
    "other",
    [{"limits": Limits(3.0)}, {"limits": Limits(memory_bytes=1 << 29)}, {"scoring": "accuracy"}],
    ids=["time", "memory", "scoring"],
)
def test_other_settings_are_other_entries(other: dict[str, Any]) -> None:
    sandbox, cache = Counting(shared_sandbox().place), Cache(None)
    evaluator(sandbox=sandbox, cache=cache)(HONEST)
    evaluator(sandbox=sandbox, cache=cache, **other)(HONEST)
    assert sandbox.n_runs == 2
    sandbox.close()


def test_the_time_of_all_splits_counts() -> None:
    class Slow(Sandbox):
        def run(self, tasks: Sequence[Task], limits: Limits) -> list[Answer]:
            answers = super().run(tasks, limits)
            return [answer._replace(cpu_seconds=7.0) for answer in answers]

    sandbox = Slow(shared_sandbox().place)
    assert evaluator(sandbox=sandbox)(HONEST).status is Status.TIMEOUT
    assert evaluator(sandbox=sandbox, limits=Limits(36.0))(HONEST).status is Status.OK
    sandbox.close()


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ({"error": 3, "message": [], "line": "x"}, Status.RUNTIME_ERROR),
        ({"error": "NameError", "message": "x", "line": 10**30, "stdout": {"a": 1}}, Status.RUNTIME_ERROR),
        ({"stdout": 5}, Status.BAD_OUTPUT),
        (None, Status.BAD_OUTPUT),
    ],
)
def test_a_forged_report_is_no_exception(header: Any, status: Status) -> None:
    class Forged(Sandbox):
        def run(self, tasks: Sequence[Task], limits: Limits) -> list[Answer]:
            return [Answer(End.EXIT, 0, header, n_bytes=9)] * len(tasks)

    evaluation = evaluator(sandbox=Forged())("x = 1")
    assert evaluation.status is status
    assert isinstance(evaluation.error, str)


def test_other_versions_of_the_libraries_of_code_have_entries_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = evaluation_module.library_versions()
    assert {name.replace("_", "-") for name in LIBRARIES.values()} < versions.keys()
    sandbox, cache = Counting(shared_sandbox().place), Cache(None)
    for number in ("0", "1", "0"):
        monkeypatch.setattr(
            evaluation_module, "library_versions", lambda number=number: {**versions, "narwhals": number}
        )
        assert evaluator(sandbox=sandbox, cache=cache)(HONEST).status is Status.OK
    assert sandbox.n_runs == 2
    sandbox.close()
