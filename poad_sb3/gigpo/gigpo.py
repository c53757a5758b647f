"""GiGPO: groups of episodes, and within them groups of visits to one state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from poad_sb3.common.on_policy_algorithm import LLMOnPolicyAlgorithm


class GiGPO(LLMOnPolicyAlgorithm):
    """Group-in-Group Policy Optimization (arXiv 2505.10978): no critic, one advantage for each action.

    A = R - mean of the group + `omega` (G - mean over the group's visits to the same state), where R is the
    undiscounted return of the episode and G the discounted return to go. A state is the text of the observation, or
    `state_key` of it. `advantage_scale="cell"` divides both parts by deviations, as first published;
    `leave_one_out=True` corrects the baselines, which hold the own return as published.

    Arguments are those of `LLMOnPolicyAlgorithm`, with the defaults below.
    """

    defaults: ClassVar[Mapping[str, Any]] = {
        "estimator": "gigpo",
        "baseline": "group",
        "group_size": 8,
        "gamma": 0.95,
        "ratio": "token",
        "normalize_advantage": False,
    }
