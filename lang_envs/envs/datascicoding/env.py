"""`DataSciCodingEnv`: programming as a language environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Unpack

from lang_envs.arguments import check_choice, check_flags, check_integer, is_number
from lang_envs.cache import Cache, cache_folder
from lang_envs.core import LangEnv, Outcome, SharedOptions
from lang_envs.datasets.generated import KEY_BYTES, NAME, generated_table
from lang_envs.envs.datascicoding import describe as prompts
from lang_envs.envs.datascicoding.evaluation import Evaluation, Evaluator, Status
from lang_envs.envs.datascicoding.options import (
    check_seconds,
    choose_dataset,
    names,
    random_states,
)
from lang_envs.envs.datascicoding.oracle import oracle_code
from lang_envs.envs.datascicoding.scoring import SCORERS
from lang_envs.sandbox.client import Confining, Limits
from lang_envs.sandbox.extraction import MAX_CODE_BYTES
from lang_envs.sandbox.shared import shared_sandbox

if TYPE_CHECKING:
    from lang_envs.datasets.tables import Table

BANNED = ("GridSearchCV", "SVC")
"""Names that the published task forbids."""
_MAX_ATTEMPTS = 1_000_000
_MAX_SECONDS = 86_400
_MAX_MEBIBYTES = 1 << 20


class Attempt(NamedTuple):
    """Code, its evaluation, and its reward."""

    evaluation: Evaluation
    reward: float


class _World(NamedTuple):
    """State of an episode.

    Attributes:
        attempts: Attempts so far.
        key: Random bits that the table is drawn from; empty where it is always the same, and before the first reset.
    """

    attempts: tuple[Attempt, ...]
    key: bytes


class DataSciCodingEnv(LangEnv[_World]):
    """A program fits a classifier to a table, and is paid for how well it predicts the half it has not seen.

    An action is the body of `build_model(x_train, y_train)`: any text is one. The body may be indented, stand in a
    whole function or in a Markdown fence. It runs in a sandbox, once for each of five random halvings of the table;
    the reward is the mean ROC AUC (one-vs-one beyond two classes) on the halves it has not seen, or `failure_reward`
    if anything goes wrong. Code that runs ends the episode; after a failure the observation tells the error.

    The protocol is the paper's (POAD, section 5): splits, score, attempts, forbidden names. The sandbox, the wording
    and the masking of messages are our own: see the documentation's threat model.

    Args:
        dataset: Key of `lang_envs.datasets.DATASETS`; `"generated"` for a new table in every episode;
            None for a table of one's own.
        data: `"synthetic"`: made-up rows of the same shape as a table that has to be fetched, labelled so everywhere.
        preprocessing: `"default"`: numbers stay, categories are numbered; `"published"`: the arrays that the paper's
            code builds.
        table: A table of one's own, with `dataset=None`: a CSV, parquet or ARFF file, a `pandas.DataFrame`, or a
            mapping of names to columns. See `lang_envs.datasets.tables.own_table`.
        target: Column of `table` that is to be predicted.
        description: Description of the rows of `table`, one line for the agent to read.
        failure_reward: Reward of an attempt that fails.
        max_attempts: Attempts of an episode, at most 1,000,000; the last one truncates if no code has run.
        feedback: `"last"`: the observation reminds of the last attempt (published); `"history"`: of every one.
        scoring: Reward of code that runs: `"roc_auc"` (published), `"accuracy"` or `"balanced_accuracy"`.
        splits: Random states of the halvings, or how many: 5 is `(0, 1, 2, 3, 4)`, as published.
        time_limit: CPU seconds of an evaluation, all splits together, at most 86,400.
        memory_limit: MiB that a split may use, beyond the loaded libraries, at most 1,048,576.
        banned: Names that code must not use, found on the syntax tree.
        terminate_on_success: Whether code that runs ends the episode (published). If False, the agent may keep
            improving until the last attempt; it then terminates with success if any code of the episode has run.
        confinement: `"auto"`: the layers of this machine, with a warning where code is not kept from files and
            network; `"require"`: refuse to run code without Landlock and seccomp.
        cache: Whether to remember evaluations, in memory and on disk.
        invalid_action_reward: Reward added when a sentence is unfinished; that costs an attempt.
        oracle_info: Put `oracle_action` into `info`.
        shuffle_actions: Without effect: actions are not listed.
        tokenizer: Tokenizer of the action space.
        max_action_length: Largest number of action tokens, end token included; here 8,193 by default.
        render_mode: None, `"ansi"` or `"rgb_array"`.

    `info`: `admissible_actions` (None), `invalid_action`, `success` (the episode ended, and code has run in it), and of
    the last attempt `status` (`evaluation.Status`), `auc_mean`, `auc_std` (over splits, ddof 0; None on failure),
    `auc_splits` (tuple), `stdout` (of a rehearsal, masked, at most 2,000 characters), `wall_seconds`, `code`; further
    `best_so_far` (largest reward of code that ran in this episode, or None), `prefix` and `suffix` (of the hole, for
    models that fill in the middle), `data` ("real", "synthetic", "generated" or "own") and `source` (where the rows
    come from).

    Raises:
        ValueError: If a dataset or option is unknown, or a number is out of range.
        TypeError: If a flag is not a bool.
        DataMissingError: If the table is not here and cannot be fetched.
        MissingExtraError: If scikit-learn, or a library that fetches or reads the table, is not installed.
        SandboxUnavailableError: At the first evaluation, if `confinement="require"` is not possible on this machine.
    """

    metadata: dict[str, Any] = {**LangEnv.metadata, "render_modes": ["ansi", "rgb_array"], "actions": "code"}  # noqa: RUF012 - gymnasium's
    steps_elsewhere = True

    renderer = "lang_envs.envs.datascicoding.render"

    def __init__(
        self,
        dataset: str | None = "balance-scale",
        *,
        data: Literal["real", "synthetic"] = "real",
        preprocessing: Literal["default", "published"] = "default",
        table: Table | None = None,
        target: str | int | None = None,
        description: str = "",
        failure_reward: float = -1.0,
        max_attempts: int = 5,
        feedback: Literal["last", "history"] = "last",
        scoring: str = "roc_auc",
        splits: int | Sequence[int] = 5,
        time_limit: float = 30.0,
        memory_limit: int = 1024,
        banned: Sequence[str] = BANNED,
        terminate_on_success: bool = True,
        confinement: Confining = "auto",
        cache: bool = True,
        **options: Unpack[SharedOptions],
    ) -> None:
        check_choice("feedback", feedback, ("last", "history"))
        check_choice("scoring", scoring, tuple(SCORERS))
        check_choice("confinement", confinement, ("auto", "require"))
        check_integer("max_attempts", max_attempts, 1, _MAX_ATTEMPTS)
        check_integer("memory_limit", memory_limit, 1, _MAX_MEBIBYTES)
        check_flags(terminate_on_success=terminate_on_success, cache=cache)
        if not is_number(failure_reward):
            raise ValueError(f"Expected failure_reward to be a finite number; got {failure_reward!r}.")
        check_seconds("time_limit", time_limit, _MAX_SECONDS)
        options.setdefault("max_action_length", MAX_CODE_BYTES + 1)
        length = prompts.max_length(1 if feedback == "last" else max_attempts)
        super().__init__(max_observation_length=length, **options)
        self.dataset = choose_dataset(dataset, data, preprocessing, table, target, description)
        self._data = "own" if dataset is None else NAME if dataset == NAME else data
        self.failure_reward, self.max_attempts, self.feedback = float(failure_reward), max_attempts, feedback
        self.terminate_on_success = terminate_on_success
        self._evaluator = partial(
            Evaluator,
            random_states=random_states(splits),
            scoring=scoring,
            banned=names(banned),
            limits=Limits(float(time_limit), memory_limit << 20),
            sandbox=shared_sandbox(confinement),
            cache=Cache(cache_folder()) if cache else None,
        )
        self._evaluate = self._evaluator(self.dataset)
        self._world = _World((), b"")

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """Attempts of this episode with their rewards, for rendering."""
        return self._world.attempts

    @property
    def best_so_far(self) -> float | None:
        """Largest reward of code that ran in this episode; None if none did."""
        return max((reward for evaluation, reward in self.attempts if evaluation.status is Status.OK), default=None)

    def oracle_action(self) -> str:
        """Return strong code for this table, found by search on unpublished splits; else code for most tables."""
        return oracle_code(self.dataset.name if self._data in ("real", NAME) else "")

    def _restart(self, options: Mapping[str, Any]) -> None:
        self._set_world(_World((), self.np_random.bytes(KEY_BYTES) if self._data == NAME else b""))

    def _set_world(self, world: _World) -> None:
        """Take over a world, and its table."""
        if world.key != self._world.key:
            self.dataset = generated_table(world.key or bytes(KEY_BYTES))
            self._evaluate = self._evaluator(self.dataset)
        self._world = world

    def _describe(self) -> str:
        attempts = list(enumerate(self.attempts, start=1))
        remarks = [
            prompts.Remark(number, evaluation.code, _verdict(evaluation, reward))
            for number, (evaluation, reward) in (attempts[-1:] if self.feedback == "last" else attempts)
        ]
        return prompts.observation(self.dataset, self._evaluate.scoring, self.max_attempts, remarks)

    def _listed_actions(self) -> None:
        return None

    def _execute(self, text: str) -> Outcome:
        return self._advance(self._evaluate(text))

    def _pass_time(self) -> Outcome:
        return self._advance(Evaluation(Status.UNFINISHED, "", error="The code was not finished."))

    def _advance(self, evaluation: Evaluation) -> Outcome:
        score = evaluation.score
        reward = self.failure_reward if score is None else score
        self._world = self._world._replace(attempts=(*self.attempts, Attempt(evaluation, reward)))
        is_last = len(self.attempts) >= self.max_attempts
        success = self.best_so_far is not None and (self.terminate_on_success or is_last)
        return Outcome(reward, terminated=success, truncated=is_last and not success, success=success)

    def _family_info(self, *, acted: bool) -> dict[str, Any]:
        last = self.attempts[-1].evaluation if acted else Evaluation(Status.NOT_RUN, "")
        aucs = last.aucs
        mean = sum(aucs) / len(aucs) if aucs else None
        std = (sum((area - mean) ** 2 for area in aucs) / len(aucs)) ** 0.5 if mean is not None else None
        return {
            "status": last.status,
            "error": last.error or "",
            "auc_mean": mean,
            "auc_std": std,
            "auc_splits": aucs,
            "stdout": last.stdout,
            "wall_seconds": last.wall_seconds,
            "code": last.code,
            "best_so_far": self.best_so_far,
            "prefix": self._describe(),
            "suffix": prompts.SUFFIX,
            "data": self._data,
            "source": self.dataset.source,
        }

    def _configuration(self) -> dict[str, Any]:
        evaluate = self._evaluate
        return {
            "dataset": NAME if self._data == NAME else self.dataset.digest,
            "failure_reward": self.failure_reward,
            "max_attempts": self.max_attempts,
            "feedback": self.feedback,
            "scoring": evaluate.scoring,
            "splits": evaluate.random_states,
            "limits": tuple(evaluate.limits),
            "banned": evaluate.banned,
            "terminate_on_success": self.terminate_on_success,
        }


def _verdict(evaluation: Evaluation, reward: float) -> str:
    if evaluation.status is Status.OK:
        return f"it ran, with a score of {reward:.4f}."
    return f"it failed. {evaluation.error}"
