"""Write a text environment, check it against the contract, and train on it. About 15 seconds.

python examples/own_environment.py [STEPS]
"""

import sys

import gymnasium as gym

from lang_envs import LangEnv
from lang_envs.core import Outcome
from lang_envs.env_checker import Status, iter_checks
from poad_sb3 import POAD

COLOURS = ("red", "green", "blue")


class Doors(LangEnv[tuple[str, int, int]]):
    """One of three doors is open, and the text names it. The goal is to pass three of them in six steps."""

    metadata = {"render_modes": []}  # noqa: RUF012

    def _restart(self, options):
        self._world = (self._draw(), 0, 0)  # open door, doors passed, steps; get_state() stores `_world`

    def _draw(self):
        return COLOURS[self.np_random.integers(len(COLOURS))]  # self.np_random only: same seed, same episode

    def _describe(self):
        return f"You passed {self._world[1]} doors. The {self._world[0]} door is open. You"

    def _listed_actions(self):
        return [f"take the {colour} door" for colour in COLOURS]

    def _execute(self, text):
        if text not in self._listed_actions():
            return None  # an invalid action: the base class calls _pass_time
        is_open = text == f"take the {self._world[0]} door"
        self._world = (self._draw(), self._world[1] + is_open, self._world[2])
        return self._pass_time()._replace(reward=float(is_open))

    def _pass_time(self):
        door, passed, steps = self._world
        self._world, won = (door, passed, steps + 1), passed == 3
        return Outcome(reward=0.0, terminated=won, truncated=steps == 5 and not won, success=won)

    def _family_info(self, *, acted):
        return {"passed": self._world[1]}


gym.register("Doors-v0", entry_point=Doors)
if __name__ == "__main__":
    for result in iter_checks("Doors-v0"):  # in a shell: lang-envs check my_module:Doors-v0
        if result.status is Status.FAILED:
            print("contract:", result.name, result.message)
        if result.name == "step_after_the_end":
            break  # the checks of rendering and of vectors follow

    POAD("LLMPolicy", gym.make("Doors-v0"), seed=0, verbose=1).learn(int(sys.argv[1]) if len(sys.argv) > 1 else 1_024)
