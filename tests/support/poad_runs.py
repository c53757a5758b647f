"""Short runs of the command `poad`, in process."""

from __future__ import annotations

from collections.abc import Callable

from typer.testing import CliRunner

from poad_sb3.cli.app import app

ENV_ID = "Overcooked-TomatoSalad-v0"
N = 16
SMALL = ("--set", f"n_steps={N}", "--set", "batch_size=8", "--set", "n_epochs=1", "--set", "n_critic_epochs=1",
         "--set", "policy_kwargs.critic_arch=[8]", "--record-episodes", "1")  # fmt: skip
Run = Callable[..., str]


def invoke(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == code, (result.output, result.exception)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    if code == 1:
        assert result.stderr.startswith("poad: ")
        assert result.stderr.count("\n") == 1, "an error is one line"
    return result.output
