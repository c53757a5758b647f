"""GRPO and Dr. GRPO: the returns of episodes that begin alike, compared with each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from poad_sb3.common.on_policy_algorithm import LLMOnPolicyAlgorithm


class GRPO(LLMOnPolicyAlgorithm):
    """Group Relative Policy Optimization (arXiv 2402.03300): no critic, one advantage for a whole episode.

    A = (R - mean) / (deviation + 1e-6) over the `group_size` episodes with one reset seed; R is the undiscounted
    return. The division weights starts by the rarity of success, and the mean over the tokens of each episode in the
    loss favours short ones (docs/algorithms/grpo.md). `advantage_scale="none"` and `loss_reduction="constant"` remove
    both.

    Arguments are those of `LLMOnPolicyAlgorithm`, with the defaults below. GSPO is `ratio="sequence"`.
    """

    defaults: ClassVar[Mapping[str, Any]] = {
        "estimator": "episode_return",
        "baseline": "group",
        "advantage_scale": "cell",
        "group_size": 8,
        "ratio": "token",
        "loss_reduction": "sequence_mean",
        "normalize_advantage": False,
    }


class DrGRPO(GRPO):
    """GRPO done right (arXiv 2503.20783): without the division by the deviation and without a mean over lengths.

    Its expected gradient is (N - 1) / N times that of the undiscounted return, with N = `group_size`.

    Arguments are those of `GRPO`, with the defaults below.
    """

    defaults: ClassVar[Mapping[str, Any]] = {"advantage_scale": "none", "loss_reduction": "constant"}
