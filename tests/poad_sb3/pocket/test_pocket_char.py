"""The character-level pocket model: its files, and that POAD trains it on free text."""

import dataclasses
import json

import pytest
from safetensors.torch import load_file

from poad_sb3 import POAD
from poad_sb3.common.hyperparameters import preset
from poad_sb3.pocket import CHAR_FOLDER
from poad_sb3.pocket.configs import CharConfig

FOOD = "VirtualHome-FoodPreparation-v0"


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


# ---------------------------------------------------------------------- training


@pytest.mark.parametrize("sampling", ["trie", "free"])
def test_poad_trains_it(sampling):
    arguments = {**preset("pocket/virtualhome", "POAD", n_envs=1), "n_steps": 8, "batch_size": 4}
    arguments |= {"policy_kwargs": {"model": "pocket-char"}, "action_sampling": sampling}
    arguments |= {"max_new_tokens": 64} if sampling == "free" else {}
    model = POAD("LLMPolicy", FOOD, seed=0, **arguments).learn(8)
    assert model.logger.name_to_value["train/first_ratio_error"] < 1e-4
