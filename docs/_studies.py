"""Results of the studies: the files that `python -m benchmarks study NAME` wrote."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from _tables import ROOT, bullets, code, machine, percent, result, table
from _truth import predictions

from benchmarks.studies.critic_noise import noise_table
from benchmarks.studies.engine.findings import effect_of, primary_table
from benchmarks.studies.engine.pictures import verdicts_figure
from benchmarks.studies.registry import ALL
from benchmarks.studies.reproduce import identifier

Content = Mapping[str, Any]


def study(name: str) -> str:
    """Show all that a study found."""
    content = result(f"studies/{name}")
    shown = {
        "credit": _credited,
        "credit-truth": predictions,
        "critic-noise": _noise,
        "datasci": _coded,
        "warm-start": _generalised,
    }
    pictures = sorted(path.name for path in (ROOT / "data/results/studies").glob("*.png"))
    parts = [f"![{name}](assets/studies/{one})" for one in pictures if one.split(".")[0].split("_")[0] == name]
    parts.append(shown.get(name, _compared)(content))
    if content.get("missing"):
        parts.append(f"Not run yet: {'; '.join(one.rstrip('.') for one in content['missing'])}.")
    made = " and on ".join(map(machine, content["measured_with"]))
    machines = f"; runs on {made}" if made else ""
    parts.append(f"Made by {code(content['command'])}{machines}.")
    return "\n\n".join(parts)


def _interval(one: Mapping[str, float | None]) -> str:
    if one["value"] is None:
        return ""
    if one["low"] is None:
        return f"{one['value']:.3f}"
    return f"{one['value']:.3f} [{one['low']:.3f}, {one['high']:.3f}]"


# ---------------------------------------------------------------------- learning curves


def _compared(content: Content) -> str:
    parts = [_primary(content), *(_methods(content["study"], one) for one in content["comparisons"] if one["methods"])]
    if content.get("beside_runs"):
        parts.append(f"Measured beside the curves. {_reproduced(content['study'], 'beside')}")
    return "\n\n".join([part for part in parts if part] + [bullets(content["remarks"])])


def _primary(content: Content) -> str:
    """Table of the planned comparisons of a study."""
    return table(*primary_table(content["primary"]))


def _choices(one: Content) -> str:
    return "" if one["choices_per_action"] is None else f"{one['choices_per_action']:.2f}"


def _methods(study: str, one: Content) -> str:
    rows = []
    for name, found in one["methods"].items():
        reached = sorted(step for step in found["steps_to_optimum"] or () if step is not None)
        of, n_never = f"{len(reached)} of {len(found['seeds'])}", len(found["seeds"]) - len(reached)
        median = np.median([*reached, *[np.inf] * n_never]) if reached else np.inf
        rows.append(
            (
                name,
                f"{found['learning_rate']:g}{'*' if found['at_edge_of_rates'] else ''}",
                str(len(found["seeds"])),
                _interval(found["area"]),
                _interval(found["final"]),
                percent(found["final_success"]),
                f"{of}, median {median:,.0f}" if np.isfinite(median) else of,
                "" if found["learned"] is None else f"{found['learned']:.0%}",
                f"{found['cpu_seconds']:.0f}",
            )
        )
    head = ("", "rate", "seeds", "area", "last return", "last success", "reached 95 % of optimal", "learned", "s a run")
    facts, evaluation = one["facts"], one["evaluation"]
    about = f"{one['steps']:,} steps, {evaluation['episodes']} episodes every {evaluation['every']:,}."
    if any(found["at_edge_of_rates"] for found in one["methods"].values()):
        about += " *: the smallest or the largest rate that was tried."
    if facts is not None:
        about += (
            f" Choices per action: {facts['choices_per_action']:.2f} of {facts['tokens_per_action']:.1f} tokens."
            f" Random {facts['random']:.3f}, oracle {facts['oracle']:.3f}."
        )
    for name, found in one["methods"].items():
        if found["further"]:
            about += f" {name} with {found['further']}, after too few seeds had learned."
    return f"**{one['task']}** ({code(one['env'])}). {about} {_reproduced(study, one['task'])}\n\n{table(head, rows)}"


def _reproduced(*parts: str) -> str:
    return f"Again: {code(f'python -m benchmarks reproduce {identifier(*parts)}')}."


# ---------------------------------------------------------------------- the other studies


def _generalised(content: Content) -> str:
    """Success on the unseen tasks, of the base, of the methods, and as published."""
    parts = [_compared(content)]
    if unseen := content["unseen"]:
        tasks = list(next(iter(unseen.values())))
        rows = [(code(env_id), *(_interval(scores[env_id]) for scores in unseen.values())) for env_id in tasks]
        trained = " and ".join(f"{name} {value:.2f}" for name, value in content["trained_on"].items())
        parts.append(f"Success on unseen tasks and, in the last row, on Entertainment:\n\n{table(('', *unseen), rows)}")
        parts.append(f"Success on Food Preparation itself: {trained}.")
    scores = content["published"]
    rows = [
        (code(env_id), *(f"{one[env_id][0]:.3f}, {100 * one[env_id][1]:.0f} %" for one in scores.values()))
        for env_id in next(iter(scores.values()))
    ]
    parts.append(f"{content['published_label']}:\n\n{table(('', *scores), rows)}")
    return "\n\n".join(parts)


def _credited(content: Content) -> str:
    rows = [
        (code(one["env"]), name, f"{one['returns_after_training'][name]:.3f}", f"{share:.3f}")
        for one in content["tasks"].values()
        for name, share in one["differs_within_actions"].items()
    ]
    head = ("task", "critic and rule of", "its return", "share of the variance of advantages inside actions")
    return table(head, rows)


def _noise(content: Content) -> str:
    tables = (f"**Training of {name}**\n\n{table(*noise_table(one))}" for name, one in content["trainings"].items())
    return "\n\n".join(tables)


_MEASURED = {"reward": "reward", "share": "share that runs", "area": "AUC of what runs"}


def _coded(content: Content) -> str:
    tuning = content["tuning"]
    tuned = ", ".join(f"{method} {rate:g}" for method, rate in (content["rates"] or {}).items())
    parts = [
        _primary(content),
        f"Every run makes {content['attempts']:,} attempts. Learning rates: {tuned or 'not tuned yet'} (of "
        f"{', '.join(f'{rate:g}' for rate in tuning['rates'])} on {tuning['table']}, {tuning['attempts']:,} attempts).",
    ]
    for name, one in content["tables"].items():
        rows = []
        for method, found in one["methods"].items():
            scores = (", ".join(f"{value:.4f}" for value in found["best"][of]) or "none" for of in ("paid", "fresh"))
            ends = (_interval(found["end"][measure]) for measure in _MEASURED)
            rows.append((method, str(len(found["seeds"])), *ends, f"{found['length']:.0f}", *scores))
        head = ("", "seeds", *_MEASURED.values(), "characters", "best, as paid", "best, fresh halves")
        again = _reproduced(content["study"], name)
        parts.append(f"**{name}** ({one['preprocessing']} preprocessing). {again}\n\n{table(head, rows)}")
        if cited := ", ".join(f"{method} {value:.4f}" for method, value in one["published"].items()):
            parts.append(f"Published on the same arrays, each by its own protocol: {cited}.")
    return "\n\n".join([*parts, f"{content['statistics'].capitalize()}.", bullets(content["remarks"])])


# ---------------------------------------------------------------------- claims of the paper

_CLAIMS: Mapping[str, str] = {
    "POAD learns faster than NTPO": "",
    "POAD learns faster than TWOSOME": "",
    "NTPO gets worse as gamma_token falls": "",
    "gamma 1 is worse than 0.95": "",
    "POAD writes better code than NTPO": "",
    "POAD generalises better to unseen tasks": "",
    "credit falls on key tokens": "",
    "language ability is unchanged": "cannot be tested at this size: the pocket model has little to lose",
}
"""Claims by their names in the studies, and where no study counts them the reason."""


def all_comparisons() -> list[Content]:
    """Return the planned comparisons of all studies in the order of the protocol."""
    names = [one.name for one in ALL if (ROOT / f"data/results/studies/{one.name}.json").exists()]
    return [{**row, "study": name} for name in names for row in result(f"studies/{name}").get("primary", ())]


def claims_state() -> str:
    """Show the picture of the verdicts, and how many comparisons have one."""
    rows = all_comparisons()
    counts = Counter(row["verdict"] for row in rows)
    left = counts.pop("not run yet", 0)
    told = ", ".join(f"{verdict} {n}" for verdict, n in counts.items())
    state = f"{len(rows)} comparisons are planned, {len(rows) - left} have runs{f': {told}' if told else ''}."
    picture = "![Verdicts of the planned comparisons](assets/verdicts.png)\n\n" if len(rows) > left else ""
    return f"{picture}{state}"


def files() -> dict[str, bytes]:
    """Return the picture of the verdicts by its place in the site; none before the first runs."""
    rows = [row for row in all_comparisons() if row["probability"] is not None]
    if not rows:
        return {}
    buffer = io.BytesIO()
    verdicts_figure(rows).savefig(buffer, format="png", dpi=150)
    return {"assets/verdicts.png": buffer.getvalue()}


def claims() -> str:
    """Table of the paper's claims: each planned comparison with its effect and verdict."""
    rows = []
    for claim, reason in _CLAIMS.items():
        own = [row for row in all_comparisons() if row["claim"] == claim]
        for number, row in enumerate(own):
            effect = f"{effect_of(row)}, p {row['corrected_p']:.2g}" if row["effect"] else ""
            where = f"{row['study']}: {row['task']}"
            rows.append(("" if number else claim, where, _choices(row), row["prediction"], effect, row["verdict"]))
        if not own:
            rows.append((claim, "", "", "", "", reason or "not run yet"))
    head = ("claim of the paper", "tested by", "choices per action", "predicted", "effect, corrected p", "verdict here")
    return table(head, rows)


def claims_summary() -> str:
    """Table of the paper's claims, a row each: how many comparisons came out how."""
    rows = []
    for claim, reason in _CLAIMS.items():
        counts = Counter(row["verdict"] for row in all_comparisons() if row["claim"] == claim)
        total, left = counts.total(), counts.pop("not run yet", 0)
        known = ", ".join(f"{n} {verdict}" for verdict, n in counts.items())
        told = f"{known} of {total}" if known else f"not run yet ({total} planned)" if left else ""
        rows.append((claim, told or reason or "not run yet"))
    return table(("claim of the paper", "verdict here, in planned comparisons"), rows)
