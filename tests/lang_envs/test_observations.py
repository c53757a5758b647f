"""`TextObservation`: a `str` that carries its admissible actions wherever it goes."""

from __future__ import annotations

import copy
import json
import pickle

import gymnasium as gym
import numpy as np
import pytest

from lang_envs import ENV_ROWS, EnvRow, TextObservation

TEXT, ACTIONS = "The lamp is red.", ("wait", "press, the button")


def carried(texts: object) -> list[object]:
    return [getattr(text, "admissible_actions", "lost") for text in texts]  # type: ignore[attr-defined]


@pytest.fixture
def observation() -> TextObservation:
    return TextObservation(TEXT, list(ACTIONS))


def test_a_text_is_no_list_of_actions() -> None:
    with pytest.raises(
        TypeError, match=r"^Expected admissible_actions as a list of str, or None; got 'abc'\. Fix: a list"
    ):
        TextObservation(TEXT, "abc")


def test_it_is_its_text(observation: TextObservation) -> None:
    assert observation == TEXT
    assert hash(observation) == hash(TEXT)
    assert {TEXT: 1}[observation] == 1
    assert json.dumps(observation) == json.dumps(TEXT)
    assert type(str(observation)) is str
    assert repr(observation) == repr(TEXT)
    assert observation == TextObservation(TEXT, ["another"])


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))])
def test_copies_keep_the_list(copied, observation: TextObservation) -> None:
    twin = copied(observation)
    assert (twin, twin.admissible_actions) == (TEXT, ACTIONS)
    assert copied(TextObservation(TEXT)).admissible_actions is None


def test_numpy_stacks_observations_as_objects_and_does_all_else_as_with_any_text(observation: TextObservation) -> None:
    stacked = np.stack([observation, TextObservation("other")])
    assert (stacked.dtype, stacked.shape) == (np.dtype(object), (2,))
    assert carried(stacked) == [ACTIONS, None]
    assert np.array_equal(observation, TEXT)
    assert np.shape(observation) == ()
    assert carried(np.stack((observation, observation), axis=0)) == [ACTIONS, ACTIONS]
    assert carried(np.stack(arrays=[observation])) == [ACTIONS]
    assert np.stack([observation, observation], axis=0, dtype="U40", casting="unsafe").dtype.kind == "U"
    with pytest.raises(TypeError):
        np.asarray([1], like=observation)
    assert np.asarray([observation]).dtype.kind == "U"


@pytest.mark.parametrize("row", ENV_ROWS, ids=lambda row: row.id)
def test_every_environment_returns_the_list_of_info(row: EnvRow) -> None:
    env = gym.make(row.id, **row.trial)
    text, info = env.reset(seed=0)
    for _ in range(2):
        listed = info["admissible_actions"]
        assert type(text) is TextObservation
        assert text.admissible_actions == (None if listed is None else tuple(listed))
        text, *_, info = env.step(env.action_space.encode((listed or ["say 1"])[0]))
    env.close()
