"""Mistakes in bodies of the grammar, beyond the mistakes of `lang_envs.envs.datascicoding.coder`."""

from __future__ import annotations

import re

import numpy as np

from lang_envs.envs.datascicoding.coder import MISTAKES, Spoiled, spoil

_AFTER_RETURN = re.compile(r"^return .*\n", re.MULTILINE)
_BEFORE_MODEL = r"\A((?:from .*\n)*)"

ALL_MISTAKES = {
    **MISTAKES,
    "wrong method": (
        (r"\.fit\(", ".train("),
        (r"\.fit\(", ".fit_model("),
        (r"\.fit\(", ".fit_predict("),
        (r"\.fit_transform\(", ".transform("),
    ),
    "columns made outside": (
        (_BEFORE_MODEL, r"\1x_train = np.hstack([x_train, x_train ** 2])\n"),
        (_BEFORE_MODEL, r"\1x_train = np.column_stack([x_train, x_train.mean(axis=1)])\n"),
        (_BEFORE_MODEL, r"\1x_train = x_train[:, :2]\n"),
    ),
    "wrong axis": (
        (r"\[\[(\d)\]\]", r"[\1]"),
        (r"x\[:, \[(\d)\]\]", r"x[:, \1]"),
        (r", keepdims=True", ""),
        (r"axis=1", "axis=2"),
        (r"np\.hstack\(", "np.vstack("),
    ),
    "no such column": ((r"x\[:, \[(\d)\]\]", r"x[:, [99\1]]"), (r"x\[:, \[(\d)\]\]", r"x['f\1']")),
    "no such function": (
        (r"np\.(hstack|concatenate|log1p|sqrt|tanh|abs|maximum|clip)", r"np.\1s"),
        (r"np\.", "numpy."),
        (r"np\.", "math."),
    ),
    "steps without names": (
        (r"Pipeline\(\[\('\w+', (\w+\([^()]*\)|\w+)\)", r"Pipeline([\1"),
        (r"Classifier\(\[\('\w+', (\w+\([^()]*\)|\w+)\)", r"Classifier([\1"),
        (r"make_pipeline\((.+)\)(?=$|\.fit)", r"make_pipeline([\1])"),
        (r"Pipeline\(\[(.+)\]\)", r"Pipeline(\1)"),
    ),
    "hard vote": ((r"voting='soft'", "voting='hard'"),),
    "steps in the wrong order": ((r"make_pipeline\((\w+\([^()]*\)), (\w+\([^()]*\))\)", r"make_pipeline(\2, \1)"),),
    "colon or comma": (
        (r"lambda x: ", "lambda x "),
        (r"\(x\):$", "(x)"),
        (r", (?=\w+=)", " "),
        (r" import ", " imports "),
    ),
}
"""Patterns and their replacements, applied once, by name."""


def spoilt(body: str, rng: np.random.Generator) -> Spoiled:
    """Return a body with a random mistake, before its return."""
    while True:
        spoiled = spoil(body, rng, ALL_MISTAKES)
        if _AFTER_RETURN.search(spoiled.code) is None:
            return spoiled
