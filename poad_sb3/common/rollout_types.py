"""Records of a rollout: sampled actions, their values, and minibatches of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from poad_sb3.distributions.base import TokenPath


class TokenValues(NamedTuple):
    """Features and values of the tokens of some paths; equal paths share the features.

    Attributes:
        features: Frozen-trunk features that the critic reads, those of a path in a row, `[F, hidden]`.
        is_state: Whether the features are those before a first token, bool `[F]`.
        outputs: Outputs of the critic's networks for the features, `[F]`.
        starts: Row of the first features of each path, `[n_paths]`.
        values: Value before each token of each path, `[n]` each.
    """

    features: Tensor
    is_state: Tensor
    outputs: Tensor
    starts: NDArray[np.int64]
    values: list[NDArray[np.float32]]


class TokenRolloutSamples(NamedTuple):
    """A minibatch of actions, their tokens laid end to end (N tokens in all, no padding).

    Attributes:
        paths: Paths of the actions, `n` of them.
        is_decision: Whether the token was a choice, bool `[N]`.
        has_target: Whether the critic learns at the token: at all tokens, at the first of each action, at the first and
            at the last (marginal: of the whole action), or at none; bool `[N]`.
        old_log_prob: Log-probability at sampling, `[N]`.
        old_outputs: Outputs of the critic's networks at sampling, `[N]`, 0 where there is no target.
        targets: Targets of the outputs, `[N]`, 0 where there is none.
        advantages: Token advantages, `[N]`.
        episodes: Number of each action's episode, int64 `[n]`.
        feature_of: Row of `features` for each token, int64 `[N]`; that of the action's first token if it has none of
            its own.
        features: Distinct frozen-trunk features, `[F, hidden]`; none without a critic.
        is_state: Whether the features are those before a first token, bool `[F]`.
    """

    paths: list[TokenPath]
    is_decision: Tensor
    has_target: Tensor
    old_log_prob: Tensor
    old_outputs: Tensor
    advantages: Tensor
    targets: Tensor
    episodes: Tensor
    feature_of: Tensor
    features: Tensor
    is_state: Tensor


class RolloutAction(NamedTuple):
    """One action of a full rollout, and the training data of it.

    Attributes:
        step: Number of the step in the rollout, from 0.
        env: Index of the environment.
        path: Prompt and action tokens.
        reward: Reward of the step.
        log_probs: Log-probability of each action token under the distribution sampled from, `[n]`, 0 where forced.
        values: Value before each token, `[n]`; with credit for whole actions before the action, `[1]`; `[0]` without
            critic.
        advantages: Advantage of each token, `[n]`.
        returns: Estimate of the return from each token on, as many as values.
    """

    step: int
    env: int
    path: TokenPath
    reward: float
    log_probs: NDArray[np.float32]
    values: NDArray[np.float32]
    advantages: NDArray[np.float32]
    returns: NDArray[np.float32]
