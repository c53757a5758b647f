"""Tables of committed measurements: agents and leaderboard, speed, architectures, installations."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import gymnasium as gym
import numpy as np
from _families import FAMILIES, rows_of
from _tables import code, machine, result, table
from transformers import AutoTokenizer

from benchmarks.agents import KINDS
from benchmarks.performance.synthetic import MODELS
from benchmarks.reports.labels import labels_remark
from benchmarks.reports.leaderboard import entries
from benchmarks.reports.report import markdown_text, shown
from benchmarks.runner.episodes import FAMILY_FIELDS
from benchmarks.runner.results import METRICS
from lang_envs.envs.virtualhome.env import VirtualHomeEnv
from lang_envs.report.statistics import estimate, mean
from poad_sb3.pocket import SHIPPED_MODELS
from poad_sb3.pocket.corpus import Example
from poad_sb3.pocket.train import encode_action

# ---------------------------------------------------------------------- agents and the leaderboard

_MARKS = "†‡§¶"
"""Marks of remarks on labels, in this order."""
_COLUMNS = ("discounted_return", "success", "steps", "invalid_rate", "ran_share", "best_score")


def agents() -> str:
    """Table of agents by name."""
    rows = [
        (code(f"{name}:{kind.argument}" if kind.argument else name), kind.help, code(kind.extra) if kind.extra else "")
        for name, kind in KINDS.items()
    ]
    return table(("`--agent`", "who", "extra"), [*rows, (code("module:name"), "a callable or an `Agent` of yours", "")])


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
                score, success = estimate(scored), estimate(_strata(tasks, "success"))
                cells = (markdown_text(entry["agent"]["name"]), str(len(scored)))
                cells += (shown(score, METRICS["discounted_return"]), shown(success, METRICS["success"]))
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
    commands = dict.fromkeys(code(task["command"].partition(" --env ")[0]) for task in of_entries)
    footnotes = "".join(f"\n\n{mark} {remark}" for remark, mark in marks.items())
    return f"{table(head, rows)}{footnotes}\n\nCommands begin with {', '.join(commands)}; whole in the files."


# ---------------------------------------------------------------------- speed

_WORKLOADS = {
    "poad": "POAD, listed actions",
    "poad-published": "POAD, published ratio (`paper_mode`)",
    "twosome": "TWOSOME",
    "code": "POAD, written actions of 72 to 128 tokens",
    "code-16": "the same, 16 environments",
}
_LOOPS = {"ours": "this library", "reference": "reference's structure", "competent": "competent"}


def throughput() -> str:
    """Table of the costs of all loops."""
    results = result("throughput")["results"]
    rows = []
    for found in results:
        for name, loop in found["loops"].items():
            kept, is_ours = loop.get("slower_with_kept_memory"), name == "ours"
            rows.append(
                (
                    f"{_WORKLOADS[found['workload']]}, vocabulary {found['vocabulary']:,}" if is_ours else "",
                    _LOOPS[name],
                    f"{loop['rollout_ms']:.0f} + {loop['update_ms']:.0f}",
                    "" if is_ours else f"**{loop['slower_than_ours']:.1f}**",
                    "" if is_ours else "not measured" if kept is None else f"**{kept:.1f}**",
                    f"{loop['forward'] + loop['backward']:.0f}",
                    f"{loop['over_fewest']:.2f}",
                    f"{loop['peak_mib']:.0f}",
                )
            )
    head = ("", "loop", "ms, rollout + update", "times ours", "with kept memory", "positions", "over the plain count")
    worst = max(loop["adapter_step"] for found in results for loop in found["agreement"].values())
    measured, least = results[0]["measured"], min(found["runs"] for found in results)
    turns = f"medians of {least} turns or more" if least > 1 else "some in a single turn"
    return (
        f"{table((*head, 'peak, MiB'), rows)}\n\n"
        f"On {measured['cpu']}, {measured['threads']} thread, {turns}. All loops move the adapter alike to {worst:.0e} "
        "of the step. Workloads were measured on several days, on a shared host that is faster on some: compare within "
        "one. Peaks are above the loaded model, of a process for each loop."
    )


def ranks_table() -> str:
    """Table of the time of a rollout with its update by processes and threads."""
    study = result("ranks")
    rows = [
        (name, *(f"{one[key]:.2f}" for key in ("median", "min", "max", "speedup")))
        for name, one in study["layouts"].items()
    ]
    head = ("", "s, median", "least", "most", "times as fast")
    about = f"{study['repeats']} turns of each, on {machine(study)}"
    return f"{table(head, rows)}\n\nMade by {code(study['command'])}: {about}."


def vectors_table() -> str:
    """Table of the speed of environments by the processes that step them."""
    study = result("vectors")
    rows = [
        (name, f"{one['per_second']:,}", f"{one['ms']:g}", f"{one['start']:g}")
        for name, one in study["layouts"].items()
    ]
    about = f"{study['repeats']} turns of {study['steps']} steps, medians, on {machine(study)}"
    head = ("", "steps/s", "ms for a step of all", "s, start")
    return f"{table(head, rows)}\n\nMade by {code(study['command'])}: {about}."


def micro_batches_table() -> str:
    """Table of the cost of micro-batches by task."""
    study = result("micro_batches")
    keys = ("whole", "cut", "ratio")
    rows = [(name, *(f"{one[key]:.2f}" for key in keys)) for name, one in study["tasks"].items()]
    about = f"{study['envs']} environments, medians of {study['repeats']} turns (ratio: of pairs), one thread"
    made = f"Made by {code(study['command'])}: {about}, on {machine(study)}."
    return f"{table(('', 's, whole passes', 's, four parts', 'ratio'), rows)}\n\n{made}"


def choices() -> str:
    """Table of the shares of actions with more than one choice."""
    study = result("choices")
    rows: dict[tuple[str, str], list[str]] = {}
    for env_id, one in study["ids"].items():
        rows.setdefault((f"{one['taken']:.0%}", f"{one['listed']:.0%}"), []).append(code(env_id))
    head = ("tasks", "random actions with more than one choice", "of the listed actions")
    lines = [(", ".join(ids), *shares) for shares, ids in rows.items()]
    return f"{table(head, lines)}\n\nPocket model, {study['episodes']} episodes each: `{study['command']}`."


def scaling() -> str:
    """Tell the growth exponents."""
    studies = result("scaling")["studies"]
    names = {
        "prompt": "tokens of the prompt",
        "written": "written tokens",
        "envs": "environments",
        "candidates": "candidates (POAD)",
        "candidates_twosome": "candidates (TWOSOME)",
    }
    exponents = "; ".join(f"{label}: {studies[name]['exponent']:.2f}" for name, label in names.items())
    hidden, layers, _, _, intermediate = MODELS["6m"]

    def multiplications(n: int) -> int:
        """Products of all layers, and twice those of each token with the tokens before it."""
        return layers * n * (4 * hidden**2 + 3 * hidden * intermediate + hidden * (n + 1))

    first, *_, last = studies["prompt"]["points"]
    work = multiplications(last["value"]) / multiplications(first["value"])
    return (
        f"Exponents of the time of a step, 1 being linear: {exponents}. Of the buffer's memory in tokens: "
        f"{studies['written']['buffer_exponent']:.2f}. A prompt is the worst case "
        f"({last['value'] / first['value']:.0f} times the prompt take {last['ms'] / first['ms']:.1f} times as long, "
        "for attention grows with the square: the multiplications of a pass over it grow "
        f"{work:.1f} times)."
    )


# ---------------------------------------------------------------------- pocket models


def pocket(name: str = "pocket") -> str:
    """Table of the facts of a model that ships."""
    folder = SHIPPED_MODELS[name]
    facts = json.loads((folder / "training.json").read_text(encoding="utf-8"))
    shape = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    size = (folder / "model.safetensors").stat().st_size / 1e6
    corpus = (
        [
            ("of which prompts", f"{facts['n_lines']:,} lines"),
            ("of which bodies alone", f"{facts['n_bare']:,} lines"),
        ]
        if name == "pocket-coder"
        else [
            ("of which play", f"{facts['n_play']:,} lines from {', '.join(map(code, facts['training_ids']))}"),
            ("of which sentences", f"{facts['n_sentences']:,} lines"),
        ]
    )
    kind = "byte and special tokens" if name == "pocket-char" else "byte-level BPE tokens"
    rows = [
        ("architecture", f"`{shape['architectures'][0]}`, weights {shape['dtype']}"),
        ("parameters", f"{facts['parameters']:,} ({size:.1f} MB as safetensors)"),
        ("size", f"{facts['n_layers']} layers of width {facts['hidden_size']}, {facts['n_heads']} heads"),
        ("vocabulary", f"{shape['vocab_size']} {kind} (at most {facts['vocab_size']} were asked for)"),
        ("context", f"{shape['max_position_embeddings']} tokens"),
        ("corpus", f"{facts['corpus_lines']:,} lines, {facts['corpus_tokens']:,} tokens, all generated"),
        *corpus,
        ("training", f"{facts['n_batches']} batches of {facts['batch_size']}, peak rate {facts['learning_rate']:g}"),
        ("final loss", f"{facts['final_loss']} nats per token (mean of the last 50 batches)"),
        ("seed", str(facts["seed"])),
        ("trained with", f"torch {facts['torch']}"),
    ]
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


# ---------------------------------------------------------------------- architectures, extras


def architectures() -> str:
    """Table of architectures with figures, below a sentence with their numbers."""
    study = result("architectures")
    lines = []
    for row in (row for row in study["rows"] if row.get("ratio") is not None):
        figures = ["" if row[name] is None else f"{row[name]:.1e}" for name in ("ratio", "log_prob", "export")]
        lines.append((code(row["name"]), *figures, row["passes"], row["verdict"]))
    counts, versions = Counter(row["verdict"] for row in study["rows"]), study["versions"]
    numbers = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
    head = ("architecture", "ratio error", "log-prob error", "export error", "passes", "verdict")
    return (
        f"Of {len(study['rows'])}: {numbers}. Made by `{study['command']}` with transformers "
        f"{versions['transformers']}, peft {versions['peft']} and torch {versions['torch']} on {study['cpu']}, commit "
        f"`{study['commit'][:12]}`.\n\n{table(head, lines)}"
    )


def architectures_refused() -> str:
    """Table of architectures without figures, and why."""
    missing = [row for row in result("architectures")["rows"] if row.get("ratio") is None]
    lines = [(code(row["name"]), row["verdict"], code(row["reason"].replace("`", "'"))) for row in missing]
    return table(("architecture", "verdict", "reason"), lines)


def extras() -> str:
    """Table of each extra: the cost of installing it alone."""
    measured = result("installing")
    rows = []
    for extra, row in measured["extras"].items():
        name, packages = "none" if extra == "nothing" else code(extra), str(len(row["versions"]))
        rows.append((name, f"{row['megabytes']:,}", packages, f"{row['install_seconds']:.0f}"))
    return (
        f"The wheel has {measured['wheel_bytes'] / 1e6:.1f} MB and the source archive "
        f"{measured['source_bytes'] / 1e6:.1f} MB. Python {measured['python']}; {measured['cpu']}, "
        f"{measured['cores']} cores.\n\n" + table(("extra", "MB", "packages", "s, install"), rows)
    )


# ---------------------------------------------------------------------- learning


def learning_multikey() -> str:
    """Table of the steps, time and memory that every method needs to learn MultiKey with one key."""
    recorded = result("multikey_learning")
    rows = []
    for name in dict.fromkeys(run["method"] for run in recorded["runs"]):
        runs = [run for run in recorded["runs"] if run["method"] == name]
        steps = ", ".join(str(run["steps"] or f"> {recorded['steps']:,}") for run in runs)
        error = max(run["first_ratio_error"] for run in runs)
        cost = (np.median([run[key] for run in runs]) for key in ("update_ms_per_step", "training_mb"))
        rows.append((code(name), steps, f"{error:.0e}", *(f"{value:.2g}" for value in cost)))
    head = ("method", "steps, seeds 0, 1, 2", "largest first-ratio error", "update, ms a step")
    return table((*head, "memory of training, MB"), rows)
