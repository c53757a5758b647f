"""CAAFE's division of labour on DataSciCoding: a language model writes features, a person has fixed the classifier.

After Hollmann et al., "Large Language Models for Automated Data Science" (arXiv 2305.03403). Differences: columns have
no names here, so that features are made of column numbers; columns can be added and none be dropped; and whether they
stay is decided by the score of the environment, where the paper validates within the training rows.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from lang_bench.agents.base import JSON, Agent, AgentError, Decision, Usage
from lang_bench.agents.texts import TextAgent, require_text_alone
from lang_envs import LangEnv
from lang_envs.sandbox.extraction import CodeSyntaxError, extract, parsed

_SKLEARN = "from sklearn."
CLASSIFIERS: Mapping[str, tuple[str, ...]] = {
    "logistic": (
        f"{_SKLEARN}linear_model import LogisticRegression",
        f"{_SKLEARN}preprocessing import StandardScaler",
        "classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))",
    ),
    "random_forest": (
        f"{_SKLEARN}ensemble import RandomForestClassifier",
        "classifier = RandomForestClassifier(n_estimators=100, min_samples_leaf=3, random_state=0)",
    ),
    "extra_trees": (
        f"{_SKLEARN}ensemble import ExtraTreesClassifier",
        "classifier = ExtraTreesClassifier(n_estimators=100, min_samples_leaf=3, random_state=0)",
    ),
    "boosting": (
        f"{_SKLEARN}ensemble import HistGradientBoostingClassifier",
        "classifier = HistGradientBoostingClassifier(random_state=0)",
    ),
    "neighbors": (
        f"{_SKLEARN}neighbors import KNeighborsClassifier",
        f"{_SKLEARN}preprocessing import StandardScaler",
        "classifier = make_pipeline(StandardScaler(), KNeighborsClassifier(n_neighbors=15))",
    ),
    "naive_bayes": (f"{_SKLEARN}naive_bayes import GaussianNB", "classifier = GaussianNB()"),
}
"""The classifiers that a person may fix, by name: lines that leave one in `classifier`."""

_FUNCTION = "new_features"
INSTRUCTIONS = f"""\
You improve a classifier by features. The classifier is fixed: {{classifier}}. You do not write build_model; you write
one Python function that computes new columns of the table below. They are added to the columns that are there, and the
classifier is fitted again. The function gets the training rows and, later, the test rows, so let it treat every row by
itself.

```python
def {_FUNCTION}(x):
    # x: float array of shape (rows, columns), the columns as told below; numpy is there as np.
    # Return the new columns: a float array of shape (rows,) or (rows, number of new columns).
```

The task, as it is told to those who write everything:

{{task}}
{{history}}
Write {_FUNCTION} with other features that the classifier lacks. Answer with the function alone, in a Python block."""
_REMARK = re.compile(r"^# Attempt \d+ of \d+: (.*)$", re.MULTILINE)
_SHOWN = 20
"""Number of latest attempts that the prompt shows."""


class Features(NamedTuple):
    """Feature code and its outcome.

    Attributes:
        code: A function body over `x` that returns new columns.
        verdict: Outcome of the features, one line.
    """

    code: str
    verdict: str = ""


class CaafeAgent(Agent):
    """Asks for features, lets the environment score them behind the classifier, and keeps those that raise the score.

    The first attempt of an episode is the classifier without features, where the episode goes on after it
    (`terminate_on_success=False`, with some more `max_attempts`): that is how to use it. Where the first code that runs
    ends the episode, the first attempt has features already, those that fail are dropped, and the last attempt is the
    classifier alone. After a reply without usable code the writer is called again; such a reply is no attempt.

    Args:
        writer: Agent that writes the features.
        classifier: Key of `CLASSIFIERS`.
        min_gain: Gain in score that features must exceed to be kept.
        replies: Most calls of the writer for an attempt; after that, only the features kept so far are used.

    Raises:
        AgentError: If the writer does not write texts, or an argument is out of range.
    """

    def __init__(self, writer: Agent, *, classifier: str = "logistic", min_gain: float = 0.0, replies: int = 3) -> None:
        if not isinstance(writer, TextAgent):
            raise AgentError(
                f"Expected an agent that answers texts with texts to write features; got {writer.name!r}. "
                "Fix: openai:MODEL, hf:MODEL, or a str -> str callable."
            )
        require_text_alone(writer)
        if classifier not in CLASSIFIERS:
            raise AgentError(f"Expected classifier to be one of {list(CLASSIFIERS)}; got {classifier!r}.")
        if replies < 1:
            raise AgentError(f"Expected replies of at least 1; got {replies}. Fix: the default is 3.")
        self.name = f"caafe:{writer.name}"
        settings: dict[str, JSON] = {
            "writer": writer.name,
            "classifier": classifier,
            "min_gain": min_gain,
            "replies": replies,
        }
        self.settings = {**settings, **{f"writer.{name}": value for name, value in writer.settings.items()}}
        self.incidental = frozenset(f"writer.{name}" for name in writer.incidental)
        self._writer, self._classifier, self._min_gain, self._replies = writer, classifier, min_gain, replies

    def begin(self, env: LangEnv[Any], seed: int) -> None:
        """See `Agent.begin`.

        Raises:
            AgentError: If the environment is not DataSciCoding.
        """
        from lang_envs.envs.datascicoding.env import DataSciCodingEnv

        if not isinstance(env, DataSciCodingEnv):
            raise AgentError(
                f"Expected a DataSciCoding environment for {self.name!r}; got {type(env).__name__}. "
                "Fix: --env DataSciCoding-balance-scale-v0."
            )
        self._writer.begin(env, seed)
        self._left, self._improves = env.max_attempts, not env.terminate_on_success
        self._task, self._best = "", None if self._improves else float("-inf")
        self._kept: list[Features] = []
        self._tried: list[Features] = []
        self._candidate: Features | None = None

    def act(self, observation: str, info: Mapping[str, Any]) -> Decision:
        """See `Agent.act`."""
        self._task = self._task or observation
        self._left -= 1
        self._candidate, usage, note = None, Usage(), ""
        # Not the first attempt, to compare with, nor the last, to fall back on.
        if self._best is not None if self._improves else self._left > 0 or not self._tried:
            self._candidate, usage, note = self._written()
        features = [*self._kept, *([self._candidate] if self._candidate else [])]
        return Decision(body(self._classifier, [feature.code for feature in features]), usage, note=note)

    def _written(self) -> tuple[Features | None, Usage, str]:
        """Return new features, their cost, and the answers; None if no answer held code."""
        usage, correction = Usage(), ""
        notes: list[str] = []
        for _ in range(self._replies):
            reply = self._writer.reply(self._prompt() + correction)
            usage, notes = usage + reply.usage, [*notes, reply.text]
            try:
                return Features(features_of(reply.text)), usage, "\n".join(notes)
            except CodeSyntaxError as error:
                correction = f"\n\nYour last answer held no such function ({error.message}):\n{reply.text}"
        return None, usage, "\n".join(notes)

    def _prompt(self) -> str:
        tried = "".join(f"\n# {feature.verdict}\n{feature.code}\n" for feature in self._tried[-_SHOWN:])
        history = f"\nWhat was tried:\n{tried}" if tried else ""
        score = "" if self._best in (None, float("-inf")) else f"\nThe best score so far is {self._best:.4f}.\n"
        definition = CLASSIFIERS[self._classifier][-1]
        return INSTRUCTIONS.format(classifier=definition, task=self._task, history=history + score)

    def observe(
        self,
        decision: Decision,
        observation: str,
        reward: float,
        terminated: bool,
        truncated: bool,
        info: Mapping[str, Any],
    ) -> None:
        """See `Agent.observe`."""
        has_run, candidate = info["status"] == "ok", self._candidate
        if candidate is None:
            self._best = max(self._best or float("-inf"), reward) if has_run else self._best
            if self._best is None:  # the classifier alone fails: any score is better
                self._best = float("-inf")
            return
        assert self._best is not None
        if has_run and reward > self._best + self._min_gain:
            verdict = f"Kept: the score rose to {reward:.4f}."
            self._kept, self._best = [*self._kept, candidate], reward
        elif has_run:
            verdict = f"Dropped: the score was {reward:.4f}, no gain."
        else:
            remarks = _REMARK.findall(observation)
            verdict = f"Dropped: {remarks[-1] if remarks else info['status']}"
        self._tried.append(candidate._replace(verdict=verdict))

    def close(self) -> None:
        """See `Agent.close`."""
        self._writer.close()


# ---------------------------------------------------------------------- code


def features_of(reply: str) -> str:
    """Return the body of a function over `x`: of `new_features` in an answer with code around it, or the answer.

    Raises:
        CodeSyntaxError: If no such function returns a value.
    """
    tree = parsed(extract(reply).source)
    defined = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == _FUNCTION]
    if defined:
        arguments = defined[-1].args
        if len(arguments.posonlyargs) + len(arguments.args) != 1:
            raise CodeSyntaxError(defined[-1].lineno, f"{_FUNCTION} must take x alone")
        return ast.unparse(ast.Module([*tree.body, *parsed(f"return {_FUNCTION}(x)").body], []))
    if not isinstance(tree.body[-1], ast.Return) or tree.body[-1].value is None:
        raise CodeSyntaxError(None, f"no function {_FUNCTION}")
    return ast.unparse(tree)


def body(classifier: str, features: list[str]) -> str:
    """Write the body of `build_model`: a pipeline that adds features, for all rows alike, and classifies.

    Values of features that are infinite or no numbers become 0: logarithms and quotients give such values, and few
    classifiers accept them.

    Args:
        classifier: Key of `CLASSIFIERS`.
        features: Function bodies over `x`, see `features_of`.
    """
    lines = [f"{_SKLEARN}pipeline import make_pipeline", *CLASSIFIERS[classifier]]
    if not features:
        return "\n".join([*lines, "model = classifier.fit(x_train, y_train)"])
    for number, code in enumerate(features, start=1):
        lines += [f"def features_{number}(x):", *(f"    {line}" for line in code.split("\n"))]
    makers = ", ".join(f"features_{number}" for number in range(1, len(features) + 1))
    return "\n".join(
        [
            f"{_SKLEARN}preprocessing import FunctionTransformer",
            *lines,
            "def with_features(x):",
            f"    made = [np.asarray(make(x.copy()), dtype=float) for make in ({makers},)]",
            "    columns = [one.reshape(len(x), -1) for one in made]",
            "    return np.nan_to_num(np.hstack([x, *columns]), nan=0.0, posinf=0.0, neginf=0.0)",
            "model = make_pipeline(FunctionTransformer(with_features), classifier).fit(x_train, y_train)",
        ]
    )
