"""Models behind a server, played by a stand-in on the loopback interface."""

from __future__ import annotations

import json
import re
import traceback
from collections.abc import Iterator
from typing import Any

import pytest
from playing import play
from standins import Answer, ChatStandIn, Cut, Hang, Status, completion

from lang_bench.agents import Agent, AgentError, Decision, Usage, make_agent

pytest.importorskip("openai", reason="the extra openai is not installed")

FOOD = "VirtualHome-FoodPreparation-v0"
SECRET = "sk-do-not-tell"
AT_ONCE = {"retry-after-ms": "1", "Content-Type": "application/json"}
LISTED = {"admissible_actions": ["walk to the kitchen", "stay"]}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key, and no proxy between the client and the loopback interface."""
    for name in ("OPENAI_BASE_URL", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)


@pytest.fixture
def server() -> Iterator[ChatStandIn]:
    with ChatStandIn() as stand_in:
        yield stand_in


def asked(server: ChatStandIn, **settings: Any) -> Decision:
    """One decision of an agent of the server."""
    agent = make_agent("openai:a-model", base_url=server.url, **settings)
    decision = decide(agent)
    agent.close()
    return decision


def decide(agent: Agent, seed: int = 0) -> Decision:
    agent.begin(None, seed)  # type: ignore[arg-type]
    return agent.act("You are here.", LISTED)


def test_a_request_holds_the_observation_the_list_and_the_settings(server: ChatStandIn) -> None:
    decision = asked(server, temperature=0.5, max_tokens=7, system="Be brief.", extra={"top_p": 0.9})
    (body,) = server.bodies
    assert decision == Decision("stay", Usage(1, 10, 2))
    assert body["messages"][0] == {"role": "system", "content": "Be brief."}
    assert body["messages"][1]["content"].startswith("You are here.\n\nAnswer with one")
    assert body["messages"][1]["content"].endswith("\n- walk to the kitchen\n- stay")
    assert {name: body[name] for name in ("model", "temperature", "max_tokens", "top_p", "seed")} == {
        "model": "a-model",
        "temperature": 0.5,
        "max_tokens": 7,
        "top_p": 0.9,
        "seed": 0,
    }
    assert server.requests[0].headers["authorization"] == f"Bearer {SECRET}"


def test_seeds_of_requests_follow_from_that_of_the_episode(server: ChatStandIn) -> None:
    agent = make_agent("openai:a-model", base_url=server.url)
    for seed in (3, 4, 3):
        decide(agent, seed)
        agent.act("Again.", LISTED)
    assert [body["seed"] for body in server.bodies] == [3000, 3001, 4000, 4001, 3000, 3001]
    agent.close()


def test_whole_episodes_are_played_and_counted() -> None:
    def choose(message: str) -> str:
        return re.findall(r"^- (.*)$", message, re.MULTILINE)[0].upper()

    with ChatStandIn(say=choose) as server:
        agent = make_agent("openai:a-model", base_url=server.url, price_in=2.0, price_out=10.0)
        steps = play(FOOD, agent, most=4)
        agent.close()
    assert not any(step.info["invalid_action"] for step in steps)
    assert all(step.decision.note == step.decision.text.upper() for step in steps)
    total = sum((step.decision.usage for step in steps), Usage())
    assert total[:3] == (4, 40, 8)
    assert total.cost == pytest.approx((40 * 2 + 8 * 10) / 1e6)


# ---------------------------------------------------------------------- failures


def test_refusals_for_now_are_repeated_by_the_client() -> None:
    answers = [Answer(429, b"{}", AT_ONCE), Answer(500, b"{}", AT_ONCE), Answer(503, b"{}", AT_ONCE)]
    with ChatStandIn(answers) as server:
        assert asked(server, retries=3) == Decision("stay", Usage(1, 10, 2))
        assert len(server.requests) == 4


def as_choice(**fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "message": {"role": "assistant", "content": "sta"}, **fields}]}


@pytest.mark.parametrize(
    "body",
    [
        {"choices": None, "error": {"code": 429, "message": "too fast"}},
        [{"error": "overloaded"}],
        {"choices": []},
        as_choice(finish_reason="error"),
        as_choice(finish_reason="stop", error={"code": 502, "message": "disconnected"}),
        as_choice(finish_reason=None, message={"role": "assistant", "content": ""}),
    ],
)
def test_repeats_an_answer_that_holds_a_failure(body: Any) -> None:
    with ChatStandIn([Answer(200, json.dumps(body).encode(), AT_ONCE)] * 2) as server:
        assert asked(server, retries=2) == Decision("stay", Usage(1, 10, 2))
        assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("error", "message"),
    [
        ({"metadata": {"raw": "of Acme"}, "x": "y" * 999, "message": "full", "code": 429}, "429 - full: of Acme"),
        ({"message": f"Bearer {SECRET} is old"}, r"502 - Bearer \.\.\. is old"),
    ],
)
def test_shows_the_message_of_a_failure(error: Any, message: str) -> None:
    body = json.dumps({"id": "x" * 400, "choices": None, "error": error}).encode()
    with ChatStandIn([Answer(200, body, AT_ONCE)]) as server, pytest.raises(AgentError, match=message):
        asked(server, retries=0)


def test_a_filtered_answer_is_no_action() -> None:
    body = json.dumps(as_choice(finish_reason="content_filter: SAFETY")).encode()
    with ChatStandIn([Answer(200, body, AT_ONCE)]) as server:
        decision = asked(server, retries=0)
    assert decision.text == ""
    assert decision.note.startswith("The server's content filter stopped the answer.")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("content_filter", "filtered"),
        (400, f"This model's maximum context length is 4096 tokens, Bearer {SECRET}"),
    ],
)
@pytest.mark.parametrize("status", [400, 200])
def test_a_prompt_that_is_refused_for_good_is_an_empty_action(code: str | int, message: str, status: int) -> None:
    body = json.dumps({"error": {"message": message, "code": code}}).encode()
    with ChatStandIn([completion("stay"), Answer(status, body, AT_ONCE)]) as server:
        agent = make_agent("openai:a-model", base_url=server.url)
        assert decide(agent).text == "stay"
        decision = decide(agent)
        agent.close()
    assert (decision.text, decision.usage) == ("", Usage())
    assert decision.note.startswith("The server refused the prompt: Error code: 400 - ")
    assert message.partition(",")[0] in decision.note
    assert SECRET not in decision.note


def test_a_server_that_says_nothing_in_time_is_asked_again(server: ChatStandIn) -> None:
    server.fail(Hang(5.0))
    assert asked(server, timeout=0.2, retries=1).text == "stay"
    server.fail(Hang(5.0))
    with pytest.raises(AgentError, match=r"APITimeoutError.*raise timeout"):
        asked(server, timeout=0.2, retries=0)


def test_a_connection_that_breaks_is_made_again(server: ChatStandIn) -> None:
    server.fail(Cut(after=20))
    assert asked(server, retries=1).text == "stay"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"choices": [{"mess', "Expected a chat completion with a choice"),
        (b"[1, 2]", "Expected a chat completion with a choice"),
    ],
)
def test_a_malformed_reply_is_an_error(server: ChatStandIn, body: bytes, message: str) -> None:
    server.fail(Status(200, body, "application/json"))
    with pytest.raises(AgentError, match=message):
        asked(server, retries=0)


def test_a_model_that_says_nothing_or_too_much_is_noted() -> None:
    with ChatStandIn([completion(None), completion("walk to", finish_reason="length")]) as server:
        silent, cut = asked(server), asked(server)
    assert (silent.text, silent.note) == ("", "The model answered without a text.")
    assert (cut.text, cut.note) == ("walk to", "The answer was cut at max_tokens.")


@pytest.mark.parametrize("opened", ["<think>\n", ""])
def test_reasoning_before_the_answer_is_a_note(opened: str) -> None:
    with ChatStandIn([completion(f"{opened}Stay or walk?</think>\n\nstay")]) as server:
        decision = asked(server)
    assert (decision.text, decision.note) == ("stay", "Stay or walk?")


@pytest.mark.parametrize(
    ("content", "fields", "action", "note"),
    [
        ("stay", {"reasoning_content": " Stay or walk?\n"}, "stay", "Stay or walk?"),
        ("\n\nstay", {"reasoning": "Stay or walk?", "reasoning_content": None}, "stay", "Stay or walk?"),
        ("stay", {"reasoning": "Stay or walk?", "reasoning_content": "Stay or walk?"}, "stay", "Stay or walk?"),
        ("<think>Walk?</think>stay", {"reasoning": "Stay?"}, "stay", "Stay?\nWalk?"),
        (None, {"reasoning": "Stay or"}, "", "Stay or\nThe model answered without a text."),
        ("stay", {"reasoning_content": ["Stay?"], "reasoning": {"effort": "low"}}, "stay", ""),
        ("stay", {"reasoning_content": 3, "reasoning": ""}, "stay", ""),
    ],
)
def test_reasoning_apart_from_the_answer_is_a_note(
    content: str | None, fields: dict[str, Any], action: str, note: str
) -> None:
    with ChatStandIn([completion(content, **fields)]) as server:
        decision = asked(server)
    assert (decision.text, decision.note) == (action, note)


# ---------------------------------------------------------------------- settings


def test_settings_identify_the_agent_and_tell_no_secret(server: ChatStandIn) -> None:
    url = server.url.replace("http://", "http://me:sesame@") + "?token=sesame"
    agent = make_agent("openai:a-model", base_url=url, price_in=1)
    told = json.dumps(agent.settings)
    assert agent.name == "openai:a-model"
    assert agent.settings["base_url"] == server.url
    assert agent.settings["price_in"] == 1
    assert SECRET not in told
    assert "sesame" not in told
    agent.close()


def test_a_server_of_ones_own_needs_no_key(server: ChatStandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    assert asked(server).text == "stay"
    with pytest.raises(AgentError, match="variable OPENAI_API_KEY; it is not set"):
        make_agent("openai:a-model")
    with pytest.raises(AgentError, match="variable MY_KEY; it is not set"):
        make_agent("openai:a-model", api_key_env="MY_KEY")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": -1}, "temperature of at least 0; got -1"),
        ({"temperature": "hot"}, "Expected temperature of 'openai' to be float | None; got 'hot'"),
        ({"max_tokens": 0}, "max_tokens of at least 1; got 0"),
        ({"timeout": 0}, "timeout in seconds, above 0; got 0"),
        ({"base_url": "localhost:8000/v1"}, "begin with http:// or https://; got 'localhost:8000/v1'"),
        ({"model": "x"}, "got 'model'. Known: base_url"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(AgentError, match=re.escape(message)):
        make_agent("openai:a-model", **settings)


@pytest.mark.parametrize(
    "usage",
    [None, {"prompt_tokens": "many"}],
)
def test_a_usage_of_nonsense_is_not_counted(usage: Any, server: ChatStandIn) -> None:
    body = json.loads(completion("stay").body)
    server.fail(Status(200, json.dumps({**body, "usage": usage}).encode(), "application/json"))
    decision = asked(server)
    assert decision.usage == Usage(requests=1)
    assert "no usage" in decision.note


def test_a_server_that_repeats_the_key_does_not_make_it_known(server: ChatStandIn) -> None:
    said = json.dumps({"error": {"message": f"no {SECRET}, Bearer {SECRET}x"}})
    server.fail(Status(401, said.encode(), "application/json"))
    with pytest.raises(AgentError, match=r"AuthenticationError.*\(the key\)") as caught:
        asked(server, retries=0)
    assert SECRET not in "".join(traceback.format_exception(caught.value))
