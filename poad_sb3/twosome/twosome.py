"""TWOSOME and GLAM: PPO on whole actions."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from stable_baselines3.common.vec_env import VecEnv

from poad_sb3.choosers import ActionSampling
from poad_sb3.on_policy import LLMOnPolicyAlgorithm
from poad_sb3.policies import LLMPolicy
from poad_sb3.rollouts import CreditLevel
from poad_sb3.rows import Normalization

__all__ = ["GLAM", "TWOSOME"]


class TWOSOME(LLMOnPolicyAlgorithm):
    """PPO with one ratio, one advantage and one value for each action.

    The policy is a softmax over the admissible actions of their log-probabilities, each divided by its number of words
    (arXiv 2401.14151, ICLR 2024). Credit stops at the action: nothing says which token earned the reward.

    Args:
        policy: As in `LLMOnPolicyAlgorithm`.
        env: As in `LLMOnPolicyAlgorithm`; its action space must list admissible actions.
        action_sampling: `"candidates"`, or `"trie"` for the policy of `POAD` with credit for whole actions.
        candidate_normalization: `"word"`, `"token"` or `"sum"`.
        **arguments: Others of `LLMOnPolicyAlgorithm`.

    Raises:
        ValueError: For free sampling, or `paper_mode`, which is about token ratios.
    """

    def __init__(
        self,
        policy: str | type[LLMPolicy],
        env: gym.Env[Any, Any] | VecEnv | str | None,
        *,
        action_sampling: ActionSampling | str = ActionSampling.CANDIDATES,
        candidate_normalization: Normalization | str = Normalization.WORD,
        **arguments: Any,  # noqa: ANN401 - of the base class
    ) -> None:
        super().__init__(
            policy,
            env,
            action_sampling=action_sampling,
            candidate_normalization=candidate_normalization,
            **{"credit_level": CreditLevel.ACTION, **arguments},
        )


class GLAM(TWOSOME):
    """TWOSOME without normalisation: the model's own probability of each admissible action (arXiv 2302.02662).

    Args:
        policy: As in `LLMOnPolicyAlgorithm`.
        env: As in `TWOSOME`.
        **arguments: Others of `TWOSOME`.
    """

    def __init__(
        self,
        policy: str | type[LLMPolicy],
        env: gym.Env[Any, Any] | VecEnv | str | None,
        **arguments: Any,  # noqa: ANN401 - of the base class
    ) -> None:
        super().__init__(policy, env, **{"candidate_normalization": Normalization.SUM, **arguments})
