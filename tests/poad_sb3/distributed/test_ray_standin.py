"""Environments and replicas in actors, with a stand-in for Ray in this process: the quick part of Ray's tests."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from ray_standin import RayStandIn
from ray_users import BrokenLamps, TracedLamps, play
from toy import everything, make_agent

from benchmarks.performance.mismatch import flat_model
from poad_sb3.distributed.ray_vec_env import make_ray_envs
from poad_sb3.distributions import ReplicaDistribution
from poad_sb3.vec_env.pipelined import make_pipelined_envs


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> RayStandIn:
    standin = RayStandIn()
    monkeypatch.setitem(sys.modules, "ray", standin)
    return standin


def test_environments_and_a_lost_actor(ray: RayStandIn, tmp_path: Path) -> None:
    make = partial(TracedLamps, str(tmp_path))
    env = make_ray_envs(make, {}, 4, 2, 3)
    assert env.slices == [slice(0, 1), slice(1, 2), slice(2, 4)], "parts do not depend on actors"
    np.testing.assert_equal(play(env, at={5: lambda: ray.kill(ray.handles[0])}), play(make_pipelined_envs(make, 4, 3)))
    assert len(ray.handles) == 3
    env.close()


def test_an_error_of_an_environment(ray: RayStandIn, tmp_path: Path) -> None:
    env = make_ray_envs(partial(BrokenLamps, str(tmp_path)), {}, 2, 1)
    env.reset()
    with pytest.raises(ValueError, match="the lamp is broken"):
        env.step(np.stack([env.action_space.encode("wait")] * 2))
    env.close()


def test_replicas_and_a_lost_one(ray: RayStandIn) -> None:
    settings = {"action_sampling": "free", "max_new_tokens": 8, "n_envs": 16, "n_steps": 1}
    settings |= {"policy_kwargs": {"model": flat_model, "critic_arch": (8,)}}
    one = make_agent(generation_replicas=1, **settings).learn(32)
    assert len(ray.handles) == 1
    two = make_agent(generation_replicas=2, **settings).learn(16)
    ray.kill(ray.handles[2])
    two.learn(16, reset_num_timesteps=False)
    assert len(ray.handles) == 4
    assert everything(two) == everything(one)
    for model in (one, two):
        assert isinstance(model.policy.distribution, ReplicaDistribution)
        model.policy.distribution.close()  # while the stand-in is there
