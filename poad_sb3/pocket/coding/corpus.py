"""Lines for the pocket coder: a prompt as the environment words it, and a body.

Bodies, mistakes and tables are drawn independently of each other. The error shown for an earlier attempt is the
environment's: the code is run on the (random) table by the environment's own evaluator, in this process, since it is
not untrusted. The score shown for code that ran is a random number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

import numpy as np

from lang_envs.datasets import Dataset
from lang_envs.envs.datascicoding import describe as prompts
from lang_envs.envs.datascicoding.coder import pick
from lang_envs.envs.datascicoding.describe import Remark
from lang_envs.envs.datascicoding.env import BANNED
from lang_envs.envs.datascicoding.evaluation import Evaluation, Evaluator, Status
from lang_envs.sandbox.client import Answer, End, Limits, Sandbox
from lang_envs.sandbox.worker import Task, run_task
from poad_sb3.pocket.coding.grammar import random_code
from poad_sb3.pocket.coding.mistakes import spoilt
from poad_sb3.pocket.coding.tables import invented_table, known_tables
from poad_sb3.pocket.corpus import Example

_N_INVENTED, _KNOWN = 400, 0.4
"""Number of invented tables, and share of prompts about registered ones."""
_SPOILED = 0.25
"""Share of bodies with a mistake."""
_FIXED, _FAILED_AGAIN = 0.75, 0.1
"""Share of bodies without their mistake after a failure, and share of those with another one instead."""
_SCORINGS = ("roc_auc",) * 8 + ("accuracy", "balanced_accuracy")
_MAX_SCORE, _MIN_SCORE = 1.0, 0.3


class _InProcess(Sandbox):
    """Sandbox that runs code in this very process: only for code that the grammar wrote."""

    def run(self, tasks: Sequence[Task], limits: Limits) -> list[Answer]:
        """See `Sandbox.run`."""
        answers = []
        for task in tasks:
            header, probabilities = run_task(task)
            answers.append(Answer(End.EXIT, 0, header, probabilities, n_bytes=1))
        return answers


def evaluated(code: str, table: Dataset) -> Evaluation:
    """Return the outcome of code on one split of a table. The code runs here, unconfined."""
    return _evaluator(table)(code)


@lru_cache(maxsize=2 * _N_INVENTED)
def _evaluator(table: Dataset) -> Evaluator:
    return Evaluator(table, (0,), banned=BANNED, sandbox=_InProcess())


def coding_lines(n_lines: int, rng: np.random.Generator) -> Iterator[Example]:
    """Yield prompts with bodies: a third of them first attempts, the rest after remarks.

    Args:
        n_lines: Number of lines to yield.
        rng: Random generator.
    """
    real, invented = known_tables(rng), [invented_table(rng) for _ in range(_N_INVENTED)]
    for _ in range(n_lines):
        table = pick(real if rng.random() < _KNOWN else invented, rng)
        yield _line(table, rng)


def bare_lines(n_lines: int, rng: np.random.Generator) -> Iterator[Example]:
    """Yield bodies without prompts: the model learns their form from them in a fraction of the tokens."""
    for _ in range(n_lines):
        yield Example("", _body(rng))


def _line(table: Dataset, rng: np.random.Generator) -> Example:
    attempts = 5 if rng.random() < 0.8 else int(rng.integers(2, 11))
    kind, share = _first, rng.random()
    for candidate, part in ((_after_failure, 0.54), (_after_success, 0.06), (_after_loss, 0.06)):
        if share < part:
            kind = candidate
            break
        share -= part
    remarks, body = kind(table, attempts, rng)
    return Example(prompts.observation(table, pick(_SCORINGS, rng), attempts, remarks), body)


_Kind = Callable[[Dataset, int, np.random.Generator], tuple[list[Remark], str]]


def _body(rng: np.random.Generator) -> str:
    body = random_code(rng)
    return spoilt(body, rng).code if rng.random() < _SPOILED else body


def _first(table: Dataset, attempts: int, rng: np.random.Generator) -> tuple[list[Remark], str]:
    return [], _body(rng)


def _after_failure(table: Dataset, attempts: int, rng: np.random.Generator) -> tuple[list[Remark], str]:
    """Return the remark on a body that failed, and the next body: mostly the same without its mistake."""
    body, evaluation = _failed(table, rng)
    number = int(rng.integers(1, attempts))
    remarks = [Remark(number, evaluation.code, f"it failed. {evaluation.error}")]
    chance = rng.random()
    if chance < _FIXED:
        return remarks, body
    return remarks, spoilt(body, rng).code if chance < _FIXED + _FAILED_AGAIN else _body(rng)


def _failed(table: Dataset, rng: np.random.Generator) -> tuple[str, Evaluation]:
    """Return a sound body, and the failure of the same body with one more mistake."""
    while True:
        body = random_code(rng)
        evaluation = evaluated(spoilt(body, rng).code, table)
        if evaluation.status is not Status.OK:
            return body, evaluation


def _after_success(table: Dataset, attempts: int, rng: np.random.Generator) -> tuple[list[Remark], str]:
    """Return the remark on a successful attempt with a random score, and the body of a different program."""
    score = rng.uniform(_MIN_SCORE, _MAX_SCORE)
    return [Remark(int(rng.integers(1, attempts)), random_code(rng), f"it ran, with a score of {score:.4f}.")], _body(
        rng
    )


def _after_loss(table: Dataset, attempts: int, rng: np.random.Generator) -> tuple[list[Remark], str]:
    """Return the remark on a failure that no code of the grammar has, or several remarks at once, and the next body."""
    if rng.random() < 0.3:
        first, body = _after_failure(table, attempts, rng)
        second, body = _after_failure(table, attempts, rng)
        return [remark._replace(number=number) for number, remark in enumerate((*first, *second), start=1)], body
    message = pick(
        (
            "The code was not finished.",
            "The code ran for more than 30 seconds.",
            "The code needed more than 1024 MiB of memory.",
            "The process of the code ended before it could answer.",
        ),
        rng,
    )
    code = "" if "not finished" in message else random_code(rng)
    return [Remark(int(rng.integers(1, attempts)), code, f"it failed. {message}")], _body(rng)
