"""Environments in actors, with a stand-in for Ray in this process: the quick part of Ray's tests."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from ray_standin import RayStandIn
from ray_users import BrokenLamps, TracedLamps, play
from stable_baselines3.common.env_util import make_vec_env

from poad_sb3.distributed.ray_vec_env import make_ray_envs


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> RayStandIn:
    standin = RayStandIn()
    monkeypatch.setitem(sys.modules, "ray", standin)
    return standin


def test_environments_and_a_lost_actor(ray: RayStandIn, tmp_path: Path) -> None:
    make = partial(TracedLamps, str(tmp_path))
    env = make_ray_envs(make, {}, 4, 2)
    np.testing.assert_equal(play(env, at={5: lambda: ray.kill(ray.handles[0])}), play(make_vec_env(make, 4)))
    assert len(ray.handles) == 3
    env.close()


def test_an_error_of_an_environment(ray: RayStandIn, tmp_path: Path) -> None:
    env = make_ray_envs(partial(BrokenLamps, str(tmp_path)), {}, 2, 1)
    env.reset()
    with pytest.raises(ValueError, match="the lamp is broken"):
        env.step(np.stack([env.action_space.encode("wait")] * 2))
    env.close()
