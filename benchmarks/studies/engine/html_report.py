"""The one-file HTML report of a study: verdicts, learning curves and runs, from its JSON file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.studies.engine.findings import MEASURES, primary_table
from lang_envs.report import LearningCurve, Report, Run, Table
from lang_envs.report.private import flat_facts, without_private

_SENTENCES = ("remarks", "statistics")
"""Fields of a study that are sentences, or lists of sentences."""


def report_of_study(content: Mapping[str, Any]) -> Report:
    """Return the report of a study.

    Args:
        content: Content of its JSON file, as `python -m benchmarks study NAME` writes it.
    """
    missing = content.get("missing", ())
    remark = f"Not run yet: {'; '.join(one.rstrip('.') for one in missing)}." if missing else ""
    return Report(
        f"Study {content['study']}: {content['told']}",
        runs=[Run(content["study"], _facts(content), {}, remark)],
        curves=list(_curves(content)),
        about=("Areas are mean heights of learning curves: a method with a larger area learned faster or better.",)
        if _comparisons(content)
        else (),
        tables=[*_primary(content), *_areas(content), *_predictions(content), *_noise(content)],
        notes=tuple(_sentences(content)),
    )


def _comparisons(content: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    found: Sequence[Mapping[str, Any]] = content.get("comparisons", ())
    return found


def _facts(content: Mapping[str, Any]) -> dict[str, str]:
    facts = {"command": content["command"], "commits": ", ".join(content.get("commits", ()))}
    for number, machine in enumerate(content["measured_with"], 1):
        facts |= dict(flat_facts("machine" if number == 1 else f"machine {number}", machine))
    for name in ("seeds", "rates", "learning_rate", "gamma", "gae_lambda", "steps", "attempts", "model"):
        if name in content:
            facts |= dict(flat_facts(name, content[name]))
    return {name: without_private(text) for name, text in facts.items() if text}


def _sentences(content: Mapping[str, Any]) -> Iterator[str]:
    for name in _SENTENCES:
        found = content.get(name)
        if isinstance(found, str):
            yield found
        elif isinstance(found, list):
            yield from (one for one in found if isinstance(one, str))


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


def _areas(content: Mapping[str, Any]) -> Iterator[Table]:
    """Yield a table for each comparison: areas and final returns, best first."""
    for comparison in _comparisons(content):
        methods = comparison["methods"]
        rows = [
            (name, str(len(methods[name]["seeds"])), f"{methods[name]['learning_rate']:g}", *(
                _shown(methods[name][measure]) for measure in MEASURES
            ))
            for name in comparison["order"]["area"]
        ]  # fmt: skip
        if rows:
            yield Table(
                f"{comparison['task']} ({comparison['env']})",
                ("method", "seeds", "learning rate", *MEASURES.values()),
                rows,
            )


def _primary(content: Mapping[str, Any]) -> Iterator[Table]:
    """Yield the planned comparisons of a study."""
    if content.get("primary"):
        yield Table("Planned comparisons", *primary_table(content["primary"]), "Corrected by Holm over all rows.")


def _noise(content: Mapping[str, Any]) -> Iterator[Table]:
    """Yield the tables of `critic-noise`."""
    from benchmarks.studies.critic_noise import noise_table

    for name, one in content.get("trainings", {}).items():
        yield Table(f"Training of {name}", *noise_table(one))


def _predictions(content: Mapping[str, Any]) -> Iterator[Table]:
    rows = [
        (one["name"], f"{one['held']:,} of {one['checked']:,}", *(
            "" if one["largest_difference"] is None else f"{one['largest_difference']:.2g}",
        ))
        for one in content.get("predictions", ())
    ]  # fmt: skip
    if rows:
        yield Table("Predictions", ("prediction", "checks that hold", "largest difference"), rows)


def _shown(estimate: Mapping[str, float | None]) -> str:
    known = [f"{one:.3f}" for one in estimate.values() if one is not None]
    return known[0] if len(known) < 3 else f"{known[0]} [{known[1]}, {known[2]}]"
