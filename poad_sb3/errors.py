"""The exceptions of `poad_sb3`, one tree, and its warning. Messages: expected value, actual value, and the fix."""

__all__ = [
    "CheckpointError",
    "EndpointError",
    "ExportError",
    "LostRankError",
    "MismatchError",
    "ModelError",
    "NoEffectWarning",
    "ObservationError",
    "PoadError",
    "PresetError",
    "RankError",
    "UnsupportedEnvError",
    "WorkerError",
]


class PoadError(Exception):
    """Root of every error raised on purpose by this package."""


class CheckpointError(PoadError, ValueError):
    """A checkpoint that is damaged, or belongs to another base model."""


class EndpointError(PoadError, RuntimeError):
    """A generation server that fails, or answers with something other than tokens of the policy."""


class ExportError(PoadError, ValueError):
    """Weights that cannot be exported, or not be sent to a hub."""


class MismatchError(PoadError, ValueError):
    """Log-probabilities at sampling that the learner does not reproduce."""


class ModelError(PoadError, ValueError):
    """A language model that cannot be loaded or adapted."""


class NoEffectWarning(UserWarning):
    """An argument that has no effect beside the given ones."""


class ObservationError(PoadError, ValueError):
    """An observation a policy cannot act on."""


class PresetError(PoadError, ValueError):
    """A preset or an argument that does not exist, or would have no effect."""


class RankError(PoadError, RuntimeError):
    """Processes of one training that do not continue together."""


class LostRankError(RankError):
    """A rank that was killed or has stopped: the training can resume from its last checkpoint."""


class WorkerError(PoadError, RuntimeError):
    """A worker process of a vector of environments that has ended."""


class UnsupportedEnvError(PoadError, TypeError):
    """An environment that does not keep the contract of language environments."""
