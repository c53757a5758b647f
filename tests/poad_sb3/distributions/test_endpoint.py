"""Free actions from a server of token completions: a stand-in on the loopback interface, right and with each fault."""

from __future__ import annotations

import hashlib
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from standins import Cut, Hang, Status
from token_server import TokenStandIn
from toy import Collector, batch_of, make_agent, randomise

from benchmarks.performance.mismatch import flat_model
from poad_sb3.common.on_policy_algorithm import LLMOnPolicyAlgorithm
from poad_sb3.distributions import EndpointDistribution
from poad_sb3.distributions.endpoint import TokenServer
from poad_sb3.errors import EndpointError, MismatchError, ModelError, PresetError
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
        assert len(bodies) == 32
        assert [*dict.fromkeys(body["model"][:7] for body in bodies)] == ["poad-1-", "poad-2-"]
        assert [*server.adapters] == [distribution.adapter]
        first = bodies[0]
        assert (first["temperature"], first["top_k"], first["top_p"], first["logprobs"]) == (1.0, 0, 1.0, 0)
        assert first["return_token_ids"]
        assert first["max_tokens"] == 12
        assert first["stop_token_ids"] == sorted(model.policy.lm.prompter.end_tokens)
        assert len({body["seed"] for body in bodies}) == 32


@pytest.mark.matrix_after(2)
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("noise", "standard deviation of the differences"),
        ("cut", "mean difference of at most .* support cut"),
        ("retokenized", "largest difference .* encoding a text again"),
    ],
)
def test_a_batch_with_a_fault_is_refused_before_a_step(fault: str, words: str) -> None:
    with TokenStandIn(flat_model, fault, noise=5 * 0.0048) as server:
        model = agent(server.url)
        before = {name: value.detach().clone() for name, value in model.policy.named_parameters()}
        with pytest.raises(MismatchError, match=words):
            model.learn(16)
        assert all(torch.equal(before[name], value) for name, value in model.policy.named_parameters())


@pytest.mark.parametrize(("temperature", "is_refused"), [(1.0, False), (0.7, True)])
def test_log_probabilities_before_temperature_are_refused(temperature: float, is_refused: bool) -> None:
    with TokenStandIn(flat_model, "raw") as server:
        model = agent(server.url, temperature=temperature)
        with pytest.raises(MismatchError, match="another temperature") if is_refused else nullcontext():
            model.learn(16)


def test_weights_that_a_server_did_not_take_over_are_noticed() -> None:
    with TokenStandIn(flat_model, "stale") as server:
        model = agent(server.url).learn(16)
        randomise(model.policy.lm)
        with pytest.raises(MismatchError):
            model.learn(16, reset_num_timesteps=False)


def test_the_same_generators_give_the_same_actions_and_scores() -> None:
    with TokenStandIn(flat_model) as server:
        model = agent(server.url)
        first, second = (
            model.policy.act(QUESTION, rngs=[np.random.default_rng(one) for one in (1, 2, 1)]) for _ in "ab"
        )
        assert [one.path for one in first] == [one.path for one in second]
        assert first[0].path == first[2].path != first[1].path
        scores = model.policy.distribution.log_prob([one.path for one in first]).detach()
        np.testing.assert_allclose([one.log_probs.sum() for one in first], scores, atol=0.1)


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


def test_trainings_that_begin_alike_have_adapters_of_their_own() -> None:
    with TokenStandIn(flat_model) as server:
        first, second = (agent(server.url) for _ in range(2))
        for model in (first, second):
            model.policy.act(QUESTION)
        randomise(first.policy.lm)
        for model in (first, second):  # the first one's new adapter has replaced its old one
            model.policy.act(QUESTION)
        assert {*server.adapters} == {distribution_of(first).adapter, distribution_of(second).adapter}


def test_a_server_that_is_started_again_gets_the_adapter_again() -> None:
    with TokenStandIn(flat_model) as server:
        model = agent(server.url)
        model.policy.act(QUESTION)
        server.adapters.clear()
        with pytest.raises(EndpointError):
            model.policy.act(QUESTION)
        model.policy.act(QUESTION)
        server.adapters.clear()
        randomise(model.policy.lm)
        model.policy.act(QUESTION)
        assert len(server.adapters) == 1
        folders = [Path(body["lora_path"]) for body in server.bodies("/v1/load_lora_adapter")]
        assert [folder.exists() for folder in folders] == [False, False, True]


def test_an_action_ends_before_a_stop_text_and_after_max_new_tokens() -> None:
    with TokenStandIn(flat_model) as server:
        model = agent(server.url, stop=["e"], max_new_tokens=8)
        for one in model.policy.act(QUESTION):
            assert "e" not in one.text
            assert len(one.path.action) == len(one.log_probs) <= 8


@pytest.mark.matrix_after(3)
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("foreign", "Expected token ids below 854"),
        ("short", "and 11 log-probabilities"),
        ("renamed", "answered by 'base'"),
        ("reread", "the prompt that was sent"),
        ("unlisted", "to list the adapter 'poad-1-.*; it lists \\['base'\\]"),
        ("plain", "KeyError: 'token_ids'"),
    ],
)
def test_an_answer_that_is_not_the_policys_is_refused(fault: str, words: str) -> None:
    with TokenStandIn(flat_model, fault) as server:
        model = agent(server.url)
        rngs = [np.random.default_rng(0)] * 3
        with pytest.raises(EndpointError, match=words):
            model.policy.act(QUESTION, rngs=rngs)


def test_broken_connections_are_repeated_and_refusals_are_not() -> None:
    with TokenStandIn(flat_model) as server:
        model = agent(server.url)
        server.fail(Hang(0), path="/v1/completions")
        server.fail(Cut(after=20), path="/v1/completions")
        assert len(model.policy.act(QUESTION)) == 3
        assert len(server.bodies("/v1/completions")) == 5
        server.fail(Status(500, b"out of memory"), path="/v1/completions", times=3)
        with pytest.raises(EndpointError, match="status 500: out of memory"):
            model.policy.act(QUESTION)
        assert len(server.bodies("/v1/completions")) == 8


def test_a_silent_server_is_given_up() -> None:
    with TokenStandIn(flat_model) as server:
        server.fail(Hang(60), path="/v1/models")
        with pytest.raises(EndpointError, match=r"/models; got TimeoutError: timed out \(request 1 of 3\)"):
            TokenServer(server.url, timeout=0.2)._send("/models")
        assert len(server.requests) == 1


def test_no_server_and_no_json() -> None:
    with TokenStandIn(flat_model) as server:
        server.fail(Status(200, b"<html>"), path="/v1/completions")
        with pytest.raises(EndpointError, match="Expected JSON"):
            TokenServer(server.url).complete("base", (1,), 10)
        url = server.url
    with pytest.raises(EndpointError, match=r"ConnectionRefusedError.*request 3 of 3.*Fix: check that the server runs"):
        TokenServer(url).complete("base", (1,), 10)


@pytest.mark.parametrize(
    "settings",
    [
        {"generation_endpoint": "localhost:8000"},
        {"generation_endpoint": 8000},
        {"generation_endpoint": "http://h/v1", "action_sampling": "trie"},
        {"generation_endpoint": "http://h/v1", "top_k": 5},
        {"generation_endpoint": "http://h/v1", "top_p": 0.9},
    ],
)
def test_settings_that_no_server_can_follow(settings: dict[str, Any]) -> None:
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


def test_a_setting_without_effect_is_refused_by_presets() -> None:
    from poad_sb3.common.hyperparameters import require_effects

    with pytest.raises(PresetError, match="generation_endpoint has none"):
        require_effects(make_agent(), ["generation_endpoint"])
