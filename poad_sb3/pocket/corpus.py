"""The text the pocket model learns from, all of it generated here.

Of the tasks in `lang_envs.UNSEEN_IDS` it may hold only phrases that a training task has too (`open the microwave`), and
their nouns in plain sentences.

Two sources. *Play*: situations of the training environments, drawn uniformly from all that a long walk meets, each with
an action drawn uniformly from its admissible list. So the model learns the language of the tasks and the phrases of
each situation, the rare ones included, but not their values. *Sentences*: small statements about kitchens and homes
from a grammar, so that it is not only a parrot of prompts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import gymnasium as gym
import numpy as np

import lang_envs
from lang_envs import TRAINING_IDS


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.replace("_", " ") for word in text.split())


_PEOPLE = _words("Anna Ben Chen Dora Emil Fatima Grace Hugo Ines Jonas Kira Leo Mona Nils Olga Pavel")
_THINGS = _words(
    "plate cup glass spoon fork pan pot tray jar kettle towel apron basket candle blanket pillow lamp book tomato "
    "lettuce onion carrot potato pepper bowl knife milk bread egg apple salad soup cutting_board cheese hamburger "
    "apple_pie pizza pile_of_dishes dishwasher bundle_of_clothes washing_machine lasagna oven popcorn lemonade pancake "
    "microwave chips coffee_table TV sofa"
)
_QUALITIES = _words(
    "small large clean old red green white wooden empty fresh ripe chopped sliced warm cold heavy unchopped"
)
_PLACES = _words("table counter shelf window sink stove cupboard door chair garden_wall")
_ROOMS = _words("kitchen bathroom bedroom hallway cellar garden")
_PAST = _words("carried washed moved found bought painted dropped held noticed forgot dried wrapped borrowed")
_TIMES = _words("in_the_morning after_lunch before_dinner at_noon late_in_the_evening on_Sunday yesterday")
_REASONS = (
    "because the guests were hungry",
    "because the room was dark",
    "so that nobody would trip",
    "while the water was boiling",
    "while the radio played",
    "although nobody had asked",
)


class Example(NamedTuple):
    """A training text: a prompt, and the action that completes it (empty for a plain sentence)."""

    prompt: str
    action: str


def random_play(n_lines: int, rng: np.random.Generator, env_ids: tuple[str, ...] = TRAINING_IDS) -> Iterator[Example]:
    """Yield situations of the environments, drawn uniformly, each with a uniformly random admissible action.

    Args:
        n_lines: Number of lines to yield, in equal numbers from each environment.
        rng: Random generator of the situations, the actions and the environments' seeds.
        env_ids: Ids of the environments to play.
    """
    for index, env_id in enumerate(env_ids):
        situations = _situations(env_id, rng)
        for _ in range(n_lines // len(env_ids) + (index < n_lines % len(env_ids))):
            prompt, actions = situations[int(rng.integers(len(situations)))]
            yield Example(prompt, actions[int(rng.integers(len(actions)))])


def _situations(env_id: str, rng: np.random.Generator, n_steps: int = 40_000) -> list[tuple[str, tuple[str, ...]]]:
    """Return the distinct pairs of prompt and admissible actions on a long walk.

    Half of the steps are the oracle's, so that the walk reaches states that random play almost never sees.
    """
    env = gym.make(env_id, disable_env_checker=True)
    met: dict[tuple[str, tuple[str, ...]], None] = {}
    text, info = env.reset(seed=int(rng.integers(2**31)))
    for _ in range(n_steps):
        actions = info["admissible_actions"]
        met[text, tuple(actions)] = None
        action = lang_envs.oracle(env) if rng.random() < 0.5 else actions[int(rng.integers(len(actions)))]
        text, _, terminated, truncated, info = env.step(env.action_space.encode(action))  # type: ignore[attr-defined]
        if terminated or truncated:
            text, info = env.reset()
    env.close()
    return list(met)


def household_sentences(n_lines: int, rng: np.random.Generator) -> Iterator[Example]:
    """Yield statements in the past tense about people, things and rooms; no commands and no goals."""
    for _ in range(n_lines):
        yield Example(" ".join(_sentence(rng) for _ in range(int(rng.integers(1, 4)))), "")


def _sentence(rng: np.random.Generator) -> str:
    def pick(words: tuple[str, ...]) -> str:
        return words[int(rng.integers(len(words)))]

    def noun() -> str:
        return f"{pick(_QUALITIES)} {pick(_THINGS)}" if rng.random() < 0.5 else pick(_THINGS)

    forms = (
        f"{pick(_PEOPLE)} {pick(_PAST)} the {noun()} {pick(_TIMES)}.",
        f"Near the {pick(_PLACES)} in the {pick(_ROOMS)} were the {noun()} and the {noun()}.",
        f"{pick(_PEOPLE)} {pick(_PAST)} the {noun()} {pick(_REASONS)}.",
        f"In the {pick(_ROOMS)}, the {noun()} stood beside the {noun()}, not far from the {pick(_PLACES)}.",
        f"{pick(_TIMES).capitalize()}, {pick(_PEOPLE)} and {pick(_PEOPLE)} {pick(_PAST)} the {noun()}.",
    )
    return pick(forms)
