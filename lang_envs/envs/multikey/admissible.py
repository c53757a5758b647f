"""The sentences of MultiKey: every combination of the words of some slots, and the two of the length trap."""

from __future__ import annotations

import itertools

FILLER = "the"
"""Second and later words of a phrase."""

_NOUNS = """
cup pan pot jar egg milk fork tray lamp book bowl soup onion spoon plate glass towel apron knife bread apple salad
sofa oven sink door wall pie chair shelf stove radio pizza chips tomato candle kettle basket pillow carrot potato pepper
cheese popcorn lettuce blanket pancake lasagna
"""
WORDS = tuple(_NOUNS.split())
"""Words of the slots, in order of use. With a space before it, each of them is a token of the pocket model."""

MAX_ACTIONS = 4_096


def key_slots(n_keys: int, n_distractors: int) -> tuple[int, ...]:
    """Return the slots of the keys, spread evenly: floor((i + 1/2) n / k) for key i of k in n slots."""
    n_slots = n_keys + n_distractors
    return tuple((2 * key + 1) * n_slots // (2 * n_keys) for key in range(n_keys))


def vocabularies(n_slots: int, n_words: int, *, variable: bool) -> tuple[tuple[str, ...], ...]:
    """Return the words of each slot; no two slots share one.

    Args:
        n_slots: Number of slots.
        n_words: Number of words of a slot.
        variable: Whether word i of a slot, counted from 0, is followed by 2 i filler words.
    """
    words = [word + f" {FILLER}" * (2 * (number % n_words) * variable) for number, word in enumerate(WORDS)]
    return tuple(tuple(words[slot * n_words : (slot + 1) * n_words]) for slot in range(n_slots))


def sentences(slots: tuple[tuple[str, ...], ...]) -> tuple[str, ...]:
    """Return all combinations of the slots' words; the last slot changes fastest."""
    return tuple(map(" ".join, itertools.product(*slots)))


def trap_sentences(short_length: int, long_length: int) -> tuple[str, str]:
    """Return the short and the long sentence of the length trap; lengths are in words."""
    short, long = (word + f" {FILLER}" * (n - 1) for word, n in zip(WORDS, (short_length, long_length), strict=False))
    return short, long
