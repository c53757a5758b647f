"""ScienceWorld as a language environment: `pip install scienceworld` and a Java runtime."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from lang_envs import Outcome, ReplayedEnv


class ScienceWorldTask(ReplayedEnv):
    """A task of ScienceWorld; its score of 0 to 100 becomes a reward of 0 to 1."""

    def __init__(self, task: str = "boil", max_steps: int = 100, **options: Any) -> None:
        self.task, self.max_steps = task, max_steps
        super().__init__(max_observation_length=16_384, **options)

    def _make_world(self) -> Any:
        from scienceworld import ScienceWorldEnv

        return ScienceWorldEnv(envStepLimit=self.max_steps)

    def _begin(self, seed: int) -> None:
        self.world.load(self.task, seed % self.world.get_max_variations(self.task))
        self.text, self.facts = self.world.reset()
        self.score = 0.0

    def _act(self, text: str) -> Outcome:
        self.text, _, is_over, self.facts = self.world.step(text)
        before, self.score = self.score, max(0, self.facts["score"]) / 100
        return Outcome(self.score - before, is_over and self.score == 1, is_over and self.score < 1, self.score == 1)

    def _wait(self) -> Outcome:
        return self._act("wait1")

    def _describe(self) -> str:
        return f"{self.facts['taskDesc']} {self.text}"

    def _listed_actions(self) -> list[str]:
        return list(self.facts["valid"])

    def _family_info(self, *, acted: bool) -> dict[str, Any]:
        return {"score": self.score}

    def _configuration(self) -> dict[str, Any]:
        return {"task": self.task, "max_steps": self.max_steps}


gym.register("ScienceWorld-v0", entry_point=ScienceWorldTask)
