"""Build hooks of the site: what can be read off the live code is generated, so that it cannot drift.

A page holds markers such as `<!-- generated: start Overcooked-TomatoSalad-v0 -->`; each is replaced by Markdown. A
marker that nothing answers fails the build.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import griffe
import gymnasium as gym
import numpy as np
from _kitchen import kitchen_graph
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from PIL import Image

from lang_envs import ENV_ROWS

ROOT = Path(__file__).parent.parent
KITCHEN_ID = "Overcooked-TomatoSalad-v0"
RESULTS, PICTURE = ROOT / "benchmarks" / "results", "../assets/tomato-salad-curves.png"
ENV_PAGES = {"Overcooked": "environments/overcooked.md"}
FIRST_CHOP = ("pick up the tomato", "put the tomato on the cutting board", "chop the tomato")
FARMING_CYCLE = ("pick up the tomato", "serve the dish", *FIRST_CHOP)
SHORTEST, BOWL_FIRST = (0, 2, 4, 0, 1, 3), (0, 2, 4, 1, 0, 3)
"""Two ways to serve the salad, as positions in the admissible list: fetch the tomato to the bowl, or the bowl to it."""

_MARKER = re.compile(r"<!-- generated: (?P<name>[a-z-]+)(?: (?P<argument>\S+))? -->")


# ---------------------------------------------------------------------- mkdocs events


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the page of decisions at the end of the navigation, where there is one."""
    if (Path(config.docs_dir) / "decisions.md").exists() and config.nav is not None:
        config.nav.append({"Decisions": "decisions.md"})
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pictures that the live renderer draws."""
    files.append(File.generated(config, "assets/tomato-salad-oracle.gif", content=_oracle_gif(KITCHEN_ID)))
    curves = RESULTS / "tomato_salad.png"
    if curves.exists():
        files.append(File.generated(config, "assets/tomato-salad-curves.png", content=curves.read_bytes()))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Replace the markers of a page."""
    return _MARKER.sub(lambda match: _generate(match["name"], match["argument"]), markdown)


def _generate(name: str, argument: str | None) -> str:
    if name not in _GENERATORS:
        raise PluginError(f"Expected a marker among {sorted(_GENERATORS)}; got {name!r}.")
    return _GENERATORS[name](argument or "")


# ---------------------------------------------------------------------- what markers stand for


def _environments(_: str) -> str:
    def linked(env_id: str) -> str:
        return f"[`{env_id}`]({ENV_PAGES[env_id.split('-')[0]]})"

    return _table(("id", "task"), [(linked(row.id), row.summary) for row in ENV_ROWS])


def _spaces(env_id: str) -> str:
    env = gym.make(env_id)
    action, observation = env.action_space, env.observation_space
    rows = [
        ("observation space", f"`{observation}`"),
        ("action space", f"`{action}`, shape `{action.shape}`, dtype `{action.dtype}`, {action.vocab_size} token ids"),
        ("render modes", ", ".join(f"`{mode}`" for mode in env.metadata["render_modes"])),
        ("arguments of the id", f"`{env.spec.kwargs}`"),
    ]
    return _table(("", f"`{env_id}`"), rows)


def _start(env_id: str) -> str:
    text, info = gym.make(env_id).reset(seed=0)
    return f"> {text}\n\n" + _table(
        ("key of `info`", "type", "value after `reset()`"),
        [(f"`{key}`", f"`{type(value).__name__}`", f"`{_plain(value)}`") for key, value in info.items()],
    )


def _drawing(env_id: str) -> str:
    env = gym.make(env_id, render_mode="ansi")
    env.reset(seed=0)
    return f"```text\n{env.render()}\n```"


def _oracle(env_id: str) -> str:
    env = gym.make(env_id)
    env.reset(seed=0)
    return _episode(env, iter(env.unwrapped.oracle_action, ""))


def _farming(env_id: str) -> str:
    env = gym.make(env_id)
    env.reset(seed=0)
    return _episode(env, (*FIRST_CHOP, *FARMING_CYCLE))


def _phrases(_: str) -> str:
    graph = kitchen_graph(gym.make(KITCHEN_ID).unwrapped)
    shown = [graph.views(position) for position in range(graph.rewards.shape[1])]
    rows = [(str(number), ", ".join(f"`{phrase}`" for phrase in phrases)) for number, phrases in enumerate(shown)]
    head = (f"Over the {len(graph.states)} situations that can be reached between actions:", "")
    return "\n".join([*head, _table(("position", "phrases"), rows)])


def _kitchen_values(_: str) -> str:
    graph, rows = kitchen_graph(gym.make(KITCHEN_ID).unwrapped), []
    for gamma in (0.99, 0.98, 0.97, 0.95):
        numbers = (graph.value(SHORTEST, gamma), graph.value(BOWL_FIRST, gamma), graph.endless_value(gamma))
        rows.append((f"{gamma:g}", *map("{:.3f}".format, numbers), "farms" if graph.farms(gamma) else "delivers"))
    head = ("`gamma`, per action", "oracle's plan", "bowl first", "best plan", "the best plan")
    return f"{_table(head, rows)}\n\nFarming is the best plan for `gamma` above {graph.farming_threshold():.4f}."


def _arguments(path: str) -> str:
    """Table of a class's arguments: names and defaults from its signature, meaning from its docstring."""
    package, _, rest = path.partition(".")
    cls = griffe.load(package, search_paths=[str(ROOT)])[rest]
    sections = cls.docstring.parse("google")
    described = next(section.value for section in sections if section.kind is griffe.DocstringSectionKind.parameters)
    defaults = {parameter.name: parameter.default for parameter in cls.members["__init__"].parameters}
    rows = [
        (f"`{entry.name}`", "" if defaults[entry.name] is None else f"`{defaults[entry.name]}`", _line(entry))
        for entry in described
        if not entry.name.startswith("_")
    ]
    return _table(("argument", "default", "meaning"), rows)


def _pocket(_: str) -> str:
    from poad_sb3.pocket import POCKET_FOLDER

    facts = json.loads((POCKET_FOLDER / "training.json").read_text(encoding="utf-8"))
    shape = json.loads((POCKET_FOLDER / "config.json").read_text(encoding="utf-8"))
    size = (POCKET_FOLDER / "model.safetensors").stat().st_size / 1e6
    rows = [
        ("architecture", f"`{shape['architectures'][0]}`, weights {shape['dtype']}"),
        ("parameters", f"{facts['parameters']:,} ({size:.1f} MB as safetensors)"),
        ("size", f"{facts['n_layers']} layers of width {facts['hidden_size']}, {facts['n_heads']} heads"),
        ("vocabulary", f"{shape['vocab_size']} byte-level BPE tokens (at most {facts['vocab_size']} were asked for)"),
        ("context", f"{shape['max_position_embeddings']} tokens"),
        ("corpus", f"{facts['corpus_lines']:,} lines, {facts['corpus_tokens']:,} tokens, all generated"),
        ("of which random play", f"{facts['n_play']:,} lines from {', '.join(map(_code, facts['training_ids']))}"),
        ("of which sentences", f"{facts['n_sentences']:,} lines"),
        ("training", f"{facts['n_batches']} batches of {facts['batch_size']}, peak rate {facts['learning_rate']:g}"),
        ("final loss", f"{facts['final_loss']} nats per token (mean of the last 50 batches)"),
        ("seed", str(facts["seed"])),
        ("trained with", f"torch {facts['torch']}"),
    ]
    return _table(("", "pocket model"), rows)


def _results(_: str) -> str:
    """Table of the committed learning study, and its picture."""
    if not (path := RESULTS / "tomato_salad.json").exists():
        return "No results are committed yet; `make bench` makes them."
    study = json.loads(path.read_text(encoding="utf-8"))
    rows = [(name, "", *_summary(study["references"][name])) for name in ("random", "oracle")]
    rows += [
        (f"POAD, seed {run['seed']}", f"{run['train_seconds']:.0f}", *_summary(run["final"])) for run in study["runs"]
    ]
    table = _table(("agent", "seconds", "return", "95 %", "served", "actions", "episodes"), rows)
    where = f"{study['steps']:,} steps each, on {study['cores']} cores ({study['cpu']}). Command: `{study['command']}`."
    error = max(run["largest_first_ratio_error"] for run in study["runs"])
    picture = f"![Learning curves]({PICTURE})" if (RESULTS / "tomato_salad.png").exists() else ""
    return f"{table}\n\n{where} Largest `first_ratio_error` of all updates: {error:.1e}.\n\n{picture}"


_GENERATORS: dict[str, Callable[[str], str]] = {
    "arguments": _arguments,
    "drawing": _drawing,
    "environments": _environments,
    "farming": _farming,
    "kitchen-values": _kitchen_values,
    "oracle": _oracle,
    "phrases": _phrases,
    "pocket": _pocket,
    "results": _results,
    "spaces": _spaces,
    "start": _start,
}


# ---------------------------------------------------------------------- parts


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def _code(text: str) -> str:
    return f"`{text}`"


def _plain(value: Any) -> str:  # noqa: ANN401 - anything in info
    return str(value.tolist() if isinstance(value, np.ndarray) else value)


def _summary(summary: dict[str, Any]) -> tuple[str, ...]:
    low, high = summary["return_interval"]
    served = f"{100 * summary['success_rate']:.1f} %"
    numbers = (f"{summary['mean_return']:.3f}", f"{low:.3f} to {high:.3f}", served, f"{summary['mean_actions']:.1f}")
    return (*numbers, str(summary["n_episodes"]))


def _line(entry: griffe.DocstringParameter) -> str:
    return " ".join(entry.description.split())


def _episode(env: gym.Env[Any, Any], actions: Iterable[str]) -> str:
    rows, clock, total = [], 0, 0.0
    for action in actions:
        _, reward, terminated, truncated, info = env.unwrapped.step_text(action)
        clock, total = clock + info["primitive_steps"], total + reward
        rows.append((_code(action), str(info["primitive_steps"]), str(clock), f"{reward:+.5f}", f"{total:+.5f}"))
        if terminated or truncated:
            break
    return _table(("action", "primitives", "clock", "reward", "sum"), rows)


def _oracle_gif(env_id: str) -> bytes:
    env = gym.make(env_id, render_mode="rgb_array")
    env.reset(seed=0)
    frames, over = [Image.fromarray(env.render())], False
    while not over:
        _, _, terminated, truncated, _ = env.unwrapped.step_text(env.unwrapped.oracle_action())
        frames.append(Image.fromarray(env.render()))
        over = terminated or truncated
    file = io.BytesIO()
    frames[0].save(file, "GIF", save_all=True, append_images=frames[1:], duration=900, loop=0, optimize=True)
    return file.getvalue()
