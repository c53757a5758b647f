"""Results of the studies: the files that `python -m benchmarks study NAME` wrote."""

from __future__ import annotations

import re
from collections.abc import Mapping
from statistics import mean
from typing import Any

from _tables import ROOT, bullets, code, percent, result, table
from _truth import predictions

Content = Mapping[str, Any]
_SAME, _OWN = 0, 1  # order of the panels of `curves`


def study(name: str) -> str:
    """Show all that a study found."""
    content = result(f"studies/{name}")
    shown = {
        "credit": _credited,
        "credit-truth": predictions,
        "datasci": _coded,
        "generalisation": _generalised,
        "wall-time": _timed,
    }
    parts = [shown.get(name, _compared)(content)]
    pictures = sorted(path.name for path in (ROOT / "data/results/studies").glob("*.png"))
    parts += [f"![{name}](assets/studies/{one})" for one in pictures if one.split(".")[0].split("_")[0] == name]
    if content.get("missing"):
        parts.append(f"Not run yet: {'; '.join(one.rstrip('.') for one in content['missing'])}.")
    made = []
    for one in content["measured_with"]:
        versions = ", ".join(f"{package} {version}" for package, version in one["versions"].items())
        made.append(f"{one['cpu']}, {one['cores']} cores; Python {one['python']}, {versions}")
    parts.append(f"Made by {code(content['command'])}; runs on {' and on '.join(made)}.")
    return "\n\n".join(parts)


def _interval(one: Mapping[str, float | None]) -> str:
    if one["value"] is None:
        return ""
    if one["low"] is None:
        return f"{one['value']:.3f}"
    return f"{one['value']:.3f} [{one['low']:.3f}, {one['high']:.3f}]"


# ---------------------------------------------------------------------- learning curves


def _compared(content: Content) -> str:
    parts = [*_orders(content), f"Published: {content['published']}"]
    parts += [_methods(one, content) for one in content["comparisons"] if one["methods"]]
    return "\n\n".join([*parts, bullets(content["remarks"])])


def _orders(content: Content) -> list[str]:
    """Claims of the paper that do not hold here, and those that do."""
    heads = {"differs": "In another order than in the paper", "agrees": "In the paper's order"}
    return [f"**{head}**\n\n{bullets(content[key])}" for key, head in heads.items() if content[key]]


def _methods(one: Content, content: Content) -> str:
    first = one["improvement"][0]["first"] if one["improvement"] else None
    better = {pair["second"]: _interval(pair["area"]) for pair in one["improvement"] if pair["first"] == first}
    rows = [
        (
            name,
            f"{found['learning_rate']:g}{'*' if found['at_edge_of_rates'] else ''}",
            str(len(found["seeds"])),
            f"{found['untrained']:.3f}",
            _interval(found["area"]),
            _interval(found["final"]),
            percent(found["final_success"]),
            *([better.get(name, "").replace(".000", "")] if first else []),
        )
        for name, found in one["methods"].items()
    ]
    head = ["", "rate", "seeds", "untrained", "area", "last return", "last success"]
    head += [f"{first} better"] if first else []
    exact, evaluation = content["references"][one["env"]], one["evaluation"]
    about = f"{one['steps']:,} steps, {evaluation['episodes']} episodes every {evaluation['every']:,}."
    if any(found["at_edge_of_rates"] for found in one["methods"].values()):
        about += " *: the smallest or the largest rate that was tried."
    about += f" Random {exact['random']:.3f}, oracle {exact['oracle']:.3f}."
    return f"**{one['env']}, {one['title']}.** {about}\n\n{table(head, rows)}"


def same_policy(env_id: str) -> str:
    """Show the headline panel of one task."""
    content = result("studies/curves")
    return _methods([one for one in content["comparisons"] if one["env"] == env_id][_SAME], content)


def poad_results() -> str:
    """Table of POAD with its own policy on all tasks that were run."""
    content, rows = result("studies/curves"), []
    by_env: dict[str, list[Content]] = {}
    for one in content["comparisons"]:
        by_env.setdefault(one["env"], []).append(one)
    for env_id, panels in by_env.items():
        poad, exact = panels[_OWN]["methods"].get("POAD"), content["references"][env_id]
        if poad is not None:
            finals = ", ".join(f"{value:.3f}" for value in poad["finals"])
            numbers = (f"{exact['discount']:g}", f"{exact['random']:.3f}", finals, f"{exact['oracle']:.3f}")
            costs = (percent(poad["final_success"]), f"{poad['cpu_seconds']:.0f}")
            rows.append((code(env_id), f"{panels[_OWN]['steps']:,}", *numbers, *costs))
    head = ("task", "steps", "discount", "random", "POAD, by seed", "oracle", "success", "seconds")
    return table(head, rows)


# ---------------------------------------------------------------------- the other studies


def _generalised(content: Content) -> str:
    scores = content["published"]
    rows = [
        (code(env_id), *(f"{one[env_id][0]:.3f}, {100 * one[env_id][1]:.0f} %" for one in scores.values()))
        for env_id in next(iter(scores.values()))
    ]
    parts = [
        *_orders(content),
        f"Trained on {code(content['trained_on'])} for {content['steps']:,} steps, {content['episodes']} episodes of "
        f"each unseen task and seed; seeds {', '.join(map(str, content['seeds']))}. Mean return, discounted 0.95 per "
        "step, with its interval over seeds, and success.",
        unseen(),
        f"The same, {content['published_label']}:",
        table(("", *scores), rows),
    ]
    return "\n\n".join(parts)


def unseen() -> str:
    """Table of the scores on unseen tasks before and after training."""
    content = result("studies/generalisation")
    returns, rows = content["discounted_return"], []
    for env_id in next(iter(returns.values())):
        cells = []
        for agent, scores in returns.items():
            value, low, high = scores[env_id]
            rate = f"{100 * content['success'][agent][env_id][0]:.0f} %"
            cells.append(f"{_interval({'value': value, 'low': low, 'high': high})}, {rate}")
        rows.append((code(env_id), *cells))
    return table(("", *returns), rows)


def _credited(content: Content) -> str:
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


_MEASURED = {"reward": "reward", "share": "share that runs", "area": "AUC of what runs"}


def _coded(content: Content) -> str:
    tuning = content["tuning"]
    tuned = ", ".join(f"{method} {rate:g}" for method, rate in content["rates"].items())
    parts = [
        bullets(content["verdicts"]),
        f"Every run makes {content['attempts']:,} attempts. Learning rates: {tuned} (both methods tried with "
        f"{', '.join(f'{rate:g}' for rate in tuning['rates'])} on {tuning['table']}, seed {tuning['seed']}, "
        f"{tuning['attempts']:,} attempts each).",
    ]
    for name, one in content["tables"].items():
        rows = []
        for method, found in one["methods"].items():
            scores = (", ".join(f"{value:.4f}" for value in found["best"][of]) or "none" for of in ("paid", "fresh"))
            found_at = ", ".join(f"{number:,}" for number in found["found_at"]) or "never"
            ends = (_interval(found["end"][measure]) for measure in _MEASURED)
            rows.append((method, str(len(found["seeds"])), *ends, *scores, found_at))
        head = ("", "seeds", *_MEASURED.values(), "best, as paid", "best, fresh halves", "found at")
        parts.append(f"**{name}** ({one['preprocessing']} preprocessing)\n\n{table(head, rows)}")
        if cited := ", ".join(f"{method} {value:.4f}" for method, value in one["published"].items()):
            parts.append(f"Published on the same arrays, each by its own protocol: {cited}.")
    constant = content["constant_rates"]
    rows = [
        (name, method, str(len(one["seeds"])), *(_interval(one["end"][measure]) for measure in _MEASURED))
        for name, of_table in constant["tables"].items()
        for method, one in of_table["methods"].items()
        if "claims" in one
    ]
    parts += [
        f"**At constant rates**, as all runs were before:\n\n{bullets(constant['verdicts'])}",
        table(("", "", "seeds", *_MEASURED.values()), rows),
        f"{content['statistics'].capitalize()}.",
        bullets(content["remarks"]),
    ]
    return "\n\n".join(parts)


# ---------------------------------------------------------------------- claims of the paper

_FOOD = "VirtualHome-FoodPreparation-v0"


def claims() -> str:
    """Table of the paper's claims: its answer, ours with the probability of improvement, and seeds."""
    head = ("claim of the paper", "paper", "measured on", "here, one policy for all", "here, own policies", "seeds")
    rows = [*_learning(), *_discounting(), _transfer(), *_coding()]
    said = ["", *(claim for claim, *_ in rows)]
    return table(
        head, [("", "", *row[2:]) if row[0] == before else row for row, before in zip(rows, said, strict=False)]
    )


def _learning() -> list[tuple[str, ...]]:
    """POAD's learning curves against two methods, on each task."""
    content, rows = result("studies/curves"), []
    for other in ("NTPO", "TWOSOME"):
        for env_id in dict.fromkeys(one["env"] for one in content["comparisons"] if one["methods"]):
            panels = [one for one in content["comparisons"] if one["env"] == env_id]
            numbers = [_areas(one, "POAD", other) for one in panels]
            claim = f"POAD learns faster than {other}"
            rows.append((claim, "yes", _task(env_id), *numbers, _seeds(panels[_SAME], "POAD", other)))
    return rows


def _discounting() -> list[tuple[str, ...]]:
    """Areas under learning curves by the discount inside actions, and by the one between actions."""
    inside, between = (
        next(one for one in result(f"studies/{name}")["comparisons"] if one["env"] == _FOOD)
        for name in ("gamma-token", "gamma")
    )
    _, second, third, *_ = inside["methods"]
    poad, without = (name for name in between["methods"] if name.startswith("POAD"))
    smaller, none = "A smaller γ inside actions is worse", "No γ between actions is worse"  # noqa: RUF001
    return [
        (claim, "yes", f"{_task(_FOOD)}, {names}", _areas(panel, *pair), "", _seeds(panel, *pair))
        for claim, names, panel, pair in (
            (smaller, f"{second} over {third}", inside, (second, third)),
            (none, "POAD, 0.95 over 1", between, (poad, without)),
        )
    ]


def _transfer() -> tuple[str, ...]:
    """Mean return on the unseen tasks of the paper, of POAD and of NTPO."""
    content = result("studies/generalisation")
    means = {
        agent: (
            mean(one[0] for one in scores.values()),
            mean(content["discounted_return"][agent][env_id][0] for env_id in scores),
        )
        for agent, scores in content["published"].items()
        if agent in ("POAD", "NTPO")
    }
    published, ours = ((means["POAD"][place], means["NTPO"][place]) for place in (0, 1))
    sentence = next(one for one in [*content["differs"], *content["agrees"]] if "NTPO" in one)
    chance = re.search(r"better (\S+ \[.*?\])", sentence)
    here = _numbers(*ours, chance[1] if chance else "")
    n_seeds = len(content["seeds"])
    return (
        "POAD transfers better than NTPO",
        f"{published[0]:.2f}, {published[1]:.2f}",
        f"{len(content['published']['POAD'])} unseen tasks of VirtualHome",
        "",
        here,
        f"{n_seeds}, {n_seeds}",
    )


def _coding() -> list[tuple[str, ...]]:
    """Mean reward at the end of training of POAD and of NTPO, on the tables that both were trained on."""
    rows = []
    for name, one in result("studies/datasci")["tables"].items():
        poad, ntpo = (one["methods"].get(method) for method in ("POAD", "NTPO"))
        if poad and ntpo:
            ends = [found["end"]["reward"] for found in (poad, ntpo)]
            pair = _numbers(*(end["value"] for end in ends))
            intervals = ", ".join(f"[{end['low']:.2f}, {end['high']:.2f}]" for end in ends).replace(" ", "&nbsp;")
            seeds = f"{len(poad['seeds'])}, {len(ntpo['seeds'])}"
            claim = "POAD writes better code than NTPO"
            rows.append((claim, "yes", f"{name}, DataSciCoding", "", f"{pair}<br>{intervals}", seeds))
    return rows


def _task(env_id: str) -> str:
    return env_id.partition("-")[2].removesuffix("-v0")


def _areas(panel: Content, first: str, second: str) -> str:
    """Areas under two learning curves, with the probability that a seed of the first has the larger one."""
    ours, other = (panel["methods"][name]["area"]["value"] for name in (first, second))
    pair = next(p["area"] for p in panel["improvement"] if (p["first"], p["second"]) == (first, second))
    chance = "" if pair["low"] is None else f"{pair['value']:.2f} [{pair['low']:.2f}, {pair['high']:.2f}]"
    return _numbers(ours, other, chance)


def _numbers(ours: float, other: float, chance: str = "") -> str:
    """Two numbers, bold where they are in another order than in the paper, and the probability with its interval."""
    pair = f"{ours:.2f}, {other:.2f}"
    return (pair if ours > other else f"**{pair}**") + (f"<br>P {chance}".replace(" ", "&nbsp;") if chance else "")


def _seeds(panel: Content, *names: str) -> str:
    return ", ".join(str(len(panel["methods"][name]["seeds"])) for name in names)
