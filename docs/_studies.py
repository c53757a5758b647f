"""Results of the studies as Markdown: what `python -m benchmarks study NAME` wrote."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from _tables import code, percent, table

from benchmarks.runner.machine import RESULTS

__all__ = ["STUDY_PICTURES", "poad_results", "same_policy_results", "study_results", "unseen_results"]

_FOLDER = RESULTS / "studies"
STUDY_PICTURES = {f"studies/{path.name}": path for path in sorted(_FOLDER.glob("*.png"))}
"""Pictures by their place among the assets."""
_SAME, _OWN = 0, 1  # order of the panels of `curves`

Content = Mapping[str, Any]


def _read(name: str) -> Content | None:
    path = _FOLDER / f"{name}.json"
    found: Content | None = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
    return found


def study_results(name: str) -> str:
    """All that a study found."""
    content = _read(name)
    if content is None:
        return f"No results are committed yet; {code(f'python -m benchmarks study {name}')} makes them."
    parts = [_KINDS[name](content) if name in _KINDS else _compared(content), *_pictures(name)]
    if content.get("missing"):
        parts.append(f"Not run yet: {'; '.join(one.rstrip('.') for one in content['missing'])}.")
    machines = content["measured_with"]
    made = [f"{one['cpu']}, {one['cores']} cores; Python {one['python']}, {_versions(one)}" for one in machines]
    parts.append(f"Made by {code(content['command'])}" + (f"; runs on {' and on '.join(made)}." if made else "."))
    return "\n\n".join(parts)


def _versions(machine: Mapping[str, Any]) -> str:
    return ", ".join(f"{package} {version}" for package, version in machine["versions"].items())


def _pictures(name: str, up: str = "") -> list[str]:
    """Those of a study: NAME.png, and NAME_part.png."""
    names = [one for one in STUDY_PICTURES if one.removeprefix("studies/").split(".")[0].split("_")[0] == name]
    return [f"![{name}]({up}assets/{one})" for one in names]


# ---------------------------------------------------------------------- learning curves


def _compared(content: Content) -> str:
    parts = _orders(content)
    parts.append(f"Published: {content['published']}")
    parts += [_methods(one, content) for one in content["comparisons"] if one["methods"]]
    parts.append("\n".join(f"* {one}" for one in content["remarks"]))
    return "\n\n".join(parts)


def _orders(content: Content) -> list[str]:
    """Where the order is not the paper's, and where it is."""
    heads = {"differs": "In another order than in the paper", "agrees": "In the paper's order"}
    return [
        f"**{head}**\n\n" + "\n".join(f"* {one}" for one in content[key]) for key, head in heads.items() if content[key]
    ]


def _methods(one: Content, content: Content) -> str:
    rows = [
        (
            name,
            f"{found['learning_rate']:g}{'*' if found['at_edge_of_rates'] else ''}",
            str(len(found["seeds"])),
            f"{found['untrained']:.3f}",
            _interval(found["area"]),
            _interval(found["final"]),
            percent(found["final_success"]) if found["final_success"] else "0 %",
            *([_probability(one["improvement"], name)] if one["improvement"] else []),
        )
        for name, found in one["methods"].items()
    ]
    head = ["", "rate", "seeds", "untrained", "area", "last return", "last success"]
    head += [f"{pair['first']} better" for pair in one["improvement"][:1]]
    exact = content["references"].get(one["env"])
    levels = "" if exact is None else f" Random {exact['random']:.3f}, oracle {exact['oracle']:.3f}."
    told = f"{one['steps']:,} steps, {one['evaluation']['episodes']} episodes every {one['evaluation']['every']:,}."
    if any(found["at_edge_of_rates"] for found in one["methods"].values()):
        told += " *: the smallest or the largest rate that was tried."
    return f"**{one['env']}, {one['title']}.** {told}{levels}\n\n{table(head, rows)}"


def _interval(one: Mapping[str, float | None]) -> str:
    if one["low"] is None:
        return f"{one['value']:.3f}"
    return f"{one['value']:.3f} [{one['low']:.3f}, {one['high']:.3f}]"


def _probability(pairs: Sequence[Content], name: str) -> str:
    """That the first method's area is larger."""
    first = pairs[0]["first"] if pairs else ""
    found = next((one["area"] for one in pairs if one["first"] == first and one["second"] == name), None)
    return "" if found is None else _interval(found).replace(".000", "")


def same_policy_results(env_id: str) -> str:
    """The headline panel of one task."""
    return _panel(env_id, _SAME)


def _panel(env_id: str, panel: int) -> str:
    content = _read("curves")
    found = [] if content is None else [one for one in content["comparisons"] if one["env"] == env_id]
    if content is None or not found or not found[panel]["methods"]:
        return f"Not measured yet: {code('python -m benchmarks study curves')} makes the numbers."
    return _methods(found[panel], content)


def poad_results(_: str) -> str:
    """POAD with its own policy on all tasks that were run."""
    content = _read("curves")
    by_env: dict[str, list[Content]] = {}
    for one in content["comparisons"] if content else ():
        by_env.setdefault(one["env"], []).append(one)
    rows = []
    for env_id, panels in by_env.items():
        poad, exact = panels[_OWN]["methods"].get("POAD"), content["references"][env_id]  # type: ignore[index]
        if poad is not None:
            rows.append(
                (
                    code(env_id),
                    f"{panels[_OWN]['steps']:,}",
                    f"{exact['discount']:g}",
                    f"{exact['random']:.3f}",
                    ", ".join(f"{value:.3f}" for value in poad["finals"]),
                    f"{exact['oracle']:.3f}",
                    percent(poad["final_success"]),
                    f"{poad['cpu_seconds']:.0f}",
                )
            )
    if not rows:
        return f"Not measured yet: {code('python -m benchmarks study curves')} makes the numbers."
    head = ("task", "steps", "discount", "random", "POAD, by seed", "oracle", "success", "seconds")
    return table(head, rows)


# ---------------------------------------------------------------------- the other studies


def _generalised(content: Content) -> str:
    if not content["success"]:
        return f"{content['published_label'].capitalize()}:\n\n{_published_unseen(content)}"
    parts = [
        *_orders(content),
        f"Trained on {code(content['trained_on'])} for {content['steps']:,} steps, {content['episodes']} episodes of "
        f"each unseen task and seed; seeds {', '.join(map(str, content['seeds']))}. Mean return, discounted 0.95 per "
        "step, with its interval over seeds, and success.",
        _unseen_table(content),
        f"The same, {content['published_label']}:",
        _published_unseen(content),
    ]
    return "\n\n".join(parts)


def _unseen_table(content: Content) -> str:
    returns, success = content["discounted_return"], content["success"]
    rows = []
    for env_id in next(iter(returns.values())):
        cells = []
        for agent, scores in returns.items():
            value, low, high = scores[env_id]
            rate = f"{100 * success[agent][env_id][0]:.0f} %"
            cells.append(f"{_interval({'value': value, 'low': low, 'high': high})}, {rate}")
        rows.append((code(env_id), *cells))
    return table(("", *returns), rows)


def _published_unseen(content: Content) -> str:
    published = content["published"]
    rows = [
        (code(env_id), *(f"{scores[env_id][0]:.3f}, {100 * scores[env_id][1]:.0f} %" for scores in published.values()))
        for env_id in next(iter(published.values()))
    ]
    return table(("", *published), rows)


def unseen_results(_: str) -> str:
    """Unseen tasks before and after training."""
    content = _read("generalisation")
    if content is None or not content["success"]:
        return f"Not measured yet: {code('python -m benchmarks study generalisation')} makes the numbers."
    return _unseen_table(content)


def _credited(content: Content) -> str:
    if not content["tasks"]:
        return "No episode has been recorded."
    rows = [
        (code(one["env"]), name, f"{one['returns_after_training'][name]:.3f}", f"{share:.3f}")
        for one in content["tasks"].values()
        for name, share in one["differs_within_actions"].items()
    ]
    head = ("task", "critic and rule of", "its return", "share of the variance of advantages inside actions")
    return table(head, rows)


def _timed(content: Content) -> str:
    rows = [
        (
            code(one["env"]),
            one["policy"],
            one["method"],
            f"{one['steps']:,}",
            f"{one['seconds']:.1f}",
            f"{one['steps_per_second']:.0f}",
        )
        for one in content["rows"]
    ]
    head = ("task", "policy", "method", "steps", "seconds", "steps/s")
    published = table(("published", "time"), list(content["published"].items()))
    return f"{content['how']}\n\n{table(head, rows)}\n\n{content['published_label']}:\n\n{published}"


def _coded(content: Content) -> str:
    rates = content["rates"] or {}
    tuning = content["tuning"]
    tuned = ", ".join(f"{method} {rate:g}" for method, rate in rates.items()) or "not chosen yet"
    parts = [
        "\n".join(f"* {one}" for one in content["verdicts"]) or "No claim can be judged yet.",
        f"Every run makes {content['attempts']:,} attempts. Learning rates: {tuned} (both methods tried with "
        f"{', '.join(f'{rate:g}' for rate in tuning['rates'])} on {tuning['table']}, seed {tuning['seed']}, "
        f"{tuning['attempts']:,} attempts each).",
        *(_coded_table(name, one) for name, one in content["tables"].items()),
        *_coded_at_constant_rates(content["constant_rates"]),
        f"{content['statistics'].capitalize()}.",
        "\n".join(f"* {one}" for one in content["remarks"]),
    ]
    return "\n\n".join(parts)


def _coded_table(name: str, one: Content) -> str:
    rows = []
    for method, found in one["methods"].items():
        end, best = found["end"], found["best"]
        scores = (", ".join(f"{value:.4f}" for value in best[where]) or "none" for where in ("paid", "fresh"))
        measured = (_measured(end[measure]) for measure in _MEASURED)
        found_at = ", ".join(f"{number:,}" for number in found["found_at"]) or "never"
        rows.append((method, str(len(found["seeds"])), *measured, *scores, found_at))
    head = (
        "",
        "seeds",
        "reward",
        "share that runs",
        "AUC of what runs",
        "best, as paid",
        "best, fresh halves",
        "found at",
    )
    cited = ", ".join(f"{method} {value:.4f}" for method, value in one["published"].items())
    rest = f"\n\nPublished on the same arrays, each by its own protocol: {cited}." if cited else ""
    return f"**{name}** ({one['preprocessing']} preprocessing)\n\n{table(head, rows)}{rest}"


def _measured(one: Content) -> str:
    return "" if one["value"] is None else _interval(one)


def _coded_at_constant_rates(content: Content) -> list[str]:
    if not content:
        return []
    rows = [
        (name, method, str(len(one["seeds"])), *(_measured(one["end"][measure]) for measure in _MEASURED))
        for name, of_table in content["tables"].items()
        for method, one in of_table["methods"].items()
        if "claims" in one
    ]
    head = ("", "", "seeds", "reward", "share that runs", "AUC of what runs")
    said = "\n".join(f"* {one}" for one in content["verdicts"])
    return [f"**At constant rates**, as all runs were before:\n\n{said}", table(head, rows)] if rows else []


_MEASURED = ("reward", "share", "area")
_KINDS: dict[str, Callable[[Content], str]] = {
    "credit": _credited,
    "datasci": _coded,
    "generalisation": _generalised,
    "wall-time": _timed,
}
