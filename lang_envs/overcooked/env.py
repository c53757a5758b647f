"""`OvercookedEnv`: the kitchen as a language environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from lang_envs.core import LangEnv, Outcome
from lang_envs.errors import LangEnvsError
from lang_envs.overcooked import describe
from lang_envs.overcooked.kitchen import Event, Food, KitchenState, Move, Rules
from lang_envs.overcooked.layout import TASKS, Cell
from lang_envs.overcooked.macro_actions import MacroRun, execute, macros_of
from lang_envs.overcooked.oracle import shortest_plan
from lang_envs.tokenizers import Tokenizer

__all__ = ["KitchenReward", "OvercookedEnv"]


@dataclass(frozen=True)
class KitchenReward:
    """Rewards of one primitive move, and the discount that folds a macro-action's primitives into one reward.

    Attributes:
        chop: A food that the dish needs has had its last stroke.
        deliver: The right dish is served; ends the episode.
        misdeliver: Anything else is served; it goes back to its home, unchopped.
        step: Every primitive, added to the events.
        discount: Per primitive inside a macro-action: reward = sum over k of discount^k r_k, k from 0.
    """

    chop: float = 0.2
    deliver: float = 1.0
    misdeliver: float = -0.1
    step: float = -0.001
    discount: float = 0.99

    def of_run(self, events: tuple[Event, ...]) -> float:
        """Discounted sum over the primitives of a macro-action."""
        extra = {Event.CHOPPED: self.chop, Event.DELIVERED: self.deliver, Event.MISDELIVERED: self.misdeliver}
        return sum(self.discount**k * (self.step + extra.get(event, 0.0)) for k, event in enumerate(events))


class _View(NamedTuple):
    """What a state looks like: computed once for every state that is met."""

    text: str
    phrases: tuple[str, ...]
    features: tuple[int, ...]


class _Effect(NamedTuple):
    """What a macro-action does in a state: computed once for every pair that is met."""

    run: MacroRun
    reward: float


class _World(NamedTuple):
    state: KitchenState
    primitives: int
    last_primitives: int


class OvercookedEnv(LangEnv[_World]):
    """One cook in a 7x7 kitchen fetches, chops, fills the bowl and serves; an action is a phrase such as
    `pick up the tomato` that the cook carries out as a run of primitive moves (a macro-action).

    The task is deterministic: the seed changes nothing. Rewards and rules are those of the published tasks
    (TWOSOME, POAD); the wording of the observations is our own.

    Args:
        task: Key of `lang_envs.overcooked.layout.TASKS`.
        reward: The published numbers by default.
        view_radius: The cook sees the square of this radius around it, in cells.
        max_primitives: Time limit in primitive moves; reaching it truncates, but a macro-action is never cut.
        invalid_action_reward: Added when a text is not one of the phrases admissible now (which costs one `stay`).
        tokenizer: Tokenizer of the action space.
        max_action_length: Largest number of action tokens, end token included.
        render_mode: None, `"ansi"` or `"rgb_array"`.

    `info`: `admissible_actions` (the phrase of every macro-action, always the same macro at the same position),
    `features` (int64, the raw vector of the original task), `primitive_steps` (taken by this action; 0 at reset),
    `success`, `invalid_action`.

    Raises:
        ValueError: For an unknown task, or numbers out of range.
    """

    def __init__(
        self,
        task: str = "tomato-salad",
        *,
        reward: KitchenReward | None = None,
        view_radius: int = 2,
        max_primitives: int = 200,
        invalid_action_reward: float = 0.0,
        tokenizer: str | Tokenizer = "byte",
        max_action_length: int = 48,
        render_mode: str | None = None,
    ) -> None:
        if task not in TASKS:
            raise ValueError(f"Expected task to be one of {sorted(TASKS)}; got {task!r}. Fix: check the spelling.")
        if view_radius < 0 or max_primitives < 1:
            raise ValueError(
                f"Expected view_radius >= 0 and max_primitives >= 1; got {view_radius} and {max_primitives}."
            )
        super().__init__(
            tokenizer=tokenizer,
            max_action_length=max_action_length,
            max_observation_length=512,
            invalid_action_reward=invalid_action_reward,
            render_mode=render_mode,
        )
        self.task = TASKS[task]
        self.reward = reward or KitchenReward()
        self.view_radius = view_radius
        self.max_primitives = max_primitives
        self.rules = Rules(self.task)
        self._macros = macros_of(self.task)
        self._views: dict[KitchenState, _View] = {}
        self._effects: dict[tuple[KitchenState, int], _Effect] = {}
        self._world = _World(self.rules.start(), 0, 0)

    @property
    def kitchen_state(self) -> KitchenState:
        """The current state, for rendering and oracles."""
        return self._world.state

    @property
    def elapsed_primitives(self) -> int:
        """Primitive moves made in this episode."""
        return self._world.primitives

    def admissible_actions(self) -> list[str]:
        """The phrase of every macro-action in this state."""
        return list(self._view().phrases)

    def oracle_action(self) -> str:
        """First phrase of the shortest plan (fewest macro-actions, then fewest primitives) to a correct delivery."""
        plan = shortest_plan(self.rules, self._world.state, self.view_radius)
        return self._view().phrases[plan[0]]

    def render(self) -> Any:  # noqa: ANN401 - text or image, by render_mode
        """A text drawing (`"ansi"`) or an RGB image (`"rgb_array"`, uint8, shape (height, width, 3))."""
        from lang_envs.overcooked import render

        if self.render_mode is None:
            return None
        return render.ansi(self) if self.render_mode == "ansi" else render.rgb_array(self)

    def _restart(self, options: Mapping[str, Any]) -> None:
        self._world = _World(self.rules.start(), 0, 0)

    def _describe(self) -> str:
        return self._view().text

    def _execute(self, text: str) -> Outcome | None:
        phrases = self._view().phrases
        if text not in phrases:
            return None
        effect = self._effect(phrases.index(text))
        return self._advance(effect.run.state, effect.run.events, effect.reward)

    def _pass_time(self) -> Outcome:
        state, event = self.rules.step(self._world.state, Move.STAY)
        return self._advance(state, (event,), self.reward.of_run((event,)))

    def _advance(self, state: KitchenState, events: tuple[Event, ...], reward: float) -> Outcome:
        primitives = self._world.primitives + len(events)
        self._world = _World(state, primitives, len(events))
        delivered = events[-1] is Event.DELIVERED
        return Outcome(reward, delivered, primitives >= self.max_primitives and not delivered, delivered)

    def _family_info(self, *, acted: bool) -> dict[str, Any]:
        return {
            "features": np.array(self._view().features, dtype=np.int64),
            "primitive_steps": self._world.last_primitives if acted else 0,
        }

    def _configuration(self) -> dict[str, Any]:
        return {
            "task": self.task.name,
            "view_radius": self.view_radius,
            "max_primitives": self.max_primitives,
            "reward": self.reward,
        }

    def _get_world(self) -> _World:
        return self._world

    def _set_world(self, world: _World) -> None:
        if not _is_world(world, len(self.task.foods)):
            raise LangEnvsError(
                f"Expected the world of a {self.task.name} kitchen; got {world!r}. Fix: use get_state()."
            )
        self._world = world

    def _view(self) -> _View:
        state = self._world.state
        view = self._views.get(state)
        if view is None:
            where = (self.task, state, self.view_radius)
            view = _View(describe.observation(*where), describe.admissible_phrases(*where), describe.features(*where))
            self._views[state] = view
        return view

    def _effect(self, index: int) -> _Effect:
        key = (self._world.state, index)
        effect = self._effects.get(key)
        if effect is None:
            run = execute(self.rules, self._world.state, self._macros[index], self.view_radius)
            effect = self._effects[key] = _Effect(run, self.reward.of_run(run.events))
        return effect


def _is_world(world: object, n_foods: int) -> bool:
    """Whether an object that claims to be a captured world is one, down to its cells."""
    if not isinstance(world, _World) or not isinstance(world.state, KitchenState):
        return False
    agent, foods, bowl = world.state
    cells = [agent, bowl, *(food.place for food in foods if isinstance(food, Food))]
    counters = (world.primitives, world.last_primitives)
    return (
        len(foods) == n_foods == len(cells) - 2
        and all(isinstance(cell, Cell) for cell in cells)
        and all(type(counter) is int and counter >= 0 for counter in counters)
    )
