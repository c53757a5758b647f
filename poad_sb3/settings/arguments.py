"""Constructor arguments of an algorithm: their names, and their values as JSON."""

from __future__ import annotations

import inspect
import json
from typing import Any

PRIVATE = ("_init_setup_model", "_model_preset")
"""Constructor arguments that are not for users."""
_OF_PROCESS = ("seed", "verbose", "tensorboard_log", "device")
"""Constructor arguments of a process, and the seed, which has its own field."""


def known_arguments(kind: type[Any]) -> dict[str, Any]:
    """Return the constructor arguments of an algorithm with their defaults, but policy, environment and SB3's own."""
    parameters = inspect.signature(kind).parameters
    return {name: item.default for name, item in parameters.items() if name not in ("policy", "env", *PRIVATE)}


def recorded_arguments(kind: type[Any]) -> list[str]:
    """Return the names of the constructor arguments that are recorded with a training.

    The seed is left out, as it has its own field; so are device, verbosity and the folder for TensorBoard.
    """
    return [name for name in known_arguments(kind) if name not in _OF_PROCESS]


def effective_arguments(model: Any) -> dict[str, Any]:
    """Return the recorded arguments of an algorithm with their present values, as JSON values."""
    attributes = vars(model)
    plain = {
        name: attributes.get(name, attributes.get(f"_{name}")) for name in recorded_arguments(type(model))
    }  # SB3 keeps one behind an underscore
    values: dict[str, Any] = json.loads(json.dumps(plain, default=str))
    return values
