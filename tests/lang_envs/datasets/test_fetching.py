"""Tables from OpenML and Kaggle, fetched by the real clients from stand-ins of the services that also fail."""

from __future__ import annotations

import errno
import importlib.util
import socket
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fake_tables import (
    contents,
    install_tumours,
    passengers,
    throats,
    throats_manifest,
    tumour_arrays,
    tumours,
    use,
)
from standins import Corrupt, Cut, Hang, KaggleStandIn, OpenmlStandIn, StandIn, Status
from standins.kaggle import zip_of
from standins.openml import arff_of, parquet_of
from typer.testing import CliRunner

from lang_envs.cli.app import app
from lang_envs.datasets import errors, fetching, store
from lang_envs.datasets.manifest import Manifest, manifest

pytest.importorskip("pandas", reason="the extra data is not installed")
MISSING = [name for name in ("requests", "arff", "pyarrow") if importlib.util.find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"{MISSING} of the extra data are not installed")

TUMOURS = manifest("breast-w")
ASK, OBJECT, ARFF = (
    "/api/v1/xml/data/15",
    "/datasets/0000/0015/dataset_15.pq",
    "/data/v1/download/10015/dataset_15.arff",
)
THROATS = "yoshifumimiya/pharyngitis"
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


def fetch(wanted: Manifest = TUMOURS, **options: Any) -> tuple[store.Receipt, list[fetching.Progress]]:
    progress: list[fetching.Progress] = []
    return fetching.fetch(wanted, timeout=options.pop("timeout", 20), watch=progress.append, **options), progress


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


def tables(data: Path) -> dict[str, bytes]:
    """Complete files, without parts of incomplete objects."""
    return {name: content for name, content in contents(data).items() if not name.startswith(".partial/")}


# ---------------------------------------------------------------------- OpenML: complete files


def test_parquet_and_arff_give_the_same_arrays(
    openml: OpenmlStandIn, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_parquet, progress = fetch()
    assert asked(openml) == [("GET", ASK, 200), ("GET", OBJECT, 200)]
    body = parquet_of(tumours())
    assert contents(data)["breast-w/breast-w.pq"] == body
    assert_tumours()
    counts = [stage.done for stage in progress if stage.total == len(body)]
    assert counts == sorted(counts)
    assert counts[-1] == len(body)
    assert progress[-1].stage == "preparing"
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


def test_fetches_again_after_a_broken_connection(openml: OpenmlStandIn, data: Path) -> None:
    openml.fail(Cut(after=20_000), path=".pq")
    _, progress = fetch()
    again = next(stage for stage in progress if stage.stage == "again")
    assert again.detail.startswith("Expected the breast-w table from OpenML; the connection broke off (")
    assert contents(data)["breast-w/breast-w.pq"] == parquet_of(tumours())
    assert_tumours()


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


def test_a_damaged_parquet_file_gives_way_to_the_checked_one(openml: OpenmlStandIn, data: Path) -> None:
    openml.fail(Corrupt(), path=".pq", method="GET")
    told = CliRunner().invoke(app, ["data", "fetch", "breast-w", "--force"])
    assert told.exit_code == 0, told.output
    assert "MD5" in told.output
    assert "breast-w.arff" in told.output
    assert_tumours()


@pytest.mark.parametrize(
    ("fault", "path", "code", "told"),
    [
        (Status(404, HTML, "text/html"), "/data/15", 3, "Expected OpenML to serve 15; got status 404 (Not Found)."),
        (Hang(), "/data/15", 6, "from OpenML; it sent no data for 1 s. Fix: fetch again, or with a longer --timeout."),
        pytest.param(Hang(0), "/data/15", 10, "from OpenML; the connection broke off (", marks=pytest.mark.matrix),
    ],
    ids=["404", "hang", "dropped"],
)
def test_a_service_that_fails(
    fault: Any, path: str, code: int, told: str, openml: OpenmlStandIn, before: dict[str, bytes], data: Path
) -> None:
    openml.fail(fault, path=path, times=None)
    assert told in refused(code, "breast-w", "--force", "--timeout", "1")
    tried = [request for request in openml.requests if path in request.path]
    assert len(tried) == (3 if code in (5, 10) else 1)
    assert not list((data / ".partial").glob("*/*"))
    assert before


def test_a_busy_service_is_asked_again(openml: OpenmlStandIn) -> None:
    openml.fail(Status(503, HTML, "text/html"), path="/data/15")
    _, progress = fetch()
    assert [stage.detail for stage in progress if stage.stage == "again"] == [
        "Expected the breast-w table from OpenML; got status 503 (Service Unavailable)."
    ]
    assert_tumours()


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
    receipt, progress = fetch(throats_manifest(csv))
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
    assert progress[-2].done == progress[-2].total == len(zip_of(kaggle.datasets[THROATS]))


@pytest.mark.parametrize(("credentials", "status"), [("", 401), ("key", 403)])
def test_kaggle_keeps_a_competition(
    credentials: Any, status: int, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"spaceship-titanic": {"train.csv": passengers()}}
    with KaggleStandIn(competitions=files, unaccepted={"spaceship-titanic"}) as server:
        use(monkeypatch, server.environment(tmp_path / "home", credentials=credentials), data)
        message = refused(4, "spaceship-titanic")
    assert f"for the spaceship-titanic table; got status {status} (" in message
    assert (
        "Fix: accept the rules of the competition at https://www.kaggle.com/competitions/spaceship-titanic" in message
    )
    assert contents(data) == {}


# ---------------------------------------------------------------------- disks


def test_a_folder_that_cannot_be_made(openml: OpenmlStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    folder = str(tmp_path / "file" / "data")
    monkeypatch.setenv("LANG_ENVS_DATA", folder)
    told = refused(9, "breast-w")
    assert f"Expected to write to {folder}; got '" in told
    assert "and nothing was kept. Fix: make room or choose another folder" in told
    assert openml.requests == []


# ---------------------------------------------------------------------- whether to try at all


def test_a_body_without_end_is_refused(
    openml: OpenmlStandIn, before: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "_MAX_BYTES", 10_000)
    assert " bytes and no end. Fix: " in refused(8, "breast-w", "--force")
    assert before


def test_a_file_system_without_locks(
    openml: OpenmlStandIn, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", no_locks)
    fetching.fetch(manifest("breast-w"))
    assert store.is_whole(manifest("breast-w"))
