"""One step of the Q head on a minibatch of transitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from poad_sb3.badq.policy import KnownQuestion, QHeads
from poad_sb3.badq.replay import Transition
from poad_sb3.badq.targets import Backup, token_targets
from poad_sb3.prompts import Question


class TokenBatch(NamedTuple):
    """The tokens that were chosen in some transitions (N), and the edges (E) that can follow them.

    Attributes:
        features: Features of the chosen tokens, `[N, hidden]`.
        rewards: Rewards, at the last choice of an action, else 0, `[N]`.
        discounts: Discounts: gamma at the last choice (0 if the task ended), else 1, `[N]`.
        is_open: Whether any token can follow, bool `[N]`.
        next_features: Features of the edges that follow, `[E, hidden]`.
        next_log_reference: log pi_ref of the edges that follow, `[E]`.
        groups: Index of the open token that each of these edges follows, int64 `[E]`.
    """

    features: Tensor
    rewards: Tensor
    discounts: Tensor
    is_open: Tensor
    next_features: Tensor
    next_log_reference: Tensor
    groups: Tensor


def gather(
    features_of: Callable[[Question], KnownQuestion], transitions: Sequence[Transition], gamma: float
) -> TokenBatch:
    """Gather the features, rewards and discounts of a minibatch.

    Args:
        features_of: Function from a question to its tree and features.
        transitions: Transitions of the minibatch.
        gamma: Discount between actions.
    """
    features, rewards, discounts, is_open = [], [], [], []
    next_features, next_log_reference, sizes = [], [], []
    for transition in transitions:
        question_tree = features_of(transition.question)
        path = question_tree.tree.paths[transition.action]
        features.append(question_tree.features[list(path)])
        inside = len(path) - 1
        goes_on = transition.following is not None
        rewards += [*[0.0] * inside, transition.reward]
        discounts += [*[1.0] * inside, gamma**transition.steps if goes_on else 0.0]
        is_open += [*[True] * inside, goes_on]
        followers = [(question_tree, question_tree.tree.following[edge]) for edge in path[:-1]]
        if transition.following is not None:
            followers.append((features_of(transition.following), 0))
        for question, node in followers:
            edges = question.tree.edges_of(node)
            next_features.append(question.features[edges.start : edges.stop])
            next_log_reference.append(question.log_reference[edges.start : edges.stop])
        sizes += [len(question.tree.children[node]) for question, node in followers]
    chosen = torch.cat(features)
    return TokenBatch(
        chosen,
        chosen.new_tensor(rewards),
        chosen.new_tensor(discounts),
        torch.tensor(is_open, device=chosen.device),
        torch.cat(next_features) if sizes else chosen[:0],
        torch.cat(next_log_reference) if sizes else chosen.new_empty(0),
        torch.from_numpy(np.repeat(np.arange(len(sizes)), sizes)).to(chosen.device),
    )


@torch.no_grad()
def batch_targets(heads: QHeads, batch: TokenBatch, backup: Backup) -> Tensor:
    """Compute the targets of the chosen tokens, `[N]`."""
    values = torch.zeros_like(batch.rewards)
    n_open = int(batch.is_open.sum())
    if n_open:
        online, target = heads.online(batch.next_features), heads.target(batch.next_features)
        values[batch.is_open] = backup.values(online, target, batch.next_log_reference, batch.groups, n_open)
    return token_targets(batch.rewards, batch.discounts, values)


def update_head(
    heads: QHeads, optimizer: torch.optim.Optimizer, batch: TokenBatch, backup: Backup, max_grad_norm: float
) -> dict[str, float]:
    """Take one gradient step on the Huber loss, the mean over chosen tokens.

    Returns:
        Values to log.

    Raises:
        FloatingPointError: If the gradient is not finite; no step was taken.
    """
    targets = batch_targets(heads, batch, backup)
    q = heads.online(batch.features)
    loss = torch.nn.functional.smooth_l1_loss(q, targets)
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    norm = float(torch.nn.utils.clip_grad_norm_(heads.online.parameters(), max_grad_norm))
    if not np.isfinite(norm):
        optimizer.zero_grad()
        raise FloatingPointError(
            f"Expected a finite gradient of the Q head; got norm {norm}. No step was taken. "
            "Fix: lower the learning rate and continue from a checkpoint."
        )
    optimizer.step()
    error = (q.detach() - targets).abs().mean()
    return {
        "loss": float(loss.detach()),
        "td_error": float(error),
        "q_mean": float(q.detach().mean()),
        "grad_norm": norm,
    }
