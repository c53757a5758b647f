"""The zoo: its rows, its adapters, and agents on a stand-in of the hub."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import gymnasium as gym
import huggingface_hub
import pytest
import torch
from huggingface_hub import constants
from poad_runs import Run
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from standins import ModelHubStandIn, Status

from lang_envs import ENV_ROWS, FOREIGN_ROWS, UNSEEN_IDS
from poad_sb3 import GRPO, NTPO, POAD, CheckpointError
from poad_sb3.cli.zoo import FRESH_SEED, SEED, draw_curve
from poad_sb3.errors import ExportError
from poad_sb3.zoo import SHIPPED, Row, find_agent, find_row, push_to_hub, read_rows, trained_folder, write_row
from poad_sb3.zoo.adapters import digest_of, load_adapter, require_public, write_adapter
from poad_sb3.zoo.hub import _LARGEST, download
from poad_sb3.zoo.rows import CURVE, ROWS, agrees

ID = "KeyToken-v0"
SMALL: dict[str, Any] = {
    "n_steps": 16,
    "batch_size": 8,
    "n_epochs": 1,
    "n_critic_epochs": 1,
    "policy_kwargs": {"model": "pocket", "critic_arch": [8]},
}
ROW = Row(env_id=ID, steps=16, settings=SMALL, seed=3)
FOREIGN = {row.id: row.extra for row in FOREIGN_ROWS}
"""Names of the packages that tasks of others need."""
TRAINED = [row for row in read_rows(SHIPPED) if row.is_trained(SHIPPED)]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> POAD:
    """An agent of one update. Leave it as it is."""
    return POAD("LLMPolicy", gym.make(ID), seed=0, **SMALL).learn(16)


@pytest.fixture
def folder(trained: POAD, tmp_path: Path) -> Path:
    """A folder with that agent."""
    path = ROW.adapter(tmp_path)
    write_adapter(trained, path)
    scores = {
        "greedy": {"episodes": 9, "seed": SEED, "return": (5, 5, 5), "discounted_return": (5, 5, 5), "success": None}
    }
    write_row(tmp_path, replace(ROW, sha256=digest_of(path), size=path.stat().st_size, scores=scores))
    return tmp_path


def trained_weights(model: Any) -> dict[str, torch.Tensor]:
    return {name: tensor for name, tensor in model.policy.state_dict().items() if not name.startswith("critic.")}


# ---------------------------------------------------------------------- rows


@pytest.mark.parametrize("row", TRAINED, ids=lambda row: row.name)
def test_a_shipped_agent_loads_and_plays(row):
    import poad_sb3

    if row.env_id in FOREIGN:
        pytest.importorskip(FOREIGN[row.env_id])
    path = row.adapter(SHIPPED)
    assert (digest_of(path), path.stat().st_size) == (row.sha256, row.size)
    model = getattr(poad_sb3, row.method).load_from_zoo(row.env_id, row.model, folder=SHIPPED)
    assert model.num_timesteps >= row.steps
    observation, done, n_actions = model.get_env().reset(), False, 0
    while not done:
        action, _ = model.predict(observation, deterministic=True)
        observation, _, (done,), _ = model.get_env().step(action)
        n_actions += 1
    assert n_actions > 1


def test_shipped_rows_are_of_this_package_and_evaluated_with_seeds_of_their_own():
    rows = read_rows(SHIPPED)
    assert len({row.name for row in rows}) == len(rows)
    assert {row.env_id for row in rows} <= {row.id for row in (*ENV_ROWS, *FOREIGN_ROWS)}
    assert all(row.seed not in (SEED, FRESH_SEED) for row in rows)
    assert all({score["seed"] for score in row.scores.values()} == {SEED} for row in rows)
    assert {path.name for path in SHIPPED.iterdir()} == {ROWS, *(row.adapter(SHIPPED).name for row in TRAINED)}
    assert {row.env_id for row in rows if row not in TRAINED} == {*UNSEEN_IDS, "BabyAIText-GoToRedBallNoDists-v0"}
    assert sum(path.stat().st_size for path in SHIPPED.iterdir()) < 1e6


def test_a_row_is_named_by_as_much_as_is_unique():
    rows = [ROW, replace(ROW, method="NTPO"), replace(ROW, env_id="KeyToken-v01")]
    assert find_row(f"{ID}/pocket/NTPO", rows) is rows[1]
    assert find_row("KeyToken-v01", rows) is rows[2]
    with pytest.raises(
        CheckpointError, match=rf"several are {ID}. Fix: one of these: {ID}/pocket/POAD, {ID}/pocket/NTPO"
    ):
        find_row(ID, rows)
    with pytest.raises(CheckpointError, match=r"There is no agent Kitchen-v0 in the zoo. Fix: .*KeyToken-v01"):
        find_row("Kitchen-v0", rows)


def test_a_row_that_is_written_takes_its_place(tmp_path):
    other = replace(ROW, method="NTPO")
    for row in (ROW, other, replace(ROW, steps=7)):
        write_row(tmp_path, row)
    assert read_rows(tmp_path) == [replace(ROW, steps=7), other]


def test_a_folder_has_one_environment_of_a_name(tmp_path):
    write_row(tmp_path, replace(ROW, env_kwargs={"n_actions": 3}))
    with pytest.raises(CheckpointError, match=r"its row in .*, {'n_actions': 3}; got {'n_actions': 4}. Fix: another"):
        write_row(tmp_path, replace(ROW, env_kwargs={"n_actions": 4}))
    row = {"env_id": ID, "steps": 1}
    (tmp_path / ROWS).write_text(json.dumps([row, {**row, "env_kwargs": {"n_actions": 4}}]))
    with pytest.raises(CheckpointError, match=f"2 are {ID}/pocket/POAD, .* Fix: another folder"):
        read_rows(tmp_path)


def test_processes_that_write_rows_at_once_lose_none(tmp_path):
    code = (
        "import sys; from pathlib import Path; from poad_sb3.zoo import Row, write_row\n"
        "for n in range(15): write_row(Path(sys.argv[1]), Row(env_id='x', model=f'{sys.argv[2]}-{n}', steps=1))"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path), str(n)]) for n in range(3)]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    assert len(read_rows(tmp_path)) == 45


@pytest.mark.parametrize(
    "changes", [{"steps": None}, {"steps": "4096"}, {"color": 1}, {"scores": {"greedy": {}}}, {"model": ["pocket"]}]
)
def test_rows_with_wrong_values_are_refused(changes: dict[str, Any], tmp_path: Path):
    (tmp_path / ROWS).write_text(json.dumps([{"env_id": "x", "steps": 1, **changes}]))
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_rows(tmp_path)


def test_two_means_agree_where_their_difference_may_be_0():
    assert agrees((0.5, 0.4, 0.6), (0.63, 0.53, 0.73))  # 0.13 < 0.1 * sqrt(2)
    assert not agrees((0.5, 0.4, 0.6), (0.65, 0.55, 0.75))
    assert agrees((1, 1, 1), (1, 1, 1))
    assert not agrees((1, 1, 1), (0.99, 0.99, 0.99))
    assert agrees((0.0, 0.0, 0.2), (0.2, 0.01, 0.3))
    assert not agrees((0.0, -0.2, 0.01), (0.2, 0.1, 0.22))  # the errors between the means count


def test_few_episodes_that_are_all_won_agree_with_a_row_that_lost_some():
    row = (0.98, 0.96, 0.995)
    assert not agrees(row, (1, 1, 1), 200, 2_000)
    assert agrees(row, (1, 1, 1), 200, 20)
    assert agrees((1, 1, 1), row, 20, 200)
    assert not agrees(row, (0, 0, 0), 200, 20)


# ---------------------------------------------------------------------- adapters


def test_an_agent_comes_back_as_it_was(folder, trained):
    model = POAD.load_from_zoo(ID, folder=folder)
    before, after = trained_weights(trained), trained_weights(model)
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert (model.num_timesteps, model.n_steps, model.policy_kwargs) == (16, 16, SMALL["policy_kwargs"])
    text, info = gym.make(ID).reset(seed=1)
    question = (text, info["admissible_actions"])
    assert model.policy.action_probabilities(*question) == trained.policy.action_probabilities(*question)
    model.learn(16)


class SecondPOAD(POAD):
    """A user's subclass."""


def test_a_subclass_loads_agents_of_its_algorithm(folder, tmp_path):
    model = SecondPOAD.load_from_zoo(ID, folder=folder)
    assert (type(model), model.num_timesteps) == (SecondPOAD, 16)
    path = write(model, tmp_path / "agent.safetensors")
    assert type(load_adapter(SecondPOAD, path, digest_of(path))) is SecondPOAD
    with pytest.raises(CheckpointError, match="Expected an agent of POAD; got one of SecondPOAD"):
        load_adapter(POAD, path, digest_of(path))


def test_the_critic_is_there_if_it_was_written(trained, tmp_path):
    path = tmp_path / "agent.safetensors"
    write_adapter(trained, path, critic=True)
    critic, loaded = trained.policy.critic, load_adapter(POAD, path, digest_of(path)).policy.critic
    assert all(torch.equal(a, b) for a, b in zip(critic.parameters(), loaded.parameters(), strict=True))
    assert not any(name.startswith("critic.") for name in load_file(write(trained, tmp_path / "acting.safetensors")))


def write(model: Any, path: Path) -> Path:
    write_adapter(model, path)
    return path


def test_the_environment_is_made_by_its_own_arguments(tmp_path):
    path = write(POAD("LLMPolicy", gym.make(ID, n_actions=3), **SMALL), tmp_path / "agent.safetensors")
    model = load_adapter(POAD, path, digest_of(path), foreign=True)
    assert model.get_env().get_attr("spec")[0].kwargs["n_actions"] == 3


def test_a_download_has_numbers_as_arguments_of_its_environment(tmp_path):
    env = gym.make("MultiKey-v0", reward="all")
    path = write(POAD("LLMPolicy", env, **SMALL), tmp_path / "agent.safetensors")
    with pytest.raises(CheckpointError, match=r"with numbers .*; got MultiKey-v0 with {'reward': 'all'}. Fix: .*env="):
        load_adapter(POAD, path, digest_of(path), foreign=True)
    load_adapter(POAD, path, digest_of(path), foreign=True, env=env)


@pytest.mark.parametrize(
    ("part", "sizes", "message"),
    [
        ("", {"n_envs": 10**9}, "n_envs is 1000000000 instead of an integer of at most 256"),
        ("arguments", {"micro_batches": 2**30}, "micro_batches is 1073741824 instead of"),
        ("arguments", {"max_new_tokens": 10**9}, "max_new_tokens is 1000000000 instead of"),
        ("arguments", {"max_thought_tokens": 10**9}, "max_thought_tokens is 1000000000 instead of"),
        ("policy_kwargs", {"max_tokens_per_forward": 10**9}, "max_tokens_per_forward is 1000000000 instead of"),
        ("policy_kwargs", {"lora": {"r": 10**9}}, r"lora\.r is 1000000000 instead of"),
        ("policy_kwargs", {"critic_arch": [10**9]}, r"critic_arch\[0\] is 1000000000 instead of"),
        ("policy_kwargs", {"critic_arch": [1] * 10**5}, "critic_arch is 100000 instead of a list of at most 8"),
        ("env_kwargs", {"n_tokens": 10**9}, "numbers up to 32,768 .*; got KeyToken-v0 with {'n_tokens': 1000000000}"),
        ("env_kwargs", {"max_action_length": 10**9}, "numbers up to 32,768"),
    ],
)
def test_a_download_with_large_sizes_is_refused_before_anything_is_made(
    part: str, sizes: dict[str, Any], message: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(*_: Any) -> None:
        raise AssertionError("The environment was made.")

    monkeypatch.setattr("poad_sb3.zoo.adapters.make_envs", make)
    _, path = find_agent(ID, folder)
    keys = {"": (), "policy_kwargs": ("arguments", "policy_kwargs")}.get(part, (part,))
    change_file(path, lambda about: reduce(getitem, keys, about).update(sizes))
    with pytest.raises(CheckpointError, match=f"{message}.* Fix: "):
        load_adapter(POAD, path, digest_of(path), foreign=True)


@pytest.mark.parametrize("model", ["owner/model", "../model", "/tmp", "~/models/x", "C:\\model", "a/b/c"])
def test_a_download_names_no_local_model(
    model: str, trained: POAD, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("owner/model").mkdir(parents=True)  # looks as an id of the hub
    monkeypatch.setattr(trained, "policy_kwargs", {**trained.policy_kwargs, "model": model})
    path = write(trained, tmp_path / "agent.safetensors")
    with pytest.raises(CheckpointError, match=f"got {re.escape(repr(model))}, a local path. Fix: .*policy_kwargs="):
        load_adapter(POAD, path, digest_of(path), foreign=True)
    load_adapter(POAD, path, digest_of(path), foreign=True, policy_kwargs={"model": "pocket"})


def test_a_download_names_models_of_package_and_hub() -> None:
    for model in ("pocket", "smollm2", "gpt2", "Qwen/Qwen2.5-0.5B"):
        require_public(model)


def test_an_agent_that_was_trained_here_replaces_the_shipped_one(
    trained: POAD, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
):
    monkeypatch.setenv("LANG_ENVS_CACHE", str(tmp_path))
    shipped, _ = find_agent(ID)
    write_row(trained_folder(), ROW)  # without an adapter it replaces nothing
    assert find_agent(ID)[0] == shipped
    path = ROW.adapter(trained_folder())
    write_adapter(trained, path)
    write_row(trained_folder(), replace(ROW, sha256=digest_of(path)))
    assert find_agent(ID)[1] == path
    assert POAD.load_from_zoo(ID).num_timesteps == 16
    assert find_agent(ID, SHIPPED)[0] == shipped
    monkeypatch.setenv("COLUMNS", "200")
    listed = [line for line in run("zoo", "list").splitlines() if ID in line]
    assert ["trained here" in line for line in listed] == [True]


def change_file(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the settings in the file of an adapter."""
    with safe_open(path, "pt") as file:
        about = json.loads(file.metadata()["poad"])
    change(about)
    save_file(load_file(path), path, {"poad": json.dumps(about)})


@pytest.mark.parametrize("name", ["tensorboard_log", "device", "_init_setup_model", "env"])
def test_a_file_has_no_arguments_but_those_that_are_recorded(name: str, folder: Path):
    _, path = find_agent(ID, folder)
    change_file(path, lambda about: about["arguments"].update({name: "runs/logs"}))
    with pytest.raises(CheckpointError, match=f"arguments of POAD that an adapter records; got '{name}'"):
        load_adapter(POAD, path, digest_of(path))


@pytest.mark.parametrize(
    ("part", "values"),
    [
        ("arguments", {"learning_rate": "fast"}),
        ("arguments", {"n_steps": [16]}),
        ("arguments", {"gamma": None}),
        ("arguments", {"policy_kwargs": {"critic_arch": "wide"}}),
        ("arguments", {"policy_kwargs": {"color": 1}}),
        ("env_kwargs", {"n_actions": -7}),
        ("env_kwargs", {"color": 1}),
    ],
)
def test_a_file_with_wrong_values_is_refused(part: str, values: dict[str, Any], folder: Path):
    _, path = find_agent(ID, folder)
    change_file(path, lambda about: about[part].update(values))
    with pytest.raises(CheckpointError, match=r"Expected settings that .*Error: .* Fix: another argument"):
        load_adapter(POAD, path, digest_of(path))


def test_a_function_cannot_be_written(tmp_path):
    model = POAD("LLMPolicy", gym.make(ID), clip_range=lambda progress: 0.2 * progress, **SMALL)
    with pytest.raises(CheckpointError, match="clip_range is a function"):
        write_adapter(model, tmp_path / "agent.safetensors")


def test_what_is_not_there_is_said(folder, tmp_path):
    with pytest.raises(CheckpointError, match="There is no agent Kitchen-v0 in the zoo"):
        POAD.load_from_zoo("Kitchen-v0")
    with pytest.raises(
        CheckpointError, match=r"There is no agent KeyToken-v0 in the zoo. Fix: another folder or method"
    ):
        GRPO.load_from_zoo(ID, folder=folder)
    write_row(folder, replace(ROW, method="GRPO"))
    with pytest.raises(CheckpointError, match=r"there is none\. Fix: poad zoo train KeyToken-v0/pocket/GRPO"):
        GRPO.load_from_zoo(ID, folder=folder)


def changed_bytes(path: Path, _: POAD) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def no_adapter(path: Path, _: POAD) -> None:
    save_file({"weight": torch.zeros(1)}, path)


def not_finite(path: Path, _: POAD) -> None:
    with safe_open(path, "pt") as file:
        tensors, about = {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118
    save_file({name: tensor * torch.nan for name, tensor in tensors.items()}, path, about)


def test_another_base_model_is_refused_by_the_name_of_the_one_it_had(folder: Path):
    with pytest.raises(CheckpointError, match=r"written with, 'pocket' with .*; got 'pocket-char' with"):
        POAD.load_from_zoo(ID, folder=folder, policy_kwargs={"model": "pocket-char"})


def other_base(path: Path, model: POAD) -> None:
    fingerprint, model.base_fingerprint = model.base_fingerprint, "0123456789abcdef"
    write_adapter(model, path)
    model.base_fingerprint = fingerprint


@pytest.mark.parametrize(
    ("damage", "message", "is_known"),
    [
        (changed_bytes, "Expected the adapter of SHA-256", False),
        (no_adapter, r"Expected an adapter of layout 1; .* cannot be read", True),
        (not_finite, "is not finite", True),
        (other_base, "Expected the base model", True),
    ],
)
def test_a_damaged_or_foreign_file_is_refused(
    damage: Callable[[Path, POAD], None], message: str, is_known: bool, folder: Path, trained: POAD
):
    row, path = find_agent(ID, folder)
    damage(path, trained)
    with pytest.raises(CheckpointError, match=message):
        load_adapter(POAD, path, digest_of(path) if is_known else row.sha256)


# ---------------------------------------------------------------------- commands


def test_list_shows_the_settings_of_a_single_row(run: Run):
    output = run("zoo", "list", "Parity")
    row, _ = find_agent("Parity-v0", SHIPPED)
    for words in ('{"n_objects": 2}', json.dumps(row.settings), row.commit, f"{row.steps}", "oracle"):
        assert "".join(words.split()) in "".join(output.split())
    output = run("zoo", "list", "Overcooked")
    assert output.count("Overcooked-") == sum(row.env_id.startswith("Overcooked") for row in read_rows(SHIPPED))
    assert "There is no agent Kitchen" in run("zoo", "list", "Kitchen", code=1)


def test_train_writes_an_agent_that_eval_finds_equal(run: Run, tmp_path: Path):
    folder = tmp_path / "agents"
    write_row(folder, ROW)
    output = run("zoo", "train", ID, "--folder", str(folder), "--episodes", "8")
    assert "oracle" in output
    (row,) = read_rows(folder)
    assert row.sha256 == digest_of(row.adapter(folder))
    assert row.scores["oracle"]["return"] == [1, 1, 1]
    assert row.scores["random"]["episodes"] == 8
    assert row.core_hours >= 0
    assert row.commit is not None
    assert row.adapter(folder).with_suffix(CURVE).read_bytes().startswith(b"\x89PNG")
    assert "KeyToken-v0/pocket/POAD" in run("zoo", "list", "--folder", str(folder))
    output = run("zoo", "eval", ID, "--folder", str(folder), "--episodes", "8", "--sample")
    assert "agrees with that of the row" in output
    run("zoo", "train", ID, "--folder", str(folder), "--episodes", "8")  # the run is there already
    (again,) = read_rows(folder)
    assert (again.sha256, again.core_hours, again.commit) == (row.sha256, None, None)


def test_a_training_starts_from_an_agent_of_the_zoo(run: Run):
    _, path = find_agent(ID)
    options = ("--steps", "16", "--set", "n_steps=16", "--set", "learning_rate=1e-9", "--record-episodes", "0")
    run("train", ID, "--algo", "NTPO", *options, "--warm-start", f"zoo:{ID}", "--out", "run")
    assert json.loads(Path("run/config.json").read_text())["warm_start"] == f"zoo:{ID}"
    weights = load_file(path)
    trained = NTPO.load("run/latest.zip").policy.state_dict()
    assert all(torch.allclose(trained[name], tensor, atol=1e-6) for name, tensor in weights.items())
    assert "There is no agent x in the zoo" in run("train", ID, "--warm-start", "zoo:x", "--out", "other", code=1)


def test_eval_ends_with_4_where_the_score_is_another(run: Run, folder: Path):
    from typer.testing import CliRunner

    from poad_sb3.cli.app import app

    result = CliRunner().invoke(app, ["zoo", "eval", ID, "--folder", str(folder), "--episodes", "8"])
    assert (result.exit_code, "differs from that of the row" in result.output) == (4, True)
    run("zoo", "eval", ID, "--folder", str(folder), "--seed", str(SEED), code=1)
    run("zoo", "eval", ID, "--folder", str(folder), "--sample", code=1)  # a row without that score
    assert run("zoo", "eval", "Kitchen-v0", "--folder", str(folder), code=1) is not None


# ---------------------------------------------------------------------- the hub


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelHubStandIn]:
    """A stand-in of the hub that this process uses, with a login."""
    with ModelHubStandIn() as server:
        for name, value in server.environment(tmp_path / "home").items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(constants, "ENDPOINT", server.proxy)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", f"{server.proxy}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        )
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "home" / "cache"))
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        huggingface_hub.close_session()
        yield server
        huggingface_hub.close_session()
        assert not server.strays


def test_an_agent_goes_to_the_hub_and_back(hub: ModelHubStandIn, trained: POAD):
    push_to_hub(trained, "ann/agent", private=True)
    assert hub.private == {"ann/agent"}
    model = POAD.load_from_hub("ann/agent")
    before, after = trained_weights(trained), trained_weights(model)
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert model.policy.critic.mlp[0].weight.equal(trained.policy.critic.mlp[0].weight)
    with pytest.raises(CheckpointError, match=r"Expected an agent of GRPO; got one of POAD. Fix: .*poad_sb3.POAD"):
        GRPO.load_from_hub("ann/agent")
    (files,) = hub.models["ann/agent"].commits.values()
    hub.models["ann/agent"].commit({**files, "agent.safetensors": b"cut"}, "main")
    with pytest.raises(CheckpointError, match="Expected the adapter of SHA-256"):
        POAD.load_from_hub("ann/agent")
    hub.models["ann/agent"].commit({"row.json": files["row.json"]}, "main")
    with pytest.raises(CheckpointError, match=r"got no agent\.safetensors"):
        POAD.load_from_hub("ann/agent")
    with pytest.raises(CheckpointError, match="Expected an agent of poad_sb3 in ann/other"):
        POAD.load_from_hub("ann/other")


@pytest.mark.parametrize("name", ["agent.safetensors", "row.json"])
def test_a_download_that_is_too_large_is_not_begun(
    name: str, hub: ModelHubStandIn, trained: POAD, monkeypatch: pytest.MonkeyPatch
):
    push_to_hub(trained, "ann/agent")
    monkeypatch.setitem(_LARGEST, name, 99)
    before = len(hub.requests)
    with pytest.raises(CheckpointError, match=rf"Expected an agent .*; got {name} of [\d,]+ bytes, over 99. Fix:"):
        POAD.load_from_hub("ann/agent")
    assert {request.method for request in hub.requests[before:] if "resolve" in request.path} == {"HEAD"}


def test_a_download_is_of_the_commit_whose_sizes_were_checked(
    hub: ModelHubStandIn, trained: POAD, monkeypatch: pytest.MonkeyPatch
):
    push_to_hub(trained, "ann/agent")
    repository = hub.models["ann/agent"]
    ((first, files),) = repository.commits.items()
    larger = {**files, "row.json": files["row.json"] + b" "}
    monkeypatch.setitem(_LARGEST, "row.json", len(files["row.json"]))
    hub.when("/row.json", lambda: repository.commit(larger, "main"))  # when its size is asked for
    row, path = download("ann/agent")
    assert (path.parent.name, digest_of(path)) == (first, row.sha256)
    assert (path.parent / "row.json").read_bytes() == files["row.json"]


def test_a_commit_that_goes_away_during_its_download_is_one_error(hub: ModelHubStandIn, trained: POAD):
    push_to_hub(trained, "ann/agent")
    repository = hub.models["ann/agent"]
    ((first, files),) = repository.commits.items()

    def replace_first() -> None:
        repository.commit({**files, "row.json": files["row.json"] + b" "}, "main")
        del repository.commits[first]

    hub.when("/row.json", lambda: hub.when("/row.json", replace_first))  # after its size
    with pytest.raises(CheckpointError, match=r"Expected an agent of poad_sb3 in ann/agent; got .*404"):
        download("ann/agent")


def test_a_repository_whose_sizes_were_not_checked_is_not_downloaded(hub: ModelHubStandIn, trained: POAD):
    push_to_hub(trained, "ann/agent")
    asked = len(hub.requests)
    hub.fail(Status(401), path="/api/models/ann/agent")
    with pytest.raises(CheckpointError, match=r"Expected an agent of poad_sb3 in ann/agent; got .*401"):
        download("ann/agent")
    assert not any("resolve" in request.path for request in hub.requests[asked:])


def test_an_agent_in_the_cache_loads_without_a_network(
    hub: ModelHubStandIn, trained: POAD, monkeypatch: pytest.MonkeyPatch
):
    push_to_hub(trained, "ann/agent")
    POAD.load_from_hub("ann/agent")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert POAD.load_from_hub("ann/agent").num_timesteps == 16


def test_the_card_shows_the_learning_curve(hub: ModelHubStandIn, run: Run, folder: Path):
    _, path = find_agent(ID, folder)
    (folder / "progress.csv").write_text("time/total_timesteps,rollout/ep_rew_mean\n8,\n16,0.5\n24,0.75\n")
    draw_curve(folder / "progress.csv", path.with_suffix(CURVE), ID)
    run("zoo", "push", ID, "ann/agent", "--folder", str(folder))
    (files,) = hub.models["ann/agent"].commits.values()
    assert files["curve.png"] == path.with_suffix(CURVE).read_bytes()
    assert "over environment steps](curve.png)" in files["README.md"].decode()
    POAD.load_from_hub("ann/agent")
    draw_curve(folder / "nothing.csv", path.with_suffix(CURVE), ID)
    assert not path.with_suffix(CURVE).exists()


def test_push_sends_row_and_card(hub: ModelHubStandIn, run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch):
    assert "/ann/agent/commit/" in run("zoo", "push", ID, "ann/agent", "--folder", str(folder))
    (files,) = hub.models["ann/agent"].commits.values()
    assert json.loads(files["row.json"]) == json.loads(json.dumps(asdict(read_rows(folder)[0])))
    card = files["README.md"].decode()
    assert 'POAD.load_from_hub("ann/agent")' in card
    assert "curve.png" not in card
    assert "| greedy | 9 | 5.0000 [5.0000, 5.0000] |" in card
    monkeypatch.setenv("HF_TOKEN", "")
    run("zoo", "push", ID, "ann/agent", "--folder", str(folder), code=1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"attn_implementation": "someone/kernels"}, "policy_kwargs of an agent from the hub"),
        ({"lora": {"megatron_core": "os"}}, "policy_kwargs.lora of an agent from the hub"),
    ],
)
def test_a_download_names_no_module_to_import(
    changes: dict[str, Any], message: str, hub: ModelHubStandIn, trained: POAD, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(trained, "policy_kwargs", {**trained.policy_kwargs, **changes})
    push_to_hub(trained, "ann/agent")
    with pytest.raises(CheckpointError, match=message):
        POAD.load_from_hub("ann/agent")


def test_a_refusal_of_the_hub_is_one_sentence(hub: ModelHubStandIn, trained: POAD, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HF_TOKEN", "")
    with pytest.raises(ExportError, match="Expected to upload KeyToken-v0/pocket/POAD to ann/agent; got"):
        push_to_hub(trained, "ann/agent")
