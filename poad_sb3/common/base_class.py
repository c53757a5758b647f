"""`LanguageModelAlgorithm`: the policy, the environments and checkpoints of every algorithm of this package."""

from __future__ import annotations

import inspect
import operator
import pickle
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, cast

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.type_aliases import MaybeCallback
from stable_baselines3.common.utils import check_for_correct_spaces, get_device
from stable_baselines3.common.vec_env import VecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvStepReturn

import lang_envs
from lang_envs.text import nearest
from poad_sb3.common import save_util as checkpoints
from poad_sb3.common.policies import TextPolicy
from poad_sb3.common.schedules import schedule_of
from poad_sb3.distributed.broadcast_vec_env import BroadcastVecEnv
from poad_sb3.distributed.callbacks import RankCallback
from poad_sb3.distributed.ranks import Ranks, current_ranks
from poad_sb3.distributed.sharding import whole
from poad_sb3.errors import CheckpointError, RankError, UnsupportedEnvError, WorkerError
from poad_sb3.language_model.loading import described
from poad_sb3.prompts import PromptSpec, prompt_template
from poad_sb3.prompts.specs import context_spec_of
from poad_sb3.prompts.templates import ContextSpec
from poad_sb3.vec_env.env_states import capture_envs, restore_envs
from poad_sb3.vec_env.text_observations import wrap_language_env

Self = TypeVar("Self", bound="LanguageModelAlgorithm")
_TYPES: Mapping[str, Any] = {
    **dict.fromkeys(
        ("num_timesteps", "_total_timesteps", "_num_timesteps_at_start", "_episode_num", "_n_updates"), int
    ),
    **dict.fromkeys(("_steps_since_update", "_whitened_at"), int),
    **dict.fromkeys(("ep_info_buffer", "ep_success_buffer"), deque | None),
    **dict.fromkeys(("_last_obs", "_last_original_obs", "_resume"), dict | None),
    "_last_episode_starts": np.ndarray | None,
    "action_noise": type(None),
    "_update_is_due": bool,
}
"""Types of the attributes in a checkpoint that are no settings."""


class LanguageModelAlgorithm(BaseAlgorithm):
    """SB3's algorithm around a language model: makes its policy, steps the environments, and resumes exactly.

    A checkpoint holds, beside SB3's members, the states of environments and random generators, and the state that
    subclasses add in `_capture` and `_restore`. Mixed in before the SB3 class that it makes resumable.
    """

    policy: TextPolicy
    env: VecEnv | None
    _shuffle_rng: np.random.Generator

    def __init__(
        self,
        policy: Any,
        env: gym.Env[Any, Any] | VecEnv | str | None,
        policy_kwargs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if not isinstance(policy_kwargs, Mapping | None):
            raise TypeError(
                f"Expected policy_kwargs to be a dict; got {policy_kwargs!r:.80}. "
                'Fix: policy_kwargs={"model": ...}, or leave it out.'
            )
        self.base_fingerprint: str | None = None
        self.base_name: str | None = None
        self._resume: dict[str, Any] | None = None
        self._gathered: dict[str, dict[str, Any]] | None = None
        self._envs_are_sound = True
        self._is_consistent = True  # False within a rollout, a step or an update
        self._context_spec = context_spec_of((policy_kwargs or {}).get("prompt", "auto"))
        if self.ranks.size > 1:
            _prepare(self.ranks, kwargs)
        # An id too is made here: SB3 would insist on render_mode="rgb_array".
        wrapped = None
        if env is not None:
            wrapped = self._wrap_env(env, kwargs.get("verbose", 0), context_spec=self._context_spec)
        super().__init__(policy, wrapped, policy_kwargs=policy_kwargs, **kwargs)

    @property
    def ranks(self) -> Ranks:
        """Processes of this training; see `poad_sb3.distributed`."""
        return current_ranks()

    def _get_policy_from_name(self, policy_name: str) -> type[BasePolicy]:
        if policy_name not in self.policy_aliases:
            raise self._unknown_policy(policy_name)
        return self.policy_aliases[policy_name]

    def _unknown_policy(self, policy: object) -> ValueError:
        alias = next(iter(self.policy_aliases))
        return ValueError(
            f"Expected policy to be one of {sorted(self.policy_aliases)} or a subclass of {alias}; "
            f'got {policy!r}. Fix: {type(self).__name__}("{alias}", env).'
        )

    def _make_policy(self, **arguments: Any) -> None:
        """Make the policy of `policy_kwargs` and of arguments that the algorithm gives it."""
        given = self.policy_class
        if not isinstance(given, type) or not issubclass(given, next(iter(self.policy_aliases.values()))):
            raise self._unknown_policy(given)
        kind: Any = given
        accepted = {*inspect.signature(kind.__init__).parameters, *kind.settings_taken} - {
            "self",
            "settings",
            *arguments,
        }
        accepted -= {"observation_space", "action_space", "lr_schedule", "use_sde", "device"}
        unknown = sorted(set(self.policy_kwargs) - accepted)
        if unknown:
            raise ValueError(
                f"Expected policy_kwargs among {sorted(accepted)}; got {unknown[0]!r}. {nearest(unknown[0], accepted)}"
            )
        if self.base_fingerprint is not None and self.ranks.size == 1 and self.policy_kwargs.get("fsdp"):
            self.policy_kwargs = {**self.policy_kwargs, "fsdp": False}  # a checkpoint of several ranks, in one process
        spaces = (self.observation_space, self.action_space)
        arguments["device"] = self.device
        policy = self.policy_class(*spaces, self.lr_schedule, **arguments, **self.policy_kwargs)
        self.policy = policy.to(self.device)  # type: ignore[assignment]
        self._shuffle_rng = np.random.default_rng(int(torch.randint(2**62, ())))
        self._check_fingerprint(self.base_fingerprint, self.base_name)
        self.base_fingerprint, self.base_name = self.policy.lm.fingerprint, self.policy.lm.source.name

    def _setup_lr_schedule(self) -> None:
        self.lr_schedule = schedule_of("learning_rate", self.learning_rate)

    def set_random_seed(self, seed: int | None = None) -> None:
        """Seed the process's generators, the spaces, the environments, and the generators of acting and shuffling."""
        seed = None if seed is None else operator.index(seed)  # Python's generator refuses NumPy's integers
        super().set_random_seed(seed)
        if seed is not None and hasattr(self, "policy"):
            # NumPy ignores zeros at the end of a seed: [seed, 0, 0], of a policy with this seed, would be that of the
            # first environment.
            self.policy.seed(int(np.random.SeedSequence([seed, 3]).generate_state(1, np.uint64)[0]))
            self._shuffle_rng = np.random.default_rng([seed, 2])

    def _update_current_progress_remaining(self, num_timesteps: int, total_timesteps: int) -> None:
        """Let schedules end at 0 where the last steps go beyond `total_timesteps`."""
        super()._update_current_progress_remaining(num_timesteps, total_timesteps)
        self._current_progress_remaining = max(0.0, self._current_progress_remaining)

    def _step_envs(self, step: Callable[[], VecEnvStepReturn]) -> VecEnvStepReturn:
        """Make one step of every environment.

        Args:
            step: Function that makes the step.

        Raises:
            FloatingPointError: If a reward is not finite.
            RuntimeError: If the process of an environment has ended.
        """
        self._last_obs, self._envs_are_sound = None, False  # until the step is known to be whole
        observations, rewards, dones, infos = step()
        self._last_obs, self._last_episode_starts, self._envs_are_sound = observations, dones, True  # type: ignore[assignment]
        if not np.isfinite(rewards).all():
            raise FloatingPointError(
                f"Expected finite rewards; got {rewards}. Fix: correct the environment; nothing was learned from it."
            )
        return observations, rewards, dones, infos

    def predict(
        self,
        observation: Any,
        state: tuple[NDArray[Any], ...] | None = None,
        episode_start: NDArray[np.bool_] | None = None,
        deterministic: bool = False,
        admissible_actions: Any = None,
    ) -> tuple[NDArray[np.int64], tuple[NDArray[Any], ...] | None]:
        """Choose environment actions, without exploring; see `LLMPolicy.predict`."""
        return self.policy.predict(observation, state, episode_start, deterministic, admissible_actions)

    def _warn_without_effect(self, given: Iterable[str]) -> None:
        """Warn of given arguments that differ from their defaults and have no effect."""

    def _check_settings(self) -> None:
        """Raise ValueError for arguments out of range."""

    def _capture(self) -> dict[str, Any]:
        """Return the state that is in no attribute; that of environments is unknown after an error in one."""
        # The weights are worth saving all the same.
        envs = None
        if self._envs_are_sound and self.env is not None:
            try:
                envs = capture_envs(self._own_env)
                pickle.dumps(envs)
            except WorkerError:
                envs = None
            except Exception as error:  # third-party environments may raise anything
                envs = None
                if self._last_obs is not None:
                    warnings.warn(
                        f"The states of the environments are not saved: get_state() raises {type(error).__name__}: "
                        f"{error}. Training will go on from a reset. Fix: a get_state() without arguments whose result "
                        "can be pickled.",
                        stacklevel=4,
                    )
        return {
            "envs": envs,
            "rng": checkpoints.capture_rng(),
            "rollout_rngs": [rng.bit_generator.state for rng in self.policy.rollout_rngs],
            "predict_rng": self.policy.predict_rng.bit_generator.state,
            "shuffle_rng": self._shuffle_rng.bit_generator.state,
        }

    def _restore(self, captured: dict[str, Any]) -> None:
        """Restore the state of `_capture`, except the parts that `learn` restores."""
        states = captured["rollout_rngs"]
        for rng, state in zip(self.policy.rngs_of(len(states)), states, strict=True):
            rng.bit_generator.state = state
        self.policy.predict_rng.bit_generator.state = captured["predict_rng"]
        self._shuffle_rng.bit_generator.state = captured["shuffle_rng"]

    @property
    def _own_env(self) -> VecEnv:
        """Environments without the ranks' wrapper; with several ranks, for rank 0 to use alone."""
        assert self.env is not None
        return self.env.own if isinstance(self.env, BroadcastVecEnv) else self.env

    def _leave_episodes(self) -> None:
        """Prepare for SB3's reset of the environments in the middle of their episodes."""

    def _is_exact(self, left_out: set[str]) -> bool:
        """Return whether training resumed from a checkpoint is the same as if it had never stopped."""
        # VecNormalize keeps running statistics that SB3 saves apart.
        has_envs = (self._resume or {}).get("envs") is not None
        return has_envs and self._is_consistent and self._vec_normalize_env is None

    def _check_fingerprint(self, saved: str | None, name: str | None) -> None:
        """Refuse a base model other than that of a checkpoint, which had this fingerprint and name."""
        if saved not in (None, self.policy.lm.fingerprint):
            of_checkpoint = "" if name is None else f"{described(name)} "
            raise CheckpointError(
                f"Expected the base model the checkpoint was written with, {of_checkpoint}with fingerprint "
                f"{str(saved)[:12]}; got {described(self.policy.lm.source.name)} with fingerprint "
                f"{self.policy.lm.fingerprint[:12]}. Its weights or vocabulary differ. "
                "Fix: restore that model at the path or revision in policy_kwargs, or train again."
            )

    def _check_prompt(self, spec: PromptSpec) -> None:
        """Refuse a prompt other than the one in the checkpoint, unless given in `policy_kwargs`."""
        template = self.policy.lm.prompter.template
        self._context_spec = template.context_spec
        if spec != "auto" and template != prompt_template(spec, self.policy.lm.tokenizer):
            raise CheckpointError(
                f"Expected the prompt the checkpoint was written with, {spec}; got {template.to_dict()}. "
                "Fix: name it in policy_kwargs: {'prompt': ...}."
            )

    @staticmethod
    def _wrap_env(
        env: Any,
        verbose: int = 0,
        monitor_wrapper: bool = True,
        context_spec: ContextSpec = ContextSpec(),  # noqa: B008 - immutable
    ) -> VecEnv:
        ranks = current_ranks()
        if isinstance(env, BroadcastVecEnv):
            return env
        # Other ranks leave theirs alone: it may be an id, or an environment that has not started anything.
        made = None
        if ranks.is_first:
            made = BaseAlgorithm._wrap_env(wrap_language_env(env, context_spec), verbose, monitor_wrapper)
        return BroadcastVecEnv(made, ranks) if ranks.size > 1 else cast(VecEnv, made)

    def set_env(self, env: gym.Env[Any, Any] | VecEnv | str, force_reset: bool | None = None) -> None:
        """Replace the environment.

        Args:
            env: New environment; spaces and number must be as before.
            force_reset: Whether the next `learn` starts with a reset. By default it does, except right after `load`,
                where the state in the checkpoint is put back.

        Raises:
            ValueError: If the number of environments differs.
        """
        env = self._wrap_env(env, self.verbose, context_spec=self._context_spec)
        if env.num_envs != self.n_envs:
            raise ValueError(
                f"Expected {self.n_envs} environments, as before; got {env.num_envs}. "
                "Fix: pass that many, or start a new model."
            )
        reset = self._resume is None if force_reset is None else force_reset
        super().set_env(env, reset)
        if reset:
            self._resume = None

    def _setup_learn(
        self,
        total_timesteps: int,
        callback: MaybeCallback = None,
        reset_num_timesteps: bool = True,
        tb_log_name: str = "run",
        progress_bar: bool = False,
    ) -> tuple[int, BaseCallback]:
        if self.env is None:
            raise UnsupportedEnvError("Expected an environment to learn in; got None. Fix: model.set_env(env) first.")
        resume = self._resume
        if resume is not None:
            has_begun = self._last_obs is not None or self.num_timesteps > 0  # else every environment is to be reset
            states = resume["envs"]
            with checkpoints.reading("the checkpoint"):
                restored = has_begun and self.ranks.on_rank_zero("restore", lambda: restore_envs(self._own_env, states))
            if restored:
                self.env.unwrapped._reset_seeds()  # those of `load`; every rank has some
            elif has_begun:
                self._last_obs = None
                if not reset_num_timesteps:
                    warnings.warn(
                        "The environments could not be put back where the checkpoint left them; training continues "
                        "from a reset (exact_resume=False). Fix: pass the same kind and number of environments, and "
                        "give them get_state() and set_state() if they have none.",
                        stacklevel=3,
                    )
            with checkpoints.reading("the checkpoint"):
                checkpoints.restore_rng(resume["rng"])
            self._resume = None
        self._envs_are_sound = True  # put back, or about to be reset
        if reset_num_timesteps or self._last_obs is None:
            self._leave_episodes()
        return super()._setup_learn(total_timesteps, callback, reset_num_timesteps, tb_log_name, progress_bar)

    def _init_callback(self, callback: MaybeCallback, progress_bar: bool = False) -> BaseCallback:
        if self.ranks.size == 1:
            return super()._init_callback(callback, progress_bar)
        return RankCallback(lambda: BaseAlgorithm._init_callback(self, callback, progress_bar), self, self.ranks)

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "_shuffle_rng", "_gathered"]

    def _get_torch_save_params(self) -> tuple[list[str], list[str]]:
        return ["policy", "policy.critic_optimizer"], []

    def save(
        self,
        path: checkpoints.Target,
        exclude: Iterable[str] | None = None,
        include: Iterable[str] | None = None,
    ) -> None:
        """Write a checkpoint; training resumed from it is the same, bit for bit, as without a stop.

        The file is written beside `path` and moved into place, so a crash leaves the previous checkpoint whole. After
        an interrupt or an error in a step or an update it holds the weights as they are; its header has
        `"exact_resume": false`.

        Args:
            path: Path (`.zip` is added) or binary file object.
            exclude: Attributes to leave out, as in SB3.
            include: Attributes to keep although they are left out by default, as in SB3.
        """
        gathered = self._gathered
        if self.policy.lm.is_sharded and not self.ranks.rank_zero_only:
            self._gathered = self._gather(keep=self.ranks.is_first)
        self.ranks.on_rank_zero("save", lambda: self._write(path, exclude, include))
        self._gathered = gathered

    def _write(self, path: checkpoints.Target, exclude: Iterable[str] | None, include: Iterable[str] | None) -> None:
        kept, self._resume = self._resume, self._resume or self._capture()
        header = {
            "format": checkpoints.FORMAT,
            "version": lang_envs.__version__,
            "algorithm": type(self).__name__,
            "num_timesteps": self.num_timesteps,
            "model": self.policy.lm.source.name,
            "action_sampling": getattr(self, "action_sampling", None),
            "prompt": self.policy.lm.prompter.template.to_dict(),
            "base_fingerprint": self.base_fingerprint,
            "exact_resume": self._is_exact(set(exclude or ()) - set(include or ())),
        }
        try:
            with checkpoints.atomic_target(path) as target:
                super().save(target, exclude, include)
                checkpoints.add_header(target, header)
        finally:
            self._resume = kept

    def get_parameters(self) -> dict[str, dict[str, Any]]:
        """Return the parameters as SB3 does. Gathers sharded weights, so that every rank has to call it.

        Raises:
            RankError: If rank 0 calls it alone.
        """
        if self._gathered is not None:
            return self._gathered
        if self.policy.lm.is_sharded and self.ranks.rank_zero_only:
            raise RankError(
                "Expected all ranks to save a model with fsdp=True; a callback saves on rank 0 alone. "
                "Fix: save in a rollout, where it waits for the boundary, or after learn()."
            )
        return self._gather(keep=True)

    def _gather(self, *, keep: bool) -> dict[str, dict[str, Any]]:
        """Return the parameters whole; ranks that do not keep them take part only."""
        parameters: dict[str, dict[str, Any]] = whole(super().get_parameters(), keep=keep)
        return parameters

    def set_parameters(
        self,
        load_path_or_dict: Any,
        exact_match: bool = True,
        device: torch.device | str = "auto",
    ) -> None:
        """Load weights and optimiser states in place; a damaged file or another base model leaves them unchanged."""
        if not isinstance(load_path_or_dict, dict):
            header = checkpoints.read_header(load_path_or_dict)
            self._check_fingerprint(header["base_fingerprint"], header.get("model"))
        super().set_parameters(load_path_or_dict, exact_match, device)

    @classmethod
    def load(
        cls: type[Self],
        path: checkpoints.Target,
        env: gym.Env[Any, Any] | VecEnv | str | None = None,
        device: torch.device | str = "auto",
        custom_objects: dict[str, Any] | None = None,
        print_system_info: bool = False,
        force_reset: bool = False,
        **kwargs: Any,
    ) -> Self:
        """Load a checkpoint.

        Args:
            path: Path or binary file object.
            env: Environment to continue in; its state is restored from the checkpoint at the next `learn`.
            device: Device to load to.
            custom_objects: See SB3.
            print_system_info: See SB3.
            force_reset: Whether to start from a reset instead. (SB3's default is True, because it cannot restore
                environments.)
            **kwargs: Constructor arguments to replace; `policy_kwargs` are laid over those in the checkpoint, so that
                `policy_kwargs={"model": folder}` finds a model that has moved. With a `seed`, all random generators are
                seeded again, and the environments start from a reset.

        Raises:
            CheckpointError: If the file is damaged, or the base model is not the one it was written with.
            ValueError: If an argument to replace is unknown or out of range.
        """
        header = checkpoints.read_header(path)
        written_by = header["algorithm"]
        if written_by != cls.__name__:
            raise CheckpointError(
                f"Expected a checkpoint of {cls.__name__}; got one of {written_by}, whose credit it would keep. "
                f"Fix: {written_by}.load."
            )
        parameters = inspect.signature(cls).parameters
        unknown = sorted(set(kwargs) - set(parameters))
        if unknown:
            raise ValueError(
                f"Expected constructor arguments of {cls.__name__} to replace; got {unknown[0]!r}. "
                f"{nearest(unknown[0], parameters)}"
            )
        prompt = header.get("prompt", "completion")
        if replaced := kwargs.pop("policy_kwargs", None):
            merged = {**checkpoints.read_data(path, "policy_kwargs")["policy_kwargs"], **replaced}
            prompt = merged.get("prompt", prompt)
            # SB3 would insist on equal ones; shapes and fingerprint are checked anyway.
            custom_objects = {**(custom_objects or {}), "policy_kwargs": merged}
        wrapped = None if env is None else cls._wrap_env(env, context_spec=context_spec_of(prompt))
        if wrapped is not None:
            check_for_correct_spaces(wrapped, **checkpoints.read_data(path, "observation_space", "action_space"))
        force_reset = force_reset or kwargs.get("seed") is not None
        device = get_device(device)
        faults_of_caller = (ValueError, TypeError, RuntimeError) if kwargs or custom_objects else ()
        with checkpoints.reading(path, *faults_of_caller):
            model = super().load(path, wrapped, device, custom_objects, print_system_info, force_reset, **kwargs)
            if not model.ranks.is_first:
                model.verbose, model.tensorboard_log = 0, None
            model._check_settings()
            model._warn_without_effect(kwargs)
            model._check_prompt(prompt)
            _check_types(vars(model))
            resume = model._resume
            if resume is not None:
                model._restore(resume)
        if resume is None:  # left out of the file: the environments are elsewhere
            model._last_obs = None
            return model
        if force_reset:
            model._resume = None
        if kwargs.get("seed") is not None:
            model.set_random_seed(kwargs["seed"])
        if "stats_window_size" in kwargs:
            model._stats_window_size = kwargs["stats_window_size"]
            for name in ("ep_info_buffer", "ep_success_buffer"):
                setattr(model, name, deque(getattr(model, name) or (), maxlen=model._stats_window_size))
        return model


def _check_types(attributes: Mapping[str, Any]) -> None:
    for name in sorted(_TYPES.keys() & attributes.keys()):
        if not isinstance(attributes[name], _TYPES[name]):
            raise TypeError(f"{name} is {attributes[name]!r:.80}")


def _prepare(ranks: Ranks, arguments: dict[str, Any]) -> None:
    """Give all ranks one seed, and let rank 0 alone print and log; refuse one GPU for all."""
    device = arguments.get("device", "auto")
    if ":" in str(device):
        raise ValueError(
            f"Expected a device without an index for {ranks.size} ranks, each on the GPU of its LOCAL_RANK; "
            f"got {str(device)!r}. Fix: device={str(device).partition(':')[0]!r}."
        )
    if arguments.get("seed") is None:
        arguments["seed"] = ranks.on_rank_zero("seed", lambda: int(np.random.default_rng().integers(2**31)))
    if not ranks.is_first:
        arguments.update(verbose=0, tensorboard_log=None)
