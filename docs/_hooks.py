"""Build hooks of the site: what can be read off the live code is generated, so that it cannot drift.

Every id has a generated page and a picture. In the other pages, markers such as
`<!-- generated: start Overcooked-TomatoSalad-v0 -->` are replaced by Markdown; a marker that nothing answers fails the
build.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import _root  # noqa: F401 - what is imported below needs it
from _architecture import dependency_table, picture
from _architectures import architecture_table, refused_table
from _bad import BAD_TABLES
from _data import digest_table, exit_codes, preprocessing_table, source_table
from _families import FAMILIES, make, rows_of
from _installing import extras_table
from _kitchen import kitchen_graph
from _leaderboard import agent_table, episode_fields, leaderboard_families, leaderboard_tasks
from _open import baseline_table, dataset_table, generated_table_scores, latency_table, published_table, score_table
from _pages import graph_of, oracle_gif, overview, page, phrases
from _speed import choices_table, scaling_sentence, throughput_table
from _studies import STUDY_PICTURES, poad_results, same_policy_results, study_results, unseen_results
from _tables import arguments, code, episode, info_fields, quoted, settings, table
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

from benchmarks.runner.machine import RESULTS
from lang_envs import ENV_ROWS
from lang_envs.env_checker import CHECKS

KITCHEN_ID = "Overcooked-TomatoSalad-v0"
FIRST_CHOP = ("pick up the tomato", "put the tomato on the cutting board", "chop the tomato")
FARMING_CYCLE = ("pick up the tomato", "serve the dish", *FIRST_CHOP)
SHORTEST, BOWL_FIRST = (0, 2, 4, 0, 1, 3), (0, 2, 4, 1, 0, 3)
"""Two ways to serve the salad, as positions in the admissible list: fetch the tomato to the bowl, or the bowl to it."""

_MARKER = re.compile(r"<!-- generated: (?P<name>[a-z-]+)(?: (?P<argument>\S+))? -->")


# ---------------------------------------------------------------------- mkdocs events


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the pages of the ids to the navigation, and the page of decisions at its end, where there is one."""
    if config.nav is None:
        return config
    environments = next(section["Environments"] for section in config.nav if "Environments" in section)
    for name, family in FAMILIES.items():
        pages = [{_short(row.id): f"environments/{row.id}.md"} for row in rows_of(name)]
        environments.append({f"{family.title}, every id": pages})
    if (Path(config.docs_dir) / "decisions.md").exists():
        config.nav.append({"Decisions": "decisions.md"})
    return config


def _short(env_id: str) -> str:
    return env_id.partition("-")[2]


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages of the ids, the pictures that the live renderer draws, and those of the studies."""
    for row in ENV_ROWS:
        files.append(File.generated(config, f"environments/{row.id}.md", content=page(row)))
        files.append(File.generated(config, f"assets/{row.id}.gif", content=oracle_gif(row)))
    for made in RESULTS.glob("*.png"):
        files.append(File.generated(config, f"assets/{made.name}", content=made.read_bytes()))
    for place, drawn in STUDY_PICTURES.items():
        files.append(File.generated(config, f"assets/{place}", content=drawn.read_bytes()))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Replace the markers of a page."""
    return _MARKER.sub(lambda match: _generate(match["name"], match["argument"]), markdown)


def _generate(name: str, argument: str | None) -> str:
    if name not in _GENERATORS:
        raise PluginError(f"Expected a marker among {sorted(_GENERATORS)}; got {name!r}.")
    return _GENERATORS[name](argument or "")


# ---------------------------------------------------------------------- what markers stand for


def _families(_: str) -> str:
    rows = [
        (
            f"[{family.title}](environments/{family.page})",
            ", ".join(f"[{_short(row.id)}](environments/{row.id}.md)" for row in rows_of(name)),
        )
        for name, family in FAMILIES.items()
    ]
    return table(("family", "ids"), rows)


def _ids(family: str) -> str:
    return ", ".join(f"[`{row.id}`]({row.id}.md)" for row in rows_of(family))


def _start(env_id: str) -> str:
    text, info = make(env_id).reset(seed=0)
    return f"{quoted(text)}\n\n{info_fields(info)}"


def _observation(env_id: str) -> str:
    text, _ = make(env_id).reset(seed=0)
    return quoted(text)


def _after_failure(env_id: str) -> str:
    """What is said after code that fails: a forgotten import."""
    env = make(env_id).unwrapped
    env.reset(seed=0)
    text, *_ = env.step_text("model = LogisticRegression()\nmodel.fit(x_train, y_train)")
    return quoted(text)


def _descriptions(env_id: str) -> str:
    """What the published and the full text say of one situation, two actions before the oracle's end."""
    told = {}
    for described in ("published", "full"):
        env = make(env_id, describe=described).unwrapped
        env.reset(seed=0)
        texts, terminated = [], False
        while not terminated:
            text, _, terminated, *_ = env.step_text(env.oracle_action())
            texts.append(text)
        told[described] = texts[-3]
    return table(("`describe`", "observation"), [(code(name), text) for name, text in told.items()])


def _drawing(env_id: str) -> str:
    env = make(env_id, render_mode="ansi")
    env.reset(seed=0)
    return f"```text\n{env.render()}\n```"


def _checks(_: str) -> str:
    return table(("check", "what it asks"), [(code(check.name), check.description) for check in CHECKS])


def _farming(env_id: str) -> str:
    env = make(env_id)
    env.reset(seed=0)
    return episode(env, (*FIRST_CHOP, *FARMING_CYCLE))


def _kitchen_values(_: str) -> str:
    graph, rows = kitchen_graph(graph_of(KITCHEN_ID)), []
    for gamma in (0.99, 0.98, 0.97, 0.95):
        numbers = (graph.value(SHORTEST, gamma), graph.value(BOWL_FIRST, gamma), graph.endless_value(gamma))
        rows.append((f"{gamma:g}", *map("{:.3f}".format, numbers), "farms" if graph.farms(gamma) else "delivers"))
    head = ("`gamma`, per action", "oracle's plan", "bowl first", "best plan", "the best plan")
    return f"{table(head, rows)}\n\nFarming is the best plan for `gamma` above {graph.farming_threshold():.4f}."


def _pocket(name: str) -> str:
    """Facts of a model that ships, by its name."""
    from poad_sb3.pocket import SHIPPED_MODELS

    folder = SHIPPED_MODELS[name or "pocket"]
    facts = json.loads((folder / "training.json").read_text(encoding="utf-8"))
    shape = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    size = (folder / "model.safetensors").stat().st_size / 1e6
    rows = [
        ("architecture", f"`{shape['architectures'][0]}`, weights {shape['dtype']}"),
        ("parameters", f"{facts['parameters']:,} ({size:.1f} MB as safetensors)"),
        ("size", f"{facts['n_layers']} layers of width {facts['hidden_size']}, {facts['n_heads']} heads"),
        ("vocabulary", f"{shape['vocab_size']} byte-level BPE tokens (at most {facts['vocab_size']} were asked for)"),
        ("context", f"{shape['max_position_embeddings']} tokens"),
        ("corpus", f"{facts['corpus_lines']:,} lines, {facts['corpus_tokens']:,} tokens, all generated"),
        *_corpus_rows(facts),
        ("training", f"{facts['n_batches']} batches of {facts['batch_size']}, peak rate {facts['learning_rate']:g}"),
        ("final loss", f"{facts['final_loss']} nats per token (mean of the last 50 batches)"),
        ("seed", str(facts["seed"])),
        ("trained with", f"torch {facts['torch']}"),
    ]
    return table(("", "pocket model" if not name else name.replace("-", " ")), rows)


def _corpus_rows(facts: dict[str, Any]) -> list[tuple[str, str]]:
    if "n_bare" in facts:
        return [
            ("of which prompts", f"{facts['n_lines']:,} lines"),
            ("of which bodies alone", f"{facts['n_bare']:,} lines"),
        ]
    return [
        ("of which play", f"{facts['n_play']:,} lines from {', '.join(map(code, facts['training_ids']))}"),
        ("of which sentences", f"{facts['n_sentences']:,} lines"),
    ]


def _coder(_: str) -> str:
    """What the pocket coder writes before it is trained, by table."""
    study = json.loads((RESULTS / "pocket_coder.json").read_text(encoding="utf-8"))
    head = (
        "table",
        "attempts",
        "run",
        "95 %",
        "first attempts",
        "after a failure",
        "AUC 5 %",
        "50 %",
        "95 %",
        "tokens",
    )
    rows = []
    for name, one in study["tables"].items():
        running = one["running"]
        low, high = running["interval"]
        shares = [f"{100 * one[key]['share']:.0f} %" for key in ("running_first", "running_after_failure")]
        areas = [f"{one['area'][place]:.3f}" for place in (1, 3, 5)]
        interval = f"{100 * low:.0f} to {100 * high:.0f} %"
        tokens = f"{one['body_tokens'][3]:.0f}"
        rows.append((name, str(running["n"]), f"{100 * running['share']:.0f} %", interval, *shares, *areas, tokens))
    return f"{table(head, rows)}\n\nMade by `{study['command']}` ({study['cpu']})."


_GENERATORS: dict[str, Callable[[str], str]] = {
    "after-failure": _after_failure,
    "agents": agent_table,
    "architecture": lambda _: picture(),
    "architecture-table": lambda _: dependency_table(),
    "architectures": architecture_table,
    "architectures-refused": refused_table,
    "arguments": arguments,
    "settings": settings,
    "baselines": baseline_table,
    "checks": _checks,
    "coder": _coder,
    "coding-scores": score_table,
    "generated-table-scores": generated_table_scores,
    "data-digests": digest_table,
    "choices": choices_table,
    "data-exit-codes": exit_codes,
    "data-preprocessing": preprocessing_table,
    "data-sources": source_table,
    "datasets": dataset_table,
    "descriptions": _descriptions,
    "drawing": _drawing,
    "episode-fields": episode_fields,
    "extras": extras_table,
    "families": _families,
    "farming": _farming,
    "ids": _ids,
    "leaderboard-families": leaderboard_families,
    "leaderboard-tasks": leaderboard_tasks,
    "kitchen-values": _kitchen_values,
    "observation": _observation,
    "overview": lambda _: overview(),
    "phrases": phrases,
    "poad-results": poad_results,
    "pocket": _pocket,
    "published": published_table,
    "same-policy": same_policy_results,
    "sandbox-latency": latency_table,
    "scaling": scaling_sentence,
    "start": _start,
    "study": study_results,
    "throughput": throughput_table,
    "unseen": unseen_results,
    **BAD_TABLES,
}
