"""Lines of results files, format 1: those that `lang-bench run` and trainings write alike. No torch."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

FORMAT = 1
"""Version of the layout of results files."""
EPISODES_PER_SEED = 1_000_000
N_SEEDS = 2**32
"""Number of seeds that numpy, torch and Gymnasium all accept."""
_DISCOUNTS = {"Overcooked": 0.99, "VirtualHome": 0.95}


def discount_of(env_id: str) -> float:
    """Return the discount of returns in the published code bases, per primitive move (a command is one)."""
    return _DISCOUNTS.get(env_id.rpartition(":")[2].split("-")[0], 1.0)


def reset_seed_of(env_id: str, seed: int, episode: int) -> int:
    """Return the seed of the environment in an episode of a seed.

    No two episodes of an environment share it. Tasks begin elsewhere each: with equal seeds, tasks of equal rules
    would be equal episodes, and intervals over tasks too narrow.
    """
    return (zlib.crc32(env_id.encode()) + seed * EPISODES_PER_SEED + episode) % N_SEEDS


def encode(record: Mapping[str, Any]) -> bytes:
    """Encode one line; lone surrogates become escapes.

    Raises:
        TypeError: If a value is not JSON.
        ValueError: If a number is not finite.
    """
    text = json.dumps(record, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace") + b"\n"


def step_line(
    key: Mapping[str, Any],
    number: int,
    *,
    observation: str,
    admissible_actions: Sequence[str] | None,
    action: str,
    info: Mapping[str, Any],
    reward: float,
    terminated: bool,
    truncated: bool,
    note: str = "",
) -> dict[str, Any]:
    """Return the line of a step, without the fields about its tokens.

    Args:
        key: Fields that identify the episode.
        number: Number of the step, from 0.
        observation: Observation before the action.
        admissible_actions: Listed actions; None where any text is one.
        action: Text of the action.
        info: Info after the action; third-party environments may have no `success` and `invalid_action`.
        reward: Reward of the step.
        terminated: Whether the episode ended by success or failure.
        truncated: Whether the time limit ended the episode.
        note: Remark of the agent.
    """
    success = info.get("success", info.get("is_success"))
    return {
        **key,
        "step": number,
        "observation": observation,
        "admissible_actions": admissible_actions,
        "action": action,
        "invalid": bool(info.get("invalid_action", False)),
        "reward": reward,
        "success": None if success is None else bool(success),
        "moves": moves_of(info),
        "terminated": terminated,
        "truncated": truncated,
        "note": note,
    }


def discounted_return(lines: Sequence[Mapping[str, Any]], discount: float) -> float:
    """Return the rewards of an episode's lines, each discounted by the moves before it."""
    total, moves = 0.0, 0
    for line in lines:
        total += discount**moves * line["reward"]
        moves += line["moves"]
    return total


def moves_of(info: Mapping[str, Any]) -> int:
    """Return the units of time of a step: the moves of a macro-action, or 1."""
    return int(info.get("primitive_steps", 1))


def code_fields(info: Mapping[str, Any], reward: float) -> dict[str, Any]:
    """Return the fields of a step that ran code (DataSciCoding); none elsewhere."""
    if "status" not in info:
        return {}
    status = str(info["status"])
    aucs = info.get("auc_splits") or ()
    return {
        "score": reward if status == "ok" else None,
        "status": status,
        "error": info.get("error") or None,
        "scores": {str(number): float(area) for number, area in enumerate(aucs)} or None,
    }
