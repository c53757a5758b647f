"""`LLMOnPolicyAlgorithm`: rollouts, updates and checkpoints of every on-policy method of this package."""

from __future__ import annotations

import copy
import inspect
import math
import warnings
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.type_aliases import MaybeCallback, Schedule
from stable_baselines3.common.vec_env import VecEnv

from poad_sb3.common.base_class import LanguageModelAlgorithm
from poad_sb3.common.buffers import TokenRolloutBuffer
from poad_sb3.common.critics import CRITICS
from poad_sb3.common.hyperparameters import (
    algorithm_of,
    complete_arguments,
    from_preset,
    signature_with_defaults,
    warn_without_effect,
)
from poad_sb3.common.policies import LLMPolicy
from poad_sb3.common.ppo_update import Clips, update
from poad_sb3.common.save_util import Target, prepare_path
from poad_sb3.common.schedules import schedule_of, warn_of_zero_rate
from poad_sb3.common.timing import Stopwatch
from poad_sb3.credit.estimators import Estimator
from poad_sb3.distributions.action_trie import TokenIds
from poad_sb3.distributions.base import SampledAction
from poad_sb3.distributions.sampling_check import RATIO_TOLERANCE, ROUNDED_TOLERANCE
from poad_sb3.errors import UnsupportedEnvError
from poad_sb3.prompts import Question
from poad_sb3.settings import CreditSettings, PPOSettings, SamplingSettings
from poad_sb3.settings.credit import CriticKind
from poad_sb3.settings.ppo import Ratio
from poad_sb3.settings.sampling import AUTO, ActionSampling
from poad_sb3.vec_env.text_observations import ActionKind, action_kind, parse_observation
from poad_sb3.zoo.adapters import load_adapter
from poad_sb3.zoo.hub import download
from poad_sb3.zoo.rows import find_agent

Self = TypeVar("Self", bound="LLMOnPolicyAlgorithm")

_LONG_EPISODE = 10_000
"""Number of steps without the end of an episode until a rollout of whole episodes warns."""

_MAX_TOO_LONG_SHARE = 0.5
"""Share of texts that the action space cannot hold above which a rollout warns."""


class LLMOnPolicyAlgorithm(LanguageModelAlgorithm, OnPolicyAlgorithm):
    """PPO on the tokens of a language model's actions, in SB3's manner.

    The methods of this package are this class with different credit and action distributions. The defaults suit the
    embedded pocket model; a larger model needs a `temperature` of 4 to 8 among listed actions, and beyond 200 million
    weights a smaller `learning_rate` (start at 1e-4). `gamma` discounts per action;
    the default of 0.95 keeps agents from delaying the goal to farm rewards (see docs, "reward farming").

    Args:
        policy: `"LLMPolicy"` or a subclass of it.
        env: A language environment, the id of one, or a vector of them.
        learning_rate: Rate of the adapter's optimizer. From here to `min_advantage_std`, and from `smdp_discount` to
            `thought_loss_coef`: see the fields of `PPOSettings`.
        estimator: Estimator of advantages. From here to `thought_penalty`: see the fields of `CreditSettings`.
        action_sampling: Method of sampling actions. From here to `keep_thoughts`: see the fields of
            `SamplingSettings`.
        stats_window_size: Number of episodes in the logged means.
        tensorboard_log: Folder for TensorBoard.
        policy_kwargs: Fields of `ModelSettings`. Without a `model`, or with `model="auto"`, it is the pocket coder for
            an environment whose actions are code, else the pocket model.
        verbose: Verbosity: 0 silent, 1 information.
        seed: Seed of everything random.
        device: Torch device, or `"auto"`.
        _init_setup_model: Whether to build the model on construction, as in SB3.
        _model_preset: Whether a preset of the model for the environment's family, such as `"smollm2/overcooked"`,
            replaces the defaults; the log names it. An id of an environment then makes as many as the preset is for.

    Raises:
        UnsupportedEnvError: If the environment has no text observations or no token-sequence actions, or does not allow
            the given `action_sampling`.
        ValueError: If the policy is unknown, or a number is out of range.
        TypeError: If an argument is unknown.
    """

    policy: LLMPolicy  # type: ignore[assignment]  # SB3 names its own actor-critic class
    rollout_buffer: TokenRolloutBuffer

    defaults: ClassVar[Mapping[str, Any]] = {}
    """Defaults of a method where they differ from those of the settings."""
    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = {"LLMPolicy": LLMPolicy}
    _chosen_defaults: str

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.__signature__ = signature_with_defaults(cls, LLMOnPolicyAlgorithm.__init__)  # type: ignore[attr-defined]

    @complete_arguments
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
        gamma_token: float | None = 1.0,
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
        smdp_discount: bool = False,
        normalize_value: bool = False,
        n_episodes: int | None = None,
        kl_coef: float = 0.0,
        critic_first: bool = True,
        ratio: str | None = None,
        clip_range_high: float | str | Schedule | None = None,
        dual_clip: float | None = None,
        cispo_cap: float | None = None,
        loss_reduction: str = "mean",
        micro_batches: int = 4,
        thought_loss_coef: float = 1.0,
        estimator: str = "gae",
        credit_level: str = "token",
        critic: str = "token",
        bootstrap: str = "state",
        baseline: str = "none",
        leave_one_out: bool = False,
        advantage_scale: str = "none",
        omega: float = 1.0,
        group_size: int = 1,
        state_key: Callable[[str], Hashable] | None = None,
        drop_truncated: bool = False,
        gamma_thought: float | None = None,
        gae_lambda_thought: float | None = None,
        gae_alpha_thought: float | None = None,
        thought_penalty: float = 0.0,
        action_sampling: str = AUTO,
        candidate_normalization: str = "word",
        paper_mode: bool = False,
        max_new_tokens: int = 128,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        stop: Sequence[str] = (),
        generation_endpoint: str | None = None,
        generation_requests: int = 16,
        max_thought_tokens: int = 32,
        thought_marks: Sequence[str] = ("<think>", "</think>"),
        keep_thoughts: bool = False,
        stats_window_size: int = 100,
        tensorboard_log: str | None = None,
        policy_kwargs: dict[str, Any] | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: torch.device | str = "auto",
        _init_setup_model: bool = True,
        _model_preset: bool = True,
    ) -> None:
        if env is None and _init_setup_model:
            raise UnsupportedEnvError("Expected an environment, or the id of one; got None. Fix: pass gym.make(id).")
        self.critic_learning_rate = critic_learning_rate
        self.batch_size = batch_size
        self.n_epochs = n_epochs
        self.n_critic_epochs = n_critic_epochs
        self.gamma_token = gamma_token
        self.gae_lambda_token = gae_lambda_token
        self.clip_range = clip_range
        self.clip_range_vf = clip_range_vf
        self.target_kl = target_kl
        self.normalize_advantage = normalize_advantage
        self.min_advantage_std = min_advantage_std
        self.smdp_discount = smdp_discount
        self.normalize_value = normalize_value
        self.n_episodes = n_episodes
        self.kl_coef = kl_coef
        self.critic_first = critic_first
        self.ratio = ratio
        self.clip_range_high = clip_range_high
        self.dual_clip = dual_clip
        self.cispo_cap = cispo_cap
        self.loss_reduction = loss_reduction
        self.micro_batches = micro_batches
        self.thought_loss_coef = thought_loss_coef
        self.estimator = estimator
        self.credit_level = credit_level
        self.critic = critic
        self.bootstrap = bootstrap
        self.baseline = baseline
        self.leave_one_out = leave_one_out
        self.advantage_scale = advantage_scale
        self.omega = omega
        self.group_size = group_size
        self.state_key = state_key
        self.drop_truncated = drop_truncated
        self.gamma_thought = gamma_thought
        self.gae_lambda_thought = gae_lambda_thought
        self.gae_alpha_thought = gae_alpha_thought
        self.thought_penalty = thought_penalty
        self.action_sampling = action_sampling
        self.candidate_normalization = candidate_normalization
        self.paper_mode = paper_mode
        self.max_new_tokens = max_new_tokens
        self.temperature = temperature
        self.top_k = top_k
        self.top_p = top_p
        self.stop = list(stop) if isinstance(stop, tuple) else stop  # as a checkpoint brings it back
        self.generation_endpoint = generation_endpoint
        self.generation_requests = generation_requests
        self.max_thought_tokens = max_thought_tokens
        self.thought_marks = list(thought_marks) if isinstance(thought_marks, tuple) else thought_marks
        self.keep_thoughts = keep_thoughts
        self.stopwatch = Stopwatch()
        self._pasts: list[TokenIds] = []  # `Question.past` of each environment; empty where all episodes begin
        self._collecting, self._update_is_due = False, False
        self._warned: set[str] = set()
        self._waiting_saves: list[tuple[Target, Any, Any]] = []
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
            seed=seed,
            device=device,
            _init_setup_model=False,
        )
        self._check_settings()
        if _init_setup_model:
            self._setup_model()

    @classmethod
    def from_preset(
        cls: type[Self],
        name: str,
        env: gym.Env[Any, Any] | VecEnv | str,
        **overrides: Any,
    ) -> Self:
        """Make the algorithm by a preset, such as `"paper/virtualhome"`; see `hyperparameters.from_preset`."""
        return from_preset(cls, name, env, **overrides)

    @classmethod
    def load_from_zoo(
        cls: type[Self], env_id: str, model: str | None = None, *, folder: str | Path | None = None, **arguments: Any
    ) -> Self:
        """Load a trained agent of this method from the zoo, with its environment; `poad zoo list` lists them.

        Args:
            env_id: Id of the environment.
            model: Name of the base model; may be left out where there is one alone.
            folder: Folder of agents; by default those that `poad zoo train` trained here, and then the shipped ones.
            **arguments: Constructor arguments to replace, such as `env`; `policy_kwargs` are laid over those it was
                trained with.

        Raises:
            CheckpointError: If there is no such agent, or its file is damaged.
        """
        name = env_id if model is None else f"{env_id}/{model}"
        row, path = find_agent(name, None if folder is None else Path(folder), algorithm_of(cls))
        return cast(Self, load_adapter(cls, path, row.sha256, **arguments))

    @classmethod
    def load_from_hub(
        cls: type[Self], repo_id: str, revision: str | None = None, *, token: str | None = None, **arguments: Any
    ) -> Self:
        """Load a trained agent of this method from the hub of Hugging Face, where `push_to_hub` put it.

        Its file holds no code, and may name no settings that run any.

        Args:
            repo_id: Repository, `USER/NAME`.
            revision: Commit, tag or branch.
            token: Token; that of `hf auth login` or `HF_TOKEN` if None.
            **arguments: As in `load_from_zoo`.

        Raises:
            CheckpointError: If it cannot be downloaded, is no agent of this method, or has settings that a download may
                not have.
        """
        row, path = download(repo_id, revision, token)
        return cast(Self, load_adapter(cls, path, row.sha256, foreign=True, **arguments))

    # ------------------------------------------------------------------ setting up

    @property
    def credit(self) -> Estimator:
        """Estimator of advantages, chosen by the arguments when the model is set up."""
        if (buffer := vars(self).get("rollout_buffer")) is not None:
            return cast(TokenRolloutBuffer, buffer).estimator
        names = ("gamma", "gae_lambda", "gamma_token", "gae_lambda_token")
        return CreditSettings.of(self).make(**{name: getattr(self, name) for name in names})

    @property
    def whole_episodes(self) -> bool:
        """Whether a rollout is whole episodes: as requested, or for lack of a critic to value the rest of one."""
        return self.n_episodes is not None or not self.credit.has_critic

    @property
    def _critic_kind(self) -> CriticKind | None:
        """Kind of the critic that is made; None for none. Without values inside actions one of states is enough."""
        kind, credit = CriticKind(self.critic), self.credit
        has_prefixes = credit.credit_level == "token" or kind == CriticKind.TOKEN
        return (kind if has_prefixes else CriticKind.STATE) if credit.has_critic else None

    @property
    def _ratio(self) -> Ratio:
        return Ratio(self.ratio or self.credit_level)

    def _check_settings(self) -> None:
        credit, sampling = CreditSettings.of(self), SamplingSettings.of(self)
        PPOSettings.of(self, ratio=self.ratio or self.credit_level)
        if sampling.paper_mode and self._ratio != Ratio.TOKEN:
            raise ValueError(
                f"Expected ratio='token' with paper_mode, which is about tokens; got ratio={str(self._ratio)!r}. "
                "Fix: leave paper_mode out, or credit_level='token'."
            )
        if self.kl_coef and (self.policy_kwargs or {}).get("critic_trunk", "frozen") != "frozen":
            raise ValueError(
                "Expected kl_coef with critic_trunk='frozen', whose features also give the base model's distribution; "
                f"got {self.kl_coef}. Fix: leave one of them out."
            )
        if self.kl_coef and sampling.action_sampling == ActionSampling.CANDIDATES and not sampling.paper_mode:
            raise ValueError(
                "Expected kl_coef with action_sampling='trie' or 'free': the base model's distribution over whole "
                f"candidates is not among the cached features; got {self.kl_coef}. Fix: leave one of them out."
            )
        is_marginal = self._critic_kind == CriticKind.MARGINAL
        if is_marginal and sampling.action_sampling in (ActionSampling.FREE, ActionSampling.THINK):
            raise ValueError(
                "Expected listed actions with critic='marginal', which averages over them; got action_sampling="
                f"{str(sampling.action_sampling)!r}. Fix: critic='dueling'."
            )
        if is_marginal and self.credit.gamma_token != 1:
            raise ValueError(
                "Expected gamma_token=1 with critic='marginal', whose advantages of whole actions know no discount "
                f"inside them; got {self.credit.gamma_token:g}. Fix: critic='dueling'."
            )
        if is_marginal and self.kl_coef:
            raise ValueError(
                "Expected kl_coef=0 with critic='marginal', which does not read the hidden states at decisions; got "
                f"{self.kl_coef}. Fix: critic='dueling'."
            )
        if self.n_episodes is not None and self.env is not None and self.n_episodes * self.n_envs % credit.group_size:
            raise ValueError(
                f"Expected n_episodes of each of {self.n_envs} environments to make whole groups of "
                f"{credit.group_size}; got {self.n_episodes}. Fix: n_episodes=None, or a multiple of the group size."
            )

    def _warn_without_effect(self, given: Iterable[str]) -> None:
        warn_without_effect(self, given)

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
            n_envs=self.n_envs,
            estimator=self.credit,
            critic=CRITICS[self._critic_kind or CriticKind.TOKEN],
        )
        sampling = {name: getattr(self, name) for name in SamplingSettings.defaults()}
        misplaced = sorted(set(self.policy_kwargs) & set(sampling))
        if misplaced:
            raise ValueError(
                f"Expected {misplaced[0]} as an argument of {type(self).__name__}, where it is checked; got it in "
                "policy_kwargs. Fix: move it out of them."
            )
        if self.micro_batches % self.ranks.size:
            raise ValueError(
                f"Expected micro_batches to be a multiple of the {self.ranks.size} ranks, that share them; got "
                f"{self.micro_batches}. Fix: micro_batches={self.ranks.size}, or fewer ranks."
            )
        self._make_policy(
            critic_lr_schedule=self.critic_lr_schedule,
            critic=self._critic_kind,
            micro_batches=self.micro_batches,
            **sampling,
        )

    def _choose_defaults(self) -> None:
        """Replace `"auto"` by the choice for the environment's actions; a checkpoint holds the choice.

        Raises:
            UnsupportedEnvError: If the actions do not allow the given `action_sampling`.
        """
        if self.env is None:  # a checkpoint without an environment: the choice is in it
            return
        kind, name = action_kind(self.env), type(self).__name__
        chosen = [self._chosen_defaults] if self._chosen_defaults else []
        usual = inspect.signature(type(self)).parameters["action_sampling"].default
        if kind is not ActionKind.LISTED and self.action_sampling == usual != AUTO:
            raise UnsupportedEnvError(
                f"Expected admissible actions for {name} to choose from; any text is an action of this environment. "
                "Fix: POAD, NTPO, or TurnPPO for credit of whole actions."
            )
        if self.action_sampling == AUTO:
            self.action_sampling = kind.action_sampling
            chosen.append(f"action_sampling={self.action_sampling!r}")
        elif kind is not ActionKind.LISTED and self.action_sampling not in (ActionSampling.FREE, ActionSampling.THINK):
            raise UnsupportedEnvError(
                "Expected action_sampling='free' or 'think', since any text is an action of this environment; got "
                f"{self.action_sampling!r}. Fix: leave it out."
            )
        is_new = self.base_fingerprint is None  # a checkpoint keeps its model in any environment
        if is_new and self.policy_kwargs.get("model", AUTO) == AUTO:
            if "model" in self.policy_kwargs or kind is ActionKind.CODE:  # else it is the policy's default
                self.policy_kwargs = {**self.policy_kwargs, "model": kind.model}
            chosen.append(f"model={kind.model!r}")
        self._chosen_defaults = ", ".join(chosen)
        self._check_settings()

    # ------------------------------------------------------------------ checkpoints

    def _get_torch_save_params(self) -> tuple[list[str], list[str]]:
        of_critic = ["policy.critic_optimizer"] if self.policy.critic is not None else []
        return ["policy", "policy.optimizer", *of_critic], []

    def save(
        self,
        path: Target,
        exclude: Iterable[str] | None = None,
        include: Iterable[str] | None = None,
    ) -> None:
        """Write a checkpoint; training resumed from it is the same, bit for bit, as without a stop.

        The file is written beside `path` and moved into place, so a crash leaves the previous checkpoint whole. Called
        in a rollout (by a callback), the file is written when that rollout is complete, and is not there before: the
        weights are those of the call, and the update on the rollout is the first thing the resumed training does.

        After an interrupt or an error the file holds the weights as they are. A rollout that was cut is not in it, and
        neither is the rest of an update that was cut: its header has `"exact_resume": false`.

        Args:
            path: Path (`.zip` is added) or, except in a rollout, binary file object.
            exclude: Attributes to leave out, as in SB3.
            include: Attributes to keep although they are left out by default, as in SB3.

        Raises:
            OSError: If the file cannot be written; in a rollout, raised at once if its folder cannot be.
            ValueError: If `path` is neither a path nor a binary file, or a file in a rollout.
        """
        if self._collecting:
            prepare_path(path)
            self._waiting_saves.append((path, exclude, include))
        else:
            super().save(path, exclude, include)

    def _commit_saves(self) -> None:
        self._collecting = False
        waiting, self._waiting_saves = self._waiting_saves, []
        first: Exception | None = None
        for path, exclude, include in waiting:
            try:
                super().save(path, exclude, include)
            except Exception as error:  # the other files are worth writing all the same
                first = first or error
        try:
            if first is not None:
                raise first
        finally:
            del first  # its traceback holds this frame: a circle would keep the unfinished file open

    def _capture(self) -> dict[str, Any]:
        rollout = self.rollout_buffer.get_state() if self._update_is_due else None
        return {**super()._capture(), "rollout": rollout, "critic": self._critic_kind, "pasts": self._pasts}

    def _restore(self, captured: dict[str, Any]) -> None:
        kind = captured.get("critic", CriticKind.TOKEN)
        if kind != self._critic_kind and None not in (kind, self._critic_kind):
            raise ValueError(
                f"Expected critic={str(kind)!r}, as the checkpoint was trained with; got {str(self._critic_kind)!r}, "
                "to which its weights mean something else. Fix: leave critic out, or warm_start from the checkpoint."
            )
        super()._restore(captured)
        if self.policy.distribution.keeps_thoughts:  # it may be loaded without
            self._pasts = [tuple(past) for past in captured.get("pasts", ())]
        if captured["rollout"] is not None:
            self.rollout_buffer.set_state(captured["rollout"], all_features=self.kl_coef > 0)

    def _excluded_save_params(self) -> list[str]:
        return [
            *super()._excluded_save_params(),
            "_collecting",
            "_pasts",
            "_waiting_saves",
            "_warned",
            "stopwatch",
            "_chosen_defaults",
            "critic_lr_schedule",
        ]

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
        self._warned.clear()
        with self.ranks.data_parallel():
            return super().learn(total_timesteps, callback, log_interval, name, reset_num_timesteps, progress_bar)

    def _setup_learn(self, *args: Any, **kwargs: Any) -> tuple[int, BaseCallback]:
        prepared = super()._setup_learn(*args, **kwargs)
        if self._chosen_defaults:
            self.logger.info(f"Chosen for this environment: {self._chosen_defaults}")
            self._chosen_defaults = ""
        if self._update_is_due and self.num_timesteps >= prepared[0]:
            self.train()  # the checkpoint was taken between the last rollout and its update
        return prepared

    def collect_rollouts(
        self,
        env: VecEnv,
        callback: BaseCallback,
        rollout_buffer: TokenRolloutBuffer,  # type: ignore[override]
        n_rollout_steps: int,
    ) -> bool:
        """Fill the buffer with `n_rollout_steps` steps of every environment, or with whole episodes.

        These are `n_episodes` of each environment, or as many rounds of one each as have `n_rollout_steps` steps and
        make whole groups; without groups, every environment continues until its first end after `n_rollout_steps`.

        Returns:
            False if a callback stopped the training.
        """
        if self._update_is_due:  # the checkpoint was taken between a rollout and its update
            self.train()
        self._collecting, self._is_consistent = True, False
        try:
            self.policy.set_training_mode(False)
            self.policy.clear_caches()
            rollout_buffer.reset()
            callback.on_rollout_start()
            collect = self._collect_episodes if self.whole_episodes else self._collect_steps
            finished = collect(env, callback, rollout_buffer, n_rollout_steps)
            if finished:
                # The update on this rollout may follow in another process: it must find the same learning rates.
                self._update_current_progress_remaining(self.num_timesteps, self._total_timesteps)
                with self.stopwatch.timing("values"):
                    rollout_buffer.compute_returns_and_advantage(
                        partial(self.policy.token_values, observe=True),
                        self.policy.prompts(self._last_obs, self._pasts),
                        all_features=self.kl_coef > 0,
                        drop_truncated=self.drop_truncated and not self.credit.has_critic,
                    )
                self._record_rollout(rollout_buffer)
                callback.update_locals(locals())
                callback.on_rollout_end()
        except BaseException:
            if self.policy.lm.is_sharded:  # to gather the weights takes all ranks, and some may have ended
                self._waiting_saves = []
            if self.ranks.is_first:
                self._commit_saves()
            raise
        self._update_is_due = self._is_consistent = finished
        if self.policy.lm.is_sharded and self.ranks.on_rank_zero("waiting", lambda: len(self._waiting_saves)):
            self._gathered = self._gather(keep=self.ranks.is_first)
        self.ranks.on_rank_zero("saves", self._commit_saves)
        self._gathered = None
        self._collecting = False
        return finished

    def _leave_episodes(self) -> None:
        super()._leave_episodes()
        self._pasts = []

    def _collect_steps(self, env: VecEnv, callback: BaseCallback, buffer: TokenRolloutBuffer, n_steps: int) -> bool:
        """Take `n_steps` steps in every environment; return False if a callback stopped the training."""
        playing, actions = np.ones(env.num_envs, dtype=np.bool_), list[SampledAction]()
        while buffer.pos < n_steps:
            actions, _, is_continued = self._step(env, callback, buffer, actions, playing)
            if not is_continued:
                return False
        return True

    def _collect_episodes(self, env: VecEnv, callback: BaseCallback, buffer: TokenRolloutBuffer, n_steps: int) -> bool:
        """Play rounds of one episode in every environment; return False if a callback stopped the training.

        Environments whose episode has ended wait for the rest: they repeat their last action, which is not counted.
        Without groups and `n_episodes` there is one round, in which episodes follow each other until `n_steps`.
        """
        one_each = self.n_episodes is not None or self.group_size > 1
        n_rounds, latest_end, actions = 0, 0, list[SampledAction]()
        seeds: list[int] = []  # of the groups
        first_questions: dict[int, Question] = {}  # of the groups
        while not self._has_enough_rounds(n_rounds, buffer.pos, n_steps):
            groups = self._begin_episodes(env, n_rounds, seeds)
            self._warn_unless_alike(groups, first_questions)
            playing = np.ones(env.num_envs, dtype=np.bool_)
            while playing.any():
                actions, dones, is_continued = self._step(env, callback, buffer, actions, playing, groups)
                if not is_continued:
                    return False
                latest_end = buffer.pos if dones.any() else latest_end
                if buffer.pos - latest_end == _LONG_EPISODE:
                    warnings.warn(
                        f"Expected episodes that end, which {type(self).__name__} learns from; none has in the last "
                        f"{_LONG_EPISODE} steps of each environment. Fix: a time limit, "
                        "gym.wrappers.TimeLimit(env, 100).",
                        RuntimeWarning,
                        stacklevel=2,
                    )
                if one_each or buffer.pos >= n_steps:
                    playing = playing & ~dones
            n_rounds += 1
        return True

    def _has_enough_rounds(self, n_rounds: int, n_taken: int, n_steps: int) -> bool:
        """Return whether rounds of whole episodes with `n_taken` steps are a rollout."""
        if self.n_episodes is not None:
            return n_rounds >= self.n_episodes
        return n_taken >= n_steps and n_rounds * self.n_envs % self.group_size == 0

    def _step(
        self,
        env: VecEnv,
        callback: BaseCallback,
        rollout_buffer: TokenRolloutBuffer,
        last_actions: list[SampledAction],
        playing: NDArray[np.bool_],
        groups: list[int] | None = None,
    ) -> tuple[list[SampledAction], NDArray[np.bool_], bool]:
        """Take one step in every environment and store it.

        Args:
            env: Vector of environments.
            callback: Callbacks of the training.
            rollout_buffer: Buffer of the rollout.
            last_actions: Actions of the step before; empty at the first.
            playing: Whether each environment plays, `[n_envs]`; the rest repeat their last action.
            groups: Group of each environment's episode.

        Returns:
            The actions, whether each playing environment's episode ended, and whether callbacks continue.
        """
        with self.stopwatch.timing("acting"):
            taken = self._act(last_actions, playing)
        states = self._states() if self.credit.compares_states else None
        actions = np.stack([action.env_action for action in taken])
        self._pasts = []  # an error in the step leaves none of an episode that may be over
        with self.stopwatch.timing("env"):
            new_obs, rewards, dones, infos = self._step_envs(partial(env.step, actions))
        self.num_timesteps += env.num_envs
        is_too_long = (actions == self.policy.action_space.unfinished()).all(axis=1)
        rollout_buffer.n_too_long += int(is_too_long[playing].sum())
        pasts = [self.policy.past_after(action.path) for action in taken]
        self._pasts = [past if plays else () for past, plays in zip(pasts, playing & ~dones, strict=True)]
        dones = dones & playing
        infos = [info if plays else _without_end(info) for info, plays in zip(infos, playing, strict=True)]
        callback.update_locals(locals())  # by SB3's names: `actions`, `new_obs`, `rewards`, `dones`, `infos`
        is_continued = callback.on_step()
        self._update_info_buffer(infos, dones)
        final_prompts, durations = self._final_prompts(dones, infos, pasts), self._durations(infos)
        if self.thought_penalty:
            rewards = rewards - self.thought_penalty * np.array([action.path.n_thought for action in taken])
        rollout_buffer.add(taken, rewards, dones, final_prompts, durations, playing, groups, states)
        return taken, dones, is_continued

    def _act(self, last_actions: list[SampledAction], playing: NDArray[np.bool_]) -> list[SampledAction]:
        """Return an action for each environment: a sampled one where it plays, else that of the last step."""
        places = np.flatnonzero(playing)
        observations: Any = self._last_obs
        if isinstance(observations, Mapping):
            observations = {name: column[places] for name, column in observations.items()}
        else:
            observations = observations[places]
        rngs = copy.deepcopy(self.policy.rngs_of(len(playing)))
        pasts = [self._pasts[env] for env in places] if self._pasts else []
        sampled = iter(self.policy.act(observations, rngs=[rngs[env] for env in places], pasts=pasts))
        self.policy.rollout_rngs[: len(rngs)] = rngs  # only now: an interrupt leaves no trace of draws
        return [next(sampled) if plays else last_actions[env] for env, plays in enumerate(playing)]

    def _record_rollout(self, rollout_buffer: TokenRolloutBuffer) -> None:
        if self.whole_episodes:
            self.logger.record("rollout/truncated_share", rollout_buffer.truncated_share)
        if self.action_sampling not in (ActionSampling.FREE, ActionSampling.THINK):
            return
        share = rollout_buffer.n_too_long / int(rollout_buffer.counted.sum())
        self.logger.record("rollout/too_long_share", share)
        if share > _MAX_TOO_LONG_SHARE:
            self._warn_once(
                "too long",
                "Expected texts that the action space holds, of at most "
                f"{self.policy.action_space.max_length - 1} tokens; {share:.0%} of this rollout's are not, and the "
                "environment got an invalid action for each. Fix: an environment with a larger max_action_length, or a "
                "smaller max_new_tokens.",
            )

    def _warn_once(self, subject: str, message: str) -> None:
        """Warn of a subject at the first rollout that gives cause to in a call of `learn`."""
        if subject not in self._warned:
            self._warned.add(subject)
            warnings.warn(message, RuntimeWarning, stacklevel=4)

    def _begin_episodes(self, env: VecEnv, n_rounds: int, seeds: list[int]) -> list[int]:
        """Reset all environments, unless all have just begun an episode; return the group of each episode.

        A group is `group_size` episodes in a row, of the environments in order and then of the next round. They begin
        with one seed, which is drawn with their first and appended to `seeds`.
        """
        groups = [(n_rounds * env.num_envs + number) // self.group_size for number in range(env.num_envs)]
        if self.group_size > 1:
            while len(seeds) <= groups[-1]:
                seeds.append(int(self._shuffle_rng.integers(2**31)))
            env.unwrapped._seeds = [seeds[group] for group in groups]  # VecEnv.seed can only count up
        if self.group_size > 1 or not np.all(self._last_episode_starts):
            self._last_obs, self._pasts = env.reset(), []  # type: ignore[assignment]
        return groups

    def _warn_unless_alike(self, groups: list[int], begun: dict[int, Question]) -> None:
        """Warn if an episode begins unlike the first of its group, which is noted in `begun`."""
        if self.group_size == 1:
            return
        questions = parse_observation(self._last_obs)[0]
        if any(
            begun.setdefault(group, question) != question for group, question in zip(groups, questions, strict=True)
        ):
            warnings.warn(
                f"Expected the {self.group_size} episodes of a group to begin alike, reset with one seed; they differ, "
                "so that their returns are of different tasks. Fix: environments of one kind, whose reset(seed=...) "
                "determines the start.",
                RuntimeWarning,
                stacklevel=2,
            )

    def _states(self) -> list[Hashable]:
        """Return the state of each environment as its text, or `state_key` of it."""
        texts = [question.text for question in parse_observation(self._last_obs)[0]]
        return [text if self.state_key is None else self.state_key(text) for text in texts]

    def max_rollout_steps(self) -> int | None:
        """Return the most steps of one environment in a rollout; None if its episodes have no known limit."""
        if not self.whole_episodes:
            return int(self.n_steps)
        assert self.env is not None
        limits: list[Any] = [getattr(spec, "max_episode_steps", None) for spec in self.env.get_attr("spec")]
        for name in ("max_steps", "max_primitives", "max_attempts"):  # of lang_envs; an action is a primitive or more
            if None in limits and self.env.has_attr(name):
                limits = self.env.get_attr(name)
        if None in limits:
            return None
        limit = int(max(limits))
        if self.n_episodes is not None:
            return limit * int(self.n_episodes)
        rounds = int(self.group_size) // math.gcd(self.group_size, self.n_envs)  # whole groups, beyond n_steps
        return int(self.n_steps) + rounds * limit

    def _final_prompts(
        self, dones: NDArray[np.bool_], infos: list[dict[str, Any]], pasts: list[TokenIds]
    ) -> dict[int, TokenIds]:
        """Return the prompts of the true final observations of truncated episodes, by environment."""
        return {
            int(index): self.policy.prompts(infos[index]["terminal_observation"], pasts[index : index + 1])[0]
            for index in np.flatnonzero(dones)
            if infos[index].get("TimeLimit.truncated", False)
        }

    def _durations(self, infos: list[dict[str, Any]]) -> NDArray[np.float64]:
        """Return the time that each environment's action took, in units of `gamma`."""
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
                "Fix: correct the environment; nothing was learned from it."
            )
        return durations

    def train(self) -> None:
        """Update critic and policy: first the critic's epochs, then the policy's, fewer if `target_kl` stops them."""
        rate = self._scheduled("learning_rate", self.lr_schedule)
        critic_rate = self._scheduled("critic_learning_rate", self.critic_lr_schedule)
        # Evaluation mode: a base model's own dropout would make old and new log-probabilities differ.
        self.policy.set_training_mode(False)
        self._update_learning_rate([self.policy.optimizer])
        if not self._n_updates:
            warn_of_zero_rate(self.learning_rate, rate)
        if self.policy.critic_optimizer is not None:
            for group in self.policy.critic_optimizer.param_groups:
                group["lr"] = critic_rate
            self.logger.record("train/critic_learning_rate", critic_rate)
        clips = {name: self._clip_range_now(name) for name in ("clip_range", "clip_range_vf", "clip_range_high")}
        low, high = clips["clip_range"], clips["clip_range_high"]
        assert low is not None
        settings = PPOSettings.of(self, ratio=self._ratio)
        if not self.rollout_buffer.all_samples().is_decision.any():
            self._warn_once(
                "no decisions",
                "Expected a rollout in which some token was chosen among several; this one has none, so that the "
                "policy learns nothing from it. Fix: a larger top_k or top_p, an environment that lists more than one "
                "action, or with drop_truncated a longer time limit.",
            )
        # A part of an update cannot be taken back: once begun it is not begun again.
        self._update_is_due = self._is_consistent = False
        with self.stopwatch.timing("update"):
            now = Clips(low, clips["clip_range_vf"], low if high is None else high)
            logged = update(self.policy, self.rollout_buffer, settings, self._shuffle_rng, now)
        _warn_if_off_policy(logged.get("first_ratio_error", 0.0), self.policy.lm.is_full_precision)
        self._n_updates += self.n_epochs
        self._is_consistent = True
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        for name, clip in clips.items():
            if clip is not None and (name != "clip_range_vf" or self.policy.critic is not None):
                self.logger.record(f"train/{name}", clip)
        for name, value in logged.items():
            self.logger.record(f"train/{name}", value)
        for name, seconds in self.stopwatch.read().items():
            self.logger.record(f"time/seconds_{name}", seconds)
        self.stopwatch.restart()

    def _clip_range_now(self, name: str) -> float | None:
        """Return one of the clip ranges at the present progress."""
        given = getattr(self, name)
        return None if given is None else self._scheduled(name, schedule_of(name, given))

    def _scheduled(self, name: str, schedule: Schedule) -> float:
        """Return a number at the present progress, before anything is changed by it."""
        value = float(schedule(self._current_progress_remaining))
        if not 0 <= value < math.inf:
            raise ValueError(f"Expected {name} to stay a number of at least 0; its schedule gives {value}.")
        return value


def _without_end(info: dict[str, Any]) -> dict[str, Any]:
    """Return the info of a waiting environment, without the episode statistics: its episodes are not counted."""
    return {name: value for name, value in info.items() if name not in ("episode", "is_success")}


def _warn_if_off_policy(error: float, is_full_precision: bool) -> None:
    """Warn unless the first ratio of an update is 1, as it is when the sampled policy is the optimised one."""
    tolerance = RATIO_TOLERANCE if is_full_precision else ROUNDED_TOLERANCE
    if not error < tolerance:
        warnings.warn(
            f"Expected the first ratio of the update to be 1 within {tolerance}; it is off by {error:.2g}: the "
            "model scores an action differently when acting and when learning. Fix: run `poad doctor MODEL`.",
            RuntimeWarning,
            stacklevel=3,
        )
