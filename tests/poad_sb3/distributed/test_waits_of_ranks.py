"""Waits of ranks for each other: after unequal work, at the start, and for a rank that is lost; and what they send."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, TypeVar

import pytest
import torch
import torch.distributed as dist
from rank_runs import ENVIRONMENT
from rank_threads import in_ranks
from torch import Tensor

from poad_sb3.distributed import Ranks
from poad_sb3.errors import LostRankError
from poad_sb3.language_model.language_model import LanguageModel
from poad_sb3.language_model.packing import TokenRow

T = TypeVar("T")
pytestmark = pytest.mark.skipif(not dist.is_available(), reason="torch without torch.distributed")


def exchanges(*programs: Callable[[Ranks], Any]) -> list[Any]:
    """Run a program in each rank, between two exchanges; return results, or exceptions."""

    def between(program: Callable[[Ranks], Any]) -> Callable[[Ranks], Any]:
        def run(ranks: Ranks) -> Any:
            try:
                with ranks.data_parallel():
                    ranks.merge({ranks.rank: "before"})
                    result = program(ranks)
                    ranks.merge({ranks.rank: "after"})
                    return result
            except LostRankError:
                ranks.end()  # with its process
                raise

        return run

    return in_ranks(*map(between, programs), timeout=0.5)


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the times at which ranks begin exchanges, in place of gloo's."""
    times: list[float] = []

    def gather(gathered: list[Any], own: Any, *, group: object) -> None:
        times.append(time.monotonic())
        gathered[:] = [own] * len(gathered)

    monkeypatch.setattr(dist, "all_gather_object", gather)
    monkeypatch.setattr("poad_sb3.distributed.ranks._BEAT", 0.05)
    return times


def test_a_rank_that_works_for_longer_than_the_time_out_is_waited_for(begun: list[float]) -> None:
    assert exchanges(lambda _: "fast", lambda _: time.sleep(1.5) or "slow") == ["fast", "slow"]
    assert len(begun) == 4
    assert max(begun[2:]) - min(begun[2:]) < 0.4, "gloo's own wait begins when all have come"


def test_a_rank_without_a_sign_of_life_is_lost(begun: list[float]) -> None:
    def stopped(ranks: Ranks) -> None:
        ranks.end()
        raise KeyError

    start = time.monotonic()
    found, _, other = exchanges(lambda _: None, stopped, lambda _: None)
    assert time.monotonic() - start < 10
    for rank, error in ((0, found), (2, other)):
        assert type(error) is LostRankError
        assert f"rank {rank} waits in vain (no sign of life of rank 1 within 0.5 s)" in str(error)


def test_a_rank_that_waits_for_the_end_of_rank_0_counts_as_lost(begun: list[float]) -> None:
    """Else rank 0 would wait for it, and it for rank 0."""
    found, _ = exchanges(lambda _: None, lambda ranks: ranks.wait_until_first_ends() or 1 / 0)
    assert "no sign of life of rank 1" in str(found)


def test_a_rank_that_lives_and_never_comes_is_lost_in_the_end(
    begun: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("poad_sb3.distributed.ranks.MEETING", timedelta(seconds=1))
    found, _ = exchanges(lambda _: None, lambda _: 1 / 0)
    assert type(found) is LostRankError
    assert "Expected all 2 ranks within 0:00:01; rank 0 waits in vain" in str(found)


def test_meetings_leave_no_keys(begun: list[float]) -> None:
    store = dist.HashStore()
    for _ in range(5):
        with ThreadPoolExecutor(2) as pool:
            ranks = [Ranks(rank, 2, store) for rank in range(2)]
            for _ in range(4):
                list(pool.map(Ranks.meet, ranks))
            for one in ranks:
                one.end()
        assert store.num_keys() <= 4, "a sign of each rank, and the last meeting"
        store.delete_key("meeting/4")
        store.delete_key("meeting/4/all")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RuntimeError("[enforce fail at alloc_cpu.cpp:127] can't allocate memory"), RuntimeError),
        (RuntimeError("[third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer"), LostRankError),
        (dist.DistBackendError("NCCL error"), LostRankError),  # type: ignore[attr-defined]
    ],
)
def test_only_errors_of_an_exchange_are_those_of_another_rank(
    error: Exception, expected: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After any other one the same training would end in the same way."""

    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(dist, "all_gather_object", fails)
    assert [type(one) for one in exchanges(lambda _: None, lambda _: None)] == [expected] * 2


PROGRAM = """
    import sys, time
    from datetime import timedelta
    from poad_sb3.distributed import end_ranks, start_ranks
    late = sys.argv[1] == "1"
    time.sleep(6 * late)
    ranks = start_ranks(2, timeout=timedelta(seconds=2))
    with ranks.data_parallel():
        time.sleep(5 * late)
        print(ranks.merge({ranks.rank: ranks.rank}))
    end_ranks()
"""


@pytest.mark.process
def test_processes_wait_at_the_start_and_after_unequal_work() -> None:
    port = 20000 + os.getpid() % 10000
    found = []
    for rank in ("0", "1"):
        variables = {"RANK": rank, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        found.append(
            subprocess.Popen(
                [sys.executable, "-c", textwrap.dedent(PROGRAM), rank],
                env={**os.environ, **ENVIRONMENT, **variables, "LOCAL_RANK": rank},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    for one in found:
        written, errors = one.communicate(timeout=200)
        assert written == "{0: 0, 1: 1}\n", errors
        assert "timed out" not in errors, "a wait writes no warnings"


def test_features_are_sent_without_those_of_other_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[int, int]] = []

    class Second(Ranks):
        def owns(self, micro_batch: int, n_micro_batches: int) -> bool:
            return True

        def merge(self, found: Mapping[int, T]) -> dict[int, T]:
            numbers = [one for one in found.values() if isinstance(one, Tensor)]
            sent.append((len(pickle.dumps(found)), sum(one.numel() * one.element_size() for one in numbers)))
            return dict(found)

    lm = LanguageModel("pocket", micro_batches=4)
    rows = [TokenRow(tuple(range(5 + n, 60 + n)), None, tuple(range(48, 54))) for n in range(64)]
    alone = lm.trunk_features(rows)
    ranks = Second(1, 2, dist.HashStore())
    monkeypatch.setattr("poad_sb3.distributed.ranks._current", ranks)
    with ranks.data_parallel():
        features = lm.trunk_features(rows)
    ranks.end()
    ((pickled, numbers),) = sent
    assert numbers < pickled < 1.5 * numbers
    assert all(torch.equal(one, other) for one, other in zip(alone, features, strict=True))
