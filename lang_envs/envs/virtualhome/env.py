"""`VirtualHomeEnv`: the home as a language environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, Unpack

import numpy as np

from lang_envs.arguments import check_choice, check_integer
from lang_envs.core import LangEnv, Outcome, SharedOptions
from lang_envs.envs.memoization import Memo
from lang_envs.envs.virtualhome import describe
from lang_envs.envs.virtualhome.admissible import admissible_commands
from lang_envs.envs.virtualhome.oracle import best_command
from lang_envs.envs.virtualhome.rules import HomeState, Rules
from lang_envs.envs.virtualhome.tasks import TASKS, HomeTask, with_distractors
from lang_envs.envs.virtualhome.variation import Draw, Variation
from lang_envs.envs.virtualhome.wording import Wording

_MAX_HOMES_KEPT = 64
"""Maximum number of drawn homes whose transitions are cached."""


class _View(NamedTuple):
    """Description of a state, computed once for every state that is met."""

    text: str
    listed: tuple[str, ...]
    features: tuple[int, ...]
    is_goal: bool


class _World(NamedTuple):
    draw: Draw
    state: HomeState
    steps: int
    succeeded: bool


class _Home:
    """A task with the words of an episode, and the consequences of everything that was met in it."""

    def __init__(self, task: HomeTask, draw: Draw, description: describe.Description) -> None:
        self.task = with_distractors(task, draw.distractors)
        self.rules = Rules(self.task.scene)
        self.wording = Wording(dict(draw.nouns), draw.phrasing)
        self.description = description
        self.phrases = describe.phrases(self.task, self.wording)
        self.position = {phrase: position for position, phrase in enumerate(self.phrases)}
        self._of_command = dict(zip(self.task.commands, self.phrases, strict=True))
        self._views = Memo[HomeState, _View]()
        self._after = Memo[tuple[HomeState, int], HomeState | None]()

    def view(self, state: HomeState) -> _View:
        view = self._views.get(state)
        if view is None:
            facts = self.rules.perceive(state)
            listed = tuple(self._of_command[command] for command in admissible_commands(self.task, facts))
            text = describe.observation(self.task, facts, self.wording, self.description)
            view = _View(text, listed, self.task.features(facts), self.task.is_reached(facts))
            self._views[state] = view
        return view

    def after(self, state: HomeState, position: int) -> HomeState | None:
        """Return the state after a command; None if the world refuses it."""
        key = (state, position)
        if key not in self._after:
            self._after[key] = self.rules.execute(state, self.task.commands[position])
        return self._after[key]

    def best_phrase(self, state: HomeState) -> str:
        return self._of_command[best_command(self.task, state)]


class VirtualHomeEnv(LangEnv[_World]):
    """A person in a home of four rooms walks, grabs, opens and sits by commands such as `walk to the kitchen`.

    Rules, command phrases, admissible lists and rewards are those of the published tasks (TWOSOME, POAD), the wording
    of the observations is our own. They are hard since only the present room is seen, most of the state is
    hidden, and the list of admissible commands is no promise that the world will carry one out. A refused command
    costs a step and has no other effect. The home is deterministic; a seed matters only for the variations.

    Args:
        task: Key of `lang_envs.envs.virtualhome.tasks.TASKS`.
        nouns: Names of the things of the task: a mapping from role (`"pancake"`, `"microwave"`; `"chips"`, `"milk"`,
            `"coffee table"`, `"TV"`, `"sofa"`) to a noun, or to several; every reset draws one of them.
        phrasing: Number of the phrasing of all sentences (0: the published phrases; position in
            `lang_envs.envs.virtualhome.wording.PHRASINGS`), or `"any"`: every reset draws one.
        distractors: Things in the kitchen that the task does not need: names from
            `lang_envs.envs.virtualhome.tasks.DISTRACTORS`, or how many every reset draws (at most 3).
        describe: `"published"`: the information of the published text only; `"full"`: every visible thing, once.
        max_steps: Time limit; reaching it truncates.
        invalid_action_reward: Reward added when a text is not in the command set; that costs one step.
        oracle_info: Put `oracle_action` into `info`.
        shuffle_actions: List the admissible actions in an order drawn at every reset.
        tokenizer: Tokenizer of the action space.
        max_action_length: Largest number of action tokens, end token included.
        render_mode: None, `"ansi"` or `"rgb_array"`.

    `info`: `admissible_actions`, `features` (int64, the 0/1 vector of the original task; distractors are not in it),
    `command_succeeded` (whether the world carried the command out; False at reset and for an invalid action),
    `success`, `invalid_action`.

    Raises:
        ValueError: If a task, role, phrasing or distractor is unknown, or a number is out of range.
    """

    metadata = {**LangEnv.metadata, "render_modes": ["ansi", "rgb_array"]}  # noqa: RUF012 - gymnasium's
    renderer = "lang_envs.envs.virtualhome.render"

    def __init__(
        self,
        task: str = "food-preparation",
        *,
        nouns: Mapping[str, str | Sequence[str]] | None = None,
        phrasing: int | Literal["any"] = 0,
        distractors: int | Sequence[str] = 0,
        describe: describe.Description = "published",
        max_steps: int = 50,
        **options: Unpack[SharedOptions],
    ) -> None:
        check_choice("task", task, TASKS)
        check_choice("describe", describe, ("published", "full"))
        check_integer("max_steps", max_steps, 1)
        super().__init__(**options)
        self.task = TASKS[task]
        self.max_steps = max_steps
        self.description: Literal["published", "full"] = describe
        self.variation = Variation(self.task, nouns or {}, phrasing, distractors)
        self._homes = Memo[Draw, _Home]()
        self._world: _World
        self._home: _Home
        self._start(self.variation.first())

    @property
    def home_state(self) -> HomeState:
        """Current state, for rendering and oracles."""
        return self._world.state

    @property
    def home_task(self) -> HomeTask:
        """Task of this episode, distractors included, for rendering and oracles."""
        return self._home.task

    @property
    def wording(self) -> Wording:
        """Words of this episode."""
        return self._home.wording

    @property
    def elapsed_steps(self) -> int:
        """Number of steps of this episode."""
        return self._world.steps

    @property
    def last_command_succeeded(self) -> bool:
        """Whether the world carried the last command out; False before the first and for an invalid action."""
        return self._world.succeeded

    @property
    def command_set(self) -> tuple[str, ...]:
        """Phrases that the rules execute in this episode, whether or not they are listed."""
        return self._home.phrases

    def oracle_action(self) -> str:
        """Return the first command of a shortest plan to the goal; listed commands are preferred."""
        return self._home.best_phrase(self._world.state)

    def _restart(self, options: Mapping[str, Any]) -> None:
        self._start(self.variation.draw(self.np_random))

    def _start(self, draw: Draw) -> None:
        scene = with_distractors(self.task, draw.distractors).scene
        self._set_world(_World(draw, Rules(scene).start(), 0, False))

    def _describe(self) -> str:
        return self._home.view(self._world.state).text

    def _listed_actions(self) -> list[str]:
        return list(self._home.view(self._world.state).listed)

    def _execute(self, text: str) -> Outcome | None:
        position = self._home.position.get(text)
        if position is None:
            return None
        after = self._home.after(self._world.state, position)
        return self._advance(after or self._world.state, succeeded=after is not None)

    def _pass_time(self) -> Outcome:
        return self._advance(self._world.state, succeeded=False)

    def _advance(self, state: HomeState, *, succeeded: bool) -> Outcome:
        steps = self._world.steps + 1
        self._world = _World(self._world.draw, state, steps, succeeded)
        reached = self._home.view(state).is_goal
        return Outcome(float(reached), reached, steps >= self.max_steps and not reached, reached)

    def _family_info(self, *, acted: bool) -> dict[str, Any]:
        return {
            "features": np.array(self._home.view(self._world.state).features, dtype=np.int64),
            "command_succeeded": acted and self._world.succeeded,
        }

    def _configuration(self) -> dict[str, Any]:
        return {
            "task": self.task.name,
            "nouns": self.variation.nouns,
            "phrasings": self.variation.phrasings,
            "distractors": self.variation.distractors,
            "describe": self.description,
            "max_steps": self.max_steps,
        }

    def _set_world(self, world: _World) -> None:
        home = self._homes.get(world.draw)
        if home is None:
            if len(self._homes) >= _MAX_HOMES_KEPT:
                self._homes.pop(next(iter(self._homes)), None)  # the oldest
            home = self._homes[world.draw] = _Home(self.task, world.draw, self.description)
        self._home, self._world = home, world
