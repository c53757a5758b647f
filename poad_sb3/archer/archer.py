"""ARCHER, as the POAD paper ablates it."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from stable_baselines3.common.vec_env import VecEnv

from poad_sb3.ntpo import NTPO
from poad_sb3.policies import LLMPolicy
from poad_sb3.rollouts import Bootstrap

__all__ = ["ARCHER"]


class ARCHER(NTPO):
    """Discounts inside an action, and bootstraps from an utterance-level value.

    As NTPO, but the last token of an action bootstraps from the value before the *last token* of the next action,
    V[t+1, n_{t+1}]. At a truncation and at the end of a rollout there is no next action; it is the value of the
    observation there. This is the ablation of the POAD paper (arXiv 2405.15821), not the off-policy algorithm of the
    ArCHer paper.

    Args:
        policy: As in `LLMOnPolicyAlgorithm`.
        env: As in `LLMOnPolicyAlgorithm`.
        **arguments: Of `NTPO`.
    """

    def __init__(
        self,
        policy: str | type[LLMPolicy],
        env: gym.Env[Any, Any] | VecEnv | str | None,
        **arguments: Any,  # noqa: ANN401 - of the base class
    ) -> None:
        super().__init__(policy, env, **{"bootstrap": Bootstrap.ACTION, **arguments})
