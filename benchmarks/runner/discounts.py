"""By what returns are discounted."""

from __future__ import annotations

_DISCOUNTS = {"Overcooked": 0.99, "VirtualHome": 0.95}


def discount_of(env_id: str) -> float:
    """Discount of the returns that the published code bases report: per primitive move, which a command is one of."""
    return _DISCOUNTS.get(env_id.rpartition(":")[2].split("-")[0], 1.0)
