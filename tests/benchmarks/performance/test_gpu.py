"""The parts of `measure gpu`, and its summary of kernels."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.performance import gpu
from benchmarks.performance.gpu import Event, Part, count_syncs, run_parts, summarize
from lang_bench.runner.errors import BenchmarkError


def test_a_part_that_fails_or_has_no_time_does_not_stop_the_others() -> None:
    def fail(seconds: float) -> dict[str, Any]:
        raise RuntimeError("out of memory")

    def measure(seconds: float) -> dict[str, Any]:
        return {"given": seconds}

    results: dict[str, dict[str, Any]] = {}
    parts = [Part("fails", fail, 1, 0.5), Part("long", measure, 1000, 1), Part("short", measure, 1, 0.25)]
    run_parts(parts, 100, results.__setitem__)
    assert results["fails"]["error"] == "RuntimeError: out of memory"
    assert results["long"] == {"skipped": "100 s are left, and it needs 1000 s"}
    assert results["short"]["given"] == 25


def test_kernels_that_overlap_count_once_as_busy_time() -> None:
    events = [Event("b", 500, 700), Event("a", 0, 300), Event("a", 200, 400), Event("c", 550, 600)]
    summary = summarize(events, 1e-6)
    assert summary["idle_share"] == pytest.approx(0.4)
    assert [(kernel["name"], kernel["calls"]) for kernel in summary["top"]] == [("a", 2), ("b", 1), ("c", 1)]
    assert summary["top"][0]["share"] == pytest.approx(500 / 750)
    assert summarize([], 1.0)["idle_share"] is None


def test_syncs_are_counted_by_line(monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[str | int] = []
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: 0)
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", modes.append)

    def run() -> None:
        for _ in range(3):  # the sentence of PyTorch
            warnings.warn("called a synchronizing CUDA operation (Triggered internally at x.cpp:145.)", stacklevel=1)

    line = run.__code__.co_firstlineno + 2
    assert count_syncs(run) == {f"performance/test_gpu.py:{line}": 3}
    with pytest.raises(ZeroDivisionError):
        count_syncs(lambda: 1 // 0)
    assert modes == ["warn", 0] * 2


def test_a_machine_without_a_gpu_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_gpu(device: str) -> str:
        raise RuntimeError("no NVIDIA driver")

    monkeypatch.setattr(torch.cuda, "get_device_name", no_gpu)
    with pytest.raises(BenchmarkError, match="Expected a GPU for --device cuda"):
        gpu.gpu(out=tmp_path / "gpu.json")
    assert not [*tmp_path.iterdir()]


@pytest.mark.process
def test_a_rehearsal_on_the_processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(gpu, "run_tests", lambda device, seconds: {"passed": 1, "failed": 0})
    monkeypatch.setattr(gpu, "train", lambda size, dtype, task, device, n_steps: {"size": size, "task": task})
    gpu.gpu(minutes=10, device="cpu", model="pocket", max_steps=128, out=tmp_path / "gpu.json")
    written = json.loads((tmp_path / "gpu.json").read_text())
    assert written["training_float32"]["curve"][0]["steps"] == 128
    assert written["kernels_bfloat16"]["update"]["top"]
    assert written["memory"]["float32"]["forecast"] > 0
    assert [run["size"] for run in written["real_size_0.05b_float32"]["runs"]] == ["0.05b", "0.05b"]
    assert written["training_GRPO"]["curve"][0]["steps"] >= 128
    assert written["reproducibility"]["equal"]
    assert written["free_text"]["vllm"] is None
    assert next(iter(written["free_text"]["rows"].values()))["own decoding"] > 0
