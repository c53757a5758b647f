"""The pocket coder: its grammar, its files, and that POAD can use it."""

import dataclasses
import json
import re
from collections import Counter

import gymnasium as gym
import numpy as np
import pytest
from safetensors.torch import load_file
from transformers import AutoTokenizer

pytest.importorskip("sklearn")

from benchmarks.performance.pocket_coder import attempts_on, summary_of
from lang_envs.datasets import DATASETS, load
from lang_envs.envs.datascicoding.evaluation import Status
from poad_sb3 import POAD
from poad_sb3.cli.train_options import _make_absolute
from poad_sb3.common.hyperparameters import preset
from poad_sb3.pocket import CODER_FOLDER, model_path
from poad_sb3.pocket.coding.corpus import _line, coding_lines, evaluated
from poad_sb3.pocket.coding.grammar import random_code
from poad_sb3.pocket.coding.mistakes import ALL_MISTAKES, spoilt
from poad_sb3.pocket.coding.tables import invented_table, known_tables
from poad_sb3.pocket.configs import CoderConfig
from poad_sb3.pocket.train import encode_action, encode_line, train

TABLES = ("balance-scale", "wine", "iris", "breast-cancer")
SYNTAX, TYPE, NAME, ATTRIBUTE = "SyntaxError", "TypeError", "NameError", "AttributeError"
VALUE, PARAMETER, INDEX = "ValueError", "InvalidParameterError", "IndexError"
OUTCOMES = {
    "missing import": {NAME},
    "misspelt class": {"ImportError"},
    "wrong module": {"ModuleNotFoundError"},
    "wrong argument": {TYPE},
    "bad value": {PARAMETER, VALUE, TYPE, "OverflowError"},
    "not called": {TYPE, ATTRIBUTE},
    "not fitted": {"NotFittedError", ATTRIBUTE},
    "fitted without labels": {TYPE, VALUE},
    "swapped data": {VALUE, INDEX, "NotImplementedError", TYPE, ATTRIBUTE},
    "wrong shape": {VALUE, INDEX},
    "wrong variable": {NAME},
    "unknown data": {NAME, ATTRIBUTE},
    "table habits": {ATTRIBUTE},
    "returns nothing": {ATTRIBUTE},
    "returns predictions": {ATTRIBUTE, "NotFittedError", TYPE, VALUE},
    "no probabilities": {ATTRIBUTE},
    "banned": {"must not be used here"},
    "syntax": {SYNTAX},
    "wrong method": {ATTRIBUTE, "NotFittedError"},
    "columns made outside": {VALUE},
    "wrong axis": {VALUE, INDEX, "AxisError"},
    "no such column": {INDEX},
    "no such function": {NAME, ATTRIBUTE},
    "steps without names": {TYPE, VALUE, SYNTAX, ATTRIBUTE},
    "hard vote": {ATTRIBUTE},
    "steps in the wrong order": {TYPE, PARAMETER, VALUE, ATTRIBUTE},
    "colon or comma": {SYNTAX},
}


@pytest.fixture(scope="module")
def lines():
    return list(coding_lines(300, np.random.default_rng(3)))


@pytest.fixture(scope="module")
def first_lines():
    return list(coding_lines(50, np.random.default_rng(3)))


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(CODER_FOLDER)


# ---------------------------------------------------------------------- the grammar


@pytest.mark.matrix_after(1)
@pytest.mark.parametrize("name", TABLES)
def test_sound_bodies_run_on_every_table(name):
    rng, table = np.random.default_rng(11), load(name)
    evaluations = [evaluated(random_code(rng), table) for _ in range(40)]
    assert [one.code for one in evaluations if one.status is not Status.OK] == []
    areas = [one.score for one in evaluations]
    assert np.ptp(areas) > 0.25  # there is something to learn


def test_the_grammar_is_rich():
    rng = np.random.default_rng(0)
    bodies = [random_code(rng) for _ in range(4000)]
    assert len(set(bodies)) > 3500
    classes = Counter(name for body in bodies for name in set(re.findall(r"\b[A-Z]\w+(?=\()", body)))
    assert len(classes) > 55
    nested = ("ColumnTransformer", "FeatureUnion", "VotingClassifier", "StackingClassifier", "BaggingClassifier")
    assert all(classes[name] >= 3 for name in (*nested, "Pipeline", "CalibratedClassifierCV", "PolynomialFeatures"))
    text = "\n".join(bodies)
    for part in ("np.hstack", "np.c_[", "np.log1p", "lambda x:", "def ", " * x[:, [", "make_union(", "keepdims=True"):
        assert part in text


@pytest.mark.matrix_after(5)
@pytest.mark.parametrize("mistake", ALL_MISTAKES)
def test_every_mistake_occurs_and_has_its_outcome(mistake):
    rng, table = np.random.default_rng(4), load("iris")
    found = 0
    while found < 3:
        spoiled = spoilt(random_code(rng), rng)
        if spoiled.mistake != mistake or "DummyClassifier" in spoiled.code:  # a dummy ignores the columns
            continue
        evaluation = evaluated(spoiled.code, table)
        found += 1
        assert evaluation.status is not Status.OK, spoiled.code
        assert any(name in (evaluation.error or "") for name in OUTCOMES[mistake]), (evaluation.error, spoiled.code)


# ---------------------------------------------------------------------- the corpus


@pytest.mark.matrix
def test_a_seed_gives_the_same_lines(lines):
    assert list(coding_lines(40, np.random.default_rng(3)))[:5] == lines[:5]
    assert list(coding_lines(5, np.random.default_rng(4))) != lines[:5]


@pytest.mark.matrix
def test_prompts_are_varied_and_most_of_them_tell_of_an_earlier_attempt(lines):
    titles = Counter(re.search(r"Predict (.*?) with", " ".join(line.prompt.split("\n# "))).group(1) for line in lines)
    assert len(titles) > 100
    assert titles["the wine table"] >= 2
    told = [line for line in lines if "# Attempt" in line.prompt]
    assert 0.55 < len(told) / len(lines) < 0.77
    said = "\n".join(line.prompt for line in told)
    for part in ("it failed. NameError", "it failed. SyntaxError", "it ran, with a score of"):
        assert part in said
    said = said.replace("\n# ", " ")
    assert any(part in said for part in ("not finished", "more than 30 seconds", "more than 1024 MiB", "could answer"))


@pytest.mark.matrix
def test_mended_bodies_follow_failures(lines):
    """Most lines with a failure go on with a body that differs from the failed one in little."""
    near = []
    for line in lines:
        shown = re.findall(r"^#     (.*)$", line.prompt, re.MULTILINE)
        if "it failed. " in line.prompt and shown:
            kept = set(shown) & set(line.action.split("\n"))
            near.append(len(kept) >= 0.5 * len(line.action.split("\n")))
    assert len(near) > 60
    assert 0.55 < np.mean(near) < 0.95


def test_the_prompt_of_a_registered_table_is_that_of_its_environment():
    table = next(one for one in known_tables(np.random.default_rng(0)) if one.name == "wine")
    found = {
        _line(table, np.random.default_rng(seed)).prompt for seed in range(40)
    }  # other scores and numbers of attempts
    env = gym.make("DataSciCoding-wine-v0")
    assert env.reset(seed=0)[0] in found
    env.close()


def test_a_remark_is_what_the_environment_says():
    table = next(one for one in known_tables(np.random.default_rng(0)) if one.name == "iris")
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


def test_what_is_drawn_does_not_depend_on_the_table():
    tables = [*known_tables(np.random.default_rng(0)), invented_table(np.random.default_rng(1))]
    for seed in range(60):
        drawn = [_line(table, np.random.default_rng(seed)) for table in (tables[seed % len(tables)], tables[-1])]
        if "# Attempt" not in drawn[0].prompt:  # draws after a failure repeat until code fails
            assert drawn[0].action == drawn[1].action


@pytest.mark.parametrize("corpus", ["first_lines", pytest.param("lines", marks=pytest.mark.matrix)])
def test_lengths_fit(corpus, request, tokenizer):
    lines = request.getfixturevalue(corpus)
    bodies = [len(encode_action(tokenizer, line)) + 1 for line in lines]
    assert np.mean([20 <= length <= 128 for length in bodies]) > 0.95
    assert 40 < np.median(bodies) < 80
    assert max(len(encode_line(tokenizer, line)) for line in lines) + 128 < CoderConfig.context


# ---------------------------------------------------------------------- shipped files


def test_what_ships_is_small_and_says_what_it_is():
    files = {path.name: path.stat().st_size for path in CODER_FOLDER.iterdir()}
    assert {"model.safetensors", "tokenizer.json", "config.json", "training.json", "README.md"} <= set(files)
    assert sum(files.values()) < 12_000_000
    assert (
        500_000 < sum(tensor.numel() for tensor in load_file(CODER_FOLDER / "model.safetensors").values()) < 3_000_000
    )
    card = (CODER_FOLDER / "README.md").read_text(encoding="utf-8")
    assert "grammar-trained demonstration model" in card


def test_what_ships_was_trained_by_the_script():
    facts = json.loads((CODER_FOLDER / "training.json").read_text(encoding="utf-8"))
    assert {name: facts[name] for name in dataclasses.asdict(CoderConfig())} == dataclasses.asdict(CoderConfig())
    config = json.loads((CODER_FOLDER / "config.json").read_text(encoding="utf-8"))
    assert config["max_position_embeddings"] == CoderConfig.context
    assert 0.95 * (facts["n_lines"] + facts["n_bare"]) < facts["corpus_lines"] <= facts["n_lines"] + facts["n_bare"]


def test_the_tokenizer_loses_nothing(first_lines, tokenizer):
    for text in (
        *(line.prompt + " " + line.action for line in first_lines),
        "é 漢字 \t\r\n  x  == 1e-3 <s>",
        "# a\n\n\n    b",
    ):
        ids = tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
        assert tokenizer.decode(ids, clean_up_tokenization_spaces=False) == text


def test_training_is_deterministic(tmp_path):
    sizes = {"hidden_size": 16, "n_heads": 2, "intermediate_size": 32, "n_layers": 1, "vocab_size": 400}
    small = CoderConfig(n_lines=40, n_bare=40, n_batches=3, batch_size=4, **sizes)
    first, second = (train(small, tmp_path / name) for name in ("a", "b"))
    assert first == second
    a, b = (load_file(tmp_path / name / "model.safetensors") for name in ("a", "b"))
    assert all(a[name].equal(b[name]) for name in a)


@pytest.mark.matrix
def test_about_half_of_what_it_writes_runs_with_a_spread_of_scores():
    """Measured on 200 attempts for each table: data/results/pocket_coder.json."""
    summary = summary_of(list(attempts_on("iris", 48)))
    assert 0.25 < summary["running"]["share"] < 0.8
    assert len(summary["outcomes"]) >= 3
    assert max(summary["areas"]) - min(summary["areas"]) > 0.15
    assert summary["distinct_codes"] > 0.8


# ---------------------------------------------------------------------- using it


def test_it_goes_by_its_name(tmp_path, monkeypatch):
    assert model_path("pocket-coder") == str(CODER_FOLDER)
    assert model_path("some/model") == "some/model"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pocket-coder").mkdir()
    given = {"policy_kwargs": {"model": "pocket-coder"}}
    _make_absolute(given)
    assert given == {"policy_kwargs": {"model": "pocket-coder"}}


@pytest.mark.matrix
def test_poad_learns_with_it():
    arguments = preset("pocket/datascicoding", "POAD", n_envs=1)
    model = POAD("LLMPolicy", "DataSciCoding-iris-v0", seed=0, **{**arguments, "n_steps": 8, "batch_size": 4})
    before = [parameter.detach().clone() for parameter in model.policy.adapter_parameters()]
    model.learn(16)  # two rollouts: its rate has fallen to 0 at the last one
    assert model.num_timesteps == 16
    assert model.logger.name_to_value["train/first_ratio_error"] < 1e-4
    after = model.policy.adapter_parameters()
    assert any(not one.equal(other) for one, other in zip(before, after, strict=True))
