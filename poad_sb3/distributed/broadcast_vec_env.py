"""`BroadcastVecEnv`: environments that rank 0 steps, with their results broadcast to all ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecEnv, unwrap_vec_normalize
from stable_baselines3.common.vec_env.base_vec_env import VecEnvIndices, VecEnvObs, VecEnvStepReturn

from poad_sb3.distributed.ranks import Ranks
from poad_sb3.errors import UnsupportedEnvError

T = TypeVar("T")


class BroadcastVecEnv(VecEnv):
    """The environments of rank 0, on every rank: all call the same methods, rank 0 steps, and all get its results.

    Args:
        venv: Environments; None on other ranks than 0.
        ranks: Ranks of the training.

    Raises:
        UnsupportedEnvError: If the environments have statistics of their own (`VecNormalize`).
    """

    def __init__(self, venv: VecEnv | None, ranks: Ranks) -> None:
        if venv is not None and unwrap_vec_normalize(venv) is not None:
            raise UnsupportedEnvError(
                "Expected environments without VecNormalize for several ranks: its statistics would be those of rank "
                "0 alone. Fix: leave it out; normalize_value=True scales the returns."
            )
        self.venv, self.ranks = venv, ranks
        described = self._lead("the environments", self._describe)
        n_envs, observation_space, action_space, self.metadata = described
        super().__init__(n_envs, observation_space, action_space)

    @property
    def own(self) -> VecEnv:
        """The environments, on rank 0."""
        assert self.venv is not None, "rank 0 has the environments"
        return self.venv

    def _describe(self) -> tuple[Any, ...]:
        env = self.own
        return env.num_envs, env.observation_space, env.action_space, env.metadata

    def _lead(self, name: str, run: Callable[[], T]) -> T:
        return self.ranks.on_rank_zero(name, run)

    # ------------------------------------------------------------------ steps

    def reset(self) -> VecEnvObs:
        """Reset all environments."""
        seeds, options = self._seeds, self._options
        self._reset_seeds()
        self._reset_options()
        return self._lead("a reset", partial(self._reset, seeds, options))

    def _reset(self, seeds: list[int | None], options: list[dict[str, Any]]) -> VecEnvObs:
        innermost = self.own.unwrapped
        if any(seed is not None for seed in seeds):  # else those that the user has given to them
            innermost._seeds = seeds
        if any(options):
            innermost._options = options
        return self.own.reset()

    def step_async(self, actions: NDArray[np.int64]) -> None:
        """Begin a step of all environments."""
        self._actions = actions

    def step_wait(self) -> VecEnvStepReturn:
        """Make the step of all environments."""
        return self._lead("a step", lambda: self.own.step(self._actions))

    def close(self) -> None:
        """Close the environments of rank 0."""
        if self.venv is not None:
            self.venv.close()

    # ------------------------------------------------------------------ attributes and methods of environments

    def has_attr(self, attr_name: str) -> bool:
        """See `VecEnv.has_attr`."""
        return self._lead(f"has_attr {attr_name}", lambda: self.own.has_attr(attr_name))

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        """See `VecEnv.get_attr`."""
        return self._lead(f"get_attr {attr_name}", lambda: self.own.get_attr(attr_name, indices))

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        """See `VecEnv.set_attr`."""
        self._lead(f"set_attr {attr_name}", lambda: self.own.set_attr(attr_name, value, indices))

    def env_method(self, method_name: str, *args: Any, indices: VecEnvIndices = None, **kwargs: Any) -> list[Any]:
        """See `VecEnv.env_method`."""
        return self._lead(
            f"env_method {method_name}", lambda: self.own.env_method(method_name, *args, indices=indices, **kwargs)
        )

    def env_is_wrapped(self, wrapper_class: type[gym.Wrapper], indices: VecEnvIndices = None) -> list[bool]:
        """See `VecEnv.env_is_wrapped`."""
        return self._lead("env_is_wrapped", lambda: self.own.env_is_wrapped(wrapper_class, indices))

    def get_images(self) -> Sequence[NDArray[np.uint8] | None]:
        """See `VecEnv.get_images`."""
        return self._lead("get_images", lambda: self.own.get_images())
