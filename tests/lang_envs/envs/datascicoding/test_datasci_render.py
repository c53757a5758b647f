"""Pictures of an episode of programming: their content, that they fit any text, and that drawing has no side effect."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import median

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import ImageColor
from rich.cells import cell_len
from walk import same

from lang_envs.datasets import DATASETS, Dataset, load
from lang_envs.datasets.manifest import MANIFEST_NAMES, manifest
from lang_envs.datasets.synthetic import stand_in
from lang_envs.envs.datascicoding import render
from lang_envs.envs.datascicoding.env import Attempt
from lang_envs.envs.datascicoding.evaluation import Evaluation, Status
from lang_envs.rendering import COLORS, fitted

SHAPE = (640, 960, 3)
CODE, ATTEMPTS = (slice(119, 529), slice(12, 645)), (slice(100, 351), slice(656, 953))
BADGE = (slice(37, 57), slice(804, 953))
TITLE, HEADER, VERDICT = (slice(8, 38), slice(0, 815)), (slice(56, 77), slice(0, 957)), (slice(540, 633), slice(8, 953))
N_COLUMNS = 100

WORKS = """\
from sklearn.linear_model import LogisticRegression
model = LogisticRegression(max_iter=500)  # a comment
model.fit(x_train, y_train)
return model"""
UNCLOSED = "from sklearn.naive_bayes import GaussianNB\nmodel = GaussianNB(\nmodel.fit(x_train, y_train)"
HOSTILE = [
    "x" * 8192,
    "\n" * 4000,
    "y = 1\n" * 4000,
    "\U0001f600" * 2000,
    "e" + "\u0301" * 4000,
    "\u202e\u2066\u200b\ufeff" * 500,
    "\0" * 8192,
    "\ud800\udfff" * 1000,
    "\x1b[31m\x1b[2J\a\b\r\v\f\x85\u2028" * 100,
    "\t" * 500,
    "W" * 8192,
    "漢字" * 1000,
    '"""' + "'" * 8000,
    "\\" * 8192,
    "\U0001f468\u200d\U0001f469\u200d\U0001f467\U0001f1e6\U0001f1f9\u20dd" * 100,
    "\u1100\u1161\u11a8\ufdfd\u0b95\u0bcc" * 300,
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


def success(*aucs: float, code: str = WORKS, reward: float = 0.95) -> Attempt:
    return Attempt(Evaluation(Status.OK, code, scores=aucs, aucs=aucs), reward)


UNCLOSED_ATTEMPT = failure(Status.SYNTAX_ERROR, UNCLOSED, "SyntaxError: '(' was never closed (line 2)")
EPISODES = {
    "start": Episode(),
    "syntax error": Episode((UNCLOSED_ATTEMPT,)),
    "no code": Episode((failure(Status.UNFINISHED, "", "the code was not finished"),)),
    "no message": Episode((failure(error=None),)),
    "success": Episode((UNCLOSED_ATTEMPT, success(0.96, 0.94, 0.97, 0.92, 0.95))),
    "first success": Episode((success(0.96, 0.94, 0.97, 0.92, 0.95),)),
    "below chance": Episode((success(0.96, 0.94, 0.97, 0.92, 0.31),)),
    "one split": Episode((success(0.96),)),
    "a hundred splits": Episode((success(*np.linspace(0, 1, 100).tolist()),)),
    "one attempt": Episode((failure(),), max_attempts=1),
    "out of attempts": Episode((failure(),) * 5),
    "a thousand attempts": Episode((*[failure()] * 20, success(1.0), failure()), max_attempts=1000),
    "improving": Episode((success(0.9), success(0.8, reward=0.8))),
    "another table": Episode((UNCLOSED_ATTEMPT,), load("digits")),
    "made-up rows": Episode((UNCLOSED_ATTEMPT,), replace(BALANCE, synthetic=True)),
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


@pytest.mark.parametrize("name", EPISODES)
def test_every_picture_has_one_size(name: str) -> None:
    picture = frame(EPISODES[name])
    assert picture.shape == SHAPE
    assert picture.dtype == np.uint8
    assert picture.flags.writeable  # a copy of its own


def test_episodes_look_different() -> None:
    pictures = [frame(episode) for episode in EPISODES.values()]
    assert min((left != right).any(axis=-1).sum() for left, right in combinations(pictures, 2)) > 100
    assert len({render.ansi(episode) for episode in EPISODES.values()}) == len(EPISODES)  # type: ignore[arg-type]


@pytest.mark.matrix_after(3)
@pytest.mark.parametrize("name", EPISODES)
def test_pictures_repeat_whatever_was_drawn_between(name: str) -> None:
    before = frame(EPISODES[name])
    for episode in EPISODES.values():
        frame(episode)[:] = 0
    assert (frame(EPISODES[name]) == before).all()


def test_text_of_the_start() -> None:
    assert lines(Episode(max_attempts=2, failure_reward=-0.5)) == [
        "The balance scale table: 125 rows x 4 features, 3 classes",
        "Every row is a beam with a load on each arm. To be predicted is whether it tips to the left, stays",
        "level or tips to the right. An attempt is the body of build_model(x_train, y_train): fitted to half",
        "of the rows, scored on the other half.",
        "Code:",
        "  No code yet: the body of build_model(x_train, y_train) will stand here.",
        "NO ATTEMPT YET",
        "Failed code gets reward -0.5000 and its error message.",
        "1 -",
        "2 -",
        "Best so far: none",
        "Attempts 0 / 2    Return +0.0000",
    ]


def test_text_of_a_failure() -> None:
    assert lines(EPISODES["syntax error"])[4:] == [
        "Code of attempt 1:",
        "  1  from sklearn.naive_bayes import GaussianNB",
        "> 2  model = GaussianNB(",
        "  3  model.fit(x_train, y_train)",
        "FAILED: syntax error, paid -1.0000",
        "SyntaxError: '(' was never closed (line 2)",
        "1 syntax error -1.0000",
        "2 -",
        "3 -",
        "4 -",
        "5 -",
        "Best so far: none",
        "Attempts 1 / 5    Return -1.0000",
    ]


def test_text_of_a_success() -> None:
    assert lines(EPISODES["success"])[9:] == [
        "IT RAN: mean AUC 0.9480 ± 0.0172 over 5 splits, paid +0.9500",
        "An AUC of 0.5 is that of guessing, 1 that of a perfect model.",
        "AUC 0.5 |------------------------------------------o-oMoo---| 1.0 (o split, M mean)",
        "1 syntax error -1.0000",
        "2 ok +0.9500",
        "3 -",
        "4 -",
        "5 -",
        "Best so far: +0.9500",
        "Attempts 2 / 5    Return -0.0500",
    ]


def test_what_is_nearly_perfect_does_not_look_perfect() -> None:
    told = "\n".join(lines(Episode((success(0.9996, 0.9996, reward=0.9996),))))
    assert "mean AUC 0.9996 ± 0.0000 over 2 splits, paid +0.9996" in told
    assert "Best so far: +0.9996\nAttempts 1 / 5    Return +0.9996" in told
    assert "1.000" not in told


def test_the_axis_goes_to_zero_for_a_split_below_chance() -> None:
    (axis,) = (line for line in lines(Episode((success(0.0, 0.25, 1.0),))) if line.startswith("AUC"))
    assert axis == f"AUC 0.0 |o{'-' * 11}o{'-' * 8}M{'-' * 28}o| 1.0 (o split, M mean)"


@pytest.mark.parametrize("name", EPISODES)
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


@pytest.mark.parametrize("name", MANIFEST_NAMES)
def test_stand_ins_are_told_in_full(name: str) -> None:
    table = stand_in(manifest(name))
    assert fitted(table.title, 20, 790) == table.title
    assert fitted(table.about, 14, 936) == table.about
    n, width = table.x.shape
    told = lines(Episode(dataset=table))
    assert told[1] == f"A synthetic stand-in for {manifest(name).title}: {n:,} rows x {width} features, 2 classes"
    assert " ".join(told[2:]).startswith(f"{table.about} {render._TASK} Code:")


@pytest.mark.parametrize("title", ["the table of a house with many rooms and two cats, by street", "W" * 70, "漢" * 90])
@pytest.mark.parametrize("synthetic", [False, True])
def test_a_long_title_leaves_room_for_the_size(title: str, synthetic: bool) -> None:
    first = lines(Episode(dataset=replace(BALANCE, title=title, synthetic=synthetic)))[int(synthetic)]
    assert first.endswith(": 125 rows x 4 features, 3 classes")
    assert cell_len(first) <= N_COLUMNS
    assert ("…" in first) == (cell_len(title) > 64)


@pytest.mark.parametrize(
    ("name", "color"), [("start", "card"), ("success", "good"), ("syntax error", "awning"), ("no code", "awning")]
)
def test_the_banner_is_green_or_red(name: str, color: str) -> None:
    assert is_color(frame(EPISODES[name])[VERDICT], color).mean() > 0.8


@pytest.mark.parametrize(
    ("error", "line"),
    [
        ("SyntaxError: invalid syntax (line 3)", 3),
        ("SyntaxError: closing '(line 1: ' does not match (line 3)", 3),
        ("ValueError: *** (line 2: model = LogisticRegression(max_iter=500)  # a comment)", 2),
        ("ValueError: (line 1: no) (line 4) (line 2: model = LogisticRegression(max_iter=500)  # a comment)", 2),
        ("ValueError: *** (line 3: something that stands elsewhere)", 3),
        ("ValueError: *** (line 5: one too many)", None),
        ("ValueError: *** (line 0)", None),
        ("ValueError: *** (line 99999999999999999999999)", None),
        ("ValueError: (line 2) is what it said", None),
        ("the code ran for more than 30 seconds", None),
        ("", None),
    ],
)
def test_the_line_of_the_error_is_marked(error: str, line: int | None) -> None:
    episode = Episode((failure(error=error),))
    assert wrong_rows(episode) == ([] if line is None else [line - 1])
    marked = [text for text in lines(episode) if text.startswith("> ")]
    assert marked == ([] if line is None else [f"> {line}  {WORKS.splitlines()[line - 1]}"])


@pytest.mark.parametrize("line", [1, 2, 19, 20, 21, 22, 2000, 3979, 3980, 3981, 3999, 4000])
def test_of_long_code_the_part_with_the_error_is_shown(line: int) -> None:
    code = "\n".join(f"x = {number}" for number in range(1, 4001))
    episode = Episode((failure(code=code, error=f"NameError: *** (line {line}: x = {line})"),))
    assert len(wrong_rows(episode)) == 1
    text = lines(episode)
    rows = [row for row in text if " x = " in row and not row.startswith("NameError")]
    assert [row.split() for row in rows if row.startswith(">")] == [[">", str(line), "x", "=", str(line)]]
    shown = [int(row[2:].split()[0]) for row in rows]
    above = sum(int(row.split()[1].replace(",", "")) for row in text if row.endswith(" lines above"))
    below = sum(int(row.split()[1].replace(",", "")) for row in text if row.endswith(" lines below"))
    assert shown == list(range(above + 1, 4001 - below))


@pytest.mark.parametrize("n_lines", [1, 25, 26])
def test_code_that_fits_is_shown_in_full(n_lines: int) -> None:
    rows = render._listing(failure(code="\n".join(["x"] * n_lines)).evaluation, 26, 88)
    assert [row.number for row in rows] == list(range(1, n_lines + 1))


@pytest.mark.parametrize("n_used", [0, 1, 7, 8, 9, 500, 999, 1000])
def test_the_last_attempts_and_the_next_are_listed(n_used: int) -> None:
    text = lines(Episode((failure(),) * n_used, max_attempts=1000))
    listed = text[text.index("Best so far: none") - 8 : text.index("Best so far: none")]
    numbers = [int(row.split()[0]) for row in listed]
    assert numbers == list(range(numbers[0], numbers[0] + 8))
    assert {max(n_used, 1), min(n_used + 1, 1000)} <= set(numbers)
    assert [row.endswith(" runtime error -1.0000") for row in listed] == [number <= n_used for number in numbers]


def test_words_of_python_have_colours_of_their_own() -> None:
    def colors(code: str) -> set[str]:
        panel = frame(Episode((failure(code=code),)))[CODE][:, 25:]
        names = ("lilac", "lime", "seed", "faded", "text")
        return {name for name in names if is_color(panel, name).any()}

    assert colors("for in if") == {"lilac"}
    assert colors("'HIM' rb\"HIM\"") == {"lime"}
    assert colors("'''HIM\nHIM'''") == {"lime"}
    assert colors("1HIM 2.HIM") == {"seed"}
    assert colors("# for 'x' 1") == {"faded"}
    assert colors("HIM form") == {"text"}


# ---------------------------------------------------------------------- any text


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_no_code_leaves_its_panel(text: str) -> None:
    calm, hostile = Episode((failure(),)), Episode((failure(code=text),))
    assert changed_outside(calm, hostile, CODE) == 0
    edge = frame(hostile)[CODE]
    for strip in (edge[8:-8, -5:], edge[-8:, 8:-8], edge[:3, 8:-8]):
        assert is_color(strip, "night").all()


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_no_message_leaves_the_banner(text: str) -> None:
    hostile = Episode((failure(error=text),))
    assert changed_outside(Episode((failure(),)), hostile, VERDICT) == 0
    edge = frame(hostile)[VERDICT]
    for strip in (edge[8:-8, -6:-1], edge[-4:-1, 8:-8]):
        assert is_color(strip, "awning").all()


@pytest.mark.parametrize("synthetic", [False, True])
@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_no_name_of_a_table_leaves_the_title(text: str, synthetic: bool) -> None:
    table = replace(BALANCE, synthetic=synthetic)
    hostile, calm = (Episode(dataset=replace(table, title=title)) for title in (text, "calm"))
    assert changed_outside(hostile, calm, TITLE) == 0
    about = Episode(dataset=replace(table, title="calm", about=text))
    assert changed_outside(about, calm, HEADER) == 0
    for episode in (hostile, about):
        assert max(map(cell_len, lines(episode))) <= N_COLUMNS
        assert all(line.isprintable() for line in lines(episode))


@pytest.mark.parametrize("reward", [0.0, -0.0, 999_999.9999, -1e6, 1e300, -1e300, float("inf"), float("nan")])
def test_no_number_leaves_its_box(reward: float) -> None:
    calm, attempt = Episode((failure(),), max_attempts=10**30), failure()._replace(reward=reward)
    hostile = Episode((attempt,), max_attempts=10**30)
    assert changed_outside(calm, hostile, ATTEMPTS, VERDICT) == 0
    assert changed_outside(calm, replace(calm, max_attempts=5), ATTEMPTS) == 0
    assert max(map(cell_len, lines(hostile))) <= N_COLUMNS


ANYTHING = st.text(st.characters(), max_size=400) | st.text(
    "ab \n\r\t'\"#\\(\0\u202e\ud800漢\U0001f600\u0301", max_size=400
)


@settings(deadline=None, max_examples=60)
@given(code=ANYTHING, error=ANYTHING | st.integers(-1, 50).map(lambda line: f"ValueError (line {line})"))
@example("".join(HOSTILE), "".join(HOSTILE))
@example("", "")
def test_any_text_is_told_in_lines_that_fit(code: str, error: str) -> None:
    episode = Episode((failure(code=code, error=error),))
    text = lines(episode)
    assert max(map(cell_len, text)) <= N_COLUMNS
    assert all(line.isprintable() for line in text)
    assert len(text) <= 70
    "\n".join(text).encode()  # no lone surrogate
    assert frame(episode).shape == SHAPE


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_code_is_told_in_lines_that_fit(text: str) -> None:
    told = lines(Episode((failure(code=text, error=text),)))
    assert max(map(cell_len, told)) <= N_COLUMNS
    assert all(line.isprintable() for line in told)


def test_what_cannot_be_seen_is_escaped() -> None:
    text = "\n".join(lines(Episode((failure(code="x = '\u202e\0\ud800e\u0301\x1b'\r\ty", error="\u2066"),))))
    assert r"1  x = '\u202e\x00\ud800e\u0301\x1b'" in text
    assert "\n  2      y\n" in text
    assert "\n\\u2066\n" in text


def test_a_cut_line_has_a_mark() -> None:
    row = next(line for line in lines(Episode((failure(code="x" * 500),))) if "xx" in line)
    assert row == f"  1  {'x' * 94}…"
    assert cell_len(row) == N_COLUMNS


@pytest.mark.parametrize("name", sorted(set(DATASETS) - set(MANIFEST_NAMES)))
def test_the_tables_of_this_package_are_told_in_full(name: str) -> None:
    table = load(name)
    assert fitted(table.title, 20, 790) == table.title
    assert fitted(table.about, 14, 936) == table.about
    assert fitted(render._TASK, 14, 936) == render._TASK


# ---------------------------------------------------------------------- time, and the environment itself


@pytest.mark.slow
@pytest.mark.parametrize("code", [WORKS, "x = 'abc' + 1  # d\n" * 431, "W" * 8192, "漢" * 2730], ids=range(4))
def test_frames_are_quick(code: str) -> None:
    episode, seconds = Episode((failure(code=code, error="ValueError: " + "x " * 200),)), []
    frame(episode)
    for _ in range(15):
        start = time.process_time()
        frame(episode)
        seconds.append(time.process_time() - start)
    assert median(seconds) < 0.04  # 6 to 13 ms where it was written; machines differ


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


def test_text_mode_of_the_registered_environment() -> None:
    with gym.make("DataSciCoding-wine-v0", render_mode="ansi", max_attempts=3) as env:
        env.reset(seed=0)
        assert env.render().startswith("The wine table: 178 rows x 13 features, 3 classes\n")
        assert env.render().endswith("Attempts 0 / 3    Return +0.0000")
