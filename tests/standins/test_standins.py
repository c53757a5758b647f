"""The stand-ins with the real clients: their downloads, and their reaction to each fault."""

from __future__ import annotations

import http.client
import importlib.util
import json
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

import pytest

from standins import Answer, Corrupt, Cut, Hang, KaggleStandIn, OpenmlStandIn, Slow, StandIn, Status
from standins import Request as Asked
from standins.server import serve_bytes

pd = pytest.importorskip("pandas", reason="the extra data is not installed")
# looked for, not imported: to import the clients has effects
MISSING = [name for name in ("openml", "kaggle", "six", "pyarrow") if importlib.util.find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"{MISSING} of the extras data and test are not installed")

PRELUDE = """
import json, sys
from pathlib import Path

reached = set()
results = {}

def watch(event, arguments):
    if event == "socket.connect":
        reached.add(":".join(map(str, arguments[1][:2])) if isinstance(arguments[1], tuple) else str(arguments[1]))
    elif event == "socket.getaddrinfo":
        reached.add(f"{arguments[0]}:{arguments[1]}")

sys.addaudithook(watch)

def attempt(name, call, *arguments, **options):
    try:
        results[name] = call(*arguments, **options)
    except Exception as error:
        results[name] = f"{type(error).__name__}: {error}"
"""
END = """
Path("report.json").write_text(json.dumps([results, sorted(reached)]))
"""
OPENML = """
import openml

def fetch(number):
    dataset = openml.datasets.get_dataset(number, download_data=True)
    frame = dataset.get_data()[0]
    source = Path(dataset.parquet_file or dataset.data_file).name
    return [source, dataset.name, list(frame.columns), json.loads(frame.to_json(orient="values"))]
"""
KAGGLE = """
import kaggle

def dataset(name):
    kaggle.api.dataset_download_files(name, path="files")

def competition(name):
    kaggle.api.competition_download_files(name, path="files")
"""

TABLE = pd.DataFrame(
    {
        "Flight number": [0.5, None, 2.25, -3e-7, 4.0],
        "Airline": pd.Categorical(["AA", "d'é, x", "B\\C", None, "AA"]),
        "note": ["p q", "%", None, "'", "{1}"],
        "Delay": pd.Categorical(["0", "1", "1", "0", "1"]),
    }
)
ROWS = json.loads(TABLE.to_json(orient="values"))
FILES = {"data file.csv": b"a,b\n1,2\n", "b.csv": bytes(range(256)) * 5}
BIG = {"train.csv": b"0123456789" * 300_000}
MIB = 1 << 20


def run_child(server: StandIn, environment: dict[str, str], code: str) -> tuple[dict[str, Any], str]:
    """Run the code in the child's home; return its notes and output. It reaches only the stand-in."""
    home = Path(environment["HOME"])
    command = [sys.executable, "-c", PRELUDE + code + END]
    done = subprocess.run(command, env=environment, cwd=home, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    results, reached = json.loads((home / "report.json").read_text())
    assert reached == [f"127.0.0.1:{server.port}"]
    assert server.strays == []
    return results, done.stdout


def unzipped(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def asked_for(server: StandIn, part: str) -> list[tuple[str, int]]:
    """Methods and answers of the requests whose URL has this part."""
    return [(request.method, request.status) for request in server.requests if part in request.url.geturl()]


# ---------------------------------------------------------------------- OpenML


@pytest.mark.matrix
def test_openml_gives_parquet_or_arff(tmp_path: Path) -> None:
    datasets = dict.fromkeys([1169, 11, 12, 13, 14, 15], TABLE)
    with OpenmlStandIn(datasets, names={1169: "airlines"}, without_parquet={11, 12, 13, 15}, wrong_md5={12}) as server:
        server.fail(Corrupt(), path="dataset_13.arff", times=2)
        server.fail(Status(403), path="dataset_14.pq")
        server.fail(Cut(after=100), path="dataset_15.arff")
        got, _ = run_child(
            server,
            server.environment(tmp_path),
            OPENML + "for number in [1169, 11, 12, 13, 14, 15, 404]: attempt(number, fetch, number)",
        )
    assert got["1169"] == ["dataset_1169.pq", "airlines", list(TABLE.columns), ROWS]
    assert got["11"] == ["dataset.arff", "dataset_11", list(TABLE.columns), ROWS]
    assert got["12"].startswith("OpenMLHashException: Checksum of downloaded file is unequal")
    assert got["13"].startswith("OpenMLHashException: Checksum of downloaded file is unequal")
    assert got["14"] == ["dataset.arff", "dataset_14", list(TABLE.columns), ROWS]
    assert got["15"] == ["dataset.arff", "dataset_15", list(TABLE.columns), ROWS]
    assert got["404"].endswith("/data/404 returned code 111: Unknown dataset")
    assert asked_for(server, "1169") == [("GET", 200), ("HEAD", 200), ("GET", 200)]
    assert asked_for(server, "dataset_11.") == [("GET", 200)]
    assert asked_for(server, "dataset_14.") == [("HEAD", 403), ("GET", 200)]
    assert asked_for(server, "/data/404") == [("GET", 412)]
    cut, whole = [request.n_sent for request in server.requests if request.path.endswith("_15.arff")]
    assert (cut, whole > 100) == (100, True)


@pytest.mark.matrix
def test_openml_without_an_answer(tmp_path: Path) -> None:
    with OpenmlStandIn(dict.fromkeys([1, 2, 3, 4, 5], TABLE)) as server:
        server.fail(Cut(after=1000), path="dataset_1.pq")
        server.fail(Status(503, b"busy"), path="xml/data/2", times=None)
        server.fail(Status(503, b"<html>busy</html>", "text/html"), path="xml/data/3")
        server.fail(Hang(seconds=0), path="xml/data/4", times=None)
        server.fail(Corrupt(at=0), path="dataset_5.pq")
        got, _ = run_child(
            server,
            server.environment(tmp_path, n_tries=1),
            OPENML + "for number in [1, 2, 3, 4, 5]: attempt(number, fetch, number)",
        )
    assert got["1"].startswith("ProtocolError: ('Connection broken: IncompleteRead(1000 bytes read")
    assert got["2"].startswith("OpenMLServerError: Unexpected server error")
    assert got["3"] == "KeyError: 'oml:error'"
    assert got["4"].startswith("ConnectionError: ('Connection aborted.', RemoteDisconnected(")
    assert got["5"][0] == "dataset_5.pq", "the client looks at no checksum of parquet"
    cache = tmp_path / ".cache" / "openml"
    assert {path.name for path in cache.rglob("dataset*.*")} == {"dataset_5.pq", "dataset_5.pkl.py3"}


@pytest.mark.matrix
def test_openml_describes_features(tmp_path: Path) -> None:
    with OpenmlStandIn({7: TABLE}) as server:
        got, _ = run_child(
            server,
            server.environment(tmp_path),
            """
import openml
dataset = openml.datasets.get_dataset(7, download_features_meta_data=True)
results["target"] = dataset.default_target_attribute
results["features"] = [
    [feature.name, feature.data_type, feature.nominal_values, feature.number_missing_values]
    for feature in dataset.features.values()
]
""",
        )
    assert got["target"] == "Delay"
    assert got["features"] == [
        ["Flight number", "numeric", None, 1],
        ["Airline", "nominal", ["AA", "B\\C", "d'é, x"], 1],
        ["note", "string", None, 1],
        ["Delay", "nominal", ["0", "1"], 0],
    ]
    assert asked_for(server, ".pq") == asked_for(server, ".arff") == []


# ---------------------------------------------------------------------- Kaggle


@pytest.fixture
def kaggle_service() -> Iterator[KaggleStandIn]:
    competitions = {"space": FILES, "closed": FILES}
    with KaggleStandIn({"owner/table": FILES, "owner/big": BIG}, competitions, unaccepted={"closed"}) as server:
        yield server


FETCH_ALL = """
attempt("table", dataset, "owner/table")
attempt("space", competition, "space")
"""


@pytest.mark.parametrize(("credentials", "scheme"), [("key", "Basic"), ("token", "Bearer")])
def test_kaggle_gives_archives_to_its_user(
    credentials: Any, scheme: str, kaggle_service: KaggleStandIn, tmp_path: Path
) -> None:
    environment = kaggle_service.environment(tmp_path, credentials=credentials)
    got, printed = run_child(kaggle_service, environment, KAGGLE + FETCH_ALL)
    assert got == {"table": None, "space": None}
    assert unzipped(tmp_path / "files" / "table.zip") == unzipped(tmp_path / "files" / "space.zip") == FILES
    assert asked_for(kaggle_service, "IntrospectToken") == ([("POST", 200)] if credentials == "token" else [])
    for request in kaggle_service.requests:
        sent = request.headers.get("authorization", "").split()
        assert sent[:1] == ([scheme] if request.host == "localhost" else [])
    assert ("outdated" in printed) == (credentials == "token")


def test_kaggle_gives_data_sets_to_everybody(kaggle_service: KaggleStandIn, tmp_path: Path) -> None:
    environment = kaggle_service.environment(tmp_path, credentials="")
    got, printed = run_child(kaggle_service, environment, KAGGLE + FETCH_ALL)
    assert got == {"table": None, "space": "HTTPError: Unauthenticated"}
    assert unzipped(tmp_path / "files" / "table.zip") == FILES
    assert not (tmp_path / "files" / "space.zip").exists()
    assert asked_for(kaggle_service, "DownloadDataFiles") == [("POST", 401)]
    assert not any("authorization" in request.headers for request in kaggle_service.requests)
    assert "Authentication required to call the Kaggle API." in printed


def test_kaggle_refuses(kaggle_service: KaggleStandIn, tmp_path: Path) -> None:
    kaggle_service.fail(Status(503, b"busy"), path="DownloadDataset")
    kaggle_service.fail(Status(404), path="/table/archive.zip")
    code = """
attempt("busy", dataset, "owner/table")
attempt("gone", dataset, "owner/table")
attempt("no data set", dataset, "owner/none")
attempt("no competition", competition, "none")
attempt("closed", competition, "closed")
kaggle.api.config_values["key"] = "another"
attempt("wrong key", dataset, "owner/table")
"""
    got, _ = run_child(kaggle_service, kaggle_service.environment(tmp_path), KAGGLE + code)
    assert got["busy"].startswith("HTTPError: 503 Server Error: Service Unavailable for url: http://localhost/")
    assert got["gone"].startswith("HTTPError: 404 Client Error: Not Found for url: http://storage.localhost/")
    assert got["no data set"] == got["no competition"] == "HTTPError: Not found"
    assert got["closed"].startswith("HTTPError: You must accept this competition's rules")
    assert got["wrong key"] == "HTTPError: Unauthenticated"
    assert [request.status for request in kaggle_service.requests] == [503, 302, 404, 404, 404, 403, 401]
    assert not (tmp_path / "files").exists()


@pytest.mark.process
def test_kaggle_resumes_after_a_cut(kaggle_service: KaggleStandIn, tmp_path: Path) -> None:
    kaggle_service.fail(Cut(after=2 * MIB + 1000), path="/big/archive.zip")
    kaggle_service.fail(Corrupt(), path="/table/archive.zip")
    code = """
attempt("big", dataset, "owner/big")
attempt("table", dataset, "owner/table")
"""
    got, _ = run_child(kaggle_service, kaggle_service.environment(tmp_path), KAGGLE + code)
    assert got == {"big": None, "table": None}
    assert unzipped(tmp_path / "files" / "big.zip") == BIG
    with pytest.raises(zipfile.BadZipFile, match="Bad CRC-32"):
        unzipped(tmp_path / "files" / "table.zip")
    first, second = [request for request in kaggle_service.requests if "/big/" in request.path]
    assert (first.status, first.n_sent) == (200, 2 * MIB + 1000)
    assert (second.status, second.headers["range"]) == (206, f"bytes={2 * MIB}-"), "whole MiB are kept"
    assert second.headers["if-range"].startswith('"')
    assert sorted(path.name for path in (tmp_path / "files").iterdir()) == ["big.zip", "table.zip"]


# ---------------------------------------------------------------------- the servers themselves


class Shelf(StandIn):
    """One file of 100,000 bytes at every path."""

    body = bytes(range(250)) * 400

    @property
    def hosts(self) -> frozenset[str]:
        return frozenset({f"127.0.0.1:{self.port}"})

    def answer(self, request: Asked) -> Answer:
        if request.path == "/broken":
            raise ZeroDivisionError("the stand-in itself is wrong")
        return serve_bytes(request, self.body, "text/plain")


def get(server: StandIn, path: str = "/file", **headers: str) -> tuple[int, bytes, dict[str, str]]:
    request = Request(server.proxy + path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    try:
        with build_opener(ProxyHandler({})).open(request, timeout=10) as response:
            return response.status, response.read(), dict(response.headers)
    except HTTPError as error:
        with error:
            return error.code, error.read(), dict(error.headers)


@pytest.mark.parametrize(
    ("asked", "status", "chosen", "content_range"),
    [
        ("bytes=0-", 206, slice(0, None), "bytes 0-99999/100000"),
        ("bytes=7-7", 206, slice(7, 8), "bytes 7-7/100000"),
        ("bytes=99998-200000", 206, slice(99998, None), "bytes 99998-99999/100000"),
        ("bytes=-3", 206, slice(-3, None), "bytes 99997-99999/100000"),
        ("bytes=100000-", 416, slice(0, 0), "bytes */100000"),
        ("lines=1-2", 200, slice(0, None), None),
    ],
)
def test_ranges(asked: str, status: int, chosen: slice, content_range: str | None) -> None:
    with Shelf() as server:
        got = get(server, Range=asked)
    assert (got[0], got[1], got[2].get("Content-Range")) == (status, Shelf.body[chosen], content_range)


def test_conditions() -> None:
    with Shelf() as server:
        headers = get(server)[2]
        assert headers["Accept-Ranges"] == "bytes"
        for good in (headers["ETag"], headers["Last-Modified"]):
            assert get(server, Range="bytes=5-", If_Range=good)[:2] == (206, Shelf.body[5:])
        assert get(server, Range="bytes=5-", If_Range='"another"')[:2] == (200, Shelf.body)
        assert get(server, If_Match=headers["ETag"])[0] == get(server, If_Match="*")[0] == 200
        assert get(server, If_Match='"another"')[:2] == (412, b"")


def test_faults() -> None:
    with Shelf() as server:
        server.fail(Corrupt(), path="corrupt")
        server.fail(Corrupt(at=-1), path="corrupt")
        server.fail(Status(503, b"busy"), path="busy", method="GET", times=2)
        server.fail(Slow(bytes_per_second=500_000), path="slow")
        middle, last, right = [get(server, "/corrupt")[1] for _ in range(3)]
        assert [a != b for a, b in zip(middle, Shelf.body, strict=True)].index(True) == 50_000
        assert (last[:-1], last[-1] != Shelf.body[-1], right) == (Shelf.body[:-1], True, Shelf.body)
        assert [get(server, "/busy")[:2] for _ in range(3)] == [(503, b"busy")] * 2 + [(200, Shelf.body)]
        started = time.monotonic()
        assert get(server, "/slow")[1] == Shelf.body
        assert time.monotonic() - started > 0.15


@pytest.mark.parametrize("reset", [False, True])
def test_cuts(reset: bool) -> None:
    with Shelf() as server:
        server.fail(Cut(after=1000, reset=reset))
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        connection.request("HEAD", "/file")  # has no body to cut
        assert connection.getresponse().read() == b""
        connection.request("GET", "/file")
        response = connection.getresponse()
        assert response.headers["Content-Length"] == "100000"
        with pytest.raises(ConnectionResetError if reset else http.client.IncompleteRead):
            response.read()
        response.close()
        connection.close()
    assert [(request.method, request.n_sent) for request in server.requests] == [("HEAD", 0), ("GET", 1000)]


@pytest.mark.parametrize("fault", [Hang(), Slow(bytes_per_second=10)])
def test_its_end_ends_every_answer(fault: Hang | Slow) -> None:
    with Shelf() as server:
        server.fail(fault)
        errors: list[BaseException] = []

        def ask() -> None:
            try:
                get(server)
            except (OSError, http.client.HTTPException) as error:
                errors.append(error)

        asking = threading.Thread(target=ask)
        asking.start()
        deadline = time.monotonic() + 10
        while not server.requests and time.monotonic() < deadline:
            time.sleep(0.01)
        started = time.monotonic()
    assert time.monotonic() - started < 9  # and not 10,000 seconds
    asking.join(10)
    assert len(errors) == 1


def test_a_fault_that_nothing_meets_is_an_error() -> None:
    with (
        pytest.raises(AssertionError, match=r"Expected every fault to meet a request; got none for \[Hang"),
        Shelf() as s,
    ):
        s.fail(Hang(), path="/never")


def test_its_own_errors_are_not_lost() -> None:
    lost = pytest.raises(http.client.RemoteDisconnected)
    with pytest.raises(ZeroDivisionError, match="the stand-in itself"), Shelf() as server, lost:
        get(server, "/broken")


def test_strays_are_refused_and_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    with KaggleStandIn() as server:
        opener = build_opener(ProxyHandler({"http": server.proxy, "https": server.proxy}))
        with pytest.raises(HTTPError, match="502") as refused:
            opener.open("http://example.org/file?x=1", timeout=10)
        refused.value.close()
        with pytest.raises(OSError, match="Tunnel connection failed: 502"):
            opener.open("https://www.kaggle.com/", timeout=10)
        assert [request.host for request in server.strays] == ["example.org", "www.kaggle.com:443"]


def test_the_environment_holds_nothing_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KAGGLE_KEY", "KAGGLE_API_TOKEN", "OPENML_CACHE_DIR", "NETRC", "all_proxy", "XDG_CACHE_HOME", "KEPT"):
        monkeypatch.setenv(name, "the user's")
    home = tmp_path / "below" / "home"
    with KaggleStandIn() as kaggle, OpenmlStandIn({}) as openml:
        environments = [kaggle.environment(home, credentials=""), kaggle.environment(home), openml.environment(home)]
        settings = [f"server = {openml.proxy}/api/v1/xml", "connection_n_retries = 2"]
    assert (home / ".config" / "openml" / "config").read_text().splitlines() == settings
    for environment in environments:
        assert [name for name, value in environment.items() if value == "the user's"] == ["KEPT"]
        assert (environment["HOME"], environment["XDG_CONFIG_HOME"]) == (str(home), str(home / ".config"))
    own = [sorted(name for name in each if name.startswith(("KAGGLE_", "OPENML_"))) for each in environments]
    service = "KAGGLE_API_ENVIRONMENT"
    assert own == [[service], [service, "KAGGLE_KEY", "KAGGLE_USERNAME"], []]
