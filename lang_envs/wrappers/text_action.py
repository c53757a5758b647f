"""Actions as plain text."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from lang_envs.core import Tokens
from lang_envs.errors import ActionError, EncodingError
from lang_envs.spaces import TextSpace, TokenSequence

MAX_BYTES_PER_CHARACTER = 4


class TextAction(gym.ActionWrapper[str, str, Tokens], gym.utils.RecordConstructorArgs):
    """The action space becomes text: `env.step("pick up the tomato")`.

    A text that the wrapped `TokenSequence` cannot hold (too long, or changed by its tokenizer) is passed on as an
    unfinished sentence, so it is an invalid action and never a shorter one.

    Args:
        env: An environment with a `TokenSequence` action space.

    Raises:
        TypeError: If the action space is not a `TokenSequence`.
    """

    def __init__(self, env: gym.Env[Any, Tokens]) -> None:
        gym.utils.RecordConstructorArgs.__init__(self)
        gym.ActionWrapper.__init__(self, env)
        if not isinstance(env.action_space, TokenSequence):
            raise TypeError(
                f"Expected an environment with a TokenSequence action space; got {env.action_space}. "
                "Fix: wrap a lang_envs environment, before any wrapper that changes its actions."
            )
        self.tokens: TokenSequence = env.action_space
        self.action_space = TextSpace(self.tokens.max_length * MAX_BYTES_PER_CHARACTER)

    def action(self, action: str) -> Tokens:
        """Encode a text as a token array."""
        if not isinstance(action, str):
            raise ActionError(f"Expected the action's text as a str; got {type(action).__name__}. Fix: pass a str.")
        try:
            return self.tokens.encode(action)
        except EncodingError:
            return self.tokens.unfinished()
