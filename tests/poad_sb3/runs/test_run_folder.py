"""The config of a run folder: bad values are refused in one sentence."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from poad_sb3.runs.run_folder import RunConfig, RunError, RunFolder, session

CONFIG = RunConfig(
    env_id="MultiKey-v0", n_envs=2, given={"n_steps": 4}, arguments={"n_steps": 4}, model={"name": "pocket"}, steps=8
)
CONFIG.sessions.append(session(["poad", "train"], 0))
VALUES = asdict(CONFIG)


def folder_with(tmp_path: Path, values: Any) -> RunFolder:
    folder = RunFolder(tmp_path)
    folder.config_file.write_text(values if isinstance(values, str) else json.dumps(values))
    return folder


def test_reads_what_was_written(tmp_path: Path) -> None:
    assert folder_with(tmp_path, VALUES).read_config() == CONFIG
    assert folder_with(tmp_path, {**VALUES, "steps": 8.0}).read_config() == CONFIG


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ({**VALUES, "steps": None}, "steps is null instead of an integer"),
        ({**VALUES, "n_envs": 0}, "n_envs is 0 instead of an integer of at least 1"),
        ({**VALUES, "model": {"name": 1}}, "model.name is 1 instead of a text or null"),
        ({**VALUES, "sessions": [None]}, r"sessions\[0\] is null instead of an object"),
        ({**VALUES, "algorithm": "PPO"}, 'algorithm is "PPO" instead of the name of an algorithm'),
        ({name: value for name, value in VALUES.items() if name != "seed"}, "seed is missing"),
        ({**VALUES, "stpes": 8}, "stpes is 8 instead of no value"),
        ([], r"the whole is \[\] instead of an object"),
        ('{"algo', "Unterminated string"),
        ("[" * 100_000, "recursion"),
    ],
)
def test_names_the_fault_of_a_config(tmp_path: Path, values: Any, fault: str) -> None:
    folder = folder_with(tmp_path, values)
    with pytest.raises(RunError, match=rf"Expected the config of a run in .*config.json; .*{fault}.* Fix: restore it"):
        folder.read_config()
