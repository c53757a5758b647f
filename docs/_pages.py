"""A page for every id, made of what the code says of itself: docstrings, registry, live spaces, measured scores."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

import griffe
from _data import trial_example, trial_note
from _families import Family, family_of, make, rows_of
from _keytoken import keytoken_numbers, keytoken_sections
from _open import open_sections
from _root import ROOT
from _tables import arguments, code, docstring, episode, info_fields, percent, quoted, table

from benchmarks.performance.env_scores import Graph, explore, random_policy
from benchmarks.reports.labels import labels_remark
from benchmarks.runner.machine import RESULTS
from lang_envs import ENV_ROWS, TRAINING_IDS, UNSEEN_IDS, EnvRow, LangEnv
from lang_envs.agents import oracle_agent
from lang_envs.recording import encode_gif, record_episode

__all__ = ["graph_of", "oracle_gif", "overview", "page", "phrases", "recorded"]

GOLDEN = ROOT / "data" / "golden"


HISTORY = {"v0": "first release"}
"""What changed, by version; equal for all ids so far."""


# ---------------------------------------------------------------------- what is measured


@cache
def graph_of(env_id: str) -> Graph:
    """Every situation that listed actions reach."""
    return explore(_inner(env_id), random_policy)


@lru_cache(maxsize=1)
def _scores() -> dict[str, Any]:
    return json.loads((RESULTS / "env_scores.json").read_text(encoding="utf-8"))["scores"]


@lru_cache(maxsize=1)
def recorded() -> dict[str, Counter[str]]:
    """Episodes and steps recorded from the originals, by id."""
    counts: dict[str, Counter[str]] = {}
    for path in sorted(GOLDEN.glob("*.jsonl.gz")):
        stem = path.name.removesuffix(".jsonl.gz")
        family = "VirtualHome" if stem.startswith("virtualhome_") else "Overcooked"
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                trace = json.loads(line)
                name = (trace.get("variant") or stem.removeprefix("virtualhome_")).replace("_", " ").title()
                one = counts.setdefault(f"{family}-{name.replace(' ', '')}-v0", Counter())
                one.update({"episodes": 1, "steps": len(trace["steps"])})
    return counts


def _inner(env_id: str, **kwargs: Any) -> LangEnv[Any]:
    inner = make(env_id, **kwargs).unwrapped
    assert isinstance(inner, LangEnv)
    return inner


def oracle_gif(row: EnvRow) -> bytes:
    """The oracle's episode as an animated GIF."""
    return encode_gif(record_episode(row.id, oracle_agent(), **row.trial).frames)


# ---------------------------------------------------------------------- the page of an id


def page(row: EnvRow) -> str:
    """The page of an id, as Markdown."""
    family, env = family_of(row.id), _inner(row.id)
    text, info = env.reset(seed=0)
    module, _, name = row.entry_point.partition(":")
    own = _own_sections(family)(row, env, family)
    parts = {
        "": _head(row, family),
        "Make it": _example(row),
        "At a glance": own["At a glance"],
        "Description": _description(f"{module}.{name}"),
        "First observation": f"{quoted(text)}\n\n`info` beside it:\n\n{info_fields(info)}",
        "Actions": own["Actions"],
        "Rewards": family.rewards(env),
        "Start and end": own["Start and end"],
        "Oracle": own["Oracle"],
        "Scores": own["Scores"],
        "Arguments": f'`gym.make("{row.id}", **arguments)`; this id sets {_set_by_id(row)}.\n\n'
        + arguments(f"{module}.{name}"),
        "Checked against": own["Checked against"],
        "Version history": "\n".join(f"* `{version}`: {what}." for version, what in HISTORY.items()),
    }
    sections = [f"## {title}\n\n{body}" if title else body for title, body in parts.items()]
    return "\n\n".join([f"# {row.id}", *sections]) + "\n"


def _own_sections(family: Family) -> Callable[[EnvRow, LangEnv[Any], Family], dict[str, str]]:
    """What makes the sections that differ between kinds of families."""
    if family.is_open:
        return open_sections
    return keytoken_sections if family.is_random else _listed_sections


def _listed_sections(row: EnvRow, env: LangEnv[Any], family: Family) -> dict[str, str]:
    """The sections that are made by going through every situation."""
    return {
        "At a glance": _glance(row, env, family),
        "Actions": phrases(row.id),
        "Start and end": _ends(row.id, family),
        "Oracle": _oracle(row.id),
        "Scores": _score_table(row.id, family),
        "Checked against": _checked(row),
    }


def _use(env_id: str) -> str:
    if env_id in UNSEEN_IDS:
        return "One of the [unseen tasks](generalisation.md): **nothing may be trained on it.**"
    if env_id in TRAINING_IDS:
        return "One of the four [training tasks](generalisation.md)."
    return ""


def _head(row: EnvRow, family: Family) -> str:
    head = f"{row.summary} {_use(row.id)}\n\nThe family's rules, texts and numbers: [{family.title}]({family.page})."
    remark = labels_remark(row.id)
    if remark:
        head += f"\n\n{remark} See the [threat model](threat_model.md#known-labels)."
    return f"{head}\n\n{trial_note(row)}" if row.trial else head


def _example(row: EnvRow) -> str:
    block = f'import gymnasium as gym\nimport lang_envs\n\nenv = gym.make("{row.id}")\ntext, info = env.reset(seed=0)'
    shown = trial_example(row) if row.trial else f"```python\n{block}\n```"
    picture = f"![The oracle's episode](../assets/{row.id}.gif){{ width=480 }}"
    return f"{shown}\n\n{picture}\n\nThe oracle's episode, a picture after every action."


def _set_by_id(row: EnvRow) -> str:
    return ", ".join(code(f"{name}={value!r}") for name, value in row.kwargs.items())


def _glance(row: EnvRow, env: LangEnv[Any], family: Family) -> str:
    space, graph = env.action_space, graph_of(row.id)
    n_listed = sorted(Counter(edge.source for edge in graph.edges).values())
    listed = f"{n_listed[0]}" if n_listed[0] == n_listed[-1] else f"{n_listed[0]} to {n_listed[-1]}"
    rows = [
        ("observation space", code(str(env.observation_space))),
        ("action space", f"{code(str(space))}, shape {code(str(space.shape))}, {space.vocab_size} token ids"),
        ("listed actions", listed),
        ("situations", f"{len(graph.worlds):,} reached by listed actions, ends not counted"),
        ("time limit", f"{graph.limit} {family.unit}"),
        ("random", "nothing; the seed changes nothing"),
        ("render modes", ", ".join(map(code, env.metadata["render_modes"]))),
        ("entry point", code(row.entry_point)),
    ]
    return table(("", code(row.id)), rows)


def _description(path: str) -> str:
    texts = [section.value for section in docstring(path) if section.kind is griffe.DocstringSectionKind.text]
    return "\n\n".join(texts)


def phrases(env_id: str) -> str:
    """Table of what can be said: the listed phrases, and the rest of the command set."""
    graph, commands = graph_of(env_id), getattr(_inner(env_id), "command_set", None)
    head = f"In how many of the {len(graph.worlds):,} situations that listed actions reach:\n\n"
    return head + (_positions(graph) if commands is None else _commands(graph, commands))


def _positions(graph: Graph) -> str:
    """For a list whose places stay the same: the phrases of each place."""
    counts: dict[int, Counter[str]] = {}
    last, position = -1, 0
    for edge in graph.edges:
        position = position + 1 if edge.source == last else 0
        last = edge.source
        counts.setdefault(position, Counter())[edge.text] += 1
    rows = [
        ("" if number else str(position), code(phrase), str(count))
        for position, shown in sorted(counts.items())
        for number, (phrase, count) in enumerate(shown.most_common())
    ]
    return table(("position", "phrase", "listed in"), rows) + (
        "\n\nThe command set is the list: any other text is an invalid action."
    )


def _commands(graph: Graph, commands: tuple[str, ...]) -> str:
    """For a list that is part of a larger command set: where each command is listed, and what becomes of it there."""
    listed = Counter(edge.text for edge in graph.edges)
    done = Counter(edge.text for edge in graph.edges if edge.info["command_succeeded"])
    rows = [(str(number), code(one), str(listed[one]), str(done[one])) for number, one in enumerate(commands)]
    return table(("", "command", "listed in", "carried out in, of these"), rows) + (
        "\n\nThe command set is the whole table, listed or not: an unlisted command is executed if the world allows "
        "it. Any other text is an invalid action."
    )


def _ends(env_id: str, family: Family) -> str:
    return "\n".join(
        [
            f"* Start: {family.start[0].lower()}{family.start[1:]}.",
            f'* `terminated`: {family.terminated}; `info["success"]` is True.',
            f"* `truncated`: {graph_of(env_id).limit} {family.unit} (`{family.limit}`) have passed without it; "
            f"{family.late}.",
        ]
    )


def _oracle(env_id: str) -> str:
    env = _inner(env_id)
    env.reset(seed=0)
    head = "`lang_envs.oracle(env)` says the first action of a shortest plan from any situation. From the start:\n\n"
    return head + episode(env, iter(env.oracle_action, ""))


def _score_table(env_id: str, family: Family) -> str:
    both = _scores()[env_id]
    unit = family.unit.removesuffix("s")
    returns = ["sum of rewards" if key == "1" else f"{key} per {unit}" for key in both["random"]["returns"]]
    clock = [family.unit] if family.unit != "steps" else []
    rows = [
        (
            {"random": "uniformly random", "oracle": "oracle"}[name],
            percent(one["success"]),
            *(f"{value:#.6g}" for value in one["returns"].values()),
            f"{one['actions']:.2f}",
            *([f"{one['duration']:.2f}"] if clock else []),
        )
        for name, one in both.items()
    ]
    head = ("agent", "success", *returns, "actions", *clock)
    return table(head, rows) + (
        "\n\nExact expectations; random play chooses uniformly from the list. Discounts leave the first "
        f"{unit} undiscounted. Made by `python -m benchmarks measure env-scores`."
    )


def _checked(row: EnvRow) -> str:
    found = recorded().get(row.id)
    search = (
        "* The oracle's plan comes from a search through all situations, and a test plays it through the interface.\n"
        "* Every point of the [contract](contract.md) is a test that runs on this id."
    )
    if found is not None:
        return (
            f"* Recordings of the original: {found['episodes']} episodes, {found['steps']:,} steps. A test "
            "replays them through `gym.make`, `action_space.encode` and `info`: rewards, ends, lists and feature "
            f"vectors are equal (`data/golden/README.md`).\n{search}"
        )
    traced = [one for one in rows_of(row.id.partition("-")[0]) if one.id in recorded() and "nouns" not in one.kwargs]
    return (
        "* No recordings: this id is a row on the rules and texts that it shares with "
        f"{' and '.join(_linked(one.id) for one in traced)}, which are checked against recordings.\n{search}"
    )


# ---------------------------------------------------------------------- lists of ids


def _linked(env_id: str, prefix: str = "") -> str:
    return f"[`{env_id}`]({prefix}{env_id}.md)"


def overview() -> str:
    """Table of every id."""
    rows = []
    for row in ENV_ROWS:
        both, found = _scores().get(row.id), recorded().get(row.id)
        use = "training" if row.id in TRAINING_IDS else "unseen" if row.id in UNSEEN_IDS else ""
        numbers = (f"{both['oracle']['actions']:.0f}", percent(both["random"]["success"])) if both else ("1", "")
        if family_of(row.id).is_random:
            numbers = keytoken_numbers(_inner(row.id))
        rows.append((_linked(row.id), row.summary, *numbers, str(found["episodes"]) if found else "", use))
    return table(("id", "task", "oracle's actions", "random success", "recorded episodes", "use"), rows)
