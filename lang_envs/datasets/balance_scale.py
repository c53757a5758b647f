"""The balance scale table, generated from its definition; no file of it is needed.

A row is one of the 5 * 5 * 5 * 5 ways to hang a weight of 1 .. 5 at a distance of 1 .. 5 on either arm, and the law of
the lever gives its class.

The published environment uses 125 of the 625 rows. Its pipeline shuffles with a generator that loading *other* tables
has advanced; replaying that chain gives the rows below (they agree with all prompts that were stored with CAAFE).
"""

from __future__ import annotations

from itertools import product

import numpy as np
from numpy.typing import NDArray

# fmt: off
PUBLISHED_ROWS = (
    416, 593, 99, 307, 70, 487, 133, 308, 598, 391, 322, 355, 94, 283, 23, 402, 286, 64, 269, 526, 238, 163, 515, 59,
    43, 397, 559, 406, 490, 443, 340, 588, 592, 66, 104, 162, 354, 415, 12, 586, 382, 220, 115, 218, 393, 465, 316,
    198, 573, 602, 536, 535, 622, 294, 510, 281, 211, 49, 197, 114, 259, 330, 568, 323, 242, 506, 174, 471, 594, 366,
    87, 78, 620, 324, 613, 82, 121, 187, 142, 564, 310, 103, 604, 171, 116, 81, 123, 205, 329, 476, 371, 461, 492,
    # The pipeline splits its 125 rows 3 : 1 and joins the parts again; the second part starts here.
    172, 524, 430, 398, 252, 76, 300, 77, 93, 74, 518, 411, 55, 97, 209, 151, 140, 29, 448, 63, 529, 95, 68, 244, 488,
    532, 241, 545, 60, 459, 98, 5,
)
# fmt: on
"""Positions in the full table, in the order of the published environment."""

_LEVELS = range(1, 6)


def read_full() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return all rows in the order of OpenML: features (625, 4); classes (625,), 0 left, 1 balanced, 2 right."""
    x = np.array(list(product(_LEVELS, repeat=4)), dtype=np.float64)
    left_weight, left_distance, right_weight, right_distance = x.T
    torque = right_weight * right_distance - left_weight * left_distance
    return x, np.sign(torque).astype(np.int64) + 1


def read_published() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the published rows: features (125, 4), classes (125,)."""
    x, y = read_full()
    rows = list(PUBLISHED_ROWS)
    return x[rows], y[rows]
