"""Tables that bodies are written for: the sizes and words of real ones, and invented ones. Their numbers are random.

No number of a real table is here, so neither the draws nor the failures show a suitable code for a table.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lang_envs.datasets import DATASETS, Dataset
from lang_envs.envs.datascicoding.coder import pick


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.replace("_", " ") for word in text.split())


_THINGS = _words(
    "apple beetle bicycle boat bridge candle cheese city cloud coffee_bean coin comet crystal customer engine fish "
    "forest garden glacier guitar house island kettle ladder lake leaf letter loan melody mine mushroom novel orchard "
    "parcel patient penguin planet potato power_plant rabbit river rock school seed ship signal star storm street tea "
    "telescope ticket tool tram tree valley violin volcano website whale window"
)
_QUALITIES = _words("small large old new northern southern daily weekly annual public complete early late local rare")
_SEEN = _words(
    "measured counted photographed described weighed recorded_for_a_year seen_from_above sold_last_year tested_twice "
    "summed_up_by_a_sensor observed_at_night listed_by_its_owner"
)
_YES_NO = _words(
    "sound damaged sold late healthy active expensive genuine full empty dangerous ready visible ripe stolen approved"
)
_KINDS = _words("species kind grade owner origin colour group season region quality class shape maker")
_NUMBERS = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_FORMS = ("the {0} table", "the {1} {0} table", "the table of {0}s", "{1} {0} data", "the {0} and {2} records")
_MIN_ROWS, _MAX_ROWS = 60, 600
"""Range of the number of rows of an invented table: code is run on it."""


def known_tables(rng: np.random.Generator) -> list[Dataset]:
    """Return tables with titles and sizes of the registered ones and random numbers, and some synthetic stand-ins."""
    tables = []
    for name, row in DATASETS.items():
        tables.append(_filled(name, row.title, row.about, row.shape, row.classes, rng))
        if row.manifest is not None:
            title, about = f"a synthetic stand-in for {row.title}", f"In the real table, e{row.about[1:]}"
            tables.append(_filled(name, title, about, row.shape, row.classes, rng, synthetic=True))
    return tables


def invented_table(rng: np.random.Generator) -> Dataset:
    """Return a fictitious table: title, description, size, and random numbers."""
    classes = 2 if rng.random() < 0.4 else int(rng.integers(3, 11))
    shape = (int(rng.integers(max(_MIN_ROWS, 12 * classes), _MAX_ROWS)), int(rng.integers(4, 41)))
    thing, other = pick(_THINGS, rng), pick(_THINGS, rng)
    title = pick(_FORMS, rng).format(thing, pick(_QUALITIES, rng), other)
    target = f"whether it is {pick(_YES_NO, rng)}" if classes == 2 else _of_many(classes, rng)
    article = "an" if thing[0] in "aeiou" else "a"
    about = f"Every row is {article} {thing} that was {pick(_SEEN, rng)}. To be predicted is {target}."
    return _filled("invented", title, about, shape, classes, rng)


def _of_many(classes: int, rng: np.random.Generator) -> str:
    kind = pick(_KINDS, rng)
    forms: Sequence[str] = (f"its {kind}, one of {_NUMBERS[classes - 2]}", f"its {kind}", f"which {kind} it has")
    return pick(forms, rng)


def _filled(
    name: str,
    title: str,
    about: str,
    shape: tuple[int, int],
    classes: int,
    rng: np.random.Generator,
    *,
    synthetic: bool = False,
) -> Dataset:
    """Return a table with independent normal features, of very different scales, and evenly frequent classes."""
    x = rng.normal(size=shape) * 10.0 ** rng.integers(-1, 3, size=shape[1])
    y = rng.permutation(np.arange(shape[0]) % classes)
    return Dataset(name, title, about, x, y, published=False, source="random numbers", synthetic=synthetic)
