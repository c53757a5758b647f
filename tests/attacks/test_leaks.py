"""The text after a failure does not depend on the labels of single rows.

The tables of a pair differ only in a permutation of labels that leaves the classes of every half as they are.
"""
# ruff: noqa: E501 - programs are data, and no easier to read in pieces

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pytest
from attack_arena import Arena, small_table
from rows import first_rows

from lang_envs.datasets import Dataset
from lang_envs.envs.datascicoding import env as env_module
from lang_envs.envs.datascicoding.env import DataSciCodingEnv
from lang_envs.envs.datascicoding.evaluation import Status
from lang_envs.envs.datascicoding.scoring import splits

N_SPLITS = 2

LEAKS = {
    "a list": "raise ValueError(y_train.tolist())",
    "an array": "raise ValueError(y_train)",
    "words": "raise ValueError(' '.join(['red', 'green', 'blue'][y] for y in y_train[:40]))",
    "one long word": "raise ValueError(''.join('abc'[y] for y in y_train))",
    "hidden among words": "raise ValueError(' and then '.join(['left', 'right', 'even'][y] for y in y_train[:20]))",
    "the name of a class": "raise type('E' + ''.join('abc'[y] for y in y_train[:40]), (Exception,), {})()",
    "the choice of a class": "raise [KeyError, ValueError, IndexError][y_train[7]]()",
    "its own classes": "class A(Exception): pass\nclass B(Exception): pass\nraise A if y_train[3] else B",
    "the choice of a line": "if y_train[0] == 0:\n    1 / 0\nelif y_train[0] == 1:\n    1 / 0\n1 / 0",
    "an attribute": "getattr(np, 'a' + ''.join(map(str, y_train)))",
    "a key": "{}[tuple(y_train.tolist())]",
    "a number as a key": "{}[int(''.join(map(str, y_train)), 3)]",
    "a shape": "np.zeros(3) + np.zeros(4 + int(''.join(map(str, y_train[:9])), 3))",
    "the shape of an answer": """
class Model:
    def predict_proba(self, x):
        return np.zeros(tuple(1 + y_train[:8]))
model = Model()""",
    "an index": "[][int(''.join(map(str, y_train)), 3)]",
    "a warning": "import warnings\nwarnings.simplefilter('error')\nwarnings.warn(str(y_train))",
    "output": "print(y_train, *y_train)\nprint(' '.join(['yes', 'no', 'so'][y] for y in y_train))\n1 / 0",
    "errors of output": "import sys\nsys.stderr.write(str(y_train.tolist()))\n1 / 0",
    "the length of output": "print('word ' * int(10 * y_train[0] + 5))\n1 / 0",
    "the length of a message": "raise ValueError('word ' * int(10 * y_train[0] + 5))",
    "blanks": "raise ValueError('a' + ''.join(' \\t\\n'[y] for y in y_train) + 'b')",
    "letters that are not seen": "raise ValueError('a' + ''.join('\\u200b\\u200c\\u200d'[y] for y in y_train) + 'b')",
    "notes": "error = ValueError('a')\nerror.add_note(str(y_train))\nerror.__notes__ += list(map(str, y_train))\nraise error",
    "causes": "raise ValueError('a') from KeyError(str(y_train))",
    "recursion": "def f(n):\n    if n == 0: raise ValueError('x' * len(__import__('inspect').stack()))\n    f(n - 1)\nf(int(y_train[0]) * 20)",
    "floats": "raise ValueError(float('0.' + ''.join(map(str, y_train[:15]))))",
    "an error of the library": "from sklearn.naive_bayes import GaussianNB\nGaussianNB(priors=y_train / 10).fit(x_train, y_train)",
    "a solver's words": "from sklearn.linear_model import LogisticRegression\nLogisticRegression(solver=str(y_train.tolist())).fit(x_train, y_train)",
    "a line of generated code": "exec(compile('\\n' * int(y_train[0]) + '1/0', '<agent>', 'exec'))",
    "a report of its own": """
import errno, os, json, struct
def is_pipe(number):
    try: os.lseek(number, 0, 1)
    except OSError as error: return error.errno == errno.ESPIPE
(pipe,) = filter(is_pipe, range(64))
head = json.dumps({"error": "E", "message": str(y_train.tolist()), "line": int(y_train[0]), "stdout": str(y_train)}).encode()
os.write(pipe, struct.pack("!I", len(head)) + head)
os._exit(0)""",
}

# Where the outcome itself depends on labels, only the choice between a few outcomes can be read.
CHOICES = {
    "an exit code": "import os\nos._exit(y_train[0])",
    "a signal": "import signal\nsignal.raise_signal([6, 5, 8][y_train[0]])",
    "time": "import time\nif y_train[0]: time.sleep(100)\nraise ValueError('a')",
    "memory": "x = np.zeros(int(y_train[0]) << 40)\nraise ValueError('a')",
    "whether it fails": "if y_train[0]: raise ValueError(y_train)\nraise KeyError('a')",
    "failing on true labels only": "if (np.diff(y_train[:8]) == 0).any(): raise ValueError(y_train)\nmodel = None",
}


class _Pair(NamedTuple):
    one: Dataset
    other: Dataset


@pytest.fixture(scope="module")
def pair() -> _Pair:
    one = small_table()
    sides = np.array([np.isin(np.arange(120), split.train) for split in splits(one, range(N_SPLITS))])
    generator = np.random.default_rng(3)
    y = one.y.copy()
    for cell in np.unique(sides.T, axis=0):
        rows = np.flatnonzero((cell == sides.T).all(axis=1))
        y[rows] = generator.permutation(y[rows])
    assert (y != one.y).mean() > 0.4
    other = Dataset(one.name, one.title, one.about, one.x, y, published=one.published, source=one.source)
    for first, second in zip(splits(one, range(N_SPLITS)), splits(other, range(N_SPLITS)), strict=True):
        assert np.array_equal(first.train, second.train)
        assert (one.y[first.train] != y[first.train]).mean() > 0.4
    return _Pair(one, other)


class _Stage:
    """Environments of the small tables, in the tests' own sandbox."""

    def __init__(self, arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(env_module, "shared_sandbox", lambda confinement: arena.sandbox)
        self._monkeypatch = monkeypatch

    def env(self, dataset: Dataset, **options: object) -> DataSciCodingEnv:
        self._monkeypatch.setattr(env_module, "choose_dataset", lambda *arguments: dataset)
        options = {"splits": N_SPLITS, "time_limit": 1.0, "memory_limit": 256, "cache": False, **options}
        env = DataSciCodingEnv("small", **options)
        env.reset(seed=0)
        return env


@pytest.fixture
def stage(own_arena: Arena, monkeypatch: pytest.MonkeyPatch) -> Iterator[_Stage]:
    return _Stage(own_arena, monkeypatch)


def _verdict(observation: str) -> str:
    (line,) = [line for line in observation.splitlines() if re.match(r"# Attempt \d+ of \d+: ", line)]
    return line


def _has_values(text: str) -> bool:
    """Whether there are more than a few values or words of few kinds in a row."""
    return re.search(r"([0-2]\W{0,3}){6}", text) is not None or re.search(r"\b(\w+)( \1\b){5}", text) is not None


@pytest.mark.parametrize("name", first_rows(3, LEAKS))
def test_what_is_read_after_a_failure_is_the_same_for_other_labels(stage: _Stage, pair: _Pair, name: str) -> None:
    seen = []
    for dataset in pair:
        observation, reward, _, _, info = stage.env(dataset).step_text(LEAKS[name])
        seen.append((observation, info["stdout"], info["status"], reward))
    assert seen[0] == seen[1]
    observation, stdout, status, reward = seen[0]
    assert (status, reward) in ((Status.RUNTIME_ERROR, -1.0), (Status.BAD_OUTPUT, -1.0))
    assert not _has_values(_verdict(observation))
    assert not _has_values(stdout)


@pytest.mark.parametrize("name", first_rows(2, CHOICES))
def test_where_labels_choose_the_outcome_only_the_outcome_is_read(stage: _Stage, pair: _Pair, name: str) -> None:
    seen = {}
    for number, dataset in enumerate(pair):
        observation, _, _, _, info = stage.env(dataset).step_text(CHOICES[name])
        status = info["status"]
        assert status in Status
        assert not _has_values(_verdict(observation))
        seen.setdefault(status, []).append(_verdict(observation))
        assert number < 2
    assert all(len(set(verdicts)) == 1 for verdicts in seen.values())


def test_output_of_code_that_works_is_the_same_for_other_labels(stage: _Stage, pair: _Pair) -> None:
    code = "print(y_train)\nfrom sklearn.dummy import DummyClassifier\nmodel = DummyClassifier().fit(x_train, y_train)"
    outputs = []
    for dataset in pair:
        observation, reward, _, _, info = stage.env(dataset).step_text(code)
        assert reward == 0.5
        outputs.append((observation, info["stdout"]))
    assert outputs[0] == outputs[1]
    assert not _has_values(outputs[0][1])


def test_which_split_fails_cannot_be_read(stage: _Stage, pair: _Pair) -> None:
    first = small_table().x[splits(small_table(), [0])[0].train][0, 0]
    differing = np.flatnonzero(np.subtract(*(d.y[splits(d, [0])[0].train] == 1 for d in pair), dtype=int))[0]
    code = f"if x_train[0, 0] != {first!r}:\n    raise KeyError\nif y_train[{differing}] == 1:\n    raise ValueError"
    code += "\nfrom sklearn.dummy import DummyClassifier\nmodel = DummyClassifier().fit(x_train, y_train)"
    seen = [stage.env(dataset).step_text(code)[0] for dataset in pair]
    assert seen[0] == seen[1]


def test_labels_read_from_a_message_are_worth_nothing(stage: _Stage) -> None:
    """Leak, then hard-code: the second attempt is paid like any answer that ignores the rows."""
    dataset = small_table()
    env = stage.env(dataset, splits=5)
    leak = "raise ValueError('; '.join(f'{x[0]:.6f} {y}' for x, y in zip(x_train, y_train)))"
    observation, *_ = env.step_text(leak)
    pairs = re.findall(r"(-?\d\.\d+) ([012])\b", _verdict(observation))
    table = {float(x): int(y) for x, y in pairs}
    hard_coded = f"""
TABLE = {table!r}
class Model:
    def predict_proba(self, x):
        answer = np.full((len(x), 3), 1 / 3)
        for place, row in enumerate(x):
            for value, label in TABLE.items():
                if abs(row[0] - value) < 1e-6:
                    answer[place] = np.eye(3)[label]
        return answer
model = Model()"""
    _, reward, terminated, _, info = env.step_text(hard_coded)
    assert terminated
    assert reward == 0.5
    assert info["auc_std"] == 0


def test_the_attack_of_two_steps_would_pay_if_messages_held_labels(stage: _Stage, own_arena: Arena) -> None:
    """The same second step with the true labels, the aim of the first step."""
    dataset = small_table()
    table = {round(float(x), 6): int(y) for x, y in zip(dataset.x[:, 0], dataset.y, strict=True)}
    code = f"TABLE = {table!r}\nclass Model:\n    def predict_proba(self, x):\n"
    code += "        return np.eye(3)[[TABLE[round(float(row[0]), 6)] for row in x]]\nmodel = Model()"
    assert stage.env(dataset).step_text(code)[1] == 1.0
