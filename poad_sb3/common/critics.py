"""Critics as strategies: networks on hidden states, the values that follow from their outputs, and what they learn.

`CRITICS` is the only place that knows them all; docs/algorithms/critics.md derives and compares them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from poad_sb3.credit.advantages import Floats
from poad_sb3.credit.estimators import GAE, Rollout
from poad_sb3.language_model.critic import ValueNetwork
from poad_sb3.settings.credit import CriticKind

__all__ = ["CRITICS", "Critic", "DuelingCritic", "StateCritic", "TokenCritic"]


class Critic(ValueNetwork, ABC):
    """Values of the prefixes of actions. The network that this class itself is values states, and perhaps more.

    Hidden states are laid out action by action, the one before its first token, `is_state`, followed by those before
    its other tokens, if the critic reads them.

    Args:
        width: Hidden size of the language model.
        hidden: Widths of the hidden layers of each network.
        whitening: Whether to whiten the hidden states.
        init: Initialisation of the last layers, as in `ValueNetwork`.
    """

    reads_prefixes: ClassVar[bool] = True
    """Whether the critic reads the hidden states inside an action."""
    n_networks: ClassVar[int] = 1
    """Number of networks."""

    def observe(self, features: Tensor, is_state: Tensor) -> None:
        """Add the features of a rollout to the statistics of the whitening, before they are valued."""
        self.observe_features(features)

    def observe_targets(self, targets: Tensor, is_state: Tensor) -> None:
        """Learn in units of these targets and those before; see `ValueNetwork.observe_returns`."""
        self.observe_returns(targets)

    def units(self, is_state: Tensor) -> Tensor:
        """Return the unit of each target: 1, or with `observe_targets` their deviation."""
        return self.scale.deviation.expand(len(is_state))

    def outputs(self, features: Tensor, is_state: Tensor) -> Tensor:
        """Compute the number that the networks learn for each hidden state, `[n]`."""
        numbers: Tensor = self(features)
        return numbers

    @staticmethod
    @abstractmethod
    def values(outputs: Tensor, is_state: Tensor) -> Tensor:
        """Compute the value of each prefix from the outputs, `[n]`."""

    @staticmethod
    @abstractmethod
    def targets(estimator: GAE, rollout: Rollout, advantages: Floats) -> Floats:
        """Compute the targets of the outputs, `[steps, envs, tokens]`, or `[steps, envs, 1]` of states alone.

        Args:
            estimator: Estimator of the advantages.
            rollout: Rollout with values.
            advantages: Advantages of the estimator.
        """

    @staticmethod
    def networks(has_target: Tensor, is_state: Tensor) -> dict[str, Tensor]:
        """Return the logged name of each network's explained variance, and the tokens that it learns from."""
        return {"explained_variance": has_target}


class TokenCritic(Critic):
    """One network for all prefixes, which learns the returns of the estimator (the paper's)."""

    @staticmethod
    def values(outputs: Tensor, is_state: Tensor) -> Tensor:
        """See `Critic.values`."""
        return outputs

    @staticmethod
    def targets(estimator: GAE, rollout: Rollout, advantages: Floats) -> Floats:
        """See `Critic.targets`."""
        return advantages + rollout.values


class StateCritic(Critic):
    """A network of states; every prefix of an action has the value of its state, so that no token is better than one.

    What credit there is inside an action comes from the decay of the trace, `gae_lambda_token`.
    """

    reads_prefixes = False

    def observe(self, features: Tensor, is_state: Tensor) -> None:
        """See `Critic.observe`."""
        self.observe_features(features[is_state])

    @staticmethod
    def values(outputs: Tensor, is_state: Tensor) -> Tensor:
        """See `Critic.values`."""
        return outputs[_states(is_state)]

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

    def observe_targets(self, targets: Tensor, is_state: Tensor) -> None:
        """See `Critic.observe_targets`."""
        self.observe_returns(targets[is_state])
        if not is_state.all():
            self.advantage.observe_returns(targets[~is_state])

    def units(self, is_state: Tensor) -> Tensor:
        """See `Critic.units`."""
        return torch.where(is_state, self.scale.deviation, self.advantage.scale.deviation)

    def outputs(self, features: Tensor, is_state: Tensor) -> Tensor:
        """See `Critic.outputs`."""
        numbers = features.new_zeros(len(features))
        numbers[is_state], numbers[~is_state] = self(features[is_state]), self.advantage(features[~is_state])
        return numbers

    @staticmethod
    def values(outputs: Tensor, is_state: Tensor) -> Tensor:
        """See `Critic.values`."""
        return outputs[_states(is_state)] + torch.where(is_state, 0.0, outputs)

    @staticmethod
    def targets(estimator: GAE, rollout: Rollout, advantages: Floats) -> Floats:
        """See `Critic.targets`."""
        targets = estimator.one_step_advantages(rollout)
        targets[..., 0] = estimator.state_returns(rollout)
        return targets

    @staticmethod
    def networks(has_target: Tensor, is_state: Tensor) -> dict[str, Tensor]:
        """See `Critic.networks`."""
        return {
            "explained_variance": has_target & is_state,
            "advantage_explained_variance": has_target & ~is_state,
        }


CRITICS: dict[CriticKind, type[Critic]] = {
    CriticKind.TOKEN: TokenCritic,
    CriticKind.STATE: StateCritic,
    CriticKind.DUELING: DuelingCritic,
}
"""Critics by kind."""


def _states(is_state: Tensor) -> Tensor:
    """Return the index of the state that each prefix begins at: the last one up to it, `[n]`."""
    states = is_state.nonzero()[:, 0]
    return states[is_state.cumsum(0) - 1]
