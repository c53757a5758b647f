"""NTPO: naive token-level policy optimisation."""

from __future__ import annotations

from typing import Any, TypeVar

import gymnasium as gym
from stable_baselines3.common.vec_env import VecEnv

from poad_sb3.checkpoints import Target
from poad_sb3.on_policy import LLMOnPolicyAlgorithm
from poad_sb3.policies import LLMPolicy

__all__ = ["NTPO"]

Self = TypeVar("Self", bound="NTPO")


class NTPO(LLMOnPolicyAlgorithm):
    """PPO over tokens that discounts from token to token as from action to action.

    With `gamma_token = gamma` an action of n tokens scales its reward and all that follows by gamma^(n-1): where that
    is positive short actions are favoured, where it is negative long ones. It is the baseline that POAD (arXiv
    2405.15821, section 4.2) is compared with.

    Args:
        policy: As in `LLMOnPolicyAlgorithm`.
        env: As in `LLMOnPolicyAlgorithm`.
        gamma: Discount between actions.
        gamma_token: Discount inside an action; None for `gamma`.
        **arguments: Others of `LLMOnPolicyAlgorithm`.
    """

    def __init__(
        self,
        policy: str | type[LLMPolicy],
        env: gym.Env[Any, Any] | VecEnv | str | None,
        *,
        gamma: float = 0.95,
        gamma_token: float | None = None,
        **arguments: Any,  # noqa: ANN401 - of the base class
    ) -> None:
        inside = gamma if gamma_token is None else gamma_token
        super().__init__(policy, env, gamma=gamma, gamma_token=inside, **arguments)

    @classmethod
    def load(cls: type[Self], path: Target, *args: Any, **kwargs: Any) -> Self:  # noqa: ANN401 - of the base class
        """As in the base class; with another `gamma`, the discount inside actions follows it."""
        if "gamma" in kwargs:
            kwargs.setdefault("gamma_token", kwargs["gamma"])
        return super().load(path, *args, **kwargs)
