"""The pages about code: sections of an id where any text is an action, tables of data, baselines and scores."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from _data import manifest_of
from _families import Family, rows_of, started
from _tables import bullets, code, percent, records, result, table

from benchmarks.references.datasci_baselines import score_rows
from benchmarks.references.published import read
from lang_envs import EnvRow
from lang_envs.datasets import DATASETS
from lang_envs.datasets.generated import NAME
from lang_envs.envs.datascicoding.oracle import ORACLE_CODE

# ---------------------------------------------------------------------- the page of an id


def coding_facts(row: EnvRow, env: Any) -> list[tuple[str, str]]:
    """Return the rows of "At a glance" about action list, table, budget and randomness."""
    n, width = env.dataset.x.shape
    is_generated, wanted = row.kwargs["dataset"] == NAME, manifest_of(row)
    facts = [
        ("listed actions", "none: any text is an action"),
        (
            "table shown here" if row.trial or is_generated else "table",
            f"{n:,} rows, {width} features, {env.dataset.classes} classes; digest {code(env.dataset.digest)}",
        ),
        ("its source" if row.trial else "source of the table", env.dataset.source),
    ]
    if wanted is not None:  # this page shows a stand-in
        n, width = wanted.arrays
        known = [
            f"{code(name)} {code(recipe.digest) if recipe.digest else 'unverified'}"
            for name, recipe in wanted.recipes.items()
        ]
        facts += [
            ("the real table", f"{n:,} rows, {width} features, {len(wanted.classes)} classes: {wanted.origin}"),
            ("its digests, by `preprocessing`", ", ".join(known)),
        ]
    chance = "the table, from the seed of the reset" if is_generated else "nothing; the seed changes nothing"
    return [*facts, ("budget", f"{env.max_attempts} attempts"), ("random", chance)]


def coding_sections(row: EnvRow, env: Any, family: Family) -> dict[str, str]:
    """Write the sections of the page of an id without a list of actions."""
    return {
        "Actions": (
            f'Any text is an action: `info["admissible_actions"]` is `None`. The action space holds '
            f"{env.action_space.max_length - 1:,} tokens, which with its default tokenizer are bytes. What a text has "
            f"to be, and how code is found in it: [{family.title}]({family.page}#action)."
        ),
        "Oracle": _oracle(row),
        "Scores": _own_scores(row),
        "Checked against": _checked(row, family),
    }


def _checked(row: EnvRow, family: Family) -> str:
    wanted, where = manifest_of(row), f"[{family.title}]({family.page}#verification)"
    published = f"Where the table is published, so are splits and score; see {where}."
    rows_of_tests = " with made-up rows" if wanted is not None else " with an example table" if row.trial else ""
    if wanted is not None and "published" in wanted.recipes:
        published = f'Arrays and splits of `preprocessing="published"` are those of the paper; see {where}.'
    elif row.trial:
        published = f"The table is not one that was published on; see {where}."
    lines = [
        f"No recordings: the original runs code in its own process, and its texts are not ours. {published}",
        f"A test submits the oracle's code through the interface{rows_of_tests}.",
        f"{_contract_tests(row)}{rows_of_tests}.",
    ]
    if wanted is not None:
        known = [f"{code(name)}: {recipe.verified_by}" for name, recipe in wanted.recipes.items()]
        lines.append(f"How the arrays are known: {'; '.join(known)}. See [Data](../guide/data.md#digests).")
    return bullets(lines)


def _contract_tests(row: EnvRow) -> str:
    points = "Every point of the [contract](contract.md) that applies to an open action space"
    first = rows_of("DataSciCoding")[0].id
    if row.kwargs["dataset"] == NAME:
        return f"{points} is a test that runs on this id, but for three of four kinds of vectors"
    if row.id == first or row.kwargs["dataset"] is None:
        return f"{points} is a test that runs on this id"
    others = f"the others on [`{first}`]({first}.md), the same class with another table"
    return f"{points} is a test: those that see the table run on this id, {others}"


def _oracle(row: EnvRow) -> str:
    env, *_ = started(row.id)
    text = env.oracle_action()
    _, reward, _, _, info = env.step_text(text)
    splits = ", ".join(f"{area:.4f}" for area in info["auc_splits"])
    what = f"strong code for {'the real' if env.dataset.synthetic else 'this'} table"
    if env.dataset.name not in ORACLE_CODE:
        what = "what is strong on many tables and was not searched for on this one"
    paid = "" if not row.trial else " on the made-up rows" if env.dataset.synthetic else " on the example table"
    if env.dataset.name == NAME:
        what, paid = "one program for all tables", " on the table of `reset(seed=0)`"
    return (
        f"`lang_envs.oracle(env)` submits {what}, in any situation:\n\n"
        f"```py\n{text.rstrip()}\n```\n\n"
        f"Reward{paid} {reward:.4f}; ROC AUC of the splits {splits}. No claim is made that nothing scores better."
    )


# ---------------------------------------------------------------------- scores

_SCORES: Mapping[str, str | Callable[[Any], str]] = {
    "agent": lambda one: one["name"].replace("_", " ") + (", sampled" if one["sampled"] else ", exact"),
    "episodes": lambda one: str(one["n_episodes"]) if one["sampled"] else "1",
    "success": lambda one: percent(one["success_rate"]),
    "95 %": lambda one: " to ".join(map(percent, one["success_interval"])) if one["sampled"] else "",
    "return": "{mean_return:.4f}",
    "95 % of the return": lambda one: "{:.3f} to {:.3f}".format(*one["return_interval"]) if one["sampled"] else "",
    "attempts": "{mean_actions:.2f}",
    "score of code that ran": "{mean_score:.4f}",
}


@cache
def _scores() -> dict[str, Any]:
    return {**result("datasci_scores")["scores"], **result("datasci_generated")["scores"]}


def _own_scores(row: EnvRow) -> str:
    if row.trial:
        why = "needs a table of yours" if manifest_of(row) is None else "needs the data"
        return f"Not measured: {why}. Scores on other rows would say nothing of it."
    command = "datasci-generated" if row.kwargs["dataset"] == NAME else "datasci-scores"
    return (
        f"{records(_scores()[row.id], _SCORES)}\n\nThe same code has the same score every time: on a fixed table one "
        "episode of the oracle is exact. Sampled numbers have intervals (Wilson's for the success, Student's t for the "
        f"return). Made by `python -m benchmarks measure {command}`."
    )


def coding_scores() -> str:
    """Table of the scores of every id of the family."""
    found = [{"id": env_id, "name": name, **one} for env_id, both in _scores().items() for name, one in both.items()]
    return records(found, {"id": "[`{id}`]({id}.md)", **_SCORES})


# ---------------------------------------------------------------------- tables and baselines


def baselines() -> str:
    """Table of the scores of plain scikit-learn on every table."""

    def breakable(name: str) -> str:  # behind a plus sign and before arguments
        return f"<code>{'<wbr>'.join(re.split(r'(?<=[+])|(?=[(])', name))}</code>"

    measured = result("datasci_baselines")
    found: dict[str, Any] = measured["datasets"]
    versions = ", ".join(f"{name} {version}" for name, version in measured["versions"].items())
    return f"{table(('ROC AUC', *map(code, found)), score_rows(found, breakable))}\n\nMeasured with {versions}."


def published() -> str:
    """Table of published scores, the scores here that compare with them, and the protocol of each figure."""
    content = read("datasci")
    comparable = []
    for name in content["tables"]:
        row = DATASETS[name]
        recipe = row.manifest.recipes.get("published") if row.manifest is not None else None
        if recipe is not None:
            comparable.append(f'scores with `preprocessing="published"`{"" if recipe.digest else ", unverified"}')
        elif row.manifest is not None:
            comparable.append("nothing: the published rows cannot be reproduced")
        else:
            comparable.append("every score of the id" if row.published else "nothing")
    rows = [(row["method"], *(f"{score:.4f}" for score in row["scores"])) for row in content["methods"]]
    rows.append(("**scores here that may stand beside them**", *comparable))
    protocols = bullets(f"**{row['method']}** ({row['source']}): {row['protocol']}" for row in content["methods"])
    return f"{table(('ROC AUC', *map(code, content['tables'])), rows)}\n\n{protocols}"
