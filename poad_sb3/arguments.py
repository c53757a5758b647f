"""Constructor arguments: which there are, what a command line's text for them means, and whether they have an effect.

Importing this module imports nothing of the `llm` extra.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from poad_sb3.errors import PoadError
from poad_sb3.schedules import SCHEDULED, is_linear

if TYPE_CHECKING:
    from poad_sb3.on_policy import LLMOnPolicyAlgorithm

__all__ = [
    "MERGED",
    "MOVABLE",
    "PresetError",
    "check_arguments",
    "known_arguments",
    "nearest",
    "require_effects",
    "typed_arguments",
]

MERGED = "policy_kwargs"
"""The argument that is itself arguments: given ones are laid over those of a preset."""

MOVABLE = ("model", "revision")
"""Policy arguments that say where the base model is; its fingerprint is checked wherever that is."""

_WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
"""What a boolean may be called, in any case."""


class PresetError(PoadError, ValueError):
    """A preset or an argument that does not exist, or that would have no effect."""


def known_arguments(kind: type[Any]) -> dict[str, Any]:
    """Constructor arguments of a class and of those it passes `**arguments` on to, with their defaults.

    Policy, environment and what SB3 keeps for itself are not among them.
    """
    known: dict[str, Any] = {}
    for base in kind.__mro__:
        if "__init__" not in vars(base):
            continue
        parameters = list(inspect.signature(vars(base)["__init__"]).parameters.values())
        named = [one for one in parameters if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
        known = {one.name: one.default for one in named} | known
        if not any(one.kind is one.VAR_KEYWORD for one in parameters):
            break
    return {
        name: default for name, default in known.items() if name not in ("self", "policy", "env", "_init_setup_model")
    }


def typed_arguments(kind: type[LLMOnPolicyAlgorithm], given: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments from a command line with the types of their defaults.

    Text that stands for a boolean becomes one; where the default is a boolean or a number, other text is refused, since
    any text would pass for True. Unknown arguments are left as they are.

    Args:
        kind: The class.
        given: Constructor arguments; those in `policy_kwargs` are treated in the same way.

    Raises:
        PresetError: If a value cannot be what the argument is.
    """
    defaults = known_arguments(kind)
    typed: dict[str, Any] = {name: _typed(name, value, defaults.get(name)) for name, value in given.items()}
    settings = typed.get(MERGED)
    if not isinstance(settings, dict | None):
        raise PresetError(f"Expected {MERGED} to be a mapping; got {settings!r}. Fix: {MERGED}.NAME=VALUE.")
    if settings is not None:
        policy = inspect.signature(kind.policy_aliases["LLMPolicy"]).parameters
        own = {name: one.default for name, one in policy.items()}
        typed[MERGED] = {name: _typed(f"{MERGED}.{name}", value, own.get(name)) for name, value in settings.items()}
    return typed


def _typed(name: str, value: object, default: object) -> object:
    word = value.lower() if isinstance(value, str) else None
    if not isinstance(default, bool | int | float):
        return value
    if word == "none":
        return None
    if isinstance(default, bool):
        value = value if word is None else _WORDS.get(word, value)
        if not isinstance(value, bool):
            raise PresetError(f"Expected {name} to be true or false; got {value!r}.")
    elif isinstance(value, str | bool):
        if name in SCHEDULED and is_linear(value):
            return value
        wanted = "a number, or one that falls to 0 ('lin_3e-3')" if name in SCHEDULED else "a number"
        raise PresetError(f"Expected {name} to be {wanted}; got {value!r}.")
    return value


def check_arguments(
    kind: type[LLMOnPolicyAlgorithm], arguments: Mapping[str, Any], given: Iterable[str] | None = None
) -> None:
    """Check constructor arguments without loading a model.

    Args:
        kind: The class.
        arguments: Those it would be made with.
        given: Those of them that must have an effect; all if None.

    Raises:
        PresetError: For an unknown argument, or one that would have no effect.
        ValueError: For numbers out of range.
    """
    known = known_arguments(kind)
    own = {"observation_space", "action_space", "lr_schedule", "critic_lr_schedule", "use_sde", "device"}
    of_policy = set(inspect.signature(kind.policy_aliases["LLMPolicy"]).parameters) - own - known.keys()
    for name in of_policy.intersection(arguments):
        raise PresetError(f"Expected arguments of {kind.__name__}; {name} is one of its policy. Fix: {MERGED}.{name}.")
    _require_known("arguments", kind.__name__, arguments, known)
    _require_known(MERGED, kind.__name__, arguments.get(MERGED) or {}, of_policy)
    made = kind("LLMPolicy", None, _init_setup_model=False, **arguments)
    require_effects(made, arguments if given is None else given)


def require_effects(made: LLMOnPolicyAlgorithm, given: Iterable[str]) -> None:
    """Refuse arguments that change nothing in an algorithm as it was made.

    Args:
        made: The algorithm. Without an environment, `action_sampling="auto"` counts as any way that it may become.
        given: Names of constructor arguments.

    Raises:
        PresetError: If one has no effect.
    """
    for name in given:
        why = _why_useless(name, made)
        if why:
            raise PresetError(f"Expected arguments that have an effect; {name} has none: {why}. Fix: leave it out.")


def nearest(word: str, known: Iterable[str]) -> str:
    """What to say of a word that is not known: similar ones, or all."""
    known = sorted(known)
    near = difflib.get_close_matches(word, known, n=3, cutoff=0.5)
    return f"Did you mean {' or '.join(near)}?" if near else f"Known: {', '.join(known)}."


def _require_known(what: str, owner: str, given: Iterable[str], known: Iterable[str]) -> None:
    known = set(known)
    for name in given:
        if name not in known:
            raise PresetError(f"Expected {what} of {owner}; got {name!r}. {nearest(name, known)}")


def _why_useless(name: str, made: LLMOnPolicyAlgorithm) -> str | None:
    """Why an argument changes nothing in an algorithm as it was made; None if it does."""
    not_free = (
        made.action_sampling not in ("free", "auto"),
        f"action_sampling is {made.action_sampling!r}, not 'free'",
    )
    reasons = {
        "gamma_token": (made.credit_level == "action", "credit is of whole actions"),
        "gae_lambda_token": (made.credit_level == "action", "credit is of whole actions"),
        "bootstrap": (made.credit_level == "action", "credit is of whole actions"),
        "candidate_normalization": (
            made.action_sampling != "candidates",
            f"action_sampling is {made.action_sampling!r}, not 'candidates'",
        ),
        **dict.fromkeys(("max_new_tokens", "temperature", "top_k", "top_p", "stop"), not_free),
        "min_advantage_std": (not made.normalize_advantage, "advantages are not normalised"),
    }
    useless, why = reasons.get(name, (False, ""))
    return why if useless else None
