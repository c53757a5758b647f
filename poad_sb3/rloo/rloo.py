"""RLOO: REINFORCE with the mean return of the other episodes of a group as baseline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from poad_sb3.common.on_policy_algorithm import LLMOnPolicyAlgorithm


class RLOO(LLMOnPolicyAlgorithm):
    """REINFORCE Leave-One-Out (arXiv 2402.14740): no critic, one advantage for a whole episode.

    It is unbiased where a rollout is one minibatch; in several, long episodes weigh more (docs/algorithms/rloo.md).

    A = R - mean of the other `group_size` - 1 episodes with the same reset seed; R is the undiscounted return. As in
    TRL, the ratio is that of the whole episode, the product over its tokens. It leaves the clip range soon where
    episodes are long: see `train/clip_fraction`, and `ratio="token"`, as in verl.

    Arguments are those of `LLMOnPolicyAlgorithm`, with the defaults below.
    """

    defaults: ClassVar[Mapping[str, Any]] = {
        "estimator": "episode_return",
        "baseline": "group",
        "leave_one_out": True,
        "group_size": 8,
        "ratio": "sequence_product",
        "normalize_advantage": False,
    }
