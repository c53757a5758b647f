"""The character-level pocket model: its tokens, its files, and that POAD trains it on free text."""

import dataclasses
import json

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from transformers import AutoTokenizer

from poad_sb3 import POAD
from poad_sb3.common.hyperparameters import preset
from poad_sb3.pocket import CHAR_FOLDER, CODER_FOLDER, POCKET_FOLDER, SHIPPED_MODELS, model_path
from poad_sb3.pocket.configs import CONFIGS, CharConfig
from poad_sb3.pocket.train import encode_line

FOOD = "VirtualHome-FoodPreparation-v0"


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(CHAR_FOLDER)


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


# ---------------------------------------------------------------------- shipped files


def test_shipped_weights_were_trained_by_the_script():
    facts = json.loads((CHAR_FOLDER / "training.json").read_text(encoding="utf-8"))
    shape = json.loads((CHAR_FOLDER / "config.json").read_text(encoding="utf-8"))
    config = CharConfig()
    assert {name: facts[name] for name in dataclasses.asdict(config)} == dataclasses.asdict(config)
    assert facts["training_ids"] == [FOOD, "VirtualHome-Entertainment-v0"]
    assert facts["corpus_lines"] == config.n_play + config.n_sentences
    assert facts["parameters"] == sum(
        tensor.numel() for tensor in load_file(CHAR_FOLDER / "model.safetensors").values()
    )
    assert (shape["num_hidden_layers"], shape["hidden_size"]) == (config.n_layers, config.hidden_size)
    assert (shape["max_position_embeddings"], shape["vocab_size"]) == (config.context, config.vocab_size)


@pytest.mark.matrix
def test_the_corpus_has_the_recorded_tokens(tokenizer):
    facts = json.loads((CHAR_FOLDER / "training.json").read_text(encoding="utf-8"))
    assert facts["corpus_tokens"] == sum(len(encode_line(tokenizer, line)) for line in CharConfig().corpus())


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
