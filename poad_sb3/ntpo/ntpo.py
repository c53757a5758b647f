"""NTPO: naive token-level policy optimization."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from poad_sb3.common.on_policy_algorithm import LLMOnPolicyAlgorithm


class NTPO(LLMOnPolicyAlgorithm):
    """PPO over tokens that discounts from token to token as from action to action.

    With `gamma_token = gamma` an action of n tokens scales its reward and all that follows by gamma^(n-1): where that
    is positive short actions are favoured, where it is negative long ones. It is the baseline that POAD (arXiv
    2405.15821, section 4.2) is compared with.

    Arguments are those of `LLMOnPolicyAlgorithm`; `gamma_token` is None by default (equal to `gamma`).
    """

    defaults: ClassVar[Mapping[str, Any]] = {"gamma_token": None}
