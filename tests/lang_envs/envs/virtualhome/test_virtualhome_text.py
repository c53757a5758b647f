"""The words of the homes, exact over all reachable states, and renamed words."""

from __future__ import annotations

import json
from hashlib import sha256
from itertools import permutations

import gymnasium as gym
import pytest
from home_graph import HomeGraph, home_graph
from walk import IDS

from lang_envs.envs.virtualhome import describe
from lang_envs.envs.virtualhome.describe import Description
from lang_envs.envs.virtualhome.wording import PHRASINGS, Wording

HEAT, WATCH = "food-preparation", "entertainment"
EVERY_PHRASING = pytest.mark.parametrize("phrasing", range(len(PHRASINGS)))
HOMES = [env_id for env_id in IDS if env_id.startswith("VirtualHome-")]


def texts_of(graph: HomeGraph, wording: Wording, description: Description = "published") -> list[str]:
    return [describe.observation(graph.task, facts, wording, description) for facts in graph.facts]


# ---------------------------------------------------------------------- the text of every state

DIGESTS: dict[tuple[tuple[str, ...], Description], str] = {
    ((HEAT,), "published"): "a4c40d8c94c44468",
    ((HEAT,), "full"): "20c2dbe7d95d624b",
    ((WATCH,), "published"): "32d4c91b938e6543",
    ((WATCH,), "full"): "7c0e397cefa5783d",
    ((HEAT, "candle", "teapot"), "published"): "2728ada0d7918d8a",
    ((HEAT, "candle", "teapot"), "full"): "479f87a3daff4bef",
    ((WATCH, "candle"), "published"): "283e919d7fa96ce9",
    ((WATCH, "candle"), "full"): "8a709dd56b8b89c0",
}
"""Made when the published texts told the published facts and no others, and the full ones all that is visible."""


@pytest.mark.parametrize(("name_and_distractors", "description"), DIGESTS)
def test_texts_stay_the_same(name_and_distractors: tuple[str, ...], description: Description) -> None:
    """In every reachable state and every phrasing."""
    graph = home_graph(*name_and_distractors)
    texts = [texts_of(graph, Wording({}, phrasing), description) for phrasing in range(len(PHRASINGS))]
    assert sha256(json.dumps(texts).encode()).hexdigest()[:16] == DIGESTS[name_and_distractors, description]


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
