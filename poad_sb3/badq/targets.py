"""Targets of token Q-learning: BAD, and its soft form sBAD. Pure functions, no model.

With s' the prefix that token w leads to from prefix s, and V folded over the children of a prefix,

    Q(s, w) <- V(s')                             inside an action (gamma_token = 1)
    Q(s, w) <- r + gamma (1 - d) V(o')           at its last token; d = 1 if o' is terminal, not if a time limit cut

    BAD    V(s) = max_w Q_target(s, w)           or with double Q: Q_target(s, argmax_w Q(s, w))
    sBAD   V(s) = beta log sum_w pi_ref(w | s) exp(Q_target(s, w) / beta)

(paper, equations 13-14 and appendix B.3; double Q: arXiv 1509.06461). All edges are flat here, and a *group* is the set
of children of one prefix.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import StrEnum

import torch
from torch import Tensor

from poad_sb3.credit.losses import segment_log_softmax, segment_logsumexp


class SoftReference(StrEnum):
    """pi_ref of the soft backup."""

    BASE = "base"
    """The base model's distribution over the children of each trie node."""
    UNIFORM_ACTIONS = "uniform-actions"
    """Uniform over the admissible actions: children weigh as many actions as they begin (the form of SAC)."""


class Backup(ABC):
    """How a prefix's value and policy follow from the Q-values of its children."""

    @abstractmethod
    def values(self, online: Tensor, target: Tensor, log_reference: Tensor, groups: Tensor, n_groups: int) -> Tensor:
        """Compute V of each group.

        Args:
            online: Q of the present head, `[n]`.
            target: Q of the target head, `[n]`.
            log_reference: log pi_ref of each edge in its group, `[n]`.
            groups: Group of each edge, int64 `[n]`; every group in `range(n_groups)` has an edge.
            n_groups: Number of groups.

        Returns:
            Values, `[n_groups]`.
        """

    @abstractmethod
    def log_policy(self, q: Tensor, log_reference: Tensor, groups: Tensor, n_groups: int) -> Tensor:
        """Compute the log-probability of each edge in its group under the policy that belongs to Q, `[n]`."""


class HardBackup(Backup):
    """BAD: the best child.

    Args:
        double: Whether the present head chooses the child and the target head values it.
    """

    def __init__(self, *, double: bool) -> None:
        self._double = double

    def values(self, online: Tensor, target: Tensor, log_reference: Tensor, groups: Tensor, n_groups: int) -> Tensor:
        """See `Backup.values`."""
        if not self._double:
            return _segment_max(target, groups, n_groups)
        return _segment_max(target.masked_fill(~_is_best(online, groups, n_groups), -torch.inf), groups, n_groups)

    def log_policy(self, q: Tensor, log_reference: Tensor, groups: Tensor, n_groups: int) -> Tensor:
        """See `Backup.log_policy`; equally good children share."""
        best = _is_best(q, groups, n_groups)
        return segment_log_softmax(torch.zeros_like(q).masked_fill(~best, -torch.inf), groups, n_groups)


class SoftBackup(Backup):
    """sBAD: the soft maximum over children.

    Args:
        beta: Temperature, in units of reward.
    """

    def __init__(self, beta: float) -> None:
        self._beta = beta

    def values(self, online: Tensor, target: Tensor, log_reference: Tensor, groups: Tensor, n_groups: int) -> Tensor:
        """See `Backup.values`."""
        return self._beta * segment_logsumexp(log_reference + target / self._beta, groups, n_groups)

    def log_policy(self, q: Tensor, log_reference: Tensor, groups: Tensor, n_groups: int) -> Tensor:
        """See `Backup.log_policy`: pi(w | s) = pi_ref(w | s) exp((Q(s, w) - V(s)) / beta)."""
        return segment_log_softmax(log_reference + q / self._beta, groups, n_groups)


def token_targets(rewards: Tensor, discounts: Tensor, values: Tensor) -> Tensor:
    """Compute the targets of Q, `[n]`.

    Args:
        rewards: Rewards r at the last token of an action, 0 inside, `[n]`.
        discounts: Discounts gamma (1 - d) at the last token, 1 inside, `[n]`.
        values: Values V after each token, `[n]`; any finite number where the discount is 0.
    """
    return rewards + discounts * values


def _is_best(q: Tensor, groups: Tensor, n_groups: int) -> Tensor:
    return q == _segment_max(q, groups, n_groups)[groups]


def _segment_max(values: Tensor, groups: Tensor, n_groups: int) -> Tensor:
    return values.new_full((n_groups,), -torch.inf).scatter_reduce(0, groups, values, "amax")
