"""`poad train --ray`: the options, their record in the run, and the example of a cluster."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from poad_runs import ENV_ID, SMALL, N, invoke
from rank_runs import EVERY, STEPS, members, output, poad, reached_step, resume, undisturbed, wait_for_step
from ray_nodes import SimulatedCluster
from stable_baselines3.common.vec_env import VecEnv

from lang_envs.sandbox.confinement.layers import Layer
from poad_sb3 import POAD
from poad_sb3.distributed import ray_vec_env
from poad_sb3.distributed.ray_cluster import RayConnection
from poad_sb3.vec_env.make_envs import make_envs

ROOT = Path(__file__).parents[3]
TRAIN = ("train", ENV_ID, "--steps", str(4 * N), "--n-envs", "2", "--seed", "3", *SMALL)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Arguments of environments in actors; they are made in this process."""
    seen: list[tuple[Any, ...]] = []

    def make(env_id: str, env_kwargs: Any, n_envs: int, n_actors: int | None, address: str) -> VecEnv:
        seen.append((n_envs, n_actors, address))
        return make_envs(env_id, env_kwargs, n_envs)

    monkeypatch.setattr(ray_vec_env, "make_ray_envs", make)
    return seen


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


def test_actors_without_ray_and_too_many_are_refused(tmp_path: Path) -> None:
    said = invoke(*TRAIN, "--out", str(tmp_path / "run"), "--n-actors", "2", code=1)
    assert "Expected --ray beside --n-actors 2; got none. Fix: --ray local." in said
    said = invoke(*TRAIN, "--out", str(tmp_path / "run"), "--ray", "local", "--n-actors", "3", code=1)
    assert "Expected --n-actors of at most 2, the number of environments; got 3." in said
    assert not (tmp_path / "run").exists()


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


def test_the_example_of_a_cluster_fits_the_schema_of_ray() -> None:
    import importlib.util

    spec = importlib.util.find_spec("ray")  # without importing it
    assert spec is not None
    assert spec.origin is not None
    schema = json.loads((Path(spec.origin).parent / "autoscaler" / "ray-schema.json").read_text())
    cluster = yaml.safe_load((ROOT / "examples" / "ray" / "cluster.yaml").read_text())
    jsonschema.validate(cluster, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**cluster, "max_worker": 2}, schema)
    assert cluster["max_workers"] == len(cluster["provider"]["worker_ips"])
    for commands in (cluster["head_start_ray_commands"], cluster["worker_start_ray_commands"]):
        assert "ray start" in commands[-1]
        assert '--resources="{\\"sandbox\\": $(env -u OMP_NUM_THREADS nproc)}"' in commands[-1]
        assert "RAY_USAGE_STATS_ENABLED=0" in commands[-1]


@pytest.mark.process
def test_the_doctor_of_a_cluster(cluster: RayConnection) -> None:
    (node,) = json.loads(invoke("doctor", "--cluster", "local", "--json"))
    assert node["cores"] == node["sandboxes"] >= 1
    assert node["python"] == platform.python_version()
    assert set(node["layers"]) | set(node["missing"]) == set(Layer)
    assert node["problem"] == ""
    said = invoke("doctor", "--cluster", "local")
    assert f"{node['cores']:g} cores" in said
    assert "sandbox layers: " in said


def test_the_doctor_looks_at_one_thing() -> None:
    assert "Expected either --cluster or pocket; got both." in invoke("doctor", "pocket", "--cluster", "local", code=1)
