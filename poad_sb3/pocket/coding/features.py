"""Columns made of columns, as numpy expressions of an array `x`; they work for any table of at least four columns."""

from __future__ import annotations

import numpy as np

from lang_envs.envs.datascicoding.coder import pick

_ELEMENTWISE = (
    "np.log1p(np.abs(x))",
    "np.sqrt(np.abs(x))",
    "np.cbrt(x)",
    "np.tanh(x)",
    "np.sin(x)",
    "np.arctan(x)",
    "np.sign(x)",
    "np.round(x)",
    "np.clip(x, 0, 1)",
    "np.clip(x, -2, 2)",
    "x ** 2",
    "1 / (1 + np.abs(x))",
    "x - x.mean(axis=1, keepdims=True)",
    "np.maximum(x, 0)",
)
_OF_ROWS = (
    "x.mean(axis=1, keepdims=True)",
    "x.std(axis=1, keepdims=True)",
    "x.max(axis=1, keepdims=True)",
    "x.min(axis=1, keepdims=True)",
    "x.sum(axis=1, keepdims=True)",
    "np.median(x, axis=1, keepdims=True)",
)
_OF_TWO = (
    "{a} * {b}",
    "{a} - {b}",
    "{a} + {b}",
    "{a} / (1 + np.abs({b}))",
    "np.maximum({a}, {b})",
    "np.minimum({a}, {b})",
    "np.abs({a} - {b})",
    "np.hypot({a}, {b})",
)
_SELECTIONS = ("x[:, :1]", "x[:, :2]", "x[:, :3]", "x[:, -1:]", "x[:, -2:]", "x[:, ::2]", "x[:, 1:]", "x[:, :-1]")


def elementwise(rng: np.random.Generator) -> str:
    """Return code for an array of the shape of `x`."""
    return pick(_ELEMENTWISE, rng)


def columns(rng: np.random.Generator) -> str:
    """Return code for some columns of `x`, mostly too few for a good score."""
    if rng.random() < 0.5:
        return pick(_SELECTIONS, rng)
    chosen = rng.choice(4, size=int(rng.integers(1, 4)), replace=False)
    return f"x[:, [{', '.join(str(column) for column in chosen)}]]"


def new_columns(rng: np.random.Generator) -> str:
    """Return code for one or more columns made of those of `x`, as an array of two dimensions."""
    chance = rng.random()
    if chance < 0.2:
        return elementwise(rng)
    if chance < 0.35:
        return pick(_OF_ROWS, rng)
    term = _of_two(rng)
    if chance < 0.75:
        return term
    return f"{term} {pick(('-', '+', '*'), rng)} {_of_two(rng, products=True)}"


def _of_two(rng: np.random.Generator, *, products: bool = False) -> str:
    form = "{a} * {b}" if products or rng.random() < 0.4 else pick(_OF_TWO, rng)
    a, b = (f"x[:, [{column}]]" for column in rng.choice(4, size=2, replace=False))
    return form.format(a=a, b=b)
