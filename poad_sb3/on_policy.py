"""`LLMOnPolicyAlgorithm`: rollouts, updates and checkpoints of every on-policy method of this package."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import fields
from functools import partial
from typing import Any, ClassVar, TypeVar

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.type_aliases import MaybeCallback, Schedule
from stable_baselines3.common.vec_env import VecEnv

from poad_sb3 import presets
from poad_sb3.agreement import RATIO_TOLERANCE, ROUNDED_TOLERANCE
from poad_sb3.buffers import TokenRolloutBuffer
from poad_sb3.checks import check_arguments
from poad_sb3.choosers import AUTO, ActionSampling, member
from poad_sb3.errors import UnsupportedEnvError
from poad_sb3.observations import ActionKind, action_kind
from poad_sb3.policies import LLMPolicy
from poad_sb3.rollout_saves import ResumableRollouts
from poad_sb3.rollouts import Bootstrap, CreditLevel
from poad_sb3.rows import Normalization
from poad_sb3.schedules import schedule_of, warn_if_nothing_is_learned
from poad_sb3.stopwatch import Stopwatch
from poad_sb3.turns import Turns
from poad_sb3.update import UpdateSettings, update

__all__ = ["LLMOnPolicyAlgorithm"]

Self = TypeVar("Self", bound="LLMOnPolicyAlgorithm")

_ACTING = (
    "action_sampling",
    "candidate_normalization",
    "paper_mode",
    "max_new_tokens",
    "temperature",
    "top_k",
    "top_p",
    "stop",
)
"""Arguments that the policy takes too."""


class LLMOnPolicyAlgorithm(ResumableRollouts):
    """PPO on the tokens of a language model's actions, in SB3's manner.

    The methods of this package are this class with different credit and ways to act. The defaults suit the embedded
    pocket model; a larger model wants a smaller `learning_rate` (start at 1e-4). `gamma` is per action; 0.95 keeps
    delayed rewards from paying (see docs, "reward farming").

    Args:
        policy: `"LLMPolicy"` or a subclass of it.
        env: A language environment, the id of one, or a vector of them.
        learning_rate: Rate of the LoRA adapter's AdamW (eps 1e-5, no weight decay); `"lin_2e-3"` falls from that to 0
            during training; or a function of the progress remaining (1 to 0).
        critic_learning_rate: Rate of the critic's Adam (eps 1e-5), likewise.
        n_steps: Steps of each environment in a rollout.
        batch_size: Actions in a minibatch.
        n_epochs: Passes of the policy over a rollout; `target_kl` may end them early.
        n_critic_epochs: Passes of the critic over a rollout, before the policy's.
        gamma: Discount between actions.
        gae_lambda: GAE lambda between actions.
        gamma_token: Discount inside an action; 1 is BAD.
        gae_lambda_token: GAE lambda inside an action; below 1, the first of many tokens hears little of the reward.
        credit_level: `"token"`: values, advantages and ratios of tokens; `"action"`: of whole actions.
        bootstrap: What the last token of an action bootstraps from: `"state"`, the value of the next observation, or
            `"action"`, that before the last token of the next action.
        action_sampling: `"trie"`, `"candidates"` or `"free"`, see `ActionSampling`; `"auto"` takes the trie where the
            environment lists admissible actions, and `"free"` where any text is an action.
        candidate_normalization: What `"candidates"` divides the log-probability of an action by: `"sum"` (1),
            `"token"` or `"word"` (their number).
        paper_mode: Sample from candidates but optimise full-vocabulary token probabilities, as the published code
            does. That is off-policy, and here to reproduce it.
        max_new_tokens: Of a free action, end token included.
        temperature: Of free sampling: divides the logits.
        top_k: Free sampling among the k most probable tokens; 0 for all.
        top_p: Of these, the fewest that have at least this probability together; 1 for all.
        stop: Texts that end a free action, beside the model's end tokens.
        smdp_discount: Discount by `gamma ** duration`, with the duration of an action in `info["primitive_steps"]`.
        normalize_value: Let the critic learn returns of zero mean and unit variance, by running statistics.
        kl_coef: Weight of the KL divergence from the frozen base model at decisions.
        clip_range: Clip of the token ratio; `"lin_0.2"` or a function, as for `learning_rate`.
        clip_range_vf: Clip of the value change, likewise; None for none.
        ent_coef: Weight of the entropy at decisions.
        vf_coef: Weight of the value loss.
        max_grad_norm: Clip of the gradient norms, of adapter and critic separately.
        target_kl: The update stops before a step on a minibatch whose KL estimate exceeds this; None for never.
        normalize_advantage: Normalise advantages over the decisions of a minibatch.
        min_advantage_std: Smallest standard deviation that they are divided by, in units of reward: where rewards are
            rare, the errors of the critic shall not be blown up to the size of one.
        stats_window_size: Episodes in the logged means.
        tensorboard_log: Folder for TensorBoard.
        policy_kwargs: Arguments of the policy, see `LLMPolicy`: `model`, `revision`, `lora`, `dtype`, `quantization`,
            `attn_implementation`, `gradient_checkpointing`, `critic_trunk`, `prompt`, `critic_arch`,
            `max_tokens_per_forward`, `check`. Without a `model`, or with `model="auto"`, it is the pocket coder for an
            environment whose actions are code, else the pocket model.
        verbose: 0 silent, 1 information.
        seed: Seed of everything random.
        device: Torch device, or `"auto"`.
        _init_setup_model: As in SB3.

    Raises:
        UnsupportedEnvError: If the environment has no text observations or no token-sequence actions, or its actions
            cannot be sampled in the way that is asked for.
        ValueError: For an unknown policy, or numbers out of range.
    """

    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = {"LLMPolicy": LLMPolicy}

    def __init__(
        self,
        policy: str | type[LLMPolicy],
        env: gym.Env[Any, Any] | VecEnv | str | None,
        learning_rate: float | str | Schedule = 2e-3,
        critic_learning_rate: float | str | Schedule = 1e-3,
        n_steps: int = 128,
        batch_size: int = 64,
        n_epochs: int = 5,
        n_critic_epochs: int = 5,
        gamma: float = 0.95,
        gae_lambda: float = 0.95,
        gamma_token: float = 1.0,
        gae_lambda_token: float = 1.0,
        clip_range: float | str | Schedule = 0.2,
        clip_range_vf: float | str | Schedule | None = 0.2,
        ent_coef: float = 0.02,
        vf_coef: float = 0.5,
        max_grad_norm: float = 0.5,
        target_kl: float | None = 0.02,
        normalize_advantage: bool = True,
        min_advantage_std: float = 0.01,
        *,
        credit_level: CreditLevel | str = CreditLevel.TOKEN,
        bootstrap: Bootstrap | str = Bootstrap.STATE,
        action_sampling: ActionSampling | str = AUTO,
        candidate_normalization: Normalization | str = Normalization.WORD,
        paper_mode: bool = False,
        max_new_tokens: int = 128,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        stop: Sequence[str] = (),
        smdp_discount: bool = False,
        normalize_value: bool = False,
        kl_coef: float = 0.0,
        stats_window_size: int = 100,
        tensorboard_log: str | None = None,
        policy_kwargs: dict[str, Any] | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: torch.device | str = "auto",
        _init_setup_model: bool = True,
    ) -> None:
        if env is None and _init_setup_model:
            raise UnsupportedEnvError("Expected an environment, or the id of one; got None. Fix: pass gym.make(id).")
        self.critic_learning_rate = critic_learning_rate
        self.batch_size, self.n_epochs, self.n_critic_epochs = batch_size, n_epochs, n_critic_epochs
        self.gamma_token, self.gae_lambda_token = gamma_token, gae_lambda_token
        self.clip_range, self.clip_range_vf = clip_range, clip_range_vf
        self.target_kl = target_kl
        self.normalize_advantage, self.min_advantage_std = normalize_advantage, min_advantage_std
        self.credit_level = member(CreditLevel, "credit_level", credit_level)
        self.bootstrap = member(Bootstrap, "bootstrap", bootstrap)
        self.action_sampling, self.candidate_normalization = str(action_sampling), str(candidate_normalization)
        self.paper_mode, self.max_new_tokens = paper_mode, max_new_tokens
        self.temperature, self.top_k, self.top_p = temperature, top_k, top_p
        self.stop = list(stop) if isinstance(stop, tuple) else stop  # as a checkpoint brings it back
        self.smdp_discount, self.normalize_value, self.kl_coef = smdp_discount, normalize_value, kl_coef
        self.stopwatch, self._chosen_defaults = Stopwatch(), ""
        super().__init__(
            policy,
            env,
            learning_rate=learning_rate,
            n_steps=n_steps,
            gamma=gamma,
            gae_lambda=gae_lambda,
            ent_coef=ent_coef,
            vf_coef=vf_coef,
            max_grad_norm=max_grad_norm,
            use_sde=False,
            sde_sample_freq=-1,
            stats_window_size=stats_window_size,
            tensorboard_log=tensorboard_log,
            policy_kwargs=policy_kwargs,
            verbose=verbose,
            device=device,
            seed=seed,
            _init_setup_model=False,
        )
        self._check_numbers()
        if _init_setup_model:
            self._setup_model()

    @classmethod
    def from_preset(
        cls: type[Self],
        name: str,
        env: gym.Env[Any, Any] | VecEnv | str,
        **overrides: Any,  # noqa: ANN401 - of the constructor
    ) -> Self:
        """Make the algorithm by a preset, such as `"paper/virtualhome"`; see `poad_sb3.presets.from_preset`."""
        return presets.from_preset(cls, name, env, **overrides)

    # ------------------------------------------------------------------ setting up

    def _check_numbers(self) -> None:
        check_arguments(self)

    def _setup_model(self) -> None:
        self._choose_defaults()
        self._setup_lr_schedule()
        self.critic_lr_schedule = schedule_of("critic_learning_rate", self.critic_learning_rate)
        self.set_random_seed(self.seed)
        self.rollout_buffer = TokenRolloutBuffer(
            self.n_steps,
            self.observation_space,
            self.action_space,
            device=self.device,
            gamma=self.gamma,
            gae_lambda=self.gae_lambda,
            n_envs=self.n_envs,
            gamma_token=self.gamma_token,
            gae_lambda_token=self.gae_lambda_token,
            credit_level=self.credit_level,
            bootstrap=self.bootstrap,
        )
        elsewhere = sorted(set(self.policy_kwargs) & set(_ACTING))
        if elsewhere:
            raise ValueError(
                f"Expected {elsewhere[0]} as an argument of {type(self).__name__}, where it is checked; got it in "
                "policy_kwargs. Fix: move it out of them."
            )
        acting = {name: getattr(self, name) for name in _ACTING}
        self._make_policy(critic_lr_schedule=self.critic_lr_schedule, **acting)

    def _choose_defaults(self) -> None:
        """Replace `"auto"` by what the environment's actions ask for; a checkpoint holds the choice.

        Raises:
            UnsupportedEnvError: If the actions cannot be sampled in the way that was asked for.
        """
        if self.env is None:  # a checkpoint without an environment: the choice is in it
            return
        kind, name = action_kind(self.env), type(self).__name__
        chosen = []
        if kind is not ActionKind.LISTED and self.credit_level == CreditLevel.ACTION:
            raise UnsupportedEnvError(
                f"Expected admissible actions for {name} to choose from; any text is an action of this environment. "
                "Fix: POAD, NTPO or ARCHER."
            )
        if self.action_sampling == AUTO:
            self.action_sampling = kind.action_sampling
            chosen.append(f"action_sampling={self.action_sampling!r}")
        elif kind is not ActionKind.LISTED and self.action_sampling != ActionSampling.FREE:
            raise UnsupportedEnvError(
                "Expected action_sampling='free', since any text is an action of this environment; got "
                f"{self.action_sampling!r}. Fix: leave it out."
            )
        is_new = self.base_fingerprint is None  # a checkpoint goes on with its model, in whatever environment
        if is_new and self.policy_kwargs.get("model", AUTO) == AUTO:
            if "model" in self.policy_kwargs or kind is ActionKind.CODE:  # else it is the policy's default
                self.policy_kwargs = {**self.policy_kwargs, "model": kind.model}
            chosen.append(f"model={kind.model!r}")
        self._chosen_defaults = ", ".join(chosen)
        self._check_numbers()

    # ------------------------------------------------------------------ learning

    def learn(
        self: Self,
        total_timesteps: int,
        callback: MaybeCallback = None,
        log_interval: int = 1,
        tb_log_name: str | None = None,
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> Self:
        """Train for at least `total_timesteps` environment steps (whole rollouts); see SB3."""
        name = tb_log_name or type(self).__name__
        self.stopwatch.restart()
        super().learn(total_timesteps, callback, log_interval, name, reset_num_timesteps, progress_bar)
        if self._update_is_due:  # of a checkpoint from between the last rollout and its update
            self.train()
        return self

    def _setup_learn(self, *args: Any, **kwargs: Any) -> tuple[int, BaseCallback]:  # noqa: ANN401 - as in SB3
        prepared = super()._setup_learn(*args, **kwargs)
        if self._chosen_defaults:
            self.logger.info(f"Chosen for the actions of this environment: {self._chosen_defaults}")
            self._chosen_defaults = ""
        return prepared

    def collect_rollouts(
        self,
        env: VecEnv,
        callback: BaseCallback,
        rollout_buffer: TokenRolloutBuffer,  # type: ignore[override]
        n_rollout_steps: int,
    ) -> bool:
        """Fill the buffer with `n_rollout_steps` steps of every environment.

        Returns:
            False if a callback stopped the training.
        """
        if self._update_is_due:  # the checkpoint was taken between a rollout and its update
            self.train()
        self._collecting = True
        try:
            finished = self._collect(env, callback, rollout_buffer, n_rollout_steps)
        except BaseException:
            self._commit_saves()
            raise
        self._update_is_due = finished
        self._commit_saves()
        return finished

    def _collect(
        self, env: VecEnv, callback: BaseCallback, rollout_buffer: TokenRolloutBuffer, n_rollout_steps: int
    ) -> bool:
        self.policy.set_training_mode(False)
        self.policy.clear_caches()
        rollout_buffer.reset()
        callback.on_rollout_start()
        turns = Turns(env, self.policy, self.stopwatch)
        for left in reversed(range(n_rollout_steps)):
            turns.choose(self._last_obs)
            step = partial(turns.step, self._last_obs, ahead=left > 0)
            new_obs, rewards, dones, infos = self._step_envs(step)
            actions = np.stack([one.env_action for one in turns.taken])  # read by callbacks
            self.num_timesteps += env.num_envs
            callback.update_locals(locals())
            go_on = callback.on_step()
            self._update_info_buffer(infos, dones)
            rollout_buffer.add(turns.taken, rewards, dones, self._final_prompts(dones, infos), self._durations(infos))
            if not go_on:
                return False
        # The update on this rollout may follow in another process: it must find the same learning rates.
        self._update_current_progress_remaining(self.num_timesteps, self._total_timesteps)
        with self.stopwatch.timing("values"):
            rollout_buffer.compute_returns_and_advantage(
                partial(self.policy.token_values, observe=True), self.policy.prompts(self._last_obs)
            )
        callback.update_locals(locals())
        callback.on_rollout_end()
        return True

    def _final_prompts(self, dones: NDArray[np.bool_], infos: list[dict[str, Any]]) -> dict[int, tuple[int, ...]]:
        """Prompts of the true final observations of episodes that a time limit cut, by environment."""
        return {
            int(index): self.policy.prompts(infos[index]["terminal_observation"])[0]
            for index in np.flatnonzero(dones)
            if infos[index].get("TimeLimit.truncated", False)
        }

    def _durations(self, infos: list[dict[str, Any]]) -> NDArray[np.float64]:
        """Time that each environment's action took, in units of `gamma`."""
        if not self.smdp_discount:
            return np.ones(len(infos))
        missing = [sorted(info) for info in infos if "primitive_steps" not in info]
        if missing:
            raise UnsupportedEnvError(
                f"Expected info['primitive_steps'] with smdp_discount; got {missing[0]}. "
                "Fix: leave smdp_discount out, or let the environment tell how long an action took."
            )
        durations = np.array([info["primitive_steps"] for info in infos], dtype=np.float64)
        if not (np.isfinite(durations) & (durations >= 0)).all():
            raise UnsupportedEnvError(
                f"Expected info['primitive_steps'] to be times, 0 or more; got {durations.tolist()}. "
                "Fix: mend the environment; nothing was learned from it."
            )
        return durations

    def train(self) -> None:
        """One update: the critic's epochs, then the policy's, or fewer of those where `target_kl` stops it."""
        self._update_is_due = False
        # Evaluation mode: a base model's own dropout would make old and new log-probabilities differ.
        self.policy.set_training_mode(False)
        self._update_learning_rate([self.policy.optimizer])
        critic_rate = self.critic_lr_schedule(self._current_progress_remaining)
        if not self._n_updates:
            warn_if_nothing_is_learned(self.learning_rate, self.lr_schedule(self._current_progress_remaining))
        for group in self.policy.critic_optimizer.param_groups:
            group["lr"] = critic_rate
        numbers = {field.name: getattr(self, field.name) for field in fields(UpdateSettings)}
        clips = {name: self._clip_range_now(name) for name in ("clip_range", "clip_range_vf")}
        settings = UpdateSettings(**{**numbers, **clips})
        with self.stopwatch.timing("update"):
            logged = update(self.policy, self.rollout_buffer, settings, self._shuffle_rng)
        _warn_if_off_policy(logged.get("first_ratio_error", 0.0), self.policy.lm.is_exact)
        self._n_updates += self.n_epochs
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        self.logger.record("train/critic_learning_rate", critic_rate)
        for name, clip in clips.items():
            if clip is not None:
                self.logger.record(f"train/{name}", clip)
        for name, value in logged.items():
            self.logger.record(f"train/{name}", value)
        for name, seconds in self.stopwatch.read().items():
            self.logger.record(f"time/seconds_{name}", seconds)
        self.stopwatch.restart()

    def _clip_range_now(self, name: str) -> float | None:
        """Return `clip_range` or `clip_range_vf` at the present progress."""
        given = getattr(self, name)
        if given is None:
            return None
        clip = schedule_of(name, given)(self._current_progress_remaining)
        if not 0 <= clip < math.inf:
            raise ValueError(f"Expected {name} to stay a number of at least 0; its schedule gives {clip}.")
        return clip


def _warn_if_off_policy(error: float, is_exact: bool) -> None:
    """The first ratio of an update is 1 where what was sampled is what is optimised."""
    tolerance = RATIO_TOLERANCE if is_exact else ROUNDED_TOLERANCE
    if not error < tolerance:
        warnings.warn(
            f"Expected the first ratio of the update to be 1 within {tolerance}; it is off by {error:.2g}: the "
            "model scores an action differently when acting and when learning. Fix: run `poad doctor MODEL`.",
            RuntimeWarning,
            stacklevel=3,
        )
