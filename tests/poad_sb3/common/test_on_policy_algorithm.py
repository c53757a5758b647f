"""POAD as a Stable-Baselines3 algorithm: environments it takes, stock tools, refusals."""

import csv
import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3.common.callbacks import BaseCallback, CheckpointCallback, EvalCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.logger import configure
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecMonitor
from toy import LampEnv

from lang_envs import TokenSequence
from lang_envs.wrappers import AdmissibleObservation
from poad_sb3 import POAD, UnsupportedEnvError
from poad_sb3.common import hyperparameters
from poad_sb3.common.hyperparameters import typed_arguments
from poad_sb3.vec_env.text_observations import VecAdmissibleObservation

ENV_ID = "Overcooked-TomatoSalad-v0"
SMALL = {"n_steps": 16, "batch_size": 8, "n_epochs": 2, "policy_kwargs": {"critic_arch": (32,)}}


def weights(model):
    return {name: tensor.clone() for name, tensor in model.policy.state_dict().items()}


def changed(before, after):
    return {name for name in before if not np.array_equal(before[name].numpy(), after[name].numpy())}


@pytest.mark.matrix_after(2)
@pytest.mark.parametrize(
    "make",
    [
        lambda: ENV_ID,
        lambda: gym.make(ENV_ID),
        lambda: AdmissibleObservation(gym.make(ENV_ID)),
        lambda: make_vec_env(ENV_ID, 2),
        lambda: VecMonitor(DummyVecEnv([lambda: gym.make(ENV_ID)] * 2)),
        lambda: make_vec_env(ENV_ID, 2, wrapper_class=AdmissibleObservation),
        lambda: make_vec_env(ENV_ID, 2, vec_env_cls=SubprocVecEnv, vec_env_kwargs={"start_method": "fork"}),
    ],
    ids=["id", "env", "wrapped", "vec", "vec-monitor", "vec-wrapped", "subproc"],
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


def test_vector_wrapper_equals_single_wrapper():
    wrapped = make_vec_env(ENV_ID, 2, wrapper_class=AdmissibleObservation)
    outside = VecAdmissibleObservation(make_vec_env(ENV_ID, 2))
    assert wrapped.observation_space == outside.observation_space
    space, rng = wrapped.action_space, np.random.default_rng(3)
    pair = [env.reset() for env in (wrapped, outside)]
    ended = 0
    for _ in range(150):
        for key in ("text", "admissible_actions"):
            assert list(map(str, pair[0][key])) == list(map(str, pair[1][key]))
        lists = [json.loads(str(item)) for item in pair[0]["admissible_actions"]]
        actions = np.stack([space.encode(listed[rng.integers(len(listed))]) for listed in lists])
        results = [env.step(actions) for env in (wrapped, outside)]
        pair = [result[0] for result in results]
        for mine, theirs in zip(results[0][3], results[1][3], strict=True):
            if "terminal_observation" in mine:
                ended += 1
                assert mine["terminal_observation"] == theirs["terminal_observation"]
    assert ended > 0


@pytest.mark.filterwarnings("ignore:rich is experimental")
def test_stock_tools_work(tmp_path):
    model = POAD("LLMPolicy", gym.make(ENV_ID), seed=0, **SMALL)
    eval_env = DummyVecEnv([lambda: Monitor(AdmissibleObservation(gym.make(ENV_ID)))])
    callbacks = [
        EvalCallback(eval_env, eval_freq=16, n_eval_episodes=2, best_model_save_path=str(tmp_path), verbose=0),
        CheckpointCallback(save_freq=16, save_path=str(tmp_path), name_prefix="step"),
    ]
    model.set_logger(configure(str(tmp_path), ["csv", "tensorboard"]))
    model.learn(32, callback=callbacks, progress_bar=True)
    model.logger.close()
    assert (tmp_path / "best_model.zip").exists()
    assert (tmp_path / "step_16_steps.zip").exists()
    assert list(tmp_path.glob("events.out.tfevents*"))
    with (tmp_path / "progress.csv").open() as file:
        rows = list(csv.DictReader(file))
    for name in (
        "eval/success_rate",
        "train/first_ratio_error",
        "train/approx_kl",
        "train/entropy",
        "train/value_loss",
        "eval/mean_reward",
    ):
        assert any(row[name] for row in rows), name
    mean, _ = evaluate_policy(model, model.get_env(), n_eval_episodes=2)
    assert np.isfinite(mean)
    best = POAD.load(tmp_path / "best_model.zip", env=ENV_ID)
    assert np.isfinite(evaluate_policy(best, best.get_env(), n_eval_episodes=1)[0])


@pytest.mark.matrix
def test_evaluating_in_mid_training_changes_nothing():
    plain = POAD("LLMPolicy", ENV_ID, seed=3, **SMALL).learn(48)
    watched = POAD("LLMPolicy", ENV_ID, seed=3, **SMALL)
    eval_env = DummyVecEnv([lambda: Monitor(AdmissibleObservation(gym.make(ENV_ID)))])
    watched.learn(48, callback=EvalCallback(eval_env, eval_freq=5, n_eval_episodes=1, deterministic=False, verbose=0))
    assert changed(weights(plain), weights(watched)) == set()


def test_a_seed_may_be_an_integer_of_numpy() -> None:
    plain, numpy = (POAD("LLMPolicy", ENV_ID, seed=seed, **SMALL) for seed in (3, np.int64(3)))
    assert changed(weights(plain), weights(numpy)) == set()


def test_first_ratio_is_one_in_every_update():
    model = POAD("LLMPolicy", ENV_ID, seed=1, **SMALL)
    errors = []
    train = model.train

    def train_and_note():
        train()
        errors.append(model.logger.name_to_value["train/first_ratio_error"])

    model.train = train_and_note
    model.learn(16 * 6)
    assert len(errors) == 6
    assert max(errors) < 1e-4


def test_success_rate_is_logged():
    env = gym.make(ENV_ID)
    model = POAD("LLMPolicy", env, seed=0, **{**SMALL, "n_steps": 256, "n_epochs": 1})
    model.learn(256)
    assert len(model.ep_success_buffer) == len(model.ep_info_buffer) > 0


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


def test_a_rate_that_has_fallen_before_anything_was_learned_is_told():
    model = POAD("LLMPolicy", ENV_ID, learning_rate="lin_1e-3", **SMALL)
    with pytest.warns(
        RuntimeWarning, match=r"learning_rate='lin_1e-3' has fallen to 0 at the first update.*Fix: train"
    ):
        model.learn(SMALL["n_steps"])


@pytest.mark.parametrize(
    "rate",
    [
        *("fast", "lin_", "lin_x", "lin_-1", "lin_nan", "lin_1_0", "lin_1e-3 ", "lin_1e999", "1e-3", b"0.1"),
        *(-1e-3, np.inf, 10**400, True, np.True_, None),
    ],
)
def test_other_rates_are_refused_before_a_model_is_loaded(rate):
    with pytest.raises(ValueError, match=r"Expected learning_rate to be a number of at least 0, .*'lin_3e-3'.*; got "):
        POAD("LLMPolicy", None, learning_rate=rate, _init_setup_model=False)


@pytest.mark.parametrize(
    ("build", "error", "match"),
    [
        (lambda: POAD("MlpPolicy", ENV_ID), ValueError, r"Expected policy to be one of .*got 'MlpPolicy'\. Fix"),
        (
            lambda: POAD("LLMPolicy", "CartPole-v1"),
            UnsupportedEnvError,
            r"TokenSequence action space; got Discrete.*Fix",
        ),
        (lambda: POAD("LLMPolicy", "NoSuchEnv-v0"), gym.error.NameNotFound, "NoSuchEnv"),
        (lambda: POAD("LLMPolicy", ENV_ID, gamma=1.5), ValueError, "Expected gamma between 0 and 1; got 1.5"),
        (lambda: POAD("LLMPolicy", ENV_ID, target_kl=-1), ValueError, "Expected target_kl to be a positive number"),
        (lambda: POAD("LLMPolicy", ENV_ID, ent_coef="x"), ValueError, "Expected ent_coef to be a non-negative number"),
        (lambda: POAD("LLMPolicy", gym.make_vec(ENV_ID, 2)), UnsupportedEnvError, "Fix: stable_baselines3.*make_vec"),
        (lambda: POAD("LLMPolicy", None), UnsupportedEnvError, r"Expected an environment.*got None\. Fix"),
        (lambda: POAD("LLMPolicy", ENV_ID, n_steps=0), ValueError, "Expected n_steps to be a positive integer; got 0"),
        (lambda: POAD("LLMPolicy", ENV_ID, policy_kwargs={"modle": "x"}), ValueError, "policy_kwargs among .*'modle'"),
        (lambda: POAD("LLMPolicy", ENV_ID, policy_kwargs={"device": "cpu"}), ValueError, "among .*got 'device'"),
        (lambda: POAD("LLMPolicy", [gym.make(ENV_ID)]), UnsupportedEnvError, "the id of one, or a .* VecEnv; got"),
        (lambda: POAD("LLMPolicy", 3), UnsupportedEnvError, "VecEnv; got 3"),
    ],
    ids=[
        "policy",
        "env",
        "id",
        "gamma",
        "target_kl",
        "ent_coef",
        "vector",
        "none",
        "n_steps",
        "policy_kwargs",
        "device",
        "list",
        "number",
    ],
)
def test_wrong_arguments_say_what_to_do(build, error, match):
    with pytest.raises(error, match=match):
        build()


def test_an_environment_without_text_is_refused():
    class Numbers(gym.ObservationWrapper):
        def __init__(self, env):
            super().__init__(env)
            self.observation_space = gym.spaces.Box(0, 1, (1,))

        def observation(self, observation):
            return np.zeros(1, dtype=np.float32)

    with pytest.raises(UnsupportedEnvError, match=r"text observations .*got Box.*Fix"):
        POAD("LLMPolicy", Numbers(gym.make(ENV_ID)))


def test_learning_without_an_environment_is_refused(tmp_path):
    POAD("LLMPolicy", ENV_ID, seed=0, **SMALL).save(tmp_path / "model.zip")
    with pytest.raises(
        UnsupportedEnvError, match=r"Expected an environment to learn in; got None\. Fix: model.set_env"
    ):
        POAD.load(tmp_path / "model.zip").learn(1)


# ---------------------------------------------------------------------- schedules of clip ranges


@pytest.mark.matrix_after(2)
@pytest.mark.parametrize("name", ["clip_range", "clip_range_vf"])
@pytest.mark.parametrize(
    ("given", "clips"),
    [(0.2, [0.2, 0.2]), ("lin_0.2", [0.1, 0.0]), (lambda left: 0.1 + 0.4 * left, [0.3, 0.1])],
    ids=["number", "text", "function"],
)
def test_clip_ranges_may_be_schedules(name: str, given: Any, clips: list[float], tmp_path: Path) -> None:
    """As SB3's: an update has the value of the moment after its rollout, and so has one after loading."""
    model = POAD("LLMPolicy", ENV_ID, n_steps=16, batch_size=8, seed=0, **{name: given})
    seen: list[float] = []
    train = model.train

    def noting() -> None:
        train()
        seen.append(model.logger.name_to_value[f"train/{name}"])

    model.train = noting  # type: ignore[method-assign]
    model.learn(32)
    assert seen == pytest.approx(clips)
    del model.train
    model.save(tmp_path / "model.zip")
    loaded = POAD.load(tmp_path / "model.zip", ENV_ID)
    assert loaded._clip_range_now(name) == pytest.approx(clips[-1])


@pytest.mark.matrix
def test_a_falling_clip_range_clips_more_in_the_end() -> None:
    wide, narrow = (
        POAD("LLMPolicy", ENV_ID, n_steps=32, batch_size=8, seed=0, target_kl=None, clip_range=clip).learn(32)
        for clip in (0.2, "lin_0.2")  # at the only update, at the end of training, it is 0
    )
    fractions = [one.logger.name_to_value["train/clip_fraction"] for one in (wide, narrow)]
    assert fractions[0] < fractions[1]


def test_a_large_model_with_a_rate_of_the_pocket_model_is_told(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(hyperparameters, "LARGE_MODEL", 900_000)
    warned = r"^Expected a smaller learning_rate for a model of 1 million weights; 0\.002 suits .* Fix: learning_rate="
    with pytest.warns(RuntimeWarning, match=warned) as found:
        model = POAD("LLMPolicy", ENV_ID, n_steps=4)
    assert len(found) == 1
    assert found[0].filename == __file__
    POAD("LLMPolicy", ENV_ID, n_steps=4, learning_rate=1e-4)
    model.save(tmp_path / "model.zip")
    POAD.load(tmp_path / "model.zip")


@pytest.mark.parametrize("wrong", [0, -0.1, "0.2", "lin_0", float("nan"), True, [0.2]])
def test_a_wrong_clip_range_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="Expected clip_range to be a positive number, one that falls to 0"):
        POAD("LLMPolicy", ENV_ID, clip_range=wrong)


def test_a_schedule_that_gives_no_clip_range_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Expected clip_range_vf to stay a number of at least 0; .* gives -1"):
        POAD("LLMPolicy", ENV_ID, n_steps=4, clip_range_vf=lambda left: -1.0).learn(4)


def test_clip_range_schedules_in_presets_and_from_the_shell() -> None:
    model = POAD.from_preset("pocket/overcooked", ENV_ID, clip_range="lin_0.3", n_steps=8)
    assert model.clip_range == "lin_0.3"
    assert typed_arguments(POAD, {"clip_range": "lin_0.3", "clip_range_vf": "none"}) == {
        "clip_range": "lin_0.3",
        "clip_range_vf": None,
    }


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


def lamps(max_length: int, **kwargs: Any) -> POAD:
    return POAD("LLMPolicy", CrampedLamps(max_length), **LAMPS, **kwargs)


FREE: dict[str, Any] = {"action_sampling": "free", "max_new_tokens": 4}


def test_texts_that_the_action_space_cannot_hold_are_counted_and_told_once_a_training() -> None:
    model, shares = lamps(2, **FREE), Shares()
    for _ in range(2):
        with pytest.warns(RuntimeWarning, match=r"of at most 1 tokens; .*% of this .*Fix: .*max_action_length") as told:
            model.learn(8, callback=shares)
        assert len(told) == 1
        assert shares.logged == shares.seen
        assert len(shares.seen) == 2
        assert max(shares.seen) > 0.5


@pytest.mark.parametrize(("settings", "logged"), [(FREE, 0.0), ({}, None)], ids=["free", "listed"])
def test_texts_that_the_action_space_holds_are_not_told(settings: dict[str, Any], logged: float | None) -> None:
    shares = Shares()
    lamps(64, **settings).learn(4, callback=shares)  # a warning would be an error
    assert shares.logged == [logged]


@pytest.mark.parametrize("settings", [{}, {"action_sampling": "free", "top_k": 1, "max_new_tokens": 2}], ids=str)
def test_rollouts_without_a_choice_are_told_once_a_training(settings: dict[str, Any]) -> None:
    model = POAD("LLMPolicy", LampEnv(forced=("red", "green", "blue")), **LAMPS, **settings)
    before = weights(model)
    with pytest.warns(RuntimeWarning, match=r"token was chosen among several; this one has none.*Fix: ") as told:
        model.learn(8)
    assert len(told) == 1
    assert not any("lora" in name for name in changed(before, weights(model)))
