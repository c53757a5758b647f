"""Callbacks: the last checkpoint, the best program, Weights & Biases; those of SB3 beside them."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3.common.callbacks import BaseCallback, CheckpointCallback, EvalCallback
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.vec_env import DummyVecEnv
from toy import LampEnv, make_agent

from lang_envs import MissingExtraError
from lang_envs.wrappers import AdmissibleObservation
from poad_sb3 import POAD, CheckpointError, UnsupportedEnvError
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
    reward, step, _ = max(programs.seen, key=lambda one: (one[0], -one[1]))
    best = stored(tmp_path)
    assert (best["reward"], best["step"]) == (reward, step)
    assert best["code"] in [one[2] for one in programs.seen if one[:2] == (reward, step)]
    assert best["info"]["status"] == "ok"
    assert best["info"]["auc_splits"] == [0.5, 0.75]
    assert not {"code", "prefix", "episode", "terminal_observation"} & set(best["info"])
    assert (tmp_path / "best_code.py").read_text().splitlines()[1] == best["code"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["best_code.json", "best_code.py"]


@pytest.mark.filterwarnings("ignore:Expected a rollout in which some token was chosen:RuntimeWarning")
def test_programs_that_failed_are_not_kept(tmp_path) -> None:
    env = CodeLamps(forced=("red", "green", "blue"))  # waiting is all there is, and it counts as a failure
    model = POAD("LLMPolicy", env, n_steps=N, seed=0, policy_kwargs={"critic_arch": (8,)})
    model.learn(N, BestCodeCallback(tmp_path))
    assert not list(tmp_path.iterdir())


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


def test_a_better_record_is_not_replaced_and_a_new_training_starts_anew(tmp_path) -> None:
    record = {"reward": 5.0, "step": 3, "code": "model = Best()", "info": {}}
    (tmp_path / "best_code.json").write_text(json.dumps(record))
    model = code_agent().learn(N)
    model.learn(N, BestCodeCallback(tmp_path), reset_num_timesteps=False)
    assert stored(tmp_path) == record
    model.learn(N, BestCodeCallback(tmp_path))
    assert stored(tmp_path)["reward"] == 1.0


def test_a_damaged_record_is_not_overwritten(tmp_path) -> None:
    model, best = code_agent().learn(N), {"reward": 1.0, "step": 3, "code": "pass"}
    wrong = [json.dumps({**best, **change}) for change in ({"reward": "1.0"}, {"code": None}, {"step": []})]
    for text in ('{"reward": ', "null", "[]", '{"reward": 1.0}', "[" * 100_000, *wrong):
        (tmp_path / "best_code.json").write_text(text)
        with pytest.raises(CheckpointError, match=r"Expected the best program so far in .* Fix: restore or remove it"):
            model.learn(N, BestCodeCallback(tmp_path), reset_num_timesteps=False)
        assert (tmp_path / "best_code.json").read_text() == text


def test_an_environment_without_code_is_refused(tmp_path) -> None:
    with pytest.raises(UnsupportedEnvError, match=r"Expected info\['code'\] .* Fix: use it with DataSciCoding"):
        make_agent().learn(N, callback=BestCodeCallback(tmp_path))


def test_it_works_on_datascicoding(tmp_path) -> None:
    pytest.importorskip("sklearn")
    env = gym.make("DataSciCoding-balance-scale-v0", splits=1)
    env.reset(seed=0)
    good = env.unwrapped.oracle_action()
    _, reward, *_, info = env.step(env.action_space.encode(good))
    callback = BestCodeCallback(tmp_path)
    callback.model = SimpleNamespace(num_timesteps=7)
    callback.locals = {"rewards": np.array([reward], dtype=np.float32), "infos": [info]}
    assert callback.on_step()
    best = stored(tmp_path)
    assert best["reward"] == pytest.approx(reward)
    assert best["info"]["auc_mean"] == pytest.approx(info["auc_mean"])
    assert best["code"] == info["code"]
    compile((tmp_path / "best_code.py").read_text(), "best_code.py", "exec")


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


def test_callbacks_of_sb3_work_beside_them_and_change_nothing(tmp_path) -> None:
    plain = code_agent().learn(3 * N)
    watched = code_agent()
    evaluate = EvalCallback(
        AdmissibleObservation(CodeLamps()), eval_freq=N, n_eval_episodes=2,
        best_model_save_path=str(tmp_path), verbose=0, warn=False,
    )  # fmt: skip
    callbacks = [
        evaluate,
        CheckpointCallback(N, str(tmp_path), "at"),
        BestCodeCallback(tmp_path),
        LatestCheckpointCallback(tmp_path / "latest.zip", N),
    ]
    watched.learn(3 * N, callbacks)
    assert evaluate.n_calls == 3 * N
    names = {path.name for path in tmp_path.iterdir()}
    steps = {f"at_{k * N}_steps.zip" for k in (1, 2, 3)}
    assert names == {"best_code.json", "best_code.py", "best_model.zip", "latest.zip", *steps}
    before, after = plain.policy.state_dict(), watched.policy.state_dict()
    assert all(np.array_equal(before[name], after[name]) for name in before)


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


def test_wandb_hears_what_is_logged(monkeypatch) -> None:
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


def test_a_run_that_an_error_left_open_is_closed_as_failed(monkeypatch) -> None:
    fake = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    callback = WandbCallback("lamps")
    callback.close()
    assert fake.finished == 0, "not begun"
    model = make_agent(n_epochs=1)
    model.set_logger(Logger(None, []))

    def fail(*_: Any) -> None:
        raise ConnectionError("gone")

    with monkeypatch.context() as patch:
        patch.setattr("poad_sb3.common.on_policy_algorithm.update", fail)
        with pytest.raises(ConnectionError, match="gone"):
            model.learn(N, callback=callback)
    callback.close()
    callback.close()
    assert (fake.finished, fake.exit_code, model.logger.output_formats) == (1, 1, [])
    model.learn(N, callback=callback)
    assert (fake.finished, fake.exit_code) == (2, 0)


def test_a_training_survives_a_log_that_cannot_end(monkeypatch) -> None:
    fake = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)

    def unreachable(exit_code: int = 0) -> None:
        raise ConnectionError("no network")

    monkeypatch.setattr(fake, "_finish", unreachable)
    model = make_agent(n_epochs=1)
    model.set_logger(Logger(None, []))
    with pytest.warns(UserWarning, match="could not end its run: ConnectionError"):
        model.learn(N, callback=WandbCallback("lamps"))
    assert model.num_timesteps == N


def test_without_wandb_the_extra_is_named(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(MissingExtraError, match=r"extra 'wandb'.* Fix: pip install .*\[wandb\]"):
        WandbCallback("lamps")
