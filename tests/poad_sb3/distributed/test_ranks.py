"""Exchanges of ranks: two of them in threads, with a store in memory."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch.distributed as dist
import typer
from rank_threads import in_ranks
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecNormalize
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

from poad_sb3 import BADQ, POAD, UnsupportedEnvError
from poad_sb3.cli import ranks as ranks_of_cli
from poad_sb3.cli.train_options import parse_options
from poad_sb3.distributed import Ranks, start_ranks
from poad_sb3.distributed import launch as launching
from poad_sb3.distributed.broadcast_vec_env import BroadcastVecEnv
from poad_sb3.distributed.callbacks import RankCallback, require_equal_training
from poad_sb3.errors import LostRankError, ModelError, RankError
from poad_sb3.vec_env.make_envs import make_envs

pytestmark = pytest.mark.skipif(not dist.is_available(), reason="torch without torch.distributed")
ENV = "MultiKey-v0"


def test_rank_0_works_and_all_get_its_result() -> None:
    calls: list[int] = []

    def program(ranks: Ranks) -> list[object]:
        def work() -> object:
            calls.append(ranks.rank)
            return {"seen": ranks.on_rank_zero("inside", lambda: ("inside", ranks.is_data_parallel))}

        with ranks.data_parallel():
            before = ranks.is_data_parallel
            return [before, ranks.on_rank_zero("work", work), ranks.on_rank_zero("more", lambda: np.arange(3).tolist())]

    first, second = in_ranks(program, program)
    assert first == second == [True, {"seen": ("inside", False)}, [0, 1, 2]]
    assert calls == [0]


def test_an_error_of_rank_0_reaches_the_others() -> None:
    def work() -> None:
        raise ValueError("no such table")

    first, second = in_ranks(*[lambda ranks: ranks.on_rank_zero("a step", work)] * 2)
    assert isinstance(first, ValueError)
    assert isinstance(second, RankError)
    assert str(second) == "Rank 0 failed in a step: ValueError: no such table"


def test_all_ranks_see_the_environments_of_rank_0() -> None:
    def program(ranks: Ranks) -> list[Any]:
        envs = BroadcastVecEnv(make_envs(ENV, {}, 3) if ranks.is_first else None, ranks)
        envs.seed(5)
        results: list[Any] = [envs.num_envs, envs.observation_space, envs.action_space, envs.reset().tolist()]
        for _ in range(4):
            actions = np.stack([envs.action_space.encode("wait")] * 3)
            observations, rewards, dones, infos = envs.step(actions)
            results.append((observations.tolist(), rewards.tolist(), dones.tolist(), [sorted(info) for info in infos]))
        results += [envs.has_attr("get_state"), envs.get_attr("spec"), envs.env_is_wrapped(gym.wrappers.TimeLimit)]
        envs.close()
        return results

    first, second = in_ranks(program, program)
    assert first == second
    alone = make_envs(ENV, {}, 3)
    alone.seed(5)
    assert first[3] == alone.reset().tolist()
    assert first[4][0] == alone.step(np.stack([alone.action_space.encode("wait")] * 3))[0].tolist()


def test_a_seed_that_the_user_has_given_is_kept() -> None:
    given, alone = make_envs(ENV, {}, 3), make_envs(ENV, {}, 3)
    envs = BroadcastVecEnv(given, Ranks())
    given.seed(11)
    alone.seed(11)
    envs.reset()
    alone.reset()
    assert envs.env_method("get_state") == alone.env_method("get_state")


def test_ranks_of_other_settings_are_refused() -> None:
    """Its part of the gradient would be of another loss, and weights would stay equal on all ranks."""
    model, digests = POAD("LLMPolicy", ENV, seed=0), []

    class RecordingRanks(Ranks):
        def require_equal(self, what: str, own: str) -> None:
            digests.append(own)

    ranks = RecordingRanks(1, 2, dist.HashStore())
    require_equal_training(model, ranks)
    require_equal_training(model, ranks)
    model.ent_coef = 0.5
    require_equal_training(model, ranks)
    model.policy.lm.use_plain_passes()  # as the checks of another machine may decide
    require_equal_training(model, ranks)
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3


def test_one_process_loads_a_checkpoint_of_sharded_weights(tmp_path: Path) -> None:
    model = POAD("LLMPolicy", ENV, seed=0)
    model.policy_kwargs = {"fsdp": True}
    model.save(tmp_path / "model")
    assert not POAD.load(tmp_path / "model").policy.lm.is_sharded
    with pytest.raises(ModelError, match="Expected several ranks for fsdp=True; got one"):
        POAD("LLMPolicy", ENV, policy_kwargs={"fsdp": True})


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

    callbacks: list[Stops] = []

    def program(ranks: Ranks) -> list[bool]:
        model: Any = Model()

        def make() -> Stops:
            callbacks.append(Stops())
            callbacks[-1].init_callback(model)
            return callbacks[-1]

        callback = RankCallback(make, model, ranks)
        return [callback.on_step() for _ in range(3)]

    assert in_ranks(program, program) == [[True, True, False]] * 2
    assert [callback.n_calls for callback in callbacks] == [3]


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


def test_micro_batches_are_a_power_of_two_that_ranks_share(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="Expected micro_batches to be a power of two"):
        POAD("LLMPolicy", ENV, micro_batches=3)
    monkeypatch.setattr("poad_sb3.distributed.ranks._current", Ranks(1, 4, dist.HashStore()))
    with pytest.raises(RankError, match="Expected one process for BADQ"):
        BADQ("LLMPolicy", ENV)


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ({0: 15, 1: 3}, 3),
        ({0: 15, 1: -9}, "Rank 1 of 2 was lost (signal 9)"),
        ({0: -15, 1: 5}, "Rank 1 of 2 was lost (it waited in vain for another)"),
    ],
    ids=str,
)
def test_the_end_of_ranks_is_read_off_their_exit_codes(
    codes: dict[int, int], expected: int | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent stops the others by SIGTERM, of which Ray's handler makes exit code 15."""

    def ends(*_: object) -> Callable[..., None]:
        failures = {rank: SimpleNamespace(exitcode=code, timestamp=0) for rank, code in codes.items()}

        def run(*_: object) -> None:
            raise ChildFailedError("poad", failures)  # type: ignore[arg-type]

        return run

    monkeypatch.setattr(launching, "elastic_launch", ends)
    monkeypatch.setattr(ChildFailedError, "format_msg", lambda _: "")
    if isinstance(expected, int):
        assert launching.launch(2, ["train"]) == expected
    else:
        with pytest.raises(LostRankError, match=re.escape(expected)):
            launching.launch(2, ["train"])


def test_a_lost_rank_is_followed_by_a_resumed_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without an end while there are new checkpoints, and three times without one."""
    request = parse_options((), (), env_id=ENV)
    started: list[list[str]] = []
    lost = LostRankError("Rank 1 was lost.")
    ends: Iterator[LostRankError | int] = iter([lost, lost, 0])

    def launch(n_procs: int, arguments: list[str]) -> int:
        started.append(arguments)
        end = next(ends)
        if isinstance(end, LostRankError):
            raise end
        return end

    monkeypatch.setattr(ranks_of_cli, "launch", launch)
    monkeypatch.setattr("sys.argv", ["poad", "train", ENV])
    ranks_of_cli.launch_ranks(2, request, tmp_path)
    assert started == [["train", ENV], *[["train", ENV, "--resume"]] * 2]
    ends = iter([lost] * 4)
    with pytest.raises(typer.Exit) as end:
        ranks_of_cli.launch_ranks(2, request, tmp_path)
    assert end.value.exit_code == launching.LOST_RANK
    ends = iter([3])
    with pytest.raises(typer.Exit) as end:
        ranks_of_cli.launch_ranks(2, request, tmp_path)
    assert end.value.exit_code == 3


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

    def program(ranks: Ranks) -> None:
        with ranks.data_parallel():
            ranks.merge({ranks.rank: "result"})

    assert [type(error) for error in in_ranks(program, program)] == [expected] * 2
