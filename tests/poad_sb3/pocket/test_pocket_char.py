"""The character-level pocket model: its tokens, its files, and that POAD trains it on free text."""

import dataclasses
import json
import string

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from transformers import AutoTokenizer

from lang_envs import ENV_ROWS
from poad_sb3 import POAD
from poad_sb3.common.hyperparameters import preset
from poad_sb3.pocket import CHAR_FOLDER, CODER_FOLDER, POCKET_FOLDER, SHIPPED_MODELS, model_path
from poad_sb3.pocket.configs import CONFIGS, CharConfig
from poad_sb3.pocket.corpus import Example
from poad_sb3.pocket.train import encode_action, encode_line, train

HOUSEHOLD = tuple(row.id for row in ENV_ROWS if row.id.startswith("VirtualHome"))
FOOD = "VirtualHome-FoodPreparation-v0"


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(CHAR_FOLDER)


def lengths(tokenizer, env_id):
    """Tokens of every action of a task, end token included."""
    commands = gym.make(env_id).unwrapped.command_set
    return np.array([len(encode_action(tokenizer, Example("", text))) + 1 for text in commands])


def test_embedded_models_go_by_their_names():
    expected = {"pocket": POCKET_FOLDER, "pocket-char": CHAR_FOLDER, "pocket-coder": CODER_FOLDER}
    assert expected == SHIPPED_MODELS
    assert set(CONFIGS) == set(expected)
    assert all(model_path(name) == str(folder) for name, folder in expected.items())


# ---------------------------------------------------------------------- tokens


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=60))
def test_the_tokenizer_loses_nothing(tokenizer, text):
    ids = tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
    assert len(ids) == len(text.encode())
    assert tokenizer.decode(ids, clean_up_tokenization_spaces=False) == text


def test_an_ascii_character_is_a_token(tokenizer):
    ids = tokenizer.encode(string.printable, add_special_tokens=False)
    assert [tokenizer.decode([one], clean_up_tokenization_spaces=False) for one in ids] == list(string.printable)
    assert len(tokenizer) == CharConfig().vocab_size == 256 + 3


def test_household_actions_have_20_to_40_tokens(tokenizer):
    pocket = AutoTokenizer.from_pretrained(POCKET_FOLDER)
    for env_id in HOUSEHOLD:
        found = lengths(tokenizer, env_id)
        assert 20 <= found.mean() <= 40
        assert found.min() >= 15
        assert found.max() <= 40
        assert found.mean() > 3.5 * lengths(pocket, env_id).mean()


@pytest.mark.parametrize("env_id", [FOOD, "VirtualHome-MovieNight-v0"])
def test_the_context_holds_the_longest_prompt_twice(tokenizer, env_id):
    """That is, with one earlier step."""
    env = gym.make(env_id, describe="full", phrasing="any", distractors=3).unwrapped
    rng, longest = np.random.default_rng(0), 0
    text, info = env.reset(seed=0)
    for _ in range(1_000):
        command = max(env.command_set, key=len)
        longest = max(longest, len(encode_line(tokenizer, Example(text, command))))
        text, _, terminated, truncated, info = env.step_text(rng.choice(info["admissible_actions"]).item())
        if terminated or truncated:
            text, info = env.reset()
    assert 400 < longest <= CharConfig.context // 2


# ---------------------------------------------------------------------- shipped files


def test_what_ships_is_small():
    files = {path.name: path.stat().st_size for path in CHAR_FOLDER.iterdir()}
    assert {"model.safetensors", "tokenizer.json", "config.json", "training.json", "README.md"} <= set(files)
    assert sum(files.values()) < 3_000_000


def test_what_ships_was_trained_by_the_script():
    facts = json.loads((CHAR_FOLDER / "training.json").read_text(encoding="utf-8"))
    shape = json.loads((CHAR_FOLDER / "config.json").read_text(encoding="utf-8"))
    config = CharConfig()
    assert {name: facts[name] for name in dataclasses.asdict(config)} == dataclasses.asdict(config)
    assert facts["training_ids"] == [FOOD, "VirtualHome-Entertainment-v0"]
    assert facts["corpus_lines"] == config.n_play + config.n_sentences
    assert facts["parameters"] == sum(one.numel() for one in load_file(CHAR_FOLDER / "model.safetensors").values())
    assert (shape["num_hidden_layers"], shape["hidden_size"]) == (config.n_layers, config.hidden_size)
    assert (shape["max_position_embeddings"], shape["vocab_size"]) == (config.context, config.vocab_size)


def test_the_card_agrees_with_the_configuration():
    config, card = CharConfig(), (CHAR_FOLDER / "README.md").read_text(encoding="utf-8")
    for fact in (
        f"hidden size {config.hidden_size}, {config.n_layers} layers, {config.n_heads} heads",
        f"seed {config.seed}, {config.n_batches} batches of {config.batch_size} lines",
        f"{config.n_play:,} prompts",
        f"{config.n_sentences:,} lines",
        f"{config.vocab_size} tokens",
        "--model pocket-char",
        *(f"`{env_id}`" for env_id in config.training_ids),
    ):
        assert fact in card


@pytest.mark.matrix
def test_the_corpus_has_the_recorded_tokens(tokenizer):
    facts = json.loads((CHAR_FOLDER / "training.json").read_text(encoding="utf-8"))
    assert facts["corpus_tokens"] == sum(len(encode_line(tokenizer, line)) for line in CharConfig().corpus())


@pytest.mark.matrix
def test_training_is_deterministic(tmp_path):
    sizes = {"hidden_size": 16, "n_heads": 2, "intermediate_size": 32, "n_layers": 1}
    small = CharConfig(n_play=60, n_sentences=30, n_batches=3, batch_size=4, **sizes)
    first, second = (train(small, tmp_path / name) for name in ("a", "b"))
    assert first == second
    a, b = (load_file(tmp_path / name / "model.safetensors") for name in ("a", "b"))
    assert all(a[name].equal(b[name]) for name in a)


# ---------------------------------------------------------------------- training


@pytest.mark.parametrize("sampling", ["trie", "free"])
def test_poad_trains_it(sampling):
    arguments = {**preset("pocket/virtualhome", "POAD", n_envs=1), "n_steps": 8, "batch_size": 4}
    arguments |= {"policy_kwargs": {"model": "pocket-char"}, "action_sampling": sampling}
    arguments |= {"max_new_tokens": 64} if sampling == "free" else {}
    model = POAD("LLMPolicy", FOOD, seed=0, **arguments).learn(8)
    assert model.logger.name_to_value["train/first_ratio_error"] < 1e-4


@pytest.mark.matrix
def test_most_untrained_free_sentences_are_commands():
    """Measured on 500 steps: 98 % are in the command set; see the model's page."""
    env = gym.make(FOOD)
    model = POAD("LLMPolicy", env, seed=0, action_sampling="free", policy_kwargs={"model": "pocket-char"})
    observation, info = env.reset(seed=0)
    invalid = []
    for _ in range(50):
        action, _ = model.predict(observation)
        observation, reward, terminated, truncated, info = env.step(action)
        assert terminated or reward == 0.0
        invalid.append(info["invalid_action"])
        if terminated or truncated:
            observation, info = env.reset()
    assert np.mean(invalid) < 0.2
