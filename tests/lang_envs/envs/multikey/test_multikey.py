"""MultiKey: some words of an action decide; optimum, random score and the trap are compared with enumerations."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from lang_envs.env_checker import Status, run_checks
from lang_envs.envs.multikey.admissible import FILLER
from lang_envs.envs.multikey.env import TRAP_GAMMA, IndependentDecisions, LengthTrapEnv, MultiKeyEnv

ID, TRAP = "MultiKey-v0", "MultiKey-length-trap-v0"
LARGEST = {"k": 6, "d": 6, "n_words": 2}
SIZES = [
    {"k": 1, "d": 0, "horizon": 2},
    {"k": 2, "d": 1, "n_words": 3, "reward": "all", "horizon": 1},
    {"k": 2, "d": 2, "horizon": 1},
    {"k": 1, "d": 1, "n_words": 4, "variable_lengths": True, "horizon": 1},
    {"k": 2, "d": 0, "reward": "all", "horizon": 2},
]


@pytest.fixture
def env() -> Iterator[MultiKeyEnv]:
    env = gym.make(ID).unwrapped
    assert isinstance(env, MultiKeyEnv)
    env.reset(seed=0)
    yield env
    env.close()


# ---------------------------------------------------------------------- sentences


def test_the_actions_are_all_combinations(env: MultiKeyEnv) -> None:
    assert env.admissible_actions()[:5] == [
        "cup pot egg fork", "cup pot egg tray", "cup pot milk fork", "cup pot milk tray", "cup jar egg fork",
    ]  # fmt: skip
    for kwargs in (*SIZES, LARGEST):
        made = MultiKeyEnv(**kwargs)
        assert len(set(made.sentences)) == made.n_words ** (made.k + made.d)


def pocket_ids(text: str) -> tuple[int, ...]:
    """Tokens of an action as the pocket model's policy makes them, end token included."""
    from tokenizers import Tokenizer

    from poad_sb3.pocket import POCKET_FOLDER

    tokenizer = Tokenizer.from_file(str(POCKET_FOLDER / "tokenizer.json"))
    return (*tokenizer.encode(f" {text}", add_special_tokens=False).ids, 0)


# ---------------------------------------------------------------------- decisions


def test_the_recorded_episode_of_seed_0() -> None:
    env = gym.make(ID, invalid_action_reward=-0.5).unwrapped
    text, info = env.reset(seed=0)
    steps = [(text, info["keys"])]
    for action in ("cup jar egg tray", "pan jar milk tray", "pan pan pan pan", "cup pot egg tray", "cup jar egg fork"):
        text, reward, terminated, truncated, info = env.step_text(action)
        steps.append((text, info["keys"], reward, info["n_correct"], info["key_correct"], terminated, truncated))
    assert steps == [
        ("The order is the jar and the tray. Orders left: 4. You take", ["jar", "tray"]),
        ("The order is the jar and the fork. Orders left: 3. You take", ["jar", "fork"], 0.25, 2, True, False, False),
        ("The order is the pot and the fork. Orders left: 2. You take", ["pot", "fork"], 0.125, 1, False, False, False),
        ("The order is the pot and the fork. Orders left: 2. You take", ["pot", "fork"], -0.5, 0, False, False, False),
        ("The order is the pot and the fork. Orders left: 1. You take", ["pot", "fork"], 0.125, 1, False, False, False),
        ("No orders are left.", ["pot", "fork"], 0.125, 1, False, True, False),
    ]
    assert info["success"] is False


def test_the_recorded_episode_of_the_trap() -> None:
    env = gym.make(TRAP).unwrapped
    long = "pan" + " the" * 15
    text, info = env.reset(seed=1)
    steps = [(text, info["sign"])]
    for action in (long, "cup the", "", "cup the", long):
        text, reward, _, _, info = env.step_text(action)
        steps.append((text, info["sign"], reward, info["key_correct"]))
    assert steps == [
        ("The order is a gain. Orders left: 4. You take", "positive"),
        ("The order is a cost. Orders left: 3. You take", "negative", 0.25, True),
        ("The order is a cost. Orders left: 2. You take", "negative", -0.1875, True),
        ("The order is a cost. Orders left: 2. You take", "negative", -0.25, False),
        ("The order is a cost. Orders left: 1. You take", "negative", -0.1875, True),
        ("No orders are left.", "negative", -0.25, False),
    ]


@pytest.mark.parametrize("kwargs", SIZES)
def test_distractors_have_no_effect(kwargs: dict[str, Any]) -> None:
    env = MultiKeyEnv(**kwargs)
    env.reset(seed=0)
    start, rewards = env.get_state(), dict[tuple[str, ...], list[float]]()
    for sentence in env.sentences:
        env.set_state(start)
        words = [word for word in sentence.split() if word != FILLER]
        rewards.setdefault(tuple(words[slot] for slot in env.key_slots), []).append(env.step_text(sentence)[1])
    assert [len(set(paid)) for paid in rewards.values()] == [1] * env.n_words**env.k
    assert {len(paid) for paid in rewards.values()} == {env.n_words**env.d}
    env.set_state(start)
    assert [keys for keys, (first, *_) in rewards.items() if first == 1 / env.horizon] == [env.keys]


@pytest.mark.parametrize("kwargs", [{}, SIZES[3], LARGEST])
def test_the_oracle_returns_one_and_succeeds(kwargs: dict[str, Any]) -> None:
    env = MultiKeyEnv(**kwargs)
    env.reset(seed=3)
    for left in reversed(range(env.horizon)):
        _, _, terminated, truncated, info = env.step_text(env.oracle_action())
        assert (terminated, truncated, info["success"]) == (left == 0, False, left == 0)
    assert env.episode_return == pytest.approx(1.0, abs=1e-12) == env.optimal_return


def test_keys_are_drawn_uniformly_and_independently(env: MultiKeyEnv) -> None:
    counts = Counter[tuple[str, ...]]()
    for seed in range(400):
        _, info = env.reset(seed=seed)
        for _ in range(4):
            counts[tuple(info["keys"])] += 1
            *_, info = env.step_text(env.sentences[0])
    assert len(counts) == 4
    assert sum((count - 400) ** 2 / 400 for count in counts.values()) < 16.3  # chi-square, 3 degrees, 0.1 %


# ---------------------------------------------------------------------- exact scores


def enumerated(env: IndependentDecisions, targets: list[tuple[int, ...]]) -> tuple[float, float, float]:
    """Optimal return, return and success probability of uniformly random play, by playing every action.

    Decisions are independent and drawn alike, so one decision of each target is enough.
    """
    env.reset(seed=0)
    start = env.get_state()
    del start["digest"]
    best, mean, right = 0.0, 0.0, 0.0
    for target in targets:
        rewards = []
        for sentence in env.sentences:
            env.set_state({**start, "world": start["world"]._replace(target=target)})
            _, reward, _, _, info = env.step_text(sentence)
            rewards.append(reward)
            right += info["key_correct"] / len(env.sentences) / len(targets)
        best, mean = best + max(rewards) / len(targets), mean + float(np.mean(rewards)) / len(targets)
    return env.horizon * best, env.horizon * mean, right**env.horizon


@pytest.mark.parametrize("kwargs", [{}, *SIZES])
def test_exact_scores_are_those_of_an_enumeration(kwargs: dict[str, Any]) -> None:
    env = MultiKeyEnv(**kwargs)
    scores = enumerated(env, list(itertools.product(range(env.n_words), repeat=env.k)))
    np.testing.assert_allclose((env.optimal_return, env.random_return, env.random_success), scores, atol=1e-12)


@pytest.mark.parametrize(("sign", "targets"), [("both", [(0,), (1,)]), ("negative", [(1,)])])
def test_exact_scores_of_the_trap(sign: str, targets: list[tuple[int, ...]]) -> None:
    env = LengthTrapEnv(sign=sign, horizon=4)
    scores = enumerated(env, targets)
    np.testing.assert_allclose((env.optimal_return, env.random_return, env.random_success), scores, atol=1e-12)


# ---------------------------------------------------------------------- the trap


def trap_choices(env: LengthTrapEnv, actions: tuple[Any, ...], gamma_token: float) -> list[int]:
    """Greedy action of each state by a token backup, for decisions of both signs where the sign is drawn."""
    from benchmarks.exact import TokenMDP, greedy_actions, solve_tokens

    targets = {"both": (0, 1), "positive": (0,), "negative": (1,)}[env._fixed_sign]
    n_signs, n_states = len(targets), env.horizon * len(targets) + 1
    rewards, transitions = np.zeros((n_states, 2)), np.zeros((n_states, 2, n_states))
    env.reset(seed=0)
    start = env.get_state()
    del start["digest"]
    for state in range(n_states - 1):
        done, target = divmod(state, n_signs)
        for action, sentence in enumerate(env.sentences):
            env.set_state({**start, "world": start["world"]._replace(target=(targets[target],))})
            rewards[state, action] = env.step_text(sentence)[1]
        is_last = done + 1 == env.horizon
        later = slice(n_states - 1, None) if is_last else slice((done + 1) * n_signs, (done + 2) * n_signs)
        transitions[state, :, later] = 1.0 if is_last else 1 / n_signs
    admissible = np.ones((n_states, 2), dtype=bool)
    admissible[-1] = False
    table = TokenMDP(actions, admissible, rewards, transitions, TRAP_GAMMA)
    return greedy_actions(table, solve_tokens(table, gamma_token))[:-1].tolist()


@pytest.mark.parametrize("tokens", [pocket_ids, lambda text: (*text.encode(), 256)], ids=["pocket", "bytes"])
@pytest.mark.parametrize(("sign", "horizon"), [("both", 4), ("positive", 1), ("negative", 2)])
def test_a_discount_inside_actions_prefers_the_wrong_sentence(tokens: Any, sign: str, horizon: int) -> None:
    env = LengthTrapEnv(sign=sign, horizon=horizon)
    actions = tuple(map(tokens, env.sentences))
    short, long = 0, 1
    right = {"both": [long, short], "positive": [long], "negative": [short]}[sign] * horizon
    assert trap_choices(env, actions, gamma_token=1.0) == right
    assert trap_choices(env, actions, gamma_token=TRAP_GAMMA) == [1 - action for action in right]
    assert TRAP_GAMMA ** (len(actions[long]) - len(actions[short])) < env.short_reward < 1


@pytest.mark.parametrize(("sign", "cost"), [("positive", 0.0), ("negative", -0.25)])
def test_costs_cannot_be_avoided_by_invalid_actions(sign: str, cost: float) -> None:
    env = LengthTrapEnv(sign=sign, max_steps=4)
    env.reset(seed=0)
    steps = [env.step_text("")[1:4] for _ in range(4)]
    assert steps == [(cost, False, False)] * 3 + [(cost, False, True)]
    assert env.episode_return <= env.optimal_return


# ---------------------------------------------------------------------- the contract with other arguments


@pytest.mark.parametrize("kwargs", [SIZES[0], SIZES[3]])
def test_the_contract_holds_for_other_sizes(kwargs: dict[str, Any]) -> None:
    assert [result for result in run_checks(ID, **kwargs) if result.status is not Status.PASSED] == []


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"reward": "any"}, r"Expected reward to be one of \['additive', 'all'\]; got 'any'"),
        ({"horizon": 0}, "Expected horizon to be an integer from 1 to 4; got 0"),
        ({"k": 7, "d": 6}, r"Expected at most 4,096 actions, n_words \*\* \(k \+ d\); got 2 \*\* 13"),
        ({"k": 1, "d": 1, "n_words": 25}, r"Expected at most 48 words, n_words \* \(k \+ d\); got 25 \* 2"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MultiKeyEnv(**kwargs)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"sign": "plus"}, r"Expected sign to be one of \['both', 'positive', 'negative'\]; got 'plus'"),
        ({"short_reward": 0.48}, r"Expected short_reward strictly between 0.95 \*\* 14 = 0.4877 and 1; got 0.48"),
        ({"long_length": 5}, r"strictly between 0.95 \*\* 3 = 0.8574 and 1; got 0.75.* Fix: lengths further apart"),
    ],
)
def test_arguments_of_the_trap_that_do_not_fit_are_refused(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LengthTrapEnv(**kwargs)
