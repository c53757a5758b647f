"""Lost actors, interrupted waits and restoring that fails, with a stand-in for Ray in this process."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ray_standin import RayStandIn
from ray_users import TracedLamps, play
from stable_baselines3.common.env_util import make_vec_env

import poad_sb3.distributed.ray_vec_env as ray_vec_env
from poad_sb3.distributed.env_host import EnvHost
from poad_sb3.distributed.ray_vec_env import make_ray_envs


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> RayStandIn:
    standin = RayStandIn()
    monkeypatch.setitem(sys.modules, "ray", standin)
    return standin


def test_a_lost_actor_changes_no_step(ray: RayStandIn, tmp_path: Path) -> None:
    make = partial(TracedLamps, str(tmp_path))
    env = make_ray_envs(make, {}, 4, 2)
    np.testing.assert_equal(play(env, at={5: lambda: ray.kill(ray.handles[0])}), play(make_vec_env(make, 4)))
    assert len(ray.handles) == 3
    env.close()


@pytest.mark.parametrize("lost", [None, 0, 1])
def test_an_interrupted_wait_is_repeated(
    ray: RayStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: int | None
) -> None:
    """Answers that were there before it are kept, and no actor makes the step again."""
    make = partial(TracedLamps, str(tmp_path))
    env, alone = make_ray_envs(make, {}, 4, 2), make_vec_env(make, 4)
    for vector in (env, alone):
        vector.seed(3)
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
