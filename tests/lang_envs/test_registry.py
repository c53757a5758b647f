"""The environment contract, for every registered id."""

from __future__ import annotations

import copy
import pickle
import random
from collections.abc import Iterator
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import pytest
from _walk import IDS, Step, oracle_policy, random_policy, same, walk, walk_from_reset
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

import lang_envs
from lang_envs import ActionError, LangEnvsError, TextSpace, TokenSequence
from lang_envs.registration import register_envs

N_STEPS = 60
"""Long enough for several episodes of oracle play."""


@pytest.fixture
def env(env_id: str) -> Iterator[gym.Env]:
    env = gym.make(env_id)
    yield env
    env.close()


# ---------------------------------------------------------------------- the table


def test_ids_are_unique_and_registered_once() -> None:
    assert len(set(IDS)) == len(IDS) > 0
    before = dict(gym.registry)
    register_envs()
    assert gym.registry == before


def test_unknown_id_is_refused(env_id: str) -> None:
    name, version = env_id.rsplit("-v", maxsplit=1)
    with pytest.raises(gym.error.VersionNotFound, match=f"v{int(version) + 1000}"):
        gym.make(f"{name}-v{int(version) + 1000}")


def test_unknown_argument_is_refused(env_id: str) -> None:
    with pytest.raises(TypeError, match="unheard_of"):
        gym.make(env_id, unheard_of=1)


def test_unknown_render_mode_is_refused(env_id: str) -> None:
    refused = pytest.raises(ValueError, match=r"Expected render_mode to be None or one of .*; got 'hologram'")
    with pytest.warns(UserWarning, match="hologram"), refused:  # gymnasium warns first
        gym.make(env_id, render_mode="hologram")


# ---------------------------------------------------------------------- gymnasium's own checks


@pytest.mark.filterwarnings("error")
def test_gymnasium_check_env(env: gym.Env) -> None:
    check_env(env.unwrapped)


def test_spec_survives_json(env: gym.Env) -> None:
    rebuilt = gym.make(EnvSpec.from_json(env.spec.to_json()))
    assert rebuilt.spec == env.spec
    assert (rebuilt.observation_space, rebuilt.action_space) == (env.observation_space, env.action_space)
    assert same(
        walk_from_reset(rebuilt, random_policy(3), N_STEPS, seed=3),
        walk_from_reset(env, random_policy(3), N_STEPS, seed=3),
    )


def test_spec_keeps_the_arguments_of_make(env_id: str) -> None:
    env = gym.make(env_id, invalid_action_reward=-0.5, max_action_length=512)
    rebuilt = gym.make(EnvSpec.from_json(env.spec.to_json()))
    assert rebuilt.unwrapped.invalid_action_reward == -0.5
    assert rebuilt.action_space.max_length == 512


# ---------------------------------------------------------------------- copies


def test_two_environments_with_one_seed_are_equal(env_id: str) -> None:
    walks = [walk_from_reset(gym.make(env_id), random_policy(0), N_STEPS, seed=11) for _ in range(2)]
    assert same(*walks)


def test_reset_with_a_seed_starts_over(env: gym.Env) -> None:
    walks = [walk_from_reset(env, random_policy(0), N_STEPS, seed=11) for _ in range(2)]
    assert same(*walks)


@pytest.mark.parametrize("duplicate", [lambda x: pickle.loads(pickle.dumps(x)), copy.deepcopy], ids=["pickle", "copy"])
def test_a_copy_in_mid_episode_goes_its_own_equal_way(env: gym.Env, duplicate: Any) -> None:
    original = env.unwrapped
    _, steps = walk_from_reset(original, random_policy(1), 7, seed=5)
    twin = duplicate(original)
    here = walk(original, random_policy(2), N_STEPS, steps[-1].info)
    assert same(walk(twin, random_policy(2), N_STEPS, steps[-1].info), here)


@pytest.mark.parametrize("duplicate", [lambda x: pickle.loads(pickle.dumps(x)), copy.deepcopy], ids=["pickle", "copy"])
def test_spaces_can_be_copied(env: gym.Env, duplicate: Any) -> None:
    for space in (env.observation_space, env.action_space):
        space.seed(4)
        twin = duplicate(space)
        assert type(twin) is type(space)
        assert twin == space
        assert same([twin.sample() for _ in range(5)], [space.sample() for _ in range(5)])


# ---------------------------------------------------------------------- what reset and step return


def check_info(env: gym.Env, info: dict[str, Any]) -> None:
    actions = info["admissible_actions"]
    assert actions == env.unwrapped.admissible_actions()
    if actions is not None:
        assert type(actions) is list
        assert {type(action) for action in actions} == {str}
        assert len(set(actions)) == len(actions)
        for action in actions:
            tokens = env.action_space.encode(action)
            assert tokens in env.action_space
            assert env.action_space.decode(tokens) == action
    assert type(info["invalid_action"]) is bool
    assert type(info["success"]) is bool


def test_spaces_and_info_keep_the_contract(env: gym.Env) -> None:
    assert type(env.observation_space) is TextSpace
    assert type(env.action_space) is TokenSequence
    text, info = env.reset(seed=0)
    check_info(env, info)
    assert (info["invalid_action"], info["success"]) == (False, False)
    choose, keys = random_policy(0), set(info)
    for _ in range(N_STEPS):
        assert type(text) is str
        assert text in env.observation_space
        text, reward, terminated, truncated, info = env.step(env.action_space.encode(choose(env, info)))
        assert (type(reward), type(terminated), type(truncated)) == (float, bool, bool)
        assert (terminated, truncated) != (True, True)
        check_info(env, info)
        assert set(info) == keys
        assert info["success"] <= terminated
        if terminated or truncated:
            text, info = env.reset()


def test_listed_actions_are_valid(env: gym.Env) -> None:
    for seed in range(5):
        _, steps = walk_from_reset(env, random_policy(seed), N_STEPS, seed=seed)
        assert not any(step.info["invalid_action"] for step in steps)


def test_what_is_handed_out_is_fresh(env_id: str) -> None:
    touched, left_alone = gym.make(env_id), gym.make(env_id)
    (_, info), (_, expected) = touched.reset(seed=2), left_alone.reset(seed=2)
    choose = random_policy(2)
    for _ in range(N_STEPS):
        assert same(info, expected)
        action = left_alone.action_space.encode(choose(left_alone, expected))
        spoil(info)
        _, _, terminated, truncated, info = touched.step(action.copy())
        expected = left_alone.step(action)[-1]
        if terminated or truncated:
            (_, info), (_, expected) = touched.reset(), left_alone.reset()


def spoil(info: dict[str, Any]) -> None:
    for value in info.values():
        if isinstance(value, np.ndarray):
            value.fill(99)
        elif isinstance(value, list | dict | set):
            value.clear()
    info.clear()


def test_listing_actions_hands_out_a_fresh_list(env: gym.Env) -> None:
    _, info = env.reset(seed=0)
    if info["admissible_actions"] is None:
        pytest.skip("open action space")
    env.unwrapped.admissible_actions().clear()
    assert env.unwrapped.admissible_actions() == info["admissible_actions"] != []


def test_global_random_generators_are_left_alone(env_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("a global random generator was used")

    for module in (random, np.random):
        functions = (name for name in module.__all__ if name[0].islower() and name != "default_rng")
        for name in functions:
            if callable(getattr(module, name)):
                monkeypatch.setattr(module, name, refuse)
    with pytest.raises(AssertionError, match="global"):
        np.random.rand()
    with pytest.raises(AssertionError, match="global"):
        random.random()
    env = gym.make(env_id)
    _, steps = walk_from_reset(env, random_policy(0), N_STEPS, seed=None)
    env.unwrapped.set_state(env.unwrapped.get_state())
    assert len(steps) == N_STEPS
    assert env.action_space.sample() in env.action_space
    assert env.observation_space.sample() in env.observation_space


def test_the_oracle_solves_it(env: gym.Env) -> None:
    for seed in range(3):
        text, steps = walk_from_reset(env, oracle_policy, N_STEPS, seed=seed)
        ends = [step for step in steps if step.final_text is not None]
        assert text
        assert ends
        assert all(step.terminated for step in ends)


def test_success_is_told_at_the_end(env: gym.Env) -> None:
    _, info = env.reset(seed=0)
    terminated = truncated = False
    while not (terminated or truncated):
        assert not info["success"]
        _, _, terminated, truncated, info = env.step(env.action_space.encode(oracle_policy(env, info)))
    assert (terminated, info["success"]) == (True, True)


# ---------------------------------------------------------------------- misuse


def test_step_before_reset(env: gym.Env) -> None:
    action = env.action_space.sample()
    with pytest.raises(gym.error.ResetNeeded, match=r"Expected reset\(\) before step\(\)"):
        env.unwrapped.step(action)
    with pytest.raises(gym.error.ResetNeeded, match="reset"):
        env.step(action)


def test_step_after_the_end_changes_nothing(env: gym.Env) -> None:
    _, info = env.reset(seed=0)
    end: tuple[Any, ...] = (None, 0.0, False, False, info)
    while not (end[2] or end[3]):
        end = env.step(env.action_space.encode(oracle_policy(env, end[4])))
    state = env.unwrapped.get_state()
    for action in (env.action_space.sample(), env.action_space.unfinished()):
        with pytest.warns(UserWarning, match="after the end of the episode changes nothing"):
            after = env.step(action)
        assert same(after[:4], (end[0], 0.0, end[2], end[3]))
        assert after[4]["success"] is end[4]["success"]
        assert after[4]["admissible_actions"] == end[4]["admissible_actions"]
        assert same(env.unwrapped.get_state(), state)


def wrong_actions() -> dict[str, Any]:
    def array(**changes: Any) -> Any:
        return lambda space: np.full(**{"shape": space.max_length, "fill_value": 0, "dtype": np.int64} | changes)

    return {
        "float": (array(dtype=np.float32), "integer token ids .* dtype float32"),
        "bool": (array(dtype=bool), "integer token ids .* dtype bool"),
        "object": (array(dtype=object), "integer token ids .* dtype object"),
        "two-dimensional": (lambda space: space.sample()[None], r"shape \(\d+,\); got .* shape \(1, \d+\)"),
        "too short": (lambda space: space.sample()[:-1], "with shape"),
        "empty": (lambda space: np.zeros(0, dtype=np.int64), r"shape \(0,\)"),
        "ragged": (lambda space: [[1], [1, 2]], "got list"),
        "too large an id": (lambda space: np.full(space.max_length, space.vocab_size), r"token ids from 0 to \d+; got"),
        "negative id": (array(fill_value=-1), "got ids from -1"),
        "str": (lambda space: "pick up the tomato", r"got str .* Fix: .*encode\(text\).*TextAction"),
        "None": (lambda space: None, "got NoneType"),
        "int": (lambda space: 3, r"shape \(\)"),
    }


@pytest.mark.parametrize(("make_action", "message"), wrong_actions().values(), ids=wrong_actions())
def test_a_wrong_action_is_refused_and_changes_nothing(env: gym.Env, make_action: Any, message: str) -> None:
    _, steps = walk_from_reset(env, random_policy(0), 3, seed=0)
    action, state = make_action(env.action_space), env.unwrapped.get_state()
    for stepped in (env, env.unwrapped):
        with pytest.raises(ActionError, match=message):
            stepped.step(action)
    assert action not in env.action_space
    assert same(env.unwrapped.get_state(), state)
    assert walk(env, random_policy(0), 1, steps[-1].info)[0].info["invalid_action"] is False


@pytest.mark.parametrize("text", [3, b"pick up the tomato", ["pick up the tomato"]], ids=["int", "bytes", "list"])
def test_a_text_of_the_wrong_type_is_refused(env: gym.Env, text: Any) -> None:
    env.reset(seed=0)
    state = env.unwrapped.get_state()
    with pytest.raises(ActionError, match="Expected the action's text as a str; got"):
        env.unwrapped.step_text(text)
    assert same(env.unwrapped.get_state(), state)


# ---------------------------------------------------------------------- state


@pytest.mark.parametrize("n_steps", [0, 1, 9])
def test_a_fresh_environment_continues_from_a_state(env_id: str, n_steps: int) -> None:
    original, fresh = gym.make(env_id).unwrapped, gym.make(env_id).unwrapped
    _, info = original.reset(seed=21)
    steps = walk(original, random_policy(6), n_steps, info)
    info = steps[-1].info if steps else info
    captured = pickle.dumps(original.get_state())
    future = walk(original, random_policy(7), N_STEPS, info)
    fresh.set_state(pickle.loads(captured))
    assert same(fresh.get_state(), pickle.loads(captured))
    assert same(walk(fresh, random_policy(7), N_STEPS, info), future)


def test_a_state_can_be_restored_again_and_again(env: gym.Env) -> None:
    raw = env.unwrapped
    _, steps = walk_from_reset(raw, random_policy(0), 4, seed=0)
    state = raw.get_state()
    futures = []
    for _ in range(2):
        raw.set_state(state)
        futures.append(walk(raw, random_policy(1), N_STEPS, steps[-1].info))
    assert same(*futures)


def test_state_before_the_first_reset(env_id: str) -> None:
    raw, used = gym.make(env_id).unwrapped, gym.make(env_id).unwrapped
    used.reset(seed=0)
    used.set_state(raw.get_state())
    with pytest.raises(gym.error.ResetNeeded, match="Expected reset"):
        used.step(used.action_space.sample())


BROKEN_STATES = {
    "None": lambda state: None,
    "list": lambda state: list(state.items()),
    "empty": lambda state: {},
    "key missing": lambda state: {key: value for key, value in state.items() if key != "world"},
    "key too many": lambda state: state | {"extra": 1},
    "another env": lambda state: state | {"env": "Another-v0"},
    "world None": lambda state: state | {"world": None},
    "world of strings": lambda state: state | {"world": "kitchen"},
    "generator None": lambda state: state | {"np_random": None},
    "generator unknown": lambda state: state | {"np_random": {"bit_generator": "Dice"}},
    "last too short": lambda state: state | {"last": (0.0, False)},
    "last no tuple": lambda state: state | {"last": 3},
    "last no flags": lambda state: state | {"last": (0.0, 1, 2, "x")},
    "last action no text": lambda state: state | {"last_action": 5},
    "return not finite": lambda state: state | {"episode_return": float("nan")},
}


@pytest.mark.parametrize("breakage", BROKEN_STATES.values(), ids=BROKEN_STATES)
def test_a_broken_state_is_refused_and_changes_nothing(env: gym.Env, breakage: Any) -> None:
    raw = env.unwrapped
    walk_from_reset(raw, random_policy(0), 2, seed=0)
    broken = breakage(raw.get_state())
    walk_from_reset(raw, oracle_policy, 3, seed=1)  # another position, so that a partial restore shows
    before = raw.get_state()
    with pytest.raises(LangEnvsError, match="Expected"):
        raw.set_state(broken)
    assert same(raw.get_state(), before)


# ---------------------------------------------------------------------- vector environments

N_ENVS, SEED = 2, 7


class VectorRows(NamedTuple):
    """Per step and env: text, reward, terminated, truncated, and the text an episode ended with (or None)."""

    first: list[str]
    rows: list[list[tuple[str, float, bool, bool, str | None]]]


def single_walks(env_id: str) -> list[tuple[str, list[Step]]]:
    """What each env of the vector should show: one plays well (so episodes end), one at random."""
    policies = [oracle_policy, random_policy(1)]
    return [
        walk_from_reset(gym.make(env_id), policy, N_STEPS, seed=SEED + number) for number, policy in enumerate(policies)
    ]


def expected_rows(walks: list[tuple[str, list[Step]]]) -> VectorRows:
    rows = [
        [(step.text, step.reward, step.terminated, step.truncated, step.final_text) for step in steps]
        for steps in zip(*(steps for _, steps in walks), strict=True)
    ]
    return VectorRows([text for text, _ in walks], rows)


def actions_of(walks: list[tuple[str, list[Step]]]) -> list[np.ndarray]:
    return [np.stack([step.action for step in steps]) for steps in zip(*(steps for _, steps in walks), strict=True)]


def gymnasium_rows(env_id: str, mode: str, actions: list[np.ndarray]) -> VectorRows:
    settings = {"autoreset_mode": AutoresetMode.SAME_STEP}
    envs = gym.make_vec(env_id, num_envs=N_ENVS, vectorization_mode=mode, vector_kwargs=settings)
    try:
        first, _ = envs.reset(seed=SEED)
        rows = []
        for action in actions:
            texts, rewards, terminated, truncated, info = envs.step(action)
            finals = info.get("final_obs", [None] * N_ENVS)
            columns = (texts, rewards.tolist(), terminated.tolist(), truncated.tolist(), finals)
            rows.append(list(zip(*columns, strict=True)))
        return VectorRows(list(first), rows)
    finally:
        envs.close()


def sb3_rows(env_id: str, vec_env_cls: str, actions: list[np.ndarray]) -> VectorRows:
    from stable_baselines3.common import vec_env
    from stable_baselines3.common.env_util import make_vec_env

    settings = {"start_method": "fork"} if vec_env_cls == "SubprocVecEnv" else {}
    envs = make_vec_env(env_id, N_ENVS, SEED, vec_env_cls=getattr(vec_env, vec_env_cls), vec_env_kwargs=settings)
    try:
        first = envs.reset()
        rows = []
        for action in actions:
            texts, rewards, dones, infos = envs.step(action)
            cut = [info.get("TimeLimit.truncated", False) for info in infos]
            finals = [info.get("terminal_observation") for info in infos]
            ended = [bool(done and not limit) for done, limit in zip(dones, cut, strict=True)]
            rows.append(list(zip(map(str, texts), rewards.tolist(), ended, cut, finals, strict=True)))
        return VectorRows([str(text) for text in first], rows)
    finally:
        envs.close()


@pytest.mark.usefixtures("workers_end")
@pytest.mark.parametrize(
    ("play", "kind", "tolerance"),
    [
        (gymnasium_rows, "sync", 0.0),
        (gymnasium_rows, "async", 0.0),
        (sb3_rows, "DummyVecEnv", 1e-6),  # keeps rewards as float32
        (sb3_rows, "SubprocVecEnv", 0.0),
    ],
    ids=["sync", "async", "dummy", "subproc"],
)
def test_vector_environments_show_what_single_ones_show(env_id: str, play: Any, kind: str, tolerance: float) -> None:
    walks = single_walks(env_id)
    expected = expected_rows(walks)
    assert any(row[0][4] for row in expected.rows)  # an episode ends on the way
    assert len({row[0] for rows in expected.rows for row in rows}) > 2  # and there is something to confuse
    got = play(env_id, kind, actions_of(walks))
    assert got.first == expected.first
    for got_row, expected_row in zip(got.rows, expected.rows, strict=True):
        for seen, wanted in zip(got_row, expected_row, strict=True):
            assert (seen[0], *seen[2:]) == (wanted[0], *wanted[2:])
            assert seen[1] == pytest.approx(wanted[1], rel=0, abs=tolerance)


@pytest.mark.usefixtures("workers_end")
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_vector_environments_with_default_autoreset(env_id: str, mode: str) -> None:
    """By default the step after an end ignores its action and returns the next episode's first text."""
    envs = gym.make_vec(env_id, num_envs=N_ENVS, vectorization_mode=mode)
    try:
        text, steps = walk_from_reset(gym.make(env_id), oracle_policy, N_STEPS, seed=SEED)
        texts, infos = envs.reset(seed=[SEED] * N_ENVS)
        assert texts == (text,) * N_ENVS
        for step in steps:
            texts, rewards, terminated, *_, infos = envs.step(np.stack([step.action] * N_ENVS))
            shown = step.text if step.final_text is None else step.final_text
            assert texts == (shown,) * N_ENVS
            assert rewards.tolist() == [step.reward] * N_ENVS
            if step.final_text is not None:
                assert terminated.all()
                texts, rewards, _, _, infos = envs.step(np.stack([step.action] * N_ENVS))
                assert (texts, rewards.tolist()) == ((step.text,) * N_ENVS, [0.0] * N_ENVS)
            assert infos["admissible_actions"][1] == step.info["admissible_actions"]
    finally:
        envs.close()


def test_ids_have_a_summary() -> None:
    assert all(row.summary.endswith(".") for row in lang_envs.ENV_ROWS)
