"""Markdown of tables, and of parts generated from the code: docstrings, settings, episodes, committed results."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from pathlib import Path
from string import Formatter
from typing import Any

import griffe
import gymnasium as gym
import numpy as np

import poad_sb3.settings
from poad_sb3.presets import ALGORITHMS

ROOT = Path(__file__).parent.parent
if str(ROOT) not in sys.path:
    sys.path.append(str(ROOT))  # `benchmarks` is a folder of the repository and no installed package
from benchmarks.reports.tables import markdown_table as table  # noqa: E402 - found by the line above

_LONGEST_SHOWN = 40  # characters of a text of several lines


@cache
def result(name: str) -> Any:
    """Return the content of a file of `data/results`."""
    return json.loads((ROOT / "data" / "results" / f"{name}.json").read_text(encoding="utf-8"))


def records(items: Mapping[str, Any] | Iterable[Any], columns: Mapping[str, str | Callable[[Any], str]]) -> str:
    """Write a table with a row for each record.

    Args:
        items: Records of `data/results`; by name, or in a list.
        columns: Of each column its head, and a format of the record's fields (with `name`; `value` of a record that is
            a number), or a function of them.
    """
    if isinstance(items, Mapping):
        items = [{"name": name, **(one if isinstance(one, Mapping) else {"value": one})} for name, one in items.items()]
    rows = [[form(one) if callable(form) else form.format_map(one) for form in columns.values()] for one in items]
    return table(list(columns), rows)


class _Format(Formatter):
    """`str.format` with the conversion `!n`, the number of elements."""

    def convert_field(self, value: Any, conversion: Any) -> Any:
        return len(value) if conversion == "n" else super().convert_field(value, conversion)


def filled(name: str, field: str, template: str) -> str:
    """Write a table of a file of `data/results` by a template in a page.

    Args:
        name: The file.
        field: Its field with the records.
        template: Lines of Markdown: the head of the table; the row, with the fields of a record in braces; and text
            below the table, with those of the file and `machine`.
    """
    content = result(name)
    head, row, *below = template.strip().splitlines()
    heads, forms = ([cell.strip() for cell in line.strip()[1:-1].split("|")] for line in (head, row))
    columns = {title: partial(_Format().vformat, form, ()) for title, form in zip(heads, forms, strict=True)}
    fields = {**content, "machine": machine(content.get("machine", content))}
    return "\n".join([records(content[field], columns), *(_Format().vformat(line, (), fields) for line in below)])


def code(text: object) -> str:
    """Format as code."""
    return f"`{text}`"


def quoted(text: str) -> str:
    """Format an observation: a sentence as a quotation, several lines as code that is only shown."""
    return f"```py\n{text}\n```" if "\n" in text else f"> {text}"


def machine(measured: Mapping[str, Any]) -> str:
    """Name the machine of a measurement and its packages."""
    versions = ", ".join(f"{package} {version}" for package, version in measured["versions"].items())
    return f"{measured['cpu']}, {measured['cores']} cores; Python {measured['python']}, {versions}"


def bullets(sentences: Iterable[str]) -> str:
    """Write a list."""
    return "\n".join(f"* {one}" for one in sentences)


def percent(rate: float) -> str:
    """Format a rate with three digits: 0.0030437 is 0.304 %, 1 is 100 %."""
    return f"{f'{100 * rate:#.3g}'.rstrip('.')} %" if rate else "0 %"


# ---------------------------------------------------------------------- docstrings


@cache
def _package(name: str) -> griffe.Module:
    return griffe.load(name, search_paths=[str(ROOT)])


def documented(path: str) -> griffe.Class:
    """Return the class `package.module.Class` as griffe reads it."""
    package, _, rest = path.partition(".")
    return _package(package)[rest]


def described(path: str, kind: griffe.DocstringSectionKind) -> dict[str, str]:
    """Return the names of a section of a class's docstring, with their descriptions."""
    section = next(one for one in documented(path).docstring.parse("google", warnings=False) if one.kind is kind)
    return {entry.name: " ".join(entry.description.split()) for entry in section.value}


def arguments(path: str) -> str:
    """Table of a class's arguments: names and defaults from its signature, meaning from its docstring."""
    owners = ["lang_envs.core.LangEnv", path] if path.startswith("lang_envs.envs.") else [path]  # shared options first
    defaults = {one.name: one.default for owner in owners for one in documented(owner).members["__init__"].parameters}
    rows = [
        (code(name), "" if defaults[name] is None else code(defaults[name]), meaning)
        for name, meaning in described(path, griffe.DocstringSectionKind.parameters).items()
        if not name.startswith("_")
    ]
    return table(("argument", "default", "meaning"), rows)


def settings(name: str) -> str:
    """Table of the fields of `PPOSettings`, `SamplingSettings` or `ModelSettings`."""
    kind = getattr(poad_sb3.settings, name)
    kinds, helps = kind.kinds(), kind.help()
    rows = [
        (code(field), code(repr(default) if default == "" else default), kinds[field].allowed, helps[field])
        for field, default in kind.defaults().items()
    ]
    return table(("argument", "default", "values", "meaning"), rows)


# ---------------------------------------------------------------------- methods


def _made(name: str) -> Any:
    """Return an algorithm with its defaults, without an environment."""
    return getattr(poad_sb3, name)("LLMPolicy", None, _init_setup_model=False)


def method_defaults(name: str) -> str:
    """Table of the arguments of a method whose defaults differ from POAD's, and those without effect."""
    made, poad, helps = _made(name), _made("POAD"), {}
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
        made = _made(name)
        unit = {"episode_return": "episode", "gigpo": "episode, action"}.get(made.estimator, made.credit_level)
        start = [
            code(made.estimator),
            *([code("gamma_token=None")] if made.gamma_token is None else []),
            *([code("bootstrap=action")] if made.bootstrap == "action" else []),
        ]
        baseline = "critic" if made.credit.has_critic else code(made.baseline)
        baseline += f", {code('state')}" if made.credit.compares_states and made.baseline != "state" else ""
        baseline += f", {code('leave_one_out')}" if made.leave_one_out else ""
        scale = code("normalize_advantage" if made.normalize_advantage else made.advantage_scale)
        ratio = code(made.ratio or made.credit_level)
        rows.append((name, unit, ", ".join(start), baseline, scale, ratio, code(made.loss_reduction)))
    return table(("method", "unit", "start", "baseline", "scale", "ratio", "reduction"), rows)


# ---------------------------------------------------------------------- episodes


def info_fields(info: dict[str, Any]) -> str:
    """Table of the fields of `info`."""

    def plain(value: Any) -> str:
        if not isinstance(value, str) or (value and "\n" not in value):
            return str(value.tolist() if isinstance(value, np.ndarray) else value)
        if len(value) <= _LONGEST_SHOWN:
            return repr(value)
        return f"{value[:_LONGEST_SHOWN]!r}... ({len(value)} characters)"

    rows = [(code(key), code(type(value).__name__), code(plain(value))) for key, value in info.items()]
    return table(("key of `info`", "type", "value"), rows)


def episode(env: gym.Env[Any, Any], actions: Iterable[str]) -> str:
    """Table of the steps of an episode, after its reset: actions, units of time where they vary, rewards."""
    rows, clock, total, counted = [], 0, 0.0, False
    for number, action in enumerate(actions, start=1):
        _, reward, terminated, truncated, info = env.unwrapped.step_text(action)
        total, counted = total + float(reward), "primitive_steps" in info
        clock += info.get("primitive_steps", 0)
        moves = (str(info["primitive_steps"]), str(clock)) if counted else ()
        rows.append((str(number), code(action), *moves, f"{float(reward):.6g}", f"{total:.6g}"))
        if terminated or truncated:
            break
    return table(("", "action", *(("primitives", "clock") if counted else ()), "reward", "sum"), rows)
