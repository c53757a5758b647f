"""Models behind a server, played by a stand-in on the loopback interface."""

from __future__ import annotations

import json
import re
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from playing import play, texts
from standins import Answer, ChatStandIn, Cut, Hang, Status, completion

from benchmarks.agents import Agent, AgentError, Decision, Usage, make_agent

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


def test_what_is_none_is_left_to_the_server(server: ChatStandIn) -> None:
    asked(server, temperature=None, max_tokens=None, send_seed=False, system="")
    assert set(server.bodies[0]) == {"model", "messages"}
    assert len(server.bodies[0]["messages"]) == 1


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


def test_an_answer_in_other_words_is_an_invalid_action() -> None:
    with ChatStandIn(say=lambda _: "I would rather sing.") as server:
        agent = make_agent("openai:a-model", base_url=server.url)
        (step,) = play(FOOD, agent, most=1)
        agent.close()
    assert step.decision.text == "I would rather sing."
    assert step.info["invalid_action"]


def test_episodes_in_threads_each_with_an_agent() -> None:
    with ChatStandIn(say=lambda message: message.split("\n- ")[1]) as server:

        def episode(seed: int) -> list[str]:
            agent = make_agent("openai:a-model", base_url=server.url)
            steps = play(FOOD, agent, seed=seed, most=5)
            agent.close()
            return texts(steps)

        with ThreadPoolExecutor(4) as pool:
            played = list(pool.map(episode, range(8)))
    assert len(server.requests) == 40
    assert played == [played[0]] * 8
    assert sorted(body["seed"] for body in server.bodies) == [1000 * seed + n for seed in range(8) for n in range(5)]


# ---------------------------------------------------------------------- failures


def test_refusals_for_now_are_repeated_by_the_client() -> None:
    answers = [Answer(429, b"{}", AT_ONCE), Answer(500, b"{}", AT_ONCE), Answer(503, b"{}", AT_ONCE)]
    with ChatStandIn(answers) as server:
        assert asked(server, retries=3) == Decision("stay", Usage(1, 10, 2))
        assert len(server.requests) == 4


def test_more_failures_than_retries_are_an_error_without_the_key() -> None:
    with ChatStandIn([Answer(429, b'{"error": {"message": "too fast"}}', AT_ONCE)] * 2) as server:
        with pytest.raises(AgentError, match=r"openai:a-model; got RateLimitError.*too fast.*retries") as caught:
            asked(server, retries=1)
        assert SECRET not in str(caught.value)
        assert len(server.requests) == 2


def as_choice(**fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "message": {"role": "assistant", "content": "sta"}, **fields}]}


@pytest.mark.parametrize(
    "body",
    [
        {"choices": None, "error": {"code": 429, "message": "too fast"}},
        {"choices": None, "error": {"code": "503", "message": "busy"}},
        [{"error": {"code": 429, "message": "too fast"}}],
        {"error": "overloaded"},
        {"error": {"code": "server_error", "message": "overloaded"}, **as_choice(finish_reason="stop")},
        {"object": "error", "code": 500, "message": "out of memory"},
        {"choices": []},
        as_choice(message=None),
        as_choice(finish_reason="error"),
        as_choice(finish_reason="ERROR"),
        as_choice(finish_reason="stop", error={"code": 502, "message": "disconnected"}),
        as_choice(finish_reason=None, message={"role": "assistant", "content": None}),
        as_choice(finish_reason=None, message={"role": "assistant", "content": ""}),
    ],
)
def test_repeats_an_answer_that_holds_a_failure(body: Any) -> None:
    with ChatStandIn([Answer(200, json.dumps(body).encode(), AT_ONCE)] * 2) as server:
        assert asked(server, retries=2) == Decision("stay", Usage(1, 10, 2))
        assert len(server.requests) == 3


LATIN = json.dumps(as_choice(message={"content": "é"}), ensure_ascii=False).encode("latin-1")


@pytest.mark.parametrize("body", [b"<html>Hallo</html>", b'{"choices": [{"mess', b"", b"[" * 100_000, LATIN])
def test_repeats_an_answer_that_is_not_json(body: bytes) -> None:
    with ChatStandIn([Answer(200, body, AT_ONCE)]) as server:
        assert asked(server, retries=1).text == "stay"


def test_names_the_reason_of_an_answer_that_was_broken_off() -> None:
    body = json.dumps(as_choice(finish_reason="abort")).encode()
    reason = r"502 - the server broke the answer off \(finish_reason 'abort'\)"
    with ChatStandIn([Answer(200, body, AT_ONCE)] * 2) as server, pytest.raises(AgentError, match=reason):
        asked(server, retries=1)


def test_numbers_of_tokens_that_are_none_are_left_out() -> None:
    usage = {"prompt_tokens": 10**400, "completion_tokens": 1, "total_tokens": 1}
    with ChatStandIn([Answer(200, json.dumps({**as_choice(finish_reason="stop"), "usage": usage}).encode())]) as server:
        assert asked(server, price_in=1.0).text == "sta"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        ({"metadata": {"raw": "of Acme"}, "x": "y" * 999, "message": "full", "code": 429}, "429 - full: of Acme"),
        ("too many of you", "502 - too many of you"),
        ({"message": "wrong key", "code": 401}, "401 - wrong key"),
        ({"message": f"Bearer {SECRET} is old"}, r"502 - Bearer \.\.\. is old"),
    ],
)
def test_shows_the_message_of_a_failure(error: Any, message: str) -> None:
    body = json.dumps({"id": "x" * 400, "choices": None, "error": error}).encode()
    with ChatStandIn([Answer(200, body, AT_ONCE)]) as server, pytest.raises(AgentError, match=message):
        asked(server, retries=0)


def test_shows_an_error_that_is_a_text() -> None:
    answer = Answer(500, b'{"error": "out of memory"}', AT_ONCE)
    with ChatStandIn([answer]) as server, pytest.raises(AgentError, match="500 - out of memory"):
        asked(server, retries=0)


def test_waits_as_the_answer_demands() -> None:
    body = b'{"choices": null, "error": {"code": 429, "message": "too fast"}}'
    with ChatStandIn([Answer(200, body, {"Retry-After": "121", "Content-Type": "application/json"})]) as server:
        with pytest.raises(AgentError, match="too fast"):  # the client waits for two minutes at most
            asked(server)
        assert len(server.requests) == 1


@pytest.mark.parametrize("ended", ["content_filter", "content_filter: SAFETY"])
def test_a_filtered_answer_is_no_action(ended: str) -> None:
    body = json.dumps(as_choice(finish_reason=ended)).encode()
    with ChatStandIn([Answer(200, body, AT_ONCE)]) as server:
        decision = asked(server, retries=0)
    assert decision.text == ""
    assert decision.note.startswith("The server's content filter stopped the answer.")


def test_a_refusal_for_good_is_an_error_at_once() -> None:
    with ChatStandIn([Answer(401, b'{"error": {"message": "wrong key"}}', AT_ONCE)]) as server:
        with pytest.raises(AgentError, match=r"AuthenticationError.*wrong key"):
            asked(server)
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("context_length_exceeded", "too long"),
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


def test_a_context_too_short_for_the_first_request_stops() -> None:
    """As where max_tokens alone is longer than the context."""
    body = b'{"error": {"message": "maximum context length is 4096 tokens", "code": 400}}'
    with ChatStandIn([Answer(400, body, AT_ONCE)]) as server, pytest.raises(AgentError, match="maximum context length"):
        asked(server)


def test_another_bad_request_stops() -> None:
    body = b'{"error": {"message": "max_tokens is not supported", "code": "unsupported_parameter"}}'
    with ChatStandIn([Answer(400, body, AT_ONCE)]) as server, pytest.raises(AgentError, match="max_tokens is not supp"):
        asked(server)


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
        (b"{}", "Expected a chat completion with a choice"),
        (b'{"choices": []}', "Expected a chat completion with a choice"),
        (b'{"choices": [{"index": 0}]}', "Expected a chat completion with a choice"),
        (b"[1, 2]", "Expected a chat completion with a choice"),
    ],
)
def test_a_malformed_reply_is_an_error(server: ChatStandIn, body: bytes, message: str) -> None:
    server.fail(Status(200, body, "application/json"))
    with pytest.raises(AgentError, match=message):
        asked(server, retries=0)


def test_a_page_in_place_of_a_reply_is_an_error(server: ChatStandIn) -> None:
    server.fail(Status(200, b"<html>Hallo</html>", "text/html"))
    with pytest.raises(AgentError, match=r"a choice whose content is a text; got '<html>.*with its /v1"):
        asked(server, retries=0)


def test_a_reply_without_usage_is_counted_as_a_request_and_says_so() -> None:
    with ChatStandIn([completion("stay", usage=None)]) as server:
        decision = asked(server, price_in=1.0)
    assert decision.usage == Usage(requests=1)
    assert "reported no usage" in decision.note


def test_a_model_that_says_nothing_or_too_much_is_noted() -> None:
    with ChatStandIn([completion(None), completion("walk to", finish_reason="length")]) as server:
        silent, cut = asked(server), asked(server)
    assert (silent.text, silent.note) == ("", "The model answered without a text.")
    assert (cut.text, cut.note) == ("walk to", "The answer was cut at max_tokens.")


@pytest.mark.parametrize("opened", ["<think>\n", "\n<think>", ""])
def test_reasoning_before_the_answer_is_a_note(opened: str) -> None:
    with ChatStandIn([completion(f"{opened}Stay or walk?</think>\n\nstay")]) as server:
        decision = asked(server)
    assert (decision.text, decision.note) == ("stay", "Stay or walk?")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("<think>a</think><think>b</think>stay", "stay"),
        ("stay\n<think>was that right?</think>", "stay\n<think>was that right?</think>"),
        ("print('</think>')\nmodel = 1", "print('</think>')\nmodel = 1"),
        ("```python\n# </think>\nmodel = 1\n```", "```python\n# </think>\nmodel = 1\n```"),
    ],
)
def test_only_reasoning_before_the_answer_is_cut(content: str, text: str) -> None:
    with ChatStandIn([completion(content)]) as server:
        agent = make_agent("openai:a-model", base_url=server.url)
        agent.begin(None, 0)  # type: ignore[arg-type]
        assert agent.act("Write code.", {**LISTED, "admissible_actions": None}).text == text
        agent.close()


@pytest.mark.parametrize("content", [None, "", "<think>Stay or"])
def test_an_answer_that_is_cut_before_its_action_says_so(content: str | None) -> None:
    with ChatStandIn([completion(content, finish_reason="length")]) as server:
        decision = asked(server)
    assert decision.text == ""
    assert decision.note.endswith("The answer was cut at max_tokens before an action.")
    assert decision.note.startswith("Stay or\n") is bool(content)


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
        ({"temperature": float("nan")}, "temperature of at least 0; got nan"),
        ({"temperature": "hot"}, "Expected temperature of 'openai' to be float | None; got 'hot'"),
        ({"max_tokens": 0}, "max_tokens of at least 1; got 0"),
        ({"retries": -1}, "retries of at least 0"),
        ({"price_out": -2.0}, "price_out of at least 0"),
        ({"timeout": 0}, "timeout in seconds, above 0; got 0"),
        ({"base_url": "localhost:8000/v1"}, "begin with http:// or https://; got 'localhost:8000/v1'"),
        ({"extra": 3}, "Expected extra of 'openai'"),
        ({"model": "x"}, "got 'model'. Known: base_url"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(AgentError, match=re.escape(message)):
        make_agent("openai:a-model", **settings)


@pytest.mark.parametrize(
    "usage",
    [{"prompt_tokens": "many"}, {"prompt_tokens": -1}, {"completion_tokens": 1e400}, [1, 2]],
    ids=["text", "negative", "infinite", "list"],
)
def test_a_usage_of_nonsense_is_not_counted(usage: Any, server: ChatStandIn) -> None:
    body = json.loads(completion("stay").body)
    server.fail(Status(200, json.dumps({**body, "usage": usage}).encode(), "application/json"))
    decision = asked(server)
    assert decision.usage == Usage(requests=1)
    assert "no usage" in decision.note


@pytest.mark.parametrize("content", [7, [{"type": "text", "text": "stay"}]])
def test_a_content_that_is_no_text_is_an_error(content: Any, server: ChatStandIn) -> None:
    body = json.loads(completion("stay").body)
    body["choices"][0]["message"]["content"] = content
    server.fail(Status(200, json.dumps(body).encode(), "application/json"))
    with pytest.raises(AgentError, match="whose content is a text"):
        asked(server)


def test_a_server_that_repeats_the_key_does_not_make_it_known(server: ChatStandIn) -> None:
    said = json.dumps({"error": {"message": f"no {SECRET}, Bearer {SECRET}x"}})
    server.fail(Status(401, said.encode(), "application/json"))
    with pytest.raises(AgentError, match=r"AuthenticationError.*\(the key\)") as caught:
        asked(server, retries=0)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("name", ["price_in", "price_out", "timeout"])
def test_numbers_that_cost_everything_or_wait_for_ever_are_refused(name: str) -> None:
    with pytest.raises(AgentError, match=f"Expected {name}"):
        make_agent("openai:a-model", **{name: float("inf")})
