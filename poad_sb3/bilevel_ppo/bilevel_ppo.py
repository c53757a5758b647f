"""PPO with bi-level GAE: one recursion over actions, and one inside each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from poad_sb3.common.on_policy_algorithm import LLMOnPolicyAlgorithm


class BiLevelPPO(LLMOnPolicyAlgorithm):
    """PPO with bi-level GAE (VAGEN, arXiv 2510.16907), anchored at the first token of an action.

    It differs from BAD in one place: the advantage that flows back from the next action does not pass through its
    tokens, so that `gae_lambda` counts actions, however long. Equal to POAD at `gae_lambda_token=1`.
    `bootstrap="action"` anchors at the last token, as published, which is noisier.

    Arguments are those of `LLMOnPolicyAlgorithm`, with the defaults below.
    """

    defaults: ClassVar[Mapping[str, Any]] = {"estimator": "bilevel_gae", "gae_lambda_token": 0.95}
