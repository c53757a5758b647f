"""Results of the studies: the files that `python -m benchmarks study NAME` wrote."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Mapping
from typing import Any

from _tables import ROOT, bullets, code, machine, result, table

from benchmarks.studies.credit_truth.problems import Additive
from benchmarks.studies.engine.findings import effect_of
from benchmarks.studies.engine.html_report import sentences
from benchmarks.studies.engine.pictures import verdicts_figure
from benchmarks.studies.engine.pieces import identifier
from benchmarks.studies.registry import ALL
from lang_envs.report import Table

Content = Mapping[str, Any]


def study(name: str) -> str:
    """Show all that a study found."""
    content = result(f"studies/{name}")
    pictures = sorted(path.name for path in (ROOT / "data/results/studies").glob("*.png"))
    parts = [f"![{name}](assets/studies/{one})" for one in pictures if one.split(".")[0].split("_")[0] == name]
    parts += [f"**{one.title}.** {one.remark}\n\n{table(one.head, one.rows)}" for one in _tables(name)]
    parts.append(bullets(sentences(content)))
    if content.get("missing"):
        parts.append(f"Not run yet: {'; '.join(one.rstrip('.') for one in content['missing'])}.")
    return "\n\n".join([*parts, study_made(name)])


def _tables(name: str) -> list[Table]:
    return list(next(one for one in ALL if one.name == name).tables(result(f"studies/{name}")))


def study_table(name_and_title: str) -> str:
    """Show one table of a study."""
    name, _, title = name_and_title.partition(" ")
    one = next(one for one in _tables(name) if one.title == title)
    return f"{one.remark}\n\n{table(one.head, one.rows)}"


def study_made(name: str) -> str:
    """Show how a study was made."""
    content = result(f"studies/{name}")
    made = " and on ".join(map(machine, content["measured_with"]))
    shown = f" Id: {code(identifier(name, 'runs'))}." if content.get("runs") else ""
    return f"Made by {code(content['command'])}{f'; runs on {made}' if made else ''}.{shown}"


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
"""Claims of the paper by their names in the studies, and where no study counts them the reason."""
_OWN = ("POAD learns faster than NTPO on MultiKey", "POAD learns faster than TWOSOME on MultiKey")
_OWN += ("NTPO prefers the wrong length",)
"""Claims of ours, on a task that the paper does not have."""


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
    state += " The picture has those that test a claim of the paper, or the same claim on MultiKey."
    picture = "![Verdicts on the claims](assets/verdicts.png)\n\n" if len(rows) > left else ""
    return f"{picture}{state}"


def files() -> dict[str, bytes]:
    """Return the picture of the verdicts on claims by its place in the site; none before the first runs."""
    rows = [row for row in all_comparisons() if row["claim"] and row["probability"] is not None]
    if not rows:
        return {}
    buffer = io.BytesIO()
    verdicts_figure(rows).savefig(buffer, format="png", dpi=150)
    return {"assets/verdicts.png": buffer.getvalue()}


def claims() -> str:
    """Table of the claims, of the paper and of ours: each planned comparison with its effect and verdict."""
    rows = []
    for claim, reason in {**_CLAIMS, **dict.fromkeys(_OWN, "")}.items():
        own = [row for row in all_comparisons() if row["claim"] == claim]
        for number, row in enumerate(own):
            effect = f"{effect_of(row)}, p {row['corrected_p']:.2g}" if row["effect"] else ""
            where = f"{row['study']}: {row['task']}"
            choices = "" if row["choices_per_action"] is None else f"{row['choices_per_action']:.2f}"
            title = "" if number else f"ours: {claim}" if claim in _OWN else claim
            rows.append((title, where, choices, row["prediction"], effect, row["verdict"]))
        if not own:
            rows.append((claim, "", "", "", "", reason or "not run yet"))
    head = (
        "claim, of the paper or ours",
        "tested by",
        "choices per action",
        "predicted",
        "effect, p corrected",
        "verdict",
    )
    return table(head, rows)


def claims_summary() -> str:
    """Table of the paper's claims: a row for each planned comparison that has runs, one for a claim without any."""
    rows = []
    for claim, reason in _CLAIMS.items():
        own = [row for row in all_comparisons() if row["claim"] == claim]
        made = [row for row in own if row["effect"]]
        rows += [(claim, row["task"], effect_of(row), f"{row['corrected_p']:.2g}", row["verdict"]) for row in made] or [
            (claim, "", "", "", reason or f"not run yet ({len(own)} planned)")
        ]
    return table(("claim of the paper", "task", "difference of areas, 95 % interval", "corrected p", "verdict"), rows)


# ---------------------------------------------------------------------- the protocol


def protocol_predictions() -> str:
    """Show the noise of each estimator divided by that of action-level GAE on tasks of the protocol."""
    rows = []
    for k, d in ((1, 0), (2, 4), (4, 4)):
        form = Additive(k, d, 4, 2, 0.5, 0.95 * 0.95)
        action = form.nsr("action", 1.0)
        kinds = [("bad", one) for one in (1.0, 0.95, 0.8, 0.0)] + [("bilevel", 0.95)]
        ratios = [form.nsr(kind, one) for kind, one in kinds]
        shown = ["-" if not action else f"{one / action:.3g}" for one in ratios if one is not None]
        rows.append((f"k = {k}, d = {d}", f"{action:.3g}", *shown))
    head = ("MultiKey", "action-level GAE", "BAD 1", "BAD 0.95", "BAD 0.8", "BAD 0", "bi-level 0.95")
    return table(head, rows)
