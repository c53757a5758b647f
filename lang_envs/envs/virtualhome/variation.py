"""Variation between the episodes of one task: nouns, phrasing, and things that lie about.

Together with `describe` and `shuffle_actions` of the environment this is the generalisation kit: everything is given by
constructor arguments, and open choices are drawn from the environment's own generator at a reset.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from lang_envs.arguments import check_choice
from lang_envs.envs.virtualhome.rules import ROOMS
from lang_envs.envs.virtualhome.tasks import DISTRACTORS, HomeTask
from lang_envs.envs.virtualhome.wording import PHRASINGS

MAX_DISTRACTORS = 3
"""Maximum number of distractors: more would enlarge the oracle's graph of states, and hands are full at two anyway."""


MAX_NOUN_LENGTH = 32
"""Maximum length of a noun in bytes of UTF-8; a command with two such nouns fits the default action space."""


class Draw(NamedTuple):
    """Variation that a reset has drawn.

    Attributes:
        phrasing: Position in `PHRASINGS`.
        nouns: Pairs of role and noun, for the roles that have another name.
        distractors: Keys of `DISTRACTORS`.
    """

    phrasing: int
    nouns: tuple[tuple[str, str], ...]
    distractors: tuple[str, ...]


class Variation:
    """Everything that a reset may draw.

    Args:
        task: Task whose things are named.
        nouns: Mapping from role to a noun, or to several, one of which is drawn.
        phrasing: Position in `PHRASINGS`, or `"any"`.
        distractors: Names in `DISTRACTORS`, or their number to draw.

    Raises:
        ValueError: If a role, phrasing or distractor is unknown, a noun is not valid or means two things, or
            distractors are repeated or too many.
        TypeError: If `nouns` is not a mapping.
    """

    def __init__(
        self,
        task: HomeTask,
        nouns: Mapping[str, str | Sequence[str]],
        phrasing: int | Literal["any"],
        distractors: int | Sequence[str],
    ) -> None:
        check_choice("phrasing", phrasing, (*range(len(PHRASINGS)), "any"))
        self.phrasings = tuple(range(len(PHRASINGS))) if phrasing == "any" else (int(phrasing),)
        self.nouns = _checked_nouns(nouns, task)
        self.distractors = _checked_distractors(distractors)

    def first(self) -> Draw:
        """Return the draw before the first reset: the first of everything, drawn from no generator."""
        lying = self.distractors
        if isinstance(lying, int):
            lying = tuple(DISTRACTORS)[:lying]
        return Draw(self.phrasings[0], tuple((role, names[0]) for role, names in self.nouns.items()), lying)

    def draw(self, rng: np.random.Generator) -> Draw:
        """Draw the variation of the next episode; takes numbers from `rng` only for options that are left open."""
        nouns = tuple((role, names[_index(rng, len(names))]) for role, names in self.nouns.items())
        phrasing = self.phrasings[_index(rng, len(self.phrasings))]
        if not isinstance(self.distractors, int):
            return Draw(phrasing, nouns, self.distractors)
        lying = rng.choice(len(DISTRACTORS), self.distractors, replace=False) if self.distractors else ()
        return Draw(phrasing, nouns, tuple(tuple(DISTRACTORS)[index] for index in sorted(lying)))


def _index(rng: np.random.Generator, n: int) -> int:
    return int(rng.integers(n)) if n > 1 else 0


def _checked_nouns(nouns: Mapping[str, str | Sequence[str]], task: HomeTask) -> dict[str, tuple[str, ...]]:
    roles = (*task.scene.item_index, *task.scene.fixture)
    if not isinstance(nouns, Mapping):
        raise TypeError(f"Expected nouns to be a mapping from roles among {list(roles)} to nouns; got {nouns!r}.")
    for role in nouns:
        check_choice("every role in nouns", role, roles)
    checked: dict[str, tuple[str, ...]] = {}
    for role in (role for role in roles if nouns.get(role, role) != role):
        names = nouns[role]
        checked[role] = (names,) if isinstance(names, str) else tuple(names) if isinstance(names, Sequence) else ()
        if not checked[role] or not all(_is_noun(noun) for noun in checked[role]):
            raise ValueError(
                f"Expected nouns[{role!r}] to be a noun, or a list of several, printable, of 1 to {MAX_NOUN_LENGTH} "
                f"bytes of UTF-8, without spaces around; got {names!r}."
            )
    spots = {item.spot for item in (*task.scene.items, *DISTRACTORS.values())}
    called = [noun for role in roles for noun in checked.get(role, (role,))]
    every = [name.casefold() for name in (*ROOMS, *spots, *DISTRACTORS, *called)]
    twice = sorted({noun for noun in called if every.count(noun.casefold()) > 1})
    if twice:
        raise ValueError(
            f"Expected every noun to mean one thing, beside rooms, furniture and distractors too; {twice} would mean "
            "two. Fix: choose other nouns."
        )
    return checked


def _is_noun(noun: object) -> bool:
    if not isinstance(noun, str) or not noun.isprintable() or noun != noun.strip():
        return False
    return 1 <= len(noun.encode()) <= MAX_NOUN_LENGTH


def _checked_distractors(distractors: int | Sequence[str]) -> int | tuple[str, ...]:
    if isinstance(distractors, Sequence):
        names = (distractors,) if isinstance(distractors, str) else tuple(distractors)
        for name in names:
            check_choice("every distractor", name, DISTRACTORS)
        if len(set(names)) == len(names) <= MAX_DISTRACTORS:
            return names
    elif type(distractors) is int and 0 <= distractors <= MAX_DISTRACTORS:
        return distractors
    raise ValueError(f"Expected 0 to {MAX_DISTRACTORS} different distractors; got {distractors!r}.")
