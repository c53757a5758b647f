"""`poad train --ray`: runs that go on elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from poad_runs import ENV_ID, SMALL, N, invoke
from rank_runs import EVERY, STEPS, members, output, poad, reached_step, resume, undisturbed, wait_for_step
from ray_nodes import SimulatedCluster
from stable_baselines3.common.vec_env import VecEnv

from poad_sb3 import POAD
from poad_sb3.distributed import ray_vec_env
from poad_sb3.vec_env.make_envs import make_envs

TRAIN = ("train", ENV_ID, "--steps", str(4 * N), "--n-envs", "2", "--seed", "3", *SMALL)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Arguments of environments in actors; they are made in this process."""
    arguments: list[tuple[Any, ...]] = []

    def make(env_id: str, env_kwargs: Any, n_envs: int, n_actors: int | None, address: str) -> VecEnv:
        arguments.append((n_envs, n_actors, address))
        return make_envs(env_id, env_kwargs, n_envs)

    monkeypatch.setattr(ray_vec_env, "make_ray_envs", make)
    return arguments


def weights(folder: Path) -> dict[str, bytes]:
    model = POAD.load(folder / "latest.zip")
    return {name: tensor.numpy().tobytes() for name, tensor in model.policy.state_dict().items()}


@pytest.mark.process
def test_a_run_may_go_on_elsewhere(asked: list[tuple[Any, ...]], tmp_path: Path) -> None:
    run = ("--out", str(tmp_path / "run"))
    invoke(*TRAIN, *run, "--ray", "local", "--n-actors", "2")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["ray"], config["n_actors"]) == ("local", 2)
    further = ("train", *run, "--resume", "--steps")
    invoke(*further, str(6 * N))
    invoke(*further, str(8 * N), "--ray", "auto", "--n-actors", "1")
    assert asked == [(2, 2, "local"), (2, 2, "local"), (2, 1, "auto")]
    invoke(*further, str(10 * N), "--ray", "off")
    assert len(asked) == 3
    straight = ("--out", str(tmp_path / "straight"))
    invoke(*TRAIN, *straight, "--steps", str(10 * N))
    assert weights(tmp_path / "run") == weights(tmp_path / "straight")


@pytest.mark.process
def test_a_lost_head_ends_the_command_and_the_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RAY_AUTH_TOKEN_PATH", "RAY_AUTH_MODE"):  # of the cluster of other rows
        monkeypatch.delenv(name, raising=False)
    with SimulatedCluster() as cluster:
        monkeypatch.setenv("RAY_gcs_rpc_server_reconnect_timeout_s", "2")  # a minute by default
        process = poad("--ray", cluster.address, "--n-actors", "2", folder=tmp_path / "run")
        wait_for_step(tmp_path / "run", EVERY, process)
        cluster.lose_head()
        assert process.wait(60) == 1
        monkeypatch.delenv("RAY_gcs_rpc_server_reconnect_timeout_s")
    assert "Failed to connect to GCS" in output(tmp_path / "run")
    assert reached_step(tmp_path / "run") < STEPS
    resume(tmp_path / "run", "--ray", "local", "--n-actors", "1")
    assert members(tmp_path / "run") == undisturbed()
