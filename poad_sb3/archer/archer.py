"""ARCHER: the utterance-level bootstrap, as an ablation of NTPO."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from poad_sb3.ntpo import NTPO


class ARCHER(NTPO):
    """Discounts inside an action, and bootstraps from an utterance-level value.

    As NTPO, but the last token of an action bootstraps from the value before the *last token* of the next action,
    V[t+1, n_{t+1}]. At a truncation and at the end of a rollout there is no next action; it is the value of the
    observation there. This is the ablation of the POAD paper (arXiv 2405.15821), not the off-policy algorithm of the
    ArCHer paper.

    Arguments are those of `NTPO`, with `bootstrap="action"`.
    """

    defaults: ClassVar[Mapping[str, Any]] = {"bootstrap": "action"}
