"""Remedies of the field for a noisy critic, each laid over POAD with a new critic on MultiKey.

They are not settings of the library: one that helps becomes a setting (docs/benchmarks/protocol.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.callbacks import BaseCallback
from torch import Tensor

from benchmarks.studies.engine.jobs import TrainingJob
from benchmarks.studies.engine.training import run_training
from poad_sb3.common.critics import DuelingCritic
from poad_sb3.common.on_policy_algorithm import LLMOnPolicyAlgorithm
from poad_sb3.common.rollout_types import TokenRolloutSamples
from poad_sb3.credit.advantages import Floats
from poad_sb3.credit.estimators import GAE, Rollout
from poad_sb3.language_model.packing import TokenRow, path_to


@dataclass(frozen=True)
class RemedyJob(TrainingJob):
    """A training with a remedy.

    Attributes:
        remedy: Name of the remedy, a key of `REMEDIES`.
    """

    runner = "benchmarks.studies.remedies:run_with_remedy"
    remedy: str = ""

    @property
    def label(self) -> str:
        return f"remedy-{self.remedy}_{super().label}".replace(" ", "-")


class Remedy(BaseCallback):
    """Changes an algorithm before its first rollout, and each rollout as it is complete.

    Attributes:
        model: Algorithm to change.
    """

    model: LLMOnPolicyAlgorithm

    def _on_step(self) -> bool:
        return True


# ---------------------------------------------------------------------- separate traces


class LongTargetsCritic(DuelingCritic):
    """A dueling critic whose network of states learns returns with a trace of 1 (VC-PPO, arXiv 2503.01491)."""

    @staticmethod
    def targets(estimator: GAE, rollout: Rollout, advantages: Floats) -> Floats:
        """See `Critic.targets`; the trace of the policy's advantages stays as it is."""
        return DuelingCritic.targets(replace(estimator, gae_lambda=1.0), rollout, advantages)


class LongTargets(Remedy):
    """Trains V(s) on returns with a trace of 1, whatever the trace of the advantages is."""

    def _on_training_start(self) -> None:
        self.model.rollout_buffer.critic = LongTargetsCritic


# ---------------------------------------------------------------------- warm-up


class WarmUp(Remedy):
    """Trains the critic alone for the first rollouts (VC-PPO)."""

    n_rollouts = 4

    def _on_training_start(self) -> None:
        schedule, n_steps = self.model.lr_schedule, self.model.n_steps * self.model.n_envs
        first = self.n_rollouts * n_steps
        self.model.lr_schedule = lambda left: 0.0 if self.model.num_timesteps <= first else schedule(left)


# ---------------------------------------------------------------------- doubly robust


class DoublyRobustGAE(GAE):
    """A_j = V_{j+1} - V_j + C (G - Q): the value of the token, and the error of the value of the whole action.

    G is the lambda-return of the action, Q the value after its last decision. With C = 1 and values that are a
    martingale (the marginal critic's) E[A_j | prefix] = E[G | prefix] - V_j, whatever Q is: values inside an action
    are a control variate.
    """

    share = 1.0
    """C."""

    @property
    def described(self) -> str:
        """See `Estimator.described`."""
        return "doubly robust"

    def advantages(self, rollout: Rollout) -> Floats:
        """See `Estimator.advantages`; of decisions, 0 at forced tokens."""
        of_actions = GAE(self.gamma, self.gae_lambda, credit_level="action")
        first = rollout._replace(values=rollout.values[..., :1], decisions=None)
        returns = of_actions.advantages(first)[..., 0] + rollout.values[..., 0]
        inside = replace(GAE(1.0, 0.0), gae_lambda_token=0.0)  # V_{j+1} - V_j, and G - V_m at the last decision
        alone = np.ones_like(rollout.episode_ends, dtype=bool)
        steps = inside.advantages(
            rollout._replace(
                rewards=returns, episode_ends=alone, final_values=np.zeros_like(returns), durations=0 * returns
            )
        )
        q = np.take_along_axis(rollout.values, rollout.lengths[..., None] - 1, -1)  # before the end token, a forced one
        error = returns[..., None] - q
        decisions = np.arange(steps.shape[-1]) < rollout.lengths[..., None]
        if rollout.decisions is not None:
            decisions = decisions & rollout.decisions
        last = steps.shape[-1] - 1 - np.argmax(decisions[..., ::-1], axis=-1)
        is_last = np.arange(steps.shape[-1]) == last[..., None]
        return np.where(decisions, np.where(is_last, steps - error, steps) + self.share * error, 0.0)


class DoublyRobust(Remedy):
    """Takes the advantages of `DoublyRobustGAE`."""

    def _on_training_start(self) -> None:
        buffer = self.model.rollout_buffer
        buffer.estimator = DoublyRobustGAE(**vars(buffer.estimator))


# ---------------------------------------------------------------------- memory


class Memory(Remedy):
    """Trains the critic on the last rollouts too, with the targets of their time.

    Biased: these are values of earlier policies, by as much as the policy has moved in `n_rollouts` updates.
    """

    n_rollouts = 8

    def _on_training_start(self) -> None:
        self.samples: list[TokenRolloutSamples] = []

    def _on_rollout_start(self) -> None:
        critic, optimizer = self.model.policy.critic, self.model.policy.critic_optimizer
        assert critic is not None
        assert optimizer is not None
        for flat in self.samples[:-1]:  # the last one has been learned from by the update
            rows = flat.feature_of[flat.has_target]
            errors = critic.outputs(flat.features, flat.is_state)[rows] - flat.targets[flat.has_target]
            optimizer.zero_grad()
            errors.square().mean().backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    def _on_rollout_end(self) -> None:
        self.samples = [*self.samples, self.model.rollout_buffer.all_samples()][-self.n_rollouts :]


# ---------------------------------------------------------------------- privileged


class Privileged(Remedy):
    """Lets the critic read the tokens in place of hidden states: a random vector for each token and position.

    On MultiKey these are the state of the simulator, target and step, and the words so far: an upper bound for what
    hidden states can give.
    """

    def _on_training_start(self) -> None:
        lm = self.model.policy.lm

        @cache
        def encoded(position: int, token: int) -> Tensor:
            return torch.from_numpy(np.random.default_rng([position, token]).normal(size=lm.hidden_size)).float()

        def total(tokens: Sequence[int]) -> Tensor:
            return torch.stack([encoded(position, token) for position, token in enumerate(tokens)]).sum(0)

        def features(rows: Sequence[TokenRow]) -> list[Tensor]:
            paths = [[path_to(row, read).tokens for read in row.reads] for row in rows]
            return [torch.stack([total(tokens) for tokens in of_row]) for of_row in paths]

        lm.trunk_features = features  # type: ignore[method-assign]


REMEDIES: dict[str, Callable[[], Remedy]] = {
    "long targets": LongTargets,
    "warm-up": WarmUp,
    "doubly robust": DoublyRobust,
    "memory": Memory,
    "privileged": Privileged,
}
"""Remedies by name."""


def run_with_remedy(job: RemedyJob) -> dict[str, Any]:
    """Do a job; see `run_training`."""
    return run_training(job, callbacks=[REMEDIES[job.remedy]()])
