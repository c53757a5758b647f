"""The server with OpenEnv's own client and validation; run by `make test-bridges`."""

from __future__ import annotations

import json
import socket
import threading
import time

import pytest

pytest.importorskip("openenv")

import uvicorn
import websockets.sync.client
from openenv.cli._validation import validate_multi_mode_deployment, validate_running_environment

from lang_envs.bridges.openenv import MAX_ANSWER, MAX_MESSAGE, LangAction, LangEnvClient, LangEnvironment, make_app
from lang_envs.bridges.openenv_package import write_package
from lang_envs.bridges.text_env import TextEnv
from lang_envs.errors import LangEnvsError
from lang_envs.sandbox.shared import shared_sandbox

SALAD = "Overcooked-TomatoSalad-v0"
ORACLE_RETURN = 1.1102837966825794
MALFORMED = ("", "{", "[]", "null", "7", '{"type": 3}', '{"type": "step"}', '{"type": "step", "data": {"text": 5}}',
             '{"type": "reset", "data": {"seed": "x"}}', '{"type": "reset", "data": []}', '{"type": "fly"}',
             json.dumps({"type": "step", "data": {"text": "x" * (MAX_ANSWER + 1)}}))  # fmt: skip


@pytest.fixture(scope="module")
def url():
    server = uvicorn.Server(
        uvicorn.Config(make_app(SALAD, max_sessions=70), port=0, ws_max_size=MAX_MESSAGE, log_level="critical")
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(10)


def oracle_actions(seed: int) -> list[str]:
    env, actions = TextEnv(SALAD), []
    env.reset(seed=seed)
    while not env.is_over:
        actions.append(env.oracle_action())
        env.step(actions[-1])
    return actions


def play(client, actions: list[str], seed: int = 0) -> tuple[float, object]:
    result = client.reset(seed=seed)
    total = 0.0
    for action in actions:
        result = client.step(LangAction(text=action))
        total += result.reward
    return total, result


def test_the_client_plays_the_oracles_episode(url):
    with LangEnvClient(base_url=url).sync() as client:
        total, result = play(client, oracle_actions(0))
        state = client.state()
    assert total == pytest.approx(ORACLE_RETURN)
    assert (result.done, result.observation.success, result.observation.truncated) == (True, True, False)
    assert (state.step_count, state.task) == (len(oracle_actions(0)), SALAD)
    assert state.episode_return == pytest.approx(ORACLE_RETURN)


def test_sessions_are_apart(url):
    actions = oracle_actions(0)
    with LangEnvClient(base_url=url).sync() as first, LangEnvClient(base_url=url).sync() as second:
        first.reset(seed=0)
        second.reset(seed=0)
        first.step(LangAction(text=actions[0]))
        assert (first.state().step_count, second.state().step_count) == (1, 0)
        assert play(second, actions)[0] == pytest.approx(ORACLE_RETURN)


def test_openenv_validates_the_server_and_the_folder(url, tmp_path):
    report = validate_running_environment(url)
    assert report["passed"], report
    folder = write_package(SALAD, tmp_path / "salad")
    (folder / "uv.lock").touch()  # made by `uv lock`, which needs a network
    assert validate_multi_mode_deployment(folder) == (True, [])


def test_malformed_messages_leave_others_alone(url):
    address = url.replace("http", "ws") + "/ws"
    with LangEnvClient(base_url=url).sync() as client:
        client.reset(seed=0)
        for message in [*MALFORMED, "x" * (MAX_MESSAGE + 1)] * 80:
            with websockets.sync.client.connect(address) as rude:
                rude.send(message)
                if len(message) > MAX_MESSAGE:
                    with pytest.raises(websockets.exceptions.ConnectionClosed):
                        rude.recv(timeout=10)
                else:
                    assert json.loads(rude.recv(timeout=10))["type"] == "error"
        total = sum(client.step(LangAction(text=action)).reward for action in oracle_actions(0))
    assert total == pytest.approx(ORACLE_RETURN)


def test_64_clients_get_their_rewards_though_one_is_killed(url):
    actions, returns = oracle_actions(0), []

    def of_one_client(number: int) -> None:
        with LangEnvClient(base_url=url).sync() as client:
            for _ in range(3):
                returns.append(play(client, actions, seed=number)[0])

    with websockets.sync.client.connect(url.replace("http", "ws") + "/ws") as killed:
        killed.send('{"type": "reset", "data": {"seed": 1}}')
        killed.socket.shutdown(socket.SHUT_RDWR)  # without a word
    threads = [threading.Thread(target=of_one_client, args=(number,)) for number in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(returns) == 3 * 64
    assert returns == pytest.approx([ORACLE_RETURN] * len(returns))


def test_refuses_sessions_beyond_its_limit():
    app = make_app(SALAD, max_sessions=1)
    from fastapi.testclient import TestClient

    with TestClient(app) as http, http.websocket_connect("/ws") as first:
        first.send_json({"type": "reset", "data": {"seed": 0}})
        assert first.receive_json()["type"] == "observation"
        with http.websocket_connect("/ws") as second:
            assert second.receive_json()["data"]["code"] == "CAPACITY_REACHED"
        first.send_json({"type": "step", "data": {"text": "take the bowl"}})
        assert first.receive_json()["type"] == "observation"


def test_a_closed_session_answers_no_more():
    env = LangEnvironment(SALAD)
    env.reset(seed=0)
    env.close()  # as the server does after the idle time
    env.close()
    for call in (env.reset, lambda: env.step(LangAction(text="take the bowl")), lambda: env.state):
        with pytest.raises(LangEnvsError, match="closed session"):
            call()


def test_refuses_long_requests_before_it_reads_them():
    from fastapi.testclient import TestClient

    with TestClient(make_app(SALAD)) as http:
        assert http.post("/reset", json={"seed": 0}).status_code == 200
        assert http.post("/reset", content=b" " * (MAX_MESSAGE + 1)).status_code == 413
        assert http.post("/reset", content=iter([b"{}"])).status_code == 413  # of unknown length


def test_serves_programs_in_the_full_sandbox_only(monkeypatch):
    with pytest.raises(LangEnvsError, match="confinement='require'"):
        make_app("DataSciCoding-iris-v0", confinement="auto")
    monkeypatch.setattr("lang_envs.sandbox.client._REQUIRED_LAYERS", {"another"})
    shared_sandbox("require").close()
    with pytest.raises(LangEnvsError, match="another"):
        make_app("DataSciCoding-iris-v0")


def test_names_the_task_that_cannot_be_made():
    with pytest.raises(Exception, match="NoTask"):
        make_app("NoTask-v0")
