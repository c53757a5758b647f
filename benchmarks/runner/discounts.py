"""Discount factors of returns."""

from __future__ import annotations

_DISCOUNTS = {"Overcooked": 0.99, "VirtualHome": 0.95}


def discount_of(env_id: str) -> float:
    """Discount of the returns that the published code bases report: per primitive move (a command is one)."""
    return _DISCOUNTS.get(env_id.rpartition(":")[2].split("-")[0], 1.0)
