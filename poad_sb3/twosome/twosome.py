"""TWOSOME and GLAM: PPO with credit for whole actions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from poad_sb3.common.on_policy_algorithm import LLMOnPolicyAlgorithm


class TWOSOME(LLMOnPolicyAlgorithm):
    """PPO with one ratio, one advantage and one value for each action.

    The policy is a softmax over the admissible actions of their log-probabilities, each divided by its number of words
    (arXiv 2401.14151, ICLR 2024). Credit stops at the action, without a share for each of its tokens.

    Arguments are those of `LLMOnPolicyAlgorithm`, with `credit_level="action"` and `action_sampling="candidates"`
    (`"trie"` for the policy of `POAD` with credit for whole actions). `paper_mode`, which concerns token ratios, raises
    ValueError.
    """

    defaults: ClassVar[Mapping[str, Any]] = {"credit_level": "action", "action_sampling": "candidates"}


class GLAM(TWOSOME):
    """TWOSOME without normalisation: the model's own probability of each admissible action (arXiv 2302.02662).

    Arguments are those of `TWOSOME`, with `candidate_normalization="sum"`.
    """

    defaults: ClassVar[Mapping[str, Any]] = {"candidate_normalization": "sum"}
