"""Colours as they are seen: contrast after WCAG 2, and distances for colour-blind readers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

__all__ = ["contrast", "distances", "luminance"]

_MACHADO = (
    [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
)
"""Full protan, deutan and tritan deficiency, after Machado (2009)."""
_TO_LMS = (
    [0.4122214708, 0.5363325363, 0.0514459929],
    [0.2119034982, 0.6806995451, 0.1073969566],
    [0.0883024619, 0.2817188376, 0.6299787005],
)
_TO_LAB = (
    [0.2104542553, 0.7936177850, -0.0040720468],
    [1.9779984951, -2.4285922050, 0.4505937099],
    [0.0259040371, 0.7827717662, -0.8086757660],
)


def _linear(color: Sequence[int]) -> np.ndarray:
    return np.array([one / 255 / 12.92 if one <= 10 else ((one / 255 + 0.055) / 1.055) ** 2.4 for one in color])


def luminance(color: Sequence[int]) -> float:
    """Return the relative luminance of a colour of 8 bits a channel."""
    return float(np.dot((0.2126, 0.7152, 0.0722), _linear(color)))


def contrast(first: Sequence[int], second: Sequence[int]) -> float:
    """Return the contrast of two colours, 1 to 21."""
    low, high = sorted(map(luminance, (first, second)))
    return (high + 0.05) / (low + 0.05)


def distances(first: Sequence[int], second: Sequence[int]) -> list[float]:
    """Return the distances of two colours in OKLab for each of the three deficiencies."""

    def oklab(color: Sequence[int], matrix: Sequence[Sequence[float]]) -> np.ndarray:
        return np.array(_TO_LAB) @ np.cbrt(np.array(_TO_LMS) @ np.clip(np.array(matrix) @ _linear(color), 0, 1))

    return [float(np.linalg.norm(oklab(first, one) - oklab(second, one))) for one in _MACHADO]
