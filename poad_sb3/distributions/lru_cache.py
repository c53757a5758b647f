"""`LRUCache`: a function with a picklable cache of its latest results."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class LRUCache(Generic[Key, Value]):
    """A function that remembers its results and evicts the least recently used.

    `functools.lru_cache` does the same and cannot be pickled.

    Args:
        compute: Function whose results are cached.
        maxsize: Maximum number of results that are kept.
    """

    def __init__(self, compute: Callable[[Key], Value], maxsize: int) -> None:
        self._compute, self._maxsize = compute, maxsize
        self._known: dict[Key, Value] = {}

    def __call__(self, key: Key) -> Value:
        """Return the result for `key`."""
        value = self._known.pop(key) if key in self._known else self._compute(key)
        if len(self._known) >= self._maxsize:
            del self._known[next(iter(self._known))]
        self._known[key] = value
        return value
