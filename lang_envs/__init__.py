"""Language environments for Gymnasium: sequential decision tasks in words.

Importing this package registers its environments: `gym.make("Overcooked-TomatoSalad-v0")`.
"""

import os

from lang_envs.answers import parse_action, show_actions
from lang_envs.core import LangEnv, Outcome, language_env, oracle
from lang_envs.errors import (
    ActionError,
    EncodingError,
    InfoError,
    LangEnvsError,
    MissingExtraError,
    StateError,
    TokenizerError,
)
from lang_envs.registration import ENV_ROWS, FOREIGN_ROWS, TRAINING_IDS, UNSEEN_IDS, EnvRow, register_envs
from lang_envs.replayed import GymnasiumEnv, ReplayedEnv
from lang_envs.spaces import TextObservation, TextSpace, TokenSequence
from lang_envs.tokenizers import ByteTokenizer, HuggingFaceTokenizer, Tokenizer

__all__ = [
    "ENV_ROWS",
    "FOREIGN_ROWS",
    "TRAINING_IDS",
    "UNSEEN_IDS",
    "ActionError",
    "ByteTokenizer",
    "EncodingError",
    "EnvRow",
    "GymnasiumEnv",
    "HuggingFaceTokenizer",
    "InfoError",
    "LangEnv",
    "LangEnvsError",
    "MissingExtraError",
    "Outcome",
    "ReplayedEnv",
    "StateError",
    "TextObservation",
    "TextSpace",
    "TokenSequence",
    "Tokenizer",
    "TokenizerError",
    "language_env",
    "oracle",
    "parse_action",
    "register_envs",
    "show_actions",
]

__version__ = "0.2.0"

register_envs()

# Names this process and those that it starts: they share a sandbox supervisor; processes started elsewhere do not.
os.environ.setdefault("LANG_ENVS_RUN", os.urandom(8).hex())
