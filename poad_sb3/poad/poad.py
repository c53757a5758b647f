"""POAD: Policy Optimization with Action Decomposition."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import torch
from stable_baselines3.common.type_aliases import MaybeCallback, Schedule
from stable_baselines3.common.vec_env import VecEnv

from poad_sb3.on_policy import LLMOnPolicyAlgorithm
from poad_sb3.policies import LLMPolicy

__all__ = ["POAD"]


class POAD(LLMOnPolicyAlgorithm):
    """PPO over tokens with the Bellman backup with Action Decomposition (BAD).

    Inside an action the backup does not discount (`gamma_token = 1`), so every token gets its own credit and the
    problem stays the original one: the value of the first token is the action-level value. Paper: "Reinforcing Language
    Agents via Policy Optimization with Action Decomposition", arXiv 2405.15821 (NeurIPS 2024), equations 9-14.

    The defaults suit the embedded pocket model. A larger model wants a smaller `learning_rate` (start at 1e-4).
    `gamma` is per action; 0.95 keeps delayed rewards from paying (see docs, "reward farming").

    Args:
        policy: `"LLMPolicy"` or a subclass of it.
        env: A language environment, the id of one, or a vector of them.
        learning_rate: Rate of the LoRA adapter's AdamW (eps 1e-5, no weight decay), or a schedule of the progress
            remaining (1 to 0).
        critic_learning_rate: Rate of the critic's Adam (eps 1e-5), or a schedule.
        n_steps: Steps of each environment in a rollout.
        batch_size: Actions in a minibatch.
        n_epochs: Passes of the policy over a rollout; `target_kl` may end them early.
        n_critic_epochs: Passes of the critic over a rollout, before the policy's.
        gamma: Discount between actions.
        gae_lambda: GAE lambda between actions.
        gamma_token: Discount inside an action; 1 is BAD.
        gae_lambda_token: GAE lambda inside an action.
        clip_range: Clip of the token ratio.
        clip_range_vf: Clip of the value change; None for none.
        ent_coef: Weight of the entropy at decisions.
        vf_coef: Weight of the value loss.
        max_grad_norm: Clip of the gradient norms, of adapter and critic separately.
        target_kl: The update stops before a step on a minibatch whose KL estimate exceeds this; None for never.
        normalize_advantage: Normalise advantages over the decisions of a minibatch.
        min_advantage_std: Smallest standard deviation that they are divided by, in units of reward: where rewards are
            rare, the errors of the critic shall not be blown up to the size of one.
        stats_window_size: Episodes in the logged means.
        tensorboard_log: Folder for TensorBoard.
        policy_kwargs: Arguments of the policy: `model`, `revision`, `lora`, `critic_arch`, `max_tokens_per_forward`.
        verbose: 0 silent, 1 information.
        seed: Seed of everything random.
        device: Torch device, or `"auto"`.
        _init_setup_model: As in SB3.
    """

    def __init__(
        self,
        policy: str | type[LLMPolicy],
        env: gym.Env[Any, Any] | VecEnv | str | None,
        learning_rate: float | Schedule = 2e-3,
        critic_learning_rate: float | Schedule = 1e-3,
        n_steps: int = 128,
        batch_size: int = 64,
        n_epochs: int = 5,
        n_critic_epochs: int = 5,
        gamma: float = 0.95,
        gae_lambda: float = 0.95,
        gamma_token: float = 1.0,
        gae_lambda_token: float = 1.0,
        clip_range: float = 0.2,
        clip_range_vf: float | None = 0.2,
        ent_coef: float = 0.02,
        vf_coef: float = 0.5,
        max_grad_norm: float = 0.5,
        target_kl: float | None = 0.02,
        normalize_advantage: bool = True,
        min_advantage_std: float = 0.01,
        stats_window_size: int = 100,
        tensorboard_log: str | None = None,
        policy_kwargs: dict[str, Any] | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: torch.device | str = "auto",
        _init_setup_model: bool = True,
    ) -> None:
        arguments = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        super().__init__(**arguments)

    def learn(
        self,
        total_timesteps: int,
        callback: MaybeCallback = None,
        log_interval: int = 1,
        tb_log_name: str = "POAD",
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> POAD:
        """Train for at least `total_timesteps` environment steps (whole rollouts); see SB3."""
        super().learn(total_timesteps, callback, log_interval, tb_log_name, reset_num_timesteps, progress_bar)
        return self
