"""POAD: Policy Optimization with Action Decomposition."""

from __future__ import annotations

from poad_sb3.common.on_policy_algorithm import LLMOnPolicyAlgorithm


class POAD(LLMOnPolicyAlgorithm):
    """PPO over tokens with the Bellman backup with Action Decomposition (BAD).

    Inside an action the backup does not discount (`gamma_token = 1`), so every token gets its own credit and the
    problem stays the original one: the value of the first token is the action-level value. Paper: "Reinforcing Language
    Agents via Policy Optimization with Action Decomposition", arXiv 2405.15821 (NeurIPS 2024), equations 9-14.

    Arguments and defaults are those of `LLMOnPolicyAlgorithm`.
    """
