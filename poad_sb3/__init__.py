"""POAD and its relatives: Stable-Baselines3-style algorithms around a LoRA language model."""

from poad_sb3.errors import CheckpointError, ModelError, ObservationError, PoadError, UnsupportedEnvError
from poad_sb3.poad import POAD
from poad_sb3.policies import LLMPolicy

__all__ = [
    "POAD",
    "CheckpointError",
    "LLMPolicy",
    "ModelError",
    "ObservationError",
    "PoadError",
    "UnsupportedEnvError",
]
