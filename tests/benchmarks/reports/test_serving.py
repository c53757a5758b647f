"""The server of a report: one page, for this machine alone, that follows the files."""

from __future__ import annotations

import html
import http.client
import os
import re
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import report_data
from typer.testing import CliRunner

from benchmarks.app import app
from benchmarks.reports.folders import report_of_folder, results_files, run_folders, watched_files
from benchmarks.reports.serving import LiveReport, ReportServer
from benchmarks.runner.errors import BenchmarkError
from lang_envs.report import ReportError, build_page
from lang_envs.report.results import steps_file
from poad_sb3.runs.run_folder import RunConfig, RunFolder

Ask = Callable[..., tuple[int, bytes, http.client.HTTPMessage]]


def names(folder: Path, version: str) -> bytes:
    return ",".join(path.name for path in results_files(folder)).encode()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    report_data.small(tmp_path / "runs", n_episodes=1)
    report_data.training(tmp_path / "runs/training")
    config = RunConfig("POAD", None, 3, report_data.KITCHEN, {}, 1, {}, {}, {}, None, {}, 512, 256)
    RunFolder(tmp_path / "runs/training").write_config(config)
    (tmp_path / "runs/other.jsonl").write_text('{"format": 1, "content": "times"}\n[\n')
    (tmp_path / "runs/notes.jsonl").write_text("not JSON\n")
    (tmp_path / "secret.txt").write_text("secret")
    return tmp_path / "runs"


@pytest.fixture
def server(folder: Path) -> Iterator[ReportServer]:
    with ReportServer(LiveReport(folder, names, every=0)) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def ask(server: ReportServer) -> Ask:
    def ask(
        path: str = "/", method: str = "GET", host: str | None = None
    ) -> tuple[int, bytes, http.client.HTTPMessage]:
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
        connection.putrequest(method, path, skip_host=True)
        connection.putheader("Host", f"127.0.0.1:{server.server_port}" if host is None else host)
        connection.endheaders()
        answer = connection.getresponse()
        found = answer.status, answer.read(), answer.headers
        connection.close()
        return found

    return ask


def test_results_files_of_all_folders_are_found(folder: Path) -> None:
    assert [path.relative_to(folder).as_posix() for path in results_files(folder)] == [
        "agent0.jsonl",
        "agent1.jsonl",
        "agent2.jsonl",
    ]
    assert run_folders(folder) == [folder / "training"]
    assert {path.name for path in watched_files(folder)} >= {"agent0.steps.jsonl", "episodes.jsonl", "config.json"}


def test_the_page_is_built_from_them(ask: Ask) -> None:
    status, page, headers = ask()
    assert (status, page) == (200, b"agent0.jsonl,agent1.jsonl,agent2.jsonl")
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cache-Control"] == "no-store"
    assert headers["X-Frame-Options"] == "DENY"
    assert "Python" not in headers["Server"]


def test_a_changed_file_changes_the_version_and_the_page(ask: Ask, folder: Path) -> None:
    version = ask("/version")[1]
    assert ask("/version")[1] == version
    (folder / "agent0.jsonl").rename(folder / "zebra.jsonl")
    assert ask("/version")[1] != version
    assert ask()[1] == b"agent1.jsonl,agent2.jsonl,zebra.jsonl"
    version = ask("/version")[1]
    os.utime(folder / "agent1.jsonl", ns=(1, 1))
    assert ask("/version")[1] != version


def test_a_page_is_built_once_for_each_version_and_files_are_left_alone_for_a_while(folder: Path) -> None:
    n_built = []
    live = LiveReport(folder, lambda *_: b"%d" % len(n_built) + (n_built.append(1) or b""), every=0)
    assert [live.page(), live.page()] == [b"0", b"0"]
    os.utime(folder / "agent1.jsonl", ns=(1, 1))
    assert live.page() == b"1"
    slow = LiveReport(folder, names, every=3600)
    version = slow.version()
    os.utime(folder / "agent1.jsonl", ns=(2, 2))
    assert slow.version() == version


def test_it_listens_on_the_loopback_address_at_a_free_port(server: ReportServer) -> None:
    assert server.socket.getsockname() == ("127.0.0.1", server.server_port)
    assert server.server_port > 1023
    assert server.address == f"http://127.0.0.1:{server.server_port}/"


def test_localhost_is_answered(ask: Ask, server: ReportServer) -> None:
    assert ask(host=f"localhost:{server.server_port}")[0] == 200
    assert ask(host=f"LocalHost:{server.server_port}")[0] == 200


@pytest.mark.matrix_after(3)
@pytest.mark.parametrize(
    "host", ["evil.invalid", "evil.invalid:PORT", "127.0.0.1", "127.0.0.1.evil.invalid:PORT", "", "[::1]:PORT"]
)
@pytest.mark.parametrize("path", ["/", "/version"])
def test_another_host_is_refused(ask: Ask, server: ReportServer, host: str, path: str) -> None:
    status, text, _ = ask(path, host=host.replace("PORT", str(server.server_port)))
    assert status == 403
    assert b"agent" not in text


@pytest.mark.parametrize("hosts", [[], ["127.0.0.1:PORT", "evil.invalid"]])
def test_no_host_and_two_hosts_are_refused(server: ReportServer, hosts: list[str]) -> None:
    lines = ["GET / HTTP/1.1", *(f"Host: {one}" for one in hosts), "Connection: close", "", ""]
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=30) as client:
        client.sendall("\r\n".join(lines).replace("PORT", str(server.server_port)).encode())
        assert b" 403 " in client.recv(1000).partition(b"\r\n")[0]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS", "TRACE", "CONNECT"])
def test_other_methods_are_refused(ask: Ask, method: str) -> None:
    assert ask(method=method)[0] == 501


@pytest.mark.parametrize(
    "path",
    [
        "/secret.txt",
        "/../secret.txt",
        "/%2e%2e/secret.txt",
        "//etc/passwd",
        "/agent0.jsonl",
        "/?x",
        "/version/",
        "http://a/",
        "*",
    ],
)
def test_no_path_reaches_the_disk(ask: Ask, path: str) -> None:
    status, text, _ = ask(path)
    assert status == 404
    assert text == b"There is one page here: /\n"


@pytest.mark.parametrize("error", [ReportError("line 3 of <b>a"), BenchmarkError("twice"), OSError("gone")])
def test_a_file_that_cannot_be_read_gives_the_sentence_as_text(folder: Path, error: Exception) -> None:
    def build(folder: Path, version: str) -> bytes:
        raise error

    with ReportServer(LiveReport(folder, build)) as server:
        threading.Thread(target=server.handle_request).start()
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
        connection.request("GET", "/")
        answer = connection.getresponse()
        assert (answer.status, answer.headers["Refresh"]) == (503, "3")
        assert answer.headers["Content-Type"].startswith("text/plain")
        assert str(error).encode() in answer.read()
        connection.close()


def test_files_that_are_no_results_do_not_stop_the_report(folder: Path) -> None:
    (folder / "images.jsonl").write_text('{"format": "png"}\n')
    (folder / "damaged.jsonl").write_text('{"format": 1}\n')
    report = report_of_folder(folder)
    assert not any("images.jsonl" in line for line in report.about)
    assert any(line.startswith("damaged.jsonl is left out. Expected ") for line in report.about)
    (folder / "alone").mkdir()
    (folder / "damaged.jsonl").rename(folder / "alone/damaged.jsonl")
    with pytest.raises(BenchmarkError, match=r"got none\. damaged.jsonl is left out\. Expected .* Fix: name another"):
        report_of_folder(folder / "alone")


def test_damaged_steps_and_trainings_do_not_stop_the_report(folder: Path) -> None:
    whole = report_of_folder(folder)
    (training,) = run_folders(folder)
    (copied := folder / "copied").mkdir()
    (copied / "config.json").write_text("{")
    (copied / "progress.csv").write_text("")
    damaged = next(path for path in results_files(folder) if steps_file(path).exists())
    with steps_file(damaged).open("a", encoding="utf-8") as file:
        file.write("no step\n")
    report = report_of_folder(folder)
    assert {one.name for one in report.runs} < {one.name for one in whole.runs}
    assert report.curves == whole.curves
    assert [line.partition(". Expected")[0] for line in report.about if "left out" in line] == [
        f"{damaged.relative_to(folder)} is left out",
        "copied is left out",
    ]
    (copied / "config.json").unlink()
    (training / "config.json").write_text("{")
    report = report_of_folder(folder)
    assert report.curves == []
    assert any(line.startswith(f"{training.relative_to(folder)} is left out. ") for line in report.about)


def test_a_folder_without_results_is_named(tmp_path: Path) -> None:
    with pytest.raises(BenchmarkError, match=r"Expected results files or trainings in .*; got none\."):
        report_of_folder(tmp_path)


def test_the_report_of_a_folder_has_its_trainings(folder: Path) -> None:
    report = report_of_folder(folder)
    assert {one["training_steps"] for one in report.episodes if one.get("training_steps") is not None} == {0, 256, 512}
    assert {one["agent"] for one in report.episodes} == {*report_data.AGENTS, "POAD"}
    assert {one.name for one in report.runs} == {*report_data.AGENTS, "POAD, seed 3"}
    assert report.scores
    assert report.curves


def test_the_page_may_ask_its_own_server_and_a_file_may_not(folder: Path) -> None:
    report = report_of_folder(folder)
    for live, sources in (("1", "'self'"), ("", None)):
        page = build_page(report, pictures=0, live=live).decode()
        policy = html.unescape(page.partition('http-equiv="Content-Security-Policy" content="')[2].partition('"')[0])
        rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
        assert rules["default-src"] == "'none'"
        assert rules.get("connect-src") == sources


def test_the_command_serves_until_it_is_interrupted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(server: ReportServer) -> None:
        pages.append(server.report.page())
        raise KeyboardInterrupt

    pages: list[bytes] = []
    monkeypatch.setattr(ReportServer, "serve_forever", interrupted)
    done = CliRunner().invoke(app, ["serve", str(folder), "--pictures", "0"])
    assert done.exit_code == 0, done.output
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/ shows .*runs; Ctrl\+C ends\.\n", done.stdout)
    assert b"connect-src" in pages[0]
    refused = CliRunner().invoke(app, ["serve", str(folder / "none")])
    assert refused.exit_code == 1
    assert "Expected a folder with results files" in refused.stderr


def test_a_browser_that_goes_away_is_no_error(server: ReportServer, capsys: pytest.CaptureFixture[str]) -> None:
    for error in (ConnectionResetError(), BrokenPipeError(), TimeoutError()):
        try:
            raise error
        except OSError:
            server.handle_error(None, None)
    assert capsys.readouterr().err == ""
    try:
        raise KeyError("a defect")
    except KeyError:
        server.handle_error(None, None)
    assert "a defect" in capsys.readouterr().err
