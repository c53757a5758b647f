"""Tasks of other packages: contract, golden episodes of the pinned versions, and views in words."""

from __future__ import annotations

import importlib.metadata
import json
import random
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from lang_envs import FOREIGN_ROWS, LangEnvsError, MissingExtraError, oracle
from lang_envs.env_checker import CHECKS, Check, NotApplicableError, maker
from lang_envs.env_checker.walks import randomly
from lang_envs.envs.babyai.words import _COLORS, _TYPES, describe_view
from lang_envs.foreign_names import LEVELS

GOLDEN = Path(__file__).parents[3] / "data/golden/foreign.json"
"""Episodes of the versions in constraints.txt; `python tests/lang_envs/envs/test_foreign.py` records them again."""
ROWS = {row.id: row for row in FOREIGN_ROWS}
BABYAI, TEXTWORLD, TEXTARENA = "BabyAIText-GoToRedBall-v0", "TextWorld-CoinCollector-v0", "TextArena-FrozenLake-v0"
OPEN = "TextArena-Mastermind-v0"
RECORDED = (
    BABYAI,
    "BabyAIText-Unlock-v0",
    "BabyAIText-PutNextLocal-v0",
    TEXTWORLD,
    "TextWorld-Simple-v0",
    TEXTARENA,
    "TextArena-TowerOfHanoi-v0",
    OPEN,
)


def made(env_id: str) -> Any:
    """Make an environment, or skip the test where its package is missing."""
    pytest.importorskip(ROWS[env_id].extra)
    return gym.make(env_id, disable_env_checker=True, **ROWS[env_id].trial).unwrapped


# ---------------------------------------------------------------------- the contract


@pytest.mark.parametrize(
    "env_id", [BABYAI, *(pytest.param(env_id, marks=pytest.mark.matrix) for env_id in (TEXTWORLD, TEXTARENA, OPEN))]
)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_keeps_the_contract(env_id: str, check: Check) -> None:
    pytest.importorskip(ROWS[env_id].extra)
    try:
        check.function(maker(env_id))
    except NotApplicableError as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize(
    "env_id", [pytest.param(env_id, marks=[] if env_id in RECORDED else pytest.mark.matrix) for env_id in ROWS]
)
def test_random_play_never_raises_and_repeats_with_the_seed(env_id: str) -> None:
    texts = []
    for _ in range(2):
        env, agent = made(env_id), randomly(0)
        text, info = env.reset(seed=3)
        texts.append([text])
        for _ in range(60):
            text, _, terminated, truncated, info = env.step_text(agent(env, text, info["admissible_actions"]))
            texts[-1].append(text)
            if terminated or truncated:
                text, info = env.reset()
        env.close()
    assert texts[0] == texts[1]


def golden_episode(env_id: str) -> list[list[Any]]:
    """Play the package's solution, or random actions where there is none, and then an invalid text."""
    env, agent = made(env_id), randomly(5)
    text, info = env.reset(seed=5)
    steps: list[list[Any]] = [["", text, 0.0]]
    for _ in range(12):
        try:
            action = oracle(env)
        except NotImplementedError:
            action = agent(env, text, info["admissible_actions"])
        text, reward, terminated, truncated, info = env.step_text(action)
        steps.append([action, text, reward])
        if terminated or truncated:
            break
    env.close()
    return steps


@pytest.mark.parametrize("env_id", RECORDED)
def test_plays_the_golden_episode(env_id: str) -> None:
    recorded = json.loads(GOLDEN.read_text(encoding="utf-8"))
    extra = ROWS[env_id].extra
    pytest.importorskip(extra)
    if importlib.metadata.version(extra) != recorded["versions"][extra]:
        pytest.skip(f"recorded with {extra} {recorded['versions'][extra]}")
    assert golden_episode(env_id) == recorded["episodes"][env_id]


def test_a_missing_package_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for env_id, module in ((BABYAI, "babyai"), (TEXTWORLD, "textworld"), (TEXTARENA, "textarena")):
        monkeypatch.setitem(sys.modules, ROWS[env_id].extra, None)
        monkeypatch.delitem(sys.modules, f"lang_envs.envs.{module}.env", raising=False)
        with pytest.raises(MissingExtraError, match=rf"Expected the package .*Fix: pip install .*{ROWS[env_id].extra}"):
            gym.make(env_id)


# ---------------------------------------------------------------------- BabyAI


def test_levels_and_numbers_are_those_of_the_package() -> None:
    pytest.importorskip("minigrid")
    from minigrid.core.constants import IDX_TO_COLOR, IDX_TO_OBJECT

    registered = [
        name.removeprefix("BabyAI-").removesuffix("-v0") for name in gym.registry if name.startswith("BabyAI-")
    ]
    assert sorted(LEVELS) == sorted(registered)
    assert [IDX_TO_OBJECT[number] for number in range(len(_TYPES))] == [*_TYPES]
    assert [IDX_TO_COLOR[number] for number in range(len(_COLORS))] == [*_COLORS]


def view(**cells: tuple[int, int, int]) -> np.ndarray:
    """A view of empty cells but for some, by `x3y6`."""
    image = np.tile(np.array([1, 0, 0]), (7, 7, 1))
    for name, cell in cells.items():
        image[int(name[1]), int(name[3])] = cell
    return image


@pytest.mark.parametrize(
    ("image", "seen", "carried"),
    [
        (view(), "nothing", "nothing"),
        (view(x3y5=(6, 0, 0)), "a red ball 1 step forward", "nothing"),
        (view(x0y0=(5, 4, 0)), "a yellow key 6 steps forward and 3 steps left", "nothing"),
        (view(x5y6=(7, 5, 0)), "a grey box 2 steps right", "nothing"),
        (
            view(x3y2=(4, 1, 2), x2y5=(4, 2, 0), x4y5=(4, 3, 1)),
            "an open blue door 1 step forward and 1 step left, a closed purple door 1 step forward and 1 step right, "
            "a locked green door 4 steps forward",
            "nothing",
        ),
        (
            view(x3y4=(2, 5, 0), x3y1=(2, 5, 0), x1y6=(2, 5, 0), x4y6=(2, 5, 0), x4y4=(2, 5, 0)),
            "a wall 2 steps forward, a wall 2 steps left, a wall 1 step right",
            "nothing",
        ),
        (
            view(x3y6=(5, 0, 0), x3y3=(0, 0, 0), x2y2=(8, 1, 0), x3y4=(9, 0, 0)),
            "lava 2 steps forward, a green goal 4 steps forward and 1 step left",
            "a red key",
        ),
    ],
)
def test_a_scene_in_words(image: np.ndarray, seen: str, carried: str) -> None:
    assert describe_view(image, "open a door") == f"Mission: open a door. You see {seen}. You carry {carried}. You"


def test_an_invalid_text_is_no_look_at_the_goal() -> None:
    """MiniGrid looks after any action whether the agent faces the goal; time that passes must not."""
    env = made(BABYAI)
    for seed in range(30):
        env.reset(seed=seed)
        _, reward, terminated, _, info = env.step_text("look around")
        assert (reward, terminated, info["n_actions"]) == (0.0, False, 1)


# ---------------------------------------------------------------------- TextWorld and TextArena


def test_a_time_limit_is_no_defeat() -> None:
    pytest.importorskip("textworld")
    env = gym.make(TEXTWORLD, max_steps=2).unwrapped
    env.reset(seed=0)
    env.step_text("look")
    _, _, terminated, truncated, info = env.step_text("not a command")
    assert (terminated, truncated, info["won"], info["lost"]) == (False, True, False, False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "Expected a challenge, one of .*, or a game"),
        ({"game": "nowhere.z8"}, "there is no file nowhere.z8. Fix: tw-make"),
        (
            {"challenge": "coin-collector", "settings": {"level": 0}},
            "a game of coin-collector with .*coin_collector --h",
        ),
        (
            {"challenge": "coin-collector", "settings": {"levle": 3}},
            r"settings among \['level'\]; got 'levle'\. Did you",
        ),
        ({"game": "my.z8", "settings": {"level": 3}}, "Fix: leave them out, the game is made already"),
    ],
)
def test_a_game_that_cannot_be_had_is_one_sentence(arguments: dict[str, Any], message: str) -> None:
    pytest.importorskip("textworld")
    with pytest.raises(LangEnvsError, match=message):
        gym.make("TextWorld-v0", **arguments)


def test_observations_have_no_clock() -> None:
    """The interpreter writes the room, the score and the number of moves below every answer."""
    env = made(TEXTWORLD)
    first, _ = env.reset(seed=0)
    for _ in range(3):
        text, *_ = env.step_text("look")
    assert text == first


def test_a_game_without_its_other_file_or_damaged_is_one_sentence(tmp_path: Path) -> None:
    generated = made(TEXTWORLD)._generated()
    game = tmp_path / "game.z8"
    game.write_bytes(generated.read_bytes())
    with pytest.raises(LangEnvsError, match=r"a \.z8 and a \.json file; there is no file .*game\.json"):
        gym.make("TextWorld-v0", game=str(game))
    game.with_suffix(".json").write_text("{}")
    with pytest.raises(LangEnvsError, match=r"Expected a game of TextWorld in .*game\.z8; got KeyError"):
        gym.make("TextWorld-v0", game=str(game))


def test_a_level_that_the_bot_cannot_solve_has_no_oracle() -> None:
    env = made("BabyAIText-KeyInBox-v0")
    env.reset(seed=0)

    def play() -> None:
        for _ in range(500):
            env.step_text(oracle(env))

    with pytest.raises(NotImplementedError, match="The bot of minigrid cannot solve BabyAI-KeyInBox-v0 from here"):
        play()


def test_a_game_of_a_file_is_the_generated_one() -> None:
    env = made(TEXTWORLD)
    again = gym.make("TextWorld-v0", game=str(env._generated())).unwrapped
    assert again.reset(seed=0)[0] == env.reset(seed=9)[0]


def test_a_won_game_pays_one() -> None:
    env = made("TextArena-TowerOfHanoi-v0")
    env.reset(seed=0)
    for pair in ("AC", "AB", "CB", "AC", "BA", "BC", "AC"):
        _, reward, terminated, _, info = env.step_text(f"move from {pair[0]} to {pair[1]}")
    assert (reward, terminated, info["success"]) == (1.0, True, True)
    assert "solved" in info["reason"]


def test_making_a_game_leaves_global_random_numbers_alone() -> None:
    before = random.getstate()
    made("TextArena-RushHour-v0")
    assert random.getstate() == before


def test_games_understand_their_listed_actions() -> None:
    pytest.importorskip("textarena")
    from lang_envs.envs.textarena.games import GAMES

    misunderstood = set()
    for game in (name for name, game in GAMES.items() if game.actions is not None):
        env, agent = made(f"TextArena-{game}-v0"), randomly(1)
        text, info = env.reset(seed=1)
        for _ in range(40):
            text, _, terminated, truncated, info = env.step_text(agent(env, text, info["admissible_actions"]))
            if env.world.state.error_count or "Invalid Move" in info["reason"]:
                misunderstood.add(game)
            if terminated or truncated:
                text, info = env.reset()
    # The package counts a step against a wall, a slide that moves nothing and a mine as invalid moves.
    assert misunderstood == {"2048", "FrozenLake", "Minesweeper", "Sokoban"}


if __name__ == "__main__":
    versions = {extra: importlib.metadata.version(extra) for extra in dict.fromkeys(row.extra for row in FOREIGN_ROWS)}
    content = {"versions": versions, "episodes": {env_id: golden_episode(env_id) for env_id in RECORDED}}
    GOLDEN.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
