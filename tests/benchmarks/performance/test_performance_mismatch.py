"""The gate on batches of a tiny model in bfloat16: bounds from one seed, batches from another."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from benchmarks.performance.mismatch import (
    CALIBRATION_SEED,
    KINDS,
    NOISE,
    TEST_SEED,
    Pools,
    batches,
    clean_responses,
    flat_model,
    make_pools,
    retokenized,
    share_refused,
    smallest_noise,
)
from benchmarks.runner.machine import RESULTS
from poad_sb3.credit.mismatch import CleanMismatch
from poad_sb3.language_model.language_model import LanguageModel

RECORDED = json.loads((RESULTS / "mismatch.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def lm() -> Iterator[LanguageModel]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield LanguageModel(flat_model)
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def clean(lm: LanguageModel) -> CleanMismatch:
    return CleanMismatch.of(clean_responses(lm, CALIBRATION_SEED, 256).mismatch())


@pytest.fixture(scope="module")
def few(lm: LanguageModel) -> Pools:
    return make_pools(lm, TEST_SEED, 128)


@pytest.mark.parametrize("kind", KINDS)
def test_fifty_batches(few: Pools, clean: CleanMismatch, kind: str) -> None:
    caught = kind in KINDS[1:4]
    assert share_refused(few, clean, kind, 50, NOISE * clean.std) == float(caught)


def test_responses_and_batches_are_as_large_as_stated(few: Pools) -> None:
    assert all(32 <= len(path.action) <= 40 for path in few.clean.paths)
    (one,) = batches(few, "clean", 1, 0.0)
    assert one.n_responses == 64
    assert one.n_tokens >= 64 * 32


def test_a_retokenized_word_has_the_same_text_and_number_of_tokens(lm: LanguageModel, few: Pools) -> None:
    assert few.retokenized.paths
    texts = {lm.prompter.action_text(path.action): path for path in few.clean.paths}
    for path in few.retokenized.paths:
        before = texts[lm.prompter.action_text(path.action)]
        assert len(before.action) == len(path.action)
        assert sum(one != other for one, other in zip(before.action, path.action, strict=True)) == 2


def test_tokens_that_spell_no_other_pair_stay(lm: LanguageModel) -> None:
    assert retokenized(lm, [lm.end_token, lm.end_token], np.random.default_rng(0)) is None


@pytest.mark.slow
def test_a_thousand_batches_of_each_kind(lm: LanguageModel) -> None:
    clean = CleanMismatch.of(clean_responses(lm, CALIBRATION_SEED).mismatch())
    pools = make_pools(lm, TEST_SEED)
    shares = {kind: share_refused(pools, clean, kind, 1000, NOISE * clean.std) for kind in KINDS}
    assert shares == {
        "clean": 0.0,
        "noise": 1.0,
        "cut support": 1.0,
        "re-tokenized word": 1.0,
        "raw cut support": 0.0,  # cannot be detected
    }
    assert smallest_noise(pools, clean, 200) == pytest.approx(RECORDED["smallest_noise_caught_in_95_percent"], abs=0.3)


def test_the_recorded_figures_are_those_of_the_gate() -> None:
    clean = CleanMismatch(**RECORDED["clean"])
    assert clean.bounds(64, 64 * 32) == pytest.approx(RECORDED["bounds"])
    assert [*RECORDED["refused"].values()] == [0.0, 1.0, 1.0, 1.0, 0.0]
    assert RECORDED["batch"]["batches"] == 1000
