"""Free actions from copies of the model in Ray actors: those of the policy itself, whatever becomes of a copy."""

from __future__ import annotations

import hashlib
import os
import pickle
import re
import signal
import sys
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
import safetensors.torch
import torch
from ray_standin import RayStandIn
from toy import batch_of, everything, make_agent, randomise

from benchmarks.performance.mismatch import flat_model
from poad_sb3 import POAD
from poad_sb3.distributed import ray_cluster
from poad_sb3.distributed.ray_cluster import RayConnection
from poad_sb3.distributed.ray_executor import RayExecutor
from poad_sb3.distributions import ReplicaDistribution, replicas
from poad_sb3.distributions.free import generate
from poad_sb3.distributions.replicas import ModelReplica, _Pool
from poad_sb3.errors import MismatchError, ModelError, WorkerError
from poad_sb3.language_model.language_model import LanguageModel
from poad_sb3.runs.loading import load_checkpoint
from poad_sb3.settings import SamplingSettings

SAMPLING = SamplingSettings(action_sampling="free", max_new_tokens=12)


def agent(n_replicas: int, **settings: Any) -> POAD:
    more = {"n_envs": 16, "n_steps": 2, "max_new_tokens": 12, "learning_rate": 1e-3, **settings}
    kwargs = {"model": flat_model, "critic_arch": (8,)}
    return make_agent(action_sampling="free", generation_replicas=n_replicas, policy_kwargs=kwargs, **more)


def replicas_of(model: POAD) -> ReplicaDistribution:
    assert isinstance(model.policy.distribution, ReplicaDistribution)
    return model.policy.distribution


# ---------------------------------------------------------------------- a copy, in this process


def test_a_copy_writes_what_the_policy_writes() -> None:
    """The smoke test of this part: an actor's methods, called directly."""
    lm = LanguageModel(flat_model)
    randomise(lm)
    replica = ModelReplica()
    assert replica.make([], cloudpickle.dumps({**vars(lm.settings), "device": "cpu"}))[0] == lm.fingerprint
    weights = {name: one.detach() for name, one in lm.network.named_parameters() if one.requires_grad}
    content = safetensors.torch.save(weights)
    name = f"1-{hashlib.sha256(content).hexdigest()}"
    prompts = [lm.prompt_ids(text, 12) for text in ("The lamp is red.", "The lamp is green, and it is late.")]
    packed = pickle.dumps((prompts, SAMPLING, np.random.default_rng(0).random((2, 12))))
    with pytest.raises(ModelError, match="Expected the weights 1-"):
        replica.generate(name, packed)
    replica.load(name, content)
    wanted = generate(lm, prompts, SAMPLING, np.random.default_rng(0).random((2, 12)))
    for one, other in zip(pickle.loads(replica.generate(name, packed)), wanted, strict=True):
        assert (one.text, one.path) == (other.text, other.path)
        np.testing.assert_array_equal(one.log_probs, other.log_probs)


@pytest.mark.parametrize("kind", ["digest", "names"])
def test_a_copy_refuses_other_weights(kind: str) -> None:
    lm = LanguageModel(flat_model)
    replica = ModelReplica()
    replica.make([], cloudpickle.dumps({**vars(lm.settings), "device": "cpu"}))
    weights = {name: one.detach() for name, one in lm.network.named_parameters() if one.requires_grad}
    content = safetensors.torch.save(weights if kind == "digest" else dict([*weights.items()][1:]))
    digest = hashlib.sha256(content if kind == "names" else content + b" ").hexdigest()
    with pytest.raises(ModelError, match=f"Expected the weights 1-{digest} with"):
        replica.load(f"1-{digest}", content)
    with pytest.raises(ModelError, match="it has ''"):
        replica.generate(f"1-{digest}", b"")


@pytest.mark.parametrize("settings", [{"generation_endpoint": "http://127.0.0.1:1/v1"}, {"action_sampling": "trie"}])
def test_settings_that_do_not_go_with_replicas(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="generation_replicas"):
        SamplingSettings(generation_replicas=1, **settings)


def test_replicas_need_an_adapter() -> None:
    with pytest.raises(ModelError, match="Expected an adapter and one rank with generation_replicas"):
        make_agent(action_sampling="free", generation_replicas=1, n_envs=16, policy_kwargs={"lora": None})


def test_replicas_without_work_are_refused() -> None:
    with pytest.raises(ValueError, match=r"Expected at most 0 generation_replicas: the texts of 8 environments"):
        agent(1, n_envs=8)


def test_greedy_decoding_and_a_single_batch_start_no_replica() -> None:
    model = agent(1)
    questions = batch_of([("The lamp is red.", ["wait"])] * 15)
    for deterministic in (True, False):
        assert len(model.policy.act(questions, deterministic=deterministic)) == 15
    assert replicas_of(model)._pool is None


def test_a_copy_gives_up_merged_rows_with_the_policy() -> None:
    replica = ModelReplica()
    replica.make(
        [], cloudpickle.dumps({**vars(LanguageModel(flat_model).settings), "device": "cpu"}), plain_passes=True
    )
    assert replica.lm.plain_passes
    assert not replica.lm.caches


def test_more_replicas_than_parts_are_refused() -> None:
    with pytest.raises(ValueError, match=r"Expected at most 2 generation_replicas: .* of 16 .*micro_batches=4.* got 3"):
        agent(3)
    assert agent(4, n_envs=32).generation_replicas == 4


def test_a_checkpoint_is_evaluated_without_replicas(tmp_path: Path) -> None:
    agent(2).save(tmp_path / "agent")
    loaded = load_checkpoint(tmp_path / "agent.zip")
    assert loaded.generation_replicas == 0
    assert POAD.load(tmp_path / "agent", generation_replicas=1).generation_replicas == 1


# ---------------------------------------------------------------------- in actors


def actions(model: POAD) -> list[tuple[int, ...]]:
    return [path.action for path in model.rollout_buffer.all_samples().paths]


def spoil(replica: Any) -> None:
    with torch.no_grad():
        for one in replica.lm.network.parameters():
            one.add_(0.05 * torch.ones_like(one)) if one.requires_grad else None


@pytest.mark.process
def test_training_does_not_depend_on_the_number_of_replicas(
    cluster: RayConnection, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor on the loss of one; and replicas with other weights than the policy are refused."""
    import ray

    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "ray", RayStandIn())  # one replica, in this process
        one = agent(1).learn(64)
        replicas_of(one).close()
    two = agent(2).learn(32)
    assert actions(two) == actions(agent(0).learn(32))
    pool = replicas_of(two)._pool
    assert pool is not None
    assert pool.name.startswith("1-")
    run, load = pool.run, pool.load

    def lose_one(calls: Any) -> Any:
        os.kill(ray.get(pool.handles[1].__ray_call__.remote(lambda _: os.getpid())), signal.SIGKILL)
        pool.run = run  # type: ignore[method-assign]
        return run(calls)

    pool.run = lose_one  # type: ignore[method-assign]
    two.learn(32, reset_num_timesteps=False)
    assert pool.name.startswith("2-")
    assert everything(two) == everything(one)
    assert re.search(r"Replica 1 \(last as process \d+ on .*\) was lost: ", caplog.text)
    clean = replicas_of(two).clean_mismatch([])
    assert two.logger.name_to_value["train/sampling_mismatch_std"] < 2 * clean.std

    def load_and_spoil(name: str, content: bytes) -> None:
        load(name, content)
        ray.get([handle.__ray_call__.remote(spoil) for handle in pool.handles])

    pool.load = load_and_spoil  # type: ignore[method-assign]
    with pytest.raises(MismatchError):
        two.learn(32, reset_num_timesteps=False)
    replicas_of(two).close()


def test_replicas_connect_before_ray_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray reads where it may listen when it is imported: `RayConnection` says the loopback interface only."""
    monkeypatch.delitem(sys.modules, "ray", raising=False)

    def connect() -> None:
        assert "ray" not in sys.modules
        raise WorkerError("no cluster")

    monkeypatch.setattr(replicas, "RayConnection", connect)
    with pytest.raises(WorkerError, match="no cluster"):
        _Pool(b"", "", {"CPU": 1.0}, 1, plain_passes=False).start()


@pytest.mark.process
def test_replicas_without_room_beside_other_actors_are_refused(
    cluster: RayConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_cluster, "_SECONDS_TO_FREE", 1.0)
    with (
        RayExecutor(ray_cluster.room({"CPU": 1.0}), "local", int),
        pytest.raises(WorkerError, match=r"Expected room for 1 replicas with 1 CPU each; .* has room for 0\. .*act"),
    ):
        _Pool(b"", "", {"CPU": 1.0}, 1, plain_passes=False).start()
