"""Evaluation of code: parse it, run it in the sandbox split by split, score its predictions, explain errors.

Text that code produces (error messages, output) is a channel from the labels it has seen to the next prompt, and from
there to the next code. So no text of a run with true labels is ever shown: where a message is needed, the code is run
once more on *permuted* labels (a rehearsal), and the masked output of that run is shown (see `error_masking`).
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lang_envs import __version__
from lang_envs.cache import Cache, key_of
from lang_envs.datasets import Dataset
from lang_envs.envs.datascicoding.error_masking import exception_name, mask
from lang_envs.envs.datascicoding.scoring import SCORERS, Split, auc, check_probabilities, splits
from lang_envs.sandbox.client import Answer, End, Limits, Sandbox
from lang_envs.sandbox.extraction import MAX_CODE_BYTES, AgentCode, CodeSyntaxError, banned_use, extract
from lang_envs.sandbox.rendezvous import library_versions
from lang_envs.sandbox.worker import Task
from lang_envs.text import printable

__all__ = ["Evaluation", "Evaluator", "Status"]

_VERSION = 4
"""Version in every cache key: to be raised when the same code may get another result."""
_MAX_LINE = 100
_MAX_KEPT = 2 * MAX_CODE_BYTES  # characters of code
_PERMUTATION_SEED = 20240
_PERMUTED = "permuted"
"""Name of the labels of rehearsals: they are independent of the rows, so rehearsals of all splits may run together.
They are kept apart from the true runs: a true run could pass its labels to a rehearsal, and its text is shown."""

_WITHHELD = "The code fails on the true labels only, so its message is withheld."


class Status(StrEnum):
    """Outcome of an attempt."""

    NOT_RUN = "not_run"
    OK = "ok"
    UNFINISHED = "unfinished"
    SYNTAX_ERROR = "syntax_error"
    BANNED = "banned"
    RUNTIME_ERROR = "runtime_error"
    BAD_OUTPUT = "bad_output"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    CRASHED = "crashed"
    LOST = "lost"


_REPEATABLE = {Status.OK, Status.RUNTIME_ERROR, Status.BAD_OUTPUT}
"""Outcomes that the same code repeats; timeouts, memory failures and lost workers depend on the machine."""


class Evaluation(NamedTuple):
    """The result of one attempt.

    Attributes:
        status: Outcome of the attempt.
        code: Code extracted from the text.
        scores: Score of each split, in [0, 1]; empty on failure.
        aucs: ROC AUC of each split, in [0, 1]; empty on failure.
        error: Description of the failure, in one line that holds no label; None on success.
        stdout: Output of a rehearsal, masked.
        cpu_seconds: CPU time of all splits together.
        wall_seconds: Time from sending the splits to the last answer, without rehearsals; for a cached result, that of
            its first evaluation.
        peak_rss: Largest resident memory of a split in bytes, the libraries included.
    """

    status: Status
    code: str
    scores: tuple[float, ...] = ()
    aucs: tuple[float, ...] = ()
    error: str | None = None
    stdout: str = ""
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    peak_rss: int = 0

    @property
    def score(self) -> float | None:
        """Mean over the splits; None on failure."""
        return float(np.mean(self.scores)) if self.scores else None


class Evaluator:
    """Turns an agent's text into an `Evaluation`; no content of the text makes it raise.

    Args:
        dataset: Table that code is evaluated on.
        random_states: Random states of the splits.
        scoring: Key of `scoring.SCORERS`.
        banned: Names that the code must not use.
        limits: Limits of one evaluation.
        sandbox: Sandbox that runs the code.
        cache: Cache of results; None for no cache.
    """

    def __init__(
        self,
        dataset: Dataset,
        random_states: Sequence[int],
        *,
        scoring: str = "roc_auc",
        banned: Sequence[str] = (),
        limits: Limits = Limits(),  # noqa: B008 - immutable
        sandbox: Sandbox | None = None,
        cache: Cache | None = None,
    ) -> None:
        self.dataset, self.random_states, self.scoring = dataset, tuple(random_states), scoring
        self.banned, self.limits = tuple(banned), limits
        self.sandbox = Sandbox() if sandbox is None else sandbox
        self.cache = cache
        self._splits = splits(dataset, self.random_states)
        # Without the labels: children descend from a process beside the one that knows this name.
        self._table = hashlib.sha256(dataset.x.tobytes()).hexdigest()[:16]

    def __call__(self, text: str) -> Evaluation:
        """Evaluate a text, or remember its result."""
        try:
            code = extract(text)
        except CodeSyntaxError as error:
            source = error.source or text
            message = _located("SyntaxError", error.message, error.line, source.split("\n"))
            return Evaluation(Status.SYNTAX_ERROR, source[:_MAX_KEPT], error=message)
        name = banned_use(code, self.banned)
        if name is not None:
            return Evaluation(Status.BANNED, code.source, error=f"{name[:_MAX_LINE]} must not be used here.")
        if self.cache is None:
            return self._run(code)
        key = self._key(code)
        entry = self.cache.get(key)
        if entry is not None:
            return _from_entry(entry)
        evaluation = self._run(code)
        if evaluation.status in _REPEATABLE and self.sandbox.is_confined:  # a file that code reads may change
            self.cache.put(key, evaluation._asdict())
        return evaluation

    def _key(self, code: AgentCode) -> str:
        return key_of(
            {
                "version": (__version__, _VERSION),
                "code": code.source,
                "dataset": (self.dataset.digest, self.dataset.x.shape),
                "published": self.dataset.published,  # its splits are drawn another way
                "random_states": self.random_states,
                "scoring": self.scoring,
                "limits": self.limits,
                "libraries": library_versions(),
            }
        )

    def _run(self, code: AgentCode) -> Evaluation:
        start = time.perf_counter()
        tasks = [
            self._task(code, split, number, split_labels(self.dataset, split), _name_of(split))
            for number, split in self._numbered()
        ]
        answers = self.sandbox.run(tasks, self.limits)
        wall = time.perf_counter() - start
        judged = [self._judge(answer, split) for answer, split in zip(answers, self._splits, strict=True)]
        usage = Evaluation(
            Status.NOT_RUN,
            code.source,
            cpu_seconds=math.fsum(answer.cpu_seconds for answer in answers),
            wall_seconds=wall,
            peak_rss=max(answer.peak_rss for answer in answers),
        )
        failed = next((n for n, (status, _) in enumerate(judged) if status not in (Status.OK, None)), None)
        status = Status.OK if failed is None else judged[failed][0] or Status.LOST
        if status is Status.OK and usage.cpu_seconds > self.limits.time_limit:  # between two looks at the clock
            failed, status = 0, Status.TIMEOUT
        error, stdout = self._say(code, status, answers)
        if failed is not None:
            return usage._replace(status=status, error=error, stdout=stdout)
        pairs = [self._scores(answer, split) for answer, split in zip(answers, self._splits, strict=True)]
        scores, aucs = zip(*pairs, strict=True)
        return usage._replace(status=status, scores=scores, aucs=aucs, stdout=stdout)

    def _numbered(self) -> list[tuple[int, Split]]:
        return list(zip(self.random_states, self._splits, strict=True))

    def _task(self, code: AgentCode, split: Split, seed: int, labels: NDArray[np.int64], name: str) -> Task:
        x = self.dataset.x
        return Task(code.source, seed % 2**32, x[split.train], labels, x[split.test], self._table, name)

    def _judge(self, answer: Answer, split: Split) -> tuple[Status | None, str]:
        """Return the status of a split (None: cancelled since another one failed), and the fault of its answer."""
        if answer.end is End.CANCELLED:
            return None, ""
        if answer.end is not End.EXIT or answer.code != 0:
            ends = {End.TIME: Status.TIMEOUT, End.LOST: Status.LOST}
            return ends.get(answer.end, Status.CRASHED), ""
        error = (answer.header or {}).get("error")
        if error is not None:
            return (Status.MEMORY if error == "MemoryError" else Status.RUNTIME_ERROR), ""
        if answer.n_bytes == 0:  # it ended itself, as if all were well
            return Status.CRASHED, ""
        if answer.probabilities is None:
            return Status.BAD_OUTPUT, "Expected probabilities; got nothing that can be read."
        problem = check_probabilities(answer.probabilities, len(split.test), self.dataset.classes)
        return (Status.OK, "") if problem is None else (Status.BAD_OUTPUT, problem)

    def _scores(self, answer: Answer, split: Split) -> tuple[float, float]:
        assert answer.probabilities is not None
        y = self.dataset.y[split.test]
        area = auc(y, answer.probabilities)
        return (area if self.scoring == "roc_auc" else SCORERS[self.scoring](y, answer.probabilities)), area

    # ------------------------------------------------------------------ messages

    def _say(self, code: AgentCode, status: Status, answers: list[Answer]) -> tuple[str | None, str]:
        """Return error line and output: fixed texts, or those of a rehearsal."""
        fixed = {
            Status.TIMEOUT: f"The code ran for more than {self.limits.time_limit:g} seconds.",
            Status.MEMORY: f"The code needed more than {self.limits.memory_bytes >> 20} MiB of memory.",
            Status.CRASHED: "The process of the code ended before it could answer.",
            Status.LOST: "The evaluation was lost several times; nothing is known of the code.",
        }
        if status in fixed:
            return fixed[status], ""
        printed = any((answer.header or {}).get("stdout") for answer in answers)
        if status is Status.OK and not printed:
            return None, ""
        error, stdout = self._rehearse(code)
        return (None if status is Status.OK else error or _WITHHELD), stdout

    def _rehearse(self, code: AgentCode) -> tuple[str | None, str]:
        """Return the output of the code with permuted labels, independent of the order of the true ones.

        All splits are rehearsed, not only the failed ones: the choice would depend on the labels.
        """
        tasks = []
        for number, (seed, split) in enumerate(self._numbered()):
            rng = np.random.default_rng((_PERMUTATION_SEED, number))
            permuted = rng.permutation(np.sort(split_labels(self.dataset, split)))
            tasks.append(self._task(code, split, seed, permuted, _PERMUTED))
        answers = self.sandbox.run(tasks, self.limits)
        judged = [self._judge(answer, split) for answer, split in zip(answers, self._splits, strict=True)]
        shown = next((n for n, (status, _) in enumerate(judged) if status not in (Status.OK, None)), 0)
        (status, problem), split = judged[shown], self._splits[shown]
        header = (answers[shown].header or {}) if answers[shown].end is End.EXIT else {}
        stdout = mask(str(header.get("stdout", "")), code, self._known_numbers(split), limit=2000)
        if status is Status.BAD_OUTPUT:
            return problem, stdout
        if status is not Status.RUNTIME_ERROR:
            return None, stdout
        message = mask(str(header.get("message", "")), code, self._known_numbers(split))
        name = exception_name(str(header["error"]), code)
        return _located(name, message, header.get("line"), code.source.split("\n")), stdout

    def _known_numbers(self, split: Split) -> set[int]:
        n, width = self.dataset.x.shape
        return {n, width, len(split.train), len(split.test), self.dataset.classes}


def split_labels(dataset: Dataset, split: Split) -> NDArray[np.int64]:
    """Return the labels that code may see: those of the training half."""
    return dataset.y[split.train]


def _name_of(split: Split) -> str:
    """Return the name of the labels of a training half: the same for the same rows, wherever they were drawn."""
    return hashlib.sha256(np.sort(split.train).tobytes()).hexdigest()[:16]


def _located(name: str, message: str, line: object, lines: Sequence[str]) -> str:
    """Return an error in one line, with the line of the code that it is about, if there is one."""
    message_line = printable(f"{name}: {message}" if message else name)
    if type(line) is not int or not 1 <= line <= len(lines):
        return message_line
    return f"{message_line} (line {line}: {printable(lines[line - 1].strip()[:_MAX_LINE])})"


def _from_entry(entry: dict[str, Any]) -> Evaluation:
    entry["status"] = Status(entry["status"])
    entry["scores"], entry["aucs"] = tuple(entry["scores"]), tuple(entry["aucs"])
    return Evaluation(**entry)
