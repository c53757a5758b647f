"""A page for every id, generated from the code: docstrings, registry, live spaces, measured scores."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from functools import cache
from typing import Any

import griffe
from _coding import coding_facts, coding_sections
from _data import trial_example, trial_note
from _families import FAMILIES, Family, family_of, make, rows_of, started
from _tables import ROOT, arguments, code, documented, episode, info_fields, percent, quoted, result, table

from benchmarks.performance.env_scores import Graph, explore, random_policy
from benchmarks.reports.labels import labels_remark
from lang_envs import ENV_ROWS, TRAINING_IDS, UNSEEN_IDS, EnvRow
from lang_envs.agents import oracle_agent
from lang_envs.env_checker import CHECKS
from lang_envs.recording import encode_gif, record_episode

_CONTRACT = "* Every point of the [contract](contract.md) is a test that runs on this id."


@cache
def graph_of(env_id: str) -> Graph:
    """Return every situation that listed actions reach."""
    return explore(make(env_id), random_policy)


@cache
def recorded() -> dict[str, Counter[str]]:
    """Count episodes and steps recorded from the originals, by id."""
    counts: dict[str, Counter[str]] = {}
    for path in sorted((ROOT / "data" / "golden").glob("*.jsonl.gz")):
        stem = path.name.removesuffix(".jsonl.gz")
        family = "VirtualHome" if stem.startswith("virtualhome_") else "Overcooked"
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                trace = json.loads(line)
                name = (trace.get("variant") or stem.removeprefix("virtualhome_")).replace("_", " ").title()
                one = counts.setdefault(f"{family}-{name.replace(' ', '')}-v0", Counter())
                one.update({"episodes": 1, "steps": len(trace["steps"])})
    return counts


def oracle_gif(row: EnvRow) -> bytes:
    """Record the oracle's episode as an animated GIF."""
    return encode_gif(record_episode(row.id, oracle_agent(), **row.trial).frames)


# ---------------------------------------------------------------------- the page of an id


def page(row: EnvRow) -> str:
    """Write the page of an id."""
    family = family_of(row.id)
    env, text, info = started(row.id)
    module, _, name = row.entry_point.partition(":")
    docstring = documented(f"{module}.{name}").docstring.parse("google", warnings=False)
    texts = [one.value for one in docstring if one.kind is griffe.DocstringSectionKind.text]
    if family is FAMILIES["DataSciCoding"]:
        facts, own = coding_facts(row, env), coding_sections(row, env, family)
        limit = f"{env.max_attempts} {family.unit} (`{family.limit}`) without it"
    elif family.title in _DRAWN:
        facts, own = _drawn_facts(env, family), _drawn_sections(env, family)
        limit = f"{env.max_steps} {family.unit} (`{family.limit}`) have passed without it"
    else:
        facts, own = _listed_facts(row, family), _listed_sections(row, family)
        limit = f"{graph_of(row.id).limit} {family.unit} (`{family.limit}`) have passed without it"
    space = env.action_space
    glance = [
        ("observation space", code(env.observation_space)),
        ("action space", f"{code(space)}, shape {code(space.shape)}, {space.vocab_size} token ids"),
        *facts,
        ("render modes", ", ".join(map(code, env.metadata["render_modes"]))),
        ("entry point", code(row.entry_point)),
    ]
    if family.oracle:
        player = started(row.id)[0]
        own["Oracle"] = f"`lang_envs.oracle(env)` says {family.oracle}:\n\n" + episode(
            player, iter(player.oracle_action, "")
        )
    set_by_id = ", ".join(code(f"{name}={value!r}") for name, value in row.kwargs.items())
    parts = {
        "Make it": _example(row),
        "At a glance": table(("", code(row.id)), glance),
        "Description": "\n\n".join(texts),
        "First observation": f"{quoted(text)}\n\n`info` beside it:\n\n{info_fields(info)}",
        "Actions": own["Actions"],
        "Rewards": family.rewards(env),
        "Start and end": f"* Start: {family.start}.\n* `terminated`: {family.terminated}.\n"
        f"* `truncated`: {limit}; {family.late}.",
        "Oracle": own["Oracle"],
        "Scores": own["Scores"],
        "Arguments": f'`gym.make("{row.id}", **arguments)`; this id sets {set_by_id}.\n\n'
        + arguments(f"{module}.{name}"),
        "Checked against": own["Checked against"],
        "Version history": "* `v0`: first release.",
    }
    sections = [f"## {title}\n\n{body}" for title, body in parts.items()]
    return "\n\n".join([f"# {row.id}", _head(row, family), *sections]) + "\n"


def _head(row: EnvRow, family: Family) -> str:
    use = ""
    if row.id in UNSEEN_IDS:
        use = "One of the [unseen tasks](generalisation.md): **nothing may be trained on it.**"
    elif row.id in TRAINING_IDS:
        use = "One of the four [training tasks](generalisation.md)."
    head = f"{row.summary} {use}\n\nThe family's rules, texts and numbers: [{family.title}]({family.page})."
    if remark := labels_remark(row.id):
        head += f"\n\n{remark} See the [threat model](threat_model.md#known-labels)."
    return f"{head}\n\n{trial_note(row)}" if row.trial else head


def _example(row: EnvRow) -> str:
    block = f'import gymnasium as gym\nimport lang_envs\n\nenv = gym.make("{row.id}")\ntext, info = env.reset(seed=0)'
    shown = trial_example(row) if row.trial else f"```python\n{block}\n```"
    picture = f"![The oracle's episode](../assets/{row.id}.gif){{ width=480 }}"
    return f"{shown}\n\n{picture}\n\nThe oracle's episode, a picture after every action."


# ---------------------------------------------------------------------- families that list their actions


def _listed_facts(row: EnvRow, family: Family) -> list[tuple[str, str]]:
    graph = graph_of(row.id)
    fewest, *_, most = sorted(Counter(edge.source for edge in graph.edges).values())
    return [
        ("listed actions", str(fewest) if fewest == most else f"{fewest} to {most}"),
        ("situations", f"{len(graph.worlds):,} reached by listed actions, ends not counted"),
        ("time limit", f"{graph.limit} {family.unit}"),
        ("random", "nothing; the seed changes nothing"),
    ]


def _listed_sections(row: EnvRow, family: Family) -> dict[str, str]:
    graph, commands = graph_of(row.id), getattr(make(row.id), "command_set", None)
    head = f"In how many of the {len(graph.worlds):,} situations that listed actions reach:\n\n"
    return {
        "Actions": head + (_positions(graph) if commands is None else _commands(graph, commands)),
        "Scores": _score_table(row.id, family),
        "Checked against": _checked(row),
    }


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
    """For a list that is part of a larger command set: where each command is listed, and carried out."""
    listed = Counter(edge.text for edge in graph.edges)
    done = Counter(edge.text for edge in graph.edges if edge.info["command_succeeded"])
    rows = [(str(number), code(one), str(listed[one]), str(done[one])) for number, one in enumerate(commands)]
    return table(("", "command", "listed in", "carried out in, of these"), rows) + (
        "\n\nThe command set is the whole table, listed or not: an unlisted command is executed if the world allows "
        "it. Any other text is an invalid action."
    )


def _score_table(env_id: str, family: Family) -> str:
    both = result("env_scores")["scores"][env_id]
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
    return table(("agent", "success", *returns, "actions", *clock), rows) + (
        "\n\nExact expectations; random play chooses uniformly from the list. Discounts leave the first "
        f"{unit} undiscounted. Made by `python -m benchmarks measure env-scores`."
    )


def _checked(row: EnvRow) -> str:
    found = recorded().get(row.id)
    search = (
        "* The oracle's plan comes from a search through all situations, and a test plays it through the interface.\n"
        f"{_CONTRACT}"
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


# ---------------------------------------------------------------------- families that draw decisions at random

_DRAWN = {
    "KeyToken": (
        "the right key word of every decision, from the seed of the reset",
        "Exact: decisions are independent, each right with probability 1 / `n_actions`.",
        "A test compares the scores with played episodes, and the values of its table with the closed form.",
    ),
    "MultiKey": (
        "the target of every decision, from the seed of the reset",
        "Exact expectations: decisions are independent and drawn alike.",
        "A test compares the scores with an enumeration of all targets and actions.",
    ),
}
"""Of each family: the random part, how the scores are known, and their test."""


def _random_play(env: Any) -> tuple[str, str]:
    """Return success and mean sum of rewards of uniformly random actions, for a table."""
    return percent(env.random_success), f"{env.random_return:#.6g}"


def _drawn_facts(env: Any, family: Family) -> list[tuple[str, str]]:
    return [
        ("listed actions", str(len(env.sentences))),
        ("decisions", str(env.horizon)),
        ("time limit", f"{env.max_steps} {family.unit}"),
        ("random", _DRAWN[family.title][0]),
    ]


def _drawn_sections(env: Any, family: Family) -> dict[str, str]:
    actions = [(str(number), code(sentence)) for number, sentence in enumerate(env.sentences)]
    _, exact, tested = _DRAWN[family.title]
    scores = [
        ("uniformly random", *_random_play(env), str(env.horizon)),
        ("oracle", percent(1.0), f"{env.optimal_return:#.6g}", str(env.horizon)),
    ]
    return {
        "Actions": table(("position", "action"), actions)
        + "\n\nAll of them are listed always. The command set is the list: any other text is an invalid action.",
        "Scores": f"{table(('agent', 'success', 'sum of rewards', 'actions'), scores)}\n\n{exact}",
        "Checked against": f"* No recordings: the family is our own.\n* {tested}\n{_CONTRACT}",
    }


# ---------------------------------------------------------------------- lists of ids


def _linked(env_id: str) -> str:
    return f"[`{env_id}`]({env_id}.md)"


def ids(family: str) -> str:
    """List the ids of a family."""
    return ", ".join(_linked(row.id) for row in rows_of(family))


def families() -> str:
    """Table of the families and their ids."""
    rows = [
        (
            f"[{family.title}](environments/{family.page})",
            ", ".join(f"[{row.id.partition('-')[2]}](environments/{row.id}.md)" for row in rows_of(name)),
        )
        for name, family in FAMILIES.items()
    ]
    return table(("family", "ids"), rows)


def overview() -> str:
    """Table of every id."""
    rows = []
    for row in ENV_ROWS:
        both, found = result("env_scores")["scores"].get(row.id), recorded().get(row.id)
        use = "training" if row.id in TRAINING_IDS else "unseen" if row.id in UNSEEN_IDS else ""
        numbers = (f"{both['oracle']['actions']:.0f}", percent(both["random"]["success"])) if both else ("1", "")
        if family_of(row.id).title in _DRAWN:
            env: Any = make(row.id)
            numbers = str(env.horizon), _random_play(env)[0]
        rows.append((_linked(row.id), row.summary, *numbers, str(found["episodes"]) if found else "", use))
    return table(("id", "task", "oracle's actions", "random success", "recorded episodes", "use"), rows)


# ---------------------------------------------------------------------- pieces of other pages


def observation(env_id: str) -> str:
    """Show the first observation of an id."""
    return quoted(started(env_id)[1])


def start(env_id: str) -> str:
    """Show the first observation of an id, and its info."""
    _, text, info = started(env_id)
    return f"{quoted(text)}\n\n{info_fields(info)}"


def after_failure(env_id: str) -> str:
    """Show the observation after code that fails: a forgotten import."""
    env, *_ = started(env_id)
    return quoted(env.step_text("model = LogisticRegression()\nmodel.fit(x_train, y_train)")[0])


def drawing(env_id: str) -> str:
    """Draw the start of an id as text."""
    env, *_ = started(env_id, render_mode="ansi")
    return f"```text\n{env.render()}\n```"


def checks() -> str:
    """Table of the checks of `lang-envs check`."""
    return table(("check", "what it asks"), [(code(check.name), check.description) for check in CHECKS])


def examples() -> str:
    """Show every script of the folder `examples`."""
    parts = []
    for path in sorted((ROOT / "examples").glob("*.py")):
        title = path.stem.replace("_", " ").capitalize()
        parts.append(f'## {title}\n\n```python title="examples/{path.name}"\n{path.read_text(encoding="utf-8")}```')
    return "\n\n".join(parts)
