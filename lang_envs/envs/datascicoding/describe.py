"""Observation of the agent: a Python file that stops where the body of `build_model` begins.

All of it is Python, the task and the failures as comments, so that a language model can simply continue it; `SUFFIX`
follows the body, for models that fill in the middle.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import NamedTuple

from lang_envs.datasets import Dataset
from lang_envs.text import one_line, printable

SUFFIX = "\n    return model\n"
MAX_CODE_SHOWN = 9_000
"""Maximum number of characters of an attempt's code in an observation; escapes and comment signs count."""
_HEAD_LENGTH = 2_048
_CUT_MARK = " (cut)"
_MAX_VERDICT, _MAX_TITLE, _MAX_ABOUT = 700, 120, 400  # characters, escapes included

_HEADER = """\
Predict {title} with scikit-learn. {about} The table has {n} rows, {width} numeric features and {classes} classes.
Write the body of build_model: fit a classifier on the training half of the rows and return it, or leave it in a
variable called model. Its predict_proba is scored by {score} on the other half."""
_SYNTHETIC = """\
SYNTHETIC DATA: the rows are made up and stand in for a real table that is not here. The score tells how well code
predicts made-up classes, and nothing about the real table."""
_HEADER_WIDTH = 96
_FUNCTION = '''
import numpy as np


def build_model(x_train, y_train):
    """Fit a classifier that has predict_proba.

    x_train: float array, shape ({n_train}, {width}). y_train: int array, shape ({n_train},), classes {classes_told}.
    """
    '''
_SCORES = {"roc_auc": "the area under the ROC curve", "accuracy": "accuracy", "balanced_accuracy": "balanced accuracy"}


class Remark(NamedTuple):
    """An earlier attempt, as the agent is reminded of it.

    Attributes:
        number: Number of the attempt in the episode, from 1.
        code: Code of the attempt.
        verdict: Outcome of the attempt, one line.
    """

    number: int
    code: str
    verdict: str


def observation(dataset: Dataset, scoring: str, max_attempts: int, remarks: Sequence[Remark]) -> str:
    """Return the observation.

    Args:
        dataset: The table.
        scoring: Key of `scoring.SCORERS`.
        max_attempts: Maximum number of attempts of an episode.
        remarks: Earlier attempts to show to the agent, oldest first.
    """
    n, width = dataset.x.shape
    title, about = _short(one_line(dataset.title), _MAX_TITLE), _short(one_line(dataset.about), _MAX_ABOUT)
    size = {"n": n, "width": width, "classes": dataset.classes}
    head = _comment(_SYNTHETIC) if dataset.synthetic else ""
    head += _comment(_HEADER.format(title=title, about=about, score=_SCORES[scoring], **size))
    told_classes = "0 and 1" if dataset.classes == 2 else f"0 to {dataset.classes - 1}"
    reminders = "".join(_reminder(remark, max_attempts) for remark in remarks)
    return head + reminders + _FUNCTION.format(n_train=n // 2, width=width, classes_told=told_classes)


def max_length(n_remarks: int) -> int:
    """Return the largest number of characters of an observation with so many remarks."""
    return _HEAD_LENGTH + n_remarks * (MAX_CODE_SHOWN + 1_024)


def _comment(text: str) -> str:
    return textwrap.fill(text, _HEADER_WIDTH, initial_indent="# ", subsequent_indent="# ") + "\n"


def _short(text: str, n_characters: int) -> str:
    return text if len(text) <= n_characters else text[: n_characters - len(_CUT_MARK)] + _CUT_MARK


def _reminder(remark: Remark, max_attempts: int) -> str:
    verdict = _short(printable(remark.verdict), _MAX_VERDICT)
    head = f"#\n# Attempt {remark.number} of {max_attempts}: {verdict}\n"
    if not remark.code:
        return head
    lines = "".join(f"#     {printable(line)}\n" for line in remark.code.split("\n"))
    if len(lines) > MAX_CODE_SHOWN:
        lines = lines[:MAX_CODE_SHOWN]
        lines = f"{lines.rpartition(chr(10))[0] or lines}\n#    {_CUT_MARK}\n"
    return head + "# Its code:\n" + lines
