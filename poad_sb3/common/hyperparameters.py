"""Arguments of the algorithms: their names, presets, and useless combinations.

Importing this module imports no package of the `llm` extra.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

from lang_envs.text import nearest
from poad_sb3.errors import NoEffectWarning, PresetError
from poad_sb3.presets import ALGORITHMS, MERGED, PRESETS, Preset
from poad_sb3.settings import ModelSettings, PPOSettings, unknown_setting
from poad_sb3.settings.arguments import known_arguments
from poad_sb3.settings.sampling import AUTO, ActionSampling

if TYPE_CHECKING:
    import gymnasium as gym
    from stable_baselines3.common.vec_env import VecEnv

    from poad_sb3.common.on_policy_algorithm import LLMOnPolicyAlgorithm

Algorithm = TypeVar("Algorithm", bound="LLMOnPolicyAlgorithm")
Initializer = TypeVar("Initializer", bound=Callable[..., None])

MOVABLE = ("model", "revision")
"""Policy arguments for the location of the base model; its fingerprint is checked wherever that is."""

LARGE_MODEL = 200_000_000
"""Number of weights beyond which a learning rate of a small model gives a warning; 135 million learn with 2e-3."""
FOREIGN_MODEL = 20_000_000
"""Number of weights beyond which a temperature of 1 among listed actions gives a warning: no such model was made for
these tasks."""
SMALL_MODEL_RATE = 1e-3
"""Least learning rate that gives the warning."""


# ---------------------------------------------------------------------- arguments


def class_defaults(kind: type[LLMOnPolicyAlgorithm]) -> dict[str, Any]:
    """Return the defaults of a class where they differ from those of the constructor, its bases' first."""
    return {name: value for base in reversed(kind.__mro__) for name, value in vars(base).get("defaults", {}).items()}


def signature_with_defaults(kind: type[LLMOnPolicyAlgorithm], init: Callable[..., None]) -> inspect.Signature:
    """Return the signature of a constructor with the defaults of a class.

    Raises:
        TypeError: If the class has a default for an argument that does not exist.
    """
    signature, defaults = inspect.signature(init), class_defaults(kind)
    for name in defaults:
        if name not in signature.parameters:
            raise unknown_setting(name, signature.parameters, f" in the defaults of {kind.__name__}")
    _, *parameters = signature.parameters.values()
    return signature.replace(
        parameters=[
            parameter.replace(default=defaults.get(parameter.name, parameter.default)) for parameter in parameters
        ]
    )


def complete_arguments(init: Initializer) -> Initializer:
    """Decorate the constructor of `LLMOnPolicyAlgorithm`, so that it knows which arguments the user gave.

    The rest have the defaults of the class or of the preset of the model. Given ones that have no effect, or that
    seldom suit the model, give a warning.
    """
    signature = inspect.signature(init)

    @wraps(init)
    def wrapper(self: LLMOnPolicyAlgorithm, *args: Any, **kwargs: Any) -> None:
        from stable_baselines3.common.vec_env import VecEnv

        from poad_sb3.distributed.ranks import current_ranks
        from poad_sb3.vec_env.make_envs import make_envs

        kind = type(self)
        for name in kwargs:
            if name not in signature.parameters:
                raise unknown_setting(name, signature.parameters, f" of {kind.__name__}")
        given = dict(signature.bind(self, *args, **kwargs).arguments)
        del given["self"]
        explicit, env, preset, self._chosen_defaults = tuple(given), given["env"], None, ""
        if given.get("_model_preset", True) and env is not None:
            preset, self._chosen_defaults = model_preset(kind, env, given)
        if preset is not None:
            n_envs = None if isinstance(env, str) else env.num_envs if isinstance(env, VecEnv) else 1
            given, n_envs = with_model_preset(kind, preset, n_envs, given)
            if isinstance(env, str) and current_ranks().is_first:
                given["env"] = make_envs(env, {}, n_envs)
        init(self, **{name: _plain(value) for name, value in {**class_defaults(kind), **given}.items()})
        if given.get("_init_setup_model", True):
            self._warn_without_effect(explicit)
            warn_of_large_rate(self)
            warn_of_temperature(self)
            warn_of_bfloat16(self)

    return cast(Initializer, wrapper)


def _plain(value: object) -> object:
    """Return a value as a checkpoint brings it back: enumerations as words, tuples as lists."""
    if isinstance(value, StrEnum):
        return str(value)
    return list(value) if isinstance(value, tuple) else value


def check_arguments(
    kind: type[LLMOnPolicyAlgorithm], arguments: Mapping[str, Any], given: Iterable[str] | None = None
) -> None:
    """Check constructor arguments without loading a model.

    Args:
        kind: Class of the algorithm.
        arguments: Constructor arguments to check.
        given: Names of the arguments that must have an effect; all if None.

    Raises:
        PresetError: If an argument is unknown or would have no effect.
        ValueError: If a number is out of range.
    """
    of_policy = ModelSettings.defaults()
    for name in of_policy.keys() & arguments.keys():
        raise PresetError(f"Expected arguments of {kind.__name__}; {name} is one of its policy. Fix: {MERGED}.{name}.")
    accepted = known_arguments(kind)
    for owner, names, all_names in (
        ("arguments", arguments, accepted),
        (MERGED, arguments.get(MERGED) or {}, of_policy),
    ):
        for name in names:
            if name not in all_names:
                raise PresetError(f"Expected {owner} of {kind.__name__}; got {name!r}. {nearest(name, all_names)}")
    made = kind("LLMPolicy", None, _init_setup_model=False, **arguments)
    require_effects(made, arguments if given is None else given)


def warn_without_effect(made: LLMOnPolicyAlgorithm, given: Iterable[str]) -> None:
    """Warn of given arguments that differ from their defaults and have no effect, such as `group_size` of POAD."""
    defaults, useless = inspect.signature(type(made)).parameters, useless_arguments(made)
    for name in given:
        if name not in useless:
            continue
        value, default = getattr(made, name), defaults[name].default
        if value != (list(default) if isinstance(default, tuple) else default):  # tuples are lists as attributes
            message = f"{name}={value!r} has no effect: {useless[name]}. Fix: leave it out."
            warnings.warn(message, NoEffectWarning, stacklevel=4)


def warn_of_large_rate(made: LLMOnPolicyAlgorithm) -> None:
    """Warn of a large model with a learning rate that suits a small one, such as the default."""
    if made.lr_schedule(1.0) < SMALL_MODEL_RATE:
        return
    n_weights = made.policy.lm.n_weights
    if n_weights > LARGE_MODEL:
        warnings.warn(
            f"Expected a smaller learning_rate for a model of {n_weights / 1e6:,.0f} million weights; "
            f"{made.learning_rate} suits models of up to {LARGE_MODEL // 10**6} million. Fix: learning_rate=1e-4 to "
            "start with.",
            RuntimeWarning,
            stacklevel=3,
        )


def warn_of_temperature(made: LLMOnPolicyAlgorithm) -> None:
    """Warn of a model that was not made for the task and acts at temperature 1 among listed actions."""
    n_weights = made.policy.lm.n_weights
    writes = made.action_sampling in (ActionSampling.FREE, ActionSampling.THINK)
    if made.temperature == 1 and not writes and n_weights > FOREIGN_MODEL:
        warnings.warn(
            f"Expected a temperature of 4 to 8 for a model of {n_weights / 1e6:,.0f} million weights among listed "
            "actions; at 1 it begins sure of a few of them, and may learn only to avoid penalties. "
            "Fix: temperature=4.0.",
            RuntimeWarning,
            stacklevel=3,
        )


def warn_of_bfloat16(made: LLMOnPolicyAlgorithm) -> None:
    """Warn of a large model in bfloat16 on a processor that has no products in it."""
    from poad_sb3.language_model.loading import cpu_emulates_bfloat16

    base = made.policy.lm.base
    n_weights = made.policy.lm.n_weights
    is_rounded = made.device.type == "cpu" and str(base.dtype) == "torch.bfloat16" and n_weights > FOREIGN_MODEL
    if is_rounded and cpu_emulates_bfloat16():
        warnings.warn(
            "bfloat16 is several times slower than float32 on this processor, which has neither avx512_bf16 nor AMX. "
            'Fix: policy_kwargs={"dtype": "float32"}, unless memory is short.',
            RuntimeWarning,
            stacklevel=3,
        )


def useless_arguments(made: LLMOnPolicyAlgorithm) -> dict[str, str]:
    """Return the constructor arguments without effect in this algorithm, and why.

    Args:
        made: Algorithm. Without an environment, `action_sampling="auto"` counts as any value that it may become.
    """
    estimator = made.credit
    useless = _useless_in_sampling(made) | dict.fromkeys(estimator.ignores, f"the estimator is {estimator.described}")
    if made.ratio is None:
        useless.pop("credit_level", None)  # the unit of the ratio
    if made.n_episodes is not None:
        useless["n_steps"] = "a rollout is n_episodes whole episodes"
    if made.group_size > 1 and not made.whole_episodes:
        useless["group_size"] = "a rollout is n_steps steps, not whole episodes"
    if not estimator.compares_states:
        useless["state_key"] = "the baseline compares no states"
    if made.cispo_cap is not None:
        useless |= dict.fromkeys(("clip_range", "clip_range_high"), "cispo_cap replaces the clip")
    if not made.normalize_advantage:
        useless["min_advantage_std"] = "advantages are not normalised"
    if not estimator.has_critic:
        # `critic_trunk` decides on a copy of the weights in any case.
        of_critic = [f"{MERGED}.critic_{name}" for name in ("arch", "whitening", "init")]
        useless |= dict.fromkeys(of_critic, "the method has no critic")
    return useless


def _useless_in_sampling(made: LLMOnPolicyAlgorithm) -> dict[str, str]:
    """Return the arguments of sampling and of thoughts that have no effect in this algorithm, and why."""
    from poad_sb3.vec_env.text_observations import ActionKind, action_kind  # loads torch

    sampling, useless = made.action_sampling, dict[str, str]()
    if sampling not in (AUTO, ActionSampling.FREE):
        why = f"action_sampling is {sampling!r}, not 'free'"
        useless["generation_endpoint"] = why
        if sampling != ActionSampling.THINK:
            useless |= dict.fromkeys(["max_new_tokens", "top_k", "top_p", "stop"], why)
        elif made.env is not None and action_kind(made.env) is ActionKind.LISTED:
            useless |= dict.fromkeys(["max_new_tokens", "stop"], "the environment lists its actions")
    if sampling != ActionSampling.THINK:
        of_sampling = ["max_thought_tokens", "thought_marks", "keep_thoughts"]
        of_credit = ["gamma_thought", "gae_lambda_thought", "gae_alpha_thought", "thought_penalty", "thought_loss_coef"]
        useless |= dict.fromkeys([*of_sampling, *of_credit], f"action_sampling is {sampling!r}, not 'think'")
    elif (made.ratio or made.credit_level) != "token":
        useless["thought_loss_coef"] = "a thought and its action have one ratio"
    if made.generation_endpoint is None:
        useless["generation_requests"] = "there is no generation_endpoint"
    if sampling != ActionSampling.CANDIDATES:
        useless["candidate_normalization"] = f"action_sampling is {sampling!r}, not 'candidates'"
    return useless


def require_effects(made: LLMOnPolicyAlgorithm, given: Iterable[str]) -> None:
    """Refuse arguments without effect in this algorithm.

    Args:
        made: Algorithm, as in `useless_arguments`.
        given: Names of constructor arguments, or a mapping of arguments, whose `policy_kwargs` are then checked too.

    Raises:
        PresetError: If an argument has no effect.
    """
    useless = useless_arguments(made)
    nested = given.get(MERGED) if isinstance(given, Mapping) else None
    for name in [*given, *(f"{MERGED}.{key}" for key in nested or ())]:
        if name in useless:
            raise PresetError(
                f"Expected arguments that have an effect; {name} has none: {useless[name]}. Fix: leave it out."
            )


# ---------------------------------------------------------------------- presets


def preset(name: str, algorithm: str, *, n_envs: int | None = None) -> dict[str, Any]:
    """Return the constructor arguments of an algorithm by a preset, as a fresh dictionary.

    The actor's rates of the published presets belong to a 7-billion-parameter model with fp16 Adam. With fp32 LoRA
    weights, as here, start two orders of magnitude higher.

    Args:
        name: Key of `PRESETS`.
        algorithm: Name of one of the preset's algorithms.
        n_envs: Number of environments that step together; the preset's if None.

    Raises:
        PresetError: If there is no such preset, or it has no such algorithm.
    """
    entry = _find(name, algorithm)
    return _with_batch_size(entry, algorithm, n_envs, _laid_under(entry, algorithm, n_envs, {}))


def preset_arguments(
    kind: type[LLMOnPolicyAlgorithm], name: str, n_envs: int | None, overrides: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments of a preset with some replaced, checked against the constructor.

    Args:
        kind: Class of the algorithm to make.
        name: Key of `PRESETS`.
        n_envs: Number of environments that step together; the preset's if None.
        overrides: Arguments that replace those of the preset; `policy_kwargs` are laid over its own. With another
            `n_steps` the number of minibatches is kept.

    Raises:
        PresetError: If the preset or an argument is unknown, or a given argument would have no effect.
        ValueError: If a number is out of range.
    """
    algorithm = algorithm_of(kind)
    entry = _find(name, algorithm)
    arguments = _laid_under(entry, algorithm, n_envs, overrides)
    check_arguments(kind, arguments, overrides)
    return _with_batch_size(entry, algorithm, n_envs, arguments)


def from_preset(
    kind: type[Algorithm],
    name: str,
    env: gym.Env[Any, Any] | VecEnv | str,
    **overrides: Any,
) -> Algorithm:
    """Make an algorithm by a preset; `LLMOnPolicyAlgorithm.from_preset` is this.

    Args:
        kind: Class of the algorithm to make.
        name: Key of `PRESETS`.
        env: Environment, vector of environments, or id; for an id, the preset's number of environments is made.
        **overrides: Constructor arguments that replace those of the preset.

    Raises:
        PresetError: If the preset or an argument is unknown, or a given argument would have no effect.
        ValueError: If a number is out of range.
    """
    from stable_baselines3.common.vec_env import VecEnv

    from poad_sb3.vec_env.make_envs import make_envs

    policy = overrides.pop("policy", "LLMPolicy")
    n_envs = None if isinstance(env, str) else env.num_envs if isinstance(env, VecEnv) else 1
    arguments = preset_arguments(kind, name, n_envs, overrides)
    wanted = PRESETS[name].n_envs
    if n_envs not in (None, wanted) and PRESETS[name].default_for is None:
        warnings.warn(
            f"Preset {name} is for {wanted} environments; got {n_envs}, so a rollout has {n_envs / wanted:.2g} times "
            f"the actions. Fix: make_vec_env(id, {wanted}), the id alone, or another n_steps.",
            stacklevel=3,
        )
    vector = make_envs(env, {}, wanted) if isinstance(env, str) else env
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoEffectWarning)  # an error here
        made = kind(policy, vector, **arguments, _model_preset=False)
    require_effects(made, overrides)
    return made


def model_preset(
    kind: type[LLMOnPolicyAlgorithm], env: gym.Env[Any, Any] | VecEnv | str, given: Mapping[str, Any]
) -> tuple[str | None, str]:
    """Return the name of the preset that is the default for a model in an environment, and a remark for the log.

    Args:
        kind: Class of the algorithm to make.
        env: Environment, vector of environments, or id. Of environments in other processes the id is not known.
        given: Constructor arguments that the user gave.

    Returns:
        Name of the preset, None if there is none; the remark is empty for a model without any preset of its own.
    """
    settings = given.get(MERGED)
    model = settings.get("model") if isinstance(settings, Mapping) else None
    presets = {name: preset for name, preset in PRESETS.items() if model is not None and preset.default_for == model}
    if not presets:
        return None, ""
    env_id = _id_of(env)
    sampling = given.get("action_sampling", inspect.signature(kind).parameters["action_sampling"].default)
    for name, preset in presets.items():
        is_of_family = name.endswith(f"/{env_id.partition('-')[0].lower()}")
        if is_of_family and algorithm_of(kind) in preset.methods and sampling in (AUTO, ActionSampling.TRIE):
            return name, f"preset {name}"
    unknown = "" if env_id else "; the id of this environment is not known: from_preset names one"
    return None, f"the general defaults, tuned with the pocket model ({model} has {', '.join(presets)}{unknown})"


def with_model_preset(
    kind: type[LLMOnPolicyAlgorithm], name: str, n_envs: int | None, given: Mapping[str, Any]
) -> tuple[dict[str, Any], int]:
    """Lay a preset beneath the defaults of a user's subclass and the arguments that the user gave.

    Unlike `preset_arguments`, it leaves the check of the arguments to the constructor.

    Args:
        kind: Class of the algorithm to make.
        name: Key of `PRESETS`, from `model_preset`.
        n_envs: Number of environments that step together; the preset's if None.
        given: Constructor arguments that the user gave.

    Returns:
        All arguments, and the number of environments.

    Raises:
        ValueError: If `n_steps` is not a positive integer.
    """
    algorithm = algorithm_of(kind)
    above = list(kind.__mro__)[: [base.__name__ for base in kind.__mro__].index(algorithm)]
    defaults = {key: value for base in reversed(above) for key, value in vars(base).get("defaults", {}).items()}
    arguments = _laid_under(PRESETS[name], algorithm, n_envs, {**defaults, **given})
    PPOSettings.kinds()["n_steps"].check("n_steps", arguments["n_steps"])  # the batch size follows from it
    return _with_batch_size(PRESETS[name], algorithm, n_envs, arguments), n_envs or PRESETS[name].n_envs


def algorithm_of(kind: type[LLMOnPolicyAlgorithm]) -> str:
    """Return the name of the algorithm that a class is or derives from, as presets have it."""
    return next((base.__name__ for base in kind.__mro__ if base.__name__ in ALGORITHMS), kind.__name__)


def _id_of(env: gym.Env[Any, Any] | VecEnv | str) -> str:
    """Return the id of an environment, without its module; empty if it has none."""
    from stable_baselines3.common.vec_env import VecEnv

    if isinstance(env, str):
        return env.rpartition(":")[2]
    if isinstance(env, VecEnv):
        first = getattr(env.unwrapped, "envs", [None])[0]  # a spec that cannot be pickled would end another process
        return "" if first is None else _id_of(first)
    return str(getattr(getattr(env, "spec", None), "id", ""))


def _find(name: str, algorithm: str) -> Preset:
    if name not in PRESETS:
        raise PresetError(f"There is no preset {name!r}. {nearest(name, PRESETS)}")
    entry = PRESETS[name]
    if algorithm not in entry.methods:
        raise PresetError(f"Preset {name} is for {', '.join(entry.methods)}; got {algorithm}. Fix: give its arguments.")
    return entry


def _laid_under(preset: Preset, algorithm: str, n_envs: int | None, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a preset with some replaced.

    For other numbers of environments, a preset that is the default of a model keeps its number of actions in a rollout,
    about; a published one keeps its number of steps.
    """
    arguments = dict(preset.methods[algorithm])
    if preset.default_for is not None and n_envs is not None:
        arguments["n_steps"] = -(-arguments["n_steps"] * preset.n_envs // n_envs)
    return {**arguments, **overrides, MERGED: {**_copy(arguments.get(MERGED)), **_copy(overrides.get(MERGED))}}


def _with_batch_size(entry: Preset, algorithm: str, n_envs: int | None, arguments: dict[str, Any]) -> dict[str, Any]:
    """Add the batch size that gives the preset's number of minibatches, unless one is given."""
    rollout = arguments["n_steps"] * (entry.n_envs if n_envs is None else n_envs)
    # Rounded up: rounded down, the few actions that are left over would make one minibatch more.
    return {"batch_size": -(-rollout // entry.minibatches[algorithm]), **arguments}


def _copy(arguments: Mapping[str, Any] | None) -> dict[str, Any]:
    return {key: dict(value) if isinstance(value, Mapping) else value for key, value in (arguments or {}).items()}
