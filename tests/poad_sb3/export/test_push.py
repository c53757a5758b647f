"""`poad export` from end to end, and uploads to a stand-in of the hub by its own client."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from poad_runs import Run
from standins import HubStandIn, Status
from test_export import LAMP_WORDS, SMALL, TRAINING, contents
from toy import make_agent, save_small_model
from typer.testing import CliRunner

import poad_sb3
from poad_sb3 import POAD
from poad_sb3.cli.app import app
from poad_sb3.export.export import export_policy
from poad_sb3.export.folder import MANIFEST

ROOT = Path(poad_sb3.__file__).parents[1]
PUSHES = """
import json, sys, time
from poad_sb3.errors import ExportError
from poad_sb3.export.export import push

time.sleep = lambda seconds: None  # the client waits between its attempts
answers = []
for folder, repository, options in json.loads(sys.argv[1]):
    try:
        answers.append(push(folder, repository, **options))
    except ExportError as error:
        answers.append(str(error))
print(json.dumps(answers))
"""
REPOSITORY = "a-tester/cook"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint in no run's folder. Leave it as it is."""
    path = tmp_path_factory.mktemp("agent") / "agent.zip"
    make_agent(**TRAINING).learn(32).save(path)
    return path


@pytest.fixture(scope="module")
def folder(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export. Leave it as it is."""
    return export_policy(POAD.load(checkpoint), tmp_path_factory.mktemp("export") / "out").folder


def pushed(environment: dict[str, str], *pushes: tuple[Path, str, dict[str, Any]]) -> Sequence[str]:
    """Output of each push, in a child that reaches only the stand-in."""
    arguments = json.dumps([(str(folder), repository, options) for folder, repository, options in pushes])
    command = [sys.executable, "-c", PUSHES, arguments]
    done = subprocess.run(
        command, env={**environment, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=120, check=True
    )
    assert "hf_0123456789" not in done.stdout + done.stderr, "a token is nobody's business"
    lines: list[str] = json.loads(done.stdout)
    assert all(line.count("\n") == 0 for line in lines), "an error is one line"
    return lines


@pytest.mark.process
def test_refusals_of_the_hub_upload_nothing(folder: Path, tmp_path: Path) -> None:
    with HubStandIn(public=["a-tester/open"]) as server:
        mine, wrong, reader = ({"token": token} for token in (server.token, "hf_wrong", server.reader))
        server.fail(Status(500), path="/create")
        server.fail(Status(503, b"maintenance"), path="/preupload/", times=None)
        lines = pushed(
            server.environment(tmp_path, token=""),
            (folder, REPOSITORY, {}),
            (folder, "a-tester/broken", mine),
            (folder, REPOSITORY, wrong),
            (folder, REPOSITORY, reader),
            (folder, "somebody/cook", mine),
            (folder, "a-tester/open", mine),
            (folder, REPOSITORY, mine),
        )
        assert not server.strays
    nobody, broken, denied, read_only, others, is_public, closed = lines
    assert "credentials" in nobody
    assert "Invalid username or password" in denied
    assert "write token" in read_only
    assert "namespace" in others
    assert "500" in broken
    assert "private" in is_public
    assert "503" in closed
    assert set(server.repositories) == {"a-tester/open", "a-tester/broken", REPOSITORY}
    assert not any(repository.files for repository in server.repositories.values())


@pytest.mark.process
def test_only_whole_exports_are_pushed(checkpoint: Path, tmp_path: Path) -> None:
    folder = export_policy(POAD.load(checkpoint), tmp_path / "out").folder
    (folder / "README.md").write_text("A card of my own.")
    with HubStandIn() as server:
        environment = server.environment(tmp_path / "home")
        pushed(environment, (folder, "a-tester/a", {"private": False}))
        assert server.repositories["a-tester/a"].files["README.md"] == b"A card of my own."
        assert not server.repositories["a-tester/a"].private
        n_requests = len(server.requests)
        weights = folder / "adapter_model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
        (tmp_path / "none").mkdir()
        changed, none = pushed(environment, (folder, REPOSITORY, {}), (tmp_path / "none", REPOSITORY, {}))
        assert "adapter_model.safetensors is another. Fix: export again." in changed
        assert f"has no {MANIFEST} that can be read" in none
        assert len(server.requests) == n_requests


# ---------------------------------------------------------------------- the command


@pytest.mark.filterwarnings("ignore:Use 'content=<...>'")  # of the client to its own HTTP library
def test_the_command_exports_and_pushes(run: Run, checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with HubStandIn() as server:
        for name, value in {"ENDPOINT": server.proxy, "HF_HUB_DISABLE_XET": True}.items():
            monkeypatch.setattr(huggingface_hub.constants, name, value)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.setenv("HF_TOKEN", server.token)
        huggingface_hub.close_session()
        done = CliRunner().invoke(app, ["export", str(checkpoint), "adapter", "--push", REPOSITORY])
        assert done.exit_code == 0, done.output
        assert server.repositories[REPOSITORY].files == contents(Path("adapter"))
        assert server.repositories[REPOSITORY].private
        run("export", str(checkpoint), "merged", "--merge", "--push", "a-tester/open", "--public")
        assert server.repositories["a-tester/open"].files == contents(Path("merged"))
        assert not server.repositories["a-tester/open"].private
        monkeypatch.setenv("HF_TOKEN", "hf_wrong")
        output = run("export", str(checkpoint), "third", "--push", REPOSITORY, code=1)
        assert "poad: Expected the hub to take" in output
        assert Path("third", MANIFEST).is_file(), "the local folder is whole all the same"
        huggingface_hub.close_session()


def test_the_command_on_a_run_and_again(run: Run, checkpoint: Path) -> None:
    Path("cook").mkdir()
    Path("cook/latest.zip").write_bytes(checkpoint.read_bytes())
    assert ": 16 tensors, 0.1 MB" in run("export", "cook", "out")
    assert "Expected a new or empty folder" in run("export", "cook", "out", code=1)
    assert ": 39 tensors, 3.7 MB" in run("export", "cook", "out", "--merge", "--overwrite")
    assert "has no poad_export.json" in run("export", "cook", "cook", "--overwrite", code=1)
    assert Path("cook/latest.zip").read_bytes() == checkpoint.read_bytes()


def test_the_command_finds_a_model_that_has_moved(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)  # a folder that is gone might be an id
    save_small_model(Path("base"), words=LAMP_WORDS.split())
    make_agent(policy_kwargs={**SMALL, "model": "base", "lora": {"r": 2}}).save("agent.zip")
    Path("base").rename("moved")
    assert "'base'" in run("export", "agent.zip", "out", code=1)
    run("export", "agent.zip", "out", "--set", "policy_kwargs.model=moved")
    config = json.loads(Path("out/adapter_config.json").read_text())
    assert (config["base_model_name_or_path"], config["r"]) == (str(Path("moved").resolve()), 2)
    output = run("export", "agent.zip", "other", "--set", "policy_kwargs.model=pocket", code=1)
    assert "shapes" in output or "Expected the base model the checkpoint was written with" in output or "size" in output
    assert not Path("other").exists()


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (("nowhere", "out"), "There is no checkpoint nowhere"),
        (("cut.zip", "out"), "is truncated or corrupt"),
        (("agent.zip", "out", "--public"), "Expected --push USER/REPO with --public"),
        (("agent.zip", "agent.zip"), "agent.zip is a file. Fix: choose another name"),
    ],
)
def test_refusals_of_the_command(run: Run, checkpoint: Path, arguments: tuple[str, ...], match: str) -> None:
    Path("agent.zip").write_bytes(checkpoint.read_bytes())
    Path("cut.zip").write_bytes(checkpoint.read_bytes()[:1000])
    assert match in run("export", *arguments, code=1)
    assert not Path("out").exists()
