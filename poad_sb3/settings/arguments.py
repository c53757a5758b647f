"""Constructor arguments of an algorithm: their names, and their values as JSON."""

from __future__ import annotations

import inspect
import json
from typing import Any

PRIVATE = ("_init_setup_model", "_model_preset")
"""Constructor arguments that are not for users."""


def known_arguments(kind: type[Any]) -> dict[str, Any]:
    """Return the constructor arguments of an algorithm with their defaults, but policy, environment and SB3's own."""
    parameters = inspect.signature(kind).parameters
    return {name: item.default for name, item in parameters.items() if name not in ("policy", "env", *PRIVATE)}


def effective_arguments(model: Any) -> dict[str, Any]:
    """Return the constructor arguments of an algorithm with their present values, as JSON values.

    The seed is left out, as it has its own field; so are device, verbosity and the folder for TensorBoard.
    """
    excluded = ("seed", "verbose", "tensorboard_log", "device")
    names = [name for name in known_arguments(type(model)) if name not in excluded]
    attributes = vars(model)
    plain = {
        name: attributes.get(name, attributes.get(f"_{name}")) for name in names
    }  # SB3 keeps one behind an underscore
    values: dict[str, Any] = json.loads(json.dumps(plain, default=str))
    return values
