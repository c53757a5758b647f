"""The data of the page: an index, a table of texts, and blocks of episodes that are inflated when one is opened.

Layout, version `PAGE`. Numbers that the page computes with (rewards) are exact; values are multiples of `q`, logarithms
of probabilities and other recorded numbers multiples of 0.001. Texts, lists of actions and lists of tokens stand once,
in the table of texts, and are named by their place in it.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any

from lang_envs.redaction import without_private
from lang_envs.report.data import Report
from lang_envs.report.errors import ReportError
from lang_envs.report.pictures import Tiles, changes, frames_of

__all__ = ["EPISODES_PER_BLOCK", "PAGE", "pack"]

PAGE = 1
EPISODES_PER_BLOCK = 8
_VALUE_UNIT = 5e-5
_LARGEST = 2**31
_COLUMNS = {
    "seed": "seed",
    "episode": "episode",
    "at": "training_steps",
    "group": "group",
    "resetSeed": "reset_seed",
    "return": "return",
    "discounted": "discounted_return",
    "success": "success",
    "steps": "steps",
    "invalid": "invalid_actions",
    "terminated": "terminated",
    "truncated": "truncated",
    "replay": "replay",
}
"""Columns of the index, and the fields of an episode that they hold."""
_STEP_EXTRAS = ("score", "status", "error", "scores")


class _Table:
    """Values that stand once each, by place."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self._places: dict[Hashable, int] = {}

    def place(self, key: Hashable, row: Callable[[], Any]) -> int:
        number = self._places.get(key)
        if number is None:
            number = self._places[key] = len(self.rows)
            self.rows.append(row())
        return number


class _Texts:
    """The table of texts: `strings`, and `lists` of places of strings."""

    def __init__(self) -> None:
        self.strings, self.lists = _Table(), _Table()

    def text(self, text: str) -> int:
        return self.strings.place(text, lambda: text)

    def list(self, texts: Sequence[str]) -> int:
        return self.lists.place(tuple(texts), lambda: [self.text(text) for text in texts])


def pack(report: Report, *, pictures: int, shown: int | None = None) -> dict[str, bytes]:
    """Return the blocks of a page by name: `index`, `texts`, `tiles`, and `b0`, `b1`, ... of the episodes.

    Args:
        report: Content of the page.
        pictures: Number of episodes that are replayed for their pictures; see `_first_of_each`.
        shown: Maximum number of episodes whose steps are kept; None for all.

    Raises:
        ReportError: If a number is not finite.
    """
    episodes = report.episodes
    agents, tasks = (list(dict.fromkeys(record[name] for record in episodes)) for name in ("agent", "task"))
    drawn, kept = _first_of_each(episodes, pictures), _first_of_each(episodes, shown)
    texts, tiles = _Texts(), Tiles()
    blocks: dict[str, bytes] = {}
    places: list[int | None] = []
    waiting: list[dict[str, Any]] = []
    packed = 0
    for number, episode in enumerate(episodes):
        if not episode.get("steps_list") or number not in kept:
            places.append(None)
            continue
        waiting.append(_pack_episode(episode, texts, tiles, with_pictures=number in drawn))
        places.append(packed)
        packed += 1
        if len(waiting) == EPISODES_PER_BLOCK:
            blocks[f"b{len(blocks)}"] = deflated(waiting)
            waiting = []
    if waiting:
        blocks[f"b{len(blocks)}"] = deflated(waiting)
    numbers_of = {
        name: {value: rank for rank, value in enumerate(names)} for name, names in (("agent", agents), ("task", tasks))
    }
    columns: dict[str, list[Any]] = {
        name: [numbers_of[name][record[name]] for record in episodes] for name in ("agent", "task")
    }
    origins = _Table()
    columns["origin"] = [origins.place(text, partial(json.loads, text)) for text in map(_origin, episodes)]
    columns |= {name: [_plain(record.get(source)) for record in episodes] for name, source in _COLUMNS.items()}
    index = {
        "page": PAGE,
        "title": report.title,
        "metrics": [metric._asdict() for metric in report.metrics],
        "scores": [score._asdict() for score in report.scores],
        "curves": [_curve(curve._asdict()) for curve in report.curves],
        "runs": [run._asdict() for run in report.runs],
        "agents": agents,
        "tasks": tasks,
        "origins": origins.rows,
        "episodes": {**columns, "place": places},
        "perBlock": EPISODES_PER_BLOCK,
        "tileColumns": tiles.columns,
    }
    blocks_of_all = {
        "index": deflated(index),
        "texts": deflated({"strings": texts.strings.rows, "lists": texts.lists.rows}),
    }
    if len(tiles):
        blocks_of_all["tiles"] = base64.b64encode(tiles.atlas())
    return blocks_of_all | blocks


def _origin(episode: Mapping[str, Any]) -> str:
    """Return the environment of an episode, its discount and its arguments as JSON."""
    settings = (episode.get("header") or {}).get("env_settings") or {}
    origin = {"env": episode["env"], "env_settings": settings, "discount": episode.get("discount", 1.0)}
    return json.dumps(without_private(json.loads(json.dumps(origin, default=str))))


def deflated(content: object) -> bytes:
    """Return JSON as gzip in base64: the same bytes for the same content, without a character that ends an element."""
    try:
        text = json.dumps(content, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    except ValueError as error:
        raise ReportError("Expected finite numbers in a report; got NaN or an infinity.") from error
    return base64.b64encode(gzip.compress(text.encode("ascii"), 9, mtime=0))


def _first_of_each(episodes: Sequence[Mapping[str, Any]], n: int | None) -> set[int]:
    """Return the indices of n episodes.

    The first of each checkpoint, success and failure of each agent and task come first, then the rest in order. Of
    one agent on one task the last episode comes before them: the overview plays it.
    """
    if n is None or n >= len(episodes):
        return set(range(len(episodes)))
    first: dict[tuple[Any, ...], int] = {}
    for number, episode in enumerate(episodes):
        if episode.get("steps_list"):
            for kind in (episode.get("training_steps"), bool(episode.get("success"))):
                first.setdefault((episode["agent"], episode["task"], type(kind), kind), number)
    is_single = len({(agent, task) for agent, task, *_ in first}) == 1
    last = [number for number, episode in enumerate(episodes) if episode.get("steps_list")][-1:] if is_single else []
    order = dict.fromkeys([*last, *first.values(), *range(len(episodes))])
    return set(list(order)[: max(n, 0)])


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, bool) else value


def _curve(curve: dict[str, Any]) -> dict[str, Any]:
    def rounded(values: Sequence[float] | None) -> list[float] | None:
        return None if values is None else [float(f"{value:.6g}") for value in values]

    lines = {name: rounded(curve[name]) for name in ("steps", "values", "low", "high")}
    return {**curve, **lines, "by_seed": {str(seed): rounded(line) for seed, line in curve["by_seed"].items()}}


def _pack_episode(episode: Mapping[str, Any], texts: _Texts, tiles: Tiles, *, with_pictures: bool) -> dict[str, Any]:
    steps = episode["steps_list"]
    last = steps[-1]
    packed: dict[str, Any] = {
        "o": [texts.text(step["observation"]) for step in steps],
        "l": [None if step["admissible_actions"] is None else texts.list(step["admissible_actions"]) for step in steps],
        "a": [texts.text(step["action"]) for step in steps],
        "r": [step["reward"] for step in steps],
    }
    if episode.get("credit"):
        packed["g"] = [episode["credit"][name] for name in ("gamma", "gae_lambda")]
        packed["g"].append(episode["credit"].get("gae_lambda_token", 1.0))
    if last.get("final_observation") is not None:
        packed["f"] = texts.text(last["final_observation"])
    if episode["env"] != episode["task"]:
        packed["env"] = texts.text(episode["env"])
    packed |= _flags(episode, steps)
    if any(step.get("note") for step in steps):
        packed["n"] = [texts.text(step["note"]) if step.get("note") else None for step in steps]
    if all(step.get("tokens") for step in steps):
        packed["t"] = [texts.list(step["tokens"]) for step in steps]
        packed |= _token_numbers(steps)
    if any(step.get("prompt_tokens") for step in steps):
        packed["x"] = [texts.list(step["prompt_tokens"]) if step.get("prompt_tokens") else None for step in steps]
    if any(step.get("alternatives") for step in steps):
        packed["alternatives"] = [
            [
                None if pairs is None else [[texts.text(text), _thousandths(log_prob)] for text, log_prob in pairs]
                for pairs in step.get("alternatives") or ()
            ]
            for step in steps
        ]
    if any(step.get("action_probs") for step in steps):
        packed["u"] = [[_thousandths(probability) for probability in step.get("action_probs") or ()] for step in steps]
    if any(step.get(name) is not None for step in steps for name in _STEP_EXTRAS):
        packed["d"] = [
            {
                name: texts.text(value) if isinstance(value, str) else value
                for name in _STEP_EXTRAS
                if (value := step.get(name)) is not None
            }
            for step in steps
        ]
    if with_pictures:
        frames = frames_of(episode["header"], episode)
        if isinstance(frames, str):
            packed["noPictures"] = texts.text(frames)
        else:
            drawn = [tiles.add(frame) for frame in frames]
            packed["size"] = [drawn[0].width, drawn[0].height]
            packed["p"] = [changes(before, after) for before, after in zip([None, *drawn[:-1]], drawn, strict=True)]
    return packed


def _flags(episode: Mapping[str, Any], steps: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return invalid actions, successes and moves of the steps, where they are not those of most episodes."""
    flags: dict[str, Any] = {}
    if any(step["invalid"] for step in steps):
        flags["i"] = [int(step["invalid"]) for step in steps]
    if [step["success"] for step in steps] != [*[False] * (len(steps) - 1), episode["success"]]:
        flags["s"] = [step["success"] for step in steps]
    if any(step["moves"] != 1 for step in steps):
        flags["m"] = [step["moves"] for step in steps]
    return flags


def _token_numbers(steps: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the numbers of tokens: log-probabilities, values, number of options, entropies, recorded credits."""
    numbers: dict[str, Any] = {}
    if all(step.get("log_probs") for step in steps):
        numbers["k"] = [[_thousandths(log_prob) for log_prob in step["log_probs"]] for step in steps]
    if all(step.get("values") for step in steps):
        numbers |= _values([step["values"] for step in steps], steps[-1].get("final_value"))
    if all(step.get("token_options") for step in steps):
        numbers["w"] = [step["token_options"] for step in steps]
    if all(step.get("entropies") for step in steps):
        numbers["e"] = [
            [None if entropy is None else _thousandths(entropy) for entropy in step["entropies"]] for step in steps
        ]
    names = list(dict.fromkeys(name for step in steps for name in step.get("credits") or ()))
    if names:
        numbers["c"] = {name: [(step.get("credits") or {}).get(name) or None for step in steps] for name in names}
    return numbers


def _values(values: Sequence[Sequence[float]], final: float | None) -> dict[str, Any]:
    largest = max(abs(value) for row in (*values, [final or 0.0]) for value in row)
    unit = max(_VALUE_UNIT, largest / (_LARGEST / 2))
    packed: dict[str, Any] = {"v": [[round(value / unit) for value in row] for row in values], "q": unit}
    return packed if final is None else {**packed, "z": round(final / unit)}


def _thousandths(value: float) -> int:
    return round(1000 * min(max(value, -_LARGEST), _LARGEST))
