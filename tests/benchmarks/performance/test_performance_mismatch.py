"""The gate on batches of a tiny model in bfloat16: bounds from one seed, batches from another."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from benchmarks.performance.mismatch import (
    CALIBRATION_SEED,
    KINDS,
    NOISE,
    TEST_SEED,
    Pools,
    clean_responses,
    flat_model,
    make_pools,
    share_refused,
)
from poad_sb3.credit.mismatch import CleanMismatch
from poad_sb3.language_model.language_model import LanguageModel


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


def test_the_gate_refuses_faults_and_passes_clean_batches(few: Pools, clean: CleanMismatch) -> None:
    refused = [share_refused(few, clean, kind, 50, NOISE * clean.std) for kind in KINDS]
    assert refused == [0.0, 1.0, 1.0, 1.0, 0.0]  # the last fault cannot be detected


def test_a_retokenized_word_has_the_same_text_and_number_of_tokens(lm: LanguageModel, few: Pools) -> None:
    assert few.retokenized.paths
    texts = {lm.prompter.action_text(path.action): path for path in few.clean.paths}
    for path in few.retokenized.paths:
        before = texts[lm.prompter.action_text(path.action)]
        assert len(before.action) == len(path.action)
        assert sum(one != other for one, other in zip(before.action, path.action, strict=True)) == 2
