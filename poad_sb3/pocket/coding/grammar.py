"""Random bodies of `build_model` that run, drawn independently of any table."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np

from lang_envs.envs.datascicoding.coder import Part, call, pick
from poad_sb3.pocket.coding import features
from poad_sb3.pocket.coding.parts import (
    ALL_MODELS,
    COLUMN_STEPS,
    FULL_REDUCERS,
    FULL_SCALERS,
    NONNEGATIVE_MODELS,
    WEAK_MODELS,
    WRAPPERS,
)

WORD = (
    r"(?: [a-z]+){3,}(?!\w)|\n[ ]*|[ ]?[A-Za-z_][A-Za-z_0-9]*|[ ]?\d+(?:\.\d+)?(?:e-?\d+)?|[ ]?[^\sA-Za-z_0-9]+"
    r"|\s+(?!\S)|\s+"
)
"""Pattern of texts that may become one token: a whole name, a number, a run of signs, a line's end with its
indentation; and several words of prose (code has none), since the environment's texts recur."""
_LONGEST = 112
"""Maximum number of words of a body; with names that take two tokens and the end token it stays within 128."""
_WEAK, _NONNEGATIVE, _ENSEMBLE, _WRAPPED = 0.35, 0.06, 0.12, 0.1
"""Shares of weak models, of those that want numbers of at least 0, of groups of models and of models in a model."""
_MODEL_NAMES = ("model", "model", "model", "clf", "classifier", "pipe", "estimator", "m")
_MEMBER_NAMES = (("a", "b", "c"), ("one", "two", "three"), ("m1", "m2", "m3"), ("first", "second", "third"))
_STEP_NAMES = ("scale", "prepare", "reduce", "select", "features", "step")
_FUNCTION_NAMES = ("add_features", "features", "make_features", "transform", "prepare")


def random_code(rng: np.random.Generator) -> str:
    """Return a body that runs on any table of at least four columns and a handful of rows of each class."""
    while True:
        body = _Draft(rng).body()
        if len(re.findall(WORD, body)) <= _LONGEST:
            return body


class _Draft:
    """A partial body: its imports, and the lines before its model."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._names: dict[str, str] = {}
        self._lines: list[str] = []

    def body(self) -> str:
        """Return the finished text."""
        estimator = self._estimator()
        if self._chance(0.55):
            estimator = self._chained(self._steps(), estimator)
        before = self._transformed_outside() if self._chance(0.04) else []
        lines = [*self._lines, *before, *self._fitted(estimator)]
        return "\n".join([*self._imports(), *lines])

    # ------------------------------------------------------------------ small decisions

    def _chance(self, share: float) -> bool:
        return bool(self._rng.random() < share)

    def _pick(self, items: Sequence[str]) -> str:
        return pick(items, self._rng)

    def _call(self, parts: Sequence[Part]) -> str:
        return call(pick(parts, self._rng), self._rng, self._names)

    def _use(self, name: str, module: str) -> str:
        self._names[name] = module
        return name

    def _named(self, text: str, name: str) -> str:
        """Return the text, or now and then a variable that is set to it before."""
        if not self._chance(0.25) or any(line.startswith(f"{name} = ") for line in self._lines):
            return text
        self._lines.append(f"{name} = {text}")
        return name

    # ------------------------------------------------------------------ models

    def _estimator(self) -> str:
        chance = self._rng.random()
        if chance < _ENSEMBLE:
            return self._group()
        if chance < _ENSEMBLE + _WRAPPED:
            return self._wrapped()
        return self._named(self._leaf(), "base") if self._chance(0.3) else self._leaf()

    def _leaf(self) -> str:
        chance = self._rng.random()
        if chance < _WEAK:
            return self._call(WEAK_MODELS)
        if chance < _WEAK + _NONNEGATIVE:
            scaler = f"{self._use('MinMaxScaler', 'preprocessing')}(clip=True)"
            return self._chained([scaler], self._call(NONNEGATIVE_MODELS))
        return self._call(ALL_MODELS)

    def _member(self) -> str:
        return self._chained([self._call(FULL_SCALERS)], self._leaf()) if self._chance(0.25) else self._leaf()

    def _group(self) -> str:
        """Return a vote, or a stack, of two or three."""
        names = pick(_MEMBER_NAMES, self._rng)[: 2 + self._chance(0.4)]
        members = ", ".join(f"('{name}', {self._named(self._member(), name)})" for name in names)
        if self._chance(0.7):
            return f"{self._use('VotingClassifier', 'ensemble')}([{members}], voting='soft')"
        final = self._use("LogisticRegression", "linear_model") if self._chance(0.6) else ""
        given = f"final_estimator={final}(), cv=2" if final else "cv=2"
        return f"{self._use('StackingClassifier', 'ensemble')}([{members}], {given})"

    def _wrapped(self) -> str:
        inner = self._named(self._member(), "base")
        outer = self._call(WRAPPERS)
        return outer.replace("(", f"({inner}, ", 1).replace(", )", ")")

    # ------------------------------------------------------------------ steps before a model

    def _steps(self) -> list[str]:
        """Draw steps; those that make columns of the first four come before those that leave fewer."""
        first = self._scaler() if self._chance(0.35) else []
        made, is_wide = self._of_features() if self._chance(0.4) else ([], True)
        last = [make() for make, share in self._closing() if is_wide and self._chance(share)]
        steps = [*first, *made, *(step for steps in last for step in steps)]
        return steps or self._scaler()

    def _closing(self) -> list[tuple[Callable[[], list[str]], float]]:
        makers: list[tuple[Callable[[], list[str]], float]] = [(self._reducer, 0.4), (self._parallel, 0.12)]
        return [makers[0] if self._chance(0.8) else makers[1], (self._scaler, 0.15)]

    def _scaler(self) -> list[str]:
        return [self._named(self._call(FULL_SCALERS), "scaler")]

    def _reducer(self) -> list[str]:
        if self._chance(0.25):
            best = f"{self._use('SelectKBest', 'feature_selection')}(k=4)"
            return [best, self._call(COLUMN_STEPS)]
        return [self._named(self._call(FULL_REDUCERS), "reducer")]

    def _of_features(self) -> tuple[list[str], bool]:
        """Return a step of numpy, and whether it leaves four columns or more."""
        transformer = self._use("FunctionTransformer", "preprocessing")
        if self._chance(0.08):
            return [f"{transformer}({self._pick(('np.tanh', 'np.square', 'np.abs', 'np.cbrt', 'np.arctan'))})"], True
        chance = self._rng.random()
        if chance < 0.3:
            text = (features.columns if chance < 0.15 else features.elementwise)(self._rng)
            return self._function(transformer, [text]), chance >= 0.15
        new = features.new_columns(self._rng)
        if chance < 0.42:
            return self._function(transformer, [new]), False
        more = [features.new_columns(self._rng)] if self._chance(0.25) else []
        return self._function(transformer, self._joined([new, *more])), True

    def _joined(self, new: Sequence[str]) -> list[str]:
        """Write the lines of a function that adds columns; the last is its return value."""
        form = self._pick(
            ("np.hstack([x, {}])", "np.hstack([x, {}])", "np.concatenate([x, {}], axis=1)", "np.c_[x, {}]")
        )
        if len(new) == 1 and self._chance(0.25):
            return [f"new = {new[0]}", form.format("new")]
        return [form.format(", ".join(new))]

    def _function(self, transformer: str, lines: Sequence[str]) -> list[str]:
        """Return a transformer around a lambda, or around a function that is written before."""
        if len(lines) == 1 and self._chance(0.6):
            return [self._named(f"{transformer}(lambda x: {lines[0]})", "features")]
        name = self._pick(_FUNCTION_NAMES)
        self._lines[:0] = [f"def {name}(x):", *(f"    {line}" for line in lines[:-1]), f"    return {lines[-1]}"]
        return [f"{transformer}({name})"]

    def _parallel(self) -> list[str]:
        """Return a step that runs several steps side by side."""
        chance = self._rng.random()
        first, second = self._call(FULL_SCALERS), self._call(FULL_REDUCERS)
        if chance < 0.3:
            return [f"{self._use('make_union', 'pipeline')}({first}, {second})"]
        if chance < 0.5:
            return [f"{self._use('FeatureUnion', 'pipeline')}([('all', {first}), ('few', {second})])"]
        half, rest = self._pick(("[0, 1]", "[0]", "[0, 2]", "[1, 3]")), self._pick(("drop", "passthrough"))
        if chance < 0.75:
            make = self._use("make_column_transformer", "compose")
            return [f"{make}(({first}, {half}), remainder='{rest}')"]
        make = self._use("ColumnTransformer", "compose")
        return [f"{make}([('part', {first}, {half})], remainder='{rest}')"]

    def _chained(self, steps: Sequence[str], estimator: str) -> str:
        if self._chance(0.75):
            return f"{self._use('make_pipeline', 'pipeline')}({', '.join([*steps, estimator])})"
        names = self._rng.permutation(len(_STEP_NAMES))[: len(steps)]
        named = [f"('{_STEP_NAMES[index]}', {step})" for index, step in zip(names, steps, strict=True)]
        named.append(f"('model', {estimator})")
        return f"{self._use('Pipeline', 'pipeline')}([{', '.join(named)}])"

    # ------------------------------------------------------------------ the lines around it

    def _transformed_outside(self) -> list[str]:
        """Return a mistake that runs but costs score: the model then meets columns without scaling."""
        scaler = self._use(self._pick(("StandardScaler", "MinMaxScaler", "RobustScaler")), "preprocessing")
        return [f"x_train = {scaler}().fit_transform(x_train)"]

    def _fitted(self, estimator: str) -> list[str]:
        variable, chance = self._pick(_MODEL_NAMES), self._rng.random()
        if chance < 0.12:
            return [f"return {estimator}.fit(x_train, y_train)"]
        if chance < 0.35:
            lines = [f"{variable} = {estimator}.fit(x_train, y_train)"]
        else:
            lines = [f"{variable} = {estimator}", f"{variable}.fit(x_train, y_train)"]
        if chance > 0.9:
            return [lines[0], f"return {variable}.fit(x_train, y_train)"] if len(lines) == 2 else lines
        return [*lines, f"return {variable}"] if variable != "model" or self._chance(0.5) else lines

    def _imports(self) -> list[str]:
        modules = sorted(set(self._names.values()))
        named = {module: sorted(name for name, home in self._names.items() if home == module) for module in modules}
        lines = [f"from sklearn.{module} import {', '.join(names)}" for module, names in named.items()]
        order = self._rng.permutation(len(lines)) if self._chance(0.3) else range(len(lines))
        return [lines[index] for index in order]
