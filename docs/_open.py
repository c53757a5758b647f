"""The sections of an id's page that differ where any text is an action."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from _data import manifest_of
from _families import Family, make
from _tables import code, percent, table

from benchmarks.references.datasci_baselines import BANNED_MODELS
from benchmarks.references.published import read
from benchmarks.runner.machine import RESULTS
from lang_envs import EnvRow, LangEnv
from lang_envs.datasets import DATASETS, DatasetRow, load
from lang_envs.datasets.generated import NAME
from lang_envs.envs.datascicoding.oracle import ORACLE_CODE

__all__ = [
    "baseline_table",
    "dataset_table",
    "generated_table_scores",
    "latency_table",
    "open_sections",
    "published_table",
    "score_table",
]


def open_sections(row: EnvRow, env: LangEnv[Any], family: Family) -> dict[str, str]:
    """Sections of the page of an id without a list of actions.

    Args:
        row: The id.
        env: An environment of it, reset.
        family: Its family.
    """
    return {
        "At a glance": _glance(row, env, family),
        "Actions": (
            f'Any text is an action: `info["admissible_actions"]` is `None`. The action space holds '
            f"{env.action_space.max_length - 1:,} tokens, which with its default tokenizer are bytes. What a text has "
            f"to be, and how code is found in it: [{family.title}]({family.page}#action)."
        ),
        "Start and end": "\n".join(
            [
                f"* Start: {family.start[0].lower()}{family.start[1:]}.",
                f'* `terminated`: {family.terminated}; `info["success"]` is True.',
                f"* `truncated`: {env.max_attempts} {family.unit} (`{family.limit}`) without it; {family.late}.",
            ]
        ),
        "Oracle": _oracle(row),
        "Scores": _own_scores(row),
        "Checked against": _checked(row, family),
    }


def _glance(row: EnvRow, env: Any, family: Family) -> str:
    n, width = env.dataset.x.shape
    is_generated = row.kwargs["dataset"] == NAME
    chance = "the table, from the seed of the reset" if is_generated else "nothing; the seed changes nothing"
    rows = [
        ("observation space", code(str(env.observation_space))),
        (
            "action space",
            f"{code(str(env.action_space))}, shape {code(str(env.action_space.shape))}, "
            f"{env.action_space.vocab_size} token ids",
        ),
        ("listed actions", "none: any text is an action"),
        (
            "table shown here" if row.trial or is_generated else "table",
            f"{n:,} rows, {width} features, {env.dataset.classes} classes; digest {code(env.dataset.digest)}",
        ),
        ("its source" if row.trial else "source of the table", f"{env.dataset.source}"),
        *_real_table(row),
        ("budget", f"{env.max_attempts} {family.unit}"),
        ("random", chance),
        ("render modes", ", ".join(map(code, env.metadata["render_modes"]))),
        ("entry point", code(row.entry_point)),
    ]
    return table(("", code(row.id)), rows)


def _real_table(row: EnvRow) -> list[tuple[str, str]]:
    """What is known of a table that has to be fetched, for whom this page shows a stand-in."""
    wanted = manifest_of(row)
    if wanted is None:
        return []
    n, width = wanted.arrays
    known = {
        name: f"{code(name)} {code(recipe.digest) if recipe.digest else 'unverified'}"
        for name, recipe in wanted.recipes.items()
    }
    return [
        ("the real table", f"{n:,} rows, {width} features, {len(wanted.classes)} classes: {wanted.origin}"),
        ("its digests, by `preprocessing`", ", ".join(known.values())),
    ]


def _checked(row: EnvRow, family: Family) -> str:
    wanted, where = manifest_of(row), f"[{family.title}]({family.page}#what-was-checked)"
    published = f"Where the table is published, so are splits and score; see {where}."
    rows_of_tests = " with made-up rows" if wanted is not None else " with an example table" if row.trial else ""
    if wanted is not None and "published" in wanted.recipes:
        published = f'Arrays and splits of `preprocessing="published"` are those of the paper; see {where}.'
    elif row.trial:
        published = f"The table is not one that was published on; see {where}."
    lines = [
        f"* No recordings: the original runs code in its own process, and its texts are not ours. {published}",
        f"* A test submits the oracle's code through the interface{rows_of_tests}.",
        "* Every point of the [contract](contract.md) that applies to an open action space is a test that runs on this "
        f"id{rows_of_tests}.",
    ]
    if wanted is not None:
        known = [f"{code(name)}: {recipe.verified_by}" for name, recipe in wanted.recipes.items()]
        lines.append(f"* How the arrays are known: {'; '.join(known)}. See [Data](../guide/data.md#digests).")
    return "\n".join(lines)


def _oracle(row: EnvRow) -> str:
    env = make(row.id).unwrapped
    env.reset(seed=0)
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


@lru_cache(maxsize=1)
def _scores() -> dict[str, Any]:
    paths = [RESULTS / f"{name}.json" for name in ("datasci_scores", "datasci_generated")]
    files = [json.loads(path.read_text(encoding="utf-8"))["scores"] for path in paths if path.exists()]
    return {env_id: both for file in files for env_id, both in file.items()}


_UNMEASURED = "Not measured yet: `python -m benchmarks measure datasci-scores` makes the numbers."
_HEAD = ("agent", "episodes", "success", "95 %", "return", "95 %", "attempts", "score of code that ran")


def _own_scores(row: EnvRow) -> str:
    found = _scores().get(row.id)
    if found is None and row.trial:
        wanted = manifest_of(row)
        why = "needs a table of yours" if wanted is None else "needs the data"
        return f"Not measured: {why}. Scores on other rows would say nothing of it."
    if found is None:
        return _UNMEASURED
    rows = [_score_row(name, one) for name, one in found.items()]
    if row.kwargs["dataset"] == NAME:
        return (
            f"{table(_HEAD, rows)}\n\nBoth are **sampled**, an episode for each of the tables below (intervals: "
            f"Wilson's for the success, Student's t for the return).\n\n{generated_table_scores()}"
        )
    return (
        f"{table(_HEAD, rows)}\n\nThe oracle's code gives the same score every time: one episode is exact. The random "
        "coder is **sampled**, so its numbers have intervals (Wilson's for the success, Student's t for the return). "
        "Made by `python -m benchmarks measure datasci-scores`."
    )


def _score_row(name: str, one: Mapping[str, Any]) -> tuple[str, ...]:
    sampled = one["sampled"]
    return (
        {"oracle": "oracle", "random_coder": "random coder"}[name] + (", sampled" if sampled else ""),
        str(one["n_episodes"]) if sampled else "1",
        percent(one["success_rate"]),
        _interval(one["success_interval"], percent) if sampled else "exact",
        f"{one['mean_return']:.4f}",
        _interval(one["return_interval"], "{:.3f}".format) if sampled else "exact",
        f"{one['mean_actions']:.2f}",
        f"{one['mean_score']:.4f}",
    )


def generated_table_scores(_: str = "") -> str:
    """Mean AUC of reference programs on generated tables, with the ceiling of the true probabilities."""
    result = json.loads((RESULTS / "datasci_generated.json").read_text(encoding="utf-8"))
    rows = [
        (name, f"{one['mean']:.4f}", _interval(one["interval"], "{:.4f}".format), f"{one['std']:.4f}")
        for name, one in result["programs"].items()
    ]
    shown = table(("program", "mean AUC", "95 %", "deviation between tables"), rows)
    return (
        f"{shown}\n\nMeans over the {result['tables']} tables of `reset(seed=0)` and the seeds after it, five halves "
        "each. *True probabilities* are those that the classes were drawn from, given every value, the missing ones "
        "too: on average no program exceeds them, and none that sees half of a table can reach them. Made by "
        f"`{result['command']}`."
    )


def _interval(ends: Any, shown: Any) -> str:
    low, high = map(shown, ends)
    return f"{low} to {high}"


def score_table(_: str = "") -> str:
    """Scores of every id of the family."""
    if not _scores():
        return _UNMEASURED
    rows = [
        (f"[`{env_id}`]({env_id}.md)", *_score_row(name, one))
        for env_id, found in _scores().items()
        for name, one in found.items()
    ]
    return table(("id", *_HEAD), rows)


# ---------------------------------------------------------------------- tables and baselines


def dataset_table(_: str = "") -> str:
    """Every table that can be loaded."""
    rows = []
    for name, row in DATASETS.items():
        n, width = row.shape
        sizes = (str(n), str(width), str(row.classes), _counts(name, row))
        rows.append((code(name), *sizes, _made(row), row.known_labels, row.source))
    head = ("`dataset`", "rows", "features", "classes", "rows of each class", "splits", "labels are", "source")
    return table(head, rows)


def _counts(name: str, row: DatasetRow) -> str:
    """Rows of each class; of a table that has to be fetched, nobody knows before."""
    if row.manifest is not None:
        return ""
    y = load(name).y
    return ", ".join(str(int((y == label).sum())) for label in range(row.classes))


def _made(row: DatasetRow) -> str:
    if row.manifest is not None and "published" in row.manifest.recipes:
        return 'published with `preprocessing="published"`, else ours'
    return "published" if row.published else "ours"


def baseline_table(_: str = "") -> str:
    """What plain scikit-learn reaches on every table."""
    path = RESULTS / "datasci_baselines.json"
    if not path.exists():
        return "Not measured yet: `python -m benchmarks measure datasci-baselines` makes the numbers."
    result = json.loads(path.read_text(encoding="utf-8"))
    found: dict[str, Any] = result["datasets"]
    names = list(next(iter(found.values()))["models"])
    rows: list[tuple[str, ...]] = [("`preprocessing`", *(code(one["preprocessing"]) for one in found.values()))]
    rows += [(_model(name), *(_cell(one["models"][name]) for one in found.values())) for name in names]
    rows += [
        ("**best above**, by these halves", *(_model(one["winner"]["name"]) for one in found.values())),
        ("the same on fresh halves 5 .. 24", *(_cell(one["winner"]["fresh"]) for one in found.values())),
        ("**oracle**", *(_cell(one["oracle"]) for one in found.values())),
        (
            "the oracle on halves 5 .. 24, which it was chosen on",
            *(_cell(one["oracle"]["fresh"]) for one in found.values()),
        ),
    ]
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    return f"{table(('ROC AUC', *map(code, found)), rows)}\n\nMeasured with {versions}."


def _cell(summary: Mapping[str, Any]) -> str:
    return f"{summary['mean']:.4f}&#8239;±&#8239;{summary['std']:.4f}" if "mean" in summary else "fails"


def _model(name: str) -> str:
    """A name that may be broken behind a plus sign and before its arguments, with a mark if it is banned."""
    shown = f"<code>{'<wbr>'.join(re.split(r'(?<=[+])|(?=[(])', name))}</code>"
    return f"{shown} (banned)" if name in BANNED_MODELS else shown


def published_table(_: str = "") -> str:
    """What was published on the tables, what it may be compared with here, and the protocol of each figure."""
    content = read("datasci")
    rows = [(row["method"], *(f"{score:.4f}" for score in row["scores"])) for row in content["methods"]]
    rows.append(("**scores here that may stand beside them**", *map(_comparable, content["tables"])))
    protocols = [f"* **{row['method']}** ({row['source']}): {row['protocol']}" for row in content["methods"]]
    return "\n\n".join([table(("ROC AUC", *map(code, content["tables"])), rows), "\n".join(protocols)])


def _comparable(name: str) -> str:
    row = DATASETS[name]
    if row.manifest is None:
        return "every score of the id" if row.published else "nothing"
    recipe = row.manifest.recipes.get("published")
    if recipe is None:
        return "nothing: the published rows cannot be reproduced"
    known = "" if recipe.digest else ", unverified"
    return f'scores with `preprocessing="published"`{known}'


def latency_table(_: str = "") -> str:
    """What an evaluation costs, and what many of them leave behind."""
    path = RESULTS / "sandbox_latency.json"
    if not path.exists():
        return "Not measured yet."
    result = json.loads(path.read_text(encoding="utf-8"))
    ways = {"in process": "", "sandbox": "warm", "fresh interpreter": "as most harnesses do it"}
    rows = [(way, ways.get(way, ""), f"{value:.1f}") for way, value in result["median_ms"].items()]
    machine, endured = result["machine"], result["endurance"]
    grown = ", ".join(
        f"{name.removesuffix('_grown').replace('_', ' ')} {value:+.4g}"
        for name, value in endured.items()
        if name.endswith("_grown")
    )
    return (
        f"{table(('an evaluation of GaussianNB, 5 splits', '', 'median ms'), rows)}\n\n"
        f"On {machine['cores']} cores ({machine['cpu']}). {endured['evaluations']:,} evaluations in a row: "
        f"{endured['evaluations_per_second']:.1f} a second; grown by: {grown}."
    )
