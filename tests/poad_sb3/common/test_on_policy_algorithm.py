"""POAD as a Stable-Baselines3 algorithm: environments it takes, stock tools, refusals."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecMonitor
from toy import LampEnv, OpenLampEnv

from lang_envs import TokenSequence
from lang_envs.wrappers import AdmissibleObservation
from poad_sb3 import POAD, UnsupportedEnvError

ENV_ID = "Overcooked-TomatoSalad-v0"
SMALL = {"n_steps": 16, "batch_size": 8, "n_epochs": 2, "policy_kwargs": {"critic_arch": (32,)}}


def weights(model):
    return {name: tensor.clone() for name, tensor in model.policy.state_dict().items()}


def changed(before, after):
    return {name for name in before if not np.array_equal(before[name].numpy(), after[name].numpy())}


@pytest.mark.parametrize(
    "make",
    [
        lambda: AdmissibleObservation(gym.make(ENV_ID)),
        lambda: VecMonitor(DummyVecEnv([lambda: gym.make(ENV_ID)] * 2)),
        lambda: make_vec_env(ENV_ID, 2, vec_env_cls=SubprocVecEnv, vec_env_kwargs={"start_method": "fork"}),
    ],
    ids=["wrapped", "vec-monitor", "subproc"],
)
def test_learns_in_any_form_of_the_environment(make):
    model = POAD("LLMPolicy", make(), seed=0, **SMALL)
    before = weights(model)
    model.learn(model.n_envs * model.n_steps + 1)  # two rollouts
    assert model.num_timesteps == 2 * model.n_envs * model.n_steps
    moved = changed(before, weights(model))
    assert any("lora_B" in name for name in moved)
    assert any(name.startswith("critic") for name in moved)
    model.env.close()


def test_a_seed_may_be_an_integer_of_numpy() -> None:
    plain, numpy = (POAD("LLMPolicy", ENV_ID, seed=seed, **SMALL) for seed in (3, np.int64(3)))
    assert changed(weights(plain), weights(numpy)) == set()


def test_nonfinite_reward_stops_before_anything_is_learned():
    class Broken(gym.Wrapper):
        def step(self, action):
            observation, _, *rest = self.env.step(action)
            return observation, float("nan"), *rest

    model = POAD("LLMPolicy", Broken(AdmissibleObservation(gym.make(ENV_ID))), seed=0, **SMALL)
    before = weights(model)
    with pytest.raises(FloatingPointError, match=r"Expected finite rewards; got .*Fix: correct the environment"):
        model.learn(16)
    assert changed(before, weights(model)) == set()


def test_critic_has_its_own_learning_rate_schedule():
    model = POAD("LLMPolicy", ENV_ID, learning_rate=lambda left: left * 1e-3, critic_learning_rate=5e-4, **SMALL)
    model.learn(32)
    assert model.policy.optimizer.param_groups[0]["lr"] == pytest.approx(0.0)
    assert model.policy.critic_optimizer.param_groups[0]["lr"] == pytest.approx(5e-4)


def test_a_rate_that_falls_can_be_written_as_text():
    model = POAD("LLMPolicy", ENV_ID, learning_rate="lin_1e-3", critic_learning_rate="lin_5e-4", **SMALL)
    before = weights(model)
    model.learn(32)
    assert changed(before, weights(model))
    assert [model.lr_schedule(left) for left in (1.0, 0.25, 0.0)] == pytest.approx([1e-3, 0.25e-3, 0.0])
    assert [model.critic_lr_schedule(left) for left in (1.0, 0.0)] == pytest.approx([5e-4, 0.0])
    assert model.policy.optimizer.param_groups[0]["lr"] == pytest.approx(0.0), "of the last update, as in SB3"


@pytest.mark.parametrize("rate", ["lin_-1", "1e-3", -1e-3, np.inf, True])
def test_invalid_rates_are_refused(rate):
    with pytest.raises(ValueError, match=r"Expected learning_rate to be a number of at least 0, .*'lin_3e-3'.*; got "):
        POAD("LLMPolicy", None, learning_rate=rate, _init_setup_model=False)


def test_learning_without_an_environment_is_refused(tmp_path):
    POAD("LLMPolicy", ENV_ID, seed=0, **SMALL).save(tmp_path / "model.zip")
    with pytest.raises(
        UnsupportedEnvError, match=r"Expected an environment to learn in; got None\. Fix: model.set_env"
    ):
        POAD.load(tmp_path / "model.zip").learn(1)


# ---------------------------------------------------------------------- schedules of clip ranges


@pytest.mark.parametrize(
    ("name", "given", "clips"),
    [("clip_range", "lin_0.2", [0.1, 0.0]), ("clip_range_vf", lambda left: 0.1 + 0.4 * left, [0.3, 0.1])],
    ids=["text", "function"],
)
def test_clip_ranges_may_be_schedules(name: str, given: Any, clips: list[float], tmp_path: Path) -> None:
    """As SB3's: an update has the value of the moment after its rollout, and so has one after loading."""
    model = POAD("LLMPolicy", ENV_ID, n_steps=16, batch_size=8, seed=0, **{name: given})
    logged: list[float] = []
    train = model.train

    def noting() -> None:
        train()
        logged.append(model.logger.name_to_value[f"train/{name}"])

    model.train = noting  # type: ignore[method-assign]
    model.learn(32)
    assert logged == pytest.approx(clips)
    del model.train
    model.save(tmp_path / "model.zip")
    loaded = POAD.load(tmp_path / "model.zip", ENV_ID)
    assert loaded._clip_range_now(name) == pytest.approx(clips[-1])


def test_a_schedule_that_gives_no_clip_range_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Expected clip_range_vf to stay a number of at least 0; .* gives -1"):
        POAD("LLMPolicy", ENV_ID, n_steps=4, clip_range_vf=lambda left: -1.0).learn(4)


# ---------------------------------------------------------------------- rollouts that teach little

LAMPS = {"seed": 0, "n_steps": 4, "batch_size": 4, "n_epochs": 1, "policy_kwargs": {"critic_arch": (8,)}}


class CrampedLamps(LampEnv):
    """Lamps whose action space holds few texts."""

    def __init__(self, max_length: int) -> None:
        super().__init__()
        self.action_space = TokenSequence(self.action_space.tokenizer, max_length)


class Shares(BaseCallback):
    """Shares of texts that are too long: as logged, and as the environments saw them."""

    def _on_training_start(self) -> None:
        self.logged: list[float | None] = []
        self.seen: list[float] = []
        self._unheld: list[bool] = []

    def _on_step(self) -> bool:
        self._unheld += (self.locals["actions"] == self.model.action_space.unfinished()).all(axis=1).tolist()
        return True

    def _on_rollout_end(self) -> None:
        self.logged.append(self.logger.name_to_value.get("rollout/too_long_share"))
        self.seen.append(float(np.mean(self._unheld)))
        self._unheld.clear()


class CrampedOpenLamps(CrampedLamps, OpenLampEnv):
    """The same, where any text is an action."""


FREE: dict[str, Any] = {"action_sampling": "free", "max_new_tokens": 4}
THINK: dict[str, Any] = {"action_sampling": "think", "max_thought_tokens": 2, "max_new_tokens": 4}


@pytest.mark.parametrize(("kind", "acting"), [(CrampedLamps, FREE), (CrampedOpenLamps, THINK)])
def test_texts_too_long_for_the_action_space_are_counted(kind: type[CrampedLamps], acting: dict[str, Any]) -> None:
    model, shares = POAD("LLMPolicy", kind(2), **LAMPS, **acting), Shares()
    for _ in range(2):
        with pytest.warns(
            RuntimeWarning, match=r"of at most 1 tokens; .*% of this .*Fix: .*max_action_length"
        ) as warned:
            model.learn(8, callback=shares)
        assert len(warned) == 1
        assert shares.logged == shares.seen
        assert len(shares.seen) == 2
        assert max(shares.seen) > 0.5


def test_rollouts_without_a_choice_are_warned_about_once() -> None:
    model = POAD("LLMPolicy", LampEnv(forced=("red", "green", "blue")), **LAMPS)
    before = weights(model)
    with pytest.warns(RuntimeWarning, match=r"token was chosen among several; this one has none.*Fix: ") as warned:
        model.learn(8)
    assert len(warned) == 1
    assert not any("lora" in name for name in changed(before, weights(model)))
