"""Tables from OpenML and Kaggle, fetched by the real clients from stand-ins of the services that also fail."""

from __future__ import annotations

import errno
import importlib.util
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
import traceback
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fake_tables import (
    contents,
    install_tumours,
    passengers,
    passengers_manifest,
    throats,
    throats_manifest,
    tumour_arrays,
    tumours,
    use,
)
from standins import Corrupt, Cut, Hang, KaggleStandIn, OpenmlStandIn, Slow, StandIn, Status
from standins.kaggle import zip_of
from standins.openml import arff_of, parquet_of
from typer.testing import CliRunner

from lang_envs.cli.app import app
from lang_envs.datasets import errors, fetching, store
from lang_envs.datasets.manifest import Manifest, Service, manifest

pd = pytest.importorskip("pandas", reason="the extra data is not installed")
MISSING = [name for name in ("requests", "arff", "pyarrow") if importlib.util.find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"{MISSING} of the extra data are not installed")

TUMOURS = manifest("breast-w")
ASK, OBJECT, ARFF = (
    "/api/v1/xml/data/15",
    "/datasets/0000/0015/dataset_15.pq",
    "/data/v1/download/10015/dataset_15.arff",
)
THROATS = "yoshifumimiya/pharyngitis"
CLI = [sys.executable, "-c", "from lang_envs.cli import main; main()", "data"]
HTML = b"<html><head><title>Sorry</title></head><body><p>Down for maintenance.</p></body></html>"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def openml(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenmlStandIn]:
    with OpenmlStandIn({15: tumours()}) as server:
        use(monkeypatch, server.environment(tmp_path / "home"), data)
        yield server


@pytest.fixture
def kaggle(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KaggleStandIn]:
    shelf = {THROATS: {"readme.txt": b"?", "pharyngitis.csv": throats()}}
    with KaggleStandIn(shelf, {"spaceship-titanic": {"train.csv": passengers(), "test.csv": b""}}) as server:
        use(monkeypatch, server.environment(tmp_path / "home"), data)
        yield server


@pytest.fixture
def before(data: Path, openml: OpenmlStandIn, tmp_path: Path) -> Iterator[dict[str, bytes]]:
    """A table that is here already; afterwards it still is, byte for byte, and no other file."""
    install_tumours(tmp_path, seed=9)
    kept = tables(data)
    yield kept
    assert tables(data) == kept


def asked(server: StandIn) -> list[tuple[str, str, int]]:
    assert server.strays == []
    return [(request.method, request.path, request.status) for request in server.requests]


def ranges(server: StandIn, part: str) -> list[str | None]:
    """The requested ranges of an object; None for all of it."""
    return [
        request.headers.get("range")
        for request in server.requests
        if request.method == "GET" and request.path.endswith(part)
    ]


def fetch(wanted: Manifest = TUMOURS, **options: Any) -> tuple[store.Receipt, list[fetching.Progress]]:
    seen: list[fetching.Progress] = []
    return fetching.fetch(wanted, timeout=options.pop("timeout", 20), watch=seen.append, **options), seen


def refused(code: int, name: str, *arguments: str) -> str:
    """The message of `lang-envs data fetch` with this exit code, in one line."""
    result = CliRunner().invoke(app, ["data", "fetch", name, *arguments])
    assert result.exit_code == code, result.output
    assert isinstance(result.exception, SystemExit)
    return " ".join(result.output.split())


def assert_tumours(seed: int = 0) -> None:
    x, y = store.read_arrays(TUMOURS, "default")
    expected = tumour_arrays(tumours(seed))
    assert np.array_equal(x, expected[0])
    assert np.array_equal(y, expected[1])


def wait_until(happened: Callable[[], Any], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.02)


def partial(data: Path) -> dict[str, bytes]:
    """Parts of incomplete objects."""
    kept = contents(data / ".partial") if (data / ".partial").exists() else {}
    return {name: content for name, content in kept.items() if not name.endswith(".xml")}


def tables(data: Path) -> dict[str, bytes]:
    """Complete files, without parts of incomplete objects."""
    return {name: content for name, content in contents(data).items() if not name.startswith(".partial/")}


# ---------------------------------------------------------------------- OpenML: complete files


def test_parquet_and_arff_give_the_same_arrays(
    openml: OpenmlStandIn, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_parquet, seen = fetch()
    assert asked(openml) == [("GET", ASK, 200), ("GET", OBJECT, 200)]
    body = parquet_of(tumours())
    assert contents(data)["breast-w/breast-w.pq"] == body
    assert_tumours()
    counts = [progress.done for progress in seen if progress.total == len(body)]
    assert counts == sorted(counts)
    assert counts[-1] == len(body)
    assert seen[-1].stage == "preparing"
    assert fetch()[0] == by_parquet
    assert len(openml.requests) == 2, "what is here is not asked for"

    with OpenmlStandIn({15: tumours()}, without_parquet={15}) as other:
        use(monkeypatch, other.environment(tmp_path / "other"), tmp_path / "other data")
        by_arff, _ = fetch()
    assert asked(other) == [("GET", ASK, 200), ("GET", ARFF, 200)]
    kept = contents(tmp_path / "other data")
    assert sorted(kept) == ["breast-w/arrays.npz", "breast-w/breast-w.arff"]
    assert kept["breast-w/breast-w.arff"] == arff_of(tumours(), "dataset_15")
    assert by_arff.recipes == by_parquet.recipes
    assert by_arff.sha256 != by_parquet.sha256
    assert [receipt.origin.checked[:4] for receipt in (by_parquet, by_arff)] == ["", "MD5 "]
    for receipt in (by_parquet, by_arff):
        assert receipt.origin.by == "OpenML"
        assert (receipt.origin.licence, receipt.verified) == ("Public", False)


@pytest.mark.parametrize("status", [403, 404])
def test_without_its_object_the_arff_is_fetched(status: int, openml: OpenmlStandIn) -> None:
    openml.fail(Status(status), path=".pq")
    assert fetch()[0].file == "breast-w.arff"
    assert asked(openml) == [("GET", ASK, 200), ("GET", OBJECT, status), ("GET", ARFF, 200)]
    assert_tumours()


def test_a_cut_is_gone_on_from(openml: OpenmlStandIn, data: Path) -> None:
    openml.fail(Cut(after=20_000), path=".pq")
    _, seen = fetch()
    assert ranges(openml, ".pq") == [None, f"bytes={19 * 1024}-"], "whole KiB are kept"
    last = openml.requests[-1]
    assert (last.status, last.n_sent) == (206, len(parquet_of(tumours())) - 19 * 1024)
    assert last.headers["if-range"].startswith('"')
    again = next(progress for progress in seen if progress.stage == "again")
    assert again.detail.startswith("Expected the breast-w table from OpenML; the connection broke off (")
    assert contents(data)["breast-w/breast-w.pq"] == parquet_of(tumours())
    assert partial(data) == {}
    assert_tumours()


def test_a_cut_arff_is_gone_on_from(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with OpenmlStandIn({15: tumours()}, without_parquet={15}) as server:
        use(monkeypatch, server.environment(tmp_path / "home"), data)
        server.fail(Cut(after=20_000), path=".arff")
        fetch()
    assert ranges(server, ".arff") == [None, f"bytes={19 * 1024}-"]
    assert contents(data)["breast-w/breast-w.arff"] == arff_of(tumours(), "dataset_15")
    assert_tumours()


def test_the_killed_are_gone_on_from(openml: OpenmlStandIn, data: Path) -> None:
    openml.fail(Slow(20_000), path=".pq")
    process = subprocess.Popen([*CLI, "fetch", "breast-w"], start_new_session=True, stdout=subprocess.DEVNULL)
    wait_until(lambda: any(len(content) >= 4096 for content in partial(data).values()))
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    (name, content), *others = partial(data).items()
    assert others == []
    assert parquet_of(tumours()).startswith(content)
    assert not (data / "breast-w").exists()
    assert store.read_receipt("breast-w") is None
    receipt, _ = fetch()
    assert name.endswith(".part")
    assert ranges(openml, ".pq")[-1] == f"bytes={len(content)}-"
    assert openml.requests[-1].status == 206
    assert sorted(contents(data)) == ["breast-w/arrays.npz", "breast-w/breast-w.pq"]
    assert contents(data)["breast-w/breast-w.pq"] == parquet_of(tumours())
    assert store.verify(TUMOURS) == receipt


@pytest.mark.process
def test_what_is_cut_off_for_good_stays_for_the_next_time(
    openml: OpenmlStandIn, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    openml.fail(Cut(after=5000), path=".pq", times=None)
    told = refused(10, "breast-w")
    assert "Expected the breast-w table from OpenML; the connection broke off (" in told
    assert told.endswith("Fix: fetch again, which resumes where this stopped.")
    assert ranges(openml, ".pq") == [None, "bytes=4096-", "bytes=8192-"]
    assert [len(content) for content in partial(data).values()] == [3 * 4096]
    with OpenmlStandIn({15: tumours(1)}) as other:  # the object has changed meanwhile
        use(monkeypatch, other.environment(tmp_path / "other"), data)
        fetch()
    assert (ranges(other, ".pq"), other.requests[-1].status) == ([f"bytes={3 * 4096}-"], 200)
    assert sorted(contents(data)) == ["breast-w/arrays.npz", "breast-w/breast-w.pq"]
    assert_tumours(1)


# ---------------------------------------------------------------------- OpenML: refused files


@pytest.mark.parametrize("fault", ["described wrong", "damaged"])
def test_a_wrong_checksum_is_refused(
    fault: str, before: dict[str, bytes], data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = {15} if fault == "described wrong" else ()
    with OpenmlStandIn({15: tumours()}, without_parquet={15}, wrong_md5=wrong) as server:
        use(monkeypatch, server.environment(tmp_path / "other"), data)
        if fault == "damaged":
            server.fail(Corrupt(), path=".arff", times=None)
        told = refused(8, "breast-w", "--force")
        assert asked(server) == [("GET", ASK, 200), ("GET", ARFF, 200)]
    assert "from OpenML with the checksum that it states; got other bytes, and kept none of them. Fix:" in told
    assert before
    assert_tumours(9)


@pytest.mark.parametrize(("host", "key"), [("www.openml.org", {"api_key": "SECRET"}), ("store.example", {})])
def test_the_key_goes_to_openml_alone(
    host: str, key: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import requests

    settings = {"server": "https://www.openml.org/api/v1/xml", "apikey": "SECRET"}
    monkeypatch.setattr(fetching, "_openml_settings", lambda: settings)
    monkeypatch.setenv("LANG_ENVS_DATA_DIR", str(tmp_path))
    sent: list[Any] = []

    def request(method: str, url: str, timeout: float, **options: Any) -> Any:
        sent.append(options["params"])
        if url.endswith(".arff"):
            answer = SimpleNamespace(status_code=404, text="", reason="Not Found")
            raise requests.HTTPError(f"404 for url: {url}?api_key=SECRET", response=answer)
        return SimpleNamespace(content=f"<data><url>https://{host}/tumours.arff</url></data>")

    monkeypatch.setattr(fetching, "_request", request)
    with pytest.raises(errors.NotServedError) as caught:
        fetch()
    assert sent == [{"api_key": "SECRET"}, key]
    assert "SECRET" not in "".join(traceback.format_exception(caught.value))


def shorter(table: Any) -> Any:
    return table.iloc[:-1]


def renamed(table: Any) -> Any:
    return table.rename(columns={"Class": "Kind"})


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (shorter, "Expected 699 rows and 10 columns in breast-w.arff; got 698 rows and 10 columns."),
        (renamed, "Expected a column 'Class' in breast-w.arff; got Clump_Thickness,"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_another_table_is_refused(
    change: Callable[[Any], Any],
    told: str,
    before: dict[str, bytes],
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with OpenmlStandIn({15: change(tumours())}) as server:
        use(monkeypatch, server.environment(tmp_path / "other"), data)
        assert told in refused(8, "breast-w", "--force")
    assert before


def test_a_damaged_parquet_file_gives_way_to_the_checked_one(openml: OpenmlStandIn, data: Path) -> None:
    openml.fail(Corrupt(), path=".pq", method="GET")
    told = CliRunner().invoke(app, ["data", "fetch", "breast-w", "--force"])
    assert told.exit_code == 0, told.output
    assert "MD5" in told.output
    assert "breast-w.arff" in told.output
    assert_tumours()


@pytest.mark.matrix_after(2)
@pytest.mark.parametrize(
    ("fault", "path", "code", "told"),
    [
        (Status(404, HTML, "text/html"), "/data/15", 3, "Expected OpenML to serve 15; got status 404 (Not Found)."),
        (
            Status(403, b"no"),
            "/data/15",
            4,
            "to be let in by OpenML for the breast-w table; got status 403 (Forbidden)",
        ),
        (Status(503, b"busy"), "/data/15", 5, "got status 503 (Service Unavailable). Fix: try again later."),
        (Hang(), "/data/15", 6, "from OpenML; it sent no data for 1 s. Fix: fetch again, which resumes where"),
        (Hang(), ".pq", 6, "from OpenML; it sent no data for 1 s. Fix: fetch again, which resumes where"),
        (Hang(0), "/data/15", 10, "from OpenML; the connection broke off ("),
    ],
    ids=["404", "403", "503", "hang", "hang of the store", "dropped"],
)
def test_a_service_that_fails(
    fault: Any, path: str, code: int, told: str, openml: OpenmlStandIn, before: dict[str, bytes], data: Path
) -> None:
    openml.fail(fault, path=path, times=None)
    assert told in refused(code, "breast-w", "--force", "--timeout", "1")
    tried = [request for request in openml.requests if path in request.path]
    assert len(tried) == (3 if code in (5, 10) else 1)
    assert not any(partial(data).values())
    assert before


@pytest.mark.process
def test_a_store_that_fails(openml: OpenmlStandIn) -> None:
    openml.fail(Status(502), path=".pq", times=None)
    assert "got status 502 (Bad Gateway). Fix: try again later." in refused(5, "breast-w")
    assert len([request for request in openml.requests if request.status == 502]) == 3


@pytest.mark.process
def test_a_cut_then_503_then_the_rest(openml: OpenmlStandIn, data: Path) -> None:
    openml.fail(Cut(after=20_000), path=".pq")
    openml.fail(Status(503, HTML, "text/html"), path=".pq", method="GET")
    fetch()
    assert ranges(openml, ".pq") == [None, f"bytes={19 * 1024}-", f"bytes={19 * 1024}-"]
    assert contents(data)["breast-w/breast-w.pq"] == parquet_of(tumours())


def test_a_busy_service_is_asked_again(openml: OpenmlStandIn) -> None:
    openml.fail(Status(503, HTML, "text/html"), path="/data/15")
    _, seen = fetch()
    assert [progress.detail for progress in seen if progress.stage == "again"] == [
        "Expected the breast-w table from OpenML; got status 503 (Service Unavailable)."
    ]
    assert_tumours()


@pytest.mark.process
def test_a_page_that_is_no_description(openml: OpenmlStandIn, data: Path) -> None:
    openml.fail(Status(200, HTML, "text/html"), path="/data/15", times=None)
    told = refused(5, "breast-w")
    assert "Expected the breast-w table from OpenML; got something else (a login page?). Fix: look at https://" in told
    assert contents(data) == {}


def test_an_unknown_number(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with OpenmlStandIn({16: tumours()}) as server:
        use(monkeypatch, server.environment(tmp_path / "home"), data)
        told = refused(3, "breast-w")
    assert asked(server) == [("GET", ASK, 412)]
    assert "Expected OpenML to serve 15; got status 412 (" in told
    assert "Unknown dataset" in told
    assert "Fix: see https://www.openml.org/d/15; if it has moved" in told
    assert contents(data) == {}


def test_nobody_listens(openml: OpenmlStandIn, data: Path, tmp_path: Path, before: dict[str, bytes]) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{closed.getsockname()[1]}/api/v1/xml"
    config = tmp_path / "home" / ".config" / "openml" / "config"
    config.write_text(f"server = {address}\nconnection_n_retries = 1\n")
    told = refused(7, "breast-w", "--force")
    assert "Expected to reach OpenML for the breast-w table; got " in told
    assert "Fix: connect to the network, set HTTPS_PROXY if yours needs it, or download 'breast-w.arff'" in told
    assert openml.requests == []
    assert before


# ---------------------------------------------------------------------- Kaggle


def test_kaggle_a_data_set(kaggle: KaggleStandIn, data: Path) -> None:
    csv = throats()
    receipt, seen = fetch(throats_manifest(csv))
    assert [(request.host, request.path.rpartition("/")[2], request.status) for request in kaggle.requests] == [
        ("localhost", "DownloadDataset", 302),
        ("storage.localhost", "archive.zip", 200),
    ]
    assert contents(data).keys() == {"pharyngitis/arrays.npz", "pharyngitis/pharyngitis.csv"}
    assert contents(data)["pharyngitis/pharyngitis.csv"] == csv
    assert (receipt.verified, receipt.origin.checked) == (True, "")
    assert receipt.origin.by == "Kaggle"
    x, y = store.read_arrays(throats_manifest(csv), "default")
    assert (x.shape, y.tolist()) == ((300, 18), [0, 1] * 150)
    assert seen[-2].done == seen[-2].total == len(zip_of(kaggle.datasets[THROATS]))


@pytest.mark.parametrize("credentials", ["", "token"])
def test_kaggle_credentials(
    credentials: Any, kaggle: KaggleStandIn, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, kaggle.environment(tmp_path / "home", credentials=credentials), data)
    assert fetch(throats_manifest(throats()))[0].verified
    schemes = {request.headers.get("authorization", "").partition(" ")[0] for request in kaggle.requests}
    assert schemes == ({"", "Bearer"} if credentials else {""})


def test_kaggle_a_competition(kaggle: KaggleStandIn, data: Path) -> None:
    wanted = passengers_manifest(passengers())
    receipt, _ = fetch(wanted)
    assert contents(data)["spaceship-titanic/train.csv"] == passengers()
    assert store.verify(wanted) == receipt
    assert receipt.sha256.startswith(wanted.sha256)


@pytest.mark.process
def test_kaggle_a_cut_then_503_then_the_rest(kaggle: KaggleStandIn, data: Path) -> None:
    kaggle.fail(Cut(after=20_000), path="archive.zip")
    kaggle.fail(Status(503, b"busy"), path="archive.zip")
    _, seen = fetch(throats_manifest(throats()))
    again = [progress.detail for progress in seen if progress.stage == "again"]
    assert len(again) == 2
    assert "the connection broke off (" in again[0]
    assert "got status 503 (" in again[1]
    statuses = [request.status for request in kaggle.requests if request.path.endswith(".zip")]
    assert statuses[0] == 200
    assert statuses[-1] == 206
    assert ranges(kaggle, ".zip")[-1] == f"bytes={19 * 1024}-"
    assert contents(data)["pharyngitis/pharyngitis.csv"] == throats()
    assert partial(data) == {}


def test_kaggle_the_killed_are_gone_on_from(kaggle: KaggleStandIn, data: Path) -> None:
    kaggle.fail(Slow(20_000), path="archive.zip")
    process = subprocess.Popen([*CLI, "fetch", "pharyngitis"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: any(len(content) >= 4096 for content in partial(data).values()))
    process.kill()
    process.wait()
    receipt, _ = fetch(throats_manifest(throats()))
    resumed = ranges(kaggle, ".zip")[-1]
    assert resumed is not None
    assert int(resumed.removeprefix("bytes=").removesuffix("-")) >= 4096
    assert kaggle.requests[-1].status == 206
    assert kaggle.requests[-1].headers["if-range"].startswith('"')
    assert store.verify(throats_manifest(throats())) == receipt
    assert contents(data)["pharyngitis/pharyngitis.csv"] == throats()
    assert partial(data) == {}


@pytest.fixture
def throats_before(kaggle: KaggleStandIn, data: Path, tmp_path: Path) -> Iterator[dict[str, bytes]]:
    """As `before`, of pharyngitis."""
    (tmp_path / "old.csv").write_bytes(throats(seed=9))
    store.install(throats_manifest(throats(seed=9)), tmp_path / "old.csv", store.Origin("by hand"))
    kept = tables(data)
    yield kept
    assert tables(data) == kept
    assert store.read_arrays(throats_manifest(throats(seed=9)), "default")[0].shape == (300, 18)


def test_kaggle_another_file_is_refused(kaggle: KaggleStandIn, throats_before: dict[str, bytes]) -> None:
    right, wrong = throats(), throats(seed=5)
    kaggle.datasets[THROATS] = {"pharyngitis.csv": wrong[: len(right)].ljust(len(right))}  # of the right size
    told = (
        r"Expected of the pharyngitis table a file with SHA-256 .*; got [0-9a-f]{16}, and kept nothing of it\. "
        r"Fix: take 'pharyngitis\.csv' from https://www\.kaggle\.com/datasets/"
    )
    with pytest.raises(errors.ChecksumError, match=told):
        fetch(throats_manifest(right), force=True)
    assert throats_before


def test_kaggle_a_damaged_archive_is_refused(kaggle: KaggleStandIn, throats_before: dict[str, bytes]) -> None:
    kaggle.fail(Corrupt(), path="archive.zip")
    told = refused(8, "pharyngitis", "--force")
    assert "Expected an archive from Kaggle; got a damaged one, or none" in told
    assert throats_before


def test_kaggle_a_damaged_compressed_archive_is_refused(
    throats_before: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "archive.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("pharyngitis.csv", throats())
    damaged = bytearray(path.read_bytes())
    for at in range(200, len(damaged) - 200, 100):
        damaged[at] ^= 0xFF
    monkeypatch.setattr("standins.kaggle.zip_of", lambda files: bytes(damaged))
    assert "got a damaged one, or none" in refused(8, "pharyngitis", "--force")
    assert throats_before


def test_kaggle_no_archive_is_refused(kaggle: KaggleStandIn, throats_before: dict[str, bytes]) -> None:
    kaggle.fail(Status(200, HTML, "text/html"), path="archive.zip")
    told = refused(8, "pharyngitis", "--force")
    assert f"Expected an archive from Kaggle; got a damaged one, or none ({len(HTML)} bytes)" in told
    assert throats_before


def test_kaggle_a_missing_file_is_refused(kaggle: KaggleStandIn, throats_before: dict[str, bytes]) -> None:
    kaggle.datasets[THROATS] = {"data/other.csv": b"1"}
    told = refused(3, "pharyngitis", "--force")
    assert "Expected one file 'pharyngitis.csv' in the archive from Kaggle; it holds data/other.csv." in told
    assert throats_before


@pytest.mark.matrix_after(2)
@pytest.mark.parametrize(
    ("fault", "path", "code", "told"),
    [
        (Status(404), "DownloadDataset", 3, f"Expected Kaggle to serve {THROATS}; got status 404 (Not Found)."),
        (
            Status(403),
            "archive.zip",
            4,
            "to be let in by Kaggle for the pharyngitis table; got status 403 (Forbidden).",
        ),
        (Status(500, HTML, "text/html"), "DownloadDataset", 5, "from Kaggle; got status 500 ("),
        (Hang(), "archive.zip", 6, "from Kaggle; it sent no data for 1 s. Fix: fetch again"),
    ],
    ids=["404", "403 of the store", "500", "hang of the store"],
)
def test_kaggle_fails(
    fault: Any, path: str, code: int, told: str, kaggle: KaggleStandIn, throats_before: dict[str, bytes]
) -> None:
    kaggle.fail(fault, path=path, times=None)
    assert told in refused(code, "pharyngitis", "--force", "--timeout", "1")
    assert len([request for request in kaggle.requests if path in request.path]) == (3 if code == 5 else 1)
    assert throats_before


@pytest.mark.parametrize(("credentials", "status"), [("", 401), ("key", 403)])
def test_kaggle_keeps_a_competition(
    credentials: Any, status: int, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"spaceship-titanic": {"train.csv": passengers()}}
    with KaggleStandIn(competitions=files, unaccepted={"spaceship-titanic"}) as server:
        use(monkeypatch, server.environment(tmp_path / "home", credentials=credentials), data)
        told = refused(4, "spaceship-titanic")
    assert f"for the spaceship-titanic table; got status {status} (" in told
    assert ("Unauthenticated" if status == 401 else "You must accept this competition's rules") in told
    assert (
        "Fix: accept the rules of the competition at https://www.kaggle.com/competitions/spaceship-titanic/rules"
        in told
    )
    assert "(~/.kaggle/kaggle.json or KAGGLE_USERNAME and KAGGLE_KEY), or download 'train.csv' from" in told
    assert contents(data) == {}


# ---------------------------------------------------------------------- several at once


@pytest.mark.process
def test_two_at_once_fetch_once(openml: OpenmlStandIn, data: Path) -> None:
    openml.fail(Slow(60_000), path=".pq")
    processes = [
        subprocess.Popen([*CLI, "fetch", "breast-w"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    outputs = [process.communicate(timeout=60) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    assert asked(openml) == [("GET", ASK, 200), ("GET", OBJECT, 200)]
    assert sorted(contents(data)) == ["breast-w/arrays.npz", "breast-w/breast-w.pq"]
    assert all(store.file_digest(data / "breast-w" / "breast-w.pq") in said for said, _ in outputs)
    assert_tumours()


@pytest.mark.process
def test_one_waits_for_another_that_hangs(openml: OpenmlStandIn) -> None:
    openml.fail(Hang(), path="/data/15")
    process = subprocess.Popen([*CLI, "fetch", "breast-w", "--timeout", "2"], stderr=subprocess.PIPE, text=True)
    wait_until(lambda: openml.requests)
    _, seen = fetch()
    assert process.wait() == 6
    assert process.stderr is not None
    with process.stderr as said:
        assert "it sent no data for 2 s" in said.read()
    assert (seen[0].stage, seen[0].detail) == ("waiting", "another process is fetching it")
    assert seen[-1].stage == "preparing"
    assert_tumours()


# ---------------------------------------------------------------------- disks


def limited(n_bytes: int) -> Callable[[], None]:
    """A disk without room for a larger file."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, n_bytes))


def fetch_limited(n_bytes: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*CLI, "fetch", *arguments],
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        preexec_fn=limited(n_bytes),
        capture_output=True,
        text=True,
        timeout=60,
    )


def assert_no_room(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 9, done.stderr
    assert done.stderr.count("\n") == 1
    assert "'File too large', and nothing was kept. Fix: make room or choose another folder, e.g. `LANG" in done.stderr


def test_a_full_disk(openml: OpenmlStandIn, data: Path, before: dict[str, bytes]) -> None:
    assert_no_room(fetch_limited(9000, "breast-w", "--force"))
    assert before
    assert partial(data) == {}
    assert_tumours(9)


@pytest.mark.process
def test_a_full_disk_of_a_file_by_hand(openml: OpenmlStandIn, data: Path, tmp_path: Path) -> None:
    path = tmp_path / "tumours.csv"
    tumours().to_csv(path, index=False)
    assert_no_room(fetch_limited(9000, "breast-w", "--from", str(path)))
    assert contents(data) == {}
    assert openml.requests == []


def test_a_refused_file_leaves_an_unfinished_download(data: Path, tmp_path: Path) -> None:
    begun = data / ".partial" / "breast-w" / "breast-w.part"
    begun.parent.mkdir(parents=True)
    begun.write_bytes(b"half of it")
    (tmp_path / "tumours.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    refused(8, "breast-w", "--from", str(tmp_path / "tumours.csv"))
    assert begun.read_bytes() == b"half of it"


def test_a_pipe_is_not_waited_for(data: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "tumours.csv")
    assert "got no ordinary file" in refused(1, "breast-w", "--from", str(tmp_path / "tumours.csv"))
    assert contents(data) == {}


@pytest.mark.process
def test_a_full_disk_of_kaggle(kaggle: KaggleStandIn, data: Path, throats_before: dict[str, bytes]) -> None:
    assert_no_room(fetch_limited(9000, "pharyngitis", "--force"))
    assert throats_before
    assert partial(data) == {}


@pytest.mark.process
def test_a_full_disk_of_arff(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with OpenmlStandIn({15: tumours()}, without_parquet={15}) as server:
        use(monkeypatch, server.environment(tmp_path / "home"), data)
        assert_no_room(fetch_limited(9000, "breast-w"))
    assert contents(data) == {}


def test_no_room(openml: OpenmlStandIn, data: Path, tmp_path: Path) -> None:
    data.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48k", "none", str(data)], capture_output=True)
    if mounted.returncode:
        pytest.skip("file systems cannot be mounted here")
    try:
        told = refused(9, "breast-w")
        assert f"Expected to write to {data}; got 'No space left on device', and nothing was kept." in told
        assert contents(data) == {}
    finally:
        subprocess.run(["umount", str(data)], check=True)


@pytest.mark.parametrize("place", ["below a file", "/sys/lang_envs"])
def test_a_folder_that_cannot_be_made(
    place: str, openml: OpenmlStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    folder = str(tmp_path / "file" / "data") if place == "below a file" else place
    monkeypatch.setenv("LANG_ENVS_DATA", folder)
    told = refused(9, "breast-w")
    assert f"Expected to write to {folder}; got '" in told
    assert "and nothing was kept. Fix: make room or choose another folder" in told
    assert openml.requests == []


@pytest.mark.parametrize("place", ["/proc/lang_envs", "a link to nothing"])
def test_a_folder_that_cannot_be_made_for_other_reasons(
    place: str, openml: OpenmlStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "not mounted" / "data")
    monkeypatch.setenv("LANG_ENVS_DATA", place if place.startswith("/") else str(tmp_path / "link"))
    assert "Expected to write to " in refused(9, "breast-w")


def test_a_file_where_the_table_should_be(openml: OpenmlStandIn, data: Path) -> None:
    data.mkdir()
    (data / "breast-w").write_text("")
    assert "Expected to write to " in refused(9, "breast-w")


# ---------------------------------------------------------------------- side effects

LOOK = """
import json, sys
import lang_envs
from lang_envs.datasets import fetching
from lang_envs.datasets.manifest import manifest
from fake_tables import throats_manifest
from pathlib import Path

name, csv = sys.argv[1:]
wanted = throats_manifest(Path(csv).read_bytes()) if name == "pharyngitis" else manifest(name)
fetching.fetch(wanted)
print(json.dumps([one for one in ("openml", "kaggle", "pandas", "requests", "minio") if one in sys.modules]))
"""


@pytest.mark.parametrize("name", ["breast-w", "pharyngitis"])
def test_a_fetch_leaves_nothing_but_the_table(
    name: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = (
        OpenmlStandIn({15: tumours()})
        if name == "breast-w"
        else KaggleStandIn({THROATS: {"pharyngitis.csv": throats()}})
    )
    (tmp_path / "tmp").mkdir()
    (tmp_path / "t.csv").write_bytes(throats())
    with server:
        use(monkeypatch, server.environment(tmp_path / "home"), data)
        monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
        support = str(Path(__file__).parents[2] / "support")
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([support, os.environ.get("PYTHONPATH", "")]))
        monkeypatch.delenv("XDG_CONFIG_HOME")
        before = sorted((tmp_path / "home").rglob("*"))
        command = [sys.executable, "-c", LOOK, name, str(tmp_path / "t.csv")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path / "tmp")
        assert done.returncode == 0, done.stderr
        assert asked(server)
    assert (json.loads(done.stdout), done.stderr) == (["pandas", "requests"], "")
    assert sorted((tmp_path / "home").rglob("*")) == before
    assert list((tmp_path / "tmp").iterdir()) == []
    assert len(contents(data)) == 2


def test_a_refused_file_is_one_line(kaggle: KaggleStandIn, data: Path, tmp_path: Path) -> None:
    environment = {**kaggle.environment(tmp_path / "empty", credentials=""), "LANG_ENVS_DATA": str(data)}
    done = subprocess.run([*CLI, "fetch", "pharyngitis"], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 8, "a made-up table is not that of the manifest"
    assert done.stdout.strip() == ""
    assert done.stderr.startswith("lang-envs: Expected of the pharyngitis table a file with SHA-256 dcb6258299ad1b75")
    assert done.stderr.count("\n") == 1
    assert list((tmp_path / "empty").rglob("*")) == []


# ---------------------------------------------------------------------- whether to try at all


@pytest.mark.process
def test_a_name_server_that_never_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.getaddrinfo", lambda *arguments, **options: time.sleep(10))
    for service in Service:
        started = time.monotonic()
        assert not fetching.is_reachable(service)
        assert time.monotonic() - started < 10, "it waited for the name server"


def test_who_is_reachable(openml: OpenmlStandIn, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert fetching.is_reachable(Service.OPENML), "as its settings say"
    config = tmp_path / "home" / ".config" / "openml" / "config"
    config.unlink()
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "")
    assert not fetching.is_reachable(Service.OPENML), "the proxy answers, but does not know the way"
    monkeypatch.setenv("KAGGLE_API_ENVIRONMENT", "LOCALHOST")
    assert fetching.is_reachable(Service.KAGGLE_DATASET), "plain HTTP: the proxy will do"
    monkeypatch.delenv("KAGGLE_API_ENVIRONMENT")
    monkeypatch.setenv("ALL_PROXY", "http://[::1")
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert not fetching.is_reachable(Service.OPENML)
    assert not fetching.is_reachable(Service.KAGGLE_COMPETITION)
    assert {request.method for request in openml.requests} == {"CONNECT", "HEAD"}


def test_a_body_without_end_is_refused(
    openml: OpenmlStandIn, before: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "_MAX_BYTES", 10_000)
    assert "Expected a table of less than 1 GiB; got 10240 bytes and no end." in refused(8, "breast-w", "--force")
    assert before


def test_a_file_system_without_locks(
    openml: OpenmlStandIn, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", no_locks)
    fetching.fetch(manifest("breast-w"))
    assert store.is_whole(manifest("breast-w"))
