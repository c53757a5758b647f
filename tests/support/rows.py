"""Rows of a product of which `make test` runs some."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def first_rows(n: int, rows: Iterable[Any]) -> list[Any]:
    """Return rows for `parametrize`: the first `n` run in `make test`, the rest in the matrix."""
    return [row if number < n else pytest.param(row, marks=pytest.mark.matrix) for number, row in enumerate(rows)]
