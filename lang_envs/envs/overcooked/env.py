"""`OvercookedEnv`: the kitchen as a language environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, Unpack

import numpy as np

from lang_envs.arguments import check_choice, check_flags, check_integer, is_number
from lang_envs.core import LangEnv, Outcome, SharedOptions
from lang_envs.envs.memoization import Memo
from lang_envs.envs.overcooked import describe
from lang_envs.envs.overcooked.admissible import admissible_phrases
from lang_envs.envs.overcooked.kitchen import Event, Item, KitchenState, Move, Rules
from lang_envs.envs.overcooked.macro_actions import MacroRun, execute, macros_of
from lang_envs.envs.overcooked.oracle import best_macro
from lang_envs.envs.overcooked.tasks import TASKS


@dataclass(frozen=True)
class KitchenReward:
    """Rewards of one primitive move, and the discount that folds a macro-action's primitives into one reward.

    Attributes:
        chop: Reward for the last stroke on a food that the dish needs.
        deliver: Reward for serving the right dish; ends the episode.
        misdeliver: Reward for serving anything else; it goes back to its home, unchopped.
        step: Reward of every primitive, added to that of its event.
        discount: Discount per primitive inside a macro-action: reward = sum over k of discount^k r_k, k from 0.
    """

    chop: float = 0.2
    deliver: float = 1.0
    misdeliver: float = -0.1
    step: float = -0.001
    discount: float = 0.99

    def __post_init__(self) -> None:
        """Raise for a value that is not a number; numbers become floats, so that equal rewards have equal states.

        Raises:
            ValueError: If a value is not a finite number.
        """
        if not all(is_number(value) for value in vars(self).values()):
            raise ValueError(f"Expected finite numbers for a KitchenReward; got {vars(self)}.")
        for name, value in vars(self).items():
            object.__setattr__(self, name, float(value))

    def of_run(self, events: tuple[Event, ...], *, pay_chop: bool = True) -> float:
        """Return the discounted sum of rewards over the primitives of a macro-action.

        Without `pay_chop`, a last stroke has no reward of its own.
        """
        chop = self.chop if pay_chop else 0.0
        extra = {Event.CHOPPED: chop, Event.DELIVERED: self.deliver, Event.MISDELIVERED: self.misdeliver}
        return sum(self.discount**k * (self.step + extra.get(event, 0.0)) for k, event in enumerate(events))


class _View(NamedTuple):
    """Description of a state, computed once for every state that is met."""

    text: str
    phrases: tuple[str, ...]
    features: tuple[int, ...]


class _Effect(NamedTuple):
    """Effect of a macro-action in a state, computed once for every pair that is met.

    `chopped` is the food that it finished and that the dish needs, `unpaid` the reward if that one is not paid for.
    """

    run: MacroRun
    reward: float
    chopped: Item | None
    unpaid: float


class _World(NamedTuple):
    state: KitchenState
    primitives: int
    last_primitives: int
    paid: frozenset[Item] = frozenset()  # foods whose chopping has been paid for in this episode


class OvercookedEnv(LangEnv[_World]):
    """One cook in a 7x7 kitchen fetches, chops, fills the bowl and serves; an action is a phrase such as
    `pick up the tomato` that the cook carries out as a run of primitive moves (a macro-action).

    The task is deterministic: the seed has no effect. Rewards and rules are those of the published tasks
    (TWOSOME, POAD); the wording of the observations is our own.

    Args:
        task: Key of `lang_envs.envs.overcooked.tasks.TASKS`.
        reward: Rewards; the published ones by default. A mapping changes some of them, and can be written into a spec.
        view_radius: Radius in cells of the square around the cook that it sees.
        max_primitives: Time limit in primitive moves; reaching it truncates, but a macro-action is never cut.
        once_only_chop_reward: Whether chopping each food pays only once in an episode. As published (False), a food
            that was served wrongly pays again, and chopping and misdelivering in turn can beat finishing.
        invalid_action_reward: Reward added when a text is not one of the phrases admissible now; that costs one `stay`.
        oracle_info: Put `oracle_action` into `info`.
        shuffle_actions: List the admissible actions in an order drawn at every reset.
        tokenizer: Tokenizer of the action space.
        max_action_length: Largest number of action tokens, end token included.
        render_mode: None, `"ansi"` or `"rgb_array"`.

    `info`: `admissible_actions` (the phrase of every macro-action, always in the same order unless shuffled),
    `features` (int64, the raw vector of the original task), `primitive_steps` (taken by this action; 0 at reset),
    `success`, `invalid_action`.

    Raises:
        ValueError: If the task is unknown, the reward is not valid, or a number is out of range.
    """

    metadata = {**LangEnv.metadata, "render_modes": ["ansi", "rgb_array"]}  # noqa: RUF012 - gymnasium's
    renderer = "lang_envs.envs.overcooked.render"

    def __init__(
        self,
        task: str = "tomato-salad",
        *,
        reward: KitchenReward | Mapping[str, float] | None = None,
        view_radius: int = 2,
        max_primitives: int = 200,
        once_only_chop_reward: bool = False,
        **options: Unpack[SharedOptions],
    ) -> None:
        check_choice("task", task, TASKS)
        check_integer("view_radius", view_radius, 0)
        check_integer("max_primitives", max_primitives, 1)
        check_flags(once_only_chop_reward=once_only_chop_reward)
        super().__init__(**options)
        self.task = TASKS[task]
        self.reward = reward if isinstance(reward, KitchenReward) else _reward_of(reward or {})
        self.view_radius = view_radius
        self.max_primitives = max_primitives
        self.once_only_chop_reward = once_only_chop_reward
        self.rules = Rules(self.task)
        self._macros = macros_of(self.task)
        self._views = Memo[KitchenState, _View]()
        self._effects = Memo[tuple[KitchenState, int], _Effect]()
        self._world = _World(self.rules.start(), 0, 0)

    @property
    def kitchen_state(self) -> KitchenState:
        """Current state, for rendering and oracles."""
        return self._world.state

    @property
    def elapsed_primitives(self) -> int:
        """Number of primitive moves made in this episode."""
        return self._world.primitives

    def oracle_action(self) -> str:
        """Return the first phrase of the shortest plan to a correct delivery.

        Shortest in macro-actions, then in primitives.
        """
        return self._view().phrases[best_macro(self.task, self._world.state, self.view_radius)]

    def _restart(self, options: Mapping[str, Any]) -> None:
        self._world = _World(self.rules.start(), 0, 0)

    def _describe(self) -> str:
        return self._view().text

    def _listed_actions(self) -> list[str]:
        return list(self._view().phrases)

    def _execute(self, text: str) -> Outcome | None:
        phrases = self._view().phrases
        if text not in phrases:
            return None
        effect, paid = self._effect(phrases.index(text)), self._world.paid
        if effect.chopped is None or not self.once_only_chop_reward:
            return self._advance(effect.run.state, effect.run.events, effect.reward, paid)
        reward = effect.unpaid if effect.chopped in paid else effect.reward
        return self._advance(effect.run.state, effect.run.events, reward, paid | {effect.chopped})

    def _pass_time(self) -> Outcome:
        state, event = self.rules.step(self._world.state, Move.STAY)
        return self._advance(state, (event,), self.reward.of_run((event,)), self._world.paid)

    def _advance(self, state: KitchenState, events: tuple[Event, ...], reward: float, paid: frozenset[Item]) -> Outcome:
        primitives = self._world.primitives + len(events)
        self._world = _World(state, primitives, len(events), paid)
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
            "once_only_chop_reward": self.once_only_chop_reward,
            "reward": self.reward,
        }

    def _view(self) -> _View:
        state = self._world.state
        view = self._views.get(state)
        if view is None:
            where = (self.task, state, self.view_radius)
            view = _View(describe.observation(*where), admissible_phrases(*where), describe.features(*where))
            self._views[state] = view
        return view

    def _effect(self, index: int) -> _Effect:
        key = (self._world.state, index)
        effect = self._effects.get(key)
        if effect is None:
            run = execute(self.rules, self._world.state, self._macros[index], self.view_radius)
            unpaid = self.reward.of_run(run.events, pay_chop=False)
            effect = _Effect(run, self.reward.of_run(run.events), _chopped(self._world.state, run), unpaid)
            self._effects[key] = effect
        return effect


def _chopped(before: KitchenState, run: MacroRun) -> Item | None:
    """Return the food whose last stroke a macro-action made and paid for; at most one."""
    if Event.CHOPPED not in run.events:
        return None
    pairs = zip(before.foods, run.state.foods, strict=True)
    return next(item for item, (was, now) in enumerate(pairs) if now.chopped and not was.chopped)


def _reward_of(changes: Mapping[str, float]) -> KitchenReward:
    names = [field.name for field in fields(KitchenReward)]
    if not isinstance(changes, Mapping) or not set(changes) <= set(names):
        raise ValueError(f"Expected reward to be a KitchenReward, or numbers for some of {names}; got {changes!r}.")
    return KitchenReward(**changes)
