"""Interrupted waits, restoring that fails, and starts without room, with the stand-in for Ray."""

from __future__ import annotations

import logging
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ray_standin import GetTimeoutError, RayStandIn
from ray_users import LampsElsewhere, TracedLamps
from stable_baselines3.common.env_util import make_vec_env

import poad_sb3.distributed.ray_vec_env as ray_vec_env
from poad_sb3.distributed.env_host import EnvHost
from poad_sb3.distributed.ray_cluster import RayConnection
from poad_sb3.distributed.ray_vec_env import make_ray_envs
from poad_sb3.errors import WorkerError


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> RayStandIn:
    standin = RayStandIn()
    monkeypatch.setitem(sys.modules, "ray", standin)
    return standin


@pytest.mark.parametrize("lost", [None, 0, 1])
def test_an_interrupted_wait_is_repeated(
    ray: RayStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: int | None
) -> None:
    """Answers that were there before it are kept, and no actor makes the step again."""
    make = partial(TracedLamps, str(tmp_path))
    env, alone = make_ray_envs(make, {}, 4, 2), make_vec_env(make, 4)
    for one in (env, alone):
        one.seed(3)
    np.testing.assert_equal(env.reset(), alone.reset())
    actions = np.stack([env.action_space.encode("wait")] * 4)
    real, calls = ray_vec_env.get, []

    def get(answer: Any, seconds: float) -> Any:
        calls.append(answer)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(answer, seconds)

    monkeypatch.setattr(ray_vec_env, "get", get)
    env.step_async(actions)
    with pytest.raises(KeyboardInterrupt):
        env.step_wait()
    if lost is not None:
        ray.kill(ray.handles[lost])
    with pytest.raises(RuntimeError, match="they are stepping"):
        env.step_async(actions)
    for _ in range(3):
        np.testing.assert_equal(env.step_wait()[:3], alone.step(actions)[:3])
        env.step_async(actions)
    env.close()


def test_an_actor_whose_restoring_fails_is_not_used(
    ray: RayStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = make_ray_envs(partial(TracedLamps, str(tmp_path)), {}, 2, 1)
    env.seed(3)
    env.reset()
    states = env.env_method("get_state")
    ray.kill(ray.handles[0])

    def fails(*_: object) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(EnvHost, "restore", fails)
        with pytest.raises(OSError, match="no space left"):
            env.env_method("get_state")
    np.testing.assert_equal(env.env_method("get_state"), states)
    assert len(ray.handles) == 3
    env.close()


def test_a_start_without_room_names_the_free_amounts(
    ray: RayStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(answer: object, timeout: float) -> None:
        raise GetTimeoutError

    monkeypatch.setattr(ray, "get", late)
    with pytest.raises(WorkerError, match=r"free in the cluster: 0 sandbox\)"):
        make_ray_envs(LampsElsewhere, {"folder": str(tmp_path)}, 2, 1)
    with pytest.raises(WorkerError, match=r"free in the cluster: 2 CPU\)"):
        make_ray_envs(partial(TracedLamps, str(tmp_path)), {}, 2, 1)


def test_a_local_cluster_leaves_no_variables(
    ray: RayStandIn, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", lambda **_: None, raising=False)
    monkeypatch.setattr(ray, "shutdown", lambda: None, raising=False)
    monkeypatch.setattr(RayConnection, "_token", "")
    for name in ("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "RAY_USAGE_STATS_ENABLED"):
        monkeypatch.delenv(name, raising=False)
    before = dict(os.environ)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            connection = RayConnection()
            assert os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] == "0"
            connection.close()
            assert dict(os.environ) == before
    assert caplog.text.count("listens on all interfaces") == 1, "the second one finds Ray as the first has imported it"


def test_the_error_of_an_address_names_that_this_machine_must_be_a_node(
    ray: RayStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(**_: object) -> None:
        raise ConnectionError("no raylet on this machine")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", refuses, raising=False)
    with pytest.raises(WorkerError, match=r"run ray start --address=\.\.\. --num-cpus=0 on this machine first"):
        RayConnection("auto")
