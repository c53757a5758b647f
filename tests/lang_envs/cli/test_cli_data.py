"""`lang-envs data`, and the messages and requests of `gym.make` without a table."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import logging
import signal
import socket
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
    throats_manifest,
    tumour_arrays,
    tumours,
    use,
)
from standins import OpenmlStandIn, Slow
from standins.openml import parquet_of
from typer.testing import CliRunner

from lang_envs.cli.app import app
from lang_envs.datasets import BUNDLED, DATASETS, errors, fetching, store
from lang_envs.datasets.manifest import MANIFEST_NAMES, Manifest, manifest

pd = pytest.importorskip("pandas", reason="the extra data is not installed")
pytest.importorskip("pyarrow", reason="the extra data is not installed")
needs_openml = pytest.mark.skipif(importlib.util.find_spec("openml") is None, reason="openml is not installed")

TUMOURS = manifest("breast-w")
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


def listed(*arguments: str) -> tuple[str, dict[str, list[str]], dict[str, str]]:
    """Of `lang-envs data list`: its title, the cells of every row, and the notes below, by the name of the table."""
    result = CliRunner().invoke(app, ["data", *arguments])
    assert result.exit_code == 0, result.output
    table, notes, _ = (part.splitlines() for part in result.stdout.split("\n\n"))
    assert all(len(line) <= 80 for line in table[1:])
    names = ["name", "source", "rows", "classes", "here", "verified", "licence"]
    assert table[1].split() == names
    starts = [table[1].index(name) for name in names]
    starts[2] -= 1  # numbers end where their heading does
    rows = [
        [line[start:end].strip() for start, end in zip(starts, [*starts[1:], None], strict=True)] for line in table[2:]
    ]
    return table[0], {row[0]: row[1:] for row in rows}, dict(note.split(": ", 1) for note in notes)


def test_the_list_says_which_labels_can_be_known(data: Path) -> None:
    known = CliRunner().invoke(app, ["data"]).stdout.split("\n\n")[-1].strip()
    assert known == (
        "memorizable: labels that a program can hold without learning, given by a formula: balance-scale, "
        "balance-scale-full; bundled with scikit-learn: wine, iris, breast-cancer, digits; public on OpenML: airlines, "
        "breast-w; public on Kaggle: health-insurance, pharyngitis, spaceship-titanic. DataSciCoding-generated-v0 has "
        "a new table in every episode."
    )
    assert all(name in known for name in DATASETS)


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("arguments", [(), ("list",)])
def test_list(arguments: tuple[str, ...], data: Path, tmp_path: Path) -> None:
    install_flights(tmp_path)
    receipt = install_tumours(tmp_path)
    title, rows, notes = listed(*arguments)
    assert title == f"tables in {data}, a folder each"
    assert list(rows) == [*MANIFEST_NAMES, *BUNDLED], "those first that have to be fetched"
    for name in BUNDLED:
        row = DATASETS[name]
        source = "scikit-learn" if name in ("wine", "iris", "breast-cancer", "digits") else "generated"
        licence = "BSD-3" if source == "scikit-learn" else "MIT"
        assert rows[name] == [source, f"{row.shape[0]:,}", str(row.classes), "yes", "yes", licence]
    sha256 = store.file_digest(data / "airlines" / "airlines.parquet")
    assert {name: rows[name] for name in MANIFEST_NAMES} == {
        "airlines": ["OpenML 1169", "2,000", "2", "yes", f"recorded {sha256[:6]}", "Public"],
        "breast-w": ["OpenML 15", "69", "2", "yes", f"recorded {receipt.sha256[:6]}", "Public"],
        "health-insurance": ["Kaggle", "2,000", "2", "no", "", "see below"],
        "pharyngitis": ["Kaggle", "512", "2", "no", "", "see below"],
        "spaceship-titanic": ["Kaggle", "2,000", "2", "no", "", "see below"],
    }
    assert list(notes) == list(MANIFEST_NAMES)
    throat = manifest("pharyngitis")
    assert notes["pharyngitis"] == f"512 of 676 rows. Licence: {throat.licence}. {throat.page}"
    assert notes["airlines"] == (
        "2,000 of 539,383 rows. Licence: Public, as OpenML states. https://www.openml.org/d/1169"
    )


def test_list_of_a_verified_and_a_damaged_table(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    csv = tmp_path / "t.csv"
    csv.write_bytes(throats())
    known = throats_manifest(throats())
    store.install(known, csv, store.Origin("by hand", "CC0: Public Domain\x1b[2J"))
    assert listed()[1]["pharyngitis"][3:] == ["damaged", "", "see below"], "arrays that the manifest does not know"
    monkeypatch.setitem(DATASETS, "pharyngitis", DATASETS["pharyngitis"]._replace(manifest=known))
    _, rows, notes = listed()
    assert rows["pharyngitis"][3:] == ["yes", "yes", "see below"]
    assert notes["pharyngitis"] == (
        f"300 of 300 rows. Licence: CC0: Public Domain\\x1b[2J, as Kaggle states. {known.page}"
    )
    for content in (b"", b"no archive"):
        (data / "pharyngitis" / "arrays.npz").write_bytes(content)
        install_tumours(tmp_path)
        _, rows, _ = listed()
        assert rows["pharyngitis"][3:] == ["damaged", "", "see below"]
        assert rows["breast-w"][4].startswith("recorded "), "beside which the list is as narrow"


# ---------------------------------------------------------------------- fetch


def test_fetch_of_what_is_always_here(run: Run, data: Path) -> None:
    assert run("fetch", "wine", "balance-scale") == (
        "wine: comes with the package, nothing to fetch balance-scale: comes with the package, nothing to fetch"
    )
    assert not data.exists()


@pytest.mark.parametrize("command", ["fetch", "verify", "path"])
def test_an_unknown_name(command: str, run: Run) -> None:
    assert run(command, "titanic", code=1) == (
        "lang-envs: There is no table 'titanic'. Did you mean spaceship-titanic?"
    )
    told = run(command, "qqq", code=1)
    assert told == f"lang-envs: There is no table 'qqq'. Expected one of {', '.join(DATASETS)}."


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("command", ["fetch", "verify"])
def test_every_name_is_looked_at_before_anything_is_done(command: str, run: Run, data: Path) -> None:
    told = run(command, "airlines", "wine", "pharingitis", code=1)
    assert told == "lang-envs: There is no table 'pharingitis'. Did you mean pharyngitis?"
    assert not data.exists()


def test_fetch_needs_a_name(run: Run) -> None:
    assert "Missing argument 'NAME...'" in run("fetch", code=2)


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


def test_fetch_all(monkeypatch: pytest.MonkeyPatch, run: Run, tmp_path: Path) -> None:
    receipt = install_tumours(tmp_path)
    fetched = []

    def fetch(wanted: Manifest, *, force: bool, timeout: float, watch: fetching.Watch) -> store.Receipt:
        fetched.append((wanted.name, force, timeout))
        watch(fetching.Progress("waiting", detail="another process is fetching it"))
        watch(fetching.Progress("fetching", 5, 10))
        return receipt

    monkeypatch.setattr(fetching, "fetch", fetch)
    shown = run("fetch", "all", "--force", "--timeout", "2.5")
    assert fetched == [(name, True, 2.5) for name in MANIFEST_NAMES]
    assert [word for word in shown.split() if word in MANIFEST_NAMES] == list(MANIFEST_NAMES)


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
    told = [line for line in result.stdout.splitlines() if not line.startswith("  ")]
    assert told == ["wine: comes with the package, nothing to fetch", "breast-w: already here, nothing fetched"]


def test_long_values_are_not_broken(run: Run, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = data / ("d" * 200)
    monkeypatch.setenv("LANG_ENVS_DATA", str(deep))
    receipt = install_tumours(tmp_path)
    lines = CliRunner().invoke(app, ["data", "verify"]).stdout.splitlines()
    assert lines[:3] == [
        "breast-w",
        f"  file              {deep}/breast-w/breast-w.parquet ({receipt.size:,} bytes; a test)",
        f"  SHA-256           {receipt.sha256} (unverified: nobody could compute its SHA-256 before)",
    ]
    assert lines[-1] == "  licence           Public, as OpenML states"
    assert f"tables in {deep}, a folder each\n" in CliRunner().invoke(app, ["data"]).stdout


def test_what_is_odd_about_a_file_is_told(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    tumours().rename(columns={"Mitoses": "Mitosen"}).to_csv(path, index=False)
    receipt = store.install(TUMOURS, path, store.Origin("a test"))
    assert "mitosen" in receipt.remark
    assert f"remark {receipt.remark}" in run("verify")


@pytest.mark.parametrize("seconds", ["0", "86401", "nan"])
def test_a_timeout_out_of_range(seconds: str, run: Run) -> None:
    assert "Invalid value for '--timeout'" in run("fetch", "airlines", "--timeout", seconds, code=2)


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".arff"])
def test_fetch_from_a_file(suffix: str, run: Run, data: Path, tmp_path: Path) -> None:
    from standins.openml import arff_of

    path, table = tmp_path / f"my file{suffix}", tumours()
    if suffix == ".csv":
        table.to_csv(path, index=False)
    else:
        path.write_bytes(parquet_of(table) if suffix == ".parquet" else arff_of(table, "t"))
    shown = run("fetch", "breast-w", "--from", str(path))
    assert f"default arrays {store.array_digest(*tumour_arrays(table))} (unverified)" in shown
    assert "bytes; by hand)" in shown
    assert contents(data)[f"breast-w/breast-w{suffix}"] == path.read_bytes()
    assert path.is_file(), "the user's file stays"
    receipt = store.read_receipt("breast-w")
    assert receipt is not None
    assert (receipt.origin, receipt.file) == (store.Origin("by hand"), f"breast-w{suffix}")


def zipped(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name.replace("__", "."), content)
    return path


def test_fetch_from_a_file_that_is_another(run: Run, data: Path, tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_bytes(throats())
    told = run("fetch", "pharyngitis", "--from", str(tmp_path / "p.csv"), code=8)
    assert "Expected of the pharyngitis table a file with SHA-256 dcb6258299ad1b75; got " in told
    assert "gym.make(\"DataSciCoding-v0\", table=..., target='radt')" in told
    assert contents(data) == {}
    told = run("fetch", "breast-w", "--from", str(tmp_path / "p.csv"), code=8)
    assert "Expected 699 rows and 10 columns in breast-w.arff; got 300 rows and 20 columns." in told
    (tmp_path / "p.txt").write_bytes(throats())
    told = run("fetch", "breast-w", "--from", str(tmp_path / "p.txt"), code=8)
    assert "Expected a file that ends in .csv, .parquet, .pq, .arff; got " in told
    assert contents(data) == {}


def test_fetch_from_an_archive(run: Run, data: Path, tmp_path: Path) -> None:
    """Kaggle's pages give one; its content is checked like a single file."""
    table = tmp_path / "archive.zip"
    told = run("fetch", "pharyngitis", "--from", str(zipped(table, **{"d/pharyngitis.csv": throats()})), code=8)
    assert "a file with SHA-256 dcb6258299ad1b75; got " in told
    told = run("fetch", "pharyngitis", "--from", str(zipped(table, other__csv=b"1", readme=b"2")), code=3)
    assert (
        "Expected one file 'pharyngitis.csv' in the archive from Kaggle; it holds other.csv, readme. Fix: see" in told
    )
    table.write_bytes(b"PK\x03\x04 but no more")
    told = run("fetch", "pharyngitis", "--from", str(table), code=8)
    assert f"Expected an archive from Kaggle; got a damaged one, or none ({table.stat().st_size} bytes)" in told
    assert not (data / "pharyngitis").exists()
    assert table.is_file()


def test_a_refused_archive_leaves_nothing(run: Run, data: Path, tmp_path: Path) -> None:
    run("fetch", "pharyngitis", "--from", str(zipped(tmp_path / "a.zip", pharyngitis__csv=throats())), code=8)
    assert contents(data) == {}


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_fetch_from_a_damaged_archive(compression: int, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "archive.zip"
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("pharyngitis.csv", throats())
    damaged = bytearray(path.read_bytes())
    for at in range(200, len(damaged) - 200, 100):
        damaged[at] ^= 0xFF
    path.write_bytes(damaged)
    assert "Fix:" in run("fetch", "pharyngitis", "--from", str(path), code=8)


def test_from_needs_one_file_for_one_table(run: Run, tmp_path: Path) -> None:
    file = str(tmp_path / "missing.csv")
    for names, n in ((["airlines", "breast-w"], 2), (["all"], 5)):
        assert run("fetch", *names, "--from", file, code=1) == (
            f"lang-envs: Expected one table for one file; got {n}. Fix: a command of its own for each table."
        )
    assert run("fetch", "breast-w", "--from", file, code=1) == (
        f"lang-envs: Expected a file to read at {file!r}; got No such file or directory. "
        f"Fix: the path of the file that you downloaded."
    )
    assert f"Expected a file to read at {str(tmp_path)!r}; got " in run(
        "fetch", "breast-w", "--from", str(tmp_path), code=1
    )


def test_from_a_file_at_home(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    tumours().to_csv(tmp_path / "t.csv", index=False)
    assert "bytes; by hand)" in run("fetch", "breast-w", "--from", "~/t.csv")
    assert "read at '~nobody-at-all/t.csv'; got No such file" in run(
        "fetch", "breast-w", "--from", "~nobody-at-all/t.csv", code=1
    )


@pytest.mark.process
@pytest.mark.usefixtures("ctrl_c")
def test_an_interrupted_fetch(openml: OpenmlStandIn, data: Path, run: Run) -> None:
    openml.fail(Slow(20_000), path=".pq")
    process = subprocess.Popen([*CLI, "fetch", "breast-w"], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 30
    while not (come := [path for path in data.rglob("*.part") if path.stat().st_size >= 4096]):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=10)
    assert process.returncode == 1
    assert told == "lang-envs: stopped; the next fetch resumes here.\n"
    n_bytes = come[0].stat().st_size
    assert n_bytes >= 4096
    run("fetch", "breast-w")
    assert openml.requests[-1].headers["range"] == f"bytes={n_bytes}-"
    assert contents(data)["breast-w/breast-w.pq"] == parquet_of(tumours())
    assert sorted(contents(data)) == ["breast-w/arrays.npz", "breast-w/breast-w.pq"]


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
    by_hand = "or with a file that you have, `lang-envs data fetch airlines --from FILE`."
    assert run("path", "airlines", code=1) == (
        f"lang-envs: airlines is not in {data}/airlines. Fix: `lang-envs data fetch airlines`, {by_hand}"
    )
    assert "iris has no file: it is generated, or comes with a package." in run("path", "iris", code=1)
    install_flights(tmp_path)
    file = data / "airlines" / "airlines.parquet"
    assert run("path", "airlines") == str(file)
    file.unlink()
    again = f"Fix: `lang-envs data fetch airlines --force`, {by_hand}"
    assert run("path", "airlines", code=1) == (
        f"lang-envs: Expected 'airlines.parquet' in {data}/airlines; only the arrays that were made of it are there. "
        f"{again}"
    )
    (data / "airlines" / "arrays.npz").write_bytes(b"")
    assert run("path", "airlines", code=1) == (
        f"lang-envs: Expected the airlines table in {data}/airlines; what is there is damaged. {again}"
    )
    assert "Missing argument 'NAME'" in run("path", code=2)


@pytest.mark.usefixtures("no_network")
def test_verify_goes_on_after_a_failure(data: Path, tmp_path: Path) -> None:
    install_tumours(tmp_path)
    (data / "airlines").mkdir()
    (data / "pharyngitis").mkdir()
    (data / "pharyngitis" / "arrays.npz").write_bytes(b"")
    result = CliRunner().invoke(app, ["data", "verify", "pharyngitis", "airlines", "breast-w"])
    assert result.exit_code == 8, "that of the first"
    assert [line.split(" table")[0] for line in result.stderr.splitlines()] == [
        "lang-envs: Expected the arrays of the pharyngitis",
        "lang-envs: Expected the airlines",
    ]
    assert result.stdout.startswith("breast-w\n  file ")
    assert CliRunner().invoke(app, ["data", "verify"]).exit_code == 1, "airlines is the first now"


# ---------------------------------------------------------------------- no request without need

WATCHED = """
import json, os, sys

asked = []

def watch(event, arguments):
    if event == "socket.connect" and isinstance(arguments[1], tuple):
        asked.append(f"connect {arguments[1]}")
    elif event in ("socket.getaddrinfo", "socket.gethostbyname"):
        asked.append(f"{event} {arguments[0]}")

sys.addaudithook(watch)
report = {}

def look(name, call):
    try:
        said = call()
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
    report[name] = [said, asked.copy()]
    asked.clear()

import gymnasium as gym
import lang_envs
report["import"] = [None, asked.copy()]

from typer.testing import CliRunner
from lang_envs.cli.app import app

def command(*arguments):
    return lambda: CliRunner().invoke(app, arguments).exit_code

def make(name, **options):
    return lambda: gym.make(f"DataSciCoding-{name}-v0", **options).unwrapped.dataset.synthetic

look("list", command("list"))
look("data", command("data"))
look("data list", command("data", "list"))
look("path", command("data", "path", "pharyngitis"))
look("verify", command("data", "verify"))
look("bundled", command("data", "fetch", "wine"))
look("synthetic", make("pharyngitis", data="synthetic"))
look("cached", make("airlines"))
os.environ["LANG_ENVS_OFFLINE"] = "1"
look("offline", make("pharyngitis"))
del os.environ["LANG_ENVS_OFFLINE"]
look("control", make("pharyngitis"))
print(json.dumps(report))
"""


@pytest.mark.process
def test_nobody_is_asked_unless_somebody_wants_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_flights(tmp_path)
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    done = subprocess.run([sys.executable, "-c", WATCHED], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    (offline, asked), (control, control_asked) = report.pop("offline"), report.pop("control")
    assert "LANG_ENVS_OFFLINE is set" in offline
    assert asked == []
    assert control.startswith("DataMissingError: Expected the pharyngitis table in ")
    assert "Kaggle cannot be reached from here" in control
    assert "connect ('127.0.0.1', 1)" in control_asked, "which would have been seen above"
    commands = {"list": 0, "data": 0, "data list": 0, "path": 1, "verify": 8, "bundled": 0}  # of made-up tables
    expected = {"import": None, **commands, "synthetic": True, "cached": False}
    assert {name: said for name, (said, _) in report.items()} == expected
    assert [name for name, (_, asked) in report.items() if asked] == []


# ---------------------------------------------------------------------- gym.make without the table


@pytest.fixture
def black_hole(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """OpenML at an address that takes no connection and refuses none."""
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.socket())
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        for _ in range(3):  # its queue is full
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listening.getsockname())
        probe = stack.enter_context(socket.socket())
        probe.settimeout(0.2)
        try:
            probe.connect(listening.getsockname())
        except TimeoutError:
            pass
        else:
            pytest.skip("a full queue of connections takes more of them here")
        (tmp_path / "config" / "openml").mkdir(parents=True)
        address = f"http://127.0.0.1:{listening.getsockname()[1]}/api/v1/xml"
        (tmp_path / "config" / "openml" / "config").write_text(f"server = {address}\n")
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.setenv(name, "127.0.0.1")
        yield address


MAKE = """
import json, time
import gymnasium as gym
import lang_envs

started = time.monotonic()
try:
    gym.make("DataSciCoding-airlines-v0")
except FileNotFoundError as error:
    print(json.dumps([time.monotonic() - started, type(error).__name__, str(error)]))
"""


def make_airlines() -> tuple[float, float, str]:
    """Seconds of `gym.make`, seconds of the whole process, and the error message."""
    started = time.monotonic()
    done = subprocess.run([sys.executable, "-c", MAKE], capture_output=True, text=True, timeout=60)
    whole = time.monotonic() - started
    assert (done.returncode, done.stderr) == (0, "")
    seconds, kind, said = json.loads(done.stdout)
    assert kind == "DataMissingError"
    return seconds, whole, said


def assert_helpful(said: str, data: Path, why: str) -> None:
    told, *fixes = said.splitlines()
    assert told == f"Expected the airlines table in {data}/airlines; it is not there, and {why}. Fix, one of:"
    assert [fix.partition("  (")[0].strip() for fix in fixes] == [
        "lang-envs data fetch airlines",
        "lang-envs data fetch airlines --from FILE",
        "gym.make(..., data='synthetic')",
    ]
    assert "'airlines.arff'" in fixes[1]
    assert "https://www.openml.org/d/1169" in fixes[1]


@pytest.mark.process
def test_nobody_answers(black_hole: str, data: Path, record_property: Callable[[str, object], None]) -> None:
    seconds, whole, said = make_airlines()
    assert_helpful(said, data, "OpenML cannot be reached from here")
    assert seconds < fetching.DEFAULT_TIMEOUT, "it waited for an answer"
    assert not data.exists()
    record_property("seconds", (round(seconds, 2), round(whole, 2)))


def test_no_network_at_all(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "")
    _, _, said = make_airlines()
    assert_helpful(said, data, "OpenML cannot be reached from here")
    assert not data.exists()


def test_offline(black_hole: str, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANG_ENVS_OFFLINE", "1")
    monkeypatch.setattr(fetching, "is_reachable", None)
    with pytest.raises(FileNotFoundError, match="the airlines table") as caught:
        gym.make("DataSciCoding-airlines-v0", data="real")
    assert_helpful(str(caught.value), data, "LANG_ENVS_OFFLINE is set")


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


SET = """
import sys
import openml
import gymnasium as gym
import lang_envs

openml.config.server = sys.argv[1]
print(gym.make("DataSciCoding-breast-w-v0").unwrapped.dataset.digest)
"""


@pytest.mark.process
@needs_openml
def test_a_server_that_the_program_has_set(openml: OpenmlStandIn, data: Path, tmp_path: Path) -> None:
    (tmp_path / "home" / ".config" / "openml" / "config").write_text("server = http://127.0.0.1:1/api/v1/xml\n")
    command = [sys.executable, "-c", SET, f"{openml.proxy}/api/v1/xml"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == store.array_digest(*tumour_arrays(tumours()))
    assert done.stderr.splitlines() == [
        f"Fetching the breast-w table from https://www.openml.org/d/15 into {data}/breast-w ..."
    ]
    assert [request.path.rpartition("/")[2] for request in openml.requests] == ["xml", "15", "dataset_15.pq"]
