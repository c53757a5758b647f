"""`LanguageModelAlgorithm`: what every algorithm around a language model shares, on-policy or not."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.vec_env.base_vec_env import VecEnvStepReturn

from poad_sb3.arguments import nearest
from poad_sb3.persistence import ResumableAlgorithm
from poad_sb3.schedules import schedule_of

__all__ = ["LanguageModelAlgorithm"]


class LanguageModelAlgorithm(ResumableAlgorithm):
    """Makes its policy, seeds it, steps the environments, and predicts."""

    def _get_policy_from_name(self, policy_name: str) -> type[BasePolicy]:
        if policy_name not in self.policy_aliases:
            raise self._unknown_policy(policy_name)
        return self.policy_aliases[policy_name]

    def _unknown_policy(self, policy: object) -> ValueError:
        own = next(iter(self.policy_aliases))
        return ValueError(
            f"Expected policy to be one of {sorted(self.policy_aliases)} or a subclass of {own}; "
            f'got {policy!r}. Fix: {type(self).__name__}("{own}", env).'
        )

    def _make_policy(self, **arguments: Any) -> None:  # noqa: ANN401 - of the policy class
        """Make the policy of `policy_kwargs` and of arguments that the algorithm gives it."""
        given = self.policy_class
        if not isinstance(given, type) or not issubclass(given, next(iter(self.policy_aliases.values()))):
            raise self._unknown_policy(given)
        known = set(inspect.signature(self.policy_class.__init__).parameters) - {"self", *arguments}
        unknown = sorted(set(self.policy_kwargs) - known)
        if unknown:
            own = known - {"observation_space", "action_space", "lr_schedule", "use_sde", "device"}
            raise ValueError(
                f"Expected policy_kwargs among {sorted(own)}; got {unknown[0]!r}. {nearest(unknown[0], own)}"
            )
        spaces = (self.observation_space, self.action_space)
        arguments["device"] = self.device
        policy = self.policy_class(*spaces, self.lr_schedule, **arguments, **self.policy_kwargs)
        self.policy = policy.to(self.device)  # type: ignore[assignment]
        self._shuffle_rng = np.random.default_rng(int(torch.randint(2**62, ())))
        self._check_fingerprint(self.base_fingerprint)
        self.base_fingerprint = self.policy.lm.fingerprint

    def _setup_lr_schedule(self) -> None:
        self.lr_schedule = schedule_of("learning_rate", self.learning_rate)

    def set_random_seed(self, seed: int | None = None) -> None:
        """Seed the process's generators, the spaces, the environments, and the generators of acting and shuffling."""
        super().set_random_seed(seed)
        if seed is not None and hasattr(self, "policy"):
            self.policy.seed(seed)
            self._shuffle_rng = np.random.default_rng([seed, 2])

    def _step_envs(self, step: Callable[[], VecEnvStepReturn]) -> VecEnvStepReturn:
        """One step of every environment.

        Args:
            step: Does it.

        Raises:
            FloatingPointError: If a reward is not finite.
            RuntimeError: If the process of an environment has ended.
        """
        self._last_obs, self._envs_are_sound = None, False  # until the step is known to be whole
        observations, rewards, dones, infos = step()
        self._last_obs, self._last_episode_starts, self._envs_are_sound = observations, dones, True  # type: ignore[assignment]
        if not np.isfinite(rewards).all():
            raise FloatingPointError(
                f"Expected finite rewards; got {rewards}. Fix: mend the environment; nothing was learned from it."
            )
        return observations, rewards, dones, infos

    def predict(
        self,
        observation: Any,  # noqa: ANN401 - checked by the policy
        state: tuple[NDArray[Any], ...] | None = None,
        episode_start: NDArray[np.bool_] | None = None,
        deterministic: bool = False,
        admissible_actions: Any = None,  # noqa: ANN401 - as in LLMPolicy.predict
    ) -> tuple[NDArray[np.int64], tuple[NDArray[Any], ...] | None]:
        """Choose environment actions, without exploring; see `LLMPolicy.predict`."""
        return self.policy.predict(observation, state, episode_start, deterministic, admissible_actions)
