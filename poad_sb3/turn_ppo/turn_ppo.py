"""Turn-level PPO: ordinary PPO whose action is a whole sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from poad_sb3.common.on_policy_algorithm import LLMOnPolicyAlgorithm


class TurnPPO(LLMOnPolicyAlgorithm):
    """Turn-level PPO (turn-PPO, arXiv 2512.17008): one value, one advantage and one ratio for each action.

    The estimator of TWOSOME with the token-by-token policy of POAD: along the trie, or free text. The ratio of an
    action is the product of its tokens' (`ratio="action_mean"` for the geometric mean of ST-PPO, arXiv 2511.20718).

    Arguments are those of `LLMOnPolicyAlgorithm`, with the defaults below.
    """

    defaults: ClassVar[Mapping[str, Any]] = {"credit_level": "action", "gamma": 0.99, "gae_lambda": 0.9}
