"""REINFORCE++ and ReBN: returns to go, normalised over the batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from poad_sb3.common.on_policy_algorithm import LLMOnPolicyAlgorithm


class REINFORCEPlusPlus(LLMOnPolicyAlgorithm):
    """REINFORCE++ (arXiv 2501.03262): no critic and no group; token returns, whitened over the batch.

    `gamma` discounts once a token (`gamma_token=None`), so that below 1 it is NTPO without a critic; the default is 1.

    Arguments are those of `LLMOnPolicyAlgorithm`, with the defaults below.
    """

    defaults: ClassVar[Mapping[str, Any]] = {
        "estimator": "return_to_go",
        "gamma": 1.0,
        "gamma_token": None,
        "baseline": "batch",
        "advantage_scale": "batch",
        "normalize_advantage": False,
    }


class ReBN(LLMOnPolicyAlgorithm):
    """REINFORCE with return batch normalization (GEM, arXiv 2510.01051): no critic and no group.

    The return to go of each action, discounted by `gamma` once an action, minus the mean and divided by the deviation
    of those of all actions of the batch; one epoch.

    Arguments are those of `LLMOnPolicyAlgorithm`, with the defaults below.
    """

    defaults: ClassVar[Mapping[str, Any]] = {
        "estimator": "return_to_go",
        "credit_level": "action",
        "ratio": "token",
        "gamma": 0.9,
        "baseline": "batch",
        "advantage_scale": "batch",
        "n_epochs": 1,
        "normalize_advantage": False,
    }
