"""Tables of committed measurements: agents and leaderboard, speed, architectures, installations."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from _families import FAMILIES, rows_of
from _tables import code, machine, records, result, table
from transformers import AutoTokenizer

from benchmarks.performance.multikey_learning import HEAD, learning_rows
from benchmarks.reports.labels import labels_remark
from benchmarks.reports.leaderboard import entries
from benchmarks.reports.report import shown
from benchmarks.runner.episodes import FAMILY_FIELDS
from benchmarks.runner.results import METRICS
from lang_envs.envs.virtualhome.env import VirtualHomeEnv
from lang_envs.report.statistics import estimate, mean
from lang_envs.text import markdown_code, markdown_text
from poad_sb3.pocket import SHIPPED_MODELS
from poad_sb3.pocket.corpus import Example
from poad_sb3.pocket.train import encode_action

# ---------------------------------------------------------------------- agents and the leaderboard

_MARKS = "†‡§¶"
"""Marks of remarks on labels, in this order."""
_COLUMNS = ("discounted_return", "success", "steps", "invalid_rate", "ran_share", "best_score")


def episode_fields() -> str:
    """Further rows of a table: the fields that some families add."""
    return "\n".join(f"| {code(name)} | {meaning} |" for name, meaning in FAMILY_FIELDS.items())


def _strata(tasks: list[dict[str, Any]], name: str) -> list[np.ndarray]:
    return [np.array(task["scores"][name]) for task in tasks if name in task["scores"]]


def leaderboard_families() -> str:
    """Table of every agent over the tasks of a family: by number of tasks played, then by score."""
    ranked = []
    for name, family in FAMILIES.items():
        for entry in entries():
            tasks = [entry["tasks"][row.id] for row in rows_of(name) if row.id in entry["tasks"]]
            if scored := _strata(tasks, "score"):
                score, rates = estimate(scored), _strata(tasks, "success")
                cells = (markdown_text(entry["agent"]["name"]), str(len(scored)))
                cells += (
                    shown(score, METRICS["discounted_return"]),
                    shown(estimate(rates) if rates else None, METRICS["success"]),
                )
                ranked.append(((family.title, -len(scored), -score.value), cells))
    rows = [(place[0], *cells) for place, cells in sorted(ranked)]
    return table(("family", "agent", "tasks", "IQM of scores, random 0, oracle 1", "IQM of success"), rows)


def leaderboard_tasks(family: str) -> str:
    """Table of every agent on every task of a family, the best first."""
    played = [
        (row.id, entry["agent"]["name"], entry["tasks"][row.id])
        for row in rows_of(family)
        for entry in entries()
        if row.id in entry["tasks"]
    ]
    if not played:
        return "No entries yet."
    names = [name for name in _COLUMNS if any(name in task["scores"] for *_, task in played)]
    marks: dict[str, str] = {}
    rows = []
    order = [row.id for row in rows_of(family)]
    played.sort(key=lambda one: (order.index(one[0]), -float(np.mean(one[2]["scores"]["discounted_return"]))))
    for env_id, agent, task in played:
        remark = labels_remark(env_id)
        mark = marks.setdefault(remark, _MARKS[len(marks)]) if remark else ""
        scores = {name: _strata([task], name) for name in names}
        numbers = [shown(estimate(one, mean), METRICS[name]) if one else "" for name, one in scores.items()]
        episodes = f"{task['episodes']} x {len(task['seeds'])}"
        rows.append((f"[{env_id}](environments/{env_id}.md){mark}", markdown_text(agent), episodes, *numbers))
    head = ("task", "agent", "episodes x seeds", *(METRICS[name].title for name in names))
    ids = {env_id for env_id, *_ in played}
    of_entries = [task for entry in entries() for env_id, task in entry["tasks"].items() if env_id in ids]
    commands = dict.fromkeys(markdown_code(task["command"].partition(" --env ")[0]) for task in of_entries)
    footnotes = "".join(f"\n\n{mark} {remark}" for remark, mark in marks.items())
    return f"{table(head, rows)}{footnotes}\n\nCommands begin with {', '.join(commands)}; whole in the files."


# ---------------------------------------------------------------------- speed

_WORKLOADS = {
    "poad": "POAD, listed actions",
    "poad-published": "POAD, published ratio (`paper_mode`)",
    "twosome": "TWOSOME",
    "code": "POAD, written actions of 72 to 128 tokens",
    "code-16": "the same, 16 environments",
    "smollm2": "POAD with SmolLM2 on Tomato Salad",
}
_LOOPS = {"ours": "this library", "reference": "reference's structure", "competent": "competent"}


def throughput() -> str:
    """Table of the costs of all loops."""
    results = result("throughput")["results"]
    found = [
        {**loop, "loop": _LOOPS[name], "of": f"{_WORKLOADS[one['workload']]}, vocabulary {one['vocabulary']:,}"}
        for one in results
        for name, loop in one["loops"].items()
    ]
    columns = {
        "": lambda one: one["of"] if one["loop"] == _LOOPS["ours"] else "",
        "loop": "{loop}",
        "ms, rollout": "{rollout_ms:.0f}",
        "ms, update": "{update_ms:.0f}",
        "times ours": "{slower_than_ours:.1f}",
        "with kept memory": lambda one: f"{one.get('slower_with_kept_memory') or '-':.3}",
        "positions": lambda one: f"{one['forward'] + one['backward']:.0f}",
        "over the plain count": "{over_fewest:.2f}",
        "peak, MiB": "{peak_mib:.0f}",
    }
    worst = max(loop["adapter_step"] for one in results for loop in one["agreement"].values())
    return (
        f"{records(found, columns)}\n\nOn {machine(results[0]['measured'])}, one thread. All loops move the adapter "
        f"alike to {worst:.0e} of the step. Workloads were measured on several days: compare within one. Peaks are "
        "above the loaded model, of a process for each loop."
    )


# ---------------------------------------------------------------------- pocket models


def pocket(name: str = "pocket") -> str:
    """Table of the facts of a model that ships, as its training wrote them."""
    folder = SHIPPED_MODELS[name]
    facts = json.loads((folder / "training.json").read_text(encoding="utf-8"))
    shape = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    rows = [
        ("architecture", f"`{shape['architectures'][0]}`, weights {shape['dtype']}"),
        ("safetensors", f"{(folder / 'model.safetensors').stat().st_size / 1e6:.1f} MB"),
        ("context", f"{shape['max_position_embeddings']} tokens"),
        ("tokenizer", f"{shape['vocab_size']} tokens"),
    ]
    for key, value in facts.items():
        is_number = isinstance(value, int) and key != "seed"
        shown = f"{value:,}" if is_number else ", ".join(value) if isinstance(value, list) else str(value)
        rows.append((code(key), shown))
    return table(("", name), rows)


def action_tokens() -> str:
    """Table of the tokens of household actions, by task and model."""
    names = ("pocket", "pocket-char")
    tokenizers = [AutoTokenizer.from_pretrained(SHIPPED_MODELS[name]) for name in names]
    rows = []
    for row in rows_of("VirtualHome"):
        env = gym.make(row.id).unwrapped
        assert isinstance(env, VirtualHomeEnv)
        cells = [code(row.id), str(len(env.command_set))]
        for tokenizer in tokenizers:
            lengths = [len(encode_action(tokenizer, Example("", text))) + 1 for text in env.command_set]
            cells += [f"{mean(np.array(lengths)):.1f}", f"{min(lengths)} to {max(lengths)}"]
        rows.append(tuple(cells))
    heads = ("task", "actions", *(f"`{name}`, {part}" for name in names for part in ("mean", "range")))
    return table(heads, rows)


# ---------------------------------------------------------------------- architectures, learning


def architectures() -> str:
    """Table of architectures with figures."""

    def figure(name: str) -> Callable[[Any], str]:
        return lambda one: "" if one[name] is None else f"{one[name]:.1e}"

    study = result("architectures")
    columns = {
        "architecture": "`{name}`",
        "ratio error": figure("ratio"),
        "log-prob error": figure("log_prob"),
        "export error": figure("export"),
        "passes": "{passes}",
        "verdict": "{verdict}",
    }
    counts = Counter(row["verdict"] for row in study["rows"])
    numbers = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
    shown = records([row for row in study["rows"] if row.get("ratio") is not None], columns)
    made = f"Made by {code(study['command'])} on {machine(study)}, commit {code(study['commit'][:12])}."
    return f"Of {len(study['rows'])}: {numbers}. {made}\n\n{shown}"


def architectures_refused() -> str:
    """Table of architectures without figures, and why."""
    missing = [row for row in result("architectures")["rows"] if row.get("ratio") is None]
    reason = {"reason": lambda one: code(one["reason"].replace("`", "'"))}
    return records(missing, {"architecture": "`{name}`", "verdict": "{verdict}", **reason})


def learning_multikey() -> str:
    """Table of the steps, time and memory that every method needs to learn MultiKey with one key."""
    return table(HEAD, learning_rows(result("multikey_learning")["runs"]))
