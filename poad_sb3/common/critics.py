"""Critics as strategies: networks on hidden states, the values that follow from their outputs, and what they learn.

`CRITICS` is the only place that knows them all; docs/algorithms/critics.md derives and compares them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from poad_sb3.credit.advantages import Floats
from poad_sb3.credit.estimators import GAE, Rollout
from poad_sb3.distributions.base import Leaves, TokenPath
from poad_sb3.language_model.packing import TokenRow, tree_row
from poad_sb3.language_model.value_network import ValueNetwork
from poad_sb3.settings.credit import CriticKind

Outputs = NDArray[np.floating]

__all__ = ["CRITICS", "Critic", "DuelingCritic", "MarginalCritic", "StateCritic", "TokenCritic", "prefix_row"]


class Critic(ValueNetwork, ABC):
    """Values of the prefixes of actions. The network that this class itself is values states, and perhaps more.

    The critic reads some hidden states of each path, first the one before its first token, `is_state`.

    Args:
        width: Hidden size of the language model.
        hidden: Widths of the hidden layers of each network.
        whitening: Whether to whiten the hidden states.
        init: Initialisation of the last layers, as in `ValueNetwork`.
    """

    reads_prefixes: ClassVar[bool] = True
    """Whether the critic reads the hidden states inside an action."""
    reads_leaves: ClassVar[bool] = False
    """Whether the critic reads the ends of all listed actions, `TokenPath.leaves`."""
    n_networks: ClassVar[int] = 1
    """Number of networks."""

    @classmethod
    def row(cls, path: TokenPath, n_values: int) -> TokenRow:
        """Return the row that reads the hidden states of a path which the values before its first tokens need."""
        return prefix_row(path, n_values if cls.reads_prefixes else min(n_values, 1))

    def observe(self, features: Tensor, is_state: Tensor) -> None:
        """Add the features of a rollout to the statistics of the whitening, before they are valued."""
        self.observe_features(features)

    def observe_targets(self, targets: Tensor, is_state: Tensor) -> bool:
        """Learn in units of these targets and those before; return whether they are the first of a network.

        See `ValueNetwork.observe_returns`.
        """
        return self.observe_returns(targets)

    def units(self, is_state: Tensor) -> Tensor:
        """Return the unit of each target: 1, or with `observe_targets` their deviation."""
        return self.scale.deviation.expand(len(is_state))

    def outputs(self, features: Tensor, is_state: Tensor) -> Tensor:
        """Compute the number that the networks learn for each hidden state, `[n]`."""
        numbers: Tensor = self(features)
        return numbers

    @staticmethod
    @abstractmethod
    def values(path: TokenPath, n_values: int, outputs: Outputs) -> Outputs:
        """Compute the values before the first tokens of a path from the outputs for its reads, `[n_values]`."""

    @classmethod
    def learned_reads(cls, path: TokenPath, n_values: int) -> NDArray[np.int64]:
        """Return the read whose output learns the target of each token, `[n_tokens]`; -1 where there is no target."""
        reads = np.arange(len(path.action))
        return np.where(reads < (n_values if cls.reads_prefixes else min(n_values, 1)), reads, -1)

    @staticmethod
    @abstractmethod
    def targets(estimator: GAE, rollout: Rollout, advantages: Floats) -> Floats:
        """Compute the targets of the outputs, `[steps, envs, tokens]`, or `[steps, envs, 1]` of states alone.

        Args:
            estimator: Estimator of the advantages.
            rollout: Rollout with values.
            advantages: Advantages of the estimator.
        """


class TokenCritic(Critic):
    """One network for all prefixes, which learns the returns of the estimator (the paper's)."""

    @staticmethod
    def values(path: TokenPath, n_values: int, outputs: Outputs) -> Outputs:
        """See `Critic.values`."""
        return outputs[:n_values]

    @staticmethod
    def targets(estimator: GAE, rollout: Rollout, advantages: Floats) -> Floats:
        """See `Critic.targets`."""
        return advantages + rollout.values


class StateCritic(Critic):
    """A network of states; every prefix of an action has the value of its state.

    The tokens of an action then differ in credit only by the decay of the trace, `gae_lambda_token`.
    """

    reads_prefixes = False

    def observe(self, features: Tensor, is_state: Tensor) -> None:
        """See `Critic.observe`."""
        self.observe_features(features[is_state])

    @staticmethod
    def values(path: TokenPath, n_values: int, outputs: Outputs) -> Outputs:
        """See `Critic.values`."""
        return np.repeat(outputs[:1], n_values)

    @staticmethod
    def targets(estimator: GAE, rollout: Rollout, advantages: Floats) -> Floats:
        """See `Critic.targets`."""
        return estimator.state_returns(rollout)[..., None]


class DuelingCritic(StateCritic):
    """V(prefix) = V(s) + A(prefix): a network of states, and one of advantages that learns r + gamma V(s') - V(s).

    A of the empty prefix is 0. The target of A is one step, not a return: its noise is that of one action, and V(s),
    which most returns differ by, need not be learned again at every prefix.
    """

    reads_prefixes = True
    n_networks = 2

    def __init__(
        self, width: int, hidden: Sequence[int] = (1024, 512), *, whitening: bool = True, init: str = "zero"
    ) -> None:
        super().__init__(width, hidden, whitening=whitening, init=init)
        self.advantage = ValueNetwork(width, hidden, whitening=whitening, init=init)

    def observe(self, features: Tensor, is_state: Tensor) -> None:
        """See `Critic.observe`."""
        super().observe(features, is_state)
        if not is_state.all():
            self.advantage.observe_features(features[~is_state])

    def observe_targets(self, targets: Tensor, is_state: Tensor) -> bool:
        """See `Critic.observe_targets`."""
        is_first = self.observe_returns(targets[is_state])
        if is_state.all():
            return is_first
        return self.advantage.observe_returns(targets[~is_state]) or is_first

    def units(self, is_state: Tensor) -> Tensor:
        """See `Critic.units`."""
        return torch.where(is_state, self.scale.deviation, self.advantage.scale.deviation)

    def outputs(self, features: Tensor, is_state: Tensor) -> Tensor:
        """See `Critic.outputs`."""
        numbers = features.new_zeros(len(features))
        numbers[is_state], numbers[~is_state] = self(features[is_state]), self.advantage(features[~is_state])
        return numbers

    @staticmethod
    def values(path: TokenPath, n_values: int, outputs: Outputs) -> Outputs:
        """See `Critic.values`."""
        return np.concatenate([outputs[:1], outputs[0] + outputs[1:n_values]])

    @staticmethod
    def targets(estimator: GAE, rollout: Rollout, advantages: Floats) -> Floats:
        """See `Critic.targets`."""
        targets = estimator.one_step_advantages(rollout)
        targets[..., 0] = estimator.state_returns(rollout)
        return targets


class MarginalCritic(DuelingCritic):
    """V(prefix) = V(s) + E[A | prefix] - E[A]: A of whole listed actions, averaged by the policy at sampling.

    A is read after the end token of each listed action, and learns r + gamma V(s') - V(s) of the sampled one. Values
    are a martingale under the policy whatever A is, so that no token gets credit on average but for what it decides.

    Of lists longer than `max_leaves`, that many of the most probable actions are read, the sampled one among them, in
    place of all. The error of E[A | prefix] is at most the probability of the rest, given the prefix, times the range
    of A; since the sampled action is always among them, the mean credit of a token is then biased by as much.
    """

    reads_prefixes = False
    reads_leaves = True
    max_leaves: ClassVar[int] = 256
    """Maximum number of actions that are read for each state."""

    @classmethod
    def row(cls, path: TokenPath, n_values: int) -> TokenRow:
        """See `Critic.row`."""
        if path.leaves is None or n_values <= 1:
            return prefix_row(path, min(n_values, 1))
        return tree_row(path.prompt, [(), *(path.leaves.sequences[leaf] for leaf in cls._kept(path, path.leaves))])

    @classmethod
    def _kept(cls, path: TokenPath, leaves: Leaves) -> Sequence[int]:
        """Return the indices of the actions that are read, in the order of the list."""
        n = len(leaves.sequences)
        if n <= cls.max_leaves:
            return range(n)
        sampled = leaves.sequences.index(path.action)
        order = sorted(range(n), key=lambda leaf: (leaf != sampled, -leaves.probabilities[leaf]))
        return sorted(order[: cls.max_leaves])

    @classmethod
    def values(cls, path: TokenPath, n_values: int, outputs: Outputs) -> Outputs:
        """See `Critic.values`."""
        values = np.repeat(outputs[:1], n_values)
        if path.leaves is None or n_values <= 1:
            return values
        left = cls._kept(path, path.leaves)
        advantages, chances = np.zeros((2, len(path.leaves.sequences)))
        advantages[left], chances[left] = outputs[1:], [path.leaves.probabilities[leaf] for leaf in left]
        overall = chances @ advantages / chances.sum()
        for j in range(1, n_values):
            left = [leaf for leaf in left if path.leaves.sequences[leaf][j - 1] == path.action[j - 1]]
            if chances[left].sum() > 0:  # it may underflow
                values[j] += chances[left] @ advantages[left] / chances[left].sum() - overall
        return values

    @classmethod
    def learned_reads(cls, path: TokenPath, n_values: int) -> NDArray[np.int64]:
        """See `Critic.learned_reads`: of the state at the first token, of the sampled action at its end token."""
        reads = np.full(len(path.action), -1)
        if path.leaves is not None and n_values > 1:
            kept = cls._kept(path, path.leaves)
            reads[-1] = 1 + [path.leaves.sequences[leaf] for leaf in kept].index(path.action)
        reads[: min(n_values, 1)] = 0
        return reads


CRITICS: dict[CriticKind, type[Critic]] = {
    CriticKind.TOKEN: TokenCritic,
    CriticKind.STATE: StateCritic,
    CriticKind.DUELING: DuelingCritic,
    CriticKind.MARGINAL: MarginalCritic,
}
"""Critics by kind."""


def prefix_row(path: TokenPath, n: int) -> TokenRow:
    """Return the row that reads the hidden state before each of the first `n` tokens of an action."""
    start = len(path.prompt) - 1
    return TokenRow((*path.prompt, *path.action[: n - 1]), None, tuple(range(start, start + n)))
