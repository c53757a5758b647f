"""Models of all kinds are scored as they score themselves, and text goes through tokenizers of all kinds."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from toy import randomise
from transformers import AutoModelForCausalLM
from zoo import ZOO

from poad_sb3.distributions import make_distribution
from poad_sb3.distributions.base import SampledAction, ScoreCache
from poad_sb3.distributions.free import generate
from poad_sb3.language_model.language_model import LanguageModel
from poad_sb3.language_model.packing import TokenRow
from poad_sb3.prompts import Question
from poad_sb3.settings.sampling import ActionSampling, Normalization, SamplingSettings

PROMPT = "The lamp is red. The tomato is on the table. You have 3 moves left. You wait and look. You"
OTHERS = ("You", "The lamp is green. You", PROMPT * 3, "Press the red button, é!\n\tAnd    wait. You")
ACTIONS = ("open", "open the door", "open the door and wait", "press the red button", "press the lever", "wait, é")
"""The text of one is the beginning of another."""

every_model = pytest.mark.parametrize("name", ZOO)
some_models = pytest.mark.parametrize(
    "name", ["llama2", "gemma2", *(pytest.param(name, marks=pytest.mark.matrix) for name in ("gpt2", "qwen3", "phi3"))]
)


@pytest.fixture(autouse=True)
def _no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


class Scored(NamedTuple):
    """A model with an adapter that does something, and plain models of transformers, in float64, that say the same."""

    lm: LanguageModel
    adapted: Any
    frozen: Any


@pytest.fixture(scope="module")
def scored(zoo_folder: Callable[[str], Path]) -> Callable[[str], Scored]:
    @cache
    def make(name: str) -> Scored:
        folder = str(zoo_folder(name))
        torch.manual_seed(0)  # an adapter's A is random
        lm = LanguageModel(folder, prompt="completion")
        randomise(lm)
        frozen = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64).eval()
        return Scored(lm, copy.deepcopy(lm.network).double().merge_and_unload(), frozen)

    return make


# ------------------------------------------------------------------ brute force: whole sequences, one at a time


def log_probs_of(model: Any, prompt: Sequence[int], action: Sequence[int]) -> torch.Tensor:
    """Of the whole vocabulary before each action token, `[n, vocabulary]`; a plain model, batch of one, no cache."""
    logits = model(input_ids=torch.tensor([[*prompt, *action]]), use_cache=False).logits[0]
    return torch.log_softmax(logits[len(prompt) - 1 : -1], -1)


def row_of(prompt: Sequence[int], action: Sequence[int]) -> TokenRow:
    start = len(prompt) - 1
    return TokenRow((*prompt, *action[:-1]), None, tuple(range(start, start + len(action))))


def close(ours: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(ours.double(), expected.double(), rtol=0, atol=1e-5)


@some_models
@pytest.mark.parametrize("adapter", [True, False])
def test_tokens_are_scored_as_the_plain_model_scores_them(
    scored: Callable[[str], Scored], name: str, adapter: bool
) -> None:
    """For any other rows in the same pass."""
    lm, adapted, frozen = scored(name)
    assert lm.packs_trees is ZOO[name].packs_trees
    pairs = [(lm.prompt_ids(text), lm.action_ids(action)) for text in (PROMPT, *OTHERS) for action in ACTIONS[1:4]]
    reference = adapted if adapter else frozen
    expected = [log_probs_of(reference, *pair)[range(len(pair[1])), pair[1]] for pair in pairs]
    rows, children = [row_of(*pair) for pair in pairs], [[(token,) for token in pair[1]] for pair in pairs]
    for order in (range(len(rows)), range(len(rows) - 1, -1, -1), [0], [len(rows) - 1, 0]):
        hidden = lm.hidden_states([rows[k] for k in order], reference=not adapter)
        ours = lm.child_log_probs(hidden, [token for k in order for token in children[k]])
        close(ours, torch.cat([expected[k] for k in order]))


@some_models
def test_actions_are_chosen_as_the_plain_model_would(
    scored: Callable[[str], Scored], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Packed into a tree or not, in one pass or many: the probabilities of the trie, and of whole candidates."""
    lm, adapted, _ = scored(name)
    prompt, sequences = lm.prompt_ids(PROMPT), [lm.action_ids(action) for action in ACTIONS]
    logs = [log_probs_of(adapted, prompt, ids) for ids in sequences]
    by_trie = torch.stack(
        [_along_trie(log_probs, ids, sequences) for log_probs, ids in zip(logs, sequences, strict=True)]
    )
    whole = torch.stack([log_probs[range(len(ids)), ids].sum() for log_probs, ids in zip(logs, sequences, strict=True)])
    assert by_trie.exp().sum() == pytest.approx(1, abs=1e-6)
    for sampling, expected in ((ActionSampling.TRIE, by_trie), (ActionSampling.CANDIDATES, whole.log_softmax(0))):
        for packs, bound in itertools.product({lm.packs_trees, False}, (1, 4096)):
            monkeypatch.setattr(lm, "packs_trees", packs)
            monkeypatch.setattr(lm, "max_tokens_per_forward", bound)
            settings = SamplingSettings(action_sampling=sampling, candidate_normalization=Normalization.SUM)
            distribution = make_distribution(lm, settings)
            cache = ScoreCache([])
            questions = [Question(text, ACTIONS[:n]) for text, n in zip(OTHERS, (2, 6, 1, 4), strict=True)]
            distribution.mode([*questions, Question(PROMPT, ACTIONS), questions[0]], cache)
            ours = distribution.probabilities(Question(PROMPT, ACTIONS), cache)
            assert sum(ours.values()) == pytest.approx(1, abs=1e-6)
            close(torch.tensor(list(ours.values())), expected.exp())


def _along_trie(log_probs: torch.Tensor, ids: Sequence[int], sequences: Sequence[Sequence[int]]) -> torch.Tensor:
    """Log-probability of an action when each token is chosen among those that some action continues with."""
    total = torch.zeros((), dtype=torch.float64)
    for position, token in enumerate(ids):
        children = sorted({other[position] for other in sequences if tuple(other[:position]) == tuple(ids[:position])})
        total += log_probs[position][children].log_softmax(0)[children.index(token)]
    return total


@some_models
def test_trunk_features_do_not_depend_on_neighbours(
    scored: Callable[[str], Scored], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    lm, _, frozen = scored(name)
    rows = [row_of(lm.prompt_ids(text), lm.action_ids(ACTIONS[1])) for text in (PROMPT, *OTHERS)]
    expected = []
    for row in rows:
        states = frozen.get_decoder()(input_ids=torch.tensor([row.tokens]), use_cache=False).last_hidden_state[0]
        expected.append(states[list(row.reads)])
    scale = max(float(states.abs().max()) for states in expected)
    for bound, order in itertools.product((1, 150, 4096), ([0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2], [0, 2])):
        monkeypatch.setattr(lm, "max_tokens_per_forward", bound)
        for k, ours in zip(order, lm.trunk_features([rows[k] for k in order]), strict=True):
            close(ours / scale, expected[k] / scale)


@some_models
@pytest.mark.parametrize("caches", [True, False])
def test_sampled_tokens_have_the_plain_model_s_log_probabilities(
    scored: Callable[[str], Scored], monkeypatch: pytest.MonkeyPatch, name: str, caches: bool
) -> None:
    """With the cache and without it, in batches of prompts of many lengths, that end at different times."""
    lm, adapted, _ = scored(name)
    assert lm.caches, "the cache of this architecture can be trusted"
    monkeypatch.setattr(lm, "caches", caches)
    prompts = [lm.prompt_ids(text) for text in (PROMPT, *OTHERS)]
    uniforms = np.random.default_rng(0).random((len(prompts), 12))
    for drawn in ({}, {"temperature": 0.7, "top_k": 5, "top_p": 0.9}, {"temperature": 1.5, "top_p": 0.8}):
        sampling = SamplingSettings(max_new_tokens=12, stop=("e", "o"), **drawn)
        written = generate(lm, prompts, sampling, uniforms)
        assert len({len(sample.path.action) for sample in written}) > 1, "rows leave the batch at different times"
        assert not any(letter in sample.text for sample in written for letter in "eo")
        for prompt, sample in zip(prompts, written, strict=True):
            close(torch.from_numpy(sample.log_probs), _drawn_from(adapted, prompt, sample, sampling))
        alone = [generate(lm, [prompt], sampling, uniforms[[k]])[0] for k, prompt in enumerate(prompts)]
        differ = [sample.path.action != other.path.action for sample, other in zip(alone, written, strict=True)]
        # A number that falls within rounding of the edge between two tokens may fall on either side.
        assert sum(differ) <= 1, "neighbours change nothing"


def _drawn_from(plain: Any, prompt: tuple[int, ...], sample: SampledAction, sampling: SamplingSettings) -> torch.Tensor:
    """Log-probabilities of a continuation by the plain model and its own idea of a nucleus."""
    log_probs = []
    for position, row in enumerate(log_probs_of(plain, prompt, sample.path.action)):
        ranked = sorted(range(len(row)), key=lambda token: -float(row[token]))[: sampling.top_k or None]
        probs = (row[ranked] / sampling.temperature).softmax(0)
        n = next(n for n in range(1, len(ranked) + 1) if n == len(ranked) or probs[:n].sum() >= sampling.top_p)
        listed = sorted(ranked[:n])
        assert sample.path.decisions[position].children == (tuple(listed) if sampling.restricts_tokens else ())
        drawn = (row[listed] / sampling.temperature).log_softmax(0)
        log_probs.append(drawn[listed.index(sample.path.action[position])])
    return torch.stack(log_probs)


# ------------------------------------------------------------------ text


@every_model
def test_one_space_is_between_prompt_and_action(scored: Callable[[str], Scored], name: str) -> None:
    lm = scored(name).lm
    together = (*lm.prompt_ids("The lamp is red. You"), *lm.action_ids("press it"))
    assert together == (*lm.tokenizer.encode("The lamp is red. You press it"), lm.end_token)


@every_model
def test_a_special_token_that_is_written_makes_another_text(scored: Callable[[str], Scored], name: str) -> None:
    """Left out, an inadmissible action would become an admissible one."""
    lm = scored(name).lm
    special = {number for number, token in lm.tokenizer.added_tokens_decoder.items() if token.special}
    for token in special - lm.prompter.end_tokens:
        ids = (*lm.action_ids("press")[:-1], token, *lm.action_ids("it"))
        assert str(lm.tokenizer.added_tokens_decoder[token]) in lm.prompter.action_text(ids)
