"""Models by id and revision, loaded by the hub's own client from a stand-in of the hub."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from poad_runs import ENV_ID, SMALL, N
from safetensors.torch import load_file, save_file
from standins import ModelHubStandIn, Request, StoredModel

import poad_sb3
from poad_sb3.language_model.language_model import LanguageModel

pytestmark = pytest.mark.process

ROOT = Path(poad_sb3.__file__).parents[1]
WORKER = """
import io, json, sys, time
from dataclasses import asdict

import huggingface_hub, transformers
from typer.testing import CliRunner

from poad_sb3 import POAD
from poad_sb3.cli.app import app
from poad_sb3.errors import ModelError
from poad_sb3.runs.run_folder import describe_model

asked, sys.stdin = sys.stdin, io.StringIO("y\\n" * 99)  # who asks whether to run code is told yes
waited = []
time.sleep = waited.append  # the client waits between its attempts
transformers.logging.set_verbosity_error()
huggingface_hub.logging.set_verbosity_error()


def load(policy_kwargs):
    try:
        model = POAD("LLMPolicy", "Overcooked-TomatoSalad-v0", policy_kwargs={"critic_arch": [8], **policy_kwargs})
    except ModelError as error:
        return {"error": str(error)}
    return describe_model(model)


def poad(arguments):
    result = CliRunner().invoke(app, arguments)
    return {"code": result.exit_code, "output": result.output, "stderr": result.stderr}


for line in asked:
    what, argument = json.loads(line)
    waited.clear()
    answer = {"load": load, "poad": poad}[what](argument)
    print(json.dumps({**answer, "waited": sum(waited)}), flush=True)
"""


class Worker:
    """A child that reaches only the stand-in, and obeys commands."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", WORKER],
            env={**environment, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def _tell(self, what: str, argument: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([what, argument]), file=self._process.stdin, flush=True)
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def load(self, model: str, revision: str | None = None) -> dict[str, Any]:
        """Return the result of `describe_model` for it."""
        answer = self._tell("load", {"model": model, "revision": revision})
        assert "error" not in answer, answer["error"]
        return answer

    def refusal(self, model: str, revision: str | None = None) -> dict[str, Any]:
        """The error (a `ModelError` of one line), and the seconds that the client waited before it."""
        answer = self._tell("load", {"model": model, "revision": revision})
        assert "could not be loaded" in answer["error"]
        return answer

    def poad(self, *arguments: str) -> dict[str, Any]:
        """Exit code and output of a command."""
        return self._tell("poad", arguments)

    def close(self) -> None:
        """End it."""
        self._process.communicate(timeout=60)


@pytest.fixture(scope="module")
def server() -> Iterator[ModelHubStandIn]:
    """The hub. Each test has repositories of its own there."""
    with ModelHubStandIn() as hub:
        yield hub
        assert not hub.strays
        assert not any("authorization" in request.headers for request in hub.requests if request.host == hub.storage)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the worker has its cache of the hub."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def workers(server: ModelHubStandIn, home: Path) -> Iterator[dict[str, Worker]]:
    """Two with one cache, without a login. Their imports take some seconds."""
    usual = server.environment(home, token="")
    others = {"online": {}, "offline": {"HF_HUB_OFFLINE": "1"}}
    started = {name: Worker({**usual, **variables}) for name, variables in others.items()}
    yield started
    for worker in started.values():
        worker.close()


@pytest.fixture(scope="module")
def worker(workers: dict[str, Worker]) -> Worker:
    """The one that reaches the hub."""
    return workers["online"]


@pytest.fixture(scope="module")
def folders(zoo_folder: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A tiny model, and the same with other weights. Leave them as they are."""
    old, new = zoo_folder("llama3"), tmp_path_factory.mktemp("models") / "new"
    new.mkdir()
    for path in old.iterdir():
        (new / path.name).write_bytes(path.read_bytes())
    weights = load_file(new / "model.safetensors")
    save_file({name: 1.01 * tensor for name, tensor in weights.items()}, new / "model.safetensors", {"format": "pt"})
    return old, new


def fingerprint(folder: Path) -> str:
    return LanguageModel(str(folder)).fingerprint


def files(requests: Sequence[Request]) -> list[str]:
    """Requested files."""
    return [request.path for request in requests if "/resolve/" in request.path or request.path.count("/") == 1]


# ---------------------------------------------------------------------- loaded models


def test_a_branch_that_moves_in_mid_load_gives_one_commit(
    server: ModelHubStandIn, worker: Worker, folders: tuple[Path, Path]
) -> None:
    """Model and tokenizer are of one commit."""
    first = server.put("user/moving", folders[0], "main")
    server.when("/model.safetensors", lambda: server.put("user/moving", folders[1], "main"))
    model = worker.load("user/moving")
    assert (model["commit"], model["fingerprint"]) == (first, fingerprint(folders[0]))
    paths = [request.path for request in server.requests if request.path.startswith("/user/moving/resolve/")]
    assert any(path.endswith("/tokenizer.json") for path in paths)
    assert all(first in path for path in paths)


def test_cached_models_load_without_a_download(
    server: ModelHubStandIn, worker: Worker, workers: dict[str, Worker], folders: tuple[Path, Path]
) -> None:
    commit = server.put("user/kept", folders[0], "v1")
    first = worker.load("user/kept", "v1")
    before = len(server.requests)
    again = worker.load("user/kept", "v1")
    later = server.requests[before:]
    assert later
    assert not files(later)
    assert all(request.path.startswith("/api/models/user/kept/") for request in later)
    before = len(server.requests)
    offline = workers["offline"]
    kept = offline.load("user/kept", "v1")
    assert len({(model["commit"], model["fingerprint"]) for model in (first, again, kept)}) == 1
    assert first["commit"] == commit
    assert "RevisionResolutionError" in offline.refusal("user/kept", "v2")["error"]
    assert offline.refusal("user/not-kept")["waited"] == 0
    assert len(server.requests) == before
    assert "Invalid username or password" in worker.refusal("user/none")["error"]


# ---------------------------------------------------------------------- files that would be code


class _Touch:
    """Code that a pickle of weights can run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_nothing_of_a_repository_is_executed(
    server: ModelHubStandIn, worker: Worker, folders: tuple[Path, Path], tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    code = f"open({str(ran)!r}, 'w').close()\nfrom transformers import *\n".encode()
    files = {path.name: path.read_bytes() for path in folders[0].iterdir()}
    classes = {"AutoConfig": "code.Config", "AutoModelForCausalLM": "code.Model"}
    config = {**json.loads(files["config.json"]), "auto_map": classes}
    tokenizer = {**json.loads(files["tokenizer_config.json"]), "auto_map": {"AutoTokenizer": ["code.Tokenizer", None]}}
    files |= {"code.py": code, "tokenizer_config.json": json.dumps(tokenizer).encode()}
    for name, kind in (("user/known", "llama"), ("user/unknown", "of-their-own")):
        changed = {**files, "config.json": json.dumps({**config, "model_type": kind}).encode()}
        server.models[name] = StoredModel()
        server.models[name].commit(changed, "main")
    assert worker.load("user/known")["fingerprint"] == fingerprint(folders[0]), "the classes of transformers will do"
    refused = worker.refusal("user/unknown")["error"]
    assert "contains custom code" in refused
    assert "Fix: load it in a function, model=make, where trust_remote_code says" in refused
    assert not any(request.path.endswith("code.py") for request in server.requests)
    assert not ran.exists()


def test_pickled_weights_are_not_executed(
    server: ModelHubStandIn, worker: Worker, folders: tuple[Path, Path], tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    torch.save({"lm_head.weight": _Touch(ran)}, tmp_path / "weights", pickle_module=pickle)
    files = {path.name: path.read_bytes() for path in folders[0].iterdir() if path.name != "model.safetensors"}
    server.models["user/pickled"] = StoredModel()
    server.models["user/pickled"].commit({**files, "pytorch_model.bin": (tmp_path / "weights").read_bytes()}, "main")
    assert "Weights only load failed" in worker.refusal("user/pickled")["error"]
    assert not ran.exists()


# ---------------------------------------------------------------------- runs


def test_a_run_resumes_with_the_weights_of_its_commit_only(
    server: ModelHubStandIn, worker: Worker, folders: tuple[Path, Path], tmp_path: Path
) -> None:
    commit = server.put("user/cook", folders[0], "v1", "main")
    for revision in ("v1", "main"):
        out = str(tmp_path / revision)
        model = ("--set", "policy_kwargs.model=user/cook", "--set", f"policy_kwargs.revision={revision}")
        done = worker.poad("train", ENV_ID, "--steps", str(N), "--seed", "0", *SMALL, *model, "--out", out)
        assert done["code"] == 0, done
        recorded = json.loads((tmp_path / revision / "config.json").read_text())["model"]
        about = {"name": "user/cook", "revision": revision, "commit": commit}
        assert recorded == {**about, "fingerprint": fingerprint(folders[0])}
    server.put("user/cook", folders[1], "main")
    goes_on = worker.poad("train", "--resume", "--out", str(tmp_path / "v1"), "--steps", str(2 * N))
    assert goes_on["code"] == 0, goes_on
    before = (tmp_path / "main" / "latest.zip").read_bytes()
    refused = worker.poad("train", "--resume", "--out", str(tmp_path / "main"), "--steps", str(2 * N))
    assert refused["code"] == 1
    assert "fingerprint" in refused["stderr"]
    assert (tmp_path / "main" / "latest.zip").read_bytes() == before
