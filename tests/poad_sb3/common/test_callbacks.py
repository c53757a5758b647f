"""Callbacks: the last checkpoint, the best program, Weights & Biases; those of SB3 beside them."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.vec_env import DummyVecEnv
from toy import LampEnv, make_agent

from poad_sb3 import POAD, CheckpointError
from poad_sb3.common.callbacks import BestCodeCallback, LatestCheckpointCallback, WandbCallback

N = 16


class CodeLamps(LampEnv):
    """Lamps whose buttons are programs: info tells code and status as DataSciCoding does."""

    def _family_info(self, *, acted: bool) -> dict[str, Any]:
        text = self.last_action or ""
        status = "not_run" if not acted else "ok" if text.endswith("button") else "runtime_error"
        return {"code": f"model = {text!r}", "status": status, "auc_splits": (0.5, np.float32(0.75)), "prefix": "long"}


def code_agent(n_envs: int = 1) -> POAD:
    lamps = CodeLamps() if n_envs == 1 else DummyVecEnv([CodeLamps] * n_envs)
    return POAD(
        "LLMPolicy", lamps, n_steps=N, n_epochs=1, n_critic_epochs=1, seed=0, policy_kwargs={"critic_arch": (8,)}
    )


class Programs(BaseCallback):
    """All programs that ran, by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[float, int, str]] = []

    def _on_step(self) -> bool:
        for reward, info in zip(self.locals["rewards"], self.locals["infos"], strict=True):
            if info["status"] == "ok":
                self.seen.append((float(reward), self.num_timesteps, info["code"]))
        return True


def stored(folder) -> Mapping[str, Any]:
    return json.loads((folder / "best_code.json").read_text())


# ---------------------------------------------------------------------- best code


@pytest.mark.parametrize("n_envs", [1, 3])
def test_the_best_program_is_kept(tmp_path, n_envs) -> None:
    programs, callback = Programs(), BestCodeCallback(tmp_path)
    code_agent(n_envs).learn(2 * N, [programs, callback])
    reward, step, _ = max(programs.seen, key=lambda program: (program[0], -program[1]))
    best = stored(tmp_path)
    assert (best["reward"], best["step"]) == (reward, step)
    assert best["code"] in [program[2] for program in programs.seen if program[:2] == (reward, step)]
    assert best["info"]["status"] == "ok"
    assert best["info"]["auc_splits"] == [0.5, 0.75]
    assert not {"code", "prefix", "episode", "terminal_observation"} & set(best["info"])
    assert (tmp_path / "best_code.py").read_text().splitlines()[1] == best["code"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["best_code.json", "best_code.py"]


def test_the_best_program_survives_a_resume(tmp_path) -> None:
    straight = BestCodeCallback(tmp_path / "straight")
    code_agent().learn(4 * N, straight)
    model = code_agent().learn(2 * N, BestCodeCallback(tmp_path / "resumed"))
    model.save(tmp_path / "model.zip")
    (tmp_path / "resumed" / "best_code.py").unlink()  # killed between the two files
    resumed = BestCodeCallback(tmp_path / "resumed")
    POAD.load(tmp_path / "model.zip", CodeLamps()).learn(2 * N, resumed, reset_num_timesteps=False)
    assert resumed.best == stored(tmp_path / "resumed")
    assert stored(tmp_path / "straight") == stored(tmp_path / "resumed")
    assert (tmp_path / "resumed" / "best_code.py").exists()


def test_a_better_record_is_kept_until_a_new_training(tmp_path) -> None:
    record = {"reward": 5.0, "step": 3, "code": "model = Best()", "info": {}}
    (tmp_path / "best_code.json").write_text(json.dumps(record))
    model = code_agent().learn(N)
    model.learn(N, BestCodeCallback(tmp_path), reset_num_timesteps=False)
    assert stored(tmp_path) == record
    model.learn(N, BestCodeCallback(tmp_path))
    assert stored(tmp_path)["reward"] == 1.0


def test_a_damaged_record_is_not_overwritten(tmp_path) -> None:
    model, best = code_agent().learn(N), {"reward": 1.0, "step": 3, "code": "pass"}
    wrong = json.dumps({**best, "reward": "1.0"})
    for text in ('{"reward": ', "null", "[]", '{"reward": 1.0}', "[" * 100_000, wrong):
        (tmp_path / "best_code.json").write_text(text)
        with pytest.raises(CheckpointError, match=r"Expected the best program so far in .* Fix: restore or remove it"):
            model.learn(N, BestCodeCallback(tmp_path), reset_num_timesteps=False)
        assert (tmp_path / "best_code.json").read_text() == text


# ---------------------------------------------------------------------- checkpoints, and those of SB3


def test_the_latest_checkpoint_is_replaced_at_the_ends_of_rollouts(tmp_path) -> None:
    path, written = tmp_path / "latest.zip", []

    class Note(BaseCallback):
        def _on_step(self) -> bool:
            return True

        def _on_rollout_start(self) -> None:
            if path.exists():
                written.append(POAD.load(path).num_timesteps)

    make_agent(n_epochs=1).learn(6 * N, callback=[LatestCheckpointCallback(path, 2 * N - 3), Note()])
    assert written == [2 * N, 2 * N, 4 * N, 4 * N]
    assert POAD.load(path).num_timesteps == 6 * N


def test_the_latest_checkpoint_counts_from_where_a_training_goes_on(tmp_path) -> None:
    model = make_agent(n_epochs=1).learn(3 * N)
    model.learn(N, callback=LatestCheckpointCallback(tmp_path / "latest.zip", 2 * N), reset_num_timesteps=False)
    assert not (tmp_path / "latest.zip").exists()


# ---------------------------------------------------------------------- Weights & Biases


class FakeWandb:
    """The part of `wandb` in use."""

    def __init__(self) -> None:
        self.options: dict[str, Any] = {}
        self.logged: list[tuple[int, dict[str, Any]]] = []
        self.finished = 0

    def init(self, **options: Any) -> Any:
        self.options = options
        return SimpleNamespace(log=self._log, finish=self._finish)

    def _log(self, values: dict[str, Any], step: int) -> None:
        self.logged.append((step, values))

    def _finish(self, exit_code: int = 0) -> None:
        self.finished += 1
        self.exit_code = exit_code


def test_wandb_receives_the_logged_values(monkeypatch) -> None:
    fake = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    model = make_agent(n_epochs=1)
    model.set_logger(Logger(None, []))
    model.learn(3 * N, callback=WandbCallback("lamps", run_id="abc", config={"gamma": 0.9}, name="first"))
    assert fake.options == {
        "project": "lamps", "id": "abc", "resume": "allow", "config": {"gamma": 0.9}, "name": "first",
    }  # fmt: skip
    assert [step for step, _ in fake.logged] == [N, 2 * N, 3 * N]
    assert {"rollout/ep_rew_mean", "train/approx_kl", "time/total_timesteps"} <= set(fake.logged[-1][1])
    assert fake.finished == 1
    assert model.logger.output_formats == []
