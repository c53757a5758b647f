"""The one table of environments; importing `lang_envs` registers its rows with Gymnasium.

An id is a contract: once released, its behaviour changes only under a new `-vN`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import load_env_creator

from lang_envs.foreign_names import GAMES, LEVELS

__all__ = [
    "ALL_ROWS",
    "ENV_ROWS",
    "FOREIGN_ROWS",
    "TRAINING_IDS",
    "UNSEEN_IDS",
    "EnvRow",
    "creator",
    "register_envs",
    "registered",
]


@dataclass(frozen=True)
class EnvRow:
    """One environment id.

    Attributes:
        id: Gymnasium id.
        entry_point: `"module:Class"`; imported at the first `gym.make`.
        kwargs: Arguments that make this task out of its family.
        summary: Description in one line, for lists.
        trial: Further arguments that let it be made on any machine, for an environment whose table has to be fetched or
            is the user's; used by tests.
        extra: Extra that brings the package whose task it is; empty for the tasks of this package.
    """

    id: str
    entry_point: str
    summary: str
    kwargs: dict[str, Any] = field(default_factory=dict)
    trial: dict[str, Any] = field(default_factory=dict)
    extra: str = ""


def _kitchen(name: str, task: str, summary: str) -> EnvRow:
    return EnvRow(f"Overcooked-{name}-v0", "lang_envs.envs.overcooked.env:OvercookedEnv", summary, {"task": task})


def _home(name: str, task: str, summary: str, **nouns: str) -> EnvRow:
    """Make the row of a household task; `nouns` renames its things, an underscore standing for a space."""
    called = {"nouns": {role.replace("_", " "): noun for role, noun in nouns.items()}} if nouns else {}
    entry_point = "lang_envs.envs.virtualhome.env:VirtualHomeEnv"
    return EnvRow(f"VirtualHome-{name}-v0", entry_point, summary, {"task": task, **called})


_CODING = "lang_envs.envs.datascicoding.env:DataSciCodingEnv"


def _coding(dataset: str, summary: str, **trial: str) -> EnvRow:
    return EnvRow(f"DataSciCoding-{dataset}-v0", _CODING, summary, {"dataset": dataset}, trial)


def _fetched_coding(dataset: str, summary: str) -> EnvRow:
    return _coding(dataset, summary, data="synthetic")


_OWN_TABLE = {"size": [float(n) for n in range(40)], "kind": ["small"] * 20 + ["large"] * 20}


_HEAT, _WATCH = "food-preparation", "entertainment"

ENV_ROWS: tuple[EnvRow, ...] = (
    _kitchen("TomatoSalad", "tomato-salad", "One cook, one tomato, one board: chop it, fill the bowl, serve."),
    _kitchen("TomatoLettuceSalad", "tomato-lettuce-salad", "Chop tomato and lettuce on two boards, leave the onion."),
    _kitchen("LettuceSalad", "lettuce-salad", "Chop the lettuce, leave tomato and onion."),
    _kitchen("OnionSalad", "onion-salad", "Chop the onion, leave tomato and lettuce."),
    _kitchen("TomatoOnionSalad", "tomato-onion-salad", "Chop tomato and onion, leave the lettuce."),
    _kitchen("LettuceOnionSalad", "lettuce-onion-salad", "Chop lettuce and onion, leave the tomato."),
    _kitchen("TomatoLettuceOnionSalad", "tomato-lettuce-onion-salad", "Chop all three for one bowl."),
    _home("FoodPreparation", _HEAT, "Find the pancake, shut it in the microwave."),
    _home("Entertainment", _WATCH, "Bring chips and milk to the sofa and watch TV."),
    _home("Cheese", _HEAT, "Food Preparation with cheese.", pancake="cheese"),
    _home("Hamburger", _HEAT, "Food Preparation with a hamburger.", pancake="hamburger"),
    _home("ApplePie", _HEAT, "Food Preparation with an apple pie.", pancake="apple pie"),
    _home("Pizza", _HEAT, "Food Preparation with a pizza.", pancake="pizza"),
    _home(
        "WashingPlate",
        _HEAT,
        "Food Preparation with dishes and a dishwasher.",
        pancake="dishes",
        microwave="dishwasher",
    ),
    _home(
        "Laundry",
        _HEAT,
        "Food Preparation with clothes and a washing machine.",
        pancake="clothes",
        microwave="washing machine",
    ),
    _home("Lasagna", _HEAT, "Food Preparation with a lasagna and an oven.", pancake="lasagna", microwave="oven"),
    _home("MovieNight", _WATCH, "Entertainment with popcorn and lemonade.", chips="popcorn", milk="lemonade"),
    _coding("balance-scale", "Write a classifier: which side of a balance goes down."),
    _coding("wine", "Write a classifier: which grower a wine is from."),
    _coding("iris", "Write a classifier: which of three irises a flower is."),
    _coding("breast-cancer", "Write a classifier: whether a tumour is benign."),
    _coding("digits", "Write a classifier: which digit was written."),
    _coding("generated", "Write a classifier: for a new, generated table in every episode."),
    _fetched_coding("airlines", "Write a classifier: whether a flight is late."),
    _fetched_coding("breast-w", "Write a classifier: whether a breast tumour is malignant."),
    _fetched_coding("health-insurance", "Write a classifier: whether a customer wants an insurance."),
    _fetched_coding("pharyngitis", "Write a classifier: whether a sore throat has streptococci."),
    _fetched_coding("spaceship-titanic", "Write a classifier: who was carried off from a spaceship."),
    EnvRow(
        "DataSciCoding-v0",
        _CODING,
        "Write a classifier for a table of your own.",
        {"dataset": None},
        {"table": _OWN_TABLE, "target": "kind"},
    ),
    EnvRow(
        "KeyToken-v0",
        "lang_envs.envs.keytoken.env:KeyTokenEnv",
        "A diagnostic: one word of the action decides.",
        {"n_tokens": 4, "key_position": 1, "n_actions": 5, "horizon": 4},
    ),
    EnvRow(
        "MultiKey-v0",
        "lang_envs.envs.multikey.env:MultiKeyEnv",
        "A diagnostic: some words of the action decide, others do not.",
        {"k": 2, "d": 2, "n_words": 2, "horizon": 4},
    ),
    EnvRow(
        "MultiKey-length-trap-v0",
        "lang_envs.envs.multikey.env:LengthTrapEnv",
        "A diagnostic: a short and a long action compete.",
        {"sign": "both", "horizon": 4},
    ),
    EnvRow(
        "Parity-v0",
        "lang_envs.envs.parity.env:ParityEnv",
        "A diagnostic: counting along in a thought helps.",
        {"n_objects": 8, "horizon": 4},
    ),
)
"""The ids of the tasks of this package."""


def _babyai(level: str) -> EnvRow:
    name, _, version = level.partition("-v")
    kwargs = {"level": f"BabyAI-{name}-v{version or 0}"}
    entry_point, summary = "lang_envs.envs.babyai.env:BabyAITextEnv", f"BabyAI in words: the level {name}."
    return EnvRow(f"BabyAIText-{name}-v0", entry_point, summary, kwargs, extra="minigrid")


def _textworld(name: str, challenge: str | None, summary: str) -> EnvRow:
    kwargs = {} if challenge is None else {"challenge": challenge}
    trial = {"challenge": "simple"} if challenge is None else {}
    entry_point = "lang_envs.envs.textworld.env:TextWorldEnv"
    return EnvRow(f"TextWorld-{name}v0", entry_point, summary, kwargs, trial, extra="textworld")


def _textarena(game: str) -> EnvRow:
    entry_point, summary = "lang_envs.envs.textarena.env:TextArenaEnv", f"TextArena, for one player: {game}."
    return EnvRow(f"TextArena-{game}-v0", entry_point, summary, {"game": game}, extra="textarena")


FOREIGN_ROWS: tuple[EnvRow, ...] = (
    *map(_babyai, LEVELS),
    _textworld("CoinCollector-", "coin-collector", "TextWorld: walk to the coin."),
    _textworld("TreasureHunter-", "treasure-hunter", "TextWorld: take the right thing."),
    _textworld("Simple-", "simple", "TextWorld: fetch something to eat from a house of locked things."),
    _textworld("Cooking-", "cooking", "TextWorld: cook by the recipe."),
    _textworld("", None, "TextWorld: a game of your own, game='FILE.z8'."),
    *map(_textarena, GAMES),
)
"""The ids of tasks of other packages, which are imported at `gym.make`."""

ALL_ROWS: tuple[EnvRow, ...] = (*ENV_ROWS, *FOREIGN_ROWS)
"""Every registered id."""

TRAINING_IDS: tuple[str, ...] = (
    "Overcooked-TomatoSalad-v0",
    "Overcooked-TomatoLettuceSalad-v0",
    "VirtualHome-FoodPreparation-v0",
    "VirtualHome-Entertainment-v0",
)
"""Published tasks that agents, and the pocket model, are trained on."""

UNSEEN_IDS: tuple[str, ...] = tuple(
    f"VirtualHome-{name}-v0"
    for name in ("Cheese", "Hamburger", "ApplePie", "Pizza", "WashingPlate", "Laundry", "Lasagna", "MovieNight")
)
"""Tasks for measuring generalisation: do not train, tune or select on them."""


def register_envs() -> None:
    """Register every row that Gymnasium does not know yet.

    Time limits are the tasks' own budgets (they count primitives or attempts, and belong to `get_state`), so no
    `max_episode_steps` is registered and no `TimeLimit` wrapper is added.
    """
    for row in ALL_ROWS:
        if row.id not in gym.registry:
            gym.register(row.id, entry_point=row.entry_point, kwargs=row.kwargs)


def registered(env_id: str) -> str | None:
    """Return the registered id of a recorded environment, without the module before it; None where there is none.

    It never imports that module, which an untrusted file could choose.

    Args:
        env_id: Id as it was given to `gym.make`, such as `module:Id-v0`.
    """
    name = env_id.rpartition(":")[2]
    return name if name in gym.registry else None


def creator(env_id: str) -> Any:
    """Return the entry point of a registered id, loaded: a class, or a function."""
    entry = gym.spec(env_id).entry_point
    return load_env_creator(entry) if isinstance(entry, str) else entry
