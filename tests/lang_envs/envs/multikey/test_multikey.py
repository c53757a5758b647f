"""MultiKey: some words of an action decide; optimum, random score and the trap are compared with enumerations."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from lang_envs import LangEnvsError
from lang_envs.env_checker import Status, run_checks
from lang_envs.envs.multikey.admissible import FILLER, WORDS, key_slots
from lang_envs.envs.multikey.env import TRAP_GAMMA, IndependentDecisions, LengthTrapEnv, MultiKeyEnv
from lang_envs.wrappers import AdmissibleObservation

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


def wrong(env: IndependentDecisions) -> str:
    """An action without a right key: every other word than the oracle's in all slots."""
    if isinstance(env, LengthTrapEnv):
        return next(sentence for sentence in env.sentences if sentence != env.oracle_action())
    assert isinstance(env, MultiKeyEnv)
    right = env.oracle_action().split()
    return " ".join(next(word for word in slot if word.split()[0] not in right) for slot in env.slots)


# ---------------------------------------------------------------------- sentences


@pytest.mark.parametrize(
    ("sizes", "slots"),
    [((1, 0), (0,)), ((1, 4), (2,)), ((2, 2), (1, 3)), ((2, 4), (1, 4)), ((4, 1), (0, 1, 3, 4)), ((3, 0), (0, 1, 2))],
)
def test_keys_are_spread_evenly(sizes: tuple[int, int], slots: tuple[int, ...]) -> None:
    assert key_slots(*sizes) == slots


def test_slots_of_keys_are_those_of_the_definition() -> None:
    for k, d in itertools.product(range(1, 13), range(12)):
        assert key_slots(k, d) == tuple(int((i + 0.5) * (k + d) / k) for i in range(k))


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


def test_a_word_is_a_token_of_the_pocket_model() -> None:
    assert len(set(WORDS)) == len(WORDS) == 48
    assert [word for word in (FILLER, *WORDS) if len(pocket_ids(word)) != 2] == []


@pytest.mark.parametrize("variable_lengths", [False, True])
@pytest.mark.parametrize("sizes", [(2, 2, 2), (1, 2, 3), (3, 0, 4)])
def test_every_slot_is_a_branch_point_of_the_policys_trie(sizes: tuple[int, int, int], variable_lengths: bool) -> None:
    from poad_sb3.distributions.action_trie import build_trie

    k, d, n_words = sizes
    env = MultiKeyEnv(k=k, d=d, n_words=n_words, variable_lengths=variable_lengths)
    trie = build_trie(tuple(map(pocket_ids, env.sentences)))
    for tokens, decisions in zip(trie.sequences, trie.decisions, strict=True):
        assert [len(decision.children) for decision in decisions] == [n_words] * (k + d)
        assert len(tokens) == k + d + 1 or variable_lengths
    lengths = {len(tokens) - 1 for tokens in trie.sequences}
    assert lengths == (set(range(k + d, (2 * n_words - 1) * (k + d) + 1, 2)) if variable_lengths else {k + d})


def test_the_action_space_holds_the_longest_action() -> None:
    assert gym.make(ID).action_space.max_length == 96  # as in the other families
    env = gym.make(ID, **LARGEST, variable_lengths=True)
    assert env.action_space.max_length == len(env.unwrapped.sentences[-1]) + 1 > 96


# ---------------------------------------------------------------------- decisions


def test_the_recorded_episode_of_seed_0() -> None:
    env = gym.make(ID, invalid_action_reward=-0.5).unwrapped
    text, info = env.reset(seed=0)
    seen = [(text, info["keys"])]
    for said in ("cup jar egg tray", "pan jar milk tray", "pan pan pan pan", "cup pot egg tray", "cup jar egg fork"):
        text, reward, terminated, truncated, info = env.step_text(said)
        seen.append((text, info["keys"], reward, info["n_correct"], info["key_correct"], terminated, truncated))
    assert seen == [
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
    seen = [(text, info["sign"])]
    for said in (long, "cup the", "", "cup the", long):
        text, reward, _, _, info = env.step_text(said)
        seen.append((text, info["sign"], reward, info["key_correct"]))
    assert seen == [
        ("The order is a gain. Orders left: 4. You take", "positive"),
        ("The order is a cost. Orders left: 3. You take", "negative", 0.25, True),
        ("The order is a cost. Orders left: 2. You take", "negative", -0.1875, True),
        ("The order is a cost. Orders left: 2. You take", "negative", -0.25, False),
        ("The order is a cost. Orders left: 1. You take", "negative", -0.1875, True),
        ("No orders are left.", "negative", -0.25, False),
    ]


def test_one_key_is_named_alone() -> None:
    env = MultiKeyEnv(k=1, d=0, horizon=1)
    text, info = env.reset(seed=0)
    assert text == f"The order is the {info['keys'][0]}. Orders left: 1. You take"


@pytest.mark.parametrize("kwargs", SIZES)
def test_distractors_have_no_effect(kwargs: dict[str, Any]) -> None:
    env = MultiKeyEnv(**kwargs)
    env.reset(seed=0)
    start, rewards = env.get_state(), dict[tuple[str, ...], list[float]]()
    for sentence in env.sentences:
        env.set_state(start)
        words = [word for word in sentence.split() if word != FILLER]
        rewards.setdefault(tuple(words[slot] for slot in env.key_slots), []).append(env.step_text(sentence)[1])
    assert [len(set(found)) for found in rewards.values()] == [1] * env.n_words**env.k
    assert {len(found) for found in rewards.values()} == {env.n_words**env.d}
    env.set_state(start)
    assert [keys for keys, (first, *_) in rewards.items() if first == 1 / env.horizon] == [env.keys]


@pytest.mark.parametrize("kwargs", [{}, *SIZES, LARGEST])
def test_the_oracle_returns_one_and_succeeds(kwargs: dict[str, Any]) -> None:
    env = MultiKeyEnv(**kwargs)
    env.reset(seed=3)
    for left in reversed(range(env.horizon)):
        _, _, terminated, truncated, info = env.step_text(env.oracle_action())
        assert (terminated, truncated, info["success"]) == (left == 0, False, left == 0)
    assert env.episode_return == pytest.approx(1.0, abs=1e-12) == env.optimal_return


@pytest.mark.parametrize("reward", ["additive", "all"])
def test_partly_right_actions(reward: str) -> None:
    env = MultiKeyEnv(k=3, d=0, reward=reward, horizon=2)
    env.reset(seed=0)
    start, right = env.get_state(), env.oracle_action().split()
    bad = wrong(env).split()
    for chosen in itertools.product((False, True), repeat=3):
        env.set_state(start)
        *_, info = said = env.step_text(" ".join(r if c else b for r, b, c in zip(right, bad, chosen, strict=True)))
        expected = sum(chosen) / 6 if reward == "additive" else float(all(chosen)) / 2
        assert said[1] == pytest.approx(expected, abs=1e-15)
        assert (info["n_correct"], info["key_correct"]) == (sum(chosen), all(chosen))


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
    found = enumerated(env, list(itertools.product(range(env.n_words), repeat=env.k)))
    np.testing.assert_allclose((env.optimal_return, env.random_return, env.random_success), found, atol=1e-12)


@pytest.mark.parametrize(("sign", "targets"), [("both", [(0,), (1,)]), ("positive", [(0,)]), ("negative", [(1,)])])
@pytest.mark.parametrize("horizon", [1, 4])
def test_exact_scores_of_the_trap(sign: str, targets: list[tuple[int, ...]], horizon: int) -> None:
    env = LengthTrapEnv(sign=sign, horizon=horizon)
    found = enumerated(env, targets)
    np.testing.assert_allclose((env.optimal_return, env.random_return, env.random_success), found, atol=1e-12)


def test_played_episodes_have_the_exact_scores(env: MultiKeyEnv) -> None:
    rng, returns = np.random.default_rng((0, 1)), []
    for seed in range(1000):
        env.reset(seed=seed)
        for pick in rng.integers(len(env.sentences), size=4):
            env.step_text(env.sentences[pick])
        returns.append(env.episode_return)
    error = np.sqrt(0.25 / 8 / 1000)  # eight keys of variance 1/4
    assert np.mean(returns) == pytest.approx(env.random_return, abs=4 * error)


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
@pytest.mark.parametrize("sign", ["both", "positive", "negative"])
@pytest.mark.parametrize("horizon", [1, 2, 3, 4])
def test_a_discount_inside_actions_prefers_the_wrong_sentence(tokens: Any, sign: str, horizon: int) -> None:
    env = LengthTrapEnv(sign=sign, horizon=horizon)
    actions = tuple(map(tokens, env.sentences))
    short, long = 0, 1
    right = {"both": [long, short], "positive": [long], "negative": [short]}[sign] * horizon
    assert trap_choices(env, actions, gamma_token=1.0) == right
    assert trap_choices(env, actions, gamma_token=TRAP_GAMMA) == [1 - action for action in right]
    assert TRAP_GAMMA ** (len(actions[long]) - len(actions[short])) < env.short_reward < 1


def test_the_trap_is_made_for_the_gamma_of_the_presets() -> None:
    from poad_sb3.presets import PRESETS

    for name in ("paper/virtualhome", "pocket/virtualhome"):
        assert {PRESETS[name].methods[method]["gamma"] for method in ("POAD", "NTPO")} == {TRAP_GAMMA}


@pytest.mark.parametrize("sign", ["positive", "negative"])
def test_a_fixed_sign_is_never_the_other(sign: str) -> None:
    env = LengthTrapEnv(sign=sign)
    _, info = env.reset(seed=0)
    assert info["sign"] == sign
    for _ in range(3):
        *_, info = env.step_text(wrong(env))
        assert (info["sign"], info["key_correct"]) == (sign, False)


@pytest.mark.parametrize(("sign", "cost"), [("positive", 0.0), ("negative", -0.25)])
def test_costs_cannot_be_avoided_by_invalid_actions(sign: str, cost: float) -> None:
    env = LengthTrapEnv(sign=sign, max_steps=4)
    env.reset(seed=0)
    steps = [env.step_text("")[1:4] for _ in range(4)]
    assert steps == [(cost, False, False)] * 3 + [(cost, False, True)]
    assert env.episode_return <= env.optimal_return


# ---------------------------------------------------------------------- long lists


def test_the_bound_of_the_list_is_that_of_the_environment() -> None:
    for kwargs in ({}, {"k": 4, "d": 4}):  # as all other environments
        assert AdmissibleObservation(gym.make(ID, **kwargs)).observation_space["admissible_actions"].max_length == 16384
    env = AdmissibleObservation(gym.make(ID, **LARGEST))
    seen, info = env.reset(seed=0)
    assert len(seen["admissible_actions"]) == env.observation_space["admissible_actions"].max_length == 268_288
    assert json.loads(seen["admissible_actions"]) == info["admissible_actions"]
    assert seen in env.observation_space
    assert AdmissibleObservation(env.env, max_list_length=500).observation_space["admissible_actions"].max_length == 500


@pytest.mark.matrix_after(1)
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_long_list_in_gymnasiums_vectors(mode: str) -> None:
    envs = gym.make_vec(f"lang_envs:{ID}", 2, vectorization_mode=mode, wrappers=[AdmissibleObservation], **LARGEST)
    observations, infos = envs.reset(seed=0)
    for packed, listed in zip(observations["admissible_actions"], infos["admissible_actions"], strict=True):
        assert json.loads(packed) == listed
    actions = np.stack([envs.single_action_space.encode(listed[-1]) for listed in infos["admissible_actions"]])
    after, rewards, *_ = envs.step(actions)
    assert after["admissible_actions"] == observations["admissible_actions"]
    assert ((rewards >= 0) & (rewards <= 0.25)).all()
    envs.close()


@pytest.mark.matrix_after(1)
@pytest.mark.parametrize("kind", ["DummyVecEnv", "SubprocVecEnv"])
def test_poad_learns_with_a_long_list(kind: str) -> None:
    from functools import partial

    from stable_baselines3.common import vec_env

    from poad_sb3 import POAD

    envs = getattr(vec_env, kind)([partial(gym.make, f"lang_envs:{ID}", **LARGEST)] * 2)
    model = POAD("LLMPolicy", envs, n_steps=2, seed=0).learn(4)
    assert model.observation_space["admissible_actions"].max_length == 268_288
    assert model.logger.name_to_value["train/first_ratio_error"] < 1e-4
    assert [len(step.path.decisions) for step in itertools.chain(*model.rollout_buffer.steps)] == [12] * 4
    envs.close()


# ---------------------------------------------------------------------- the contract with other arguments


@pytest.mark.parametrize("kwargs", [SIZES[0], SIZES[3]])
def test_the_contract_holds_for_other_sizes(kwargs: dict[str, Any]) -> None:
    assert [result for result in run_checks(ID, **kwargs) if result.status is not Status.PASSED] == []


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"k": 0}, "Expected k to be an integer of at least 1; got 0"),
        ({"k": True}, "Expected k to be an integer of at least 1; got True"),
        ({"d": -1}, "Expected d to be an integer of at least 0; got -1"),
        ({"n_words": 1}, "Expected n_words to be an integer of at least 2; got 1"),
        ({"reward": "any"}, r"Expected reward to be one of \['additive', 'all'\]; got 'any'"),
        ({"horizon": 0}, "Expected horizon to be an integer from 1 to 4; got 0"),
        ({"horizon": 5}, "Expected horizon to be an integer from 1 to 4; got 5"),
        ({"max_steps": 3}, "Expected max_steps to be an integer of at least 4; got 3"),
        ({"k": 7, "d": 6}, r"Expected at most 4,096 actions, n_words \*\* \(k \+ d\); got 2 \*\* 13"),
        ({"k": 10**9}, r"Expected at most 4,096 actions, n_words \*\* \(k \+ d\); got 2 \*\* 1000000002"),
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
        ({"short_length": 0}, "Expected short_length to be an integer of at least 1; got 0"),
        ({"long_length": 2}, "Expected long_length to be an integer of at least 3; got 2"),
        ({"short_reward": 0.48}, r"Expected short_reward strictly between 0.95 \*\* 14 = 0.4877 and 1; got 0.48"),
        ({"short_reward": 1.0}, "Expected short_reward strictly between .* got 1.0"),
        ({"long_length": 5}, r"strictly between 0.95 \*\* 3 = 0.8574 and 1; got 0.75.* Fix: lengths further apart"),
    ],
)
def test_arguments_of_the_trap_that_do_not_fit_are_refused(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LengthTrapEnv(**kwargs)


def test_a_flag_that_is_no_bool_is_refused() -> None:
    with pytest.raises(TypeError, match="Expected variable_lengths to be True or False; got 1"):
        MultiKeyEnv(variable_lengths=1)  # type: ignore[arg-type]


@pytest.mark.parametrize(("env_id", "change"), [(ID, {"k": 1}), (TRAP, {"sign": "positive"})])
def test_a_state_fits_only_equal_arguments(env_id: str, change: dict[str, Any]) -> None:
    env, other = gym.make(env_id).unwrapped, gym.make(env_id, **change).unwrapped
    env.reset(seed=0)
    with pytest.raises(LangEnvsError, match="Expected a state of "):
        other.set_state(env.get_state())


# ---------------------------------------------------------------------- pictures


def test_the_text_drawing_shows_the_episode() -> None:
    env = gym.make(ID, render_mode="ansi").unwrapped
    env.reset(seed=0)
    assert env.render().splitlines() == [
        "Order 1 of 4: the jar and the tray",
        "Answers (+ right, - wrong): . . . .",
        "Slots (* decides): cup/pan, *pot/jar, egg/milk, *fork/tray",
        "Last action: (none yet)",
        "Steps 0 / 50    Return +0.000",
    ]
    for right in (True, False, True, True):
        said = env.oracle_action() if right else wrong(env)
        env.step_text(said)
    lines = env.render().splitlines()
    assert lines[:2] == ["All 4 orders are done", "Answers (+ right, - wrong): + - + +"]
    assert lines[3:] == [f"Last action: {said}", "Steps 4 / 50    Return +0.750", "3 RIGHT"]


def test_the_text_drawing_of_the_trap() -> None:
    env = gym.make(TRAP, render_mode="ansi").unwrapped
    env.reset(seed=0)
    assert env.render().splitlines()[::2][:2] == ["Order 1 of 4: a cost", "Sentences: 2 words, 0.75; 16 words, 1"]


@pytest.mark.parametrize(
    ("env_id", "kwargs"), [(ID, {}), (ID, {**LARGEST, "variable_lengths": True}), (TRAP, {"sign": "positive"})]
)
def test_a_frame_shows_order_answers_and_the_last_action(env_id: str, kwargs: dict[str, Any]) -> None:
    env = gym.make(env_id, render_mode="rgb_array", **kwargs).unwrapped
    env.reset(seed=0)
    frames = [env.render()]
    for said in (env.oracle_action(), wrong(env), "\x1b[31m " * 400, "x" * 5000, None):
        env.step_text(said)
        frames.append(env.render())
    assert {frame.shape for frame in frames} == {(256, 480, 3)}
    assert all((one != other).any() for one, other in itertools.pairwise(frames))


def test_a_frame_marks_the_words_that_decide() -> None:
    env = MultiKeyEnv(k=2, d=1, variable_lengths=True)
    assert env.sentences[-1] == "pan the the jar the the milk the the"
    assert env.key_slots == (0, 2)
    assert env.key_places(env.sentences[-1]) == [0, 6]
    assert env.key_places("pan the jar") == []
    trap = LengthTrapEnv()
    assert [trap.key_places(text) for text in (*trap.sentences, "cup")] == [[0], [0], []]
