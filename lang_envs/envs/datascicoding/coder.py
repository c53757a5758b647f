"""`RandomCoder`: plausible, often wrong scikit-learn code; it exercises the environment and is a baseline.

A body is drawn from a grammar: imports, perhaps a pipeline of preparing steps, one of some 20 families of models or a
vote of three, with random hyper-parameters. `spoil` then makes one of the mistakes that people and models make.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import gymnasium as gym
import numpy as np

Choices = Mapping[str, Sequence[str]]
_Mistakes = Mapping[str, Sequence[tuple[str, str]]]
_Item = TypeVar("_Item")


class Part(NamedTuple):
    """A class of scikit-learn with possible arguments.

    Attributes:
        module: Submodule of scikit-learn, such as "linear_model".
        name: Name of the class.
        choices: Values of its arguments; one that has a single value is never left out.
        always: Other arguments that are never left out: the default would be slow, or fail.
    """

    module: str
    name: str
    choices: Choices
    always: tuple[str, ...] = ()


SEED: Choices = {"random_state": ("0", "1", "42")}
DEPTH: Choices = {"max_depth": ("2", "3", "4", "6", "None"), "min_samples_leaf": ("1", "2", "5", "10")}
_TREES: Choices = {"n_estimators": ("5", "10", "15"), **DEPTH, **SEED}
STRENGTHS = ("0.01", "0.1", "1.0", "10.0")
MODELS = (
    Part(
        "linear_model",
        "LogisticRegression",
        {"C": STRENGTHS, "max_iter": ("50", "100"), "class_weight": ("None", "'balanced'")},
    ),
    Part(
        "linear_model",
        "SGDClassifier",
        {"loss": ("'log_loss'", "'modified_huber'"), "alpha": ("1e-4", "1e-3", "1e-2"), **SEED},
    ),
    Part("naive_bayes", "GaussianNB", {"var_smoothing": ("1e-9", "1e-6", "1e-3")}),
    Part("naive_bayes", "BernoulliNB", {"alpha": ("0.1", "1.0"), "binarize": ("0.0", "0.5", "2.0")}),
    Part(
        "neighbors",
        "KNeighborsClassifier",
        {"n_neighbors": ("3", "5", "15", "25"), "weights": ("'uniform'", "'distance'"), "p": ("1", "2")},
    ),
    Part("neighbors", "NearestCentroid", {"priors": ("'uniform'", "'empirical'")}),
    Part("tree", "DecisionTreeClassifier", {"criterion": ("'gini'", "'entropy'"), **DEPTH, **SEED}),
    Part("tree", "ExtraTreeClassifier", {**DEPTH, **SEED}),
    Part("ensemble", "RandomForestClassifier", {**_TREES, "max_features": ("'sqrt'", "'log2'", "0.5")}),
    Part("ensemble", "ExtraTreesClassifier", _TREES),
    Part(
        "ensemble",
        "GradientBoostingClassifier",
        {"n_estimators": ("5", "8"), "learning_rate": ("0.1", "0.3"), "subsample": ("0.5", "1.0"), **SEED},
    ),
    Part(
        "ensemble",
        "HistGradientBoostingClassifier",
        {"max_iter": ("5", "10"), "learning_rate": ("0.1", "0.3"), "max_depth": ("2", "3"), **SEED},
    ),
    Part(
        "ensemble", "AdaBoostClassifier", {"n_estimators": ("5", "10", "15"), "learning_rate": ("0.5", "1.0"), **SEED}
    ),
    Part("ensemble", "BaggingClassifier", {"n_estimators": ("5", "10"), "max_samples": ("0.5", "0.8"), **SEED}),
    Part(
        "discriminant_analysis",
        "LinearDiscriminantAnalysis",
        {"solver": ("'lsqr'", "'eigen'"), "shrinkage": ("'auto'", "0.1", "0.5")},
    ),
    Part("discriminant_analysis", "QuadraticDiscriminantAnalysis", {"reg_param": ("0.1", "0.3", "0.5")}),
    Part(
        "neural_network",
        "MLPClassifier",
        {
            "hidden_layer_sizes": ("(8,)", "(16,)", "(8, 8)"),
            "max_iter": ("20", "40"),
            "alpha": ("1e-4", "1e-2"),
            **SEED,
        },
    ),
    Part("multiclass", "OneVsRestClassifier", {"estimator": ("GaussianNB()", "LogisticRegression(max_iter=100)")}),
    Part(
        "calibration",
        "CalibratedClassifierCV",
        {"estimator": ("GaussianNB()", "LinearSVC(max_iter=200)"), "cv": ("2", "3")},
    ),
    Part("dummy", "DummyClassifier", {"strategy": ("'prior'", "'stratified'"), **SEED}),
)
SCALERS = (
    Part("preprocessing", "StandardScaler", {"with_mean": ("True", "False")}),
    Part("preprocessing", "MinMaxScaler", {"feature_range": ("(0, 1)", "(-1, 1)")}),
    Part("preprocessing", "RobustScaler", {"with_centering": ("True", "False")}),
    Part("preprocessing", "Normalizer", {"norm": ("'l1'", "'l2'")}),
    Part("preprocessing", "QuantileTransformer", {"n_quantiles": ("10", "20"), "output_distribution": ("'normal'",)}),
)
REDUCERS = (
    Part("decomposition", "PCA", {"n_components": ("2", "3", "0.9"), "whiten": ("True", "False"), **SEED}),
    Part("feature_selection", "SelectKBest", {"k": ("2", "3", "'all'"), "score_func": ("f_classif",)}),
)
_ALWAYS = frozenset(
    {
        "n_estimators",
        "max_iter",
        "hidden_layer_sizes",
        "loss",
        "shrinkage",
        "solver",
        "reg_param",
        "estimator",
        "cv",
        "n_quantiles",
        "k",
    }
)
"""Arguments that are never left out: the default would be slow, or fail."""
_NEEDED = {  # where the names in arguments come from
    "DecisionTreeClassifier": "tree",
    "ExtraTreesClassifier": "ensemble",
    "GaussianNB": "naive_bayes",
    "KNeighborsClassifier": "neighbors",
    "LinearSVC": "svm",
    "LogisticRegression": "linear_model",
    "Perceptron": "linear_model",
    "RidgeClassifier": "linear_model",
    "f_classif": "feature_selection",
    "mutual_info_classif": "feature_selection",
}


class Spoiled(NamedTuple):
    """A body with a mistake in it.

    Attributes:
        code: Body with the mistake.
        mistake: Name of the mistake in `MISTAKES`.
    """

    code: str
    mistake: str


class RandomCoder:
    """An agent that writes random bodies of `build_model`, and often repairs a failed one.

    At the first observation, and whenever it comes again (an episode has begun), it writes a new body. At another one
    with an error or a failure it repairs its last body with probability 0.7, makes another mistake in it with
    0.15, and starts over otherwise. A body that failed without a planted mistake is given up.

    Args:
        seed: Seed of the coder's own generator; the same observations get the same texts.
        spoiled: Share of new bodies that get a mistake.

    Raises:
        ValueError: If `spoiled` is not a probability.
    """

    MENDING, ANOTHER_MISTAKE = 0.7, 0.15

    def __init__(self, seed: int, spoiled: float = 0.5) -> None:
        if not 0.0 <= spoiled <= 1.0:
            raise ValueError(f"Expected spoiled to be a probability in [0, 1]; got {spoiled!r}.")
        self.spoiled = spoiled
        self.mistake: str | None = None
        """Mistake in the last text, one of `MISTAKES`; None if it has none."""
        self._rng = np.random.default_rng(seed)
        self._start: str | None = None
        self._body = ""

    def __call__(
        self, env: gym.Env[Any, Any], observation: str, admissible_actions: Sequence[str] | None = None
    ) -> str:
        """Return a body for the observation; the environment and its list of actions are ignored."""
        if self._start is None:
            self._start = observation
        failed = observation != self._start and re.search("error|fail", observation, re.IGNORECASE) is not None
        if failed and self.mistake is not None:
            chance = self._rng.random()
            if chance < self.MENDING + self.ANOTHER_MISTAKE:
                return self._write(self._body, wrong=chance >= self.MENDING)
        return self._write(random_body(self._rng), wrong=bool(self._rng.random() < self.spoiled))

    def _write(self, body: str, *, wrong: bool) -> str:
        self._body, self.mistake = body, None
        if not wrong:
            return body
        code, self.mistake = spoil(body, self._rng)
        return code


def random_body(rng: np.random.Generator) -> str:
    """Return a body of `build_model` that works with at least three features and more rows of each class than features.

    On 256 rows of 18 features it takes some hundredths of a second.
    """
    names: dict[str, str] = {}
    if rng.random() < 0.1:
        parts = [call(pick(MODELS, rng), rng, names) for _ in range(3)]
        members = ", ".join(f"({letter!r}, {part})" for letter, part in zip("abc", parts, strict=True))
        names["VotingClassifier"] = "ensemble"
        estimator = f"VotingClassifier([{members}], voting='soft')"
    else:
        estimator = call(pick(MODELS, rng), rng, names)
    steps = [call(pick(parts, rng), rng, names) for parts in (SCALERS, REDUCERS) if rng.random() < 0.3]
    if steps:
        names["make_pipeline"] = "pipeline"
        estimator = f"make_pipeline({', '.join([*steps, estimator])})"
    return _laid_out(estimator, names, rng)


def spoil(body: str, rng: np.random.Generator, mistakes: _Mistakes | None = None) -> Spoiled:
    """Make a random mistake in a body; the result for one of `random_body` fails on any table.

    Args:
        body: Body to put a mistake into.
        rng: Random generator for the choice.
        mistakes: Allowed mistakes; `MISTAKES` if None.
    """
    mistakes = MISTAKES if mistakes is None else mistakes
    while True:
        mistake = pick(tuple(mistakes), rng)
        pattern, replacement = pick(mistakes[mistake], rng)
        code = re.sub(pattern, replacement, body, count=1, flags=re.MULTILINE)
        if code != body:
            return Spoiled(code, mistake)


# ---------------------------------------------------------------------- the grammar


def pick(items: Sequence[_Item], rng: np.random.Generator) -> _Item:
    """Return one of the items, each with the same probability."""
    return items[int(rng.integers(len(items)))]


def call(part: Part, rng: np.random.Generator, names: dict[str, str]) -> str:
    """Return the text of a call with some of the arguments; add its imports to `names`."""
    names[part.name] = part.module
    given = (
        argument
        for argument, values in part.choices.items()
        if len(values) == 1 or argument in part.always or _is_given(argument, rng)
    )
    text = f"{part.name}({', '.join(f'{argument}={pick(part.choices[argument], rng)}' for argument in given)})"
    names.update({name: module for name, module in _NEEDED.items() if re.search(rf"\b{name}\b", text)})
    return text


def _is_given(argument: str, rng: np.random.Generator) -> bool:
    return bool(rng.random() < 0.6) or argument in _ALWAYS


def _laid_out(estimator: str, names: dict[str, str], rng: np.random.Generator) -> str:
    """Return the lines around an estimator, in one of the usual ways."""
    modules = sorted(set(names.values()))
    imports = [f"from sklearn.{m} import {', '.join(sorted(n for n in names if names[n] == m))}" for m in modules]
    variable = pick(("model", "model", "clf", "classifier"), rng)
    lines = [f"{variable} = {estimator}", f"{variable}.fit(x_train, y_train)"]
    if rng.random() < 0.3:
        lines = [f"{variable} = {estimator}.fit(x_train, y_train)"]
    if variable != "model" or rng.random() < 0.5:
        lines.append(f"return {variable}")
    return "\n".join([*imports, *lines])


# ---------------------------------------------------------------------- mistakes

_WHOLE = r"\A(?:.|\n)*\Z"
_TO_RETURN = r"\A((?:.|\n)*?^(\w+) = (?:.|\n)*?)(?:\nreturn \w+)?\Z"
_FIT = "\nmodel.fit(x_train, y_train)"
MISTAKES: _Mistakes = {
    "missing import": ((r"^from .*\n", ""),),
    "misspelt class": (
        (r"Classifier", "Clasifier"),
        (r"NB\b", "Nb"),
        (r"Regression", "Regresion"),
        (r"Scaler", "Scalar"),
    ),
    "wrong module": ((r"^from sklearn\.(\w+)", r"from sklearn.\1s"), (r"^from sklearn\.", "from scikit_learn.")),
    "wrong argument": ((r"\((\w+)=", r"(\1s="), (r"n_estimators=", "n_trees="), (r"\)(?=$|\.fit)", ", n_job=1)")),
    "bad value": ((r"(\w+)=[^,()]+(?=[,)])", r"\1=-5"), (r"(\w+)=[^,()]+(?=[,)])", r"\1='best_of_all'")),
    "not called": ((r"^(\w+ = \w+)\(.*\)", r"\1"),),
    "not fitted": ((r"^\w+\.fit\(.*\n?", ""), (r"\.fit\(x_train, y_train\)", "")),
    "fitted without labels": ((r"fit\(x_train, y_train", "fit(x_train"),),
    "swapped data": ((r"fit\(x_train, y_train", "fit(y_train, x_train"),),
    "wrong shape": (
        (r"fit\(x_train,", "fit(x_train[:-1],"),
        (r"fit\(x_train,", "fit(x_train[:, 0],"),
        (r"fit\(x_train,", "fit(x_train.T,"),
        (r"fit\(x_train, y_train", "fit(x_train, x_train"),
    ),
    "wrong variable": ((r"x_train", "X_train"), (r"y_train", "y"), (_TO_RETURN, r"\1\nreturn \2s")),
    "unknown data": ((_TO_RETURN, r"\1\nprint(\2.score(x_test, y_test))\nreturn \2"),),
    "table habits": ((r"\A", "x_train = x_train.dropna()\n"), (r"\A", "x_train = x_train.drop('id', axis=1)\n")),
    "returns nothing": ((r"(?:\nreturn \w+)?\Z", "\nreturn None"),),
    "returns predictions": ((_TO_RETURN, r"\1\nreturn \2.predict(x_train)"),),
    "no probabilities": (
        (_WHOLE, f"from sklearn.svm import LinearSVC\nmodel = LinearSVC(){_FIT}"),
        (_WHOLE, f"from sklearn.linear_model import RidgeClassifier\nmodel = RidgeClassifier(){_FIT}"),
    ),
    "banned": (
        (_WHOLE, f"from sklearn.svm import SVC\nmodel = SVC(probability=True){_FIT}"),
        (
            _WHOLE,
            "from sklearn.model_selection import GridSearchCV\nfrom sklearn.tree import DecisionTreeClassifier\n"
            f"model = GridSearchCV(DecisionTreeClassifier(), {{'max_depth': [2, 4]}}){_FIT}",
        ),
    ),
    "syntax": ((r"\)$", ""), (r"x_train, y_train", "x_train y_train"), (r"\n(.*)\Z", r"\n   \1"), (r" = ", " == = ")),
}
"""Mistakes of `spoil`, by name: patterns and their replacements, applied once. "banned" is a mistake only where the
environment bans those names."""
