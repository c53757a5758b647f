"""The sentences of KeyToken: a filler word over and over, and one key word."""

from __future__ import annotations

FILLER = "the"
"""Every word of a sentence but the key word."""

_NOUNS = """
tomato onion lettuce milk candle spoon plate cup glass fork pan pot tray jar kettle towel apron basket blanket pillow
lamp book carrot potato pepper bowl knife bread egg apple salad soup
"""
KEYS = tuple(_NOUNS.split())
"""Key words, in order of use. With a space before it, each of them (and the filler) is a token of the pocket model."""

_SHORTEST = 2  # words, of sentences of different lengths


def sentence_lengths(n_tokens: int, key_position: int, n_actions: int, *, variable: bool) -> tuple[int, ...]:
    """Return the number of words of each sentence.

    Args:
        n_tokens: Number of words of the longest sentence.
        key_position: Position of the key word, counted from 0.
        n_actions: Number of sentences.
        variable: Whether lengths are spread evenly, from 2 (or as few as hold the key word) to `n_tokens`; else all are
            equal.
    """
    if not variable:
        return (n_tokens,) * n_actions
    shortest = max(_SHORTEST, key_position + 1)
    return tuple(shortest + (n_tokens - shortest) * number // (n_actions - 1) for number in range(n_actions))


def sentences(lengths: tuple[int, ...], key_position: int) -> tuple[str, ...]:
    """Return a sentence for each length; that of number i holds the key word of number i."""
    return tuple(
        " ".join([FILLER] * key_position + [key] + [FILLER] * (length - key_position - 1))
        for key, length in zip(KEYS, lengths, strict=False)
    )
