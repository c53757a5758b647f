"""The words of the homes, exact over all reachable states: shown facts, hidden facts, renamed words."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import permutations

import gymnasium as gym
import pytest
from home_graph import HomeGraph, home_graph
from walk import IDS

from lang_envs.envs.virtualhome import describe
from lang_envs.envs.virtualhome.describe import Description
from lang_envs.envs.virtualhome.rules import AT_START, IN_HAND, HomeState
from lang_envs.envs.virtualhome.wording import PHRASINGS, Wording

HEAT, WATCH = "food-preparation", "entertainment"
BOTH = pytest.mark.parametrize("name", [HEAT, WATCH])
EVERY_PHRASING = pytest.mark.parametrize("phrasing", range(len(PHRASINGS)))
HOMES = [env_id for env_id in IDS if env_id.startswith("VirtualHome-")]


def texts_of(graph: HomeGraph, wording: Wording, description: Description = "published") -> list[str]:
    return [describe.observation(graph.task, facts, wording, description) for facts in graph.facts]


def assert_bijection(pairs: Iterable[tuple[Hashable, Hashable]]) -> int:
    """That each left side has one right side and the other way round; how many there are."""
    forth, back = defaultdict(set), defaultdict(set)
    for left, right in pairs:
        forth[left].add(right)
        back[right].add(left)
    assert {left: rights for left, rights in forth.items() if len(rights) > 1} == {}
    assert {right: lefts for right, lefts in back.items() if len(lefts) > 1} == {}
    return len(forth)


# ---------------------------------------------------------------------- content of the published text, facts section 5

EMPTY, USELESS = "Your hands are empty.", "There is nothing of use here."


def joined(names: Sequence[str], conjunction: str = "and") -> str:
    """In words: `the TV`, `the TV and the sofa`, `the coffee table, the TV and the sofa`."""
    *first, last = (f"the {name}" for name in names)
    return f"{', '.join(first)} {conjunction} {last}" if first else last


def in_hands(state: HomeState, names: Sequence[str]) -> str:
    held = [name for name, item in zip(names, state.items, strict=True) if item.place == IN_HAND]
    return f"You hold {joined(held)}." if held else EMPTY


def told_of_food_preparation(state: HomeState) -> tuple[str, ...]:
    spot, is_open, hands = state.items[0].place, bool(state.opened), in_hands(state, ["pancake"])
    if state.room != "kitchen":
        return (USELESS, hands)
    if spot == "microwave" and not is_open:
        near = "close" if "microwave" in state.near else "not close"
        inside, door = "You remember the pancake inside the microwave.", "You find the microwave closed."
        return (inside, hands, f"You are {near} to the microwave.", door)
    noticed = "You notice the pancake and the microwave."
    door = f"You find the microwave {'open' if is_open else 'closed'}."
    if spot == IN_HAND:
        return (noticed, hands, f"You are {'' if 'microwave' in state.near else 'not '}close to the microwave.", door)
    near = state.near & {"pancake", "microwave"}
    if len(near) == 2:
        return (noticed, door)
    reach = f"close to {joined([*near])}" if near else "not close to the pancake or the microwave"
    return (noticed, hands, f"You are {reach}.", door)


def told_of_entertainment(state: HomeState) -> tuple[str, ...]:
    if state.room == "kitchen":
        return told_of_the_kitchen(state)
    if state.room == "living room":
        return ("You notice the coffee table, the TV and the sofa.", *told_of_the_living_room(state))
    return (USELESS, in_hands(state, FOOD))


FOOD = ("chips", "milk")


def told_of_the_kitchen(state: HomeState) -> tuple[str, ...]:
    places = dict(zip(FOOD, (item.place for item in state.items), strict=True))
    visible = [name for name, spot in places.items() if spot != "coffee table"]
    lying = [name for name in visible if places[name] == AT_START]
    near = [name for name in lying if name in state.near]
    if not visible:
        return (USELESS,)
    noticed, hands = f"You notice {joined(visible)}.", in_hands(state, FOOD)
    reach = f"close to {joined(near)}, still to be grabbed" if near else f"not close to {joined(lying or FOOD, 'or')}"
    if not lying:
        return (noticed, hands)
    if len(visible) == 1:
        return (noticed, f"You are {reach}.")
    return (noticed, f"You are {reach}.", hands)


def told_of_the_living_room(state: HomeState) -> tuple[str, ...]:
    places = [item.place for item in state.items]
    near, hands = state.near & {"coffee table", "TV", "sofa"}, in_hands(state, FOOD)
    if not near:
        return ("You are not close to the coffee table, the TV or the sofa.", hands)
    carrying = (hands,) if IN_HAND in places else ()
    served = [name for name, spot in zip(FOOD, places, strict=True) if spot == "coffee table"]
    divided = IN_HAND in places and bool(served)
    on_table = (f"You see {joined(served)} on the coffee table.",) if divided else ()
    if near == {"coffee table"}:
        where = "You are not close to the TV." if divided else "You are close to the coffee table."
        return (where, *on_table, hands)
    television = ("You find the TV turned on.",) if state.lit and carrying else ()
    if near == {"TV"}:
        where = "You are not close to the sofa." if state.lit else "You are close to the TV."
    else:
        where = "You have sat down on the sofa." if state.seats_taken else "You are close to the sofa."
    return (where, *television, *on_table, *carrying)


TOLD: dict[str, Callable[[HomeState], tuple[str, ...]]] = {HEAT: told_of_food_preparation, WATCH: told_of_entertainment}
GOALS = {
    HEAT: "Your task is to heat up the pancake in the microwave.",
    WATCH: "Your task is to enjoy the chips and the milk while watching the TV.",
}


def sentences(text: str) -> list[str]:
    return re.split(r"(?<=\.) ", text)


def frame(name: str, state: HomeState) -> list[str]:
    """The common part of every text: the present room, the task, and a cue for the command."""
    rooms = "The home has a kitchen, a bathroom, a bedroom and a living room, and you are in"
    return [f"{rooms} the {state.room}.", GOALS[name], "For that, you"]


@BOTH
def test_published_text(name: str) -> None:
    graph = home_graph(name)
    for state, text in zip(graph.states, texts_of(graph, Wording({}, 0)), strict=True):
        assert sorted(sentences(text)) == sorted([*frame(name, state), *TOLD[name](state)]), state
        assert sentences(text)[0] == frame(name, state)[0]
        assert sentences(text)[-2:] == frame(name, state)[1:]


@EVERY_PHRASING
@pytest.mark.parametrize(("name", "n_texts", "n_by_lists"), [(HEAT, 18, 18), (WATCH, 67, 59)])
def test_published_text_and_what_it_has_to_tell_determine_each_other(
    name: str, n_texts: int, n_by_lists: int, phrasing: int
) -> None:
    graph = home_graph(name)
    texts, told = texts_of(graph, Wording({}, phrasing)), [(state.room, TOLD[name](state)) for state in graph.states]
    assert assert_bijection(zip(told, texts, strict=True)) == n_texts
    assert len({texts[state] for state in graph.reachable(graph.listed)}) == n_by_lists


# ---------------------------------------------------------------------- content of the full text


def all_that_is_visible(name: str, state: HomeState) -> list[str]:
    """The state in words, without things out of sight."""
    spots = {"pancake": "kitchen table", "chips": "kitchen counter", "milk": "kitchen table"}
    names = ["pancake"] if name == HEAT else [*FOOD]
    told, near = [in_hands(state, names)], []
    for item, (spot, _) in zip(names, state.items, strict=True):
        if spot == AT_START and state.room == "kitchen":
            told.append(f"You see the {item} on the {spots[item]}.")
        elif spot == "coffee table" and state.room == "living room":
            told.append(f"You see the {item} on the coffee table.")
        elif spot == "microwave" and state.room == "kitchen" and state.opened:
            told.append(f"You see the {item} in the microwave.")
        else:
            continue
        near += [item] * (item in state.near)
    if name == HEAT and state.room == "kitchen":
        told.append(f"You find the microwave {'open' if state.opened else 'closed'}.")
    if name == WATCH and state.room == "living room":
        told += ["You notice the coffee table.", f"You find the TV turned {'on' if state.lit else 'off'}."]
        told += ["You face the TV."] * state.facing
        told += ["You notice the sofa."] + ["You have sat down on the sofa."] * bool(state.seats_taken)
    near += [furniture for furniture in ("microwave", "coffee table", "TV", "sofa") if furniture in state.near]
    return [*told, f"You are close to {joined(near)}."] if near else told


@BOTH
def test_full_text(name: str) -> None:
    graph = home_graph(name)
    for state, text in zip(graph.states, texts_of(graph, Wording({}, 0), "full"), strict=True):
        assert sorted(sentences(text)) == sorted([*frame(name, state), *all_that_is_visible(name, state)]), state


# ---------------------------------------------------------------------- other nouns

NOUNS = [
    (HEAT, {"pancake": "cheese"}),
    (HEAT, {"pancake": "dishes", "microwave": "dishwasher"}),
    (HEAT, {"pancake": "clothes", "microwave": "washing machine"}),
    (WATCH, {"chips": "popcorn", "milk": "lemonade"}),
    (WATCH, {"chips": "a", "milk": "b", "coffee table": "c", "TV": "d", "sofa": "e"}),
]


@EVERY_PHRASING
@pytest.mark.parametrize("description", ["published", "full"])
@pytest.mark.parametrize(("name", "nouns"), NOUNS, ids=str)
def test_other_nouns_are_an_exact_substitution(
    name: str, nouns: dict[str, str], description: Description, phrasing: int
) -> None:
    graph, plain, renamed = home_graph(name), Wording({}, phrasing), Wording(nouns, phrasing)

    def substituted(text: str) -> str:
        for role, noun in nouns.items():
            text = text.replace(f"the {role}", f"the {noun}")
        return text

    texts = texts_of(graph, renamed, description)
    assert texts == [substituted(text) for text in texts_of(graph, plain, description)]
    assert not any(role in text for text in texts for role in nouns)
    phrases = describe.phrases(graph.task, renamed)
    assert phrases == tuple(map(substituted, describe.phrases(graph.task, plain)))
    assert len(set(phrases)) == len(phrases)


# ---------------------------------------------------------------------- through the environments


def shown_by(env_id: str) -> list[str]:
    """The text that an id shows in each reachable state, through its public interface."""
    env = gym.make(env_id).unwrapped
    env.reset()
    state = env.get_state()
    del state["digest"]
    texts = []
    for home in home_graph(env.task.name).states:
        env.set_state(state | {"world": state["world"]._replace(state=home)})
        texts.append(env.step_text("")[0])  # costs a step without another effect
        assert env.home_state == home
    return texts


def test_no_text_of_an_id_is_a_text_of_another() -> None:
    shown = {env_id: set(shown_by(env_id)) for env_id in HOMES}
    assert len(shown) == 10
    assert {len(texts) for texts in shown.values()} == {18, 67}
    for env_id, other in permutations(shown, 2):
        assert shown[env_id].isdisjoint(shown[other]), (env_id, other)
