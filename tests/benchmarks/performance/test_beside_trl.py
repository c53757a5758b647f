"""Turns of one rollout and one update, and the rows that are made of them; TRL itself is not installed here."""

from __future__ import annotations

from collections.abc import Iterator
from multiprocessing import Pipe
from pathlib import Path

import pytest

from benchmarks.performance import beside_trl
from benchmarks.performance.beside_trl import N_ENVS, N_STEPS, SIDES, TRL, Turn, Turns, clone, draw, row


def test_a_ratio_is_the_median_over_the_turns() -> None:
    ours, theirs = ([Turn(cost, 128, [1.0, 0.0], [True, False]) for cost in costs] for costs in ((2, 4, 1), (6, 4, 5)))
    measured = row(ours, theirs, 3 << 20)
    assert measured["times_cheaper_than_trl"] == 3, "and not 5 / 2, the ratio of the medians"
    assert measured["core_seconds_per_1000_steps"] == round(2e3 / 128, 1)
    assert (measured["peak_mib"], measured["n_success"], measured["mean_return"]) == (3, [1, 1, 1], [0.5, 0.5, 0.5])
    assert row(ours, None, 0)["times_cheaper_than_trl"] is None
    assert draw({TRL: row(theirs, theirs, 0), "GRPO, free text": measured}).axes


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("start")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(beside_trl, "MODEL", "pocket")
        clone(folder, 1, 1)
        yield folder


@pytest.mark.parametrize("name", [name for name in SIDES if name != TRL])
def test_every_side_trains_a_turn(name: str, start: Path) -> None:
    driver_end, side_end = Pipe()
    driver_end.send(True)
    driver_end.send(False)
    side = SIDES[name]
    assert side is not None
    with pytest.raises(SystemExit):
        (beside_trl.train_carefully if side.is_careful else beside_trl.train_ours)(side, start, Turns(side_end))
    turn, _ = driver_end.recv()
    assert 0 < turn.env_steps <= beside_trl.BATCH
    assert turn.env_steps == N_STEPS or not side.is_careful
    assert turn.seconds > 0
    assert len(turn.returns) == len(turn.successes) >= N_ENVS  # the time limit ends every episode
