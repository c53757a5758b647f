"""Checks and measurements for a machine with a GPU, in the order of their worth, within a time budget.

Device tests; speed and learning of POAD with SmolLM2 on Tomato Salad, in float32 and in bfloat16; the kernels of a
rollout and of an update; peak memory beside its forecast; models of real size (`measure real-size`); learning of GRPO;
two trainings that are to be equal; free text, by own decoding and by vLLM where `vllm` is on the path. No part needs a
network. Results are written after each part, so that the command may be stopped at any time; a part that fails is
recorded with its error, and a part without enough time left with the reason.

    python -m benchmarks measure gpu --minutes 8
    python -m benchmarks measure gpu --minutes 5 --device cpu --model pocket    # a rehearsal

Writes gpu.json; on another device than a GPU runs/gpu.json.
"""

from __future__ import annotations

import gc
import re
import shutil
import subprocess
import sys
import time
import traceback
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import torch
import typer
from stable_baselines3.common.callbacks import BaseCallback, CallbackList
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from benchmarks.files import RESULTS, write_result
from benchmarks.options import one_of
from benchmarks.performance.engines import tokens_per_second
from benchmarks.performance.real_size import N_STEPS, SIZES, TASKS, train
from benchmarks.performance.timing import gpu_name, milliseconds, synchronized
from poad_sb3 import GRPO, POAD
from poad_sb3.cli.engine import program
from poad_sb3.common.hyperparameters import preset_arguments
from poad_sb3.common.on_policy_algorithm import LLMOnPolicyAlgorithm
from poad_sb3.memory import estimate_training
from poad_sb3.presets import MERGED, PRESETS
from poad_sb3.vec_env.make_envs import make_envs

ROOT = Path(__file__).parents[2]
TESTS = "tests/poad_sb3/language_model/test_devices.py"
ENV_ID = "Overcooked-TomatoSalad-v0"
DTYPES = ("float32", "bfloat16")
SUCCESS_WINDOW = 20
"""Number of episodes that a success rate is over."""
PEAKS = {"H100": 989.0, "H200": 989.0}
"""Dense matrix products in bfloat16 at best, in 1e12 operations a second, as NVIDIA states them for SXM modules."""
TOP = 10
"""Number of kernels listed."""


class Event(NamedTuple):
    """A kernel that ran, or on a CPU an operator of PyTorch with those that it calls.

    Attributes:
        name: Name of the kernel.
        start: Start, in nanoseconds.
        end: End, in nanoseconds.
    """

    name: str
    start: int
    end: int


class Part(NamedTuple):
    """A part of the measurement.

    Attributes:
        name: Key of its result.
        measure: Function that measures, given the seconds it may take.
        least: Seconds that must be left for it to start.
        share: Largest share of the whole time that it may take.
    """

    name: str
    measure: Callable[[float], dict[str, Any]]
    least: float
    share: float


def run_parts(parts: Iterable[Part], seconds: float, record: Callable[[str, dict[str, Any]], None]) -> None:
    """Measure the parts in order and record each result, error, or reason to skip.

    Args:
        parts: Parts of the measurement.
        seconds: Time budget of all parts together, in seconds.
        record: Function that stores the result of a part.
    """
    began = time.monotonic()
    for part in parts:
        left = seconds - (time.monotonic() - began)
        if left < part.least:
            record(part.name, {"skipped": f"{max(0.0, left):.0f} s are left, and it needs {part.least:.0f} s"})
            continue
        start = time.monotonic()
        try:
            result = part.measure(min(left, part.share * seconds))
        except Exception as error:  # the other parts are worth measuring all the same
            result = {"error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc(limit=-8)}
        record(part.name, {**result, "part_seconds": round(time.monotonic() - start, 2)})


def run_tests(device: str, seconds: float) -> dict[str, Any]:
    """Run the device tests in a process of their own."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", TESTS]
    command += ["--gpu"] if _is_cuda(device) else []
    start, error = time.monotonic(), None
    try:
        done = subprocess.run(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=seconds, check=False
        )
        output, succeeded = done.stdout, done.returncode == 0
    except subprocess.TimeoutExpired as expired:
        error, output, succeeded = f"Did not end within {seconds:.0f} s.", expired.stdout or b"", False
    text = output.decode(errors="replace")
    counts = {outcome: int(number) for number, outcome in re.findall(r"(\d+) (passed|failed|errors?)", text)}
    result = {"passed": 0, "failed": 0, **counts, "seconds": round(time.monotonic() - start, 1)}
    return result if succeeded else {**result, **({"error": error} if error else {}), "tail": text[-8000:]}


class Trainings:
    """Trainings on Tomato Salad, those of POAD in each dtype kept for the parts that look at them.

    Args:
        model: `model` of the policy.
        preset: Name of a preset.
        device: Torch device.
        max_steps: Environment steps of a training at most.
    """

    def __init__(self, model: str, preset: str, device: str, max_steps: int) -> None:
        self.model, self.preset, self.device, self.max_steps = model, preset, device, max_steps
        self._algorithms: dict[str, LLMOnPolicyAlgorithm] = {}
        self._peaks: dict[str, int] = {}

    def train(self, method: type[LLMOnPolicyAlgorithm], dtype: str, seconds: float) -> dict[str, Any]:
        """Train until the time or the steps are used up, one rollout at a time; the first is not timed."""
        start, before = time.monotonic(), 0
        if _is_cuda(self.device):
            before = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
        episodes = _Episodes()
        algorithm = self._make(method, dtype)
        if method is POAD:
            self._algorithms[dtype] = algorithm
        made = time.monotonic() - start
        curve: list[dict[str, Any]] = []
        errors: list[float] = []
        timed, n_timed, last = 0.0, 0, 0.0
        while algorithm.num_timesteps < self.max_steps and time.monotonic() - start + last < seconds:
            steps = algorithm.num_timesteps
            learn = partial(algorithm.learn, 1, callback=episodes, reset_num_timesteps=False)
            last = milliseconds(learn, synchronized(self.device)) / 1e3
            if curve:
                timed, n_timed = timed + last, n_timed + algorithm.num_timesteps - steps
            errors.append(float(algorithm.logger.name_to_value["train/first_ratio_error"]))
            curve.append({"steps": algorithm.num_timesteps, "seconds": round(last, 3), "success": episodes.success})
        if _is_cuda(self.device):
            self._peaks[dtype] = torch.cuda.max_memory_allocated() - before
        return {
            "method": method.__name__,
            "model": self.model,
            "arguments": self._arguments(method, dtype),
            "dtype": dtype,
            "parameters": algorithm.policy.lm.base.num_parameters(),
            "seconds_to_make": round(made, 2),
            "steps_per_second": n_timed / timed if timed else None,
            "first_ratio_error": max(errors, default=None),
            "curve": curve,
        }

    def _arguments(self, method: type[LLMOnPolicyAlgorithm], dtype: str) -> dict[str, Any]:
        """Return the arguments of POAD's preset, those without effect in another method left out."""
        given = preset_arguments(POAD, self.preset, None, {MERGED: {"model": self.model, "dtype": dtype}})
        if method is POAD:
            return given
        shared = ("learning_rate", "n_steps", "n_epochs", "temperature", MERGED)
        return {name: given[name] for name in shared if name in given}

    def _make(self, method: type[LLMOnPolicyAlgorithm], dtype: str) -> LLMOnPolicyAlgorithm:
        envs = make_envs(ENV_ID, {}, PRESETS[self.preset].n_envs)
        return method("LLMPolicy", envs, device=self.device, seed=0, **self._arguments(method, dtype))

    def reproducibility(self, dtype: str, seconds: float) -> dict[str, Any]:
        """Train for two rollouts from one seed, twice, and compare the adapters."""
        adapters = []
        for _ in range(2):
            algorithm = self._make(POAD, dtype)
            algorithm.learn(2 * algorithm.n_steps * algorithm.n_envs)
            adapters.append([weights.detach().clone() for weights in algorithm.policy.adapter_parameters()])
        pairs = [*zip(*adapters, strict=True)]
        return {
            "dtype": dtype,
            "equal": all(torch.equal(*pair) for pair in pairs),
            "largest_difference": max(float((first - second).abs().max()) for first, second in pairs),
        }

    def kernels(self, dtype: str, seconds: float) -> dict[str, Any]:
        """Profile one rollout and one update of the training."""
        if dtype not in self._algorithms:
            return {"skipped": "there was no training"}
        algorithm = self._algorithms[dtype]
        _, callback = algorithm._setup_learn(10**9, CallbackList([]), reset_num_timesteps=False)
        assert algorithm.env is not None
        rollout = partial(
            algorithm.collect_rollouts, algorithm.env, callback, algorithm.rollout_buffer, algorithm.n_steps
        )
        result: dict[str, Any] = {
            "events": "kernels" if _is_cuda(self.device) else "operators, with those that they call",
            "rollout": self._profile(rollout),
            "update": self._profile(algorithm.train),
        }
        if _is_cuda(self.device):  # after the update, which clears the cache of scores
            result["syncs_in_a_rollout"] = {
                "env_steps": algorithm.n_steps * algorithm.n_envs,
                "by_line": count_syncs(rollout),
            }
        return result

    def memory(self, seconds: float) -> dict[str, Any]:
        """Compare the peak of each training with its forecast, in bytes."""
        result: dict[str, Any] = {}
        for dtype in DTYPES:
            if dtype not in self._algorithms:
                result[dtype] = {"skipped": "there was no training"}
                continue
            algorithm = self._algorithms[dtype]
            needed = estimate_training(algorithm, algorithm._last_obs)
            peak = self._peaks.get(dtype)
            result[dtype] = {
                "peak": peak,
                "forecast": needed.total,
                "forecast_to_peak": None if peak is None else needed.total / peak,
                "parts": needed._asdict(),
            }
            if peak is None:
                result[dtype]["reason"] = "the peak of one training is measured on a GPU only"
        return result

    def drop(self) -> None:
        """Drop the trainings, so that their memory is free."""
        self._algorithms.clear()
        gc.collect()  # algorithms and their environments refer to each other
        if _is_cuda(self.device):
            torch.cuda.empty_cache()

    def _profile(self, run: Callable[[], object]) -> dict[str, Any]:
        activity = ProfilerActivity.CUDA if _is_cuda(self.device) else ProfilerActivity.CPU
        with profile(activities=[activity]) as profiler:
            wall = milliseconds(run, synchronized(self.device)) / 1e3
        return summarize(_events(profiler, DeviceType.CUDA if _is_cuda(self.device) else DeviceType.CPU), wall)


class _Episodes(BaseCallback):
    """Successes of the last episodes."""

    def __init__(self) -> None:
        super().__init__()
        self._last: deque[bool] = deque(maxlen=SUCCESS_WINDOW)

    @property
    def success(self) -> float | None:
        return sum(self._last) / len(self._last) if self._last else None

    def _on_step(self) -> bool:
        for info, done in zip(self.locals["infos"], self.locals["dones"], strict=True):
            if done:
                self._last.append(bool(info["success"]))
        return True


def count_syncs(run: Callable[[], object]) -> dict[str, int]:
    """Count the synchronizing calls that PyTorch reports while a function runs, by line, the most frequent first."""
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.filterwarnings("always", "called a synchronizing")
            run()
    finally:
        torch.cuda.set_sync_debug_mode(before)
    syncs = [warning for warning in caught if "called a synchronizing" in str(warning.message)]
    return dict(Counter(f"{'/'.join(Path(sync.filename).parts[-2:])}:{sync.lineno}" for sync in syncs).most_common())


def _events(profiler: Any, device: DeviceType) -> Iterator[Event]:
    """Yield the events of a kind of device; copies, fills and waits of a GPU are no kernels."""
    for event in profiler.profiler.kineto_results.events():
        name = event.name()
        if event.device_type() == device and not name.startswith(("Memcpy", "Memset")) and not name.endswith("Sync"):
            yield Event(name, event.start_ns(), event.start_ns() + event.duration_ns())


def summarize(events: Iterable[Event], wall: float) -> dict[str, Any]:
    """Return the share of time without a kernel, and the kernels that took most time together.

    Args:
        events: Kernels, in any order; they may overlap.
        wall: Wall time, in seconds.
    """
    ordered = sorted(events, key=lambda event: event.start)
    times: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    busy, end = 0, 0
    for event in ordered:
        times[event.name] += event.end - event.start
        calls[event.name] += 1
        busy += max(0, event.end - max(end, event.start))
        end = max(end, event.end)
    total = sum(times.values())
    top = [
        {"name": name[:160], "ms": duration / 1e6, "calls": calls[name], "share": duration / total}
        for name, duration in times.most_common(TOP)
    ]
    return {
        "wall_seconds": wall,
        "busy_seconds": busy / 1e9,
        "idle_share": 1 - busy / 1e9 / wall if ordered else None,
        "calls": len(ordered),
        "top": top,
    }


def real_sizes(size: str, dtype: str, device: str, before: Callable[[], None], seconds: float) -> dict[str, Any]:
    """Train a model of real size on both tasks of `measure real-size`, while there is time."""
    start, runs = time.monotonic(), []
    for task in TASKS:
        before()
        began = time.monotonic()
        if not runs or 2 * (began - start) < seconds:
            run = train(size, dtype, task, device, n_steps=16 if _is_cuda(device) else N_STEPS)
            if _is_cuda(device) and dtype == "bfloat16":
                peak = PEAKS.get(torch.cuda.get_device_name(device).split()[1])
                run["share_of_peak"] = None if peak is None else run["update_teraflops"] / peak
            runs.append({**run, "seconds_with_making": time.monotonic() - began})
    return {"runs": runs}


def free_text(model: str, dtype: str, device: str, seconds: float) -> dict[str, Any]:
    """Time own decoding and, where its program is on the path, vLLM."""
    path = shutil.which("vllm")
    command = None if path is None else program("vllm --gpu-memory-utilization 0.4")
    sizes = [(32, 64)] if _is_cuda(device) else [(4, 8)]
    rows = tokens_per_second(model, sizes, command, dtype=dtype, device=device, turns=3)
    return {"vllm": path, "rows": rows}


def _is_cuda(device: str) -> bool:
    return torch.device(device).type == "cuda"


def gpu(
    minutes: Annotated[float, typer.Option(min=0.1, help="Time budget.")] = 8.0,
    device: str = "cuda",
    model: Annotated[str, typer.Option(help="Model of the trainings on Tomato Salad.")] = "smollm2",
    preset: Annotated[str | None, typer.Option(help="Preset of the trainings; by default that of the model.")] = None,
    max_steps: Annotated[int, typer.Option(min=1, help="Environment steps of each training at most.")] = 8_192,
    size: Annotated[str | None, one_of(SIZES, "Of `measure real-size`; all of Qwen2 on a GPU.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="JSON file with the results.")] = None,
) -> None:
    """Run device tests, SmolLM2 on Tomato Salad, kernels, memory, models of real size, GRPO and free text.

    In this order; a part without enough time left is skipped.
    Results are written after each part.
    Free text is written by vLLM too, if `vllm` is on the path.
    A rehearsal without a GPU: --device cpu --model pocket.
    """
    is_cuda = _is_cuda(device)
    device_name = gpu_name(device) or device
    preset = preset or (f"{model}/overcooked" if f"{model}/overcooked" in PRESETS else "smollm2/overcooked")
    sizes = [size] if size else ["0.5b", "1.5b", "7b"] if is_cuda else ["0.05b"]
    out = out or (RESULTS if is_cuda else Path("runs")) / "gpu.json"
    trainings = Trainings(model, preset, device, max_steps)
    large = 40 if is_cuda else 15
    start = 10 if shutil.which("vllm") is None else 90  # on a processor vLLM starts for a minute
    parts = [Part("tests", partial(run_tests, device), 45, 0.35)]
    for dtype in DTYPES:
        parts += [
            Part(f"training_{dtype}", partial(trainings.train, POAD, dtype), 10, 0.2),
            Part(f"kernels_{dtype}", partial(trainings.kernels, dtype), 10, 0.1),
        ]
    parts += [Part("memory", trainings.memory, 2, 0.1)]
    cases = [*((sizes[0], dtype) for dtype in reversed(DTYPES)), *((larger, "bfloat16") for larger in sizes[1:])]
    for model_size, dtype in cases:
        measure = partial(real_sizes, model_size, dtype, device, trainings.drop)
        parts += [Part(f"real_size_{model_size}_{dtype}", measure, large, 0.3)]
    parts += [
        Part("training_GRPO", partial(trainings.train, GRPO, "float32"), 10, 0.2),
        Part("reproducibility", partial(trainings.reproducibility, "float32"), 10, 0.2),
        Part("free_text", partial(free_text, model, "bfloat16" if is_cuda else "float32", device), start, 0.3),
    ]
    typer.echo(f"{minutes:g} minutes on {device}: {', '.join(part.name for part in parts)}; results in {out}")
    results: dict[str, Any] = {
        "device": device_name,
        "minutes": minutes,
        "model": model,
        "preset": preset,
    }

    def record(name: str, result: dict[str, Any]) -> None:
        results[name] = result
        write_result(out.stem, results, out.parent)
        typer.echo(f"{name}: {_headline(result)}")

    torch.backends.cuda.matmul.allow_tf32 = False  # float32 is to be float32
    run_parts(parts, 60 * minutes, record)
    typer.echo(out)


def _headline(result: dict[str, Any]) -> str:
    shown = {key: value for key, value in result.items() if not isinstance(value, list | dict) and key != "traceback"}
    if result.get("curve"):
        shown["last"] = result["curve"][-1]
    return ", ".join(f"{key} {value}" for key, value in shown.items())
