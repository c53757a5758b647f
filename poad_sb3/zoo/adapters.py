"""Files of adapters: the trained weights of an agent and its settings, as safetensors, which hold no code.

A checkpoint of `save` holds optimisers, generators and environments too, and is pickled in parts. An adapter is for
acting, and may come from others.
"""

from __future__ import annotations

import hashlib
import json
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import torch
from safetensors import safe_open
from safetensors.torch import save_file

import lang_envs
from lang_envs.errors import LangEnvsError
from lang_envs.files import replacing
from lang_envs.report.schemas import WrongValueError, compile_schema
from poad_sb3.errors import CheckpointError, NoEffectWarning, PoadError
from poad_sb3.language_model import smollm2
from poad_sb3.pocket import SHIPPED_MODELS
from poad_sb3.settings.arguments import effective_arguments, recorded_arguments
from poad_sb3.vec_env.make_envs import make_envs

FORMAT = 1
_KEY = "poad"
_CRITIC = "critic."
_LONGEST = 300
"""Maximum number of characters of another library's error that are shown."""
_TEXT, _MAPPING, _MAYBE_MAPPING = {"type": "string"}, {"type": "object"}, {"type": ["object", "null"]}
_POLICY = {"type": ["object", "null"], "properties": {"lora": _MAYBE_MAPPING, "model": _TEXT}}
_FIELDS: dict[str, dict[str, Any]] = {
    "algorithm": _TEXT,
    "num_timesteps": {"type": "integer", "minimum": 0},
    "env_id": _TEXT,
    "env_kwargs": _MAPPING,
    "n_envs": {"type": "integer", "minimum": 1},
    "arguments": {**_MAPPING, "properties": {"policy_kwargs": _POLICY}},
    "base_fingerprint": _TEXT,
    "prompt": _MAPPING,
}
_check_about = compile_schema({**_MAPPING, "required": list(_FIELDS), "properties": _FIELDS})
_FOREIGN: Mapping[str, frozenset[str]] = {
    "policy_kwargs": frozenset(
        {"model", "revision", "lora", "dtype", "prompt", "critic_trunk", "critic_arch", "critic_whitening"}
        | {"critic_init", "max_tokens_per_forward", "gradient_checkpointing"}
    ),
    "policy_kwargs.lora": frozenset({"r", "lora_alpha", "lora_dropout", "bias", "target_modules", "use_rslora"}),
}
"""Settings that a download may have: others of transformers and peft can name modules to import."""
_LARGEST_NUMBER = 32_768
"""Largest number among the arguments of the environment of a download."""
_SIZES: dict[str, dict[str, Any]] = {
    "n_envs": {"type": "integer", "maximum": 256},
    "micro_batches": {"type": "integer", "maximum": 1_024},
    "max_tokens_per_forward": {"type": ["integer", "null"], "maximum": _LARGEST_NUMBER},
    "max_new_tokens": {"type": "integer", "maximum": _LARGEST_NUMBER},
    "max_thought_tokens": {"type": "integer", "maximum": _LARGEST_NUMBER},
    "lora": {**_MAYBE_MAPPING, "properties": {"r": {"type": "integer", "maximum": 1_024}}},
    "critic_arch": {"type": "array", "items": {"type": "integer", "maximum": 4_096}, "maxItems": 8},
}
"""Bounds of the settings of a download that memory follows: its tensors are compared once the model is made."""
_check_sizes = compile_schema({**_MAPPING, "properties": _SIZES})


def write_adapter(model: Any, path: Path, *, critic: bool = False) -> None:
    """Write the trained weights of an on-policy algorithm and its constructor arguments; the file is moved into place.

    Args:
        model: Algorithm with its environment.
        path: Path of the file.
        critic: Whether to write the critic too, for trainings that go on; the pocket model's is 40 times larger than
            its adapter.

    Raises:
        CheckpointError: If one of its settings is a function.
    """
    spec = model.env.get_attr("spec", indices=[0])[0]
    registered = gym.spec(spec.id).kwargs
    about = {
        "format": FORMAT,
        "version": lang_envs.__version__,
        "algorithm": type(model).__name__,
        "num_timesteps": model.num_timesteps,
        "env_id": spec.id,
        "env_kwargs": {name: value for name, value in spec.kwargs.items() if registered.get(name) != value},
        "n_envs": model.n_envs,
        "arguments": {**effective_arguments(model), "generation_endpoint": None},
        "base_fingerprint": model.base_fingerprint,
        "prompt": model.policy.lm.prompter.template.to_dict(),
    }
    given = {**{name: getattr(model, name, None) for name in about["arguments"]}, **model.policy_kwargs}
    if functions := [name for name, value in given.items() if callable(value)]:
        raise CheckpointError(
            f"Expected settings that a file without code can hold; {functions[0]} is a function. "
            "Fix: a number or a text such as 'lin_2e-3', a model by its name, or save() for a checkpoint."
        )
    tensors = {
        name: tensor.detach().cpu().clone()
        for name, tensor in model.get_parameters()["policy"].items()
        if critic or not name.startswith(_CRITIC)
    }
    with replacing(path) as draft:
        save_file(tensors, draft, {_KEY: json.dumps(about)})
    path.chmod(0o644)  # safetensors makes files for their owner alone


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_adapter(path: Path, sha256: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings in the file of an adapter, and its tensors.

    Args:
        path: Path of the file.
        sha256: Digest that it must have.

    Raises:
        CheckpointError: If it is damaged, or no adapter of this version of the layout.
    """
    if digest_of(path) != sha256:
        raise CheckpointError(
            f"Expected the adapter of SHA-256 {str(sha256)[:12]}; {path} has another. Fix: get or train it again."
        )
    try:
        with safe_open(path, "pt") as file:
            about = json.loads((file.metadata() or {})[_KEY])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
        if about["format"] != FORMAT:
            raise ValueError(f"layout {about['format']} of lang-envs {about.get('version')}")
        _check_about(about)
        if damaged := [name for name, tensor in tensors.items() if not torch.isfinite(tensor).all()]:
            raise ValueError(f"{damaged[0]} is not finite")
    except Exception as error:  # a foreign file may raise anything
        raise CheckpointError(
            f"Expected an adapter of layout {FORMAT}; {path} cannot be read ({str(error)[:_LONGEST]}). "
            "Fix: get or train it again."
        ) from error
    return about, tensors


def require_harmless(about: Mapping[str, Any]) -> None:
    """Refuse settings of a download that could run code, reach for more than its base model, or fill the memory.

    Raises:
        CheckpointError: If there are any.
    """
    arguments = about["arguments"]
    policy = arguments.get("policy_kwargs") or {}
    for owner, names in (("policy_kwargs", policy), ("policy_kwargs.lora", policy.get("lora") or {})):
        if unknown := sorted(names.keys() - _FOREIGN[owner]):
            raise CheckpointError(
                f"Expected {owner} of an agent from the hub among {sorted(_FOREIGN[owner])}; got {unknown[0]!r}. "
                "Fix: pass agents with other settings on as checkpoints, among people who trust each other."
            )
    try:
        _check_sizes({**arguments, **policy, "n_envs": about["n_envs"]})
    except WrongValueError as error:
        raise CheckpointError(
            f"Expected an agent of moderate size from the hub; {error}. "
            "Fix: pass larger agents on as checkpoints, among people who trust each other."
        ) from error


def require_public(model: str) -> None:
    """Refuse the base model of a download that is neither one of this package nor an id of the hub, but a local path.

    Raises:
        CheckpointError: If it is.
    """
    if model in (*SHIPPED_MODELS, smollm2.NAME):
        return
    if not re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)?", model) or Path(model).exists():
        raise CheckpointError(
            f"Expected a model of this package or of the hub in an agent from the hub; got {model!r}, a local path. "
            "Fix: if it is the model that you have there, policy_kwargs={'model': ...}."
        )


def load_adapter(
    kind: Any, path: Path, sha256: str | None, *, env: Any = None, foreign: bool = False, **given: Any
) -> Any:
    """Return an algorithm with the weights of an adapter, ready to act. A critic that is not in the file is untrained.

    Args:
        kind: Class of the algorithm, or derived from it.
        path: Path of the file.
        sha256: Digest that it must have.
        env: Environment; made by the settings in the file if None.
        foreign: Whether the file is a download.
        **given: Constructor arguments that replace those in the file; `policy_kwargs` are laid over its own.

    Raises:
        CheckpointError: If the file is damaged, of another algorithm or of another base model, if its settings are
            refused, or if a download asks for settings that it may not have.
    """
    about, tensors = read_adapter(path, sha256)
    if about["algorithm"] not in [base.__name__ for base in kind.__mro__]:
        raise CheckpointError(
            f"Expected an agent of {kind.__name__}; got one of {about['algorithm']}. "
            f"Fix: the same method of poad_sb3.{about['algorithm']}."
        )
    if unknown := sorted(about["arguments"].keys() - set(recorded_arguments(kind))):
        raise CheckpointError(
            f"Expected the arguments of {kind.__name__} that an adapter records; got {unknown[0]!r} in {path}. "
            "Fix: install the version that wrote it, or train it again."
        )
    recorded = about["arguments"].get("policy_kwargs") or {}
    replaced = given.pop("policy_kwargs", None) or {}
    if foreign:
        require_harmless(about)
        if "model" in recorded and "model" not in replaced:
            require_public(recorded["model"])
    if env is None and foreign:
        are_numbers = all(
            isinstance(value, int | float) and abs(value) <= _LARGEST_NUMBER for value in about["env_kwargs"].values()
        )
        if about["env_id"] not in gym.registry or not are_numbers:
            raise CheckpointError(
                f"Expected a registered environment, with numbers up to {_LARGEST_NUMBER:,} as its arguments, in an "
                f"agent from the hub; got {about['env_id']} with {about['env_kwargs']}. "
                "Fix: if you trust them, env=gym.make(...)."
            )
    policy_kwargs = {**recorded, **replaced}
    arguments = {**about["arguments"], "generation_endpoint": None, **given, "policy_kwargs": policy_kwargs}
    try:
        if env is None:
            env = make_envs(about["env_id"], about["env_kwargs"], about["n_envs"])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoEffectWarning)  # said when it was trained
            model = kind("LLMPolicy", env, **arguments, _model_preset=False)
        model._check_fingerprint(about["base_fingerprint"], recorded.get("model"))
        if "prompt" not in policy_kwargs:
            model._check_prompt(about["prompt"])
    except (PoadError, LangEnvsError):
        raise
    except Exception as error:  # values of a foreign file may raise anything
        cause = f"{type(error).__name__}: {str(error).partition(' Fix: ')[0][:_LONGEST].rstrip('.')}"
        raise CheckpointError(
            f"Expected settings that {kind.__name__} and {about['env_id']} accept in {path}; got {cause}. "
            "Fix: another argument if you gave one, else get or train the agent again."
        ) from error
    weights = model.policy.state_dict()
    fresh = {name: tensor for name, tensor in weights.items() if name.startswith(_CRITIC) and name not in tensors}
    try:
        model.policy.load_state_dict({**fresh, **tensors})
    except RuntimeError as error:
        raise CheckpointError(f"{path} does not fit. {error}") from error
    model.num_timesteps = about["num_timesteps"]
    return model
