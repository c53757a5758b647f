"""POAD and its relatives: Stable-Baselines3-style algorithms around a LoRA language model.

Importing the package imports no torch: modules that need it are imported at their first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from lang_envs.errors import MissingExtraError, install_command
from poad_sb3.errors import CheckpointError, ModelError, ObservationError, PoadError, UnsupportedEnvError

if TYPE_CHECKING:
    from poad_sb3.archer import ARCHER
    from poad_sb3.badq import BADQ
    from poad_sb3.bilevel_ppo import BiLevelPPO
    from poad_sb3.common.policies import LLMPolicy
    from poad_sb3.gigpo import GiGPO
    from poad_sb3.grpo import GRPO, DrGRPO
    from poad_sb3.ntpo import NTPO
    from poad_sb3.poad import POAD
    from poad_sb3.reinforce import ReBN, REINFORCEPlusPlus
    from poad_sb3.rloo import RLOO
    from poad_sb3.turn_ppo import TurnPPO
    from poad_sb3.twosome import GLAM, TWOSOME

__all__ = [
    "ARCHER",
    "BADQ",
    "GLAM",
    "GRPO",
    "NTPO",
    "POAD",
    "RLOO",
    "TWOSOME",
    "BiLevelPPO",
    "CheckpointError",
    "DrGRPO",
    "GiGPO",
    "LLMPolicy",
    "ModelError",
    "ObservationError",
    "PoadError",
    "REINFORCEPlusPlus",
    "ReBN",
    "TurnPPO",
    "UnsupportedEnvError",
]

_HOMES = {
    "ARCHER": "archer",
    "BADQ": "badq",
    "BiLevelPPO": "bilevel_ppo",
    "DrGRPO": "grpo",
    "GLAM": "twosome",
    "GRPO": "grpo",
    "GiGPO": "gigpo",
    "LLMPolicy": "common.policies",
    "NTPO": "ntpo",
    "POAD": "poad",
    "REINFORCEPlusPlus": "reinforce",
    "RLOO": "rloo",
    "ReBN": "reinforce",
    "TWOSOME": "twosome",
    "TurnPPO": "turn_ppo",
}
_EXTRA = ("peft", "safetensors", "stable_baselines3", "tokenizers", "torch", "tqdm", "transformers")


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _EXTRA:
            raise
        raise MissingExtraError(
            f"Expected the packages of the extra 'llm'; {error.name} is not installed. Fix: {install_command('llm')}."
        ) from error
    globals()[name] = value
    return value
