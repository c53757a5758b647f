"""The pocket model: its training text, its files, and that its script makes it."""

import dataclasses
import json

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from lang_envs import ENV_ROWS, TRAINING_IDS, UNSEEN_IDS
from poad_sb3 import POAD
from poad_sb3.pocket import POCKET_FOLDER, SHIPPED_MODELS
from poad_sb3.pocket.configs import PocketConfig
from poad_sb3.pocket.train import encode_line


@pytest.fixture(scope="module")
def corpus():
    return PocketConfig().corpus()


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(POCKET_FOLDER)


@pytest.mark.matrix
def test_shipped_weights_were_trained_by_the_script(corpus, tokenizer):
    facts = json.loads((POCKET_FOLDER / "training.json").read_text(encoding="utf-8"))
    assert {name: facts[name] for name in dataclasses.asdict(PocketConfig())} == dataclasses.asdict(PocketConfig())
    assert facts["training_ids"] == list(TRAINING_IDS)
    assert facts["corpus_lines"] == len(corpus)
    assert facts["corpus_tokens"] == sum(len(encode_line(tokenizer, line)) for line in corpus)


@pytest.mark.matrix
def test_no_prompt_and_no_phrase_of_an_unseen_task_is_in_the_corpus(corpus):
    assert {row.id for row in ENV_ROWS} >= {*TRAINING_IDS, *UNSEEN_IDS}
    assert len(set(UNSEEN_IDS)) == 8
    trained_phrases = set().union(*(texts_of(env_id)[1] for env_id in TRAINING_IDS if env_id.startswith("VirtualHome")))
    everything = "\n".join(f"{line.prompt} {line.action}" for line in corpus)
    for env_id in UNSEEN_IDS:
        prompts, phrases = texts_of(env_id)
        new = phrases - trained_phrases
        assert len(prompts) >= 15
        assert len(new) >= 3
        assert [text for text in {*prompts, *new} if text in everything] == []


def texts_of(env_id):
    """Every prompt within reach of a long random walk over the command set, and every phrase."""
    env, rng = gym.make(env_id, disable_env_checker=True).unwrapped, np.random.default_rng(0)
    env.reset(seed=0)
    prompts = set()
    for _ in range(20_000):
        text, _, terminated, truncated, _ = env.step_text(rng.choice(env.command_set).item())
        prompts.add(text)
        if terminated or truncated:
            env.reset()
    return prompts, set(env.command_set)


@pytest.mark.parametrize("name", SHIPPED_MODELS)
def test_the_tokenizer_loses_nothing(name):
    tokenizer = AutoTokenizer.from_pretrained(SHIPPED_MODELS[name])

    @given(text=st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=60))
    def check(text):
        ids = tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
        assert tokenizer.decode(ids, clean_up_tokenization_spaces=False) == text
        assert name != "pocket-char" or len(ids) == len(text.encode())

    check()


@pytest.mark.parametrize("env_id", TRAINING_IDS)
def test_the_untrained_model_does_not_know_the_task(env_id):
    """Along the shortest plan, no action is near certain or impossible, and the whole plan is a rare one."""
    env = gym.make(env_id, oracle_info=True)
    model = POAD("LLMPolicy", env, seed=0)
    text, info = env.reset()
    chances = []
    while info["oracle_action"] is not None:
        probabilities = model.policy.action_probabilities(text, info["admissible_actions"])
        chances.append(probabilities[info["oracle_action"]])
        text, _, _, _, info = env.step(env.action_space.encode(info["oracle_action"]))
    assert 0.01 < min(chances) < max(chances) < 0.6
    assert np.exp(np.log(chances).mean()) < 0.35
