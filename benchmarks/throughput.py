"""Cost of an environment step in training, ours and two plain loops': `python -m benchmarks.throughput`.

Workloads: POAD by the trie (the default), POAD with the published ratio (`paper_mode`), TWOSOME, and POAD on code with
4 and with 16 environments, on the sizes of `benchmarks.synthetic`; vocabularies of 2,000 and 32,000.
`benchmarks.baseline_loop` says what the two other loops do. All get the same weights, prompts and actions. They are
first checked to give the same log-probabilities, values and gradients, then timed in turns.

The times are taken twice: with the C library's allocator as it comes, and in a process with MALLOC_MMAP_MAX_=0. As
it comes it gives large tensors back to the system and fetches fresh, zeroed pages for the next, which costs loops with
large tensors the most. The second factor is what remains with an allocator that keeps its memory.

Shown are milliseconds per environment step in rollout and update (processor time of one thread on a CPU, wall time on a
GPU), environment steps a second, peak memory above that of the loaded model (a process for each), and token positions
through the model, padding included, beside the fewest that compute the same without sharing anything between samples:

    POAD     score P + sum_k (A_k - 1), values P + A - 1, update E x 2 (P + A - 1)
    TWOSOME  score S = P + sum_k (A_k - 1), value P, update E x 2 S
    code     write P + A - 1, values P + A - 1, update E x 2 (P + A - 1)

with P tokens of prompt, A of the action, A_k of candidate k, E epochs, and 2 for forward and backward. By the trie
fewer will do: nothing behind the last token at which there is a choice is ever run.

    python -m benchmarks.throughput
    python -m benchmarks.throughput --device cuda --model-size 7b --dtype bfloat16 --workload code

Writes results/throughput.json and .png (on a CPU), or results/throughput_DEVICE_SIZE.json, after each workload. What a
file has of other workloads and vocabularies stays in it, so that they can be measured one by one.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from benchmarks.baseline_loop import BaselineLoop, CompetentLoop, Distribution, ReferenceLoop, Sample
from benchmarks.environment import RESULTS, describe_machine
from benchmarks.our_loop import SETTINGS, Options, OurLoop, PositionCounter, Setting
from benchmarks.synthetic import MODELS

_COLOURS = {"ours": "#2a6f97", "competent": "#d9a326", "reference": "#a02f3c"}
LOOPS: dict[str, type[BaselineLoop]] = {"reference": ReferenceLoop, "competent": CompetentLoop}
VOCABULARIES = (2_000, 32_000)
_ACTING = 16
"""Samples that a plain loop is timed acting on: its rollout steps are all alike."""


class Cost(NamedTuple):
    """Of an environment step: milliseconds, and token positions through the model."""

    rollout_ms: float
    update_ms: float
    forward: float
    backward: float

    @property
    def total_ms(self) -> float:
        """Rollout and update."""
        return self.rollout_ms + self.update_ms


def make_loop(name: str, ours: OurLoop) -> BaselineLoop:
    """A loop with weights of its own, equal to ours as they are now."""
    policy = ours.model.policy
    return LOOPS[name](copy.deepcopy(policy.lm.network), copy.deepcopy(policy.critic), ours.setting.workload)


def act(loop: BaselineLoop, samples: Sequence[Sample], n_envs: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A rollout of one of the other loops, the actions being given."""
    parts = [loop.rollout_step(samples[start : start + n_envs]) for start in range(0, len(samples), n_envs)]
    return torch.cat([log_probs for log_probs, _ in parts]), torch.cat([values for _, values in parts])


# ---------------------------------------------------------------------- checks


_TOLERANCES = {"float32": 1e-3, "bfloat16": 0.3}
"""Of what two loops may differ by: the order of sums shows."""


class Agreement(NamedTuple):
    """Largest differences from ours; gradients and weights relative to their size."""

    log_prob: float
    value: float
    policy_grad_norm: float
    critic_grad_norm: float
    adapter_step: float


def check(name: str, workload: str, options: Options) -> Agreement:
    """Two epochs on the same four samples, by one of the loops and by ours."""
    ours = OurLoop(SETTINGS[workload], options, 4, n_steps=1, batch_size=4, n_epochs=2, n_critic_epochs=2)
    ours.rollout()
    samples, loop = ours.samples(), make_loop(name, ours)
    before = torch.nn.utils.parameters_to_vector(loop.adapter).detach().clone()
    log_probs, values = act(loop, samples, len(samples) // 2)
    ours.update()
    steps = [loop.minibatch(samples) for _ in range(2)]
    logged = ours.model.logger.name_to_value
    moved = torch.nn.utils.parameters_to_vector(ours.model.policy.adapter_parameters()) - before
    theirs = torch.nn.utils.parameters_to_vector(loop.adapter) - before
    norms = {
        kind: np.mean([getattr(step, f"{kind}_grad_norm") for step in steps]) / logged[f"train/{kind}_grad_norm"] - 1
        for kind in ("policy", "critic")
    }
    return Agreement(
        log_prob=float((log_probs - torch.cat([one.old_log_prob for one in samples])).abs().max()),
        value=float((values - torch.cat([one.old_values for one in samples])).abs().max()),
        policy_grad_norm=float(abs(norms["policy"])),
        critic_grad_norm=float(abs(norms["critic"])),
        adapter_step=float((moved - theirs).detach().norm() / moved.detach().norm()),
    )


# ---------------------------------------------------------------------- measuring


def fewest_positions(samples: Sequence[Sample], setting: Setting) -> float:
    """Token positions of the mathematics, a sample; see the module."""
    total = 0
    for one in samples:
        prompt, chosen = len(one.prompt), len(one.prompt) + len(one.action) - 1
        scored = prompt + sum(len(row) - 1 for row in one.candidates)
        if setting.workload.distribution == Distribution.CANDIDATES:
            total += scored + prompt + 2 * setting.n_epochs * scored
        else:
            total += scored + chosen + 2 * setting.n_epochs * chosen
    return total / len(samples)


class Meter:
    """Costs of the parts of a loop."""

    def __init__(self, counter: PositionCounter, device: str) -> None:
        self._counter, self._cuda = counter, torch.device(device).type == "cuda"

    def __call__(self, part: Callable[[], Any]) -> tuple[float, int, int, Any]:
        """Milliseconds, positions forward and backward, and what `part` returns."""
        self._counter.take()
        start = self._now()
        result = part()
        return 1e3 * (self._now() - start), *self._counter.take(), result

    def _now(self) -> float:
        if self._cuda:
            torch.cuda.synchronize()
            return time.perf_counter()
        return time.process_time()


def measure(workload: str, options: Options, runs: int, names: Sequence[str]) -> tuple[dict[str, list[Cost]], float]:
    """Costs of all loops, run in turns; and the fewest positions that an environment step needs."""
    setting = SETTINGS[workload]
    ours = OurLoop(setting, options)
    loops = {name: make_loop(name, ours) for name in names}
    counters = {name: PositionCounter(loop.network.get_base_model()) for name, loop in loops.items()}
    costs: dict[str, list[Cost]] = {"ours": [], **{name: [] for name in names}}
    fewest = []
    for _ in range(runs):
        meter = Meter(ours.counter, options.device)
        rollout = meter(ours.rollout)
        samples = ours.samples()
        fewest.append(fewest_positions(samples, setting))
        costs["ours"].append(_cost(rollout, meter(ours.update), len(samples), len(samples)))
        for name, loop in loops.items():
            costs[name].append(_cost_of(loop, Meter(counters[name], options.device), setting, samples))
    return costs, float(np.mean(fewest))


def _cost_of(loop: BaselineLoop, meter: Meter, setting: Setting, samples: Sequence[Sample]) -> Cost:
    """Of a loop whose epochs and minibatches are all alike: one is timed, and counted as often as there are."""
    acting = samples[:_ACTING]
    timed = samples[: setting.timed_samples]
    rollout = meter(lambda: act(loop, acting, setting.n_envs))
    # Once for a rollout, of which only a part is timed.
    last = meter(lambda: loop.last_values([one.prompt for one in samples[-setting.n_envs :]]))
    share = len(acting) / len(samples)
    rollout = tuple(whole + share * once for whole, once in zip(rollout[:3], last[:3], strict=True))
    update = meter(lambda: loop.minibatch(timed))
    return _cost(rollout, tuple(setting.n_epochs * number for number in update[:3]), len(acting), len(timed))


def _cost(rollout: Sequence[Any], update: Sequence[Any], n_acting: int, n_updated: int) -> Cost:
    forward, backward = (rollout[part] / n_acting + update[part] / n_updated for part in (1, 2))
    return Cost(rollout[0] / n_acting, update[0] / n_updated, forward, backward)


_KEEPING = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**40)}
"""Environment of a process whose C library keeps the memory that it was once given."""


def slower_with_kept_memory(workload: str, options: Options, runs: int, names: Sequence[str]) -> dict[str, float]:
    """Times of ours that the loops take, in a process whose allocator keeps its memory."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "slower.json"
        more = ["--slower-to", str(file), "--runs", str(runs), "--threads", str(torch.get_num_threads())]
        for name in names:
            more += ["--loop", name]
        command = _own_command(workload, options, more)
        subprocess.run(command, check=True, env={**os.environ, **_KEEPING})
        found: dict[str, float] = json.loads(file.read_text(encoding="utf-8"))
    return found


def _own_command(workload: str, options: Options, more: Sequence[str]) -> list[str]:
    command = [sys.executable, "-m", "benchmarks.throughput", "--workload", workload, *more]
    for field, value in options._asdict().items():
        command += [f"--{field.replace('_', '-')}", str(value)]
    return command


def _slower(costs: dict[str, list[Cost]], name: str) -> float:
    """Median over the turns of a loop's time in times of ours."""
    pairs = zip(costs[name], costs["ours"], strict=True)
    return round(median(other.total_ms / own.total_ms for other, own in pairs), 2)


def peaks(workload: str, options: Options, names: Sequence[str]) -> dict[str, int]:
    """Bytes at the peak above those of the loaded model, of a rollout and an update in a process for each loop."""
    ours = OurLoop(SETTINGS[workload], options)
    ours.rollout()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "samples.pt"
        torch.save([tuple(one) for one in ours.samples()], file)
        del ours
        return {name: _peak_of(name, workload, options, file) for name in ("ours", *names)}


def _peak_of(name: str, workload: str, options: Options, file: Path) -> int:
    command = _own_command(workload, options, ["--peak-of", name, "--samples", str(file)])
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(done.stdout.split()[-1])


def own_peak(name: str, workload: str, options: Options, file: Path) -> int:
    """What `peaks` asks a process for."""
    setting, cuda = SETTINGS[workload], torch.device(options.device).type == "cuda"
    ours = OurLoop(setting, options)
    policy = ours.model.policy
    samples = [Sample(*one) for one in torch.load(file, weights_only=False)]
    before = torch.cuda.memory_allocated() if cuda else _resident("VmRSS")
    if name == "ours":
        ours.rollout()
        ours.update()
    else:
        loop = LOOPS[name](policy.lm.network, policy.critic, setting.workload)
        act(loop, samples[:_ACTING], setting.n_envs)
        loop.minibatch(samples[: setting.timed_samples])
    return (torch.cuda.max_memory_allocated() if cuda else _resident("VmHWM")) - before


def _resident(field: str) -> int:
    """Bytes of this process, now or at the highest; `ru_maxrss` would begin with that of the parent."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith(field)))


# ---------------------------------------------------------------------- results


def summary(
    costs: dict[str, list[Cost]], fewest: float, peak: dict[str, int], kept: dict[str, float]
) -> dict[str, dict[str, float]]:
    """Medians, and ratios to ours: of times the median of those of each turn, by either allocator."""
    found = {}
    for name, runs in costs.items():
        middle = {field: median(getattr(run, field) for run in runs) for field in Cost._fields}
        total = median(run.total_ms for run in runs)
        positions = middle["forward"] + middle["backward"]
        found[name] = {
            **{field: round(value, 2) for field, value in middle.items()},
            "total_ms": round(total, 2),
            "env_steps_per_second": round(1e3 / total, 3),
            "over_fewest": round(positions / fewest, 3),
            "peak_mib": round(peak[name] / 2**20, 1),
            "slower_than_ours": _slower(costs, name),
            "slower_with_kept_memory": kept[name],
            "peak_of_ours": round(peak["ours"] / peak[name], 3),
        }
    return found


def show(console: Console, results: Sequence[dict[str, Any]]) -> None:
    """A table on the terminal."""
    heads = (
        "rollout ms",
        "update ms",
        "steps/s",
        "positions",
        "/ plain count",
        "peak MiB",
        "times ours",
        "MMAP_MAX_=0",
        "our peak",
    )
    table = Table("workload", "vocabulary", "loop", *heads)
    for result in results:
        for name, row in result["loops"].items():
            table.add_row(
                result["workload"], f"{result['vocabulary']:,}", name, f"{row['rollout_ms']:.1f}",
                f"{row['update_ms']:.1f}", f"{row['env_steps_per_second']:.2f}",
                f"{row['forward']:.0f} + {row['backward']:.0f}", f"{row['over_fewest']:.2f}", f"{row['peak_mib']:.0f}",
                f"{row['slower_than_ours']:.2f}", _shown(row.get("slower_with_kept_memory")),
                f"{row['peak_of_ours']:.2f}",
            )  # fmt: skip
    console.print(table)


def _shown(factor: float | None) -> str:
    return "-" if factor is None else f"{factor:.2f}"


def draw(results: Sequence[dict[str, Any]], path: Path) -> None:
    """Cost of a step by each loop, in costs of ours; a panel for each vocabulary, the update above the rollout."""
    vocabularies = list(dict.fromkeys(result["vocabulary"] for result in results))
    figure, axes = plt.subplots(
        len(vocabularies), 1, figsize=(9, 3.6 * len(vocabularies)), layout="constrained", squeeze=False
    )
    for axis, vocabulary in zip(axes[:, 0], vocabularies, strict=True):
        shown = [result for result in results if result["vocabulary"] == vocabulary]
        for place, (name, colour) in enumerate(_COLOURS.items()):
            found = [(x + 0.27 * (place - 1), one["loops"]) for x, one in enumerate(shown) if name in one["loops"]]
            _bars(axis, name, colour, found)
        axis.set_xticks(range(len(shown)), [result["workload"] for result in shown])
        axis.set(ylabel="times the cost of ours", title=f"An environment step, vocabulary {vocabulary:,}")
        axis.margins(y=0.15)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0][0].legend(frameon=False, title="pale: update")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _bars(axis: Any, name: str, colour: str, found: Sequence[tuple[float, dict[str, Any]]]) -> None:  # noqa: ANN401
    """One loop's bars, at the places given."""
    xs = [x for x, _ in found]
    ours = [loops["ours"]["total_ms"] for _, loops in found]
    rollout = [loops[name]["rollout_ms"] / unit for (_, loops), unit in zip(found, ours, strict=True)]
    update = [loops[name]["update_ms"] / unit for (_, loops), unit in zip(found, ours, strict=True)]
    axis.bar(xs, rollout, 0.25, color=colour, label=name)
    top = axis.bar(xs, update, 0.25, bottom=rollout, color=colour, alpha=0.55)
    texts = [f"{loops[name]['total_ms']:,.0f} ms" for _, loops in found]
    axis.bar_label(top, texts, fontsize=7, padding=1)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Cost of an environment step in training, ours and plain loops'.")
    parser.add_argument("--workload", action="append", choices=[*SETTINGS], help="may be repeated; all by default")
    parser.add_argument(
        "--vocabulary", action="append", type=int, help="rows of the head, 854 or more; may be repeated; 2000 and 32000"
    )
    parser.add_argument("--loop", action="append", choices=[*LOOPS], help="to compare with; both by default")
    parser.add_argument("--runs", type=int, default=3, help="turns, whose medians are shown (3)")
    parser.add_argument("--model-size", default="6m", choices=[*MODELS])
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1, help="of a CPU, whose time is summed over them")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="JSON file; a picture goes beside it")
    parser.add_argument("--peak-of", help=argparse.SUPPRESS)
    parser.add_argument("--samples", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--slower-to", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Command line."""
    given = _parse()
    if given.out is not None:
        given.out.parent.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(given.threads)
    console, results = Console(width=160), []
    names = given.loop or [*LOOPS]
    place = "" if given.device == "cpu" and given.model_size == "6m" else f"_{given.device}_{given.model_size}"
    out = given.out or RESULTS / f"throughput{place}.json"
    for vocabulary in given.vocabulary or VOCABULARIES:
        options = Options(vocabulary, given.model_size, given.dtype, given.device, given.seed)
        for workload in given.workload or SETTINGS:
            if given.peak_of is not None:
                print(own_peak(given.peak_of, workload, options, given.samples))
                return
            if given.slower_to is not None:
                costs, _ = measure(workload, options, given.runs, names)
                found = {name: _slower(costs, name) for name in costs}
                given.slower_to.write_text(json.dumps(found), encoding="utf-8")
                return
            result = one_result(workload, options, given.runs, names)
            result["measured"] = {**describe_machine(), "threads": given.threads, "gpu": _gpu(given.device)}
            show(console, [result])
            results = put(result, out)
    if len(results) > 1:
        show(console, results)


def put(result: dict[str, Any], path: Path) -> list[dict[str, Any]]:
    """Write a result to a file, in place of what it has of the workload and vocabulary; returns all of them."""
    found = json.loads(path.read_text(encoding="utf-8"))["results"] if path.exists() else []
    places = [(vocabulary, workload) for vocabulary in VOCABULARIES for workload in SETTINGS]

    def key(one: dict[str, Any]) -> tuple[int, str]:
        return one["vocabulary"], one["workload"]

    results = [*(one for one in found if key(one) != key(result)), result]
    results.sort(key=lambda one: places.index(key(one)) if key(one) in places else len(places))
    draft = path.with_suffix(".tmp")
    draft.write_text(json.dumps({"results": results}, indent=1) + "\n", encoding="utf-8")
    draft.replace(path)
    draw(results, path.with_suffix(".png"))
    return results


def one_result(workload: str, options: Options, runs: int, names: Sequence[str]) -> dict[str, Any]:
    """Everything about one workload."""
    agreement = {name: check(name, workload, options)._asdict() for name in names}
    for name, differences in agreement.items():
        if not max(differences.values()) < _TOLERANCES[options.dtype]:
            raise AssertionError(f"Expected {name} to do on {workload} what ours does; got differences {differences}.")
    costs, fewest = measure(workload, options, runs, names)
    kept = slower_with_kept_memory(workload, options, runs, names)
    loops = summary(costs, fewest, peaks(workload, options, names), kept)
    return {
        "workload": workload,
        **options._asdict(),
        "runs": runs,
        "fewest": fewest,
        "agreement": agreement,
        "loops": loops,
    }


def _gpu(device: str) -> str | None:
    return torch.cuda.get_device_name() if torch.device(device).type == "cuda" else None


if __name__ == "__main__":
    main()
