"""The arguments of `DataSciCodingEnv`: validation and meaning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lang_envs.arguments import is_number
from lang_envs.datasets import Data, Dataset, Preprocessing, load
from lang_envs.datasets.errors import TableError
from lang_envs.datasets.generated import KEY_BYTES, NAME, generated_table

if TYPE_CHECKING:
    from lang_envs.datasets.tables import Table

_MAX_SPLITS = 100


def choose_dataset(
    dataset: object,
    data: Data,
    preprocessing: Preprocessing,
    table: Table | None,
    target: str | int | None,
    description: str,
) -> Dataset:
    """Return the table that an environment is about: one of ours, or the user's.

    Raises:
        TableError: If `dataset` is not a name, or the user's table or target is missing or cannot be learned.
        ValueError: If the arguments are inconsistent, or there is no such table.
    """
    if dataset is not None and not isinstance(dataset, str):
        raise TableError(
            f"Expected dataset as the name of a table, such as 'wine'; got {type(dataset).__name__}. "
            f"Fix: a table of your own goes into table=, as in gym.make('DataSciCoding-v0', table=..., target=...)."
        )
    if dataset is not None:
        if table is not None or target is not None or description:
            raise ValueError(
                f"Expected table, target and description with an environment for one's own table; got them with "
                f"dataset={dataset!r}. Fix: gym.make('DataSciCoding-v0', table=..., target=...)."
            )
        if dataset != NAME:
            return load(dataset, data=data, preprocessing=preprocessing)
        if data != "real" or preprocessing != "default":
            raise ValueError(f"Expected no data and no preprocessing with dataset={NAME!r}. Fix: leave them out.")
        return generated_table(bytes(KEY_BYTES))  # until the first reset draws a key
    if table is None or target is None:
        raise TableError(
            "Expected a table and the column to predict; at least one is missing. "
            "Fix: gym.make('DataSciCoding-v0', table='my.csv', target='my_column')."
        )
    if data != "real" or preprocessing != "default":
        raise ValueError("Expected no data and no preprocessing with one's own table. Fix: leave them out.")
    from lang_envs.datasets.tables import own_table

    return own_table(table, target, description)


def random_states(splits: int | Sequence[int]) -> tuple[int, ...]:
    """Return the random states of the halvings."""
    states: tuple[int, ...] = ()
    if type(splits) is int:
        states = tuple(range(min(splits, _MAX_SPLITS + 1)))
    elif isinstance(splits, Sequence):
        states = tuple(splits)
    fits = 1 <= len(states) <= _MAX_SPLITS and all(type(state) is int and 0 <= state < 2**32 for state in states)
    if not fits or len(set(states)) < len(states):
        raise ValueError(
            f"Expected splits to be a number from 1 to {_MAX_SPLITS}, or that many different random states; got "
            f"{splits!r}. Fix: pass 5, as published, or e.g. list(range(5, 25))."
        )
    return states


def names(banned: Sequence[str]) -> tuple[str, ...]:
    """Return the names that code must not use."""
    is_sequence = isinstance(banned, Sequence) and not isinstance(banned, str)
    if not is_sequence or not all(isinstance(name, str) and name.isidentifier() for name in banned):
        raise ValueError(
            f"Expected banned to be a sequence of names; got {banned!r}. Fix: pass e.g. ('SVC',), or () for none."
        )
    return tuple(banned)


def check_seconds(name: str, value: object, largest: int) -> None:
    """Raise unless the value is a positive number up to `largest`."""
    if not is_number(value) or not 0 < value <= largest:
        raise ValueError(f"Expected {name} to be a positive number of seconds, at most {largest}; got {value!r}.")
