"""`lang-envs data`, and the messages and requests of `gym.make` without a table."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from fake_tables import (
    contents,
    install_flights,
    install_tumours,
    throats,
    tumour_arrays,
    tumours,
    use,
)
from standins import OpenmlStandIn, Slow
from standins.openml import parquet_of
from typer.testing import CliRunner

from lang_envs.cli.app import app
from lang_envs.datasets import BUNDLED, DATASETS, errors, fetching, store
from lang_envs.datasets.manifest import MANIFEST_NAMES, Manifest

pytest.importorskip("pandas", reason="the extra data is not installed")
pytest.importorskip("pyarrow", reason="the extra data is not installed")

CLI = [sys.executable, "-c", "from lang_envs.cli import main; main()", "data"]
Run = Callable[..., str]


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LANG_ENVS_DATA", str(tmp_path / "data"))
    monkeypatch.delenv("LANG_ENVS_OFFLINE", raising=False)
    return tmp_path / "data"


@pytest.fixture
def run() -> Run:
    """Runs a command of `lang-envs data`, expects an exit code, and gives its output as one line."""

    def run(*arguments: str, code: int = 0) -> str:
        result = CliRunner().invoke(app, ["data", *arguments])
        assert result.exit_code == code, result.output
        assert result.exception is None or isinstance(result.exception, SystemExit)
        return " ".join(result.output.split())

    return run


@pytest.fixture
def openml(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenmlStandIn]:
    with OpenmlStandIn({15: tumours()}) as server:
        use(monkeypatch, server.environment(tmp_path / "home"), data)
        yield server


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any network request fails."""

    def fail(*arguments: Any, **options: Any) -> None:
        raise AssertionError("somebody asked")

    monkeypatch.setattr(fetching, "is_reachable", fail)
    monkeypatch.setattr(fetching, "fetch", fail)


# ---------------------------------------------------------------------- list


@pytest.mark.usefixtures("no_network")
def test_list(run: Run, data: Path, tmp_path: Path) -> None:
    receipt = install_tumours(tmp_path)
    table = run("list")
    assert table.startswith(f"tables in {data}, a folder each")
    assert [name for name in table.split() if name in DATASETS][: len(DATASETS)] == [*MANIFEST_NAMES, *BUNDLED]
    assert f"breast-w OpenML 15 69 2 yes recorded {receipt.sha256[:6]} Public" in table
    assert "pharyngitis Kaggle 512 2 no see below" in table


# ---------------------------------------------------------------------- fetch


@pytest.mark.parametrize("command", ["fetch", "path"])
def test_an_unknown_name(command: str, run: Run) -> None:
    assert run(command, "titanic", code=1) == (
        "lang-envs: There is no table 'titanic'. Did you mean spaceship-titanic?"
    )
    message = run(command, "qqq", code=1)
    assert message == f"lang-envs: There is no table 'qqq'. Expected one of {', '.join(DATASETS)}."


def test_fetch_shows_what_came(openml: OpenmlStandIn, data: Path, run: Run) -> None:
    shown = run("fetch", "breast-w")
    body = parquet_of(tumours())
    digest = store.array_digest(*tumour_arrays(tumours()))
    assert f"{len(body):,} bytes; OpenML)" in shown
    assert store.file_digest(data / "breast-w" / "breast-w.pq") in shown
    assert "(unverified: nobody could compute its SHA-256 before)" in shown
    assert f"default arrays {digest} (unverified) published arrays {digest} (unverified) licence Public" in shown
    assert run("fetch", "breast-w") == shown.replace("breast-w", "breast-w: already here, nothing fetched", 1)
    assert len(openml.requests) == 2


def test_one_that_fails_does_not_keep_others_from_being_fetched(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    receipt = install_tumours(tmp_path)
    problems = {"airlines": errors.TimedOutError("too slow"), "pharyngitis": errors.ForbiddenError("no")}

    def fetch(wanted: Manifest, **options: Any) -> store.Receipt:
        if wanted.name in problems:
            raise problems[wanted.name]
        return receipt

    monkeypatch.setattr(fetching, "fetch", fetch)
    result = CliRunner().invoke(app, ["data", "fetch", "wine", "airlines", "breast-w", "pharyngitis", "breast-w"])
    assert result.exit_code == 6, "that of the first"
    assert result.stderr.splitlines() == ["lang-envs: too slow", "lang-envs: no"]
    lines = [line for line in result.stdout.splitlines() if not line.startswith("  ")]
    assert lines == ["wine: comes with the package, nothing to fetch", "breast-w: already here, nothing fetched"]


def test_fetch_takes_a_file_of_the_user(run: Run, data: Path, tmp_path: Path) -> None:
    path, table = tmp_path / "my file.csv", tumours()
    table.to_csv(path, index=False)
    shown = run("fetch", "breast-w", "--from", str(path))
    assert f"default arrays {store.array_digest(*tumour_arrays(table))} (unverified)" in shown
    assert "bytes; by hand)" in shown
    assert contents(data)["breast-w/breast-w.csv"] == path.read_bytes()
    assert path.is_file(), "the user's file stays"


def zipped(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name.replace("__", "."), content)
    return path


def test_fetch_from_an_archive(run: Run, data: Path, tmp_path: Path) -> None:
    """Kaggle's pages give one; its content is checked like a single file."""
    table = tmp_path / "archive.zip"
    message = run("fetch", "pharyngitis", "--from", str(zipped(table, **{"d/pharyngitis.csv": throats()})), code=8)
    assert "a file with SHA-256 dcb6258299ad1b75; got " in message
    message = run("fetch", "pharyngitis", "--from", str(zipped(table, other__csv=b"1", readme=b"2")), code=3)
    assert (
        "Expected one file 'pharyngitis.csv' in the archive from Kaggle; it holds other.csv, readme. Fix: see"
        in message
    )
    table.write_bytes(b"PK\x03\x04 but no more")
    message = run("fetch", "pharyngitis", "--from", str(table), code=8)
    assert f"Expected an archive from Kaggle; got a damaged one, or none ({table.stat().st_size} bytes)" in message
    assert not (data / "pharyngitis").exists()
    assert table.is_file()


@pytest.mark.process
@pytest.mark.usefixtures("ctrl_c")
def test_an_interrupted_fetch(openml: OpenmlStandIn, data: Path, run: Run) -> None:
    openml.fail(Slow(20_000), path=".pq")
    process = subprocess.Popen([*CLI, "fetch", "breast-w"], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 30
    while not list((data / ".partial").glob("breast-w/*.pq")):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, message = process.communicate(timeout=10)
    assert (process.returncode, message) == (1, "lang-envs: stopped; nothing was kept.\n")
    assert contents(data) == {}


# ---------------------------------------------------------------------- verify and path


@pytest.mark.usefixtures("no_network")
def test_verify(run: Run, data: Path, tmp_path: Path) -> None:
    assert run("verify") == f"no tables in {data}"
    assert "Expected the breast-w table in " in run("verify", "breast-w", code=1)
    assert run("verify", "wine") == "wine: made or brought by a package; its digest is tested"
    receipt = install_tumours(tmp_path)
    for arguments in ([], ["breast-w"]):
        shown = run("verify", *arguments)
        assert receipt.sha256 in shown
        assert f"default arrays {receipt.recipes['default'].digest} (unverified)" in shown
    file = data / "breast-w" / receipt.file
    file.write_bytes(file.read_bytes()[:-1])
    assert "got a damaged file (SHA-256 " in run("verify", code=8)
    file.unlink()
    assert f"Expected 'breast-w.parquet' in {data}/breast-w, to compare with" in run("verify", code=1)


@pytest.mark.usefixtures("no_network")
def test_path(run: Run, data: Path, tmp_path: Path) -> None:
    assert f"airlines is not in {data}/airlines. Fix: `lang-envs data fetch airlines`" in run(
        "path", "airlines", code=1
    )
    assert "iris has no file" in run("path", "iris", code=1)
    install_flights(tmp_path)
    file = data / "airlines" / "airlines.parquet"
    assert run("path", "airlines") == str(file)
    file.unlink()
    assert "only the arrays that were made of it are there" in run("path", "airlines", code=1)
    (data / "airlines" / "arrays.npz").write_bytes(b"")
    assert "what is there is damaged" in run("path", "airlines", code=1)


# ---------------------------------------------------------------------- gym.make without the table


@pytest.mark.parametrize("offline", [False, True])
def test_make_names_the_fixes_without_a_network(data: Path, monkeypatch: pytest.MonkeyPatch, offline: bool) -> None:
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "")
    if offline:
        monkeypatch.setenv("LANG_ENVS_OFFLINE", "1")
        monkeypatch.setattr(fetching, "is_reachable", None)
    with pytest.raises(errors.DataMissingError) as caught:
        gym.make("DataSciCoding-airlines-v0", data="real")
    problem, *fixes = str(caught.value).splitlines()
    reason = "LANG_ENVS_OFFLINE is set" if offline else "OpenML cannot be reached from here"
    assert problem == f"Expected the airlines table in {data}/airlines; it is not there, and {reason}. Fix, one of:"
    assert len(fixes) == 3
    assert not data.exists()


def test_make_fetches_by_itself(openml: OpenmlStandIn, data: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        env = gym.make("DataSciCoding-breast-w-v0", data="real")
        gym.make("DataSciCoding-breast-w-v0", data="real", preprocessing="published").close()
    assert [record.getMessage() for record in caplog.records if record.name.startswith("lang_envs")] == [
        f"Fetching the breast-w table from https://www.openml.org/d/15 into {data}/breast-w ..."
    ]
    assert np.array_equal(env.unwrapped.dataset.x, tumour_arrays(tumours())[0])
    assert [request.method for request in openml.requests] == ["HEAD", "GET", "GET"]
    assert openml.strays == []
