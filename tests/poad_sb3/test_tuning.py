"""Search for arguments: trials that continue, are pruned and refused, and the preset that `poad train` reads."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from concurrent.futures import CancelledError, Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import optuna
import pytest
from tuning_users import LOG, killed_training, wait_to_be_killed
from typer.testing import CliRunner

from poad_sb3 import GRPO, POAD
from poad_sb3.cli.app import app
from poad_sb3.cli.train_options import parse_options
from poad_sb3.distributed.job_executor import job_executor
from poad_sb3.errors import PoadError
from poad_sb3.tuning import Range, Search, best_arguments, ended_trials, open_study, run_trials

SMALL = ["MultiKey-v0", "--env-set", "k=1", "--env-set", "d=0", "--steps", "16", "--episodes", "2"]
EASY = {"k": 1, "d": 0}
ROLLOUT = {"n_steps": 8, "batch_size": 8}


def poad(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, [*arguments])
    assert result.exit_code == code, result.output
    return result.output


def test_the_best_trial_is_a_preset_of_poad_train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shown = poad("tune", *SMALL, "--trials", "2", "--out", "search", "--set", "n_steps=16")
    assert "trial 1:" in shown
    assert "Best of 2 trials" in shown
    shown = poad("tune", *SMALL, "--trials", "3", "--out", "search", "--set", "n_steps=16")
    assert "trial 2:" in shown
    assert "trial 1:" not in shown, "earlier trials count"
    assert "steps 16, not 32" in poad("tune", *SMALL, "--steps", "32", "--out", "search", "--set", "n_steps=16", code=1)
    best = json.loads(Path("search/preset.json").read_text())["arguments"]
    assert best["n_steps"] == 16
    assert best["learning_rate"] > 0
    poad(
        "train", "MultiKey-v0", "--preset", "search/preset.json", "--steps", "16", "--out", "run", "--set", "gamma=0.5"
    )
    config = json.loads(Path("run/config.json").read_text())
    assert {**config["arguments"], **best, "gamma": 0.5} == config["arguments"]
    Path("search/preset.json").write_text("{}")
    assert "cannot be read" in poad("train", "MultiKey-v0", "--preset", "search/preset.json", code=1)


def test_policy_arguments_are_laid_over_those_of_a_preset_file(tmp_path: Path) -> None:
    file = tmp_path / "preset.json"
    content = {"algorithm": "POAD", "n_envs": 2, "arguments": {"policy_kwargs": {"dtype": "float32"}}}
    file.write_text(json.dumps(content))
    given = parse_options(["policy_kwargs.critic_whitening=false"], None, preset=str(file))["given"]
    assert given == {"policy_kwargs": {"dtype": "float32", "critic_whitening": False}}
    for wrong in ({"n_envs": 0}, {"arguments": {"policy_kwargs": 3}}):
        file.write_text(json.dumps({**content, **wrong}))
        assert "cannot be read" in poad("train", "MultiKey-v0", "--preset", str(file), code=1)


@pytest.mark.parametrize(
    ("error", "words", "code"),
    [(KeyboardInterrupt(), "the same command continues", 130), (RuntimeError("boom"), "(RuntimeError: boom)", 3)],
)
def test_a_search_that_stops_says_so_in_a_line(
    error: BaseException, words: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: Any) -> None:
        raise error

    monkeypatch.setattr("poad_sb3.tuning.run_trials", stop)
    assert words in poad("tune", *SMALL, "--out", str(tmp_path), code=code)


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "trials.db").write_text("no database, and longer than a header of SQLite" * 9)
    with pytest.raises(PoadError, match="cannot be opened"):
        open_study(Search(POAD, "MultiKey-v0", 16), tmp_path / "trials.db")


def test_every_trial_has_all_evaluations() -> None:
    assert Search(POAD, "MultiKey-v0", 4096, n_envs=8).space()["n_steps"] == (32, 64, 128)


def test_only_arguments_that_are_open_and_have_an_effect_are_tried() -> None:
    space = Search(POAD, "MultiKey-v0", 16, fixed=("n_steps", "gamma")).space()
    assert isinstance(space["learning_rate"], Range)
    assert "gae_lambda_token" in space
    assert not {"n_steps", "gamma", "temperature"} & {*space}
    assert not {"critic_learning_rate", "gae_lambda"} & {*Search(GRPO, "MultiKey-v0", 16).space()}


def test_a_batch_is_a_quarter_of_a_rollout() -> None:
    assert Search(POAD, "MultiKey-v0", 16, n_envs=2).make(n_steps=32).batch_size == 16
    assert (
        Search(POAD, "MultiKey-v0", 16, arguments={"batch_size": 8}, fixed=("batch_size",)).make(n_steps=32).batch_size
        == 8
    )


def test_a_pruned_trial_ends_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    search = Search(POAD, "MultiKey-v0", 64, arguments=ROLLOUT, fixed=(*ROLLOUT,), env_kwargs=EASY, n_episodes=1)
    study = open_study(search, tmp_path / "trials.db")
    monkeypatch.setattr(optuna.trial.Trial, "should_prune", lambda self: True)
    ended: list[Any] = []
    run_trials(study, search, 1, lambda study, trial: ended.append(trial))
    assert [trial.state.name for trial in ended] == ["PRUNED"]
    assert list(ended[0].intermediate_values) == [1]
    with pytest.raises(PoadError, match="Expected a completed trial"):
        best_arguments(study, search)


@pytest.mark.filterwarnings("ignore:Heartbeat of storage", "ignore::optuna.exceptions.ExperimentalWarning")
def test_a_trial_that_is_tried_again_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    search = Search(POAD, "MultiKey-v0", 16, arguments=ROLLOUT, fixed=(*ROLLOUT,), env_kwargs=EASY, n_episodes=1)
    study = open_study(search, tmp_path / "trials.db")
    killed = study.ask()
    killed.suggest_categorical("clip_range", (0.1, 0.2, 0.3))
    study.tell(killed, state=optuna.trial.TrialState.FAIL)
    optuna.storages.RetryHeartbeatStaleTrialCallback()(study, study.trials[0])  # as optuna does after a minute
    assert ended_trials(study) == []
    run_trials(study, search, 1, lambda *_: None)
    assert [trial.state.name for trial in study.trials] == ["FAIL", "COMPLETE"]
    assert study.trials[1].params["clip_range"] == study.trials[0].params["clip_range"]

    learn = POAD.learn
    monkeypatch.setattr(POAD, "learn", lambda *_: interrupt())
    with pytest.raises(KeyboardInterrupt):
        run_trials(study, search, 2, lambda *_: None)
    monkeypatch.setattr(POAD, "learn", learn)
    run_trials(study, search, 2, lambda *_: None)
    assert [trial.state.name for trial in study.trials[2:]] == ["FAIL", "COMPLETE"]
    assert study.trials[2].params == study.trials[3].params
    assert len(ended_trials(study)) == 2


def interrupt() -> None:
    raise KeyboardInterrupt


def test_a_search_without_a_completed_trial_writes_no_preset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Search, "space", lambda self: {"clip_range": (-1.0,)})
    output = poad("tune", *SMALL, "--trials", "2", "--out", str(tmp_path), code=1)
    assert "Expected a completed trial; all 2 were refused" in output
    assert not (tmp_path / "preset.json").exists()


def test_searches_that_are_opened_at_once_have_other_seeds(tmp_path: Path) -> None:
    search, path = Search(POAD, "MultiKey-v0", 16), tmp_path / "trials.db"
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: open_study(search, path), range(4)))
    assert open_study(search, path).user_attrs["sessions"] == 5


def test_trials_in_workers_are_pruned_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    search = Search(POAD, "MultiKey-v0", 16, arguments=ROLLOUT, fixed=(*ROLLOUT,), env_kwargs=EASY, n_episodes=1)
    study, seen = open_study(search, tmp_path / "trials.db"), []

    def should_prune(trial: optuna.Trial) -> bool:
        seen.append(len(trial.study.get_trials(states=[optuna.trial.TrialState.COMPLETE])))
        return len(seen) > 1

    monkeypatch.setattr(optuna.trial.Trial, "should_prune", should_prune)
    monkeypatch.setattr("poad_sb3.tuning.job_executor", lambda n_workers, ray: ThreadPoolExecutor(n_workers))
    run_trials(study, search, 2, lambda study, trial: None, ray="auto")
    first, second = study.trials
    assert (first.state.name, second.state.name) == ("COMPLETE", "PRUNED")
    assert (len(first.intermediate_values), len(second.intermediate_values)) == (2, 1)
    assert seen == [0, 1], "it is compared with the first"


@pytest.mark.process
def test_trials_run_at_a_time_in_processes_of_this_machine(tmp_path: Path) -> None:
    shown = poad("tune", *SMALL, "--trials", "2", "--workers", "2", "--out", str(tmp_path), "--set", "n_steps=16")
    assert "trial 0: complete" in shown
    assert "trial 1: complete" in shown


def test_a_trial_whose_arguments_are_refused_has_no_score(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    search = Search(POAD, "MultiKey-v0", 16, arguments=ROLLOUT, fixed=(*ROLLOUT,), env_kwargs=EASY, n_episodes=1)
    space = search.space()
    monkeypatch.setattr(Search, "space", lambda self: {**space, "clip_range": (-1.0,)})
    ended: list[str] = []
    run_trials(open_study(search, tmp_path / "trials.db"), search, 2, lambda _, trial: ended.append(trial.state.name))
    assert ended == ["FAIL", "FAIL"]


def test_an_error_of_the_last_trials_ends_a_search_in_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr(Search, "space", lambda self: {"clip_range": (0.1, 0.2)})
    monkeypatch.setattr("poad_sb3.tuning._train", fail)
    monkeypatch.setattr("poad_sb3.tuning.job_executor", lambda n_workers, ray: ThreadPoolExecutor(n_workers))
    search = Search(POAD, "MultiKey-v0", 16)
    study = open_study(search, tmp_path / "trials.db")
    with pytest.raises(RuntimeError, match="boom"):
        run_trials(study, search, 2, lambda *_: None, n_workers=2)
    assert [trial.state.name for trial in ended_trials(study)] == ["FAIL", "FAIL"]


@pytest.mark.process
def test_a_trial_whose_process_is_killed_begins_again_a_few_times_and_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("poad_sb3.distributed.job_executor._RETRIES", 1)
    monkeypatch.setattr("poad_sb3.tuning._train", killed_training)
    monkeypatch.setattr(Search, "space", lambda self: {"clip_range": (0.1, 0.2)})
    monkeypatch.setenv(LOG, str(tmp_path / "log"))
    search = Search(POAD, "MultiKey-v0", 16)
    study = open_study(search, tmp_path / "trials.db")
    for clip_range in (0.1, 0.2):
        study.enqueue_trial({"clip_range": clip_range})
    monkeypatch.setattr("poad_sb3.tuning.job_executor", lambda n_workers, ray: job_executor(n_workers))
    run_trials(study, search, 2, lambda *_: None, ray="auto")  # in one process of this machine
    assert [trial.state.name for trial in ended_trials(study)] == ["FAIL", "COMPLETE"]
    assert "its process ended early 2 times. Fix: see the error above" in study.trials[0].user_attrs["error"]
    assert sorted((tmp_path / "log").read_text().split()) == ["0.1", "0.1", "0.2"]


@pytest.mark.process
def test_a_job_that_ctrl_c_ends_does_not_begin_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("poad_sb3.distributed.job_executor._PAUSE", 60.0)
    executor = job_executor(1)
    answer = executor.submit(wait_to_be_killed, tmp_path / "pid")
    while not ((tmp_path / "pid").exists() or answer.done()):
        time.sleep(0.05)
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)  # Ctrl-C ends the processes first
    time.sleep(1)
    executor.shutdown(wait=False)
    assert isinstance(answer.exception(30), CancelledError)


@pytest.mark.usefixtures("ctrl_c")
def test_a_trial_that_begins_after_an_interrupt_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    main = threading.get_ident()

    class InterruptedExecutor(Executor):
        is_shut = threading.Event()

        def submit(self, *_: Any, **__: Any) -> Any:
            signal.pthread_kill(main, signal.SIGINT)
            self.is_shut.wait(30)
            raise RuntimeError("cannot schedule new futures after shutdown")

        def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
            self.is_shut.set()

    monkeypatch.setattr(Search, "space", lambda self: {"clip_range": (0.1, 0.2)})
    monkeypatch.setattr("poad_sb3.tuning.job_executor", lambda n_workers, ray: InterruptedExecutor())
    search = Search(POAD, "MultiKey-v0", 16)
    study = open_study(search, tmp_path / "trials.db")
    with pytest.raises(KeyboardInterrupt):
        run_trials(study, search, 1, lambda *_: None, ray="auto")
    assert [trial.state.name for trial in study.trials] == ["FAIL", "WAITING"]
    assert ended_trials(study) == []
