"""Saving, loading, resuming: continuing equals never having stopped; damage is refused."""

import io
import json
import random
import shutil
import zipfile

import gymnasium as gym
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from stable_baselines3.common.callbacks import BaseCallback, CheckpointCallback, EvalCallback
from stable_baselines3.common.save_util import data_to_json, json_to_data
from toy import LampEnv, SaveAt, everything, moved, weights_of

from lang_envs import TextSpace, TokenSequence
from lang_envs.wrappers import AdmissibleObservation, TaggedAction
from poad_sb3 import BADQ, POAD, CheckpointError
from poad_sb3.common.save_util import HEADER, add_header
from poad_sb3.pocket import POCKET_FOLDER

ENV_ID = "Overcooked-TomatoSalad-v0"
N = 16
SMALL = {"n_steps": N, "batch_size": 8, "n_epochs": 2, "policy_kwargs": {"critic_arch": (32,)}}

LAMPS = {"seed": 4, "n_steps": 4, "batch_size": 4, "n_epochs": 1, "policy_kwargs": {"critic_arch": (8,)}}


def assert_same(first, second):
    assert everything(first) == everything(second)
    assert [episode["r"] for episode in first.ep_info_buffer] == [episode["r"] for episode in second.ep_info_buffer]


@pytest.mark.matrix
def test_load_then_learn_equals_never_having_stopped(tmp_path):
    straight = POAD("LLMPolicy", ENV_ID, seed=5, **SMALL).learn(6 * N)
    first = POAD("LLMPolicy", ENV_ID, seed=5, **SMALL).learn(3 * N)
    first.save(tmp_path / "model")
    del first
    np.random.random(7)  # the process's own generators are elsewhere by now
    torch.rand(3)
    second = POAD.load(tmp_path / "model.zip", ENV_ID)
    assert second.num_timesteps == 3 * N
    second.learn(3 * N, reset_num_timesteps=False)
    assert_same(straight, second)


def test_a_checkpoint_before_the_first_step_begins_like_the_model(tmp_path):
    straight = POAD("LLMPolicy", "KeyToken-v0", seed=5, **SMALL).learn(N)
    POAD("LLMPolicy", "KeyToken-v0", seed=5, **SMALL).save(tmp_path / "model")
    assert_same(straight, POAD.load(tmp_path / "model.zip", "KeyToken-v0").learn(N))
    POAD.load(tmp_path / "model.zip", ENV_ID).learn(N)  # without a warning that its state cannot be restored


@pytest.mark.parametrize("step", [N + 1, pytest.param(2 * N, marks=pytest.mark.matrix)], ids=["first", "last"])
def test_a_save_in_mid_rollout_keeps_the_learning_rate_schedule(tmp_path, step):
    path = tmp_path / "mid.zip"
    rates = {"learning_rate": lambda left: 1e-3 * left, "critic_learning_rate": lambda left: 1e-2 * left}
    straight = POAD("LLMPolicy", ENV_ID, seed=2, **SMALL, **rates).learn(3 * N, callback=SaveAt(step, path))
    resumed = POAD.load(path, ENV_ID)
    assert resumed.num_timesteps == 2 * N, "committed at the end of the rollout"
    resumed.learn(N, reset_num_timesteps=False)
    assert_same(straight, resumed)


def test_the_best_model_of_eval_callback_is_the_one_evaluated(tmp_path):
    model = POAD("LLMPolicy", ENV_ID, seed=0, **SMALL)
    states = []

    class Note(BaseCallback):
        def _on_step(self):
            states.append({k: v.clone() for k, v in model.policy.state_dict().items()})
            return True

    evaluate = EvalCallback(
        AdmissibleObservation(gym.make(ENV_ID)),
        eval_freq=N + 3,
        n_eval_episodes=1,
        best_model_save_path=str(tmp_path),
        callback_on_new_best=Note(),
        verbose=0,
        warn=False,
    )
    model.learn(2 * N, callback=evaluate)
    best = POAD.load(tmp_path / "best_model.zip")
    for name, tensor in best.policy.state_dict().items():
        if not name.startswith("critic.whitening."):  # the critic's input statistics take in the rollout as it ends
            assert torch.equal(states[0][name], tensor), name
    last = model.policy.state_dict()
    assert any(not torch.equal(states[0][name], last[name]) for name in last), "training went on after that"


def test_a_checkpoint_of_another_layout_is_refused(tmp_path):
    """One of layout 1 held a single generator for all environments: an exact resumption is impossible."""
    POAD("LLMPolicy", ENV_ID, seed=5, **SMALL).save(tmp_path / "new.zip")
    with zipfile.ZipFile(tmp_path / "new.zip") as new, zipfile.ZipFile(tmp_path / "old.zip", "w") as old:
        for name in new.namelist():
            data = new.read(name)
            old.writestr(name, data.replace(b'"format": 5', b'"format": 1') if name == "poad.json" else data)
    refused = r"Expected a checkpoint of layout 5; .* is of layout 1, written by lang-envs .* Fix: load it"
    with pytest.raises(CheckpointError, match=refused):
        POAD.load(tmp_path / "old.zip", ENV_ID)


@pytest.mark.parametrize("damage", ["truncated", "not a checkpoint"])
def test_a_damaged_file_is_refused_and_nothing_is_overwritten(tmp_path, damage):
    model = POAD("LLMPolicy", ENV_ID, seed=5, **SMALL).learn(N)
    path = tmp_path / "model.zip"
    model.save(path)
    if damage == "truncated":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("data", "{}")
    before = everything(model)
    with pytest.raises(CheckpointError, match=r"Expected a .*checkpoint.*Fix: use an earlier"):
        POAD.load(path, ENV_ID)
    with pytest.raises(CheckpointError, match=r"Expected a .*checkpoint.*Fix: use an earlier"):
        model.set_parameters(path)
    assert everything(model) == before


def _state(model):
    """Everything that a checkpoint brings back, as bytes: tensors and attributes."""
    file = io.BytesIO()
    torch.save(model.get_parameters(), file)
    plain = {name: repr(value) for name, value in vars(model).items() if isinstance(value, int | float | str | dict)}
    return file.getvalue(), plain, repr(model._resume)


def _rewritten(data, rng):
    """A valid zip with one member changed, cut, dropped, added or taken from another checkpoint."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = rng.choice(sorted(members))
    kind = rng.choice(["flip", "cut", "drop", "add", "swap", "digit"])
    content = bytearray(members[name])
    if kind == "flip":
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    elif kind == "digit":  # as an editor of numbers in JSON would
        positions = [position for position, byte in enumerate(content) if chr(byte).isdigit()]
        content[rng.choice(positions)] = ord(rng.choice("0123456789"))
    members[name] = bytes(content[: rng.randrange(len(content))] if kind == "cut" else content)
    if kind == "drop":
        del members[name]
    elif kind == "add":
        members[f"{rng.randrange(99)}.pth"] = members[name]
    elif kind == "swap":
        other = rng.choice(sorted(members))
        members[name], members[other] = members[other], members[name]
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for member, content in members.items():
            archive.writestr(member, content)
    return file.getvalue()


def test_damaged_checkpoints_are_refused_or_harmless():
    file = io.BytesIO()
    POAD("LLMPolicy", ENV_ID, seed=5, **SMALL).learn(N).save(file)
    data, rng, refused = file.getvalue(), random.Random(0), 0
    wanted = _state(POAD.load(io.BytesIO(data)))
    for _ in range(100):
        try:
            loaded = POAD.load(io.BytesIO(_rewritten(data, rng)))
        except CheckpointError as error:
            refused += 1
            assert "\n" not in str(error)  # noqa: PT017 - every mutation is of another kind
        else:
            assert _state(loaded) == wanted
    assert refused > 60


@pytest.fixture(scope="module")
def lamps():
    """Bytes of a checkpoint of POAD."""
    file = io.BytesIO()
    POAD("LLMPolicy", LampEnv(), **LAMPS).learn(4).save(file)
    return file.getvalue()


def _signed_again(data, change):
    """Return a checkpoint with changed attributes and right digests."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    header = json.loads(members.pop(HEADER))
    attributes = json_to_data(members["data"].decode())
    change(attributes)
    members["data"] = data_to_json(attributes).encode()
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    add_header(file, {name: value for name, value in header.items() if "sha256" not in name})
    file.seek(0)
    return file


WRONG_TYPES = {
    "counter": lambda data: data.update(num_timesteps="4"),
    "observation": lambda data: data.update(_last_obs=[3]),
    "episodes": lambda data: data.update(ep_info_buffer="none"),
    "no successes": lambda data: data.update(ep_success_buffer=None),
    "arguments": lambda data: data.update(policy_kwargs=None),
    "setting": lambda data: data.update(gamma="high"),
    "seed": lambda data: data.update(seed=[]),
    "state": lambda data: data.update(_resume=[]),
    "no generators": lambda data: data["_resume"].pop("predict_rng"),
    "generators": lambda data: data["_resume"].update(shuffle_rng={"state": None}),
    "no space": lambda data: data.pop("action_space"),
}


@pytest.mark.parametrize("name", WRONG_TYPES)
def test_rejects_values_of_wrong_types_beneath_right_digests(lamps, name):
    with pytest.raises(
        CheckpointError, match=r"^Expected a checkpoint written by save\(\); .* cannot be loaded \(.*Fix:"
    ):
        POAD.load(_signed_again(lamps, WRONG_TYPES[name]), LampEnv())


@pytest.mark.parametrize("change", [{"rng": np.zeros(1)}, {"envs": [np.zeros(1)]}], ids=str)
def test_rejects_states_of_wrong_types_when_training_resumes(lamps, change):
    model = POAD.load(_signed_again(lamps, lambda data: data["_resume"].update(change)), LampEnv())
    with pytest.raises(CheckpointError, match=r"^Expected a checkpoint written by save\(\); "):
        model.learn(4, reset_num_timesteps=False)


def test_a_checkpoint_without_states_goes_on_from_a_reset(lamps):
    model = POAD.load(_signed_again(lamps, lambda data: data.pop("_resume")), LampEnv())
    assert model.learn(4, reset_num_timesteps=False).num_timesteps == 8


def test_another_base_model_is_refused(tmp_path):
    folder = shutil.copytree(POCKET_FOLDER, tmp_path / "base")
    settings = {**SMALL, "policy_kwargs": {"critic_arch": (32,), "model": str(folder)}}
    model = POAD("LLMPolicy", ENV_ID, seed=0, **settings)
    model.save(tmp_path / "model.zip")
    tensors = load_file(folder / "model.safetensors")
    tensors["model.norm.weight"][3] += 0.01
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=r"Expected the base model .* got .* Fix: restore that model"):
        POAD.load(tmp_path / "model.zip", ENV_ID)
    with pytest.raises(CheckpointError, match="Expected the base model"):
        POAD("LLMPolicy", ENV_ID, seed=0, **SMALL | {"policy_kwargs": settings["policy_kwargs"]}).set_parameters(
            tmp_path / "model.zip"
        )


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"gama": 0.9}, "got 'gama'"),
        ({"gamma": 1.5}, "gamma between 0 and 1"),
        ({"action_sampling": "beam"}, "Expected action_sampling"),
        ({"action_sampling": "candidates", "kl_coef": 0.1}, "Expected kl_coef"),
        ({"max_new_tokens": 0}, "Expected max_new_tokens"),
    ],
)
def test_what_replaces_arguments_at_load_is_checked(tmp_path, change, match):
    POAD("LLMPolicy", ENV_ID, seed=0, **SMALL).save(tmp_path / "model.zip")
    with pytest.raises(ValueError, match=match):
        POAD.load(tmp_path / "model.zip", **change)


class Stateless(gym.Env):
    """A third-party environment that keeps the contract but cannot be captured."""

    observation_space = TextSpace(64)
    action_space = TokenSequence(max_length=8)
    render_mode = None

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return "Say", {"admissible_actions": ["yes", "no"]}

    def step(self, action):
        return "Say", float(self.action_space.decode(action) == "yes"), True, False, {"admissible_actions": ["a"]}


def test_a_loaded_model_goes_on_from_another_seed(tmp_path):
    POAD("LLMPolicy", ENV_ID, seed=5, **SMALL).learn(N).save(tmp_path / "model")

    def actions(**kwargs):
        model = POAD.load(tmp_path / "model", ENV_ID, **kwargs)
        return [model.predict(model.env.reset())[0].tolist() for _ in range(8)]

    assert actions() == actions()
    assert actions(seed=1) == actions(seed=1) != actions(seed=2)
    assert actions(seed=1) != actions()
    again = POAD.load(tmp_path / "model", ENV_ID, seed=1)
    assert again.policy.rngs_of(1)[0].random() != np.random.default_rng(1).random(), "of the first environment"
    assert again._last_obs is None, "the environments begin with a reset"
    assert again.learn(N, reset_num_timesteps=False).num_timesteps == 2 * N
    loaded = POAD.load(tmp_path / "model", ENV_ID, stats_window_size=3)
    assert loaded.ep_info_buffer.maxlen == loaded.ep_success_buffer.maxlen == 3


def test_environments_without_state_do_not_resume_exactly(tmp_path):
    model = POAD("LLMPolicy", Stateless(), seed=5, **SMALL).learn(N)
    model.save(tmp_path / "model.zip")
    with zipfile.ZipFile(tmp_path / "model.zip") as archive:
        assert json.loads(archive.read("poad.json"))["exact_resume"] is False
    loaded = POAD.load(tmp_path / "model.zip", Stateless())
    with pytest.warns(UserWarning, match="exact_resume=False"):
        loaded.learn(N, reset_num_timesteps=False)
    assert loaded.num_timesteps == 2 * N


@pytest.mark.matrix
def test_an_exception_in_a_callback_leaves_a_consistent_state(tmp_path):
    class Crash(BaseCallback):
        def _on_step(self):
            if self.n_calls == 5:
                self.model.save(tmp_path / "asked before")
            if self.n_calls == 9:
                raise KeyboardInterrupt
            return True

    model = POAD("LLMPolicy", ENV_ID, seed=4, **SMALL)
    with pytest.raises(KeyboardInterrupt):
        model.learn(4 * N, callback=Crash())
    model.save(tmp_path / "asked after")
    first, second = (POAD.load(tmp_path / name, ENV_ID) for name in ("asked before", "asked after"))
    for resumed in (first, second, model):
        resumed.learn(N, reset_num_timesteps=False)
    assert_same(model, first)
    assert_same(model, second)


@pytest.mark.matrix
def test_checkpoint_callback_writes_at_rollout_boundaries(tmp_path):
    model = POAD("LLMPolicy", ENV_ID, seed=4, **SMALL)
    model.learn(2 * N, callback=CheckpointCallback(10, str(tmp_path), "at"))
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"at_{k}_steps.zip" for k in (10, 20, 30)]
    for path in tmp_path.iterdir():
        POAD.load(path, ENV_ID)


# ---------------------------------------------------------------------- what a header promises


class At(BaseCallback):
    """Does something to the model at a step of the callback."""

    def __init__(self, step, what):
        super().__init__()
        self.step, self.what = step, what

    def _on_step(self):
        return self.what(self.model) is not False if self.n_calls == self.step else True


def says_exact(path):
    with zipfile.ZipFile(path) as archive:
        return json.loads(archive.read("poad.json"))["exact_resume"]


def interrupt(*_args, **_kwargs):
    raise KeyboardInterrupt


def test_a_rollout_that_was_cut_resumes_not_exactly(tmp_path):
    model = POAD("LLMPolicy", LampEnv(), **LAMPS)
    save = At(2, lambda model: model.save(tmp_path / "waiting.zip"))
    with pytest.raises(KeyboardInterrupt):
        model.learn(4, callback=[save, At(3, interrupt)])
    model.save(tmp_path / "after.zip")
    model.learn(4, callback=At(2, lambda model: model.save(tmp_path / "whole.zip")))
    model.save(tmp_path / "learned.zip")
    model.learn(4, callback=[At(1, lambda model: model.save(tmp_path / "stopped.zip")), At(2, lambda model: False)])
    exact = {path.stem: says_exact(path) for path in tmp_path.iterdir()}
    assert exact == {"waiting": False, "after": False, "whole": True, "learned": True, "stopped": False}
    again = POAD.load(tmp_path / "stopped.zip", LampEnv())
    again.save(tmp_path / "again.zip")
    assert not says_exact(tmp_path / "again.zip")


@pytest.mark.parametrize("kind", [POAD, BADQ])
def test_an_update_that_was_cut_resumes_not_exactly(tmp_path, monkeypatch, kind):
    of_kind = LAMPS if kind is POAD else {"seed": 4, "train_freq": 4, "learning_starts": 4, "batch_size": 4}
    model = kind("LLMPolicy" if kind is POAD else "BADQPolicy", LampEnv(), **of_kind)
    with monkeypatch.context() as patch:
        patch.setattr(model.policy.critic_optimizer, "step", interrupt)
        with pytest.raises(KeyboardInterrupt):
            model.learn(4)
    model.save(tmp_path / "cut.zip")
    assert not says_exact(tmp_path / "cut.zip")
    model.learn(4, reset_num_timesteps=False)
    model.save(tmp_path / "whole.zip")
    assert says_exact(tmp_path / "whole.zip")


# ---------------------------------------------------------------------- what waits for the end of a rollout


def test_what_cannot_be_written_at_the_end_of_the_rollout_is_refused_at_the_call(tmp_path):
    (tmp_path / "folder.zip").mkdir()
    (tmp_path / "file").touch()
    errors = []

    def save(model):
        for target in (io.BytesIO(), tmp_path / "folder.zip", tmp_path / "file" / "model.zip"):
            try:
                model.save(target)
            except (OSError, ValueError) as error:
                errors.append(f"{type(error).__name__}: {error}")

    POAD("LLMPolicy", LampEnv(), **LAMPS).learn(4, callback=At(1, save))
    of_object, of_folder, of_file = errors
    assert of_object.startswith("ValueError: Expected a path in the middle of a rollout")
    assert of_object.endswith("Fix: pass a path, or save after learn().")
    assert of_folder.startswith("IsADirectoryError: Expected a file to write")
    assert of_file.startswith(("FileExistsError", "NotADirectoryError"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder.zip"]


def test_free_answers_in_tags_are_learned_and_resumed(tmp_path):
    def tagged():
        return TaggedAction(gym.make(ENV_ID, invalid_action_reward=-0.5))

    errors = []

    class Note(BaseCallback):
        def _on_step(self):
            errors.extend(info["answer_error"] for info in self.locals["infos"])
            return True

    small = {"seed": 3, "n_steps": 4, "batch_size": 4, "n_epochs": 1, "max_new_tokens": 6}
    straight = POAD("LLMPolicy", tagged(), **small).learn(8, callback=Note())
    first = POAD("LLMPolicy", tagged(), **small)
    before = weights_of(first.policy)
    first.learn(4).save(tmp_path / "model")
    assert (first.action_sampling, errors) == ("free", ["no <action>"] * 8)
    assert moved(first.policy, before)
    assert_same(straight, POAD.load(tmp_path / "model", tagged()).learn(4, reset_num_timesteps=False))
