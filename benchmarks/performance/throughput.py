"""Cost of an environment step in training, ours and a plain loop's.

Workloads: POAD by the trie (the default), POAD with the published ratio (`paper_mode`), TWOSOME, and POAD on code with
4 and with 16 environments, on the sizes of `synthetic`; vocabularies of 2,000 and 32,000. On request, POAD
by the trie with SmolLM2 on Tomato Salad, whose prompts repeat.
The plain loop is described in `benchmarks.performance.careful_loop`. Both get the same weights, prompts and actions.
They are first checked to give the same log-probabilities, values and gradients, then timed in turns.

Shown are milliseconds of processor time per environment step in rollout and update, of one thread, environment steps a
second, and peak memory above that of the loaded model (a process for each).

    python -m benchmarks measure throughput
    python -m benchmarks measure throughput --workload smollm2 --runs 1

Writes throughput.json and .png after each workload. Results of other workloads and vocabularies in the file are kept,
so that they can be measured one by one.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import numpy as np
import torch
import typer
from matplotlib.figure import Figure

from benchmarks.files import RESULTS, write_picture
from benchmarks.options import one_of
from benchmarks.performance.careful_loop import CarefulLoop, Sample
from benchmarks.performance.our_loop import SETTINGS, OurLoop, Setting
from benchmarks.performance.timing import in_new_process, milliseconds, resident_bytes
from benchmarks.reports.plots import style
from benchmarks.reports.tables import show_records
from lang_bench.runner.machine import describe_machine
from lang_envs.files import write_json

_COLOURS = {"ours": "#2a6f97", "careful": "#d9a326"}
VOCABULARIES = (2_000, 32_000)
TOLERANCE = 1e-3
"""Tolerated differences between two loops, due to the order of sums."""
_ACTING = 16
"""Number of samples for timing how the plain loop acts: its rollout steps are all alike."""


Cost = dict[str, float]
"""Cost of an environment step: `rollout_ms`, `update_ms` and their sum `total_ms`, in milliseconds."""


def make_loop(ours: OurLoop) -> CarefulLoop:
    """Return a plain loop with weights of its own, equal to ours as they are now."""
    policy = ours.model.policy
    return CarefulLoop(copy.deepcopy(policy.lm.network), copy.deepcopy(policy.critic), ours.setting.workload)


def act(loop: CarefulLoop, samples: Sequence[Sample], n_envs: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Run a rollout of the plain loop with given actions; return log-probabilities and values."""
    parts = [loop.rollout_step(samples[start : start + n_envs]) for start in range(0, len(samples), n_envs)]
    return torch.cat([log_probs for log_probs, _ in parts]), torch.cat([values for _, values in parts])


# ---------------------------------------------------------------------- checks


def check(workload: str, vocabulary: int = VOCABULARIES[0]) -> dict[str, float]:
    """Return the largest differences from ours after two epochs on the same four samples.

    Those of gradients and weights are relative to their size.
    """
    ours = OurLoop(SETTINGS[workload], vocabulary, 2, n_steps=2, batch_size=4, n_epochs=2, n_critic_epochs=2)
    ours.rollout()
    samples, loop = ours.samples(), make_loop(ours)
    before = torch.nn.utils.parameters_to_vector(loop.adapter).detach().clone()
    log_probs, values = act(loop, samples, len(samples) // 2)
    ours.update()
    steps = [loop.minibatch(samples) for _ in range(2)]
    logged = ours.model.logger.name_to_value
    moved = torch.nn.utils.parameters_to_vector(ours.model.policy.adapter_parameters()) - before
    loop_step = torch.nn.utils.parameters_to_vector(loop.adapter) - before
    norms = {
        kind: np.mean([step[kind] for step in steps]) / logged[f"train/{kind}_grad_norm"] - 1
        for kind in ("policy", "critic")
    }
    return {
        "log_prob": float((log_probs - torch.cat([sample.old_log_prob for sample in samples])).abs().max()),
        "value": float((values - torch.cat([sample.old_values for sample in samples])).abs().max()),
        **{f"{kind}_grad_norm": float(abs(norm)) for kind, norm in norms.items()},
        "adapter_step": float((moved - loop_step).detach().norm() / moved.detach().norm()),
    }


# ---------------------------------------------------------------------- measuring


def measure(workload: str, vocabulary: int, runs: int) -> dict[str, list[Cost]]:
    """Measure the costs of both loops, run in turns."""
    setting = SETTINGS[workload]
    ours = OurLoop(setting, vocabulary)
    loop = make_loop(ours)
    costs: dict[str, list[Cost]] = {"ours": [], "careful": []}
    for _ in range(runs):
        rollout = milliseconds(ours.rollout)
        samples = ours.samples()
        costs["ours"].append(_cost(rollout / len(samples), milliseconds(ours.update) / len(samples)))
        costs["careful"].append(_cost_of(loop, setting, samples))
    return costs


def _cost_of(loop: CarefulLoop, setting: Setting, samples: Sequence[Sample]) -> Cost:
    """Return the cost of a loop whose epochs and minibatches are all alike.

    One of them is timed, and counted as often as there are.
    """
    acting, timed = samples[:_ACTING], samples[: setting.timed_samples]
    rollout = milliseconds(lambda: act(loop, acting, setting.n_envs)) / len(acting)
    # Once for a rollout, though only a part of it is timed.
    last = milliseconds(lambda: loop.last_values([sample.prompt for sample in samples[-setting.n_envs :]]))
    update = milliseconds(lambda: loop.minibatch(timed)) / len(timed)
    return _cost(rollout + last / len(samples), setting.n_epochs * update)


def _cost(rollout: float, update: float) -> Cost:
    return {"rollout_ms": rollout, "update_ms": update, "total_ms": rollout + update}


def peak_bytes(name: str, workload: str, vocabulary: int, samples: Sequence[Sequence[Any]]) -> int:
    """Return the peak bytes of a rollout and an update, above those of the loaded model.

    Called in a process of its own.
    """
    torch.set_num_threads(1)
    setting = SETTINGS[workload]
    ours = OurLoop(setting, vocabulary)
    policy = ours.model.policy
    given = [Sample(*sample) for sample in samples]
    before = resident_bytes("VmRSS")
    if name == "ours":
        ours.rollout()
        ours.update()
    else:
        loop = CarefulLoop(policy.lm.network, policy.critic, setting.workload)
        act(loop, given[:_ACTING], setting.n_envs)
        loop.minibatch(given[: setting.timed_samples])
    return resident_bytes("VmHWM") - before


# ---------------------------------------------------------------------- results


def summary(costs: dict[str, list[Cost]], peak: dict[str, int]) -> dict[str, dict[str, float]]:
    """Return medians, and ratios to ours; that of times is the median over the turns."""
    parts: dict[str, dict[str, float]] = {}
    for name, runs in costs.items():
        middle = {field: median(run[field] for run in runs) for field in runs[0]}
        slower = median(run["total_ms"] / ours["total_ms"] for run, ours in zip(runs, costs["ours"], strict=True))
        parts[name] = {
            **{field: round(value, 2) for field, value in middle.items()},
            "env_steps_per_second": round(1e3 / middle["total_ms"], 3),
            "peak_mib": round(peak[name] / 2**20, 1),
            "slower_than_ours": round(slower, 2),
            "peak_of_ours": round(peak["ours"] / peak[name], 3),
        }
    return parts


def show(results: Sequence[dict[str, Any]]) -> None:
    """Print a table."""
    rows = {
        f"{result['workload']}, {result['vocabulary']}, {name}": row
        for result in results
        for name, row in result["loops"].items()
    }
    columns = ("rollout_ms", "update_ms", "env_steps_per_second", "peak_mib", "slower_than_ours", "peak_of_ours")
    show_records("workload, vocabulary, loop", rows, columns, width=160)


@style()
def draw(results: Sequence[dict[str, Any]]) -> Figure:
    """Draw the cost of a step by both loops, in costs of ours.

    A panel for each vocabulary; the update stands above the rollout.
    """
    vocabularies = list(dict.fromkeys(result["vocabulary"] for result in results))
    figure = Figure(figsize=(9, 3.6 * len(vocabularies)), layout="constrained")
    panels = figure.subplots(len(vocabularies), 1, squeeze=False)[:, 0]
    for axes, vocabulary in zip(panels, vocabularies, strict=True):
        shown = [result for result in results if result["vocabulary"] == vocabulary]
        for offset, (name, colour) in enumerate(_COLOURS.items()):
            measured = {x + 0.27 * offset: result["loops"] for x, result in enumerate(shown) if name in result["loops"]}
            rollout, update = (
                [loops[name][part] / loops["ours"]["total_ms"] for loops in measured.values()]
                for part in ("rollout_ms", "update_ms")
            )
            axes.bar(list(measured), rollout, 0.25, color=colour, label=name)
            top = axes.bar(list(measured), update, 0.25, bottom=rollout, color=colour, alpha=0.55)
            texts = [f"{loops[name]['total_ms']:,.0f} ms" for loops in measured.values()]
            axes.bar_label(top, texts, fontsize=7, padding=1)
        axes.set_xticks(range(len(shown)), [result["workload"] for result in shown])
        axes.set(ylabel="times the cost of ours", title=f"An environment step, vocabulary {vocabulary:,}")
        axes.margins(y=0.15)
    panels[0].legend(title="pale: update")
    return figure


def put(result: dict[str, Any], path: Path) -> list[dict[str, Any]]:
    """Write a result to a file, replacing that of the same workload and vocabulary; return all of them."""
    results_before = json.loads(path.read_text(encoding="utf-8"))["results"] if path.exists() else []
    places = [(vocabulary, workload) for vocabulary in VOCABULARIES for workload in SETTINGS]

    def key(entry: dict[str, Any]) -> tuple[int, str]:
        return entry["vocabulary"], entry["workload"]

    results = [*(before for before in results_before if key(before) != key(result)), result]
    results.sort(key=lambda entry: places.index(key(entry)) if key(entry) in places else len(places))
    write_json(path, {"results": results})
    write_picture(path.with_suffix(".png"), draw(results))
    return results


def one_result(workload: str, vocabulary: int, runs: int) -> dict[str, Any]:
    """Measure one workload: agreement, costs and peak memory of both loops."""
    agreement = check(workload, vocabulary)
    if not max(agreement.values()) < TOLERANCE:
        raise AssertionError(f"Expected the plain loop to do on {workload} what ours does; got {agreement}.")
    costs = measure(workload, vocabulary, runs)
    ours = OurLoop(SETTINGS[workload], vocabulary)
    ours.rollout()
    samples = [tuple(sample) for sample in ours.samples()]
    rows = ours.model.policy.lm.base.config.vocab_size
    del ours
    peaks = {name: in_new_process(peak_bytes, name, workload, vocabulary, samples) for name in costs}
    return {
        "workload": workload,
        "vocabulary": rows,
        "runs": runs,
        "agreement": agreement,
        "loops": summary(costs, peaks),
        "measured": describe_machine(),
    }


def throughput(
    workload: Annotated[list[str] | None, one_of(SETTINGS, "Repeatable; by default all without SmolLM2.")] = None,
    vocabulary: Annotated[
        list[int] | None, typer.Option(help="Rows of the head, 854 or more; repeatable, 2000 and 32000 by default.")
    ] = None,
    runs: Annotated[int, typer.Option(help="Turns, whose medians are shown.")] = 3,
    out: Annotated[Path, typer.Option(help="JSON file; a picture goes beside it.")] = RESULTS / "throughput.json",
) -> None:
    """Measure the cost of an environment step in training, by our loop and by a plain one."""
    torch.set_num_threads(1)
    results = []
    synthetic = [name for name, setting in SETTINGS.items() if setting.model is None]
    chosen = [
        (name, n_rows) for n_rows in vocabulary or VOCABULARIES for name in workload or synthetic if name in synthetic
    ]
    chosen += [(name, 0) for name in workload or () if name not in synthetic]  # a model with a vocabulary of its own
    for name, n_rows in chosen:
        result = one_result(name, n_rows, runs)
        show([result])
        results = put(result, out)
    if len(results) > 1:
        show(results)
