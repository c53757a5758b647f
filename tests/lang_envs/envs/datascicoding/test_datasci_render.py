"""Pictures of an episode of programming: their content, that they fit any text, and that drawing has no side effect."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations

import gymnasium as gym
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import ImageColor
from walk import same

from lang_envs.datasets import Dataset, load
from lang_envs.envs.datascicoding import render
from lang_envs.envs.datascicoding.env import Attempt
from lang_envs.envs.datascicoding.evaluation import Evaluation, Status
from lang_envs.rendering import COLORS

SHAPE = (640, 960, 3)
CODE, ATTEMPTS = (slice(119, 529), slice(12, 645)), (slice(100, 351), slice(656, 953))
BADGE = (slice(37, 57), slice(804, 953))
TITLE, HEADER, VERDICT = (slice(8, 38), slice(0, 815)), (slice(56, 77), slice(0, 957)), (slice(540, 633), slice(8, 953))

WORKS = """\
from sklearn.linear_model import LogisticRegression
model = LogisticRegression(max_iter=500)  # a comment
model.fit(x_train, y_train)
return model"""
UNCLOSED = "from sklearn.naive_bayes import GaussianNB\nmodel = GaussianNB(\nmodel.fit(x_train, y_train)"
HOSTILE = [
    "x" * 8192,
    "\n" * 4000,
    "e" + "\u0301" * 4000,
    "\0" * 8192,
    "\ud800\udfff" * 1000,
    "\x1b[31m\x1b[2J\a\b\r\v\f\x85\u2028" * 100,
    "漢字" * 1000,
    "\U0001f468\u200d\U0001f469\u200d\U0001f467\U0001f1e6\U0001f1f9\u20dd" * 100,
]


BALANCE = load("balance-scale")


@dataclass(frozen=True)
class Episode:
    """The environment's interface for drawing; frozen, so that drawing cannot change it."""

    attempts: tuple[Attempt, ...] = ()
    dataset: Dataset = BALANCE
    max_attempts: int = 5
    failure_reward: float = -1.0

    @property
    def best_so_far(self) -> float | None:
        return max(
            (attempt.reward for attempt in self.attempts if attempt.evaluation.status is Status.OK), default=None
        )

    @property
    def episode_return(self) -> float:
        return sum(attempt.reward for attempt in self.attempts)


def failure(status: Status = Status.RUNTIME_ERROR, code: str = WORKS, error: str | None = "ValueError") -> Attempt:
    return Attempt(Evaluation(status, code, error=error), -1.0)


def success(*aucs: float) -> Attempt:
    return Attempt(Evaluation(Status.OK, WORKS, scores=aucs, aucs=aucs), 0.95)


UNCLOSED_ATTEMPT = failure(Status.SYNTAX_ERROR, UNCLOSED, "SyntaxError: '(' was never closed (line 2)")
EPISODES = {
    "start": Episode(),
    "success": Episode((UNCLOSED_ATTEMPT, success(0.96, 0.94, 0.97, 0.92, 0.95))),
}


def frame(episode: Episode) -> NDArray[np.uint8]:
    return render.rgb_array(episode)  # type: ignore[arg-type]


def lines(episode: Episode) -> list[str]:
    return render.ansi(episode).split("\n")  # type: ignore[arg-type]


def is_color(pixels: NDArray[np.uint8], name: str) -> NDArray[np.bool_]:
    return (pixels == ImageColor.getrgb(COLORS[name])).all(axis=-1)


def changed_outside(left: Episode, right: Episode, *boxes: tuple[slice, slice]) -> int:
    """Differing pixels of two pictures outside of the boxes."""
    changed = (frame(left) != frame(right)).any(axis=-1)
    for box in boxes:
        changed[box] = False
    return int(changed.sum())


def wrong_rows(episode: Episode) -> list[int]:
    """Rows of the listing that are marked in the picture."""
    marked = is_color(frame(episode)[CODE][4:, :4], "maroon").all(axis=-1)
    return sorted({int(y) // 15 for y in np.flatnonzero(marked)})


# ---------------------------------------------------------------------- content


@pytest.mark.parametrize("name", ["start", "success"])
def test_made_up_rows_are_labelled_and_no_others(name: str) -> None:
    episode = EPISODES[name]
    real, made_up = (replace(episode, dataset=replace(episode.dataset, synthetic=flag)) for flag in (False, True))
    label = "SYNTHETIC DATA: the rows are made up; scores on them say nothing about the real table."
    assert lines(made_up) == [label, *lines(real)]
    assert "synthetic" not in "\n".join(lines(real)).lower()
    assert changed_outside(real, made_up, BADGE) == 0
    assert is_color(frame(real)[BADGE], "strip").all()
    assert is_color(frame(made_up)[BADGE], "seam").mean() > 0.6
    assert is_color(frame(made_up)[BADGE], "text").sum() > 100


@pytest.mark.parametrize(
    ("error", "line"),
    [
        ("SyntaxError: invalid syntax (line 3)", 3),
        ("ValueError: *** (line 2: model = LogisticRegression(max_iter=500)  # a comment)", 2),
        ("ValueError: *** (line 99999999999999999999999)", None),
    ],
)
def test_the_line_of_the_error_is_marked(error: str, line: int | None) -> None:
    episode = Episode((failure(error=error),))
    assert wrong_rows(episode) == ([] if line is None else [line - 1])
    marked = [text for text in lines(episode) if text.startswith("> ")]
    assert marked == ([] if line is None else [f"> {line}  {WORKS.splitlines()[line - 1]}"])


# ---------------------------------------------------------------------- any text


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_no_code_leaves_its_panel(text: str) -> None:
    calm, hostile = Episode((failure(),)), Episode((failure(code=text),))
    assert changed_outside(calm, hostile, CODE) == 0
    edge = frame(hostile)[CODE]
    for strip in (edge[8:-8, -5:], edge[-8:, 8:-8], edge[:3, 8:-8]):
        assert is_color(strip, "night").all()


# ---------------------------------------------------------------------- time, and the environment itself


def test_an_episode_of_the_registered_environment() -> None:
    with gym.make("DataSciCoding-balance-scale-v0", render_mode="rgb_array", cache=False) as env:
        env.reset(seed=0)
        pictures, space = [env.render()], env.action_space
        for code in (UNCLOSED, "", env.unwrapped.oracle_action()):  # type: ignore[attr-defined]
            env.step(space.encode(code))  # type: ignore[attr-defined]
            before = env.unwrapped.get_state()  # type: ignore[attr-defined]
            pictures.append(env.render())
            assert same(before, env.unwrapped.get_state())  # type: ignore[attr-defined]
        env.unwrapped.render_mode = "ansi"
        text = env.render()
    assert all(picture.shape == SHAPE for picture in pictures)
    assert min((left != right).any(axis=-1).sum() for left, right in combinations(pictures, 2)) > 1000
    assert is_color(pictures[1][CODE][4:, :4], "maroon").sum() == 15 * 4
    assert is_color(pictures[-1][VERDICT], "good").mean() > 0.8
    assert "IT RAN: mean AUC" in text
    assert "1 syntax error -1.0000" in text
