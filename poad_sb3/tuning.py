"""Hyperparameter search with optuna: the spaces, one trial, and the search (extra `tune`)."""

from __future__ import annotations

import json
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback

from lang_envs.errors import missing_extra
from lang_envs.files import locked
from poad_sb3.common.episodes import policy_episodes
from poad_sb3.common.hyperparameters import LARGE_MODEL, useless_arguments
from poad_sb3.common.policies import LLMPolicy
from poad_sb3.distributed.job_executor import job_executor
from poad_sb3.errors import NoEffectWarning, PoadError
from poad_sb3.vec_env.make_envs import make_envs

if TYPE_CHECKING:
    import optuna

    from poad_sb3.common.on_policy_algorithm import LLMOnPolicyAlgorithm

__all__ = ["SPACES", "Range", "Search", "best_arguments", "ended_trials", "importances", "open_study", "run_trials"]


class Range(NamedTuple):
    """A positive number between two bounds, uniform in its logarithm."""

    low: float
    high: float


Space = Mapping[str, Range | tuple[Any, ...]]
"""Values to try of each constructor argument: a range, or a list."""

_COMMON: Space = {
    "n_steps": (32, 64, 128, 256),
    "n_epochs": (1, 2, 5, 10),
    "ent_coef": (0.0, 0.005, 0.02, 0.05),
    "target_kl": (0.01, 0.02, 0.05),
    "gae_lambda": (0.9, 0.95, 0.98),
    "gae_lambda_token": (0.5, 0.8, 0.95, 1.0),
    "clip_range": (0.1, 0.2, 0.3),
}
SPACES: Mapping[str, Space] = {
    "Overcooked": {**_COMMON, "gamma": (0.95, 0.99)},
    "VirtualHome": {**_COMMON, "gamma": (0.9, 0.95)},
    "DataSciCoding": {**_COMMON, "n_steps": (8, 16, 32), "ent_coef": (0.0, 0.005), "temperature": (0.7, 1.0)},
    "": {**_COMMON, "gamma": (0.95, 0.99, 1.0)},
}
"""Values to try, by the family that ids begin with; the last one is for all others."""
_RATES = Range(2e-4, 1e-2), Range(1e-5, 1e-3)
"""Rates of adapter and critic, for models of up to `LARGE_MODEL` weights and for larger ones."""
_MINIBATCHES = 4
_AGAIN = "again"
"""Mark of a trial that was interrupted, and is tried again."""
_HEARTBEAT = 30
"""Time between the signs of life of a trial, in seconds; one without them is begun again by the next command."""


@dataclass(frozen=True)
class Search:
    """A search, but for its trials.

    Attributes:
        kind: Class of the algorithm.
        env_id: Id of the task.
        steps: Environment steps of a trial.
        n_envs: Number of environments.
        arguments: Arguments of all trials, but for those that are tried.
        fixed: Names of the arguments that are not tried.
        env_kwargs: Arguments of `gym.make`.
        seed: Seed of every training, and of the sampler.
        n_evaluations: Number of evaluations in a trial; after each it may be pruned.
        n_episodes: Number of episodes of an evaluation.
    """

    kind: type[LLMOnPolicyAlgorithm]
    env_id: str
    steps: int
    n_envs: int = 1
    arguments: Mapping[str, Any] = field(default_factory=dict)
    fixed: tuple[str, ...] = ()
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 101
    n_evaluations: int = 4
    n_episodes: int = 20

    def arguments_with(self, tried: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a trial; its batch is a quarter of a rollout unless it is fixed."""
        arguments = {**self.arguments, **tried}
        if "n_steps" in tried and "batch_size" not in self.fixed:
            arguments["batch_size"] = max(1, tried["n_steps"] * self.n_envs // _MINIBATCHES)
        return arguments

    def make(self, **tried: Any) -> LLMOnPolicyAlgorithm:
        """Return the algorithm of a trial."""
        envs = make_envs(self.env_id, dict(self.env_kwargs), self.n_envs)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoEffectWarning)
            return self.kind("LLMPolicy", envs, seed=self.seed, **self.arguments_with(tried))

    def space(self) -> dict[str, Range | tuple[Any, ...]]:
        """Return the values to try: of the arguments that have an effect and that the search leaves open."""
        made = self.make()
        assert made.env is not None
        made.env.close()
        rates = _RATES[made.policy.lm.n_weights > LARGE_MODEL]
        family = self.env_id.rpartition(":")[2].split("-")[0]
        space = {"learning_rate": rates, "critic_learning_rate": rates, **SPACES.get(family, SPACES[""])}
        most = self.steps / self.n_evaluations / self.n_envs  # else trials of few, long rollouts had fewer evaluations
        n_steps = space["n_steps"]
        space["n_steps"] = tuple(number for number in n_steps if number <= most) or n_steps[:1]
        closed = {*self.fixed, *useless_arguments(made)}
        return {name: values for name, values in space.items() if name not in closed}


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise missing_extra("cli,tune", "optuna for a search") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def open_study(search: Search, path: Path) -> optuna.Study:
    """Open the trials of a search in an SQLite file, which is made if there is none.

    Several processes of one machine may open it at a time.

    Raises:
        PoadError: If the file cannot be opened, or holds the trials of another search.
        MissingExtraError: If optuna is not installed.
    """
    with locked(path.parent):  # of two processes one makes the tables, and each takes a seed of its own
        return _open_study(search, path)


def _open_study(search: Search, path: Path) -> optuna.Study:
    library = _optuna()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", library.exceptions.ExperimentalWarning)
            storage = library.storages.RDBStorage(
                f"sqlite:///{path}",
                engine_kwargs={"connect_args": {"timeout": 60}},
                heartbeat_interval=_HEARTBEAT,
                heartbeat_stale_trial_callback=library.storages.RetryHeartbeatStaleTrialCallback(max_retry=2),
            )
        study: optuna.Study = library.create_study(
            study_name="poad",
            storage=storage,
            load_if_exists=True,
            direction="maximize",
            pruner=library.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=1),
        )
    except Exception as error:  # of optuna, SQLAlchemy or Alembic
        cause = (str(error).splitlines() or [type(error).__name__])[0]
        raise PoadError(
            f"Expected trials of optuna in {path}; it cannot be opened ({cause}). Fix: another --out."
        ) from error
    searched = json.loads(json.dumps(vars(search), default=lambda kind: kind.__name__))
    for name, value in searched.items():
        if study.user_attrs.setdefault(name, value) != value:
            raise PoadError(
                f"Expected the trials of this search in {path}; they have {name} {study.user_attrs[name]}, not "
                f"{value}. Fix: another --out."
            )
        study.set_user_attr(name, value)
    n_sessions = study.user_attrs.get("sessions", 0)
    study.set_user_attr("sessions", n_sessions + 1)  # each of several processes tries other values
    study.sampler = library.samplers.TPESampler(seed=search.seed + n_sessions, constant_liar=True)
    return study


def ended_trials(study: optuna.Study) -> list[optuna.trial.FrozenTrial]:
    """Return the trials that ended, but for those that were killed or interrupted and are tried again."""
    trials = study.get_trials(deepcopy=False)
    again = {number for trial in trials for number in trial.system_attrs.get("retry_history", ())}
    again |= {trial.number for trial in trials if _AGAIN in trial.user_attrs}
    return [trial for trial in trials if trial.state.is_finished() and trial.number not in again]


def run_trials(
    study: optuna.Study,
    search: Search,
    n_trials: int,
    done: Callable[[optuna.Study, optuna.trial.FrozenTrial], None],
    n_workers: int = 1,
    ray: str | None = None,
) -> None:
    """Run trials until there are `n_trials` in all.

    The score of a trial is the mean return over its evaluations, so that fast learning counts. A trial whose score is
    below the median, at the same evaluation, of those that were complete when it began ends. One whose arguments are
    refused, or whose worker is lost too often, has no score.

    Args:
        study: Trials so far.
        search: What is searched.
        n_trials: Number of trials that end, earlier ones included.
        done: Function that is called after each trial, in any thread.
        n_workers: Number of trials that run at a time.
        ray: Address of a Ray cluster that they run on; None for processes of this machine, or for this process if
            `n_workers` is 1. See `job_executor`.

    Raises:
        MissingExtraError: If optuna is not installed, or Ray.
        WorkerError: If there is no such cluster, or it is too small.
    """
    left = n_trials - len(ended_trials(study))
    if left <= 0:
        return
    library, space = _optuna(), search.space()
    is_ending, errors = threading.Event(), list[BaseException]()
    executor = None if ray is None and n_workers == 1 else job_executor(n_workers, ray)

    def score(trial: optuna.Trial) -> float:
        tried = _suggest(trial, space)
        arguments = search, tried, study.pruner, study.get_trials(states=[library.trial.TrialState.COMPLETE])
        try:
            returns, is_pruned = (
                _train(*arguments) if executor is None else executor.submit(_train, *arguments).result()
            )
        except (PoadError, ValueError) as error:
            trial.set_user_attr("error", str(error))
            raise
        except (Exception, KeyboardInterrupt) as error:
            errors.append(error)
            if is_ending.is_set() or isinstance(error, KeyboardInterrupt):
                trial.set_user_attr(_AGAIN, True)  # the next command begins it again
                study.enqueue_trial(tried)
            raise
        _report(trial, returns)
        if is_pruned:
            raise library.TrialPruned
        return float(np.mean(returns))

    def stop(study: optuna.Study, _: optuna.trial.FrozenTrial) -> None:
        if len(ended_trials(study)) >= n_trials:  # other processes may try some of them
            study.stop()

    def optimize() -> None:
        study.optimize(score, left, n_jobs=n_workers, catch=(PoadError, ValueError), callbacks=[done, stop])
        if errors:  # with several workers optuna leaves out those of the last trials
            raise errors[0]

    if executor is None:
        optimize()
        return
    threads = ThreadPoolExecutor(1)
    try:
        threads.submit(optimize).result()
    finally:  # in this order: after Ctrl-C optuna's threads wait for the trials that run
        is_ending.set()
        executor.shutdown(wait=False, cancel_futures=True)
        threads.shutdown()


def _suggest(trial: optuna.Trial, space: Space) -> dict[str, Any]:
    return {
        name: trial.suggest_float(name, *values, log=True)
        if isinstance(values, Range)
        else trial.suggest_categorical(name, values)
        for name, values in space.items()
    }


def _report(trial: optuna.Trial, returns: Sequence[float]) -> None:
    for number in range(1, len(returns) + 1):
        trial.report(float(np.mean(returns[:number])), number)


def _train(
    search: Search, tried: Mapping[str, Any], pruner: optuna.pruners.BasePruner, complete: Sequence[Any]
) -> tuple[list[float], bool]:
    """Run the training of a trial, in any process, and return the returns of its evaluations, and if it was pruned.

    Pruning needs the trials that are complete alone. A worker gets a copy of them: with the storage it would have to
    reach the file from another machine, and with the driver in between it would wait for its answers.
    """
    copy = _optuna().create_study(direction="maximize", pruner=pruner)
    copy.add_trials(complete)
    model = search.make(**tried)
    assert model.env is not None
    watch = _Watch(search, copy.ask())
    with closing(model.env):
        model.learn(search.steps, watch)
    return watch.returns, watch.is_pruned


class _Watch(BaseCallback):
    """Evaluates at the beginning of rollouts and at the end, and ends a training that its search prunes."""

    def __init__(self, search: Search, trial: optuna.Trial) -> None:
        super().__init__()
        self.search, self.trial = search, trial
        self.returns: list[float] = []
        self.is_pruned = False

    def _on_step(self) -> bool:
        return not self.is_pruned

    def _on_rollout_start(self) -> None:
        if self.num_timesteps * self.search.n_evaluations >= self.search.steps * (len(self.returns) + 1):
            self._evaluate()
            self.is_pruned = self.trial.should_prune()

    def _on_training_end(self) -> None:
        if not self.is_pruned:
            self._evaluate()

    def _evaluate(self) -> None:
        policy, search = self.model.policy, self.search
        assert isinstance(policy, LLMPolicy)
        episodes = policy_episodes(
            policy, search.env_id, search.n_episodes, seed=search.seed, env_kwargs=search.env_kwargs
        )
        self.returns.append(float(np.mean([sum(step["reward"] for step in episode) for episode in episodes])))
        self.trial.report(float(np.mean(self.returns)), len(self.returns))


def best_arguments(study: optuna.Study, search: Search) -> dict[str, Any]:
    """Return the constructor arguments of the best trial.

    Raises:
        PoadError: If no trial was completed.
    """
    ended = ended_trials(study)
    if not any(trial.state.name == "COMPLETE" for trial in ended):
        raise PoadError(
            f"Expected a completed trial; all {len(ended)} were refused, pruned, stopped or killed, so there is no "
            "preset. Fix: more --trials, or other arguments in --set."
        )
    return search.arguments_with(study.best_params)


def importances(study: optuna.Study) -> dict[str, float]:
    """Return the importance of each argument for the score, largest first; they add up to 1 (PED-ANOVA)."""
    optuna = _optuna()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        evaluator = optuna.importance.PedAnovaImportanceEvaluator()
        return dict(optuna.importance.get_param_importances(study, evaluator=evaluator))
