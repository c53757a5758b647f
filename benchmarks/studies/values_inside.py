"""`values-inside`: critics that know the values inside an action, and what credit for single tokens is worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from stable_baselines3.common.callbacks import BaseCallback

from benchmarks.exact.gradients import timed_values, visits
from benchmarks.studies.credit_truth.problems import Problem, independent
from benchmarks.studies.credit_truth.trainings import policy_table
from benchmarks.studies.engine.comparing import Comparing
from benchmarks.studies.engine.findings import Planned, Prediction
from benchmarks.studies.engine.jobs import TrainingJob
from benchmarks.studies.engine.training import run_training
from benchmarks.studies.multikey import EIGHT
from benchmarks.studies.remedies import REMEDIES, RemedyJob
from benchmarks.studies.tasks import FOOD, GAMMA, GRPO, MULTIKEY, SALAD, TWOSOME, trie
from poad_sb3.common.policies import LLMPolicy
from poad_sb3.common.rollout_types import TokenValues
from poad_sb3.distributions.base import TokenPath
from poad_sb3.prompts import Question


@dataclass(frozen=True)
class ExactValuesJob(TrainingJob):
    """A training on MultiKey whose values before tokens are exact, those of the policy of the rollout.

    Attributes:
        values: Source of the values; it distinguishes the settings from those of an ordinary training.
    """

    runner = "benchmarks.studies.values_inside:run_with_exact_values"
    values: str = "exact"

    @property
    def label(self) -> str:
        return f"exact-values_{super().label}"


def run_with_exact_values(job: ExactValuesJob) -> dict[str, Any]:
    """Do a job; see `run_training`."""
    return run_training(job, callbacks=[ExactValues(independent(job.env_id, share=False, **job.env_kwargs))])


class ExactValues(BaseCallback):
    """Replaces the values of the critic by exact ones; the critic itself learns without an effect.

    Args:
        problem: The training's task, each of whose observations is seen at one step of an episode alone.
    """

    def __init__(self, problem: Problem) -> None:
        super().__init__()
        self.problem = problem

    def _on_step(self) -> bool:
        return True

    def _on_training_start(self) -> None:
        policy = self.model.policy
        assert isinstance(policy, LLMPolicy)
        by_critic, timed = policy.token_values, self.problem.timed
        parents, (nodes, _) = timed.mdp.trie.parents, timed.paths
        questions = [Question(text, actions) for text, actions in self.problem.texts]
        states = {policy.distribution.prompt(question): state for state, question in enumerate(questions)}
        listed = {policy.lm.action_ids(action): number for number, action in enumerate(self.problem.texts[0][1])}

        def token_values(paths: Sequence[TokenPath], n_values: Sequence[int], **options: Any) -> TokenValues:
            table = policy_table(policy, self.problem)
            values, clocks = timed_values(timed, table, gamma=GAMMA).values, visits(timed, table).argmax(axis=0)
            exact = []
            for path, n in zip(paths, n_values, strict=True):
                state = states[path.prompt]
                inner = parents[nodes[listed.get(path.action, 0), :n]]  # before the first token they are all alike
                exact.append(values[clocks[state], state, inner].astype("float32"))
            return by_critic(paths, n_values, **options)._replace(values=exact)

        policy.token_values = token_values  # type: ignore[method-assign, assignment]


TOKEN_1, TOKEN_8, DUELING_1, DUELING_8, MARGINAL_1, MARGINAL_8 = (
    trie(f"{critic} {value:g}", "POAD", critic=critic, gae_lambda_token=value)
    for critic in ("token", "dueling", "marginal")
    for value in (1.0, 0.8)
)
STATE_8 = trie("state 0.8", "POAD", critic="state", gae_lambda_token=0.8)
"""The control: the decay of the trace without values inside the action."""
ACTION_LEVEL = trie("action level", "POAD", critic="state", credit_level="action", ratio="token")
SHORT = {
    task.name: ACTION_LEVEL._replace(
        name=f"action level, lambda {value:.2g}", arguments={**ACTION_LEVEL.arguments, "gae_lambda": value}
    )
    for task, n_decisions in ((MULTIKEY, 6), (EIGHT, 8))
    for value in [round(0.95 * 0.8 ** (n_decisions - 1), 3)]
}
"""Action level with the trace between actions that is left of 0.95 where it decays at the decisions of each."""
NTPO = trie("NTPO", "NTPO", critic="token", gae_lambda_token=1.0)
EXACT_8 = trie("exact 0.8", "POAD", critic="token", gae_lambda_token=0.8)._replace(kind=ExactValuesJob)
OF_REMEDIES = {
    name: base._replace(name=f"{base.name}, {name}", rate_of=base.name, kind=partial(RemedyJob, remedy=name))
    for name in REMEDIES
    for base in [MARGINAL_8 if name == "doubly robust" else DUELING_8]
}
"""Remedies over the dueling critic; doubly robust over the marginal one, whose values are a martingale."""
_EVERYWHERE = (TOKEN_1, TOKEN_8, DUELING_1, DUELING_8, MARGINAL_1, MARGINAL_8, STATE_8, ACTION_LEVEL, NTPO)
_ON_MULTIKEY = (*_EVERYWHERE, EXACT_8, GRPO)
"""Methods without TWOSOME, which scores each of the 256 actions of (4, 4)."""
_HERE, _BOTH = (MULTIKEY.name,), (MULTIKEY.name, EIGHT.name)
_PREDICTED = {"privileged": Prediction.HIGHER}

VALUES_INSIDE = Comparing(
    "values-inside",
    "critics with values of tokens, of states, and of advantages over states; and credit that decays without them",
    "Values inside an action: interquartile means over seeds, 95 % intervals",
    (
        (MULTIKEY, (*_ON_MULTIKEY, SHORT[MULTIKEY.name], TWOSOME, *OF_REMEDIES.values())),
        (EIGHT, (*_ON_MULTIKEY, SHORT[EIGHT.name])),
        (FOOD, _EVERYWHERE),
        (SALAD, (TOKEN_1, DUELING_8, STATE_8)),  # a run takes five minutes
    ),
    (
        Planned(DUELING_8.name, TOKEN_1.name, Prediction.HIGHER, _BOTH),
        Planned(DUELING_8.name, TOKEN_1.name, Prediction.NOT_SETTLED, (SALAD.name, FOOD.name)),
        Planned(DUELING_8.name, STATE_8.name, Prediction.NOT_SETTLED, gated=False),
        Planned(MARGINAL_8.name, STATE_8.name, Prediction.NOT_SETTLED, _BOTH, gated=False),
        Planned(EXACT_8.name, DUELING_8.name, Prediction.HIGHER, _BOTH, gated=False),
        Planned(STATE_8.name, ACTION_LEVEL.name, Prediction.HIGHER, _BOTH, gated=False),
        *(Planned(STATE_8.name, arm.name, Prediction.NOT_SETTLED, (task,), gated=False) for task, arm in SHORT.items()),
        *(
            Planned(arm.name, arm.rate_of or "", _PREDICTED.get(name, Prediction.NOT_SETTLED), _HERE, gated=False)
            for name, arm in OF_REMEDIES.items()
        ),
    ),
    (
        "A number behind a method is its `gae_lambda_token`. State 0.8 is the control: the same decay without values "
        "inside the action. Exact 0.8 has the values of the closed form.",
        "Rates of (4, 4) are those of (2, 4).",
    ),
    tuple(range(500, 510)),
    drawn=[arm.name for arm in (EXACT_8, DUELING_8, STATE_8, ACTION_LEVEL, TOKEN_1, NTPO)],
)
