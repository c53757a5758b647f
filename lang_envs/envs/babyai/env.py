"""`BabyAITextEnv`: the levels of BabyAI with observations and actions in words."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import gymnasium as gym

from lang_envs.arguments import check_choice
from lang_envs.core import Outcome
from lang_envs.envs.babyai.words import describe_view
from lang_envs.errors import missing_extra
from lang_envs.foreign_names import LEVELS
from lang_envs.replayed import ReplayedEnv

try:
    import minigrid
    from minigrid.utils.baby_ai_bot import BabyAIBot
except ImportError as error:
    raise missing_extra("minigrid", "the package minigrid, which has BabyAI's levels") from error

ACTIONS = {"turn left": 0, "turn right": 1, "go forward": 2, "pick up": 3, "drop": 4, "toggle": 5}
"""Actions by their texts. MiniGrid's seventh, `done`, has no effect in BabyAI."""


class BabyAITextEnv(ReplayedEnv):
    """A level of BabyAI: an agent in rooms of objects and doors follows an instruction.

    The agent sees the 7 x 7 cells before it, in words; the world is MiniGrid's. The reward is that of the package: 1 -
    0.9 n / N for an instruction that is followed after n of N actions, else 0.

    Args:
        level: Id of the package, such as `"BabyAI-GoToRedBall-v0"`.
        max_observation_length: Largest number of characters of an observation.
        **options: Arguments of `LangEnv`.

    `info`: `mission` (the instruction) and `n_actions` (actions so far). An invalid text costs an action.
    """

    metadata = {"render_modes": ["ansi", "rgb_array"], "render_fps": 4}  # noqa: RUF012 - gymnasium's

    def __init__(
        self, *, level: str = "BabyAI-GoToRedBall-v0", max_observation_length: int = 4_096, **options: Any
    ) -> None:
        check_choice("level", level.removeprefix("BabyAI-").removesuffix("-v0"), LEVELS)
        self.level = level
        self._observation_now: dict[str, Any] = {}
        # The bot, its own world, and the actions that it has followed there.
        self._bot: tuple[BabyAIBot, Any, list[str | None]] | None = None
        self._advice = 0
        super().__init__(max_observation_length=max_observation_length, **options)

    def _make_world(self) -> Any:
        return gym.make(self.level, disable_env_checker=True).unwrapped

    def _begin(self, seed: int) -> None:
        self._bot = None
        with contextlib.redirect_stdout(io.StringIO()):  # the package prints what it rejects
            self._observation_now, _ = self.world.reset(seed=seed)

    def _act(self, text: str) -> Outcome:
        self._observation_now, reward, terminated, truncated, _ = self.world.step(ACTIONS[text])
        return Outcome(reward, bool(terminated), bool(truncated and not terminated), bool(terminated and reward > 0))

    def _wait(self) -> Outcome:
        # Not `done`: after any action MiniGrid looks whether the agent faces its goal.
        self.world.step_count += 1
        return Outcome(0.0, False, self.world.step_count >= self.world.max_steps, False)

    def _describe(self) -> str:
        return describe_view(self._observation_now["image"], self._observation_now["mission"])

    def _listed_actions(self) -> list[str]:
        return list(ACTIONS)

    def _family_info(self, *, acted: bool) -> dict[str, Any]:
        return {"mission": str(self._observation_now["mission"]), "n_actions": int(self.world.step_count)}

    def _configuration(self) -> dict[str, Any]:
        return {"level": self.level, "minigrid": minigrid.__version__}

    def oracle_action(self) -> str:
        """Return what the package's bot would do; it explores as the agent does.

        Raises:
            NotImplementedError: If the bot cannot solve the level.
        """
        try:
            if self._bot is None:
                world = self._make_world()
                with contextlib.redirect_stdout(io.StringIO()):
                    world.reset(seed=self._seed)
                self._bot = BabyAIBot(world), world, []
                self._advice = self._bot[0].replan()
            bot, world, followed = self._bot
            for text in self._actions[len(followed) :]:
                if text is not None:
                    world.step(ACTIONS[text])
                    self._advice = bot.replan(ACTIONS[text])
                followed.append(text)
            return list(ACTIONS)[int(self._advice)]
        except Exception as error:  # the bot raises what it meets, such as AssertionError
            raise NotImplementedError(
                f"The bot of minigrid cannot solve {self.level} from here ({type(error).__name__}). Fix: another level."
            ) from error

    def render(self) -> Any:
        """Return the grid as text, or as an image of 32 pixels a cell."""
        if self.render_mode == "ansi":
            return str(self.world.pprint_grid())
        return self.world.get_frame() if self.render_mode == "rgb_array" else None

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        return {**state, "attributes": {**state["attributes"], "_bot": None}}
