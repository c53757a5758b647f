"""The arguments that editors and type checkers know are those that the constructors take.

`python tests/poad_sb3/test_arguments.py` writes the file again.
"""

from __future__ import annotations

import inspect
from dataclasses import fields
from pathlib import Path
from typing import get_type_hints

from poad_sb3 import POAD
from poad_sb3.settings import CreditSettings, PPOSettings, SamplingSettings, arguments

ROOT = Path(__file__).parents[2]
PATH = ROOT / "poad_sb3" / "settings" / "arguments.py"
PLUMBING = {
    "stats_window_size": "int",
    "tensorboard_log": "str | None",
    "policy_kwargs": "Mapping[str, Any] | None",
    "verbose": "int",
    "seed": "int | None",
    "device": "Any",
    "_init_setup_model": "bool",
    "_model_preset": "bool",
}
HEAD = '''"""Names and types of the constructors' arguments, for editors and type checkers.

Written from the settings by `python tests/poad_sb3/test_arguments.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypedDict

__all__ = ["Arguments"]


class Arguments(TypedDict, total=False):
    """Arguments of the on-policy algorithms beside `policy` and `env`; described at the fields of the settings."""

'''


def written() -> str:
    kinds = (PPOSettings, CreditSettings, SamplingSettings)
    types = {one.name: str(one.type) for kind in kinds for one in fields(kind)} | PLUMBING
    return HEAD + "".join(f"    {name}: {types[name]}\n" for name in types)


def test_the_file_is_as_the_settings_have_it() -> None:
    assert PATH.read_text(encoding="utf-8") == written(), "Fix: python tests/poad_sb3/test_arguments.py"
    assert [*inspect.signature(POAD).parameters] == ["policy", "env", *get_type_hints(arguments.Arguments)]


if __name__ == "__main__":
    PATH.write_text(written(), encoding="utf-8")
