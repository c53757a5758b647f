"""Tables of the speed studies, from their committed results."""

from __future__ import annotations

import json

from _tables import table

from benchmarks.performance.synthetic import MODELS
from benchmarks.runner.machine import RESULTS

__all__ = ["choices_table", "scaling_sentence", "throughput_table"]

_WORKLOADS = {
    "poad": "POAD, listed actions",
    "poad-published": "POAD, published ratio (`paper_mode`)",
    "twosome": "TWOSOME",
    "code": "POAD, written actions of 72 to 128 tokens",
    "code-16": "the same, 16 environments",
}
_LOOPS = {"ours": "this library", "reference": "reference's structure", "competent": "competent"}


def throughput_table(_: str) -> str:
    """Costs of all loops."""
    study = json.loads((RESULTS / "throughput.json").read_text(encoding="utf-8"))
    rows = []
    for result in study["results"]:
        for name, loop in result["loops"].items():
            rows.append(
                (
                    f"{_WORKLOADS[result['workload']]}, vocabulary {result['vocabulary']:,}" if name == "ours" else "",
                    _LOOPS[name],
                    f"{loop['rollout_ms']:.0f} + {loop['update_ms']:.0f}",
                    "" if name == "ours" else f"**{loop['slower_than_ours']:.1f}**",
                    _kept(loop) if name != "ours" else "",
                    f"{loop['forward'] + loop['backward']:.0f}",
                    f"{loop['over_fewest']:.2f}",
                    f"{loop['peak_mib']:.0f}",
                )
            )
    head = (
        "",
        "loop",
        "ms, rollout + update",
        "times ours",
        "with kept memory",
        "positions",
        "over the plain count",
        "peak, MiB",
    )
    worst = max(loop["adapter_step"] for result in study["results"] for loop in result["agreement"].values())
    measured = study["results"][0]["measured"]
    least = min(result["runs"] for result in study["results"])
    turns = f"medians of {least} turns or more" if least > 1 else "some in a single turn"
    where = f"On {measured['cpu']}, {measured['threads']} thread, {turns}. "
    where += f"All loops move the adapter alike to {worst:.0e} of the step."
    where += " Workloads were measured on several days, on a shared host that is faster on some: compare within one."
    return f"{table(head, rows)}\n\n{where} Peaks are above the loaded model, of a process for each loop."


def _kept(loop: dict[str, float]) -> str:
    factor = loop.get("slower_with_kept_memory")
    return "not measured" if factor is None else f"**{factor:.1f}**"


def choices_table(_: str) -> str:
    """Shares of actions with more than one choice."""
    study = json.loads((RESULTS / "choices.json").read_text(encoding="utf-8"))
    rows: dict[tuple[str, str], list[str]] = {}
    for env_id, one in study["ids"].items():
        rows.setdefault((f"{one['taken']:.0%}", f"{one['listed']:.0%}"), []).append(f"`{env_id}`")
    head = ("tasks", "random actions with more than one choice", "of the listed actions")
    lines = [(", ".join(ids), *shares) for shares, ids in rows.items()]
    return f"{table(head, lines)}\n\nPocket model, {study['episodes']} episodes each: `{study['command']}`."


def scaling_sentence(_: str) -> str:
    """Growth exponents."""
    studies = json.loads((RESULTS / "scaling.json").read_text(encoding="utf-8"))["studies"]
    names = {
        "prompt": "tokens of the prompt",
        "written": "written tokens",
        "envs": "environments",
        "candidates": "candidates (POAD)",
        "candidates_twosome": "candidates (TWOSOME)",
    }
    parts = [f"{label}: {studies[name]['exponent']:.2f}" for name, label in names.items()]
    buffer = studies["written"]["buffer_exponent"]
    times = f"Exponents of the time of a step, 1 being linear: {'; '.join(parts)}."
    first, *_, last = studies["prompt"]["points"]
    longer, slower = last["value"] / first["value"], last["ms"] / first["ms"]
    work = _multiplications(last["value"]) / _multiplications(first["value"])
    prompts = f"{longer:.0f} times the prompt take {slower:.1f} times as long, for attention grows with the square: "
    prompts += f"the multiplications of a pass over it grow {work:.1f} times"
    return f"{times} Of the buffer's memory in tokens: {buffer:.2f}. A prompt is the worst case ({prompts})."


def _multiplications(n_tokens: int) -> int:
    """Of a forward pass over a sequence: the products of all layers, and each token with those before it, twice."""
    hidden, layers, _, _, intermediate = MODELS["6m"]
    products = 4 * hidden**2 + 3 * hidden * intermediate
    return layers * n_tokens * (products + hidden * (n_tokens + 1))
