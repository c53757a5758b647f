"""`vf-eval` plays the oracle's episode against a stub of a model server; run by `make test-bridges`."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from lang_envs.bridges.text_env import TextEnv

SALAD = "Overcooked-TomatoSalad-v0"
ORACLE_RETURN = 1.1102837966825794


class Oracle(BaseHTTPRequestHandler):
    """Answers with the oracle's action that follows the answers of the request, as a stream."""

    actions: tuple[str, ...] = ()

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        given = sum(message["role"] == "assistant" for message in request["messages"])
        chunk = {"id": "1", "object": "chat.completion.chunk", "created": 0, "model": "stub"}
        delta = {"role": "assistant", "content": f"{self.actions[given].capitalize()}."}
        parts = [
            {**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
            {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        ]
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for part in parts:
            self.wfile.write(f"data: {json.dumps(part)}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, *args: object) -> None:
        pass


def test_verifiers_plays_the_oracles_episode(tmp_path: Path) -> None:
    pytest.importorskip("verifiers")
    env, actions = TextEnv(SALAD), []
    env.reset(seed=0)
    while not env.is_over:
        actions.append(env.oracle_action())
        env.step(actions[-1])
    Oracle.actions = tuple(actions)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Oracle)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    command = [str(Path(sys.executable).with_name("vf-eval")), "lang_envs_verifiers", "--env.taskset.env_id", SALAD]
    command += ["--env.player.runtime.type", "subprocess", "--no-push", "--no-rich", "-n", "1", "-o", str(tmp_path)]
    command += ["-m", "stub", "--client.base-url", f"http://127.0.0.1:{server.server_port}/v1"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=tmp_path)
    finally:
        server.shutdown()
        server.server_close()
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = tmp_path.rglob("traces.jsonl")
    (trace,) = json.loads(path.read_text())["traces"]
    assert trace["rewards"]["episode_return"]["score"] == pytest.approx(ORACLE_RETURN)
    assert sum(trace["info"]["rewards"]) == pytest.approx(ORACLE_RETURN)
    assert (trace["info"]["success"], trace["info"]["truncated"]) == (True, False)
