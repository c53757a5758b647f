"""Lines about the state of a training, where stdout is no terminal."""

from __future__ import annotations

import io
import re
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from poad_sb3.cli import app as commands
from poad_sb3.cli.progress import ProgressLines


def model(part: str | None, steps: int, rewards: tuple[float, ...]) -> Any:
    episodes = deque({"r": reward} for reward in rewards)
    return SimpleNamespace(num_timesteps=steps, ep_info_buffer=episodes, stopwatch=SimpleNamespace(part=part))


def test_a_line_has_phase_steps_mean_reward_and_time_left() -> None:
    with ProgressLines() as progress:
        watched = model("acting", 1_000, ())
        progress.watch(watched, 11_000)
        assert re.fullmatch(r"\[\d+ s\] rollout, 1,000 of 11,000 steps, no episode has ended", progress.line())
        watched.num_timesteps, watched.stopwatch.part = 6_000, "update"
        watched.ep_info_buffer.extend(({"r": 0.5}, {"r": 1.0}))
        progress._learning_since -= 100  # as if it had begun then: 5,000 steps in 100 s
        line = progress.line()
        watched.num_timesteps = 11_000
        assert progress.line().endswith("mean reward 0.750")  # in the last update nothing is known of the time left
    assert re.fullmatch(r"\[\d+ s\] update, 6,000 of 11,000 steps, mean reward 0\.750, 1 min 40 s left", line)


def test_a_reader_that_has_gone_ends_the_lines_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    stream.close()
    monkeypatch.setattr("sys.stdout", SimpleNamespace(isatty=lambda: False, write=stream.write, flush=stream.flush))
    with ProgressLines(period=0.01) as progress:
        assert progress._thread is not None
        progress._thread.join(30)
        assert not progress._thread.is_alive()


def test_a_terminal_gets_no_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    stream.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr("sys.stdout", stream)
    with ProgressLines(period=0.01):
        pass
    assert stream.getvalue() == ""


def test_the_first_line_comes_before_torch_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow_import() -> None:
        commands.fail("torch is loaded now")

    monkeypatch.setattr(commands, "require_llm", slow_import)
    result = CliRunner().invoke(commands.app, ["train", "KeyToken-v0"])
    assert result.stdout.startswith("[0 s] loading packages\n")


def test_a_run_prints_its_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "ProgressLines", lambda: ProgressLines(period=0.001))
    arguments = ["train", "KeyToken-v0", "--steps", "32", "--set", "n_steps=16", "--out", str(tmp_path / "run")]
    lines = CliRunner().invoke(commands.app, arguments).stdout
    for phase in ("loading packages", "loading the model", "rollout, ", "update, "):
        assert phase in lines
    assert re.search(r"rollout, \d+ of 32 steps, mean reward ", lines)
