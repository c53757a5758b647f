"""`TextArenaEnv`: games of TextArena for one player."""

from __future__ import annotations

import contextlib
import importlib.metadata
import io
import random
from collections.abc import Iterator
from typing import Any

from lang_envs.arguments import check_choice, check_integer, is_number
from lang_envs.core import Outcome
from lang_envs.envs.textarena.games import GAMES
from lang_envs.errors import missing_extra
from lang_envs.replayed import MAX_TEXT_LENGTH, ReplayedEnv

try:
    import textarena
except ImportError as error:
    raise missing_extra("textarena", "the package textarena, which has the games") from error

_MAX_MESSAGES = 4_096
"""Maximum number of characters of the latest messages that are shown."""


class TextArenaEnv(ReplayedEnv):
    """A game of TextArena for one player.

    The reward is the package's, paid at the end: 1 for a game that is won, and of some games a share of the way to it.
    Two moves in a row that a game does not understand end it; texts that are not listed never reach it.

    Args:
        game: Name of the game, such as `"FrozenLake"`.
        variant: Suffix of the package's id, such as `"-hardcore"`.
        max_steps: Time limit, of invalid texts too. Most games have a shorter one, and some pay a share at it.
        max_observation_length: Largest number of characters of an observation.
        max_action_length: Largest number of action tokens, end token included; 4,097 where any text is an action.
        **options: Arguments of `LangEnv`.

    `info`: `reason` (why the game has ended; empty before).
    """

    def __init__(
        self,
        *,
        game: str = "FrozenLake",
        variant: str = "",
        max_steps: int = 300,
        max_observation_length: int = 16_384,
        **options: Any,
    ) -> None:
        check_choice("game", game, GAMES)
        check_integer("max_steps", max_steps, 1)
        self.game, self.variant, self.max_steps = game, variant, max_steps
        self.metadata = {**self.metadata, "actions": "text" if GAMES[game].actions is None else "listed"}
        if GAMES[game].actions is None:
            options.setdefault("max_action_length", MAX_TEXT_LENGTH)
        self._n_steps, self._prompt, self._messages, self._reason = 0, "", "", ""
        self._random_state: Any = None
        super().__init__(max_observation_length=max_observation_length, **options)

    def _make_world(self) -> Any:
        outside = random.getstate()  # some games draw a board, of which a reset draws another
        try:
            return textarena.make(f"{self.game}-v0{self.variant}-raw")
        finally:
            random.setstate(outside)

    @contextlib.contextmanager
    def _own_chance(self) -> Iterator[None]:
        """Let the game draw from its own numbers: it reads the global generator, and prints."""
        outside = random.getstate()
        random.setstate(self._random_state)
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                yield
        finally:
            self._random_state = random.getstate()
            random.setstate(outside)

    def _begin(self, seed: int) -> None:
        self._random_state, self._n_steps, self._reason = random.Random(seed).getstate(), 0, ""
        with self._own_chance():
            self.world.reset(num_players=1, seed=seed)
        self._prompt, self._messages = self._read(), ""

    def _read(self) -> str:
        """Return the messages since the last call."""
        _, messages = self.world.get_observation()
        return "\n".join(str(message) for sender, message, _ in messages if sender == textarena.GAME_ID)

    def _act(self, text: str) -> Outcome:
        actions = GAMES[self.game].actions
        message = text if actions is None else actions(self.world)[text]
        with self._own_chance():
            is_over, _ = self.world.step(message)
        self._messages, self._n_steps = self._read()[-_MAX_MESSAGES:], self._n_steps + 1
        if not is_over:
            return Outcome(0.0, False, self._n_steps >= self.max_steps, False)
        rewards, infos = self.world.close()
        reward = rewards[0] if is_number(rewards[0]) else 0.0  # some games put the reason there
        self._reason = str(infos[0].get("reason", ""))
        return Outcome(float(reward), True, False, reward >= 1)

    def _wait(self) -> Outcome:
        self._n_steps += 1
        return Outcome(0.0, False, self._n_steps >= self.max_steps, False)

    def _describe(self) -> str:
        describe = GAMES[self.game].describe
        return describe(self.world) if describe else "\n\n".join(filter(None, (self._prompt, self._messages)))

    def _listed_actions(self) -> list[str] | None:
        actions = GAMES[self.game].actions
        return None if actions is None else list(actions(self.world))

    def _family_info(self, *, acted: bool) -> dict[str, Any]:
        return {"reason": self._reason}

    def _configuration(self) -> dict[str, Any]:
        version = importlib.metadata.version("textarena")
        return {"game": self.game + self.variant, "max_steps": self.max_steps, "textarena": version}

    def close(self) -> None:
        """Do nothing: a game holds nothing."""
