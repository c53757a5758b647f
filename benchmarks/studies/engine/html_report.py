"""The tables of a study and its one-file HTML report, from its JSON file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.studies.engine.findings import MEASURES, primary_table
from benchmarks.studies.engine.pieces import identifier
from lang_envs.private import flat_facts, without_private
from lang_envs.report import LearningCurve, Report, Run, Table

_SENTENCES = ("statistics", "remarks")
"""Fields of a study that are sentences, or lists of sentences."""


def report_of_study(content: Mapping[str, Any]) -> Report:
    """Return the report of a study.

    Args:
        content: Content of its JSON file, as `python -m benchmarks study NAME` writes it.
    """
    missing = content.get("missing", ())
    remark = f"Not run yet: {'; '.join(one.rstrip('.') for one in missing)}." if missing else ""
    return Report(
        f"Study {content['study']}: {content['about']}",
        runs=[Run(content["study"], _facts(content), {}, remark)],
        curves=list(_curves(content)),
        about=("Areas are mean heights of learning curves: a method with a larger area learned faster or better.",)
        if _comparisons(content)
        else (),
        tables=study_tables(content),
        notes=tuple(sentences(content)),
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


def sentences(content: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a reader of all tables of a study has to know."""
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


# ---------------------------------------------------------------------- tables


def study_tables(content: Mapping[str, Any]) -> list[Table]:
    """Return the tables of a study, for its HTML report and for the page of results.

    Args:
        content: See `report_of_study`.
    """
    kinds = (_primary, _methods, _unseen, _coded, _predictions, _noise, _credited)
    return [one for kind in kinds for one in kind(content)]


def _primary(content: Mapping[str, Any]) -> Iterator[Table]:
    """Yield the planned comparisons of a study."""
    if content.get("primary"):
        about = "Corrected by Holm over all rows."
        if content.get("beside_runs"):
            about += f" Id of what was measured beside the curves: {identifier(content['study'], 'beside')}."
        yield Table("Planned comparisons", *primary_table(content["primary"]), about)


def _methods(content: Mapping[str, Any]) -> Iterator[Table]:
    """Yield a table for each task with learning curves, the method with the largest area first."""
    head = ("", "rate", "seeds", *MEASURES.values(), "last success", "reached 95 % of optimal", "learned", "s a run")
    for one in _comparisons(content):
        rows = []
        for name in one["order"]["area"]:
            found = one["methods"][name]
            reached = sorted(step for step in found["steps_to_optimum"] or () if step is not None)
            of, n_never = f"{len(reached)} of {len(found['seeds'])}", len(found["seeds"]) - len(reached)
            median = np.median([*reached, *[np.inf] * n_never]) if reached else np.inf
            rows.append(
                (
                    name,
                    f"{found['learning_rate']:g}{'*' if found['at_edge_of_rates'] else ''}",
                    str(len(found["seeds"])),
                    *(_interval(found[measure]) for measure in MEASURES),
                    f"{found['final_success']:.1%}",
                    f"{of}, median {median:,.0f}" if np.isfinite(median) else of,
                    "" if found["learned"] is None else f"{found['learned']:.0%}",
                    f"{found['cpu_seconds']:.0f}",
                )
            )
        if rows:
            yield Table(f"{one['task']} ({one['env']})", head, rows, " ".join(_about(content["study"], one)))


def _about(study: str, one: Mapping[str, Any]) -> Iterator[str]:
    """Yield the sentences below the heading of a task."""
    yield f"{one['steps']:,} steps, {one['evaluation']['episodes']} episodes every {one['evaluation']['every']:,}."
    methods, facts = one["methods"], one["facts"]
    if any(found["at_edge_of_rates"] for found in methods.values()):
        yield "*: the smallest or the largest rate that was tried."
    if facts is not None:
        yield f"Choices per action: {facts['choices_per_action']:.2f} of {facts['tokens_per_action']:.1f} tokens."
        yield f"Random {facts['random']:.3f}, oracle {facts['oracle']:.3f}."
    for name, found in methods.items():
        if found["further"]:
            yield f"{name} with {found['further']}, after too few seeds had learned."
    yield f"Id: {identifier(study, one['task'])}."


def _unseen(content: Mapping[str, Any]) -> Iterator[Table]:
    """Yield success on unseen tasks of the base and of the methods, and as published."""
    if scores := content.get("unseen"):
        tasks = next(iter(scores.values()))
        rows = [(env_id, *(_interval(one[env_id]) for one in scores.values())) for env_id in tasks]
        trained = " and ".join(f"{name} {value:.2f}" for name, value in content["trained_on"].items())
        about = f"In the last row on Entertainment. Success on Food Preparation itself: {trained}."
        yield Table("Success on unseen tasks", ("", *scores), rows, about)
    if published := content.get("published"):
        rows = [
            (env_id, *(f"{one[env_id][0]:.3f}, {100 * one[env_id][1]:.0f} %" for one in published.values()))
            for env_id in next(iter(published.values()))
        ]
        yield Table("Published", ("", *published), rows, f"{content['published_label']}.")


_CODED = {"reward": "reward", "share": "share that runs", "area": "AUC of what runs"}


def _coded(content: Mapping[str, Any]) -> Iterator[Table]:
    """Yield a table for each table of data on which code was written."""
    head = ("", "seeds", *_CODED.values(), "characters", "best, as paid", "best, fresh halves")
    for name, one in content.get("tables", {}).items():
        rows = []
        for method, found in one["methods"].items():
            best = (", ".join(f"{value:.4f}" for value in found["best"][of]) or "none" for of in ("paid", "fresh"))
            ends = (_interval(found["end"][measure]) for measure in _CODED)
            rows.append((method, str(len(found["seeds"])), *ends, f"{found['length']:.0f}", *best))
        about = f"{one['preprocessing']} preprocessing. Id: {identifier(content['study'], name)}."
        if cited := ", ".join(f"{method} {value:.4f}" for method, value in one["published"].items()):
            about += f" Published on the same arrays, each by its own protocol: {cited}."
        yield Table(name, head, rows, about)


def _predictions(content: Mapping[str, Any]) -> Iterator[Table]:
    """Yield how many checks of each prediction of `credit-truth` hold, and those that do not."""
    found = content.get("predictions", ())
    rows = [
        (str(number), one["name"], f"{one['held']:,} of {one['checked']:,}", *(
            "" if one["largest_difference"] is None else f"{one['largest_difference']:.2g}",
        ))
        for number, one in enumerate(found, 1)
    ]  # fmt: skip
    failed = [
        f"{fault['case']}: predicted {_number(fault['predicted'])}, measured {_number(fault['measured'])}"
        for one in found
        for fault in one["failures"]
    ]
    if rows:
        about = f"Checks that do not hold: {'; '.join(failed)}." if failed else ""
        yield Table("Predictions", ("", "prediction", "checks that hold", "largest difference"), rows, about)


def _noise(content: Mapping[str, Any]) -> Iterator[Table]:
    """Yield the tables of `critic-noise`."""
    from benchmarks.studies.critic_noise import noise_table

    for name, one in content.get("trainings", {}).items():
        yield Table(f"Training of {name}", *noise_table(one))


def _credited(content: Mapping[str, Any]) -> Iterator[Table]:
    """Yield the table of `credit`."""
    if content["study"] == "credit":
        rows = [
            (one["env"], name, f"{one['returns_after_training'][name]:.3f}", f"{share:.3f}")
            for one in content["tasks"].values()
            for name, share in one["differs_within_actions"].items()
        ]
        head = ("task", "critic and rule of", "its return", "share of the variance of advantages inside actions")
        yield Table("Credit inside actions", head, rows)


def _number(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.4g}"


def _interval(one: Mapping[str, float | None]) -> str:
    known = [f"{value:.3f}" for value in (one["value"], one["low"], one["high"]) if value is not None]
    return "" if one["value"] is None else known[0] if len(known) < 3 else f"{known[0]} [{known[1]}, {known[2]}]"
