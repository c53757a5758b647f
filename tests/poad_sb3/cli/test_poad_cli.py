"""The command `poad`: runs, resuming after any kill, evaluation, presets, refusals."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import pytest
import torch
import typer
from poad_runs import ENV_ID, SMALL, N, Run, invoke
from safetensors.torch import load_file, save_file

import poad_sb3
from lang_envs import MissingExtraError
from lang_envs.cli import load_app
from lang_envs.cli.common import fail, parse_settings
from poad_sb3 import POAD, cli
from poad_sb3.cli.app import app
from poad_sb3.pocket import POCKET_FOLDER
from poad_sb3.presets import PRESETS
from poad_sb3.prompts import CompletionPrompt
from poad_sb3.runs.loading import find_checkpoint
from poad_sb3.runs.progress_csv import ResumableCSV
from poad_sb3.runs.run_folder import RunError, RunFolder

ROOT = Path(poad_sb3.__file__).parents[1]
TRAIN = ("train", ENV_ID, "--steps", str(4 * N), "--save-every", str(N), "--seed", "3", *SMALL)


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a run that was never interrupted. Leave it as it is."""
    folder = tmp_path_factory.mktemp("straight") / "run"
    invoke(*TRAIN, "--out", str(folder))
    return folder


def parameters(folder: Path) -> dict[str, bytes]:
    """Weights and optimiser states of a run's checkpoint."""
    model = POAD.load(folder / "latest.zip")
    tensors = {name: tensor.numpy().tobytes() for name, tensor in model.policy.state_dict().items()}
    for name in ("policy.optimizer", "policy.critic_optimizer"):
        for key, state in model.get_parameters()[name]["state"].items():
            tensors |= {
                f"{name} {key} {part}": torch.as_tensor(value).numpy().tobytes() for part, value in state.items()
            }
    return tensors


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "progress.csv").open() as file:
        return [
            {key: value for key, value in row.items() if not key.startswith(CLOCKS)} for row in csv.DictReader(file)
        ]


CLOCKS = ("time/fps", "time/time_elapsed", "time/iterations", "time/seconds_")


# ---------------------------------------------------------------------- a run


def test_the_folder_of_a_run(straight: Path) -> None:
    assert {path.name for path in straight.iterdir()} == {
        "config.json",
        "episodes.jsonl",
        "episodes.steps.jsonl",
        "generations.jsonl",
        "latest.zip",
        "progress.csv",
        "report.html",
        "tensorboard",
    }
    config = json.loads((straight / "config.json").read_text())
    model = POAD.load(straight / "latest.zip")
    assert model.num_timesteps == 4 * N
    assert (config["algorithm"], config["preset"], config["seed"], config["env_id"]) == ("POAD", None, 3, ENV_ID)
    assert config["arguments"]["n_steps"] == N
    assert config["arguments"]["gamma"] == model.gamma == 0.95
    assert config["arguments"]["policy_kwargs"] == {"critic_arch": [8]}
    assert config["model"]["name"] == "pocket"
    assert config["model"]["fingerprint"] == model.base_fingerprint
    assert (config["dataset"], config["prompt_template"]) == (None, CompletionPrompt().to_dict())
    (session,) = config["sessions"]
    assert session["from_step"] == 0
    assert session["versions"]["torch"].partition("+")[0] == torch.__version__.partition("+")[0]
    assert {"lang_envs", "poad_sb3", "transformers", "peft", "stable-baselines3", "numpy"} <= set(session["versions"])
    assert re.match(r"\d{4}-\d\d-\d\dT", session["time"])
    assert [row["time/total_timesteps"] for row in rows(straight)] == [str(k * N) for k in range(1, 5)]
    assert list((straight / "tensorboard").glob("events.*"))


def test_the_same_as_by_hand(straight: Path) -> None:
    from stable_baselines3.common.env_util import make_vec_env

    settings: Any = {"n_steps": N, "batch_size": 8, "n_epochs": 1, "n_critic_epochs": 1}
    model = POAD("LLMPolicy", make_vec_env(ENV_ID), seed=3, policy_kwargs={"critic_arch": [8]}, **settings)
    mine = model.learn(4 * N).policy.state_dict()
    theirs = POAD.load(straight / "latest.zip").policy.state_dict()
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)


def test_a_preset_and_other_arguments(run: Run) -> None:
    options = ("--algo", "twosome", "--preset", "paper/overcooked", "--set", "n_steps=2", "--steps", "8")
    more = ("--set", "policy_kwargs.critic_arch=[8]", "--env-set", "shuffle_actions=true", "--record-episodes", "0")
    shown = run("train", ENV_ID, *options, *more)
    folder = Path("runs/TWOSOME-Overcooked-TomatoSalad-v0-seed0")
    assert f"{folder}: 8 steps" in shown
    config = RunFolder(folder).read_config()
    assert config is not None
    assert (config.algorithm, config.preset, config.n_envs) == ("TWOSOME", "paper/overcooked", 4)
    assert config.arguments["credit_level"] == "action"
    assert config.arguments["batch_size"] == 2
    assert config.arguments["policy_kwargs"]["lora"]["r"] == 8
    assert config.env_kwargs == {"shuffle_actions": True}
    assert "of the last" in shown or "no episode ended" in shown
    # the preset and everything else is remembered
    assert "from step 8 to 16" in run("train", "--out", str(folder), "--resume", "--steps", "16")


def test_a_run_knows_its_table_and_keeps_the_best_program(run: Run) -> None:
    pytest.importorskip("sklearn")
    run("train", "DataSciCoding-balance-scale-v0", "--env-set", "splits=1", "--set", "max_new_tokens=4",
        "--set", "n_steps=2", "--set", "policy_kwargs.critic_arch=[8]",
        "--steps", "2", "--out", "code")  # fmt: skip
    config = RunFolder(Path("code")).read_config()
    assert config is not None
    assert config.dataset == gym.make("DataSciCoding-balance-scale-v0").unwrapped.dataset.digest
    assert not Path("code/best_code.json").exists(), "four tokens are no program that runs"


def test_wandb_hears_of_a_run(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = []

    def init(**options: Any) -> Any:
        begun.append(options)
        return SimpleNamespace(log=lambda values, step: None, finish=lambda: None)

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    for more in ((), ("--resume",)):
        run("train", ENV_ID, *SMALL, "--steps", str(N), "--out", "run", "--wandb", "kitchen", *more)
    first, second = begun
    assert (first["project"], first["name"], first["config"]["env"]) == ("kitchen", "run", ENV_ID)
    assert first["id"] == second["id"]
    monkeypatch.setitem(sys.modules, "wandb", None)
    output = run("train", ENV_ID, *SMALL, "--out", "other", "--wandb", "kitchen", code=1)
    assert "Expected the package wandb; it is not installed. Fix: pip install" in output
    assert not Path("other/config.json").exists()


# ---------------------------------------------------------------------- resuming

DRIVER = """
import os, pathlib, signal, sys
import torch
torch.set_num_threads(1)
import poad_sb3.common.save_util as checkpoints
import poad_sb3.common.on_policy_algorithm as on_policy
from poad_sb3.cli import main

calls = 0

def after(owner, name, count, before=False):
    kept = getattr(owner, name)
    def wrapper(*args, **kwargs):
        global calls
        calls += 1
        if before and calls == count:
            os.kill(os.getpid(), signal.SIGKILL)
        result = kept(*args, **kwargs)
        if calls == count:
            os.kill(os.getpid(), signal.SIGKILL)
        return result
    setattr(owner, name, wrapper)

{kill}
sys.argv[0] = "poad"
main()
"""
KILLS = {
    "while the config is written": "after(pathlib.Path, 'write_bytes', 1, before=True)",
    "before the first checkpoint": "after(on_policy.LLMOnPolicyAlgorithm, '_final_prompts', 5)",
    "in the middle of a later save": "after(checkpoints, 'add_header', 3, before=True)",
    "before a save is moved into place": "after(checkpoints, 'add_header', 3)",
    "in the last save": "after(checkpoints, 'add_header', 5, before=True)",
}


def child(script: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.Popen(
        command, cwd=ROOT, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


@pytest.mark.process
@pytest.mark.parametrize("moment", KILLS)
def test_killed_and_resumed_equals_never_interrupted(moment: str, straight: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = child(DRIVER.format(kill=KILLS[moment]), *TRAIN, "--out", str(folder))
    _, errors = process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL, errors
    if (folder / "latest.zip").exists():
        POAD.load(folder / "latest.zip")  # whole
    invoke(*TRAIN, "--out", str(folder), "--resume")
    assert parameters(folder) == parameters(straight)
    assert [path.name for path in folder.glob(".*")] == [], "half-written files are gone"
    shown = [row["time/total_timesteps"] for row in rows(folder)]
    assert shown == sorted(set(shown), key=int), "no row twice"
    assert shown[-1] == str(4 * N) or moment == "in the last save"


def test_a_run_goes_on_exactly_and_so_do_its_rows(run: Run, straight: Path) -> None:
    run("train", ENV_ID, "--steps", str(2 * N), "--seed", "3", *SMALL, "--out", "run")
    assert f"from step {2 * N} to {4 * N}" in run("train", "--resume", "--out", "run", "--steps", str(4 * N))
    assert parameters(Path("run")) == parameters(straight)
    assert [row["time/total_timesteps"] for row in rows(Path("run"))] == [str(k * N) for k in range(1, 5)]
    shared = ("rollout/ep_rew_mean", "train/approx_kl", "train/value_loss")
    # The row after a resume has no metrics of the update before it.
    for mine, theirs in zip(rows(Path("run")), rows(straight), strict=True):
        assert all(mine.get(name) in ("", None, theirs.get(name)) for name in shared)


DIFFERENT = [
    (("--seed", "4"), r"--seed is 3 in the run, and 4 is asked for"),
    (("--algo", "NTPO"), r"--algo is 'POAD' in the run, and 'NTPO' is asked for"),
    (("--set", "gamma=0.9"), r"--set gamma is 0\.95 in the run, and 0\.9 is asked for"),
    (("--set", "policy_kwargs.dtype=x"), r"--set policy_kwargs\.dtype is None in the run, and 'x' is asked for"),
    (("--set", "gama=0.9"), r"There is no argument 'gama'\. Did you mean gamma"),
    (("--env-set", "shuffle_actions=true"), r"--env-set shuffle_actions is None in the run, and True is asked for"),
]


@pytest.mark.parametrize(("options", "match"), DIFFERENT, ids=lambda value: str(value)[:40])
def test_another_config_is_refused(run: Run, straight: Path, options: tuple[str, ...], match: str) -> None:
    before = {path: path.read_bytes() for path in straight.iterdir() if path.is_file()}
    assert re.search(match, run("train", "--resume", "--out", str(straight), *options, code=1))
    assert before == {path: path.read_bytes() for path in straight.iterdir() if path.is_file()}


def test_fewer_steps_than_are_trained_are_refused(run: Run, straight: Path) -> None:
    before = (straight / "config.json").read_bytes()
    output = run("train", "--resume", "--out", str(straight), "--steps", str(2 * N), code=1)
    assert f"Expected --steps beyond {4 * N}, where the run already is; got {2 * N}." in output
    assert (straight / "config.json").read_bytes() == before


def test_a_finished_run_may_be_resumed_with_the_same_words(run: Run) -> None:
    for _ in range(2):  # 20 steps are two rollouts
        output = run("train", ENV_ID, *SMALL, "--steps", "20", "--out", "run", "--set", "paper_mode=False", "--resume")
    assert f"from step {2 * N} to {2 * N}" in output
    assert json.loads(Path("run/config.json").read_text())["arguments"]["paper_mode"] is False


@pytest.mark.skipif(sys.platform == "win32", reason="no locks of files")
def test_a_second_process_in_the_folder_is_refused(run: Run, straight: Path) -> None:
    with RunFolder(straight).held():
        output = run("train", "--resume", "--out", str(straight), "--steps", str(8 * N), code=1)
    assert f"Expected to be alone in {straight}; another process trains in it." in " ".join(output.split())


def test_another_environment_or_a_run_without_resume_is_refused(run: Run, straight: Path) -> None:
    out = ("--out", str(straight))
    assert "ENV is 'Overcooked" in run("train", "VirtualHome-Cheese-v0", "--resume", *out, code=1)
    assert "holds a run already. Fix: --resume, or another --out." in run(*TRAIN, *out, code=1)


@pytest.mark.parametrize(
    ("key", "value", "match"),
    [
        ("dataset", "abc", "Expected the table that the run began with, of digest abc; got None. Fix: restore"),
        ("algorithm", "NTPO", "Expected a checkpoint of NTPO; got one of POAD"),
    ],
)
def test_what_changed_since_is_refused(run: Run, straight: Path, key: str, value: Any, match: str) -> None:
    config = json.loads((straight / "config.json").read_text())
    changed = {**config, key: {**config[key], **value} if isinstance(value, dict) else value}
    Path("run").mkdir()
    Path("run/config.json").write_text(json.dumps(changed))
    Path("run/latest.zip").write_bytes((straight / "latest.zip").read_bytes())
    assert re.search(match, run("train", "--resume", "--out", "run", code=1))
    assert json.loads(Path("run/config.json").read_text()) == changed


@pytest.mark.parametrize(
    "command",
    [("train", "--resume", "--out", "run"), ("eval", "run"), ("export", "run", "out"), ("report", "run"),
     ("train", ENV_ID, "--warm-start", "run", "--out", "new")],
    ids=" ".join,
)  # fmt: skip
def test_rejects_a_config_of_nulls(run: Run, straight: Path, command: tuple[str, ...]) -> None:
    shutil.copytree(straight, "run")
    nulls = dict.fromkeys(json.loads(Path("run/config.json").read_text()))
    Path("run/config.json").write_text(json.dumps(nulls))
    fault = r"Expected the config of a run in \S*run/config\.json; it cannot be read \(env_id is null"
    assert re.search(fault, run(*command, code=1))


def test_rejects_a_truncated_checkpoint(run: Run, straight: Path) -> None:
    Path("run").mkdir()
    Path("run/config.json").write_bytes((straight / "config.json").read_bytes())
    Path("run/latest.zip").write_bytes((straight / "latest.zip").read_bytes()[:1000])
    assert "is truncated or corrupt" in run("train", "--resume", "--out", "run", code=1)
    assert "is truncated or corrupt" in run("eval", "run", code=1)


# ---------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (("train",), "Expected an environment, such as"),
        (("train", "--resume", "--out", "none"), "there is no run to resume"),
        (("train", "Overcooked-TomatSalad-v0"), "Overcooked-TomatSalad-v0 cannot be made: .*TomatoSalad"),
        (("train", "CartPole-v1"), "cannot be made: Expected an environment with a lang_envs.TokenSequence"),
        (("train", ENV_ID, "--env-set", "nothing=1"), "cannot be made: .*nothing"),
        (("train", ENV_ID, "--algo", "PAOD"), "There is no algorithm 'PAOD'. Did you mean POAD"),
        (("train", ENV_ID, "--preset", "paper/vritualhome"), "Did you mean paper/virtualhome"),
        (("train", ENV_ID, "--set", "gama=1"), "Expected arguments of POAD; got 'gama'. Did you mean gamma"),
        (("train", ENV_ID, "--set", "gamma"), "Expected --set NAME=VALUE.*; got 'gamma'"),
        (("train", ENV_ID, "--set", "gamma=high"), "Expected gamma between 0 and 1; got 'high'"),
        (("train", ENV_ID, "--set", "paper_mode=maybe"), "Expected paper_mode to be True or False; got 'maybe'"),
        (("train", ENV_ID, "--set", "policy_kwargs=[1]"), r"Expected policy_kwargs to be a mapping; got \[1\]"),
        (("train", ENV_ID, "--set", "device=cuda:99"), "Expected a device that torch can use here; got 'cuda:99'"),
        (("train", ENV_ID, "--algo", "badq"), r"BADQ is trained from Python: poad_sb3\.BADQ"),
        (("train", ENV_ID, "--set", "seed=1"), "seed, which is set by --seed"),
        (("train", ENV_ID, "--set", "lora=1", "--set", "lora.r=1"), "got both"),
        (("train", ENV_ID, "--set", "policy_kwargs.model=/no/where"), "/no/where"),
        (("train", ENV_ID, "--algo", "RLOO", "--set", "baseline=state"), "baseline of estimator='episode_return'"),
        (("eval", "nowhere"), "There is no checkpoint nowhere"),
        (("presets", "pocket/overcoked"), "Did you mean pocket/overcooked"),
    ],
)
def test_refusals(run: Run, arguments: tuple[str, ...], match: str) -> None:
    assert re.search(match, run(*arguments, code=1))
    assert not Path("runs").exists()


def test_settings_that_do_not_fit_the_environment_leave_no_run(run: Run) -> None:
    train = ("train", "DataSciCoding-balance-scale-v0", "--steps", "16", "--out", "mine", *SMALL)
    assert "Expected action_sampling='free'" in run(*train, "--set", "action_sampling=trie", code=1)
    assert "Fix: POAD, NTPO, or TurnPPO" in run(*train, "--algo", "TWOSOME", code=1)
    assert not RunFolder(Path("mine")).config_file.exists()
    run(*train, "--dry-run")  # refused if the folder held a run


@pytest.mark.matrix
def test_a_run_on_code_is_trained_and_evaluated_as_typed(run: Run) -> None:
    shown = run("train", "DataSciCoding-balance-scale-v0", "--steps", "2", "--set", "n_steps=2", "--out", "code")
    assert "action_sampling='free', model='pocket-coder'" in shown
    config = RunFolder(Path("code")).read_config()
    assert config is not None
    assert config.arguments["action_sampling"] == "free"
    assert config.arguments["policy_kwargs"] == {"model": "pocket-coder"}
    assert "2 episodes" in run("eval", "code", "--episodes", "2")
    for subject in ("code", "code/latest.zip"):
        assert re.search(r"action_sampling +free\nmodel +pocket-coder", run("doctor", subject))
    run("train", "--out", "code", "--resume", "--steps", "4")


def test_a_folder_that_cannot_be_written(run: Run) -> None:
    Path("file").write_text("")
    assert "cannot be written" in run("train", ENV_ID, *SMALL, "--out", "file/run", code=1)


def test_an_interrupted_training_says_what_is_left(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("poad_sb3.common.on_policy_algorithm.update", interrupt)
    output = run("train", ENV_ID, *SMALL, "--steps", "64", "--save-every", "1", "--out", "run", code=130)
    assert f"poad: interrupted; run/latest.zip holds step {N}; the same command with --resume continues" in output
    monkeypatch.undo()


def test_a_failed_training_says_what_is_left(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calls = []

    def fail(*_: Any) -> None:
        calls.append(1)
        raise ConnectionError("the simulator\nis gone")

    ended: list[dict[str, int]] = []
    begun = SimpleNamespace(log=lambda values, step: None, finish=lambda **options: ended.append(options))
    with monkeypatch.context() as patch:
        patch.setattr("poad_sb3.common.on_policy_algorithm.update", fail)
        patch.setitem(sys.modules, "wandb", SimpleNamespace(init=lambda **_: begun))
        output = run("train", ENV_ID, *SMALL, "--steps", "64", "--out", "run", "--wandb", "kitchen", code=3)
    assert (
        f"The training stopped at step {N} (ConnectionError: the simulator is gone). There is no checkpoint" in output
    )
    assert "Traceback" in Path("run/error.txt").read_text()
    assert ended == [{"exit_code": 1}], "the run of Weights & Biases"
    assert "from the start to 64" in run("train", "--resume", "--out", "run")


# ---------------------------------------------------------------------- eval, presets, the entry point


def test_eval_of_a_run(run: Run, straight: Path) -> None:
    shown = run("eval", str(straight), "--episodes", "2")
    assert f"POAD at step {4 * N} on {ENV_ID}: 2 episodes, sampled actions" in shown
    assert re.search(r"return +-?\d+\.\d{4} +\d+\.\d{4}", shown)
    assert shown == run("eval", str(straight / "latest.zip"), "--episodes", "2"), "seeded"
    assert shown != run("eval", str(straight), "--episodes", "2", "--seed", "9")
    assert "1 episodes, most probable actions" in run("eval", str(straight), "--episodes", "1", "--deterministic")


def test_eval_shows_thoughts(run: Run) -> None:
    small = [f"--set={pair}" for pair in ("action_sampling=think", "max_thought_tokens=2", "n_steps=4", "batch_size=4")]
    run("train", "MultiKey-v0", "--out", "thinking", "--steps", "4", *small)
    assert re.search(r"1 .*</think> +\w+", run("eval", "thinking", "--episodes", "1"))


def test_eval_elsewhere(run: Run, straight: Path) -> None:
    Path("alone.zip").write_bytes((straight / "latest.zip").read_bytes())
    assert "Expected --env ID" in run("eval", "alone.zip", code=1)
    assert "VirtualHome-Cheese-v0" in run("eval", "alone.zip", "--env", "VirtualHome-Cheese-v0", "--episodes", "1")
    assert "CartPole-v1 cannot be made" in run("eval", "alone.zip", "--env", "CartPole-v1", code=1)


@pytest.mark.matrix
def test_a_base_model_may_move(run: Run) -> None:
    """Its folder is found from anywhere, and its new place can be given; another model is another run."""
    shutil.copytree(POCKET_FOLDER, "base")
    run(*TRAIN, "--out", "run", "--set", "policy_kwargs.model=base")
    config = json.loads(Path("run/config.json").read_text())
    assert config["given"]["policy_kwargs"]["model"] == str(Path("base").resolve())
    Path("base").rename("moved")
    for command in (("eval", "run", "--episodes", "1"), ("train", "--resume", "--out", "run")):
        assert "there is no" in run(*command, code=1)
        run(*command, "--set", "policy_kwargs.model=moved")
    assert "Expected policy_kwargs.model or policy_kwargs.revision after --set" in run(
        "eval", "run", "--set", "gamma=0.9", code=1
    )
    weights = load_file("moved/model.safetensors")
    next(iter(weights.values()))[0] += 1
    save_file(weights, "moved/model.safetensors", metadata={"format": "pt"})
    for command in (("eval", "run", "--episodes", "1"), ("train", "--resume", "--out", "run")):
        assert "Expected the base model" in run(*command, "--set", "policy_kwargs.model=moved", code=1)


def test_eval_of_badq(run: Run) -> None:
    poad_sb3.BADQ("LLMPolicy", gym.make(ENV_ID), seed=0, policy_kwargs={"critic_arch": [8]}).save("badq.zip")
    shown = run("eval", "badq.zip", "--env", ENV_ID, "--episodes", "1", "--deterministic")
    assert f"BADQ at step 0 on {ENV_ID}: 1 episodes" in shown


def test_values_of_python_are_no_text() -> None:
    texts = ["a=True", "b=False", "c=None", 'd="None"', "e=none", "f.g=[1]"]
    read = {"a": True, "b": False, "c": None, "d": "None", "e": "none", "f": {"g": [1]}}
    assert parse_settings("--env-set", texts, fail) == read
    assert parse_settings("--env-set", ['n={"a": 1}', 'n={"a": 2}', "f.g=1", "f.g=2"], fail) == {
        "n": {"a": 2},
        "f": {"g": 2},
    }
    with pytest.raises(typer.Exit):
        parse_settings("--env-set", ["f.g=1", "f=null"], fail)


def test_presets(run: Run) -> None:
    shown = run("presets")
    assert all(name in shown for name in PRESETS)
    table = run("presets", "paper/virtualhome")
    assert re.search(r"ent_coef +0\.0001 +0\.01 +0\.01", table)
    assert "fp16" in table


@pytest.mark.parametrize("name", ["typer", "rich.console"])
def test_without_the_extra_there_is_one_line(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    for module in ("poad_sb3.cli.app", "lang_envs.cli.common"):
        monkeypatch.delitem(sys.modules, module)
    with pytest.raises(MissingExtraError, match=r'The poad command needs .* Fix: .*\[cli,llm\]"$'):
        load_app("poad_sb3.cli.app", "poad", "cli,llm")
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_the_commands_of_the_guide_parse() -> None:
    pages = [ROOT / f"docs/guide/{name}.md" for name in ("training", "behaviour_cloning", "scaling", "zoo")]
    text = "".join(page.read_text(encoding="utf-8") for page in pages).replace("\\\n", " ")
    commands = typer.main.get_command(app).commands
    lines = re.findall(r"^poad (\w+) (.*)$", text, re.MULTILINE)
    assert {name for name, _ in lines} == set(commands)
    for name, arguments in lines:
        command, words = commands[name], arguments.split()
        context = command.make_context(name, list(words))  # raises a usage error where it cannot parse
        if hasattr(command, "resolve_command"):
            part, subcommand, rest = command.resolve_command(context, words)
            subcommand.make_context(part, rest)


# ---------------------------------------------------------------------- parts


def test_the_csv_goes_on_before_a_damaged_line(tmp_path: Path) -> None:
    path = tmp_path / "progress.csv"
    path.write_text('time/total_timesteps,note\n16,"a, b"\n32,\n48,c\n64')
    writer = ResumableCSV(path, 32)
    writer.write({"time/total_timesteps": 48, "new": 1.5}, {"time/total_timesteps": (), "new": ()})
    writer.close()
    assert path.read_text() == 'time/total_timesteps,note,new\n16,"a, b",\n32,,\n48,,1.5\n'
    ResumableCSV(path, 0).close()
    assert path.read_text() == ""


def test_a_checkpoint_beside_the_config_of_a_model_is_found(straight: Path, tmp_path: Path) -> None:
    shutil.copy(straight / "latest.zip", tmp_path / "agent.zip")
    shutil.copy(POCKET_FOLDER / "config.json", tmp_path / "config.json")
    assert find_checkpoint(tmp_path / "agent.zip") == (tmp_path / "agent.zip", None)
    (tmp_path / "agent.zip").rename(tmp_path / "latest.zip")
    with pytest.raises(RunError):
        find_checkpoint(tmp_path)


def test_a_warning_of_the_library_is_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def presets() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("Expected one line;\n  got two.", RuntimeWarning, stacklevel=1)

    (command,) = [command for command in app.registered_commands if command.callback.__name__ == "presets"]
    monkeypatch.setattr(command, "callback", presets)
    assert run("presets") == "poad: warning: Expected one line; got two.\n"
