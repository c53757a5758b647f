"""Waits of ranks for each other: after unequal work, and for a rank that is lost."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch.distributed as dist
from rank_threads import in_ranks

from poad_sb3.distributed import Ranks
from poad_sb3.errors import LostRankError

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
    first, _, other = exchanges(lambda _: None, stopped, lambda _: None)
    assert time.monotonic() - start < 10
    for rank, error in ((0, first), (2, other)):
        assert type(error) is LostRankError
        assert f"rank {rank} waits in vain (no sign of life of rank 1 within 0.5 s)" in str(error)


def test_a_rank_that_lives_and_never_comes_is_lost_in_the_end(
    begun: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("poad_sb3.distributed.ranks.MEETING", timedelta(seconds=1))
    error, _ = exchanges(lambda _: None, lambda _: 1 / 0)
    assert type(error) is LostRankError
    assert "Expected all 2 ranks within 0:00:01; rank 0 waits in vain" in str(error)


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
    assert [type(error) for error in exchanges(lambda _: None, lambda _: None)] == [expected] * 2
