"""Cost of an environment step in training, ours and two plain loops'.

Workloads: POAD by the trie (the default), POAD with the published ratio (`paper_mode`), TWOSOME, and POAD on code with
4 and with 16 environments, on the sizes of `synthetic`; vocabularies of 2,000 and 32,000. On request, POAD
by the trie with SmolLM2 on Tomato Salad, whose prompts repeat.
The two other loops are described in `benchmarks.references.baseline_loop`. All get the same weights, prompts and
actions. They are first checked to give the same log-probabilities, values and gradients, then timed in turns.

The times are taken twice: with the C library's default allocator, and in a process with MALLOC_MMAP_MAX_=0. The default
gives large tensors back to the system and fetches fresh, zeroed pages for the next, at the highest cost for loops with
large tensors. The second factor holds for an allocator that keeps its memory.

Shown are milliseconds per environment step in rollout and update (processor time of one thread on a CPU, wall time on a
GPU), environment steps a second, peak memory above that of the loaded model (a process for each), and token positions
through the model, padding included, beside the fewest that compute the same without sharing anything between samples:

    POAD     score P + sum_k (A_k - 1), values P + A - 1, update E x 2 (P + A - 1)
    TWOSOME  score S = P + sum_k (A_k - 1), value P, update E x 2 S
    code     write P + A - 1, values P + A - 1, update E x 2 (P + A - 1)

with P tokens of prompt, A of the action, A_k of candidate k, E epochs, and 2 for forward and backward. By the trie
fewer are enough: tokens after an action's last decision are never run.

    python -m benchmarks measure throughput
    python -m benchmarks measure throughput --device cuda --model-size 7b --dtype bfloat16 --workload code

Writes throughput.json and .png (on a CPU), or throughput_DEVICE_SIZE.json, after each workload. Results of other
workloads and vocabularies in the file are kept, so that they can be measured one by one.
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import numpy as np
import torch
import typer
from matplotlib.figure import Figure

from benchmarks.performance.our_loop import SETTINGS, Options, OurLoop, PositionCounter, Setting
from benchmarks.performance.processes import in_new_process, resident_bytes
from benchmarks.performance.synthetic import MODELS
from benchmarks.references.baseline_loop import BaselineLoop, CompetentLoop, Distribution, ReferenceLoop, Sample
from benchmarks.reports.plots import style
from benchmarks.reports.tables import show_records
from benchmarks.runner.files import write_json, write_picture
from benchmarks.runner.machine import RESULTS, describe_machine
from benchmarks.runner.options import one_of

_COLOURS = {"ours": "#2a6f97", "competent": "#d9a326", "reference": "#a02f3c"}
LOOPS: dict[str, type[BaselineLoop]] = {"reference": ReferenceLoop, "competent": CompetentLoop}
VOCABULARIES = (2_000, 32_000)
_ACTING = 16
"""Number of samples for timing how a plain loop acts: its rollout steps are all alike."""


Cost = dict[str, float]
"""Cost of an environment step.

`rollout_ms`, `update_ms` and their sum `total_ms` in milliseconds; token positions `forward` and `backward`.
"""


def make_loop(name: str, ours: OurLoop) -> BaselineLoop:
    """Return a loop with weights of its own, equal to ours as they are now."""
    policy = ours.model.policy
    return LOOPS[name](copy.deepcopy(policy.lm.network), copy.deepcopy(policy.critic), ours.setting.workload)


def act(loop: BaselineLoop, samples: Sequence[Sample], n_envs: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Run a rollout of one of the other loops with given actions; return log-probabilities and values."""
    parts = [loop.rollout_step(samples[start : start + n_envs]) for start in range(0, len(samples), n_envs)]
    return torch.cat([log_probs for log_probs, _ in parts]), torch.cat([values for _, values in parts])


# ---------------------------------------------------------------------- checks


_TOLERANCES = {"float32": 1e-3, "bfloat16": 0.3}
"""Tolerated differences between two loops, due to the order of sums."""


def check(name: str, workload: str, options: Options) -> dict[str, float]:
    """Return the largest differences from ours after two epochs on the same four samples.

    Those of gradients and weights are relative to their size.
    """
    ours = OurLoop(SETTINGS[workload], options, 2, n_steps=2, batch_size=4, n_epochs=2, n_critic_epochs=2)
    ours.rollout()
    samples, loop = ours.samples(), make_loop(name, ours)
    before = torch.nn.utils.parameters_to_vector(loop.adapter).detach().clone()
    log_probs, values = act(loop, samples, len(samples) // 2)
    ours.update()
    steps = [loop.minibatch(samples) for _ in range(2)]
    logged = ours.model.logger.name_to_value
    moved = torch.nn.utils.parameters_to_vector(ours.model.policy.adapter_parameters()) - before
    loop_step = torch.nn.utils.parameters_to_vector(loop.adapter) - before
    norms = {
        kind: np.mean([getattr(step, f"{kind}_grad_norm") for step in steps]) / logged[f"train/{kind}_grad_norm"] - 1
        for kind in ("policy", "critic")
    }
    return {
        "log_prob": float((log_probs - torch.cat([sample.old_log_prob for sample in samples])).abs().max()),
        "value": float((values - torch.cat([sample.old_values for sample in samples])).abs().max()),
        **{f"{kind}_grad_norm": float(abs(norm)) for kind, norm in norms.items()},
        "adapter_step": float((moved - loop_step).detach().norm() / moved.detach().norm()),
    }


# ---------------------------------------------------------------------- measuring


def fewest_positions(samples: Sequence[Sample], setting: Setting) -> float:
    """Return the token positions that a sample needs at least; see the module."""
    total = 0
    for sample in samples:
        prompt, chosen = len(sample.prompt), len(sample.prompt) + len(sample.action) - 1
        scored = prompt + sum(len(row) - 1 for row in sample.candidates)
        if setting.workload.distribution == Distribution.CANDIDATES:
            total += scored + prompt + 2 * setting.n_epochs * scored
        else:
            total += scored + chosen + 2 * setting.n_epochs * chosen
    return total / len(samples)


def metered(part: Callable[[], Any], counter: PositionCounter, device: str) -> tuple[float, int, int]:
    """Measure milliseconds, and positions forward and backward; wall time on a GPU, processor time on a CPU."""
    cuda = torch.device(device).type == "cuda"

    def now() -> float:
        if cuda:
            torch.cuda.synchronize()
        return time.perf_counter() if cuda else time.process_time()

    counter.take()
    start = now()
    part()
    return 1e3 * (now() - start), *counter.take()


def measure(workload: str, options: Options, runs: int, names: Sequence[str]) -> tuple[dict[str, list[Cost]], float]:
    """Measure the costs of all loops, run in turns, and the fewest positions that an environment step needs."""
    setting = SETTINGS[workload]
    ours = OurLoop(setting, options)
    loops = {name: make_loop(name, ours) for name in names}
    counters = {name: PositionCounter(loop.network.get_base_model()) for name, loop in loops.items()}
    costs: dict[str, list[Cost]] = {"ours": [], **{name: [] for name in names}}
    fewest = []
    for _ in range(runs):
        rollout = metered(ours.rollout, ours.counter, options.device)
        samples = ours.samples()
        fewest.append(fewest_positions(samples, setting))
        update = metered(ours.update, ours.counter, options.device)
        costs["ours"].append(_cost(rollout, update, len(samples), len(samples)))
        for name, loop in loops.items():
            costs[name].append(
                _cost_of(loop, partial(metered, counter=counters[name], device=options.device), setting, samples)
            )
    return costs, float(np.mean(fewest))


def _cost_of(
    loop: BaselineLoop, meter: Callable[..., tuple[float, int, int]], setting: Setting, samples: Sequence[Sample]
) -> Cost:
    """Return the cost of a loop whose epochs and minibatches are all alike.

    One of them is timed, and counted as often as there are.
    """
    acting = samples[:_ACTING]
    timed = samples[: setting.timed_samples]
    rollout = meter(lambda: act(loop, acting, setting.n_envs))
    # Once for a rollout, though only a part of it is timed.
    last = meter(lambda: loop.last_values([sample.prompt for sample in samples[-setting.n_envs :]]))
    share = len(acting) / len(samples)
    update = meter(lambda: loop.minibatch(timed))
    whole = [part + share * once for part, once in zip(rollout, last, strict=True)]
    return _cost(whole, [setting.n_epochs * number for number in update], len(acting), len(timed))


def _cost(rollout: Sequence[Any], update: Sequence[Any], n_acting: int, n_updated: int) -> Cost:
    (acting, updating), forward, backward = ((rollout[part] / n_acting, update[part] / n_updated) for part in range(3))
    return {
        "rollout_ms": acting,
        "update_ms": updating,
        "total_ms": acting + updating,
        "forward": sum(forward),
        "backward": sum(backward),
    }


_MALLOC_SETTINGS = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**40)}
"""Environment variables of a process whose C library keeps freed memory."""


def slower_than_ours(
    workload: str, options: Options, runs: int, names: Sequence[str], threads: int
) -> dict[str, float]:
    """Measure the loops relative to ours; called in a process whose allocator keeps its memory."""
    torch.set_num_threads(threads)
    costs, _ = measure(workload, options, runs, names)
    return {name: _slower(costs, name) for name in costs}


def _slower(costs: dict[str, list[Cost]], name: str) -> float:
    """Compute the median over the turns of a loop's time, in times of ours."""
    pairs = zip(costs[name], costs["ours"], strict=True)
    return round(median(other["total_ms"] / ours["total_ms"] for other, ours in pairs), 2)


def peak_bytes(
    name: str, workload: str, options: Options, samples: Sequence[Sequence[Any]] | None, threads: int
) -> int:
    """Return the peak bytes of a rollout and an update, above those of the loaded model.

    Called in a process of its own.
    """
    torch.set_num_threads(threads)
    setting, cuda = SETTINGS[workload], torch.device(options.device).type == "cuda"
    ours = OurLoop(setting, options)
    policy = ours.model.policy
    given = [Sample(*sample) for sample in samples or ()]
    before = torch.cuda.memory_allocated() if cuda else resident_bytes("VmRSS")
    if name == "ours":
        ours.rollout()
        ours.update()
    else:
        loop = LOOPS[name](policy.lm.network, policy.critic, setting.workload)
        act(loop, given[:_ACTING], setting.n_envs)
        loop.minibatch(given[: setting.timed_samples])
    return (torch.cuda.max_memory_allocated() if cuda else resident_bytes("VmHWM")) - before


# ---------------------------------------------------------------------- results


def summary(
    costs: dict[str, list[Cost]], fewest: float, peak: dict[str, int], kept: dict[str, float] | None
) -> dict[str, dict[str, float]]:
    """Return medians, and ratios to ours; that of times is the median over the turns, by either allocator."""
    parts: dict[str, dict[str, float]] = {}
    for name, runs in costs.items():
        middle = {field: median(run[field] for run in runs) for field in runs[0]}
        parts[name] = {
            **{field: round(value, 2) for field, value in middle.items()},
            "env_steps_per_second": round(1e3 / middle["total_ms"], 3),
            "over_fewest": round((middle["forward"] + middle["backward"]) / fewest, 3),
            "peak_mib": round(peak[name] / 2**20, 1),
            "slower_than_ours": _slower(costs, name),
            **({} if kept is None else {"slower_with_kept_memory": kept[name]}),
            "peak_of_ours": round(peak["ours"] / peak[name], 3),
        }
    return parts


_SHOWN = (
    "rollout_ms", "update_ms", "env_steps_per_second", "forward", "backward", "over_fewest", "peak_mib",
    "slower_than_ours", "slower_with_kept_memory", "peak_of_ours",
)  # fmt: skip


def show(results: Sequence[dict[str, Any]]) -> None:
    """Print a table."""
    rows = {
        f"{result['workload']}, {result['vocabulary']}, {name}": row
        for result in results
        for name, row in result["loops"].items()
    }
    show_records("workload, vocabulary, loop", rows, _SHOWN, width=160)


@style()
def draw(results: Sequence[dict[str, Any]]) -> Figure:
    """Draw the cost of a step by each loop, in costs of ours.

    A panel for each vocabulary; the update stands above the rollout.
    """
    vocabularies = list(dict.fromkeys(result["vocabulary"] for result in results))
    figure = Figure(figsize=(9, 3.6 * len(vocabularies)), layout="constrained")
    panels = figure.subplots(len(vocabularies), 1, squeeze=False)[:, 0]
    for axes, vocabulary in zip(panels, vocabularies, strict=True):
        shown = [result for result in results if result["vocabulary"] == vocabulary]
        for offset, (name, colour) in enumerate(_COLOURS.items()):
            measured = {
                x + 0.27 * (offset - 1): result["loops"] for x, result in enumerate(shown) if name in result["loops"]
            }
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


def one_result(workload: str, options: Options, runs: int, names: Sequence[str], threads: int) -> dict[str, Any]:
    """Measure one workload: agreement, costs and peak memory of all loops."""
    agreement = {name: check(name, workload, options) for name in names}
    for name, differences in agreement.items():
        if not max(differences.values()) < _TOLERANCES[options.dtype]:
            raise AssertionError(f"Expected {name} to do on {workload} what ours does; got differences {differences}.")
    costs, fewest = measure(workload, options, runs, names)
    kept = None
    if torch.device(options.device).type == "cpu":  # a GPU's memory is not the C library's
        kept = in_new_process(slower_than_ours, workload, options, runs, names, threads, environment=_MALLOC_SETTINGS)
    ours = OurLoop(SETTINGS[workload], options)
    ours.rollout()
    samples = [
        tuple(part.cpu() if isinstance(part, torch.Tensor) else part for part in sample) for sample in ours.samples()
    ]
    rows = ours.model.policy.lm.base.config.vocab_size
    del ours
    peaks = {name: in_new_process(peak_bytes, name, workload, options, samples, threads) for name in ("ours", *names)}
    gpu = torch.cuda.get_device_name() if torch.device(options.device).type == "cuda" else None
    return {
        "workload": workload,
        **options._asdict(),
        "vocabulary": rows,
        "model_size": SETTINGS[workload].model or options.model_size,
        "runs": runs,
        "fewest": fewest,
        "agreement": agreement,
        "loops": summary(costs, fewest, peaks, kept),
        "measured": {**describe_machine(), "threads": threads, "gpu": gpu},
    }


def throughput(
    workload: Annotated[list[str] | None, one_of(SETTINGS, "Repeatable; by default all without SmolLM2.")] = None,
    vocabulary: Annotated[
        list[int] | None, typer.Option(help="Rows of the head, 854 or more; repeatable, 2000 and 32000 by default.")
    ] = None,
    loop: Annotated[list[str] | None, one_of(LOOPS, "To compare with; repeatable.")] = None,
    runs: Annotated[int, typer.Option(help="Turns, whose medians are shown.")] = 3,
    model_size: Annotated[str, one_of(MODELS)] = "6m",
    dtype: Annotated[str, one_of(_TOLERANCES)] = "float32",
    device: str = "cpu",
    threads: Annotated[int, typer.Option(help="Of a CPU, whose time is summed over them.")] = 1,
    seed: int = 0,
    out: Annotated[Path | None, typer.Option(help="JSON file; a picture goes beside it.")] = None,
) -> None:
    """Measure the cost of an environment step in training, by our loop and by two plain ones."""
    torch.set_num_threads(threads)
    suffix = "" if (device, model_size) == ("cpu", "6m") else f"_{device}_{model_size}"
    results = []
    synthetic = [name for name, setting in SETTINGS.items() if setting.model is None]
    chosen = [
        (name, n_rows) for n_rows in vocabulary or VOCABULARIES for name in workload or synthetic if name in synthetic
    ]
    chosen += [(name, 0) for name in workload or () if name not in synthetic]  # a model with a vocabulary of its own
    for name, n_rows in chosen:
        result = one_result(name, Options(n_rows, model_size, dtype, device, seed), runs, loop or [*LOOPS], threads)
        show([result])
        results = put(result, out or RESULTS / f"throughput{suffix}.json")
    if len(results) > 1:
        show(results)
