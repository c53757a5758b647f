"""Observations with their actions, and the matching of answers to actions."""

from __future__ import annotations

import pytest

from lang_envs import parse_action, show_actions

ACTIONS = ["pick up the tomato", "walk to the kitchen.", "stay"]


@pytest.mark.parametrize(
    "answer",
    [
        "pick up the tomato",
        " Pick up  the tomato.\n",
        '"pick up the tomato"',
        "```\npick up the tomato\n```",
        "- pick up the tomato",
        "2. pick up the tomato",
        "Action: pick up the tomato",
        "1. **Action:** pick up the tomato",
        "\u201cPick up the tomato\u201d",
        "(pick up the tomato)",
        "Pick up the tomato?",
    ],
)
def test_other_ways_to_write_an_action_mean_it(answer: str) -> None:
    assert parse_action(answer, ACTIONS) == "pick up the tomato"


@pytest.mark.parametrize("answer", ["I pick up the tomato", "1", ""])
def test_other_words_stay_as_they_are(answer: str) -> None:
    assert parse_action(answer, ACTIONS) == answer


def test_actions_with_signs_of_their_own_are_found() -> None:
    actions = ["say (hello)", "say hello?", "1. wait", "ask \u201cwhy?\u201d", "ask why"]
    for action in actions:
        assert parse_action(action, actions) == action
    assert parse_action("Action: SAY (hello).", actions) == "say (hello)"
    assert parse_action("Wait", actions) == "1. wait"
    assert parse_action("Ask Why", actions[:4]) == "Ask Why"


@pytest.mark.parametrize(
    ("answer", "actions"),
    [
        ("", ["?", "stay"]),
        ("-(2)", ["2", "1"]),
        ("3.5", ["5"]),
    ],
)
def test_signs_and_numbers_are_no_bullets(answer: str, actions: list[str]) -> None:
    assert parse_action(answer, actions) == answer


def test_where_any_text_is_an_action_it_stays_as_it_is() -> None:
    assert parse_action(" `x`. ", None) == " `x`. "
    assert show_actions("look", None) == "look"


def test_the_list_stands_below_the_observation() -> None:
    assert show_actions("You are here.", ["a", "b"]) == (
        "You are here.\n\nAnswer with one of these actions, word for word, and nothing else:\n- a\n- b"
    )
