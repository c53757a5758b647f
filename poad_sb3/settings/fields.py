"""Fields of settings: a default, the allowed values, and one line of help."""

from __future__ import annotations

import math
import numbers
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TypeVar

from lang_envs.arguments import is_number
from lang_envs.text import nearest

Kind = TypeVar("Kind", bound="Settings")
_LINEAR = re.compile(r"lin_([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)")


@dataclass(frozen=True)
class Setting:
    """Values that a setting may have.

    Attributes:
        optional: Whether None is allowed.
    """

    optional: bool = False

    def check(self, name: str, value: Any) -> None:
        """Raise ValueError or TypeError for a value that is not allowed."""
        if not (self.optional and value is None):
            self._check(name, value)

    def _check(self, name: str, value: Any) -> None:
        raise NotImplementedError

    @property
    def allowed(self) -> str:
        """Allowed values in words, for tables."""
        raise NotImplementedError


@dataclass(frozen=True)
class Free(Setting):
    """Any value; the code that takes the value checks it."""

    described: str = ""

    def _check(self, name: str, value: Any) -> None:
        pass

    @property
    def allowed(self) -> str:
        """See `Setting.allowed`."""
        return self.described


@dataclass(frozen=True)
class Number(Setting):
    """A finite number: at least 0, above 0, or between 0 and 1."""

    zero: bool = True
    share: bool = False

    def _check(self, name: str, value: Any) -> None:
        if self.share:
            if not is_number(value) or not (value >= 0.0 if self.zero else value > 0.0) or value > 1.0:
                wanted = "between 0 and 1" if self.zero else "to be a number above 0, at most 1"
                raise ValueError(f"Expected {name} {wanted}; got {value!r}.")
        elif not is_number(value) or value < 0 or (value == 0 and not self.zero):
            raise ValueError(f"Expected {name} to be a {self.allowed}; got {value!r}.")

    @property
    def allowed(self) -> str:
        """See `Setting.allowed`."""
        if self.share:
            return "0 to 1" if self.zero else "above 0, at most 1"
        return "non-negative number" if self.zero else "positive number"


@dataclass(frozen=True)
class Count(Setting):
    """An integer of at least `least`."""

    least: int = 1

    def _check(self, name: str, value: Any) -> None:
        if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < self.least:
            wanted = "a positive integer" if self.least else "an integer, 0 or more"
            wanted += " or None" if self.optional else ""
            raise ValueError(f"Expected {name} to be {wanted}; got {value!r}. Fix: leave {name} out.")

    @property
    def allowed(self) -> str:
        """See `Setting.allowed`."""
        return f"integer of at least {self.least}"


@dataclass(frozen=True)
class Counts(Setting):
    """A sequence of positive integers, which may be empty."""

    def _check(self, name: str, value: Any) -> None:
        is_sequence = isinstance(value, Sequence) and not isinstance(value, str)
        if not is_sequence or not all(
            isinstance(item, int) and not isinstance(item, bool) and item > 0 for item in value
        ):
            raise TypeError(f"Expected {name} to be a sequence of positive integers; got {value!r}. Fix: {name}=(64,).")

    @property
    def allowed(self) -> str:
        """See `Setting.allowed`."""
        return "sequence of positive integers"


@dataclass(frozen=True)
class Flag(Setting):
    """True or False."""

    def _check(self, name: str, value: Any) -> None:
        if not isinstance(value, bool):
            raise TypeError(f"Expected {name} to be True or False; got {value!r}.")

    @property
    def allowed(self) -> str:
        """See `Setting.allowed`."""
        return "True, False"


@dataclass(frozen=True)
class Choice(Setting):
    """One of some words."""

    words: Sequence[str] = ()

    def _check(self, name: str, value: Any) -> None:
        if value not in self.words:
            raise ValueError(f"Expected {name} to be one of {[*map(str, self.words)]}; got {value!r}.")

    @property
    def allowed(self) -> str:
        """See `Setting.allowed`."""
        return ", ".join(f'"{word}"' for word in self.words)


@dataclass(frozen=True)
class Texts(Setting):
    """A sequence of texts, none of them empty."""

    def _check(self, name: str, value: Any) -> None:
        is_sequence = isinstance(value, Sequence) and not isinstance(value, str)
        if not is_sequence or not all(isinstance(item, str) and item for item in value):
            raise TypeError(f"Expected {name} to be texts, none of them empty; got {value!r}. Fix: {name}=[...].")

    @property
    def allowed(self) -> str:
        """See `Setting.allowed`."""
        return "texts"


@dataclass(frozen=True)
class Rate(Setting):
    """A number, `"lin_NUMBER"` (falls from it to 0 during training), or a function of the progress remaining (1 to 0).

    Attributes:
        zero: Whether the rate may be 0 at the start.
    """

    zero: bool = True

    def _check(self, name: str, value: Any) -> None:
        if callable(value):
            return
        start = linear_start(value) if isinstance(value, str) else float(value) if is_number(value) else math.nan
        if not 0 <= start < math.inf or (start == 0 and not self.zero):
            bound, example = ("a number of at least 0", "lin_3e-3") if self.zero else ("a positive number", "lin_0.2")
            raise ValueError(
                f"Expected {name} to be {bound}, one that falls to 0 during training ({example!r}), or a "
                f"function of the progress remaining; got {value!r}."
            )

    @property
    def allowed(self) -> str:
        """See `Setting.allowed`."""
        return 'number, `"lin_NUMBER"` or function'


def linear_start(rate: str) -> float:
    """Return NUMBER of `"lin_NUMBER"`, as RL Baselines3 Zoo writes it; NaN for other text."""
    match = _LINEAR.fullmatch(rate)
    return float(match[1]) if match else math.nan


def setting(default: Any, kind: Setting, help: str) -> Any:
    """Declare a setting.

    Args:
        default: Default of the setting.
        kind: Allowed values of the setting.
        help: Help in one line; shown in the tables of the docs.
    """
    metadata = {"kind": kind, "help": help}
    if isinstance(default, Mapping):
        return field(default_factory=lambda: dict(default), metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Settings:
    """Settings whose values are checked one by one on construction."""

    def __post_init__(self) -> None:
        for attribute in fields(self):
            attribute.metadata["kind"].check(attribute.name, getattr(self, attribute.name))

    @classmethod
    def of(cls: type[Kind], owner: Any, **values: Any) -> Kind:
        """Create the settings from attributes of the same names.

        Args:
            owner: Object with the attributes.
            **values: Values that replace those attributes.
        """
        return cls(**{attribute.name: getattr(owner, attribute.name) for attribute in fields(cls)} | values)

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """Return the default of each setting."""
        return {
            attribute.name: attribute.default if attribute.default_factory is MISSING else attribute.default_factory()
            for attribute in fields(cls)
        }

    @classmethod
    def help(cls) -> dict[str, str]:
        """Return the line of help of each setting."""
        return {attribute.name: attribute.metadata["help"] for attribute in fields(cls)}

    @classmethod
    def kinds(cls) -> dict[str, Setting]:
        """Return the allowed values of each setting."""
        return {attribute.name: attribute.metadata["kind"] for attribute in fields(cls)}


def split_settings(given: Mapping[str, Any], *kinds: type[Settings]) -> list[dict[str, Any]]:
    """Split the given settings by their dataclass, and fill in its defaults.

    Raises:
        TypeError: If no dataclass has a setting of a given name.
    """
    names = [name for kind in kinds for name in kind.defaults()]
    for name in given:
        if name not in names:
            raise unknown_setting(name, names)
    return [{**kind.defaults(), **{name: given[name] for name in kind.defaults() if name in given}} for kind in kinds]


def unknown_setting(name: str, names: Iterable[str], of: str = "") -> TypeError:
    """Return the error for an argument that does not exist."""
    return TypeError(f"Expected arguments{of}; {name!r} is none. {nearest(name, names)}")
