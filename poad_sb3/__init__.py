"""POAD and its relatives: Stable-Baselines3-style algorithms around a LoRA language model."""

from lang_envs.errors import MissingExtraError

try:
    import peft  # noqa: F401
    import stable_baselines3  # noqa: F401
    import transformers  # noqa: F401
except ImportError as _error:
    raise MissingExtraError(
        f"Expected the packages of the extra 'llm'; {_error.name} is not installed. "
        'Fix: pip install -c constraints.txt -e ".[llm]" in the checkout.'
    ) from _error

from poad_sb3.archer import ARCHER
from poad_sb3.badq import BADQ
from poad_sb3.errors import CheckpointError, ModelError, ObservationError, PoadError, UnsupportedEnvError
from poad_sb3.ntpo import NTPO
from poad_sb3.poad import POAD
from poad_sb3.policies import LLMPolicy
from poad_sb3.twosome import GLAM, TWOSOME

__all__ = [
    "ARCHER",
    "BADQ",
    "GLAM",
    "NTPO",
    "POAD",
    "TWOSOME",
    "CheckpointError",
    "LLMPolicy",
    "ModelError",
    "ObservationError",
    "PoadError",
    "UnsupportedEnvError",
]
