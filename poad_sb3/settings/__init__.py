"""The settings of a training: default, range and one line of help of each.

Checks, `--set`, presets, the memory estimate and the tables of the documentation read the fields of these dataclasses;
a test compares them with the constructor of `LLMOnPolicyAlgorithm`. Importing the package imports no package of the
`llm` extra.
"""

from poad_sb3.settings.credit import CreditSettings
from poad_sb3.settings.fields import Settings, split_settings, unknown_setting
from poad_sb3.settings.model import ModelSettings
from poad_sb3.settings.ppo import PPOSettings
from poad_sb3.settings.sampling import SamplingSettings

__all__ = [
    "CreditSettings",
    "ModelSettings",
    "PPOSettings",
    "SamplingSettings",
    "Settings",
    "split_settings",
    "unknown_setting",
]
