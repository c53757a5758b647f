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


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ({**VALUES, "algorithm": "PPO"}, "there is no algorithm 'PPO'"),
        ({**VALUES, "stpes": 8}, "unexpected keyword argument 'stpes'"),
        ([], "must be a mapping, not list"),
        ('{"algo', "Unterminated string"),
        ("[" * 100_000, "recursion"),
    ],
)
def test_names_the_fault_of_a_config(tmp_path: Path, values: Any, fault: str) -> None:
    folder = folder_with(tmp_path, values)
    with pytest.raises(RunError, match=rf"Expected the config of a run in .*config.json; .*{fault}.* Fix: restore it"):
        folder.read_config()
