"""Behaviours that Stable-Baselines3 tests for its own algorithms; docs/development/conventions.md lists them."""

from __future__ import annotations

import inspect
import io
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import stable_baselines3 as sb3
import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import (
    BaseCallback,
    CheckpointCallback,
    EvalCallback,
)
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import (
    DummyVecEnv,
    SubprocVecEnv,
    VecCheckNan,
    VecFrameStack,
    VecNormalize,
    VecTransposeImage,
)
from toy import LampEnv, rows

from lang_envs import TextSpace
from lang_envs.wrappers import AdmissibleObservation
from poad_sb3 import BADQ, NTPO, POAD, TWOSOME, ObservationError, UnsupportedEnvError
from poad_sb3.credit.losses import clipped_value_loss
from poad_sb3.vec_env.text_observations import VecAdmissibleObservation

Make = Callable[..., BaseAlgorithm]

SMALL: dict[str, Any] = {"seed": 0, "policy_kwargs": {"critic_arch": (8,)}}
ROLLOUTS = {**SMALL, "n_steps": 8, "batch_size": 8, "n_epochs": 1, "n_critic_epochs": 1}
KINDS = {"POAD": POAD, "NTPO": NTPO, "TWOSOME": TWOSOME, "BADQ": BADQ}


def make(kind: str = "POAD", env: Any = None, **kwargs: Any) -> Any:
    settings = {**SMALL, "learning_starts": 4, "batch_size": 4} if kind == "BADQ" else ROLLOUTS
    return KINDS[kind]("LLMPolicy", LampEnv() if env is None else env, **{**settings, **kwargs})


def monitored(n_envs: int = 1, **kwargs: Any) -> DummyVecEnv:
    return DummyVecEnv([lambda: Monitor(AdmissibleObservation(LampEnv(**kwargs)))] * n_envs)


def weights(model: BaseAlgorithm) -> dict[str, bytes]:
    return {name: tensor.numpy().tobytes() for name, tensor in model.policy.state_dict().items()}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture(params=["POAD", "BADQ"])
def kind(request: pytest.FixtureRequest) -> str:
    """An on-policy and the off-policy algorithm; the other on-policy ones share all the code but the credit."""
    return request.param


@pytest.fixture(params=rows(["POAD", "BADQ", "NTPO", "TWOSOME"], 2))
def any_kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def lasting() -> POAD:
    """A trained model that tests leave as it is."""
    return make().learn(8)


class Order(BaseCallback):
    """Records its calls and their local variables."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[str] = []
        self.names: dict[str, set[str]] = {}

    def note(self, event: str) -> None:
        self.events.append(event)
        self.names[event] = set(self.locals)

    def _on_training_start(self) -> None:
        self.note("training_start")

    def _on_rollout_start(self) -> None:
        self.note("rollout_start")

    def _on_step(self) -> bool:
        self.note("step")
        return True

    def _on_rollout_end(self) -> None:
        self.note("rollout_end")

    def _on_training_end(self) -> None:
        self.note("training_end")


class Keys(Logger):
    """Records the keys with their exclusions."""

    def __init__(self) -> None:
        super().__init__(None, [])
        self.exclusions: dict[str, Any] = {}

    def record(self, key: str, value: Any, exclude: Any = None) -> None:
        self.exclusions[key] = exclude
        super().record(key, value, exclude)


def logged(model: BaseAlgorithm, steps: int = 16, **kwargs: Any) -> dict[str, Any]:
    model.set_logger(keys := Keys())
    model.learn(steps, **kwargs)
    return keys.exclusions


# ---------------------------------------------------------------------- signatures


@pytest.mark.parametrize(("ours", "theirs"), [(POAD, sb3.PPO), (BADQ, sb3.DQN)])
def test_public_methods_and_attributes_are_those_of_sb3(ours: type, theirs: type) -> None:
    left_out = {"collect_rollouts"} if ours is BADQ else set()
    assert {name for name in dir(theirs) if not name.startswith("_")} - set(dir(ours)) == left_out


def arguments_of(function: Any) -> dict[str, Any]:
    return {name: argument.default for name, argument in inspect.signature(function).parameters.items()}


@pytest.mark.parametrize(
    ("ours", "theirs", "missing"),
    [
        (POAD, sb3.PPO, {"use_sde", "sde_sample_freq", "rollout_buffer_class", "rollout_buffer_kwargs"}),
        (
            BADQ,
            sb3.DQN,
            {"replay_buffer_class", "replay_buffer_kwargs", "optimize_memory_usage", "exploration_fraction"},
        ),
    ],
)
def test_constructors_take_the_arguments_of_sb3_by_name(ours: type, theirs: type, missing: set[str]) -> None:
    assert set(arguments_of(theirs)) - set(arguments_of(ours)) == missing
    assert list(arguments_of(ours))[:3] == list(arguments_of(theirs))[:3]
    assert ours("LLMPolicy", env=None, _init_setup_model=False).verbose == 0


def test_the_value_clip_is_on_by_default_and_in_units_of_the_return() -> None:
    """A value that has moved by more has no gradient, however far its return is."""
    assert (arguments_of(POAD)["clip_range_vf"], arguments_of(sb3.PPO)["clip_range_vf"]) == (0.2, None)
    moved, old = torch.tensor([0.1, 0.3], requires_grad=True), torch.zeros(2)
    loss = clipped_value_loss(moved, old, torch.tensor([10.0, 10.0]), 0.2)
    (slope,) = torch.autograd.grad(loss.sum(), moved)
    assert (slope != 0).tolist() == [True, False]


DEFAULTS = {
    "learn": {"tb_log_name"},  # None is the name of the class
    "load": {"force_reset"},
    "set_env": {"force_reset"},
}


@pytest.mark.parametrize(("ours", "theirs"), [(POAD, sb3.PPO), (BADQ, sb3.DQN)])
def test_methods_take_the_arguments_of_sb3(ours: type, theirs: type) -> None:
    for name in ("learn", "predict", "save", "load", "set_env", "set_parameters", "get_parameters", "set_random_seed"):
        mine, wanted = arguments_of(getattr(ours, name)), arguments_of(getattr(theirs, name))
        assert list(mine)[: len(wanted)] == list(wanted)
        others = {argument for argument in wanted if mine[argument] != wanted[argument]}
        assert others == DEFAULTS.get(name, set()) | ({"log_interval"} if (ours, name) == (BADQ, "learn") else set())
    assert (arguments_of(POAD.load)["force_reset"], arguments_of(POAD.set_env)["force_reset"]) == (False, None)
    assert (arguments_of(BADQ.learn)["log_interval"], arguments_of(sb3.DQN.learn)["log_interval"]) == (10, 4)


def test_schedules_stay_as_they_were_given() -> None:
    model = make(clip_range="lin_0.2", clip_range_vf=None).learn(8)
    assert (model.clip_range, model.clip_range_vf) == ("lin_0.2", None)
    with pytest.raises(ValueError, match="Expected clip_range"):
        make(clip_range="0.2")


def test_the_exploration_rate_follows_from_the_step() -> None:
    model = make("BADQ", exploration_steps=16, exploration_final_eps=0.0).learn(8)
    assert model.exploration_rate == 0.5
    observation = model.env.reset()
    assert len({str(model.predict(observation)[0]) for _ in range(20)}) == 1, "predict does not explore"
    with pytest.raises(AttributeError, match="no setter"):
        model.exploration_rate = 1.0


# ---------------------------------------------------------------------- save and load


@pytest.mark.parametrize(
    ("as_path", "name", "written"), [(str, "model", "model.zip"), (Path, "new/at_0.5", "new/at_0.5")]
)
def test_a_path_gets_the_suffix_and_folder_that_it_lacks(
    lasting: POAD, tmp_path: Path, as_path: Any, name: str, written: str
) -> None:
    lasting.save(as_path(tmp_path / name))
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()] == [written]
    assert weights(POAD.load(as_path(tmp_path / name))) == weights(lasting)


def test_a_file_object_is_written_and_read(kind: str) -> None:
    model, buffer = make(kind), io.BytesIO()
    model.save(buffer)
    buffer.seek(0)
    assert weights(KINDS[kind].load(buffer)) == weights(model)


def test_what_cannot_be_written_to_is_refused(lasting: POAD, tmp_path: Path) -> None:
    path = tmp_path / "model.zip"
    path.write_text("old")
    wrong = r"Expected a path, or a binary file opened for writing; got .*\. Fix: pass open\(path, 'wb'\)"
    with path.open("rb") as reading, path.open("a") as text:
        for target in (reading, text, None, 3):
            with pytest.raises(ValueError, match=wrong):
                lasting.save(target)
    assert path.read_text() == "old"


def test_a_folder_is_no_file_to_save_to(lasting: POAD, tmp_path: Path) -> None:
    (tmp_path / "model.zip").mkdir()
    with pytest.raises(IsADirectoryError, match=r"Expected a file to write; .*model\.zip is a folder\. Fix: name a"):
        lasting.save(tmp_path / "model")
    assert names(tmp_path) == ["model.zip"]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.zip"):
        POAD.load(tmp_path / "none")


def test_a_loaded_model_predicts_and_trains_as_the_saved_one(any_kind: str, tmp_path: Path) -> None:
    model = make(any_kind).learn(16)
    model.save(tmp_path / "model")
    observation = LampEnv().reset(seed=3)[0]
    loaded = KINDS[any_kind].load(tmp_path / "model", env=LampEnv(), device="cpu")
    assert loaded.device == torch.device("cpu")
    for deterministic in (True, False):
        pair = [agent.predict(observation, deterministic=deterministic)[0].tolist() for agent in (model, loaded)]
        assert pair[0] == pair[1]
    assert loaded.num_timesteps == 16
    assert loaded.learn(8, reset_num_timesteps=False).num_timesteps == 24
    assert weights(loaded) != weights(model)


def test_system_information_is_printed_at_load(lasting: POAD, tmp_path: Path, capsys: Any) -> None:
    lasting.save(tmp_path / "model")
    POAD.load(tmp_path / "model", print_system_info=True)
    printed = capsys.readouterr().out
    assert "== CURRENT SYSTEM INFO ==" in printed
    assert "== SAVED MODEL SYSTEM INFO ==" in printed


def test_custom_objects_replace_what_was_saved_and_are_checked(lasting: POAD, tmp_path: Path) -> None:
    lasting.save(tmp_path / "model")
    loaded = POAD.load(tmp_path / "model", custom_objects={"learning_rate": 1e-5, "n_epochs": 7})
    assert (loaded.learning_rate, loaded.lr_schedule(1.0), loaded.n_epochs) == (1e-5, 1e-5, 7)
    with pytest.raises(ValueError, match="custom_objects argument must be a dict or None"):
        POAD.load(tmp_path / "model", custom_objects=3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Expected gamma between 0 and 1; got 3"):
        POAD.load(tmp_path / "model", custom_objects={"gamma": 3})


def test_attributes_are_left_out_and_kept_as_asked(lasting: POAD, tmp_path: Path) -> None:
    model = make(learning_rate=1e-5, env=LampEnv())
    model.save(tmp_path / "without", exclude=["learning_rate", "no_such_attribute"])
    assert POAD.load(tmp_path / "without").learning_rate == lasting.learning_rate, "the default"
    model.save(tmp_path / "with", include=["env"])
    assert isinstance(POAD.load(tmp_path / "with").env, DummyVecEnv)
    assert POAD.load(tmp_path / "without").env is None


def test_environments_of_other_spaces_are_refused(lasting: POAD, tmp_path: Path) -> None:
    class Long(LampEnv):
        def __init__(self) -> None:
            super().__init__()
            self.observation_space = TextSpace(999)

    lasting.save(tmp_path / "model")
    for use in (partial(POAD.load, tmp_path / "model"), lasting.set_env):
        with pytest.raises(ValueError, match="Observation spaces do not match"):
            use(Long())
        with pytest.raises(UnsupportedEnvError, match=r"TokenSequence action space; got Discrete\(2\)"):
            use("CartPole-v1")
    lasting.set_env(LampEnv())


def test_load_takes_another_number_of_environments_and_set_env_does_not(lasting: POAD, tmp_path: Path) -> None:
    lasting.save(tmp_path / "model")
    loaded = POAD.load(tmp_path / "model", env=monitored(3))
    assert (loaded.n_envs, loaded.env.num_envs) == (3, 3)
    with pytest.warns(UserWarning, match=r"training continues from a reset \(exact_resume=False\)"):
        loaded.learn(24, reset_num_timesteps=False)
    assert loaded.rollout_buffer.n_envs == 3
    with pytest.raises(ValueError, match=r"Expected 1 environments, as before; got 3\. Fix"):
        lasting.set_env(monitored(3))


def test_set_env_starts_from_a_reset_and_get_env_returns_it() -> None:
    model = make().learn(8)
    assert model.get_env() is model.env
    env = monitored()
    model.set_env(env)
    assert model.get_env() is env
    assert model._last_obs is None
    assert model.learn(8, reset_num_timesteps=False).num_timesteps == 16
    assert model.get_vec_normalize_env() is None


# ---------------------------------------------------------------------- parameters


def test_parameters_go_out_and_in(kind: str) -> None:
    model, other = make(kind).learn(16), make(kind, seed=5)
    parameters = model.get_parameters()
    assert {"policy", "policy.critic_optimizer"} <= set(parameters)
    assert weights(other) != weights(model)
    other.set_parameters(parameters)
    assert weights(other) == weights(model)


def test_parameters_that_do_not_match_are_refused(lasting: POAD) -> None:
    parameters = lasting.get_parameters()
    before = weights(lasting)
    with pytest.raises(ValueError, match="Names of parameters do not match"):
        lasting.set_parameters({"policy": parameters["policy"]})
    with pytest.raises(ValueError, match="Key no_such is an invalid object name"):
        lasting.set_parameters({"no_such": parameters["policy"]}, exact_match=False)
    fewer = dict(list(parameters["policy"].items())[1:])
    with pytest.raises(RuntimeError, match=r"Expected the trainable tensors of this policy; 1 differ.*Fix"):
        lasting.set_parameters({**parameters, "policy": fewer})
    lasting.set_parameters({"policy": parameters["policy"]}, exact_match=False)
    lasting.set_parameters({"policy": fewer}, exact_match=False)
    assert weights(lasting) == before


def test_a_policy_is_saved_and_loaded_alone(kind: str, tmp_path: Path) -> None:
    policy = make(kind).learn(16).policy
    policy.save(tmp_path / "policy")
    loaded = type(policy).load(tmp_path / "policy", device="cpu")
    observation = LampEnv().reset(seed=3)[0]
    pair = [agent.predict(observation, deterministic=True)[0].tolist() for agent in (policy, loaded)]
    assert pair[0] == pair[1]


def test_a_policy_is_a_vector_and_back(kind: str) -> None:
    policy = make(kind).policy
    vector = policy.parameters_to_vector()
    policy.load_from_vector(vector + 1)
    assert np.allclose(policy.parameters_to_vector(), vector + 1)
    with pytest.raises(RuntimeError, match="is invalid for input of size 3"):
        policy.load_from_vector(vector[:3])


@pytest.mark.parametrize("policy", ["MlpPolicy", sb3.ppo.MlpPolicy])
def test_what_is_no_policy_is_refused(kind: str, policy: Any) -> None:
    name = next(iter(KINDS[kind].policy_aliases))
    wrong = rf'Expected policy to be one of .* or a subclass of {name}; got .*\. Fix: {kind}\("{name}", env\)'
    with pytest.raises(ValueError, match=wrong):
        KINDS[kind](policy, LampEnv())


def test_a_policy_class_and_its_name_are_the_same(kind: str) -> None:
    named = make(kind)
    given = KINDS[kind](named.policy_class, LampEnv(), seed=0, policy_kwargs=SMALL["policy_kwargs"])
    assert weights(given) == weights(named)


def test_an_unknown_policy_argument_is_refused(kind: str) -> None:
    with pytest.raises(ValueError, match=r"Expected policy_kwargs among .*; got 'net_arch'"):
        make(kind, policy_kwargs={"net_arch": [8]})


# ---------------------------------------------------------------------- callbacks


def test_callbacks_hear_of_a_training_in_the_order_of_sb3(kind: str) -> None:
    order, theirs = Order(), Order()
    make(kind).learn(16, callback=order)
    other = sb3.DQN if kind == "BADQ" else sb3.PPO
    short = {"learning_starts": 4, "train_freq": 1} if kind == "BADQ" else {"n_steps": 8}
    other("MlpPolicy", "CartPole-v1", batch_size=8, seed=0, device="cpu", **short).learn(16, callback=theirs)
    if kind == "BADQ":  # SB3 has a rollout for each step before learning_starts too
        assert order.events[:7] == ["training_start", "rollout_start", *["step"] * 4, "rollout_end"]
        assert order.events[-3:] == [*theirs.events[-2:-1], "rollout_start", "training_end"]
        assert order.events.count("step") == theirs.events.count("step") == 16
    else:
        assert order.events == theirs.events
        rollout = ["rollout_start", *["step"] * 8, "rollout_end"]
        assert order.events == ["training_start", *rollout, *rollout, "training_end"]


SHARED_LOCALS = {
    "training_start": {"self", "total_timesteps", "callback", "log_interval", "tb_log_name", "reset_num_timesteps"},
    "step": {"self", "env", "callback", "actions", "new_obs", "rewards", "dones", "infos"},
}
NO_LOCALS = {  # of PPO: values and log-probabilities of tokens are computed when the rollout is whole
    *("clipped_actions", "values", "log_probs", "obs_tensor", "n_steps"),
    *("idx", "done", "terminal_obs", "terminal_value", "iteration"),
}


def test_callbacks_find_local_variables_by_the_names_of_sb3(kind: str) -> None:
    order, theirs = Order(), Order()
    make(kind).learn(16, callback=order)
    assert SHARED_LOCALS["training_start"] | {"progress_bar"} <= order.names["training_start"]
    assert SHARED_LOCALS["step"] <= order.names["step"]
    if kind != "BADQ":
        sb3.PPO("MlpPolicy", "CartPole-v1", n_steps=8, batch_size=8, device="cpu").learn(16, callback=theirs)
        assert theirs.names["step"] - order.names["step"] <= NO_LOCALS
        assert {"rollout_buffer", "n_rollout_steps"} <= order.names["rollout_end"]


def test_a_function_as_a_callback_stops_by_a_false_answer(kind: str) -> None:
    steps: list[int] = []

    def callback(local: dict[str, Any], _: dict[str, Any]) -> bool:
        steps.append(local["self"].num_timesteps)
        return len(steps) < 3

    model = make(kind)
    before = weights(model)
    assert model.learn(32, callback=callback).num_timesteps == 3
    assert steps == [1, 2, 3]
    assert weights(model) == before


def test_eval_callback_writes_its_files(kind: str, tmp_path: Path) -> None:
    evaluate = partial(EvalCallback, monitored(), eval_freq=8, n_eval_episodes=2, verbose=0)
    model = make(kind)
    model.learn(16, callback=evaluate(best_model_save_path=str(tmp_path), log_path=str(tmp_path)))
    with np.load(tmp_path / "evaluations.npz") as results:
        assert results["timesteps"].tolist() == [8, 16]
        assert results["results"].shape == results["ep_lengths"].shape == results["successes"].shape == (2, 2)
        assert (results["ep_lengths"] == 3).all()
    assert isinstance(KINDS[kind].load(tmp_path / "best_model"), KINDS[kind])


@pytest.mark.filterwarnings("ignore:Training and eval env are not of the same type")
def test_success_is_logged_for_environments_that_mark_it() -> None:
    keys = {}
    for wrap in (AdmissibleObservation, lambda env: env):
        env = DummyVecEnv([lambda wrap=wrap: Monitor(wrap(LampEnv()))])  # type: ignore[misc]
        keys[wrap] = logged(make(), 8, callback=EvalCallback(env, eval_freq=8, n_eval_episodes=1, verbose=0))
    marked, plain = keys.values()
    assert set(marked) - set(plain) == {"eval/success_rate"}
    assert {"eval/mean_reward", "eval/mean_ep_length"} <= set(plain)


def test_a_replay_buffer_is_saved_and_loaded_alone(tmp_path: Path) -> None:
    model = make("BADQ")
    model.learn(8, callback=CheckpointCallback(8, str(tmp_path), save_replay_buffer=True))
    file = tmp_path / "rl_model_replay_buffer_8_steps.pkl"
    model.save(tmp_path / "light", exclude=["replay_buffer"])
    loaded = BADQ.load(tmp_path / "light", LampEnv())
    assert len(loaded.replay_buffer) == 0
    loaded.load_replay_buffer(file)
    assert len(loaded.replay_buffer) == 8
    first, second = ([item.action for item in agent.replay_buffer._items] for agent in (loaded, model))
    assert first == second
    assert loaded.replay_buffer._items[-1].ends, "the next step is no continuation"
    with pytest.raises(ValueError, match=r"Expected buffer_size=20000, that of the saved replay buffer; got 9\. Fix"):
        make("BADQ", buffer_size=9).load_replay_buffer(file)
    with pytest.raises(ValueError, match=r"Expected 1 environments, as many as fill the saved replay buffer; got 2"):
        make("BADQ", env=monitored(2)).load_replay_buffer(file)
    (tmp_path / "other.pkl").write_bytes(b"\x80\x04N.")  # None
    with pytest.raises(ValueError, match=r"Expected a replay buffer that save_replay_buffer\(\) wrote; got NoneType"):
        loaded.load_replay_buffer(tmp_path / "other.pkl")


# ---------------------------------------------------------------------- run and logger


def test_the_counter_goes_on_or_starts_from_zero(kind: str) -> None:
    model = make(kind).learn(8)
    assert model.learn(8, reset_num_timesteps=False).num_timesteps == 16
    assert model.learn(8).num_timesteps == 8
    assert model.learn(0).num_timesteps == 0


def test_total_timesteps_is_a_lower_bound() -> None:
    assert make().learn(9).num_timesteps == 16
    assert make(env=monitored(2)).learn(9).num_timesteps == 16
    assert make("BADQ", env=monitored(2)).learn(9).num_timesteps == 10


PPO_KEYS = {
    *("time/iterations", "time/fps", "time/time_elapsed", "time/total_timesteps"),
    *("rollout/ep_rew_mean", "rollout/ep_len_mean"),
    *("train/learning_rate", "train/n_updates", "train/clip_range", "train/clip_range_vf"),
    *("train/approx_kl", "train/clip_fraction", "train/explained_variance"),
    *("train/policy_gradient_loss", "train/value_loss", "train/entropy_loss", "train/loss"),
}
NOT_OURS = {"train/entropy_loss", "train/loss"}
DQN_KEYS = {
    *("time/episodes", "time/fps", "time/time_elapsed", "time/total_timesteps", "rollout/exploration_rate"),
    *("rollout/ep_rew_mean", "rollout/ep_len_mean", "train/learning_rate", "train/n_updates", "train/loss"),
}


def test_what_is_logged_has_the_names_of_sb3(kind: str) -> None:
    cartpole = {"env": "CartPole-v1", "batch_size": 8, "seed": 0, "device": "cpu"}
    if kind == "BADQ":
        theirs = logged(sb3.DQN("MlpPolicy", **cartpole, learning_starts=4), 200, log_interval=1)
        wanted = DQN_KEYS
    else:
        theirs = logged(sb3.PPO("MlpPolicy", **cartpole, n_steps=64, clip_range_vf=0.2), 192)
        wanted = PPO_KEYS
    assert set(theirs) == wanted, "of SB3 itself"
    ours = logged(make(kind), 24, log_interval=1)
    assert wanted - set(ours) == (set() if kind == "BADQ" else NOT_OURS)
    assert {key: exclude for key, exclude in ours.items() if key in theirs} == {
        key: exclude for key, exclude in theirs.items() if key in ours
    }
    assert "rollout/success_rate" in ours


def test_log_interval_is_how_often_rows_are_written(kind: str) -> None:
    model = make(kind)
    steps: list[int] = []

    def count(interval: int | None) -> int:
        steps.clear()
        model.set_logger(keys := Keys())
        keys.dump = lambda step=0: steps.append(step)  # type: ignore[method-assign]
        model.learn(32, log_interval=interval)
        return len(steps)

    assert count(None) == 0
    assert count(1) == (10 if kind == "BADQ" else 4)  # episodes, iterations
    assert count(2) == (5 if kind == "BADQ" else 2)


@pytest.mark.parametrize("verbose", [0, 1])
def test_verbose_prints_or_does_not(kind: str, verbose: int, capsys: Any) -> None:
    make(kind, verbose=verbose).learn(16, log_interval=1)
    printed = capsys.readouterr().out
    if verbose:
        assert "Using cpu device" in printed
        assert "Wrapping the env in a DummyVecEnv" in printed
        assert "total_timesteps" in printed
    else:
        assert printed == ""


def test_tensorboard_runs_are_named_and_numbered(kind: str, tmp_path: Path) -> None:
    model = make(kind, tensorboard_log=str(tmp_path))
    model.learn(8, tb_log_name="named")
    model.learn(8, tb_log_name="named", reset_num_timesteps=False)
    model.learn(8, tb_log_name="named")
    model.learn(8)
    model.logger.close()
    assert names(tmp_path) == sorted([f"{kind}_1", "named_1", "named_2"])


# ---------------------------------------------------------------------- seeds and predict


def test_the_same_seed_gives_the_same_weights_and_another_others(any_kind: str) -> None:
    first, same, other = (weights(make(any_kind, seed=seed).learn(8)) for seed in (4, 4, 5))
    assert first == same
    assert first != other


def test_set_random_seed_repeats_samples(kind: str) -> None:
    model = make(kind, **({"soft": True} if kind == "BADQ" else {}))
    observation = model.env.reset()

    def sample() -> list[Any]:
        return [model.predict(observation)[0].tolist() for _ in range(12)]

    drawn = []
    for seed in (4, 4, 5):
        model.set_random_seed(seed)
        drawn.append(sample())
    assert drawn[0] == drawn[1] != drawn[2]
    model.set_random_seed(None)  # no effect
    assert len({str(action) for action in drawn[0]}) > 1


def test_set_random_seed_gives_acting_and_environments_different_draws(kind: str) -> None:
    model = make(kind)
    model.set_random_seed(4)
    rngs = [np.random.default_rng(4), *model.policy.rngs_of(2), model.policy.predict_rng, model._shuffle_rng]
    assert len({tuple(rng.random(3)) for rng in rngs}) == len(rngs)


def test_predict_takes_one_observation_or_a_batch(any_kind: str) -> None:
    model = make(any_kind, env=monitored(2))
    batch, single = model.env.reset(), LampEnv().reset(seed=0)[0]
    actions, state = model.predict(batch, deterministic=True)
    assert actions.shape == (2, model.action_space.max_length)
    assert all(action in model.action_space for action in actions)
    assert state is None
    for _ in range(2):
        assert np.array_equal(model.predict(batch, deterministic=True)[0], actions)
    assert model.predict(single)[0].shape == (model.action_space.max_length,)
    kept = (np.zeros(1),)
    assert model.predict(batch, state=kept, episode_start=np.ones(2, dtype=bool))[1] is kept
    assert np.array_equal(model.policy.predict(batch, deterministic=True)[0], actions)


@pytest.mark.parametrize(
    ("observation", "error", "match"),
    [
        (np.zeros(3), ObservationError, r"carries its admissible actions; got ndarray\. Fix"),
        ({"text": "a"}, ObservationError, r"got \['text'\]\. Fix"),
        ([], ObservationError, r"got list\. Fix"),
        (
            {"text": np.empty(0, object), "admissible_actions": np.empty(0, object)},
            ObservationError,
            r"Expected at least one observation; got none\. Fix",
        ),
        (("text", {}), ValueError, "mixing Gym API with SB3 VecEnv API"),
    ],
    ids=["array", "dict", "list", "empty", "reset"],
)
def test_predict_refuses_other_observations(lasting: POAD, observation: Any, error: Any, match: str) -> None:
    with pytest.raises(error, match=match):
        lasting.predict(observation)


def test_evaluation_mode_holds_in_rollouts_and_after(kind: str) -> None:
    model, modes = make(kind), []
    model.policy.set_training_mode(True)
    assert model.policy.training

    def note(local: dict[str, Any], _: Any) -> bool:
        modes.append(local["self"].policy.training)
        return True

    model.learn(8, callback=note)
    assert modes == [False] * 8
    assert not model.policy.training


def test_updates_are_made_in_evaluation_mode(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, modes = make(kind), []
    step = model.policy.critic_optimizer.step
    monkeypatch.setattr(
        model.policy.critic_optimizer, "step", lambda *args: (modes.append(model.policy.training), step(*args))[1]
    )
    model.learn(8)
    assert set(modes) == {False}


# ---------------------------------------------------------------------- evaluate_policy


def test_evaluate_policy_divides_episodes_over_environments(kind: str) -> None:
    model = make(kind)
    returns, lengths = evaluate_policy(model, monitored(2), 5, return_episode_rewards=True)
    assert len(returns) == len(lengths) == 5
    assert lengths == [3] * 5
    mean, deviation = evaluate_policy(model, monitored(), 3, deterministic=False)
    assert np.isfinite([mean, deviation]).all()


# ---------------------------------------------------------------------- vector environments


@pytest.mark.parametrize("subprocess", [False, True], ids=["dummy", "subproc"])
def test_methods_and_attributes_of_a_vector(subprocess: bool) -> None:
    settings = {"vec_env_cls": SubprocVecEnv, "vec_env_kwargs": {"start_method": "fork"}} if subprocess else {}
    kwargs = {"env_kwargs": {"render_mode": "rgb_array", "shuffle_actions": True}, **settings}
    env = VecAdmissibleObservation(make_vec_env("Overcooked-TomatoSalad-v0", 2, seed=3, **kwargs))
    try:
        assert env.num_envs == 2
        assert env.render_mode == "rgb_array"
        texts = env.reset()
        lists = env.env_method("admissible_actions")
        assert env.env_method("admissible_actions", indices=[1]) == lists[1:]
        assert lists == [info["admissible_actions"] for info in env.unwrapped.reset_infos]
        env.set_attr("invalid_action_reward", -5.0)
        env.set_attr("invalid_action_reward", -6.0, indices=[1])
        assert env.get_attr("invalid_action_reward") == [-5.0, -6.0]
        assert env.has_attr("invalid_action_reward")
        assert not env.has_attr("no_such_attribute")
        assert env.env_is_wrapped(Monitor) == [True, True]
        assert env.env_is_wrapped(AdmissibleObservation) == [False, False]
        seeded = []
        for _ in range(2):
            assert list(env.seed(7)) == [7, 8]
            env.reset()
            seeded.append(env.env_method("admissible_actions"))
        assert seeded[0] == seeded[1]
        env.set_options([{}, {}])
        assert type(env.reset()) is type(texts)
        assert len(env.get_images()) == 2
        assert env.render().ndim == 3
        actions = np.stack([env.action_space.encode("take the bowl")] * 2)
        _, rewards, dones, infos = env.step(actions)
        assert rewards.shape == dones.shape == (2,)
        assert len(infos) == 2
    finally:
        env.close()


def test_the_final_observation_is_in_info(kind: str) -> None:
    model = make(kind, env=DummyVecEnv([partial(LampEnv, moves=1, truncates=True)] * 2))
    model.env.reset()
    actions = np.stack([model.action_space.encode("press the red button")] * 2)
    observations, _, dones, infos = model.env.step(actions)
    assert dones.all()
    for index, info in enumerate(infos):
        assert info["TimeLimit.truncated"]
        assert "You have 0 moves left" in info["terminal_observation"]["text"]
        assert "You have 1 moves left" in observations["text"][index]


def test_rewards_are_normalised_and_observations_are_not(kind: str, tmp_path: Path) -> None:
    env = VecNormalize(monitored(2), norm_obs=False)
    model = make(kind, env=env).learn(16)
    assert model.get_vec_normalize_env() is env
    assert env.ret_rms.count > 15
    env.save(str(tmp_path / "statistics.pkl"))
    again = VecNormalize.load(str(tmp_path / "statistics.pkl"), monitored(2))
    assert again.ret_rms.var == env.ret_rms.var
    model.set_env(again)
    assert model.get_vec_normalize_env() is again
    with pytest.raises(ValueError, match="VecNormalize only supports"):
        VecNormalize(DummyVecEnv([LampEnv]))


def test_reward_statistics_reach_the_evaluation_environment() -> None:
    """Where both are made with `AdmissibleObservation`: the algorithm then adds no wrapper of its own outside."""
    training = VecNormalize(monitored(), norm_obs=False)
    evaluation = VecNormalize(monitored(), norm_obs=False, norm_reward=False, training=False)
    make(env=training).learn(8, callback=EvalCallback(evaluation, eval_freq=8, n_eval_episodes=1, verbose=0))
    assert evaluation.ret_rms.var == training.ret_rms.var != 1.0


def test_wrappers_for_arrays_refuse_texts() -> None:
    with pytest.raises(AssertionError, match=r"VecFrameStack only works with gym\.spaces\.Box"):
        VecFrameStack(DummyVecEnv([LampEnv]), 2)
    with pytest.raises(AssertionError, match="must be an image or dictionary"):
        VecTransposeImage(DummyVecEnv([LampEnv]))
    with pytest.raises(TypeError, match="isnan"):
        VecCheckNan(DummyVecEnv([LampEnv]), raise_exception=True).reset()


def test_without_set_up_there_is_no_policy() -> None:
    for env in (LampEnv(), None):
        model = POAD("LLMPolicy", env, _init_setup_model=False)
        assert not hasattr(model, "policy")
        assert (model.env is None) == (env is None)


def test_gymnasium_vectors_are_refused(kind: str) -> None:
    with pytest.raises(UnsupportedEnvError, match=r"Stable-Baselines3 VecEnv; got Gymnasium's SyncVectorEnv\. Fix"):
        make(kind, env=gym.make_vec("Overcooked-TomatoSalad-v0", 2))
