"""The pocket coder: its grammar, its files, and that POAD can use it."""

import dataclasses
import json

import gymnasium as gym
import numpy as np
import pytest
from safetensors.torch import load_file

pytest.importorskip("sklearn")

from lang_envs.datasets import DATASETS, load
from lang_envs.envs.datascicoding.evaluation import Status
from poad_sb3.pocket import CODER_FOLDER
from poad_sb3.pocket.coding.corpus import _line, evaluated
from poad_sb3.pocket.coding.grammar import random_code
from poad_sb3.pocket.coding.mistakes import ALL_MISTAKES, spoilt
from poad_sb3.pocket.coding.tables import known_tables
from poad_sb3.pocket.configs import CoderConfig
from poad_sb3.pocket.train import train

# ---------------------------------------------------------------------- the grammar


@pytest.mark.parametrize("name", ["balance-scale", pytest.param("breast-cancer", marks=pytest.mark.matrix)])
def test_sound_bodies_run_on_every_table(name):
    rng, table = np.random.default_rng(11), load(name)
    evaluations = [evaluated(random_code(rng), table) for _ in range(40)]
    assert [evaluation.code for evaluation in evaluations if evaluation.status is not Status.OK] == []
    areas = [evaluation.score for evaluation in evaluations]
    assert np.ptp(areas) > 0.25  # there is something to learn


def test_every_mistake_occurs_and_fails():
    rng, table, programs = np.random.default_rng(4), load("iris"), {}
    while programs.keys() < set(ALL_MISTAKES):
        spoiled = spoilt(random_code(rng), rng)
        if "DummyClassifier" not in spoiled.code:  # a dummy ignores the columns
            programs[spoiled.mistake] = spoiled.code
    for mistake, code in programs.items():
        assert evaluated(code, table).status is not Status.OK, mistake


# ---------------------------------------------------------------------- the corpus


def test_the_prompt_of_a_registered_table_is_that_of_its_environment():
    table = next(table for table in known_tables(np.random.default_rng(0)) if table.name == "wine")
    prompts = {
        _line(table, np.random.default_rng(seed)).prompt for seed in range(40)
    }  # other scores and numbers of attempts
    env = gym.make("DataSciCoding-wine-v0")
    assert env.reset(seed=0)[0] in prompts
    env.close()


def test_a_remark_is_what_the_environment_says():
    table = next(table for table in known_tables(np.random.default_rng(0)) if table.name == "iris")
    env = gym.make("DataSciCoding-iris-v0", cache=False)
    env.reset(seed=0)
    for code in (
        "model = GaussianNB()\nmodel.fit(x_train, y_train)",
        "from sklearn.naive_bayes import GaussianNB\nmodel = GaussianNB(smooth=1)\nmodel.fit(x_train, y_train)",
        "from sklearn.naive_bayes import GaussianNB\nmodel = GaussianNB(\nmodel.fit(x_train, y_train)",
        "from sklearn.naive_bayes import GaussianNB\nmodel = GaussianNB().fit(x_train[:, 0], y_train)",
    ):
        text = env.step(env.action_space.encode(code))[0]
        assert f"it failed. {evaluated(code, table).error}\n" in text
    env.close()


def test_no_number_of_a_real_table_is_used():
    for table in known_tables(np.random.default_rng(0)):
        row = DATASETS[table.name]
        assert (table.x.shape, table.classes) == (row.shape, row.classes)
        assert row.manifest is not None or table.digest != load(table.name).digest
        assert table.source == "random numbers"


# ---------------------------------------------------------------------- shipped files


def test_shipped_weights_were_trained_by_the_script():
    facts = json.loads((CODER_FOLDER / "training.json").read_text(encoding="utf-8"))
    assert {name: facts[name] for name in dataclasses.asdict(CoderConfig())} == dataclasses.asdict(CoderConfig())
    config = json.loads((CODER_FOLDER / "config.json").read_text(encoding="utf-8"))
    assert config["max_position_embeddings"] == CoderConfig.context
    assert 0.95 * (facts["n_lines"] + facts["n_bare"]) < facts["corpus_lines"] <= facts["n_lines"] + facts["n_bare"]


def test_training_is_deterministic(tmp_path):
    sizes = {"hidden_size": 16, "n_heads": 2, "intermediate_size": 32, "n_layers": 1, "vocab_size": 400}
    small = CoderConfig(n_lines=40, n_bare=40, n_batches=3, batch_size=4, **sizes)
    first, second = (train(small, tmp_path / name) for name in ("a", "b"))
    assert first == second
    a, b = (load_file(tmp_path / name / "model.safetensors") for name in ("a", "b"))
    assert all(a[name].equal(b[name]) for name in a)
