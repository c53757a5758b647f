"""The commands of `python -m benchmarks`."""

from __future__ import annotations

import pytest
from click.testing import Result
from typer.testing import CliRunner

from benchmarks.app import app
from benchmarks.measurements import MEASUREMENTS
from lang_bench.app import app as lang_bench


def _call(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments, env={"COLUMNS": "200"})


def test_it_has_the_commands_of_lang_bench() -> None:
    names = {command.callback.__name__ for command in lang_bench.registered_commands}
    assert names == {"run", "report", "export", "submit"}
    assert names <= {command.callback.__name__ for command in app.registered_commands}


@pytest.mark.parametrize("name", MEASUREMENTS)
def test_every_measurement_is_a_command_with_help(name: str) -> None:
    assert name in _call("measure").stdout
    result = _call("measure", name, "--help")
    assert result.exit_code == 0, result.output
    assert f"Usage: python -m benchmarks measure {name} [OPTIONS]" in result.stdout


def test_an_unknown_measurement_is_refused_in_one_line() -> None:
    result = _call("measure", "env_score")
    assert result.exit_code == 1
    assert "Expected a measurement; got 'env_score'. Fix: one of demo, env-scores" in result.stderr
    assert result.stderr.count("\n") == 1
