"""Temperature, top-k, top-p: the distribution, the drawn tokens, and training on them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toy import assert_same_frequencies, make_agent, properties, randomise, save_small_model
from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from poad_sb3 import POAD, ModelError
from poad_sb3.distributions.free import generate
from poad_sb3.distributions.token_sampling import Support, draw, next_token_support
from poad_sb3.language_model.language_model import LanguageModel
from poad_sb3.settings.sampling import SamplingSettings

SHARP = SamplingSettings(temperature=0.7, top_k=5, top_p=0.9)
SAMPLINGS = (
    SamplingSettings(),
    SHARP,
    SamplingSettings(temperature=2.0, top_k=3),
    SamplingSettings(top_p=0.6),
)


def dense(logits: torch.Tensor, sampling: SamplingSettings) -> torch.Tensor:
    """The distribution over the whole vocabulary, `[n, vocabulary]`."""
    log_probs, ids, _ = next_token_support(logits, sampling)
    if ids is None:
        return log_probs.exp()
    return torch.zeros_like(logits).scatter(-1, ids, log_probs.exp())


@properties
@given(
    seed=st.integers(0, 1000),
    vocabulary=st.integers(1, 40),
    temperature=st.floats(0.05, 5),
    top_k=st.integers(0, 50),
    top_p=st.floats(0.01, 1.0),
)
def test_the_distribution_is_that_of_transformers(
    seed: int, vocabulary: int, temperature: float, top_k: int, top_p: float
) -> None:
    logits = 3 * torch.randn(4, vocabulary, generator=torch.Generator().manual_seed(seed))
    sampling = SamplingSettings(temperature=temperature, top_k=top_k, top_p=top_p)
    theirs = TemperatureLogitsWarper(temperature)(None, logits)
    if top_k:
        theirs = TopKLogitsWarper(top_k)(None, theirs)
    if top_p < 1:
        theirs = TopPLogitsWarper(top_p)(None, theirs)
    ours = dense(logits, sampling)
    torch.testing.assert_close(ours.sum(-1), torch.ones(4))
    probs = theirs.softmax(-1)
    on_the_edge = ((ours > 0) != (probs > 0)).any(-1)  # a cumulative probability equal to p up to rounding
    torch.testing.assert_close(ours[~on_the_edge], probs[~on_the_edge], rtol=1e-4, atol=1e-6)
    assert on_the_edge.sum() <= 1
    support = next_token_support(logits, sampling)
    assert ((support.log_probs > -torch.inf).sum(-1) == support.sizes).all()


def test_the_most_probable_token_is_always_in_the_nucleus() -> None:
    logits = torch.tensor([[9.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    assert next_token_support(logits, SamplingSettings(top_p=1e-6)).sizes.tolist() == [1, 1]
    assert next_token_support(logits, SamplingSettings(top_p=0.99)).sizes.tolist() == [1, 3]


@pytest.mark.parametrize("vocabulary", [1, 255, 256, 257, 2000])
def test_draws_invert_the_cumulative_distribution(vocabulary: int) -> None:
    """Also where whole stretches of a vocabulary cannot be drawn."""
    generator = torch.Generator().manual_seed(vocabulary)
    logits = 3 * torch.randn(4, vocabulary, generator=generator)
    if vocabulary > 1:
        logits[1, : vocabulary // 2] = -math.inf
        logits[2, vocabulary // 2 :] = -math.inf
        logits[3, 1:] = -math.inf
    probs = logits.double().softmax(-1)
    support = Support(logits.log_softmax(-1), None, torch.full((4,), vocabulary))
    numbers = [0.0, math.nextafter(1.0, 0.0), *torch.rand(200, generator=generator, dtype=torch.float64).tolist()]
    for number in numbers:
        tokens = draw(support, torch.full((4,), number, dtype=torch.float64))[0][:, None]
        assert (probs.gather(-1, tokens) > 0).all()
        up_to = probs.cumsum(-1).gather(-1, tokens)
        assert (up_to > number - 1e-6).all()
        assert (up_to - probs.gather(-1, tokens) < number + 1e-6).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": 0.0}, "Expected temperature to be a positive number; got 0.0"),
        ({"top_k": -1}, "Expected top_k to be an integer, 0 or more; got -1"),
        ({"top_p": 1.1}, "Expected top_p to be a number above 0, at most 1; got 1.1"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        POAD("LLMPolicy", "Overcooked-TomatoSalad-v0", action_sampling="free", **settings)


# ------------------------------------------------------------------ generation


@pytest.fixture
def small(tmp_path: Path) -> LanguageModel:
    model = LanguageModel(save_small_model(tmp_path / "small"))
    randomise(model)
    return model


def write(lm: LanguageModel, n: int, sampling: SamplingSettings, seed: int = 0) -> Sequence[Any]:
    uniforms = np.random.default_rng(seed).random((n, sampling.max_new_tokens))
    return generate(lm, [lm.prompt_ids("press wait")] * n, sampling, uniforms)


@pytest.mark.parametrize("sampling", SAMPLINGS[:2])
def test_texts_are_written_as_often_as_they_are_probable(small: LanguageModel, sampling: SamplingSettings) -> None:
    """Rows end at different times and leave the batch; the frequencies of whole texts tell if that goes wrong."""
    written = write(small, 4000, replace(sampling, max_new_tokens=3))
    frequencies: dict[tuple[int, ...], int] = {}
    probabilities: dict[tuple[int, ...], float] = {}
    for sample in written:
        frequencies[sample.path.action] = frequencies.get(sample.path.action, 0) + 1
        probabilities[sample.path.action] = float(np.exp(sample.log_probs.sum()))
    assert sum(probabilities.values()) == pytest.approx(1, abs=0.05), "what was never drawn has little probability"
    observed = np.array([*frequencies.values(), 0])
    assert_same_frequencies(observed, np.array([*probabilities.values(), max(0.0, 1 - sum(probabilities.values()))]))


def test_a_stop_text_ends_an_action_before_itself(small: LanguageModel) -> None:
    free = write(small, 50, SamplingSettings(max_new_tokens=8))
    stopped = write(small, 50, SamplingSettings(max_new_tokens=8, stop=("red it", "wait")))
    assert any("wait" in sample.text for sample in free)
    for long, short in zip(free, stopped, strict=True):
        assert long.path.action[: len(short.path.action)] == short.path.action
        assert not any(stop in short.text for stop in ("red it", "wait"))
        assert long.text.startswith(short.text)
        assert len(short.log_probs) == len(short.path.decisions) == len(short.path.action)


@pytest.mark.filterwarnings("ignore:.*this one has none")  # with top_k=1
@pytest.mark.parametrize("sampling", [{"top_k": 1}, {"top_p": 0.5}], ids=str)
def test_a_token_without_an_alternative_decides_nothing(sampling: dict[str, Any]) -> None:
    agent = make_agent(action_sampling="free", max_new_tokens=8, **sampling).learn(16)
    taken = [sample for step in agent.rollout_buffer.steps for sample in step]
    options = [len(decision.children) for sample in taken for decision in sample.path.decisions]
    assert 1 not in options
    assert len(options) < sum(len(sample.path.action) for sample in taken)


def test_the_model_s_context_ends_an_action(small: LanguageModel) -> None:
    prompt = (2,) * (small.max_length - 2)
    (sample,) = generate(small, [prompt], SamplingSettings(max_new_tokens=30), np.full((1, 30), 0.3))
    assert len(sample.path.action) <= 3
    with pytest.raises(ModelError, match=r"Expected at most 48 tokens of prompt and action.*got 49"):
        generate(small, [(2,) * 49], SamplingSettings(max_new_tokens=30), None)


def test_without_numbers_the_most_probable_tokens_are_taken(small: LanguageModel) -> None:
    prompt = small.prompt_ids("press wait")
    for sampling in SAMPLINGS:
        (sample,) = generate(small, [prompt], replace(sampling, max_new_tokens=6), None)
        ids = torch.tensor([[*prompt, *sample.path.action]])
        with torch.no_grad():
            best = small.network(input_ids=ids).logits[0, len(prompt) - 1 : -1].argmax(-1)
        assert tuple(best.tolist()) == sample.path.action


def test_logits_that_are_no_number_are_refused(small: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small, "vocabulary_logits", lambda hidden: torch.full((len(hidden), 6), math.nan))
    with pytest.raises(
        FloatingPointError, match=r"Expected finite log-probabilities of tokens.*Fix: the model diverged"
    ):
        write(small, 2, SamplingSettings(max_new_tokens=3))
