"""`poad train --engine`, with programs that play vLLM's; tests/poad_sb3/engines has vLLM itself."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from poad_runs import invoke
from token_server import TokenStandIn

from poad_sb3.cli import engine
from poad_sb3.errors import EndpointError

URL = "http://127.0.0.1:9/v1"  # where nothing answers

ANSWERS = """
import http.server, os, sys
class Server(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/health" else 404)
        self.send_header("Content-Length", "0")
        self.end_headers()
    do_POST = do_GET
print("process", os.getpid(), *sys.argv[1:], flush=True)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Server).serve_forever()
"""


def program(folder: Path, code: str) -> str:
    path = folder / "vllm"
    path.write_text(f"#!{sys.executable}\n{code}", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def arguments(folder: Path, command: str) -> list[str]:
    return ["train", "KeyToken-v0", "--set", "action_sampling=free", "--out", str(folder / "run"), "--engine", command]


@pytest.mark.parametrize(
    ("code", "command", "words"),
    [
        ("", "vllm '", 'got "vllm \'" (No closing quotation)'),
        ("", "no-such-vllm", "there is no 'no-such-vllm' here. Fix: pip install vllm"),
        ("raise SystemExit(3)", "", "ended with code 3 before it answered. Fix: see "),
    ],
)
def test_a_server_that_does_not_start(code: str, command: str, words: str, tmp_path: Path) -> None:
    assert words in invoke(*arguments(tmp_path, command or program(tmp_path, code)), code=1)
    assert not (tmp_path / "run/config.json").exists()


def test_one_server_at_a_time(tmp_path: Path) -> None:
    words = arguments(tmp_path, program(tmp_path, ANSWERS))
    message = invoke(*words, "--set", "generation_endpoint=http://127.0.0.1:8000/v1", code=1)
    assert "Expected one server; got --engine " in message
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("", "has written nothing yet. If it is not vLLM's program, stop by Ctrl-C"),
        ("print('loading', flush=True); ", "its output is in "),
    ],
)
def test_a_program_that_takes_long(
    code: str, line: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_SECONDS_BETWEEN_LINES", 0.4)
    words = [program(tmp_path, code + "import time; time.sleep(1.5); raise SystemExit(3)")]
    with pytest.raises(EndpointError, match="ended with code 3"), engine.serving(words, [], URL, tmp_path / "log"):
        pass
    assert line in capfd.readouterr().err


def test_the_server_ends_with_a_training_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = arguments(tmp_path, f"{program(tmp_path, ANSWERS)} --max-num-seqs 4")
    monkeypatch.setattr(sys, "argv", ["poad", *command])  # what the run's configuration records
    message = invoke(*command, code=3)
    assert "load_lora_adapter; got status 404" in message
    words = (tmp_path / "run/engine.log").read_text(encoding="utf-8").split()
    assert {"--enable-lora", "--max-lora-rank", "processed_logprobs", "--max-num-seqs"} <= {*words}
    with pytest.raises(ProcessLookupError):
        os.kill(int(words[words.index("process") + 1]), 0)
    message = invoke("train", "--out", str(tmp_path / "run"), "--resume", code=1)
    assert "Expected --engine, as when this run was last trained" in message


def test_a_run_resumes_at_another_address(tmp_path: Path) -> None:
    sets = ("action_sampling=free", "n_steps=4", "batch_size=4", "n_epochs=1", "max_new_tokens=3")
    given = [word for text in sets for word in ("--set", text)]
    words = ["train", "KeyToken-v0", "--out", str(tmp_path / "run"), "--record-episodes", "0"]
    for steps, more in (("4", given), ("8", ["--resume"])):
        with TokenStandIn("pocket") as server:
            invoke(*words, "--steps", steps, "--set", f"generation_endpoint={server.url}", *more)
            assert len(server.bodies("/v1/completions")) == 4
