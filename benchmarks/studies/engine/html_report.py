"""The one-file HTML report of a study, from its JSON file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.studies.engine.comparing import Comparing
from benchmarks.studies.engine.study import Study
from lang_envs.redaction import flat_facts, without_private
from lang_envs.report import LearningCurve, Report, Run

_SENTENCES = ("statistics", "remarks")
"""Fields of a study that are sentences, or lists of sentences."""


def report_of_study(study: Study | Comparing, content: Mapping[str, Any]) -> Report:
    """Return the report of a study.

    Args:
        study: Study to report.
        content: Content of its JSON file, as `python -m benchmarks study NAME` writes it.
    """
    missing = content.get("missing", ())
    remark = f"Not run yet: {'; '.join(name.rstrip('.') for name in missing)}." if missing else ""
    return Report(
        f"Study {content['study']}: {content['about']}",
        runs=[Run(content["study"], _facts(content), {}, remark)],
        curves=list(_curves(content)),
        about=("Areas are mean heights of learning curves: a method with a larger area learned faster or better.",)
        if _comparisons(content)
        else (),
        tables=list(study.tables(content)),
        notes=tuple(sentences(content)),
    )


def _comparisons(content: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    comparisons: Sequence[Mapping[str, Any]] = content.get("comparisons", ())
    return comparisons


def _facts(content: Mapping[str, Any]) -> dict[str, str]:
    facts = {"command": content["command"], "commits": ", ".join(content.get("commits", ()))}
    for number, machine in enumerate(content["measured_with"], 1):
        facts |= dict(flat_facts("machine" if number == 1 else f"machine {number}", machine))
    for name in ("seeds", "rates", "learning_rate", "gamma", "gae_lambda", "steps", "attempts", "model"):
        if name in content:
            facts |= dict(flat_facts(name, content[name]))
    return {name: without_private(text) for name, text in facts.items() if text}


def sentences(content: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a reader of all tables of a study has to know."""
    for name in _SENTENCES:
        value = content.get(name)
        if isinstance(value, str):
            yield value
        elif isinstance(value, list):
            yield from (text for text in value if isinstance(text, str))


def _curves(content: Mapping[str, Any]) -> Iterator[LearningCurve]:
    """Yield the learning curves of a comparison of methods."""
    for comparison in _comparisons(content):
        for name, method in comparison["methods"].items():
            curve = method["curve"]
            several = len(method["seeds"]) > 1
            by_seed = {str(seed): row for seed, row in zip(method["seeds"], curve["by_seed"], strict=True)}
            yield LearningCurve(
                comparison["task"],
                name,
                "return",
                curve["steps"],
                curve["values"],
                curve["low"] if several else None,
                curve["high"] if several else None,
                by_seed if several else {},
            )
