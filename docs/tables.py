"""Write the tables of README.md and of the pages in `docs`: `python docs/tables.py`; `--check` lists stale pages only.

A table stands between `<!-- table: NAME ARGUMENTS -->` and `<!-- end -->`; NAME is a function of this file. That of
`records` has a template of the table in the lines of its comment. All figures are those of committed results and of
the code, so that the tables are the same on every machine.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections import Counter
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # `benchmarks` is a folder of the repository and no installed package

import poad_sb3.settings
from benchmarks.performance.multikey_learning import HEAD, learning_rows
from benchmarks.references.datasci_baselines import score_rows
from benchmarks.reports.tables import markdown_table as table
from benchmarks.studies.engine.pieces import identifier
from benchmarks.studies.engine.tables import effect_of
from benchmarks.studies.registry import ALL
from lang_bench.reports.comparisons import shown
from lang_bench.reports.leaderboard import entries
from lang_bench.runner.episodes import FAMILY_FIELDS
from lang_bench.runner.results import METRICS, SCORES
from lang_envs import ENV_ROWS, EnvRow, LangEnv
from lang_envs.datasets import BUNDLED, DATASETS, errors, load
from lang_envs.env_checker import CHECKS
from lang_envs.report.statistics import estimate, mean
from lang_envs.text import markdown_text
from poad_sb3.cli.zoo import AGENT
from poad_sb3.common.episode_lines import discount_of
from poad_sb3.presets import ALGORITHMS
from poad_sb3.zoo import SHIPPED, read_rows

# ---------------------------------------------------------------------- pages

_BLOCK = re.compile(
    r"(?P<head>^<!-- table: (?P<call>[^\n>]+?)(?: |\n(?P<template>.*?))-->\n).*?(?P<end>^<!-- end -->)",
    re.DOTALL | re.MULTILINE,
)


def written(page: str) -> str:
    """Return a page with its tables written again."""

    def block(match: re.Match[str]) -> str:
        name, *words = match["call"].split(" ")
        if match["template"]:
            words.append(match["template"])
        function = globals()[name]
        most = len(inspect.signature(function).parameters) - 1  # the last argument may have spaces
        text = function(*words[:most], *filter(None, [" ".join(words[most:])]))
        lines = "\n".join(line.rstrip() for line in text.strip().splitlines())
        return f"{match['head']}\n{lines}\n\n{match['end']}"

    return _BLOCK.sub(block, page)


def stale() -> dict[Path, str]:
    """Return the pages with outdated tables, each with the text that it should have."""
    paths = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
    texts = {path: path.read_text(encoding="utf-8") for path in paths}
    return {path: new for path, old in texts.items() if (new := written(old)) != old}


# ---------------------------------------------------------------------- results by templates


@cache
def result(name: str, folder: Path = ROOT / "data/results") -> Any:
    """Return the content of a JSON file by its path in a folder, without the ending."""
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))


def records(name: str, field: str, template: str) -> str:
    """Write a table of a file of `data/results` by a template.

    Args:
        name: The file.
        field: Its field with the records: a list, or a mapping, whose keys are the field `name` of its records (and
            `value` is a record that is no mapping).
        template: Lines of Markdown: the head of the table; the row, with the fields of a record in braces; and text
            below the table, with those of the file and `machine`.
    """
    content = result(name)
    rows = content[field]
    if isinstance(rows, Mapping):
        rows = [{"name": key, **(row if isinstance(row, Mapping) else {"value": row})} for key, row in rows.items()]
    head, cells, *below = template.strip().splitlines()
    heads, forms = ([cell.strip() for cell in line.strip()[1:-1].split("|")] for line in (head, cells))
    lines = [table(heads, [[form.format_map(row) for form in forms] for row in rows])]
    fields = {**content, "machine": machine(content.get("machine") or content)}
    return "\n".join([*lines, *(line.format_map(fields) for line in below)])


def machine(measured: Mapping[str, Any]) -> str:
    """Name the machine of a measurement and its packages; empty where they are not recorded."""
    if "cpu" not in measured:
        return ""
    versions = ", ".join(f"{package} {version}" for package, version in measured["versions"].items())
    return f"{measured['cpu']}, {measured['cores']} cores; Python {measured['python']}, {versions}"


def code(text: object) -> str:
    """Format as code."""
    return f"`{text}`"


# ---------------------------------------------------------------------- environments


def rows_of(family: str) -> list[EnvRow]:
    """Return the ids of a family."""
    return [row for row in ENV_ROWS if row.id.startswith(f"{family}-")]


def ids(family: str) -> str:
    """Table of the ids of a family: returns of the oracle (with its actions) and of random play (with its success)."""
    exact, discount = result("env_scores", SCORES)["scores"], f"{discount_of(family):g}"
    sampled = result("datasci_scores", SCORES)["scores"]
    rows = []
    for row in rows_of(family):
        env: Any = gym.make(row.id, disable_env_checker=True, **row.trial).unwrapped  # without a table to be fetched
        best = random = ""
        if row.id in exact:
            player, other = exact[row.id]["oracle"], exact[row.id]["random"]
            best = f"{player['returns'][discount]:.4f} ({player['actions']:.0f})"
            random = f"{other['returns'][discount]:.4f} ({other['success']:.2%})"
        elif row.id in sampled:
            player, other = sampled[row.id]["oracle"], sampled[row.id]["random_coder"]
            best, interval = f"{player['mean_return']:.4f} (1)", "[{:.2f}, {:.2f}]".format(*other["return_interval"])
            random = f"{other['mean_return']:.2f} {interval} ({other['success_rate']:.1%})"
        elif hasattr(env, "random_success"):
            best = f"{env.optimal_return:g} ({env.horizon})"
            random = f"{env.random_return:g} ({env.random_success:.2%})"
        rows.append((code(row.id), row.summary, best, random))
    versions = sorted({row.id.rpartition("-")[2] for row in rows_of(family)})
    history = f"Versions: {', '.join(map(code, versions))}; `v0` is the first."
    return table(("id", "task", "oracle's return (actions)", "random return (success)"), rows) + f"\n\n{history}"


def checks() -> str:
    """Table of the checks of `lang-envs check`."""
    return table(("check", "what it asks"), [(code(check.name), check.description) for check in CHECKS])


def episode_fields() -> str:
    """Table of the fields that some families add to an episode."""
    return table(("field", "meaning"), [(code(name), meaning) for name, meaning in FAMILY_FIELDS.items()])


def arguments(path: str) -> str:
    """Table of a class's arguments: names and defaults from its signature, meaning from its docstring."""
    module, _, name = path.rpartition(".")
    kind = getattr(import_module(module), name)
    section = re.search(r"^Args:\n(.*?)(?=^\S|\Z)", inspect.getdoc(kind) or "", re.DOTALL | re.MULTILINE)
    meanings = re.findall(r"^    (\w+): (.*?)(?=^    \w|\Z)", section[1] if section else "", re.DOTALL | re.MULTILINE)
    parameters = {**inspect.signature(LangEnv.__init__).parameters, **inspect.signature(kind.__init__).parameters}
    rows = []
    for argument, meaning in meanings:
        default = parameters[argument].default
        cell = "" if default is inspect.Parameter.empty else code(repr(default))
        rows.append((code(argument), cell, " ".join(meaning.split())))
    return table(("argument", "default", "meaning"), rows)


# ---------------------------------------------------------------------- data


def sources() -> str:
    """Table of the sources of data sets."""
    rows = []
    for name, row in DATASETS.items():
        size, source = f"{row.shape[0]:,}", row.source
        if (wanted := row.manifest) is not None:
            size += f" of {wanted.shape[0]:,}"
            source = f"[{wanted.service.label}, {wanted.id}]({wanted.page}){'; ' if wanted.note else ''}{wanted.note}"
        rows.append((code(name), source, size, str(row.shape[1]), str(row.classes), row.known_labels, row.licence))
    head = ("`dataset`", "source", "rows used", "features", "classes", "labels are", "licence, as far as known")
    return table(head, rows)


def digests() -> str:
    """Table of the digests of files and arrays, and how each is known."""
    rows = [(name, "arrays", load(name).digest, "computed by a test") for name in BUNDLED]
    for wanted in (row.manifest for row in DATASETS.values() if row.manifest is not None):
        how = "computed from the file" if len(wanted.sha256) == 64 else "from a record; the file was not at hand"
        rows.append((wanted.name, "file", wanted.sha256, how if wanted.sha256 else "not yet"))
        for key, recipe in wanted.recipes.items():
            rows.append((wanted.name, f'`preprocessing="{key}"`', recipe.digest, recipe.verified_by))
    cells = [(code(name), of, code(digest[:16]) if digest else "**unverified**", how) for name, of, digest, how in rows]
    return table(("`dataset`", "of", "digest, 16 digits", "how"), cells)


def exit_codes() -> str:
    """Table of exit code and meaning of every error of data, from the classes."""
    kinds = [getattr(errors, name) for name in errors.__all__ if isinstance(getattr(errors, name), type)]
    rows = sorted((kind.exit_code, kind.__name__, (kind.__doc__ or "").strip()) for kind in kinds)
    return table(("exit code", "error", "meaning"), [(str(number), code(name), doc) for number, name, doc in rows])


def baselines() -> str:
    """Table of the scores of plain scikit-learn on every table."""
    measured = result("datasci_baselines")
    versions = ", ".join(f"{name} {version}" for name, version in measured["versions"].items())
    rows = score_rows(measured["datasets"], code)
    return f"{table(('ROC AUC', *map(code, measured['datasets'])), rows)}\n\nMeasured with {versions}."


# ---------------------------------------------------------------------- methods and models


def settings(name: str) -> str:
    """Table of the fields of `PPOSettings`, `CreditSettings`, `SamplingSettings` or `ModelSettings`."""
    kind = getattr(poad_sb3.settings, name)
    kinds, helps = kind.kinds(), kind.help()
    rows = [
        (code(field), code(repr(default) if default == "" else default), kinds[field].allowed, helps[field])
        for field, default in kind.defaults().items()
    ]
    return table(("argument", "default", "values", "meaning"), rows)


def _algorithm(name: str) -> Any:
    """Return an algorithm with its defaults, without an environment."""
    return getattr(poad_sb3, name)("LLMPolicy", None, _init_setup_model=False)


def method_defaults(name: str) -> str:
    """Table of the arguments of a method whose defaults differ from POAD's, and those without effect."""
    made, poad = _algorithm(name), _algorithm("POAD")
    helps: dict[str, str] = {}
    for kind in ("PPOSettings", "CreditSettings", "SamplingSettings"):
        helps |= getattr(poad_sb3.settings, kind).help()
    rows = [
        (code(field), code(getattr(made, field)), code(getattr(poad, field)), meaning)
        for field, meaning in helps.items()
        if getattr(made, field) != getattr(poad, field) and field not in made.credit.ignores
    ]
    ignored = ", ".join(code(field) for field in made.credit.ignores)
    return f"{table(('argument', 'default', 'of POAD', 'meaning'), rows)}\n\nWithout effect: {ignored}."


def credit_choices() -> str:
    """Table of the settings of every method by the six choices of credit."""
    rows = []
    for name in ALGORITHMS:
        made = _algorithm(name)
        unit = {"episode_return": "episode", "gigpo": "episode, action"}.get(made.estimator, made.credit_level)
        first = [code(made.estimator)]
        first += [code("gamma_token=None")] if made.gamma_token is None else []
        first += [code("bootstrap=action")] if made.bootstrap == "action" else []
        baseline = ["critic" if made.credit.has_critic else code(made.baseline)]
        baseline += [code("state")] if made.credit.compares_states and made.baseline != "state" else []
        baseline += [code("leave_one_out")] if made.leave_one_out else []
        scale = code("normalize_advantage" if made.normalize_advantage else made.advantage_scale)
        ratio = code(made.ratio or made.credit_level)
        rows.append((name, unit, ", ".join(first), ", ".join(baseline), scale, ratio, code(made.loss_reduction)))
    return table(("method", "unit", "start", "baseline", "scale", "ratio", "reduction"), rows)


def architectures() -> str:
    """Table of the architectures of transformers by verdict and passes, with the largest errors of each group."""
    groups: dict[tuple[str, str], list[Any]] = {}
    for row in result("architectures")["rows"]:
        groups.setdefault((row["verdict"], row.get("passes", "")), []).append(row)
    cells = []
    for (verdict, passes), rows in sorted(groups.items()):
        measured = [
            [row[name] for row in rows if row.get(name) is not None] for name in ("ratio", "log_prob", "export")
        ]
        errors = [f"{max(numbers):.1e}" if numbers else "" for numbers in measured]
        names = ", ".join(code(row["name"]) for row in rows)
        cells.append((verdict, passes, str(len(rows)), *errors, names))
    head = ("verdict", "passes", "number", "ratio error", "log-prob error", "export error", "architectures")
    return table(head, cells)


def learning_multikey() -> str:
    """Table of the steps that every method needs to learn MultiKey with one key."""
    return table(HEAD, learning_rows(result("multikey_learning")["runs"]))


# ---------------------------------------------------------------------- the leaderboard


def _players(family: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the agents that played tasks of a family, with these tasks by id."""
    players = []
    for entry in entries():
        tasks = {row.id: entry["tasks"][row.id] for row in rows_of(family) if row.id in entry["tasks"]}
        players += [(markdown_text(entry["agent"]["name"]), tasks)] if tasks else []
    return players


def leaderboard(family: str) -> str:
    """Table of the tasks of a family: mean return of every agent with its interval, and mean success.

    The last row has the interquartile mean of the scores of an agent over its tasks: 0 is random play, 1 the oracle.
    """
    players, metric = _players(family), METRICS["discounted_return"]
    heads, rows, scores = ["task"], [[code(row.id)] for row in rows_of(family)], ["all, IQM of scores"]
    for name, tasks in players:
        first = next(iter(tasks.values()))
        heads.append(f"{name} ({first['episodes']} x {len(first['seeds'])})")
        for row, task in zip(rows, (tasks.get(row.id) for row in rows_of(family)), strict=True):
            returns = shown(estimate([np.array(task["scores"]["discounted_return"])], mean), metric) if task else ""
            row.append(f"{returns}; {np.mean(task['scores']['success']):.1%}" if task else "")
        strata = [np.array(task["scores"]["score"]) for task in tasks.values() if "score" in task["scores"]]
        scores.append(shown(estimate(strata), metric) if len(strata) > 1 else "")
    return table(heads, [row for row in [*rows, scores] if any(row[1:])])


def zoo() -> str:
    """Table of the rows of the zoo: mean discounted returns, and in brackets the success."""
    rows = []
    for row in read_rows(SHIPPED):
        means = {player: score["discounted_return"][0] for player, score in row.scores.items()}
        sampled, greedy = (f"{means[player]:.3f} ({row.scores[player]['success'][0]:.0%})" for player in AGENT[::-1])
        kwargs = ", ".join(f"{name}={value}" for name, value in row.env_kwargs.items())
        task = code(row.env_id) + (f" ({code(kwargs)})" if kwargs else "")
        others = (f"{means[player]:.3f}" for player in ("random", "oracle"))
        shipped = " (shipped)" if row.is_trained(SHIPPED) else ""
        rows.append((task, f"{row.model}/{row.method}{shipped}", f"{row.steps:,}", sampled, greedy, *others))
    return table(("task", "agent", "steps", "sampled", "greedy", "random", "oracle"), rows)


# ---------------------------------------------------------------------- studies

_CLAIMS: Mapping[str, str] = {
    "POAD learns faster than NTPO": "",
    "POAD learns faster than TWOSOME": "",
    "POAD learns faster than ARCHER": "three seeds of the first studies, which settle nothing",
    "NTPO gets worse as gamma_token falls": "",
    "gamma 1 is worse than 0.95": "",
    "POAD writes better code than NTPO": "",
    "POAD generalises better to unseen tasks": "",
    "credit falls on key tokens": "",
    "language ability is unchanged": "no verdict: one training of SmolLM2, whose perplexity rose by 24 to 29 %",
}
"""Claims of the paper by their names in the studies, and where no study counts them the reason."""
_OURS = (
    "POAD learns faster than NTPO on MultiKey",
    "POAD learns faster than TWOSOME on MultiKey",
    "NTPO prefers the wrong length",
)
"""Claims of ours, on a task that the paper does not have."""


def _tables_of(study: str) -> dict[str, Any]:
    tables = next(entry for entry in ALL if entry.name == study).tables(result(f"studies/{study}"))
    return {entry.title: entry for entry in tables}


def study_table(study: str, title: str) -> str:
    """Show a table of a study."""
    entry = _tables_of(study)[title]
    return f"{entry.remark}\n\n{table(entry.head, entry.rows)}"


def study(name: str) -> str:
    """Show the tables and remarks of a study."""
    content = result(f"studies/{name}")
    parts = [f"**{title}.** {study_table(name, title)}" for title in _tables_of(name)]
    sentences = [*filter(None, [content.get("statistics")]), *content.get("remarks", [])]
    parts.append("\n".join(f"* {sentence}" for sentence in sentences))
    if content.get("missing"):
        parts.append(f"Not run yet: {'; '.join(missing.rstrip('.') for missing in content['missing'])}.")
    return "\n\n".join([*filter(None, parts), study_made(name)])


def study_made(name: str) -> str:
    """Show how a study was made."""
    content = result(f"studies/{name}")
    machines = " and on ".join(map(machine, content["measured_with"]))
    ending = f" Id: {code(identifier(name, 'runs'))}." if content.get("runs") else ""
    return f"Made by {code(content['command'])}{f'; runs on {machines}' if machines else ''}.{ending}"


def comparisons() -> list[Mapping[str, Any]]:
    """Return the planned comparisons of all studies in the order of the protocol."""
    names = [entry.name for entry in ALL]
    return [{**row, "study": name} for name in names for row in result(f"studies/{name}").get("primary", ())]


def claims_state() -> str:
    """Say how many comparisons have which verdict."""
    counts = Counter(row["verdict"] for row in comparisons())
    planned, left = counts.total(), counts.pop("not run yet", 0)
    verdicts = ", ".join(f"{verdict} {n}" for verdict, n in counts.items())
    return f"{planned} comparisons are planned, {planned - left} have runs: {verdicts}."


def claims() -> str:
    """Table of the claims, of the paper and of ours: each planned comparison with its effect and verdict."""
    rows = []
    for claim, reason in {**_CLAIMS, **dict.fromkeys(_OURS, "")}.items():
        tests = [row for row in comparisons() if row["claim"] == claim]
        for number, row in enumerate(tests):
            effect = f"{effect_of(row)}, p {row['corrected_p']:.2g}" if row["effect"] else ""
            if row["verdict"] == "baseline did not learn":
                effect = ""  # a p beside it would read as support
            choices = "" if row["choices_per_action"] is None else f"{row['choices_per_action']:.2f}"
            title = "" if number else f"ours: {claim}" if claim in _OURS else claim
            rows.append((title, f"{row['study']}: {row['task']}", choices, row["prediction"], effect, row["verdict"]))
        if not tests:
            rows.append((claim, "", "", "", "", reason or "not run yet"))
    head = ("claim, of the paper or ours", "tested by", "choices per action", "predicted", "effect, p corrected")
    return table((*head, "verdict"), rows)


def headline() -> str:
    """Table of the README: planned comparisons, and the learning curves of a real model."""
    decay, whole = "`marginal` against the decay alone", "`marginal` against whole actions"
    chosen = (
        ("POAD against NTPO", "curves", "POAD against NTPO", "tomato-salad"),
        ("POAD against NTPO", "curves", "POAD against NTPO", "tomato-lettuce-salad"),
        ("POAD against TWOSOME", "curves", "POAD against TWOSOME", "tomato-salad"),
        ("POAD against TWOSOME", "foreign", "dueling 0.8 against TWOSOME", "go-to-red-ball"),
        ("POAD against whole actions", "lambda-token", "POAD 1 against action level", "multikey 2 4"),
        (decay, "values-inside", "marginal 0.8 against state 0.8", "multikey 2 4"),
        (decay, "small-rate", "marginal 0.8 against state 0.8", "multikey 2 4 slow"),
        (whole, "small-rate", "marginal 0.8 against action level, lambda 0.31", "multikey 2 4 slow"),
        (whole, "small-rate", "marginal 0.8 against action level, lambda 0.2", "multikey 4 4 slow"),
    )
    planned = {study: result(f"studies/{study}")["primary"] for _, study, _, _ in chosen}
    rows_of = [
        (name, next(row for row in planned[study] if [row["comparison"], row["task"]] == wanted))
        for name, study, *wanted in chosen
    ]
    rows = [
        (name, row["task"], effect_of(row), f"{row['verdict']}, p {row['corrected_p']:.2g}") for name, row in rows_of
    ]
    tasks = {name: result("studies/real-model")["tasks"][name] for name in ("tomato-salad", "food-preparation")}
    within = [
        f"{sum(steps is not None and steps <= task['within'] for steps in task['reached'].values())} of "
        f"{len(task['reached'])} seeds by {task['within']:,}"
        for task in tasks.values()
    ]
    rows.append(("SmolLM2-135M: 0.9 of the oracle", ", ".join(tasks), ", ".join(within) + " steps", ""))
    return table(("comparison", "task", "difference of areas [95 %]", "verdict"), rows)


def main() -> int:
    """Write the stale pages, or with `--check` list them alone; return 1 if there were any."""
    pages = stale()
    for path, text in pages.items():
        print(path.relative_to(ROOT))
        if "--check" not in sys.argv:
            path.write_text(text, encoding="utf-8")
    return int(bool(pages) and "--check" in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
