"""Behaviours that Gymnasium tests for spaces and vector environments; see docs/development/conventions.md."""

from __future__ import annotations

import copy
import json
import multiprocessing
import pickle
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import MultiDiscrete, Text, Tuple
from gymnasium.spaces.utils import flatdim, flatten, flatten_space, is_space_dtype_shape_equiv, unflatten
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate

import lang_envs
from lang_envs import ActionError, ByteTokenizer, TextObservation, TextSpace, TokenSequence

ID = "Overcooked-TomatoSalad-v0"
SHUFFLED = {"shuffle_actions": True}


class OtherTokenizer(ByteTokenizer):
    """Equal in everything but its type."""


SPACES: dict[str, Callable[..., gym.Space[Any]]] = {
    "text": partial(TextSpace, 40),
    "tokens": partial(TokenSequence, None, 6),
}


@pytest.fixture(params=SPACES)
def make_space(request: pytest.FixtureRequest) -> Callable[..., gym.Space[Any]]:
    return SPACES[request.param]


def plain(samples: Any) -> Any:
    """Samples as values that `==` compares whole."""
    return [np.asarray(sample).tolist() for sample in samples]


# ---------------------------------------------------------------------- spaces


def test_samples_are_in_the_space_and_follow_the_seed(make_space: Any) -> None:
    space, twin, other = make_space(seed=3), make_space(seed=3), make_space(seed=4)
    drawn = [space.sample() for _ in range(30)]
    assert all(sample in space for sample in drawn)
    assert plain(drawn) == plain([twin.sample() for _ in range(30)]) != plain([other.sample() for _ in range(30)])
    assert space.seed(3) == 3
    assert plain(drawn) == plain([space.sample() for _ in range(30)])
    from_generator = make_space(seed=np.random.default_rng(1))
    assert from_generator.sample() in from_generator


def test_copies_and_pickles_are_equal_and_go_on_alike(make_space: Any) -> None:
    space = make_space(seed=1)
    space.sample()
    for copied in (copy.deepcopy(space), pickle.loads(pickle.dumps(space))):
        assert copied == space
        assert (copied.shape, copied.dtype) == (space.shape, space.dtype)
        assert plain([copied.sample()]) == plain([copy.deepcopy(space).sample()])
    assert copy.copy(space) == space


def test_equality_is_that_of_type_and_bounds(make_space: Any) -> None:
    space = make_space(seed=1)
    assert space == make_space(seed=2)
    assert space != 3
    assert not is_space_dtype_shape_equiv(TextSpace(40), TextSpace(41))
    assert TokenSequence(max_length=6) != TokenSequence(OtherTokenizer(), 6)
    for base in (Text(40), MultiDiscrete([258] * 6)):
        assert (space == base, base == space) == (False, False)


def test_the_repr_makes_the_space_again(make_space: Any) -> None:
    space = make_space()
    assert eval(repr(space), vars(lang_envs)) == space  # noqa: S307 - our own text


def test_samples_survive_json(make_space: Any) -> None:
    space = make_space(seed=0)
    drawn = [space.sample() for _ in range(5)]
    back = space.from_jsonable(json.loads(json.dumps(space.to_jsonable(drawn))))
    assert plain(back) == plain(drawn)
    assert all(sample in space for sample in back)


def test_samples_survive_flattening(make_space: Any) -> None:
    space = make_space(seed=0)
    assert space.is_np_flattenable
    for _ in range(5):
        sample = space.sample()
        flat = flatten(space, sample)
        assert flat in flatten_space(space)
        assert flat.shape == (flatdim(space),)
        assert plain([unflatten(space, flat)]) == plain([sample])


def test_masks_are_for_tokens_only() -> None:
    for arguments in ({"mask": (3, None)}, {"probability": (3, None)}):
        with pytest.raises(ValueError, match=r"Expected no mask: TextSpace holds free text\. Fix"):
            TextSpace(40).sample(**arguments)
    tokens = TokenSequence(max_length=3)
    allowed = np.zeros(258, dtype=np.int8)
    allowed[[65, 66]] = 1
    assert set(tokens.sample(mask=(allowed,) * 3).tolist()) <= {65, 66}
    with pytest.raises(AssertionError, match="Expects the mask to be a tuple"):
        tokens.sample(mask=allowed)


def test_the_character_set_is_that_of_samples_in_gymnasium_and_no_bound_here() -> None:
    space = TextSpace(40)
    assert "é" in space
    assert "é" not in space.character_set
    assert max(len(TextSpace(1000, seed=seed).sample()) for seed in range(20)) <= 64


def test_batches_are_those_of_the_bases() -> None:
    texts, tokens = TextSpace(5, seed=1), TokenSequence(max_length=3)
    assert batch_space(texts, 2) == Tuple((TextSpace(5), TextSpace(5)))
    first, second = batch_space(TextSpace(40, seed=1), 2).sample()
    assert first != second, "each has a seed of its own"
    assert batch_space(tokens, 2).shape == (2, 3)
    assert create_empty_array(texts, 2) == create_empty_array(texts, 2, fn=np.ones) == ("", "")
    assert create_empty_array(tokens, 2).tolist() == [[0] * 3] * 2
    assert concatenate(texts, ["a", "b"], create_empty_array(texts, 2)) == ("a", "b")
    assert [row.tolist() for row in iterate(batch_space(tokens, 2), np.ones((2, 3), dtype=int))] == [[1] * 3] * 2


def test_an_observation_is_a_sample_that_keeps_no_list_in_json() -> None:
    observation, space = TextObservation("The lamp is red.", ["wait"]), TextSpace(40)
    assert observation in space
    assert data_equivalence(observation, TextObservation("The lamp is red.", ["press"]))
    back = space.from_jsonable(json.loads(json.dumps(space.to_jsonable([observation]))))
    assert [type(text) for text in back] == [str]


# ---------------------------------------------------------------------- vector environments


KINDS: dict[str, Callable[..., Any]] = {
    "sync": SyncVectorEnv,
    "async": partial(AsyncVectorEnv, context="fork"),
    "async, no shared memory": partial(AsyncVectorEnv, context="fork", shared_memory=False),
}

pytestmark = pytest.mark.usefixtures("workers_end")


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def vector(kind: str) -> Iterator[Callable[..., Any]]:
    """Makes vectors of two kitchens, and closes them."""
    made = []

    def make(*, env: dict[str, Any] | None = None, n: int = 2, **kwargs: Any) -> Any:
        made.append(KINDS[kind]([partial(gym.make, ID, **(env or {}))] * n, **kwargs))
        return made[-1]

    yield make
    for envs in made:
        envs.close()


def spoken(envs: Any, *texts: str) -> Any:
    return np.stack([envs.single_action_space.encode(text) for text in texts])


def test_observations_and_actions_are_in_the_batched_spaces(vector: Any) -> None:
    envs = vector()
    texts, infos = envs.reset(seed=0)
    assert texts in envs.observation_space
    assert type(texts) is tuple
    assert infos["_admissible_actions"].tolist() == [True, True]
    assert infos["success"].dtype == np.bool_
    envs.action_space.seed(0)
    texts, rewards, terminated, truncated, _ = envs.step(envs.action_space.sample())
    assert texts in envs.observation_space
    assert (rewards.dtype, terminated.dtype, truncated.dtype) == (np.float64, np.bool_, np.bool_)
    assert rewards.shape == terminated.shape == truncated.shape == (2,)


def test_observations_carry_their_lists_but_in_shared_memory(vector: Any, kind: str) -> None:
    texts, infos = vector().reset(seed=0)
    if kind == "async":
        assert {type(text) for text in texts} == {str}
    else:
        assert [list(text.admissible_actions) for text in texts] == infos["admissible_actions"].tolist()


def test_each_environment_has_its_seed(vector: Any) -> None:
    envs = vector(env=SHUFFLED, n=3)
    lists = [
        envs.reset(seed=seed)[1]["admissible_actions"].tolist() for seed in (3, [3, 4, 5], [5, 4, 3], [3, None, 3])
    ]
    assert lists[0] == lists[1] == lists[2][::-1]
    assert lists[3][0] == lists[3][2] == lists[0][0]
    envs.reset(seed=3)
    assert envs.np_random_seed == (3, 4, 5)
    assert len(envs.np_random) == 3
    with pytest.raises(ValueError, match="length must match num_envs=3"):
        envs.reset(seed=[3, 4])


def worker_error(envs: Any) -> AbstractContextManager[Any]:
    """The warning of `AsyncVectorEnv` with the traceback of a worker."""
    return pytest.warns(UserWarning, match="ERROR") if isinstance(envs, AsyncVectorEnv) else nullcontext()


@pytest.mark.parametrize("actions", [["serve", "serve"], np.full((2, 96), 999)], ids=str)
def test_the_error_of_a_worker_is_that_of_the_environment(vector: Any, actions: Any) -> None:
    envs = vector()
    envs.reset(seed=0)
    with worker_error(envs), pytest.raises(ActionError, match=r"Expected .*; got .*\. Fix"):
        envs.step(actions)


def test_without_copies_shared_memory_is_a_live_view(vector: Any, kind: str) -> None:
    envs = vector(copy=False)
    assert (envs.single_observation_space.shape, envs.single_observation_space.dtype) == ((), np.dtype(object))
    texts, _ = envs.reset(seed=0)
    before = tuple(texts)
    after = envs.step(spoken(envs, "pick up the tomato", "take the bowl"))[0]
    assert before != tuple(after)
    assert (tuple(texts) == tuple(after)) == (kind == "async")
    assert tuple(after) in envs.observation_space
    assert (after in envs.observation_space) == (kind != "async")  # a view that changes is no tuple


@pytest.mark.parametrize("context", multiprocessing.get_all_start_methods())
def test_workers_start_in_every_context(context: str) -> None:
    envs = AsyncVectorEnv([partial(gym.make, f"lang_envs:{ID}")] * 2, context=context)
    try:
        texts, _ = envs.reset(seed=0)
    finally:
        envs.close()
    assert texts == (str(gym.make(ID).reset(seed=0)[0]),) * 2


# ---------------------------------------------------------------------- single environments


def test_the_order_of_calls_is_enforced() -> None:
    env = gym.make(ID, render_mode="ansi")
    for use in (lambda: env.step(env.action_space.sample()), env.render):
        with pytest.raises(gym.error.ResetNeeded):
            use()
    with pytest.raises(gym.error.Error, match="Seed must be"):
        env.reset(seed="0")  # type: ignore[arg-type]
    with env as same:
        same.reset(seed=4)
        assert same.unwrapped.np_random_seed == 4
