"""BADQ: off-policy token Q-learning with the Bellman backup with Action Decomposition."""

from __future__ import annotations

import inspect
import io
import pathlib
import sys
import time
import warnings
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, ClassVar, TypeVar

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.save_util import load_from_pkl, save_to_pkl
from stable_baselines3.common.type_aliases import MaybeCallback, Schedule
from stable_baselines3.common.utils import safe_mean
from stable_baselines3.common.vec_env import VecEnv

from poad_sb3.badq.policy import BADQPolicy
from poad_sb3.badq.replay import Transition, TransitionBuffer
from poad_sb3.badq.targets import SoftReference
from poad_sb3.badq.update import gather, update_head
from poad_sb3.common.base_class import LanguageModelAlgorithm
from poad_sb3.distributed.ranks import current_ranks
from poad_sb3.errors import NoEffectWarning, ObservationError, RankError, UnsupportedEnvError
from poad_sb3.prompts import Question
from poad_sb3.settings.fields import Choice, Count, Flag, Number, Setting
from poad_sb3.vec_env.text_observations import ActionKind, action_kind, parse_observation

Self = TypeVar("Self", bound="BADQ")

_MAX_WHITENED = 1024
"""Number of distinct questions that the input whitening is fitted to; it is refitted whenever the steps double."""
_KINDS: Mapping[str, Setting] = {
    **dict.fromkeys(
        ("buffer_size", "batch_size", "train_freq", "gradient_steps", "target_update_interval", "n_steps"), Count()
    ),
    **dict.fromkeys(("learning_starts", "exploration_steps"), Count(least=0)),
    **dict.fromkeys(("gamma", "exploration_initial_eps", "exploration_final_eps"), Number(share=True)),
    "tau": Number(share=True, zero=False),  # at 0 the target head never moves
    **dict.fromkeys(("beta", "max_grad_norm"), Number(zero=False)),
    **dict.fromkeys(("soft", "double_q"), Flag()),
    "reference": Choice(words=tuple(SoftReference)),
}
"""Allowed values of the arguments."""
_OF_POLICY = ("soft", "beta", "reference", "double_q")
"""Names of arguments that are passed on to the policy too."""


class BADQ(LanguageModelAlgorithm):
    """Q-learning over tokens with the BAD target, or with its soft form sBAD.

    Unlike a rollout, a replay buffer is whole after every step, so a checkpoint can be written at any time. With
    `save(..., exclude=["replay_buffer"])` the file is small, and training can resume from it, but not as if it had
    never stopped.

    The language model is frozen. A small head on its hidden state at a token of an action gives Q(o, w_<=j), the value
    of the best continuation of that prefix. Equations: `poad_sb3.badq.targets`. Environments must list admissible
    actions.

    Args:
        policy: `"BADQPolicy"` or a subclass of it.
        env: A language environment, the id of one, or a vector of them.
        learning_rate: Learning rate of the head's Adam (eps 1e-5): a number; `"lin_1e-3"`, falling linearly from 1e-3
            to 0 during training; or a function of the progress remaining (1 to 0).
        buffer_size: Capacity of the replay buffer, in transitions.
        learning_starts: Number of steps of uniformly random actions before the first update.
        batch_size: Number of transitions in a minibatch.
        tau: Soft update coefficient of the target head, in (0, 1]; 1 copies the head.
        gamma: Discount between actions. Inside an action it is always 1.
        train_freq: Number of steps of each environment between updates.
        gradient_steps: Number of minibatches of an update.
        target_update_interval: Number of minibatches between updates of the target head.
        exploration_steps: Number of steps of the linear decay of the exploration rate. (Not SB3's fraction of the
            training: so training for 1,000 steps, and for 1,000 more with `reset_num_timesteps=False`, is training once
            for 2,000, if the learning rate is a number.)
        exploration_initial_eps: Initial probability of a uniformly random action.
        exploration_final_eps: Probability of a uniformly random action after `exploration_steps`.
        max_grad_norm: Maximum norm of the gradient, for clipping.
        n_steps: Number of steps whose rewards are summed before the target bootstraps (fewer where an episode ends). 1
            is the equation. More steps carry a reward back faster, and bootstrap less from situations that look
            alike but are not; in return they include the rewards of exploratory actions (without correction), and with
            `soft` leave out the regularisation of the steps between.
        soft: Whether to use sBAD: soft values, and acting by a Boltzmann distribution on the trie.
        beta: Temperature of sBAD, in units of reward.
        reference: Reference policy pi_ref of sBAD: `"base"`, the base model on the trie, or `"uniform-actions"`.
        double_q: Whether BAD uses double Q-learning: the present head chooses the child, and the target head values it.
            sBAD has no argmax.
        stats_window_size: Number of episodes in the logged means.
        tensorboard_log: Folder for TensorBoard.
        policy_kwargs: Arguments of the policy: `model`, `revision`, `dtype`, `quantization`, `attn_implementation`,
            `prompt`, `check`, `critic_arch`, `max_tokens_per_forward`, `cache_size`. There is no adapter.
        verbose: Verbosity: 0 silent, 1 information.
        seed: Seed of everything random.
        device: Torch device, or `"auto"`.
        _init_setup_model: Whether to build the model on construction, as in SB3.

    Raises:
        UnsupportedEnvError: If the environment has no text observations or no token-sequence actions.
        ValueError: If the policy is unknown, or a number is out of range.
        TypeError: If a flag is no boolean.
    """

    policy: BADQPolicy
    replay_buffer: TransitionBuffer

    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = {"BADQPolicy": BADQPolicy, "LLMPolicy": BADQPolicy}

    def __init__(
        self,
        policy: str | type[BADQPolicy],
        env: gym.Env[Any, Any] | VecEnv | str | None,
        learning_rate: float | str | Schedule = 1e-3,
        buffer_size: int = 20_000,
        learning_starts: int = 200,
        batch_size: int = 64,
        tau: float = 0.05,
        gamma: float = 0.95,
        train_freq: int = 1,
        gradient_steps: int = 1,
        target_update_interval: int = 1,
        exploration_steps: int = 1500,
        exploration_initial_eps: float = 1.0,
        exploration_final_eps: float = 0.05,
        max_grad_norm: float = 10.0,
        *,
        n_steps: int = 5,
        soft: bool = False,
        beta: float = 0.05,
        reference: SoftReference | str = SoftReference.BASE,
        double_q: bool = True,
        stats_window_size: int = 100,
        tensorboard_log: str | None = None,
        policy_kwargs: dict[str, Any] | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: torch.device | str = "auto",
        _init_setup_model: bool = True,
    ) -> None:
        if current_ranks().size > 1:
            raise RankError(
                f"Expected one process for BADQ, whose updates are not split; got {current_ranks().size} ranks. "
                "Fix: start one process."
            )
        if env is None and _init_setup_model:
            raise UnsupportedEnvError("Expected an environment, or the id of one; got None. Fix: pass gym.make(id).")
        self.buffer_size, self.learning_starts, self.batch_size = buffer_size, learning_starts, batch_size
        self.tau, self.gamma, self.target_update_interval = tau, gamma, target_update_interval
        self.train_freq, self.gradient_steps = train_freq, gradient_steps
        self.exploration_steps = exploration_steps
        self.exploration_initial_eps, self.exploration_final_eps = exploration_initial_eps, exploration_final_eps
        self.max_grad_norm, self.n_steps = max_grad_norm, n_steps
        self.soft, self.beta, self.double_q = soft, beta, double_q
        self.reference = reference
        self._steps_since_update, self._whitened_at = 0, 0
        super().__init__(
            policy,
            env,
            learning_rate=learning_rate,
            policy_kwargs=policy_kwargs,
            stats_window_size=stats_window_size,
            tensorboard_log=tensorboard_log,
            verbose=verbose,
            device=device,
            support_multi_env=True,
            seed=seed,
        )
        self._check_settings()
        self._warn_without_effect(("double_q", "beta", "reference"))
        if _init_setup_model:
            self._setup_model()

    # ------------------------------------------------------------------ setting up

    def _check_settings(self) -> None:
        for name, kind in _KINDS.items():
            kind.check(name, getattr(self, name))

    def _warn_without_effect(self, given: Iterable[str]) -> None:
        parameters = inspect.signature(BADQ.__init__).parameters
        useless = ("double_q",) if self.soft else ("beta", "reference")
        for name in given:
            if name in useless and (value := getattr(self, name)) != parameters[name].default:
                message = f"{name}={value!r} has no effect with soft={self.soft}. Fix: leave it out."
                warnings.warn(message, NoEffectWarning, stacklevel=3)

    def _setup_model(self) -> None:
        if self.env is not None and action_kind(self.env) is not ActionKind.LISTED:
            raise UnsupportedEnvError(
                "Expected admissible actions for BADQ to choose from; any text is an action of this environment. "
                "Fix: POAD, NTPO or ARCHER."
            )
        self._setup_lr_schedule()
        self.set_random_seed(self.seed)
        kept = self.__dict__.get("replay_buffer")  # of a checkpoint
        if kept is not None:
            self._check_replay_buffer(kept)
        self.replay_buffer = TransitionBuffer(self.buffer_size, self.n_envs) if kept is None else kept
        self._make_policy(**{name: getattr(self, name) for name in _OF_POLICY})

    # ------------------------------------------------------------------ checkpoints

    def save_replay_buffer(self, path: str | pathlib.Path | io.BufferedIOBase) -> None:
        """Write the replay buffer alone; for SB3's `CheckpointCallback(save_replay_buffer=True)`."""
        save_to_pkl(path, self.replay_buffer, self.verbose)

    def load_replay_buffer(self, path: str | pathlib.Path | io.BufferedIOBase) -> None:
        """Replace the replay buffer by one that `save_replay_buffer` wrote. Load trusted files only: it is a pickle.

        Raises:
            ValueError: If the buffer has another size or number of environments, or the file holds no replay buffer.
        """
        kept = load_from_pkl(path, self.verbose)
        if not isinstance(kept, TransitionBuffer):
            raise ValueError(  # noqa: TRY004 - of a file, not of an argument
                f"Expected a replay buffer that save_replay_buffer() wrote; got {type(kept).__name__}. "
                "Fix: pass the path of one."
            )
        self._check_replay_buffer(kept)
        kept.leave_episodes()
        self.replay_buffer = kept

    def _check_replay_buffer(self, kept: TransitionBuffer) -> None:
        if kept.capacity != self.buffer_size:
            raise ValueError(
                f"Expected buffer_size={kept.capacity}, that of the saved replay buffer; got {self.buffer_size}. "
                "Fix: leave it out, or save with exclude=['replay_buffer']."
            )
        if kept.n_envs != self.n_envs:  # whose steps lie in it in turn
            raise ValueError(
                f"Expected {kept.n_envs} environments, as many as fill the saved replay buffer; got {self.n_envs}. "
                "Fix: pass that many, or save with exclude=['replay_buffer']."
            )

    def _leave_episodes(self) -> None:
        self.replay_buffer.leave_episodes()

    def _is_exact(self, left_out: set[str]) -> bool:
        return super()._is_exact(left_out) and "replay_buffer" not in left_out

    def _excluded_save_params(self) -> list[str]:
        return [name for name in super()._excluded_save_params() if name != "replay_buffer"]

    # ------------------------------------------------------------------ learning

    @property
    def exploration_rate(self) -> float:
        """Present probability of a uniformly random action."""
        if self.num_timesteps < self.learning_starts:
            return 1.0
        done = min(1.0, self.num_timesteps / max(1, self.exploration_steps))
        return self.exploration_initial_eps + done * (self.exploration_final_eps - self.exploration_initial_eps)

    def learn(
        self: Self,
        total_timesteps: int,
        callback: MaybeCallback = None,
        log_interval: int | None = 10,
        tb_log_name: str | None = None,
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> Self:
        """Train for at least `total_timesteps` environment steps; see SB3.

        Args:
            total_timesteps: Number of steps to train for, of all environments together.
            callback: Callbacks, see SB3.
            log_interval: Number of episodes between logs; None for no logs.
            tb_log_name: Name of the run.
            reset_num_timesteps: Whether to start the step counter at 0, see SB3. False resumes the counter, the
                exploration rate and the episodes.
            progress_bar: Whether to show a progress bar, see SB3.

        Raises:
            FloatingPointError: If a reward or a gradient is not finite; the head is not updated with it.
            ObservationError: If an action space is open.
            RuntimeError: If the process of an environment has ended.
        """
        name = tb_log_name or type(self).__name__
        total, callback = self._setup_learn(total_timesteps, callback, reset_num_timesteps, name, progress_bar)
        assert self.env is not None
        if reset_num_timesteps:
            self._whitened_at = 0  # it is compared with the counter
        callback.on_training_start(locals(), globals())
        callback.on_rollout_start()
        go_on = True
        while go_on and self.num_timesteps < total:
            self._update_if_due(callback)  # before a step: a checkpoint after it has the pending update
            go_on = self._step(self.env, callback, log_interval)
        self._update_if_due(callback)
        callback.on_training_end()
        return self

    def _update_if_due(self, callback: BaseCallback) -> None:
        if self._steps_since_update < self.train_freq or self.num_timesteps < self.learning_starts:
            return
        callback.on_rollout_end()
        self._steps_since_update, self._is_consistent = 0, False
        self.train()
        self._is_consistent = True
        callback.on_rollout_start()

    def _step(self, env: VecEnv, callback: BaseCallback, log_interval: int | None) -> bool:
        """Take one step in every environment; return False if a callback stopped the training."""
        self.policy.set_training_mode(False)
        questions = parse_observation(self._last_obs)[0]
        self._is_consistent = False
        actions, picks = self.policy.explore(questions, self.exploration_rate)
        new_obs, rewards, dones, infos = self._step_envs(partial(env.step, actions))
        following = [
            _following(new, done, info)
            for new, done, info in zip(parse_observation(new_obs)[0], dones, infos, strict=True)
        ]
        for question, pick, reward, after, done in zip(questions, picks, rewards, following, dones, strict=True):
            self.replay_buffer.add(Transition(question, pick, float(reward), after, ends=bool(done)))
        self.num_timesteps += env.num_envs
        self._steps_since_update += 1
        self._update_info_buffer(infos, dones)
        self._count_episodes(int(dones.sum()), log_interval)
        self._is_consistent = True
        callback.update_locals(locals())
        return callback.on_step()

    def _count_episodes(self, ended: int, log_interval: int | None) -> None:
        before, self._episode_num = self._episode_num, self._episode_num + ended
        if log_interval is not None and self._episode_num // log_interval > before // log_interval:
            self.dump_logs()

    def train(self) -> None:
        """Update the head with `gradient_steps` minibatches."""
        self._update_current_progress_remaining(self.num_timesteps, self._total_timesteps)
        self._update_learning_rate([self.policy.critic_optimizer])
        if self.num_timesteps >= 2 * self._whitened_at:
            self._whitened_at = self.num_timesteps
            self.policy.fit_whitening(self.replay_buffer.latest_questions(_MAX_WHITENED))
        heads, distribution = self.policy.critic, self.policy.distribution
        logged: list[dict[str, float]] = []
        for _ in range(self.gradient_steps):
            sample = self.replay_buffer.sample(self.batch_size, self._shuffle_rng, self.n_steps, self.gamma)
            batch = gather(distribution.known, sample, self.gamma)
            logged.append(
                update_head(heads, self.policy.critic_optimizer, batch, distribution.backup, self.max_grad_norm)
            )
            self._n_updates += 1
            if self._n_updates % self.target_update_interval == 0:
                heads.follow(self.tau)
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        for name in logged[0]:
            self.logger.record(f"train/{name}", float(np.mean([update[name] for update in logged])))

    def dump_logs(self) -> None:
        """Write the logged values."""
        elapsed = max((time.time_ns() - self.start_time) / 1e9, sys.float_info.epsilon)
        self.logger.record("time/episodes", self._episode_num, exclude="tensorboard")
        self.logger.record("time/fps", int((self.num_timesteps - self._num_timesteps_at_start) / elapsed))
        self.logger.record("time/time_elapsed", int(elapsed), exclude="tensorboard")
        self.logger.record("time/total_timesteps", self.num_timesteps, exclude="tensorboard")
        self.logger.record("rollout/exploration_rate", self.exploration_rate)
        for name, key in (("rollout/ep_rew_mean", "r"), ("rollout/ep_len_mean", "l")):
            if self.ep_info_buffer:
                self.logger.record(name, safe_mean([episode[key] for episode in self.ep_info_buffer]))
        if self.ep_success_buffer:
            self.logger.record("rollout/success_rate", safe_mean(self.ep_success_buffer))
        self.logger.dump(step=self.num_timesteps)


def _following(new: Question, done: bool, info: dict[str, Any]) -> Question | None:
    """Return the questions to bootstrap from: the true final one after a time limit, none after the end of the task."""
    if not done:
        return new
    if not info.get("TimeLimit.truncated", False):
        return None
    final = parse_observation(info["terminal_observation"])[0][0]
    if not final.actions:
        raise ObservationError(
            f"Expected admissible actions at the end of an episode that a time limit cut; got {final.actions}. "
            "Fix: let the environment list them there too: the step bootstraps from that observation."
        )
    return final
