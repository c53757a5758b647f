"""The environments of an actor, without Ray."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
from ray_users import LampsElsewhere, TracedLamps
from stable_baselines3.common.env_util import make_vec_env

from poad_sb3.distributed.env_host import Description, EnvHost

N = 2


@pytest.mark.parametrize("kind", [TracedLamps, LampsElsewhere])
def test_a_host_is_an_ordinary_vector(kind: type[TracedLamps], tmp_path: Path) -> None:
    def make() -> TracedLamps:
        return kind(str(tmp_path))

    plain, host = make_vec_env(make, N), EnvHost()
    about: Description = cloudpickle.loads(host.make([], cloudpickle.dumps(make), N))
    assert (about.observation_space, about.action_space) == (plain.observation_space, plain.action_space)
    assert about.metadata == plain.metadata

    def ask(method: str, *args: Any, **kwargs: Any) -> Any:
        return pickle.loads(host.call(cloudpickle.dumps((method, args, kwargs))))

    plain.seed(4)
    observations, reset_infos = pickle.loads(host.reset(cloudpickle.dumps(([4, 5], [{}, {}]))))
    np.testing.assert_equal(observations, plain.reset())
    np.testing.assert_equal(reset_infos, plain.reset_infos)
    ask("set_attr", "note", 7, indices=[1])
    texts = ["press the red button", "wait"]
    for number in range(8):
        actions = np.stack([plain.action_space.encode(texts[(number + index) % 2]) for index in range(N)])
        *results, infos, resets = pickle.loads(host.step(cloudpickle.dumps(actions)))
        *expected, plain_infos = plain.step(actions)
        np.testing.assert_equal(results, expected)
        assert results[1].dtype == np.float32
        assert [*resets] == np.flatnonzero(expected[2]).tolist()
        for place, info in resets.items():
            np.testing.assert_equal(info, plain.reset_infos[place])
        for info in (*infos, *plain_infos):
            info.get("episode", {}).pop("t", None)
        np.testing.assert_equal(infos, plain_infos)
    assert ask("get_attr", "note", indices=[1]) == [7]
    host.close()
