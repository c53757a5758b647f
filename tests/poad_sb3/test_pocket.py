"""The pocket model: what it was trained on, what ships, and that its script makes it."""

import dataclasses
import json
import re

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from transformers import AutoTokenizer

from lang_envs import ENV_ROWS
from poad_sb3 import POAD
from poad_sb3.pocket import POCKET_FOLDER
from poad_sb3.pocket.corpus import TRAINING_IDS, household_sentences, random_play
from poad_sb3.pocket.train import PocketConfig, encode_line, make_corpus, train

UNSEEN_NOUNS = "cheese|hamburger|apple pie|pizza|dishes|dishwasher|clothes|washing machine"
COMMANDS = "walk to|grab|put|open|close|pick up|take|chop|serve|heat up|turn on|turn off|sit on"


@pytest.fixture(scope="module")
def corpus():
    return make_corpus(PocketConfig())


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(POCKET_FOLDER)


def test_what_ships_is_small():
    files = {path.name: path.stat().st_size for path in POCKET_FOLDER.iterdir()}
    assert {"model.safetensors", "tokenizer.json", "config.json", "training.json", "README.md"} <= set(files)
    assert sum(files.values()) < 8_000_000
    parameters = sum(tensor.numel() for tensor in load_file(POCKET_FOLDER / "model.safetensors").values())
    assert 500_000 < parameters < 1_500_000


def test_what_ships_was_trained_by_the_script(corpus, tokenizer):
    facts = json.loads((POCKET_FOLDER / "training.json").read_text(encoding="utf-8"))
    assert {name: facts[name] for name in dataclasses.asdict(PocketConfig())} == dataclasses.asdict(PocketConfig())
    assert facts["training_ids"] == list(TRAINING_IDS)
    assert facts["corpus_lines"] == len(corpus)
    assert facts["corpus_tokens"] == sum(len(encode_line(tokenizer, line)) for line in corpus)


def test_the_corpus_holds_no_task_called_unseen(corpus):
    commands = re.compile(rf"\b({COMMANDS})\b[^.]*\b({UNSEEN_NOUNS})\b", re.IGNORECASE)
    assert [line for line in corpus if commands.search(f"{line.prompt} {line.action}")] == []
    assert set(TRAINING_IDS) <= {row.id for row in ENV_ROWS}


def test_plain_sentences_hold_no_command_and_no_prompt():
    prompts = {line.prompt for line in random_play(500, np.random.default_rng(0))}
    command = re.compile(rf"^({COMMANDS})\b", re.IGNORECASE)
    for line in household_sentences(2000, np.random.default_rng(1)):
        assert line.action == ""
        assert not any(command.match(sentence.strip()) for sentence in line.prompt.split("."))
        assert line.prompt not in prompts


def test_play_is_uniform_over_the_admissible_actions():
    counts = {}
    for line in random_play(4000, np.random.default_rng(2)):
        counts.setdefault(line.prompt, {}).setdefault(line.action, 0)
        counts[line.prompt][line.action] += 1
    start = max(counts.values(), key=lambda actions: sum(actions.values()))
    total = sum(start.values())
    assert len(start) == 5
    chi_square = sum((n - total / 5) ** 2 / (total / 5) for n in start.values())
    assert chi_square < 18.5  # 4 degrees of freedom, p = 0.001


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=60))
def test_the_tokenizer_loses_nothing(tokenizer, text):
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.decode(ids, clean_up_tokenization_spaces=False) == text


def test_training_is_deterministic(tmp_path):
    small = PocketConfig(n_play=60, n_sentences=30, n_batches=3, hidden_size=16, n_heads=2, intermediate_size=32)
    first, second = (train(small, tmp_path / name) for name in ("a", "b"))
    assert first == second
    a, b = (load_file(tmp_path / name / "model.safetensors") for name in ("a", "b"))
    assert all(a[name].equal(b[name]) for name in a)


def test_it_does_not_know_the_task():
    env = gym.make("Overcooked-TomatoSalad-v0")
    model = POAD("LLMPolicy", env, seed=0)
    text, info = env.reset()
    for _ in range(6):
        best = env.unwrapped.oracle_action()
        probabilities = model.policy.action_probabilities(text, info["admissible_actions"])
        assert 0.02 < probabilities[best] < 0.6
        text, _, _, _, info = env.step(env.action_space.encode(best))
