"""State of an episode of VirtualHome: damaged worlds are refused, old draws forgotten, plans shared."""

from __future__ import annotations

import random

import pytest

from lang_envs.envs.virtualhome.env import VirtualHomeEnv
from lang_envs.envs.virtualhome.tasks import DISTRACTORS, TASKS

HEAT, WATCH = TASKS


def test_what_was_drawn_long_ago_is_forgotten() -> None:
    env = VirtualHomeEnv(HEAT, nouns={"pancake": [f"thing {number}" for number in range(200)]})
    texts = {env.reset(seed=seed)[0] for seed in range(300)}
    assert len(texts) > 100
    assert len(env._homes) <= 64
    assert env.reset(seed=0)[0] in texts


@pytest.mark.parametrize("names", [("candle", "spoon"), ("teapot", "notebook"), ("umbrella",)], ids=str)
def test_plans_do_not_depend_on_which_distractors_lie_about(names: tuple[str, ...]) -> None:
    first = tuple(DISTRACTORS)[: len(names)]
    here, there = VirtualHomeEnv(WATCH, distractors=names), VirtualHomeEnv(WATCH, distractors=first)
    other_name = dict(zip(names, first, strict=True))
    rng = random.Random(0)
    for _ in range(3):
        here.reset(seed=0)
        there.reset(seed=0)
        for _ in range(40):
            position = rng.randrange(len(here.command_set))
            *_, terminated, _, _ = here.step_text(here.command_set[position])
            there.step_text(there.command_set[position])
            if terminated:
                break
            said = here.oracle_action()
            for name, other in other_name.items():
                said = said.replace(name, other)
            assert said == there.oracle_action()
