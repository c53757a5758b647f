"""Credit of recorded episodes against a plain recursion, and its picture."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from colour_sight import contrast, distances
from PIL import Image

from benchmarks.reports.credit_picture import credit_picture, is_dark, shade
from benchmarks.reports.rollouts import Rollout, RolloutStep
from benchmarks.runner.credit import credit_of_episode
from benchmarks.runner.files import write_picture

REWARDS = [0.0, -0.1, 1.0]
VALUES = [[0.2, 0.3, 0.1], [0.4], [0.5, 0.9]]
GAMMA, LAMBDA = 0.9, 0.8


def _recursion(rewards: list[float], values: list[list[float]], final: float, inside: float) -> list[list[float]]:
    """Token GAE as one writes it down, token after token from the end; lambda is 1 inside actions."""
    following, advantage, found = final, 0.0, []
    for reward, row in zip(reversed(rewards), reversed(values), strict=True):
        advantages = []
        for place in reversed(range(len(row))):
            if place == len(row) - 1:
                advantage = reward + GAMMA * following - row[place] + GAMMA * LAMBDA * advantage
            else:
                advantage = inside * row[place + 1] - row[place] + inside * advantage
            advantages.append(advantage)
        following = row[0]
        found.append(advantages[::-1])
    return found[::-1]


@pytest.mark.parametrize("final", [0.0, 0.7])
def test_advantages_are_those_of_the_recursion(final: float) -> None:
    found = credit_of_episode(REWARDS, VALUES, final, gamma=GAMMA, gae_lambda=LAMBDA)
    whole = _recursion(REWARDS, [row[:1] for row in VALUES], final, 1.0)
    expected = {
        "POAD": _recursion(REWARDS, VALUES, final, 1.0),
        "NTPO": _recursion(REWARDS, VALUES, final, GAMMA),
        "TWOSOME": [row * len(values) for row, values in zip(whole, VALUES, strict=True)],
    }
    assert found.keys() == expected.keys()
    for name, rows in expected.items():
        for got, row in zip(found[name], rows, strict=True):
            assert got == pytest.approx(row), name


def test_the_first_token_of_poad_is_the_whole_action_of_twosome() -> None:
    found = credit_of_episode(REWARDS, VALUES)
    assert [row[0] for row in found["POAD"]] == pytest.approx([row[0] for row in found["TWOSOME"]])


def test_actions_of_one_token_are_credited_alike_by_all() -> None:
    found = credit_of_episode(REWARDS, [[0.2], [0.4], [0.5]])
    assert found["POAD"] == found["NTPO"] == found["TWOSOME"]


# ---------------------------------------------------------------------- pictures


def _rollout(n_steps: int = 2, observation: str = "A <b>kitchen</b>.") -> Rollout:
    columns = ("POAD", "NTPO", "TWOSOME")
    step = RolloutStep(
        observation, [" chop", "\n", "</s>"], 0.5, [-0.7, 0.0, 0.0], {name: [0.1, 0.2, 0.3] for name in columns},
        {"POAD": [0.5, -1.0, 0.0], "NTPO": [0.25, 0.0, 0.0], "TWOSOME": [0.5, 0.5, 0.5]},
    )  # fmt: skip
    return Rollout("me & you, Kitchen, seed 0", columns, [step] * n_steps)


def test_the_scale_is_the_largest_advantage_of_all_columns() -> None:
    assert _rollout().scale == 1.0
    nothing = RolloutStep("", ["a"], 0.0, [], {}, {"POAD": [0.0]})
    assert Rollout("", ("POAD",), [nothing]).scale == 1.0


def test_colours_go_from_near_white_to_blue_and_orange() -> None:
    assert shade(0.0, 1.0) == (247, 247, 247)
    blue, orange = shade(1.0, 1.0), shade(-1.0, 1.0)
    assert (blue, orange) == ((47, 116, 181), (194, 87, 12))
    assert shade(-5.0, 1.0) == orange
    assert shade(1 / 3, 1.0) == (181, 211, 236)
    assert is_dark(blue)
    assert not is_dark(shade(0.1, 1.0))


def test_ink_has_the_contrast_of_wcag_aa_on_every_colour() -> None:
    for place in np.linspace(-1, 1, 201):
        color = shade(place, 1.0)
        assert contrast(color, (255, 255, 255) if is_dark(color) else (0, 0, 0)) >= 4.5


def test_the_ends_stay_apart_for_colour_blind_readers() -> None:
    assert min(distances(shade(-1.0, 1.0), shade(1.0, 1.0))) >= 0.15


def test_the_picture_has_the_colours_of_its_tokens_and_grows_with_the_actions() -> None:
    small, large = credit_picture(_rollout(1)), credit_picture(_rollout(3))
    assert large.width == small.width
    assert large.height > small.height
    colours = {tuple(one) for one in np.asarray(small).reshape(-1, 3)}
    assert {shade(value, 1.0) for value in (0.5, -1.0, 0.0, 0.25)} <= colours


@pytest.mark.matrix
def test_a_pale_advantage_is_not_grey_in_the_file(tmp_path: Path) -> None:
    values = [-0.04 * place for place in range(1, 26)]
    step = RolloutStep("Where?", ["a"] * 25, 0.0, [0.0] * 25, {}, {"POAD": values})
    path = write_picture(tmp_path / "credit.png", credit_picture(Rollout("", ("POAD",), [step] * 4)))
    with Image.open(path) as image:
        assert image.mode == "P"
        colours = {tuple(one) for one in np.unique(np.asarray(image.convert("RGB")).reshape(-1, 3), axis=0).tolist()}
    assert {(255, 255, 255), *(shade(value, 1.0) for value in values)} <= colours


def test_of_a_long_episode_the_end_is_drawn() -> None:
    assert credit_picture(_rollout(50), most_steps=3).height == credit_picture(_rollout(3)).height


def test_a_long_action_goes_on_in_the_next_line() -> None:
    step = _rollout().steps[0]
    long = step._replace(tokens=["token"] * 40, advantages={"POAD": [0.1] * 40})
    picture = credit_picture(Rollout("long", ("POAD",), [long]))
    short = credit_picture(Rollout("short", ("POAD",), [step._replace(advantages={"POAD": step.advantages["POAD"]})]))
    assert picture.height > short.height + 100
