"""Free actions from a server of token completions: a stand-in on the loopback interface, right and with each fault."""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from standins import Cut, Hang, Slow, Status
from token_server import TokenStandIn, events, flat_model
from toy import Collector, batch_of, make_agent, randomise

from poad_sb3.common.on_policy_algorithm import LLMOnPolicyAlgorithm
from poad_sb3.distributions import EndpointDistribution, endpoint
from poad_sb3.distributions.endpoint import TokenServer
from poad_sb3.errors import EndpointError, MismatchError, ModelError
from poad_sb3.settings import SamplingSettings

QUESTION = batch_of([("The lamp is red.", ["wait"])] * 3)


def agent(url: str, **settings: Any) -> LLMOnPolicyAlgorithm:
    more = {"n_envs": 8, "n_steps": 2, "max_new_tokens": 12, "learning_rate": 1e-3, **settings}
    kwargs = {"model": flat_model, "critic_arch": (8,)}
    return make_agent(action_sampling="free", generation_endpoint=url, policy_kwargs=kwargs, **more)


def distribution_of(model: LLMOnPolicyAlgorithm) -> EndpointDistribution:
    assert isinstance(model.policy.distribution, EndpointDistribution)
    return model.policy.distribution


def test_training_on_actions_of_a_server() -> None:
    with TokenStandIn(flat_model) as server:
        model = agent(server.url).learn(32)
        distribution = distribution_of(model)
        logged = model.logger.name_to_value
        assert 0 < logged["train/sampling_mismatch_std"] < 2 * distribution.clean_mismatch([]).std
        assert logged["train/first_ratio_error"] < 0.05
        bodies = server.bodies("/v1/completions")
        assert [*server.adapters] == [distribution.adapter]
        assert bodies[0]["stop_token_ids"] == sorted(model.policy.lm.prompter.end_tokens)
        assert len({body["seed"] for body in bodies}) == 32
        zeros = dict.fromkeys(("top_k", "min_p", "presence_penalty", "frequency_penalty"), 0)
        assert bodies[0].items() >= {**zeros, "top_p": 1, "repetition_penalty": 1, "temperature": 1}.items()


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("noise", "standard deviation of the differences"),
        ("cut", "mean difference of at most .* support cut"),
        pytest.param("retokenized", "largest difference .* encoding a text again", marks=pytest.mark.matrix),
    ],
)
def test_a_batch_with_a_fault_is_refused_before_a_step(fault: str, words: str) -> None:
    with TokenStandIn(flat_model, fault, noise=5 * 0.0048) as server:
        model = agent(server.url)
        before = {name: value.detach().clone() for name, value in model.policy.named_parameters()}
        with pytest.raises(MismatchError, match=words):
            model.learn(16)
        assert all(torch.equal(before[name], value) for name, value in model.policy.named_parameters())


def test_refuses_actions_of_stale_weights() -> None:
    with TokenStandIn(flat_model, "stale") as server:
        model = agent(server.url).learn(16)
        randomise(model.policy.lm)
        with pytest.raises(MismatchError):
            model.learn(16, reset_num_timesteps=False)


def test_the_same_generators_give_the_same_actions_and_scores() -> None:
    with TokenStandIn(flat_model) as server:
        model = agent(server.url)
        first, second = (
            model.policy.act(QUESTION, rngs=[np.random.default_rng(seed) for seed in (1, 2, 1)]) for _ in "ab"
        )
        assert [action.path for action in first] == [action.path for action in second]
        assert first[0].path == first[2].path != first[1].path
        scores = model.policy.distribution.log_prob([action.path for action in first]).detach()
        np.testing.assert_allclose([action.log_probs.sum() for action in first], scores, atol=0.1)


def test_greedy_decoding_asks_no_server() -> None:
    model = agent("http://127.0.0.1:1/v1")
    chosen = model.policy.act(QUESTION, deterministic=True)
    assert len(chosen) == 3
    assert distribution_of(model).adapter == ""


def test_an_adapter_is_sent_when_it_has_changed() -> None:
    with TokenStandIn(flat_model) as server:
        model = agent(server.url)
        for _ in range(2):
            model.policy.act(QUESTION)
        randomise(model.policy.lm)
        model.policy.act(QUESTION)
        loaded = server.bodies("/v1/load_lora_adapter")
        assert [body["lora_name"][:7] for body in loaded] == ["poad-1-", "poad-2-"]
        assert not Path(loaded[0]["lora_path"]).exists()
        content = (Path(loaded[1]["lora_path"]) / "adapter_model.safetensors").read_bytes()
        assert loaded[1]["lora_name"].startswith(f"poad-2-{hashlib.sha256(content).hexdigest()}-")
        assert server.bodies("/v1/unload_lora_adapter") == [{"lora_name": loaded[0]["lora_name"]}]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("foreign", "Expected token ids below 854"),
        ("short", "and 11 log-probabilities"),
        ("renamed", "answered by 'base'"),
        ("reread", "the prompt that was sent"),
        ("plain", "KeyError: 'token_ids'"),
        ("unlisted", "to list the adapter 'poad-1-.*; it lists \\['base'\\]"),
    ],
)
def test_refuses_answers_of_another_policy(fault: str, words: str) -> None:
    with TokenStandIn(flat_model, fault) as server:
        model = agent(server.url)
        rngs = [np.random.default_rng(0)] * 3
        with pytest.raises(EndpointError, match=words):
            model.policy.act(QUESTION, rngs=rngs)


@pytest.mark.parametrize("models", [None, ["base"], {"id": "base"}])
def test_refuses_a_list_of_models_of_another_form(models: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TokenServer, "_send", lambda self, path, *_: json.dumps({"data": models}).encode())
    with pytest.raises(EndpointError, match="to list the adapter"):
        TokenServer("http://127.0.0.1").load_adapter("mine", Path("folder"))


def test_broken_connections_are_repeated_and_refusals_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "_PAUSE", 0.01)
    with TokenStandIn(flat_model) as server:
        model = agent(server.url)
        server.fail(Hang(0), path="/v1/completions")
        server.fail(Cut(after=20), path="/v1/completions")
        part = b'data: {"model": "base"}\n\n'
        server.fail(Status(200, part, "text/event-stream"), path="/v1/completions")  # ends without [DONE]
        assert len(model.policy.act(QUESTION)) == 3
        assert len(server.bodies("/v1/completions")) == 6
        server.fail(Status(500, b"out of memory"), path="/v1/completions", times=3)
        with pytest.raises(EndpointError, match="status 500: out of memory"):
            model.policy.act(QUESTION)
        assert len(server.bodies("/v1/completions")) == 9
        distribution_of(model).server.timeout = 2.0
        server.fail(Hang(0), path="/v1/completions", times=None)
        with pytest.raises(EndpointError, match=r"got \w+: .*\(for 2 s\)\. Fix: check that the server runs"):
            model.policy.act(QUESTION)


def test_a_server_that_is_started_again_gets_the_adapter_again() -> None:
    with TokenStandIn(flat_model) as server:
        model = agent(server.url)
        rngs = [[np.random.default_rng(seed) for seed in range(3)] for _ in "ab"]
        first = model.policy.act(QUESTION, rngs=rngs[0])
        server.adapters.clear()
        again = model.policy.act(QUESTION, rngs=rngs[1])
        assert [action.path for action in first] == [action.path for action in again]
        assert [body["lora_name"][:7] for body in server.bodies("/v1/load_lora_adapter")] == ["poad-1-", "poad-2-"]


def test_a_slow_answer_is_no_failure_and_a_silent_server_is_one() -> None:
    with TokenStandIn(flat_model) as server:
        model = agent(server.url)
        model.policy.act(QUESTION)
        distribution_of(model).server.timeout = 2.0
        server.fail(Slow(800), path="/v1/completions", times=3)
        begun = time.monotonic()
        assert len(model.policy.act(QUESTION)) == 3
        assert time.monotonic() - begun > 2.0
        server.fail(Hang(), path="/v1/completions", times=None)
        with pytest.raises(EndpointError, match=r"got nothing for 2 s. Fix: see whether the server hangs"):
            model.policy.act(QUESTION)


def test_the_key_is_that_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with TokenStandIn(flat_model, key="open sesame") as server:
        with pytest.raises(EndpointError, match=r"status 401: .*Fix: export VLLM_API_KEY, the key"):
            agent(server.url).policy.act(QUESTION)
        monkeypatch.setenv("VLLM_API_KEY", "open sesame")
        assert len(agent(server.url).policy.act(QUESTION)) == 3
        server.fail(Status(500, b"open sesame"), path="/v1/completions")
        with pytest.raises(EndpointError, match=r"status 500: \.\.\."):
            TokenServer(server.url).complete("base", (1,), 10)


def test_a_server_on_this_machine_is_reached_without_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    with TokenStandIn(flat_model) as server:
        for name in ("http_proxy", "HTTP_PROXY"):
            monkeypatch.setenv(name, "http://127.0.0.1:9")
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        assert len(agent(server.url).policy.act(QUESTION)) == 3


def test_a_part_with_the_usage_alone_ends_a_stream() -> None:
    choice = {"token_ids": [2], "prompt_token_ids": [1], "logprobs": {"token_logprobs": [-1.0]}}
    tokens, usage = (json.dumps({"model": "base", "choices": choices}) for choices in ([choice], []))
    with TokenStandIn(flat_model) as server:
        body = events(tokens, usage, "[DONE]").body
        server.fail(Status(200, body, "text/event-stream"), path="/v1/completions")
        assert TokenServer(server.url).complete("base", (1,), 10).tokens == (2,)
        server.fail(Status(200, events(usage, "[DONE]").body, "text/event-stream"), path="/v1/completions")
        with pytest.raises(EndpointError, match="Expected one choice"):
            TokenServer(server.url).complete("base", (1,), 10)


def test_refuses_unreachable_servers_and_invalid_json() -> None:
    with TokenStandIn(flat_model) as server:
        server.fail(Status(200, b"<html>"), path="/v1/completions")
        with pytest.raises(EndpointError, match="Expected JSON"):
            TokenServer(server.url).complete("base", (1,), 10)
        choice = {"token_ids": [1], "prompt_token_ids": [1], "logprobs": {"token_logprobs": [0.0]}}
        huge = {"logprobs": {"token_logprobs": [10**400]}}
        for odd in ({"prompt_token_ids": None}, {"token_ids": [1, None]}, huge, {"logprobs": None}):
            body = json.dumps({"model": "base", "choices": [choice | odd]}).encode()
            server.fail(Status(200, body), path="/v1/completions")
            with pytest.raises(EndpointError, match="Expected one choice with token_ids"):
                TokenServer(server.url).complete("base", (1,), 10)
        failed = events('{"error": {"message": "out of memory"}}', "[DONE]")
        server.fail(Status(200, failed.body, "text/event-stream"), path="/v1/completions")
        with pytest.raises(EndpointError, match=r"got the error .*out of memory"):
            TokenServer(server.url).complete("base", (1,), 10)
        url = server.url
    with pytest.raises(EndpointError, match=r"ConnectionRefusedError: .*Fix: check that the server runs"):
        TokenServer(url).complete("base", (1,), 10)


@pytest.mark.parametrize(
    "settings",
    [
        {"generation_endpoint": "localhost:8000"},
        {"generation_endpoint": "http://h/v1", "action_sampling": "trie"},
        {"generation_endpoint": "http://h/v1", "top_p": 0.9},
    ],
)
def test_refuses_settings_without_server_support(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="generation_endpoint"):
        SamplingSettings(**settings)


def test_a_model_without_an_adapter_is_refused() -> None:
    with pytest.raises(ModelError, match=r"Expected an adapter and one rank .*got 1 ranks and lora=None"):
        make_agent(
            Collector,
            action_sampling="free",
            generation_endpoint="http://h/v1",
            policy_kwargs={"model": "pocket", "lora": None},
        )
