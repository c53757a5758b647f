"""lm-eval before and after: the compared values, and the whole path on the pocket model with a task of our own."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks.app import app
from benchmarks.performance import language_ability
from benchmarks.performance.language_ability import TASKS, Change, changes, markdown, models_of
from lang_envs.errors import MissingExtraError
from poad_sb3 import POAD
from poad_sb3.export.export import export_policy


def _scores(answers: dict[str, list[float]], **groups: list[str]) -> dict[str, Any]:
    """As the harness returns them."""
    results = {}
    for name in (*answers, *groups):
        every = np.concatenate([answers[one] for one in groups.get(name, [name])])
        error = float(every.std(ddof=1) / len(every) ** 0.5)
        results[name] = {"alias": name, "acc,none": float(every.mean()), "acc_stderr,none": error}
    samples = {
        name: [{"doc_id": number, "filter": "none", "acc": one} for number, one in enumerate(row)]
        for name, row in answers.items()
    }
    return {"results": results, "samples": samples, "group_subtasks": groups}


def test_a_difference_has_the_standard_error_of_paired_answers() -> None:
    before, after = [1.0, 0.0, 1.0, 0.0], [1.0, 1.0, 1.0, 0.0]
    (found,) = changes(_scores({"quiz": before}), _scores({"quiz": after}))
    single = np.subtract(after, before)
    assert found.difference == pytest.approx((0.25, single.std(ddof=1) / 2))
    assert found.paired
    assert found.n == 4
    assert found.before[1] == pytest.approx(np.std(before, ddof=1) / 2)


def test_a_model_that_did_not_change_differs_by_nothing() -> None:
    (found,) = changes(_scores({"quiz": [1.0, 0.0]}), _scores({"quiz": [1.0, 0.0]}))
    assert found.difference == (0.0, 0.0)


def test_a_group_stands_for_its_tasks() -> None:
    before = _scores({"a": [0.0, 1.0], "b": [1.0, 0.0, 0.0]}, whole=["a", "b"])
    after = _scores({"a": [1.0, 1.0], "b": [1.0, 0.0, 1.0]}, whole=["a", "b"])
    (found,) = changes(before, after)
    assert found.task == "whole"
    assert found.n == 5
    assert found.paired
    assert found.difference[0] == pytest.approx(0.4)


def test_without_single_answers_the_errors_add_up() -> None:
    both = [_scores({"quiz": row}) for row in ([1.0, 0.0, 1.0], [0.0, 0.0, 1.0])]
    for one in both:
        one["samples"] = {}
    (found,) = changes(*both)
    assert not found.paired
    assert found.difference[1] == pytest.approx(np.hypot(found.before[1], found.after[1]))  # type: ignore[arg-type]


def test_the_report_says_what_is_limited_and_not_paired() -> None:
    row = Change("quiz", "acc", 8, (0.5, 0.1), (0.25, None), (-0.25, None), paired=False)
    about = {"base": "pocket", "num_timesteps": 64, "algorithm": "POAD", "checkpoint": "poad.zip"}
    content = {"trained": about, "settings": {"limit": 8}, "lm_eval": "0", "seconds": 1.0, "command": "python"}
    text = markdown([row], content)
    assert "| quiz | acc | 8 | 0.5000 ± 0.1000 | 0.2500 | -0.2500 |" in text
    assert "first 8 questions" in text
    assert "Not paired, hence too large: quiz" in text


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy after one rollout, at a rate at which weights change."""
    model = POAD("LLMPolicy", "VirtualHome-FoodPreparation-v0", n_steps=16, batch_size=8, learning_rate=0.02, seed=0)
    model.learn(16)
    path = tmp_path_factory.mktemp("trained") / "poad.zip"
    model.save(path)
    return path


def test_a_checkpoint_gives_its_base_model_and_an_adapter(checkpoint: Path, tmp_path: Path) -> None:
    before, after, about = models_of(checkpoint, tmp_path)
    assert Path(before["pretrained"], "model.safetensors").is_file()
    assert Path(after["peft"], "adapter_model.safetensors").is_file()
    assert {**after, "peft": ""} == {**before, "peft": ""}
    assert about["num_timesteps"] == 16


def test_an_exported_adapter_is_taken_as_it_is(checkpoint: Path, tmp_path: Path) -> None:
    folder = export_policy(POAD.load(checkpoint), tmp_path / "adapter").folder
    assert models_of(folder, tmp_path).after["peft"] == str(folder)


def test_an_exported_whole_model_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    export_policy(POAD.load(checkpoint), tmp_path / "merged", merge=True)
    with pytest.raises(language_ability.LanguageAbilityError, match="Fix: name the checkpoint"):
        models_of(tmp_path / "merged", tmp_path)


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    with pytest.raises(MissingExtraError, match=r"extra 'lm-eval'.*\.\[lm-eval\]"):
        language_ability._harness()


def test_the_command_says_it_in_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    result = CliRunner().invoke(app, ["measure", "language-ability", "--checkpoint", str(tmp_path / "poad.zip")])
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert "lm-eval" in result.stderr


def _quiz(folder: Path) -> None:
    """A task of eight questions in the language of the pocket model."""
    questions = [
        {"question": f"I am in the {room}. To see the kitchen I", "right": "walk to kitchen", "wrong": "eat the wall"}
        for room in ("livingroom", "bathroom", "bedroom", "kitchen") * 2
    ]
    data = folder / "quiz.json"
    data.write_text("\n".join(map(json.dumps, questions)), encoding="utf-8")
    (folder / "quiz.yaml").write_text(
        "task: pocket_quiz\ndataset_path: json\ndataset_kwargs:\n  data_files:\n"
        f"    test: {data}\ntest_split: test\noutput_type: multiple_choice\n"
        'doc_to_text: "{{question}}"\ndoc_to_choice: ["{{right}}", "{{wrong}}"]\ndoc_to_target: 0\n'
        "metric_list:\n  - metric: acc\n    aggregation: mean\n    higher_is_better: true\n",
        encoding="utf-8",
    )


@pytest.fixture
def offline_harness(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    pytest.importorskip("lm_eval", reason="the extra lm-eval is not installed")


@pytest.mark.filterwarnings("ignore")  # of the harness and its dependencies
@pytest.mark.usefixtures("offline_harness")
def test_the_whole_path_on_the_pocket_model(checkpoint: Path, tmp_path: Path) -> None:
    _quiz(tmp_path)
    out = tmp_path / "report"
    options = ["--checkpoint", checkpoint, "--tasks", "pocket_quiz", "--include", tmp_path, "--out", out, "--limit", 6]
    result = CliRunner().invoke(app, ["measure", "language-ability", *map(str, options)], catch_exceptions=False)
    assert result.exit_code == 0, result.stderr
    found = json.loads((out / "language_ability.json").read_text(encoding="utf-8"))
    (row,) = found["changes"]
    assert (row["task"], row["metric"], row["n"], row["paired"]) == ("pocket_quiz", "acc", 6, True)
    assert row["difference"][0] == pytest.approx(row["after"][0] - row["before"][0])
    assert "pocket_quiz" in (out / "language_ability.md").read_text(encoding="utf-8")
    assert not list(out.glob("*.tmp"))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("offline_harness")
def test_the_adapter_changes_what_the_harness_sees(checkpoint: Path, tmp_path: Path) -> None:
    _quiz(tmp_path)
    models = models_of(checkpoint, tmp_path)
    harness = importlib.import_module("lm_eval")
    manager = importlib.import_module("lm_eval.tasks").TaskManager(include_path=str(tmp_path))
    seen = [
        harness.simple_evaluate(
            model="hf", model_args=dict(one), tasks=["pocket_quiz"], device="cpu", task_manager=manager
        )["samples"]["pocket_quiz"][0]["resps"]
        for one in (models.before, models.after)
    ]
    assert seen[0] != seen[1]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("offline_harness")
def test_the_paper_s_tasks_are_known_and_others_are_refused(checkpoint: Path, tmp_path: Path) -> None:
    manager = importlib.import_module("lm_eval.tasks").TaskManager()
    assert manager.match_tasks(list(TASKS)) == sorted(TASKS)
    with pytest.raises(language_ability.LanguageAbilityError, match=r"no_such_task.*Fix"):
        language_ability.compare(models_of(checkpoint, tmp_path), ["no_such_task"])
