"""Exchanges of ranks: two of them in threads, with a store in memory."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch.distributed as dist
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecNormalize

from poad_sb3 import BADQ, POAD, UnsupportedEnvError
from poad_sb3.distributed import Ranks, current_ranks, end_ranks, start_ranks
from poad_sb3.distributed.broadcast_vec_env import BroadcastVecEnv
from poad_sb3.distributed.callbacks import RankCallback
from poad_sb3.errors import RankError
from poad_sb3.vec_env.make_envs import make_envs

pytestmark = pytest.mark.skipif(not dist.is_available(), reason="torch without torch.distributed")
ENV = "MultiKey-v0"


def in_ranks(*programs: Callable[[Ranks], Any], timeout: float = 20.0) -> list[Any]:
    """Run a program in each rank; return results, or exceptions."""
    store = dist.HashStore()
    ranks = [Ranks(rank, len(programs), store, None, timedelta(seconds=timeout)) for rank in range(len(programs))]

    def run(place: int) -> Any:
        try:
            return programs[place](ranks[place])
        except Exception as error:
            return error

    with ThreadPoolExecutor(len(programs)) as pool:
        found = list(pool.map(run, range(len(programs))))
    for one in ranks:
        one.end()
    return found


def test_rank_0_leads_and_all_get_its_result() -> None:
    calls: list[int] = []

    def program(ranks: Ranks) -> list[object]:
        def work() -> object:
            calls.append(ranks.rank)
            return {"seen": ranks.lead("inside", lambda: ("inside", ranks.divides))}

        with ranks.dividing():
            before = ranks.divides
            return [before, ranks.lead("work", work), ranks.lead("more", lambda: np.arange(3).tolist())]

    first, second = in_ranks(program, program)
    assert first == second == [True, {"seen": ("inside", False)}, [0, 1, 2]]
    assert calls == [0]


def test_an_error_of_rank_0_reaches_the_others() -> None:
    def work() -> None:
        raise ValueError("no such table")

    first, second = in_ranks(*[lambda ranks: ranks.lead("a step", work)] * 2)
    assert isinstance(first, ValueError)
    assert isinstance(second, RankError)
    assert str(second) == "Rank 0 failed in a step: ValueError: no such table"


def test_a_result_that_cannot_be_sent_is_an_error_on_both() -> None:
    first, second = in_ranks(*[lambda ranks: ranks.lead("get_attr lock", threading.Lock)] * 2)
    assert isinstance(first, TypeError)
    assert isinstance(second, RankError)


def test_ranks_of_different_programs_notice() -> None:
    _, second = in_ranks(lambda ranks: ranks.lead("save", lambda: 1), lambda ranks: ranks.lead("a step", lambda: 1))
    assert isinstance(second, RankError)
    assert "rank 0 is in save, rank 1 in a step" in str(second)


def test_a_long_evaluation_is_waited_for_and_a_lost_leader_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 0 works for longer than the time-out and gives signs of life; then it gives none."""
    monkeypatch.setattr("poad_sb3.distributed.ranks._BEAT", 0.05)

    def slow(ranks: Ranks) -> str:
        return ranks.lead("an evaluation", lambda: time.sleep(1.0) or "done")

    assert in_ranks(slow, slow, timeout=0.5) == ["done", "done"]

    def lost(ranks: Ranks) -> None:
        ranks.end()  # as if it were stopped

    _, second = in_ranks(lost, slow, timeout=0.5)
    assert isinstance(second, RankError)
    assert "sign of life of rank 0 (in an evaluation)" in str(second)


def test_all_ranks_see_the_environments_of_rank_0() -> None:
    def program(ranks: Ranks) -> list[Any]:
        envs = BroadcastVecEnv(make_envs(ENV, {}, 3) if ranks.is_first else None, ranks)
        envs.seed(5)
        seen: list[Any] = [envs.num_envs, envs.observation_space, envs.action_space, envs.reset().tolist()]
        for _ in range(4):
            actions = np.stack([envs.action_space.encode("wait")] * 3)
            observations, rewards, dones, infos = envs.step(actions)
            seen.append((observations.tolist(), rewards.tolist(), dones.tolist(), [sorted(info) for info in infos]))
        seen += [envs.has_attr("get_state"), envs.get_attr("spec"), envs.env_is_wrapped(gym.wrappers.TimeLimit)]
        envs.close()
        return seen

    first, second = in_ranks(program, program)
    assert first == second
    alone = make_envs(ENV, {}, 3)
    alone.seed(5)
    assert first[3] == alone.reset().tolist()
    assert first[4][0] == alone.step(np.stack([alone.action_space.encode("wait")] * 3))[0].tolist()


def test_statistics_of_rank_0_alone_are_refused() -> None:
    with pytest.raises(UnsupportedEnvError, match="VecNormalize"):
        BroadcastVecEnv(VecNormalize(make_envs(ENV, {}, 1), norm_obs=False), Ranks())


class Model:
    """As much of an algorithm as a callback reads."""

    num_timesteps = 0

    def get_env(self) -> None:
        return None


def test_callbacks_are_called_on_rank_0_and_stop_all() -> None:
    class Stops(BaseCallback):
        def _on_step(self) -> bool:
            return self.n_calls < 3

    made: list[Stops] = []

    def program(ranks: Ranks) -> list[bool]:
        model: Any = Model()

        def make() -> Stops:
            made.append(Stops())
            made[-1].init_callback(model)
            return made[-1]

        callback = RankCallback(make, model, ranks)
        return [callback.on_step() for _ in range(3)]

    assert in_ranks(program, program) == [[True, True, False]] * 2
    assert [one.n_calls for one in made] == [3]


def test_another_number_of_processes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """`accelerate launch --cpu` starts one process in silence."""
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with pytest.raises(RankError, match=r"Expected 2 ranks; the launcher started 1 \(WORLD_SIZE\)"):
        start_ranks(2)
    monkeypatch.setitem(os.environ, "WORLD_SIZE", "2")
    with pytest.raises(RankError, match="Expected 1 ranks; the launcher started 2"):
        start_ranks(1)
    with pytest.raises(RankError, match="power of two"):
        start_ranks(3)


def test_one_process_is_the_case_of_one_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert start_ranks(1).size == 1
    assert current_ranks().is_first
    assert not current_ranks().divides
    end_ranks()


def test_micro_batches_are_a_power_of_two_that_ranks_share(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="Expected micro_batches to be a power of two"):
        POAD("LLMPolicy", ENV, micro_batches=3)
    monkeypatch.setattr("poad_sb3.distributed.ranks._current", Ranks(1, 4, dist.HashStore()))
    with pytest.raises(RankError, match="Expected one process for BADQ"):
        BADQ("LLMPolicy", ENV)
