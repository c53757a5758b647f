"""`poad doctor`, `poad train --dry-run`, and the memory that a training shows."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
import torch
from poad_runs import ENV_ID, SMALL, Run

from poad_sb3.cli import doctor, train
from poad_sb3.pocket import POCKET_FOLDER

DRY = ("train", ENV_ID, "--dry-run", *SMALL)
GB = 10**9


# ---------------------------------------------------------------------- a model


def test_a_healthy_model(run: Run) -> None:
    facts = json.loads(run("doctor", "pocket", "--json"))
    assert (facts["architecture"], facts["verdict"], facts["passes"]) == ("llama", "agrees", "trees, cache")
    assert max(facts[name] for name in ("ratio", "log_prob", "export")) < 1e-4
    assert (facts["adapter"], facts["prompt"], facts["end_token"]) == (["q_proj", "v_proj"], "completion", "</s>")
    assert (facts["parameters"], facts["max_length"]) == (913_280, 1024)
    assert facts["memory"] > facts["memory_bfloat16_checkpointing"] > 4 * 913_280
    lines = dict(re.split(" +", line, maxsplit=1) for line in run("doctor", "pocket").splitlines())
    assert lines.keys() == facts.keys() - {"export_problem"}
    assert (lines["adapter"], lines["parameters"]) == ("q_proj, v_proj", "913,280")
    assert lines["memory"].endswith(" MB")


def of_unknown_architecture(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "nothing"}))


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (shutil.rmtree, r"Expected a folder with a Hugging Face model; there is no \S*/broken\. Fix: "),
    "unknown architecture": (of_unknown_architecture, r"Expected model='pocket', a folder .*`?nothing`?.*Fix: "),
    "no weights": (
        lambda folder: (folder / "model.safetensors").unlink(),
        r"Expected model='pocket', .*, which could not be loaded .*Fix: ",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_models_are_refused_in_one_line(run: Run, name: str) -> None:
    shutil.copytree(POCKET_FOLDER, "broken")
    damage, message = BROKEN[name]
    damage(Path("broken"))
    assert re.match(rf"poad: {message}", run("doctor", "./broken", code=1))


# ---------------------------------------------------------------------- a machine


def test_this_machine(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = json.loads(run("doctor", "--json"))
    assert (facts["torch"].partition("+")[0], facts["device"]) == (torch.__version__.partition("+")[0], "cpu")
    monkeypatch.setattr(doctor, "free_memory", lambda device: None)
    monkeypatch.setattr(doctor, "cpu_emulates_bfloat16", lambda: True)
    shown = run("doctor")
    assert re.search(r"^free +unknown$", shown, re.MULTILINE)
    assert re.search(r"^bfloat16 +emulated, slowly$", shown, re.MULTILINE)


# ---------------------------------------------------------------------- the memory of a training


def with_free(patch: pytest.MonkeyPatch, free: int | None) -> None:
    patch.setattr(train, "free_memory", lambda device: free)


def test_a_dry_run_shows_the_memory_and_writes_nothing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with_free(monkeypatch, 8 * GB)
    shown = run(*DRY)
    needed = r"memory: \d+\.\d MB needed, 8\.0 GB free on cpu \(weights 3\.7 MB, trained 262\.1 kB, .*\)\n"
    assert re.fullmatch(needed, shown)
    with_free(monkeypatch, GB // 100)
    shown = run(*DRY)
    warning = r"poad: warning: \d+\.\d MB may be needed, 10\.0 MB is free on cpu\. Fix: --set policy_kwargs"
    assert re.search(warning, shown)
    fixed = run(*DRY, "--set", "policy_kwargs.max_tokens_per_forward=100")
    assert "warning" not in fixed, "the fix is one"
    with_free(monkeypatch, None)
    assert "needed, free memory unknown on cpu" in run(*DRY)
    assert list(Path.cwd().iterdir()) == []


REFUSED = [
    ((*DRY, "--set", "top_k=5"), "top_k has none: action_sampling is 'trie'"),
    ((*DRY, "--warm-start", "nowhere.zip"), "There is no checkpoint"),
    ((*DRY, "--engine", "no-such-vllm"), "there is no 'no-such-vllm' here"),
    ((*DRY, "--engine", sys.executable, "--set", "action_sampling=trie"), r"no generation_endpoint \(no --engine\)"),
]


@pytest.mark.parametrize(("arguments", "match"), REFUSED, ids=lambda value: str(value)[-40:])
def test_a_dry_run_refuses_what_a_training_refuses(run: Run, arguments: tuple[str, ...], match: str) -> None:
    assert re.search(match, run(*arguments, code=1))
    assert re.search(match, run(*(word for word in arguments if word != "--dry-run"), code=1))


def test_a_dry_run_of_an_environment_that_fails(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Any, *, seed: int | None = None, options: Any = None) -> None:
        raise ConnectionError("the simulator is gone")

    monkeypatch.setattr(gym.make(ENV_ID).unwrapped.__class__, "reset", broken)
    assert f"{ENV_ID} cannot be reset: the simulator is gone" in run(*DRY, code=1)


def test_a_training_shows_its_memory_in_a_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with_free(monkeypatch, 8 * GB)
    line = run(*DRY)
    shown = run("train", ENV_ID, *SMALL, "--steps", "16", "--out", "run")
    assert line in shown
    assert "warning" not in shown
    with_free(monkeypatch, GB // 100)
    shown = run("train", "--resume", "--out", "run", "--steps", "32")
    assert "MB may be needed, 10.0 MB is free on cpu" in shown
    assert "32 steps" in shown, "it is tried all the same"
    before = {path: path.read_bytes() for path in Path("run").rglob("*") if path.is_file()}
    assert "may be needed" in run("train", "--resume", "--out", "run", "--dry-run")
    assert "holds a run already" in run("train", ENV_ID, "--out", "run", "--dry-run", code=1)
    assert before == {path: path.read_bytes() for path in Path("run").rglob("*") if path.is_file()}


def test_a_training_whose_memory_is_unknown_goes_on(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: Any) -> None:
        raise KeyError("hidden_size\nand more")

    monkeypatch.setattr("poad_sb3.cli.memory.estimate_training", unknown)
    shown = run("train", ENV_ID, *SMALL, "--steps", "16", "--out", "run")
    assert "memory: not estimated (" in shown
    assert "16 steps" in shown
