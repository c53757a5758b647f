"""ALFWorld as a language environment: `pip install alfworld[full]`, `alfworld-download`, and its `base_config.yaml`."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from lang_envs import Outcome, ReplayedEnv


class AlfworldEnv(ReplayedEnv):
    """The household games of ALFWorld, in text; `config` is its `base_config.yaml`, read."""

    def __init__(self, config: Any, **options: Any) -> None:
        self.config = config
        super().__init__(max_observation_length=4_096, **options)

    def _make_world(self) -> Any:
        from alfworld.agents.environment import get_environment

        return get_environment(self.config["env"]["type"])(self.config, train_eval="train").init_env(batch_size=1)

    def _begin(self, seed: int) -> None:
        self.world.seed(seed)  # chooses the game
        (self.text,), self.infos = self.world.reset()

    def _act(self, text: str) -> Outcome:
        (self.text,), _, (is_over,), self.infos = self.world.step([text])
        won = bool(self.infos["won"][0])
        return Outcome(float(won), won, bool(is_over) and not won, won)

    def _wait(self) -> Outcome:
        return self._act("look")

    def _describe(self) -> str:
        return self.text

    def _listed_actions(self) -> list[str]:
        return list(self.infos["admissible_commands"][0])

    def _family_info(self, *, acted: bool) -> dict[str, Any]:
        return {}


gym.register("Alfworld-v0", entry_point=AlfworldEnv)
