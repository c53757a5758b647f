"""Arguments that ranks refuse, the bound that rank 0 judges for all, and the end of a command."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
import typer
from toy import Collector, make_agent, moved, randomise, run_update, weights_of

from poad_sb3 import POAD
from poad_sb3.cli import train
from poad_sb3.distributed import Ranks
from poad_sb3.distributed.launch import LOST_RANK
from poad_sb3.errors import LostRankError, ModelError
from poad_sb3.language_model.language_model import LanguageModel
from poad_sb3.settings import ModelSettings, PPOSettings

T = TypeVar("T")


def test_sharded_weights_cannot_be_quantised(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="Expected fsdp=True without quantization"):
        ModelSettings(fsdp=True, quantization="8bit")
    monkeypatch.setattr("poad_sb3.distributed.ranks._current", Ranks(1, 2))
    monkeypatch.setattr("poad_sb3.language_model.language_model.is_quantized", lambda _: True)
    with pytest.raises(ModelError, match="Expected weights that are not quantised for fsdp=True"):
        LanguageModel("pocket").shard("cpu")


def test_ranks_of_sharded_weights_need_a_gpu_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("poad_sb3.distributed.ranks._current", Ranks(1, 4))
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    with pytest.raises(ModelError, match="Expected a GPU for each rank with fsdp=True; got 2 for 4 ranks"):
        LanguageModel("pocket").shard("cuda")


def test_one_gpu_for_all_ranks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("poad_sb3.distributed.ranks._current", Ranks(1, 2))
    with pytest.raises(ValueError, match=r"Expected a device without an index for 2 ranks.*got 'cuda:0'. Fix: device="):
        POAD("LLMPolicy", "MultiKey-v0", device="cuda:0")


@pytest.mark.parametrize("decision", [True, False])
def test_rank_0_judges_the_kl_bound(monkeypatch: pytest.MonkeyPatch, decision: bool) -> None:
    agent = make_agent(Collector)
    randomise(agent.policy)
    agent.learn(agent.n_steps * agent.n_envs)

    class Second(Ranks):
        def on_rank_zero(self, name: str, run: Callable[[], T]) -> Any:
            assert name == "the KL bound"
            return decision

    monkeypatch.setattr("poad_sb3.distributed.ranks._current", Second())
    before = weights_of(agent.policy)
    settings = replace(PPOSettings(), n_epochs=1, target_kl=1e9 if not decision else 1e-9, batch_size=10**6)
    run_update(agent, settings)
    assert any("lora" in name for name in moved(agent.policy, before)) == decision


def test_a_command_leaves_its_ranks_after_the_last_save(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def noted(name: str) -> Callable[..., None]:
        return lambda *_, **__: calls.append(name)

    monkeypatch.setattr(train, "end_ranks", noted("end_ranks"), raising=False)
    logger = SimpleNamespace(close=noted("close"))
    model: Any = SimpleNamespace(num_timesteps=0, learn=noted("learn"), save=noted("save"), logger=logger, env=None)
    train._learn(SimpleNamespace(latest="latest.zip"), SimpleNamespace(steps=8), None, model, [])  # type: ignore[arg-type]
    assert calls == ["learn", "save", "end_ranks", "close"]


def test_a_command_that_lost_a_rank_ends_after_rank_0(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A launcher ends rank 0 as soon as another one ends: its error would be taken for a lost rank, and tried again."""
    calls: list[str] = []

    class Second(Ranks):
        def wait_until_first_ends(self) -> None:
            calls.append("rank 0 has ended")

    def learn(*_: object, **__: object) -> None:
        raise LostRankError("Rank 0 gives no sign of life.")

    monkeypatch.setattr("poad_sb3.distributed.ranks._current", Second())
    model: Any = SimpleNamespace(num_timesteps=0, learn=learn, logger=SimpleNamespace(close=lambda: None), env=None)
    folder = SimpleNamespace(latest=tmp_path / "latest.zip", path=tmp_path)
    with pytest.raises(typer.Exit) as end:
        train._learn(folder, SimpleNamespace(steps=8), None, model, [])  # type: ignore[arg-type]
    assert end.value.exit_code == LOST_RANK
    assert calls == ["rank 0 has ended"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
@pytest.mark.parametrize(("given", "expected"), [({}, "1"), ({"OMP_NUM_THREADS": "4"}, "4")])
def test_the_slurm_example_sets_the_threads_of_a_lone_rank(
    given: dict[str, str], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one rank on a node torchrun leaves them at the number of cores, and the result would be another."""
    script = Path(__file__).parents[3] / "examples" / "slurm" / "train.sbatch"
    for name, body in (("srun", f'echo "$OMP_NUM_THREADS" > {tmp_path}/threads'), ("scontrol", "echo node7")):
        (tmp_path / name).write_text(f"#!/bin/bash\n{body}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    slurm = {"SLURM_JOB_NODELIST": "node7", "SLURM_NNODES": "1", "SLURM_JOB_ID": "11", "SLURM_CPUS_PER_TASK": "16"}
    variables = {**os.environ, **slurm, **given, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run(["bash", str(script), "MultiKey-v0"], env=variables, check=True, timeout=20)
    assert (tmp_path / "threads").read_text().strip() == expected
