"""Published scores: the files of `data/published`, with the source and the definition of each figure."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from benchmarks.runner.machine import RESULTS


@cache
def read(name: str) -> dict[str, Any]:
    """Return a file of `data/published`."""
    content: dict[str, Any] = json.loads((RESULTS.parent / "published" / f"{name}.json").read_text(encoding="utf-8"))
    return content


def published(table: str) -> dict[str, float]:
    """Return the ROC AUC by method on a table of DataSciCoding; empty for a table without published scores.

    Only scores of `preprocessing="published"` may stand beside them.
    """
    content = read("datasci")
    if table not in content["tables"]:
        return {}
    return {row["method"]: row["scores"][content["tables"].index(table)] for row in content["methods"]}
