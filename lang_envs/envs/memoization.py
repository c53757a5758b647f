"""`Memo`: values that an environment computes once."""

from __future__ import annotations

from typing import Any, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class Memo(dict[Key, Value]):
    """A dictionary of computed values that stays out of copies: deep copies share it, pickles begin empty.

    Without it, a copy of an environment in mid-episode takes longer the more has been played.
    """

    def __deepcopy__(self, memo: dict[int, Any]) -> Memo[Key, Value]:
        return self

    def __reduce__(self) -> tuple[type[Memo[Key, Value]], tuple[()]]:
        return type(self), ()
