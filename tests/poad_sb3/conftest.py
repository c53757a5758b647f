from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
import torch
from known_checks import every_check, known_checks  # noqa: F401
from poad_runs import Run, invoke
from toy import randomise
from zoo import save

from poad_sb3.distributed.ray_cluster import RayConnection
from poad_sb3.language_model.language_model import LanguageModel

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def lm() -> LanguageModel:
    """The pocket model with an adapter that does something. Leave it as it is."""
    model = LanguageModel()
    randomise(model)
    return model


@pytest.fixture(scope="session")
def zoo_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a model of the zoo, by name; made when it is first asked for. Leave it as it is."""
    root = tmp_path_factory.mktemp("zoo")

    @cache
    def make(name: str) -> Path:
        save(root / name, name)
        return root / name

    return make


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command in an empty folder; expects an exit code."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return invoke


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayConnection]:
    """One cluster for the rows of a file; its end is looked at in `test_ray_processes.py`.

    Not one of the session: it has its token in the environment, which drivers of other files must start without.
    """
    connection = RayConnection()
    yield connection
    connection.close()
