"""Perplexity before and after a training: passages, losses, intervals and verdicts."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch
from toy import make_agent, randomise

from benchmarks.performance import perplexity
from benchmarks.performance.perplexity import compare, mean_losses, passages, read_text
from lang_bench.runner.errors import BenchmarkError


def test_passages_are_spread_over_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perplexity, "LENGTH", 4)
    tokens = list(range(43))
    assert passages(tokens, 3) == [(0, 1, 2, 3), (16, 17, 18, 19), (36, 37, 38, 39)]
    assert len(passages(tokens, 99)) == 10
    assert passages([1, 2], 3) == []


def test_losses_are_those_of_the_whole_network() -> None:
    policy = make_agent().policy
    randomise(policy)
    row = tuple(policy.lm.prompt_ids("You are in the kitchen."))
    ids = torch.tensor([row])
    with torch.no_grad():
        after = policy.lm.network(ids, use_cache=False, labels=ids).loss
        with policy.lm.network.disable_adapter():
            before = policy.lm.network(ids, use_cache=False, labels=ids).loss
    assert mean_losses(policy, [row], base=False) == pytest.approx([float(after)], abs=1e-4)
    assert mean_losses(policy, [row], base=True) == pytest.approx([float(before)], abs=1e-4)
    assert abs(float(after - before)) > 1e-3


@pytest.mark.parametrize(
    ("shift", "noise", "verdict"), [(0.0, 0.01, "unchanged"), (0.2, 0.01, "changed"), (0.05, 0.2, "not settled")]
)
def test_the_verdict_follows_from_the_interval_of_the_ratio(shift: float, noise: float, verdict: str) -> None:
    before = np.random.default_rng(0).normal(3.0, 0.5, 40)
    after = before + shift + np.random.default_rng(1).normal(0.0, noise, 40)
    result = compare(before, after)
    assert result["verdict"] == verdict
    assert result["ratio"] == pytest.approx(result["after"] / result["before"])
    low, high = result["interval"]
    assert low < result["ratio"] < high
    error = (after - before).std(ddof=1) / np.sqrt(40)
    assert np.log(high / low) == pytest.approx(2 * 1.96 * error, rel=0.1)


def test_texts_may_be_compressed(tmp_path: Path) -> None:
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress("Ä text".encode()))
    assert read_text(tmp_path / "a.txt.gz") == "Ä text"
    (tmp_path / "b.txt").write_bytes(b"\xff")
    (tmp_path / "c.txt.gz").write_bytes(gzip.compress(b"cut")[:-3])
    for name in ("b.txt", "c.txt.gz"):
        with pytest.raises(BenchmarkError, match=f"Expected a text in UTF-8; .*{name} cannot be read"):
            read_text(tmp_path / name)
