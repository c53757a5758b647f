"""Every file of `examples/` runs, in process, with a small budget."""

from __future__ import annotations

import importlib
import os
import re
import runpy
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from standins import ChatStandIn

from lang_envs.core import LangEnv
from lang_envs.env_checker import Status, run_checks
from poad_sb3 import POAD

EXAMPLES = Path(__file__).parents[1] / "examples"


class Example:
    """Runs examples in one temporary folder."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._patch, self._capsys = monkeypatch, capsys

    def __call__(self, name: str, *arguments: str | int) -> str:
        """Run an example and return its output."""
        path = EXAMPLES / f"{name}.py"
        with self._patch.context() as patch:
            patch.setattr(sys, "argv", [str(path), *map(str, arguments)])
            patch.setattr(sys, "path", [*sys.path])
            runpy.run_path(str(path), run_name="__main__")
        return self._capsys.readouterr().out


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Example:
    monkeypatch.chdir(tmp_path)
    torch.set_num_threads(1)
    return Example(monkeypatch, capsys)


def test_the_table_of_the_readme_names_every_file() -> None:
    files = {path.name for path in EXAMPLES.glob("*.py")}
    table = re.findall(r"^\| \[([\w.]+)\]\(\1\)", (EXAMPLES / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(table) == sorted(files)
    source = Path(__file__).read_text(encoding="utf-8")
    assert [name for name in files if f'"{Path(name).stem}"' not in source] == []


@pytest.mark.matrix
def test_train_and_evaluate(example: Example) -> None:
    out = example("train_and_evaluate", 128)
    assert re.search(r"mean return -?\d\.\d\d before, -?\d\.\d\d \+- \d\.\d\d after 128 steps", out)
    assert re.search(r"-> (pick|take|chop|put|serve)", out)


def test_own_environment(example: Example) -> None:
    out = example("own_environment", 128)
    assert "contract:" not in out, "a check of the contract failed"
    assert re.search(r"total_timesteps +\| 128", out)


class Fridge:
    """A world of one game, with the interfaces of ALFWorld and of ScienceWorld as far as the examples use them."""

    def __init__(self, *_: object, **__: object) -> None:
        self.has_opened, self.n_steps = False, 0

    def init_env(self, batch_size: int) -> Fridge:
        assert batch_size == 1
        return self

    def load(self, task: str, variation: int) -> None:
        assert (task, variation) == ("boil", 0)

    def seed(self, seed: int) -> None:
        pass

    def get_max_variations(self, task: str) -> int:
        return 1

    def facts(self) -> dict[str, Any]:
        commands, score = ["open fridge", "take egg", "look", "wait1"], 100 * (self.n_steps < 0)
        listed = {"admissible_commands": [commands], "valid": commands}
        return {**listed, "won": [score == 100], "score": score, "taskDesc": "Egg."}

    def play(self, text: str) -> tuple[str, bool]:
        if text == "take egg" and self.has_opened:
            self.n_steps = -1  # won
        else:
            self.has_opened |= text == "open fridge"
            self.n_steps += 1
        return f"The fridge is {'open' if self.has_opened else 'shut'}.", self.n_steps in (-1, 20)


class AlfworldFridge(Fridge):
    def reset(self) -> Any:
        self.__init__()
        return ["The fridge is shut."], self.facts()

    def step(self, actions: list[str]) -> Any:
        text, is_over = self.play(*actions)
        return [text], [0], [is_over], self.facts()


class ScienceFridge(Fridge):
    def reset(self) -> Any:
        self.__init__()
        return "The fridge is shut.", self.facts()

    def step(self, action: str) -> Any:
        text, is_over = self.play(action)
        return text, 0, is_over, self.facts()


@pytest.mark.parametrize(
    ("name", "module", "stand_in", "env_id", "arguments"),
    [
        (
            "alfworld_env",
            "alfworld.agents.environment",
            {"get_environment": lambda kind: AlfworldFridge},
            "Alfworld-v0",
            {"config": {"env": {"type": "AlfredTWEnv"}}},
        ),
        ("scienceworld_env", "scienceworld", {"ScienceWorldEnv": ScienceFridge}, "ScienceWorld-v0", {"max_steps": 20}),
    ],
    ids=["alfworld", "scienceworld"],
)
def test_a_world_of_others_keeps_the_contract(
    name: str,
    module: str,
    stand_in: dict[str, Any],
    env_id: str,
    arguments: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Against stand-ins: ALFWorld's games have to be downloaded, and ScienceWorld needs Java."""
    monkeypatch.setitem(sys.modules, module, SimpleNamespace(**stand_in))
    monkeypatch.syspath_prepend(EXAMPLES)
    importlib.import_module(name)
    assert [result for result in run_checks(env_id, **arguments) if result.status is Status.FAILED] == []


def test_own_model(example: Example) -> None:
    assert "base model: runs/tiny-llama" in example("own_model", 128)


@pytest.mark.matrix
def test_own_prompt(example: Example) -> None:
    prompt = example("own_prompt", 128).split("mean return")[1]
    assert prompt.count("The kitchen has one cutting board.") == 3, "two earlier steps, and the present observation"


def test_own_callback(example: Example) -> None:
    assert "stopped after 128 steps" in example("own_callback", 128)


def test_log_training(example: Example, monkeypatch: pytest.MonkeyPatch) -> None:
    run, logged = {}, []

    def init(**options):
        run.update(options)
        return SimpleNamespace(log=lambda values, step: logged.append(step), finish=lambda exit_code=0: None)

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    example("log_training", 128)
    names = {path.name.split(".")[0] for path in Path("runs/logged").iterdir()}
    assert {"progress", "events", "generations"} <= names
    assert (run["mode"], run["dir"]) == ("offline", "runs")
    assert logged == [128]


@pytest.mark.matrix
def test_resume_after_a_kill(example: Example, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "done: 384 steps" in example("resume_after_a_kill", 384)
    latest = Path("runs/resumable/latest.zip")
    straight = POAD.load(latest).policy.state_dict()
    shutil.rmtree(latest.parent)

    n_steps = 0

    def step_and_be_killed(env: LangEnv, text: str | None, step=LangEnv.step_text):
        nonlocal n_steps
        n_steps += 1
        if n_steps == 300:
            raise KeyboardInterrupt
        return step(env, text)

    with monkeypatch.context() as patch:
        patch.setattr(LangEnv, "step_text", step_and_be_killed)
        with pytest.raises(KeyboardInterrupt):
            example("resume_after_a_kill", 384)
    out = example("resume_after_a_kill", 384)
    assert "resuming at step 256" in out
    resumed = POAD.load(latest).policy.state_dict()
    assert all(torch.equal(straight[name], resumed[name]) for name in straight)


def test_measure_an_agent(example: Example) -> None:
    pytest.importorskip("scipy", reason="the extra bench is not installed")
    out = example("measure_an_agent", 2)
    success = dict(re.findall(r"(\w+): discounted return .* success (\d+)%", out))
    assert (success["careful"], success["oracle"]) == ("100", "100")


@pytest.mark.matrix
def test_measure_a_served_model(example: Example, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("openai", reason="the extra openai is not installed")
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "none")

    def first_action(message: str) -> str:
        return next(line[2:] for line in message.splitlines() if line.startswith("- "))

    with ChatStandIn(say=first_action) as server:
        out = example("measure_a_served_model", server.url, "a-model", 1)
        assert {body["model"] for body in server.bodies} == {"a-model"}
    assert re.search(r"Overcooked-TomatoSalad-v0 .*'invalid_rate': 0\.0", out)
    assert re.search(r"VirtualHome-FoodPreparation-v0 .*'prompt_tokens': \d", out)


@pytest.mark.matrix
def test_own_table(example: Example) -> None:
    pytest.importorskip("pandas", reason="the extra data is not installed")
    out = example("own_table", 16)
    assert re.search(r"by hand: ok, AUC 0\.9\d\d", out)
    assert Path("runs/patients.csv").exists()


def test_export_to_transformers(example: Example) -> None:
    out = example("export_to_transformers", 128)
    assert "AutoModelForCausalLM.from_pretrained" in Path("runs/cook-model/README.md").read_text()
    assert re.search(r"To get it served, you \w+", out)


def test_read_results(example: Example) -> None:
    pytest.importorskip("pandas", reason="the extra data is not installed")
    out = example("read_results")
    assert re.search(r"^ +action level +10 ", out, re.MULTILINE)
    assert re.search(r"^POAD +\d+ +\d+$", out, re.MULTILINE)


@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("ignore")  # of TRL: a part on trial, and arguments that transformers renames
def test_trl_grpo(example: Example) -> None:
    """Run by `make test-bridges`."""
    pytest.importorskip("trl", reason="TRL is not installed")
    torch.set_num_threads(len(os.sched_getaffinity(0)))  # nothing runs beside it
    out = example("trl_grpo", 2)
    assert re.search(r"^[1-9]\d* environment steps in the last rollouts", out, re.MULTILINE)
