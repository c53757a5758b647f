"""Rollouts of whole episodes: counted steps, their credit, and the seeds that episodes begin with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv
from toy import LampEnv

from poad_sb3 import GRPO, POAD, ReBN
from poad_sb3.vec_env.text_observations import wrap_language_env
from poad_sb3.vec_env.threads import ThreadVecEnv


class UnevenLamp(LampEnv):
    """A lamp with one to five moves."""

    def __init__(self) -> None:
        super().__init__(moves=5)

    def _restart(self, options: Mapping[str, Any]) -> None:
        super()._restart(options)
        self.left = int(self.np_random.integers(1, 6))


def agent_of(env: VecEnv, **settings: Any) -> POAD:
    given = {"learning_rate": 0.0, "critic_learning_rate": 0.0, "seed": 0, "n_episodes": 2, **settings}
    return POAD("LLMPolicy", env, batch_size=8, n_epochs=1, **given)


@pytest.mark.filterwarnings("ignore:.*learning_rate")
def test_every_environment_gives_its_whole_episodes_and_nothing_else() -> None:
    agent = agent_of(DummyVecEnv([UnevenLamp] * 3), n_episodes=3).learn(1)
    buffer = agent.rollout_buffer
    counted = buffer.counted
    assert (buffer.episode_ends & counted).sum(0).tolist() == [3, 3, 3]
    assert not counted.all(), "episodes of one length"
    assert agent.num_timesteps == counted.size == buffer.size() * 3
    assert buffer.full
    actions = list(buffer.sampled_actions())
    assert len(actions) == counted.sum() == len(buffer.all_samples().paths)
    for env in range(3):
        last = np.flatnonzero(buffer.episode_ends[:, env] & counted[:, env])
        lengths = [counted[start : end + 1, env].sum() for start, end in zip([0, *last[:-1] + 1], last, strict=True)]
        prompts = [agent.policy.lm.tokenizer.decode(action.path.prompt) for action in actions if action.env == env]
        starts = np.cumsum([0, *lengths[:-1]])
        assert all(f"have {n} moves" in prompts[start] for start, n in zip(starts, lengths, strict=True))


def dummy(n_envs: int) -> VecEnv:
    return DummyVecEnv([UnevenLamp] * n_envs)


def subproc(n_envs: int) -> VecEnv:
    return SubprocVecEnv([UnevenLamp] * n_envs, start_method="fork")


def threads(n_envs: int) -> ThreadVecEnv:
    return ThreadVecEnv([UnevenLamp] * n_envs)


@pytest.mark.parametrize("make", [dummy, subproc, threads])
def test_episodes_of_one_seed_begin_alike(make: Callable[[int], VecEnv]) -> None:
    env = wrap_language_env(make(4))

    def reset_with_seeds(env: VecEnv, seeds: Sequence[int | None]) -> Any:
        env.unwrapped._seeds = list(seeds)
        return env.reset()

    try:
        alike = reset_with_seeds(env, [7] * 4)["text"]
        assert len(set(alike)) == 1
        mixed = reset_with_seeds(env, [7, 8, 7, None])["text"]
        assert mixed[0] == mixed[2] == alike[0]
        assert len({*reset_with_seeds(env, [*range(4)])["text"]}) > 1
    finally:
        env.close()


@pytest.mark.filterwarnings("ignore:.*learning_rate")
@pytest.mark.parametrize("make", [dummy, threads])
def test_a_group_begins_with_one_seed(make: Callable[[int], VecEnv]) -> None:
    """Two environments make a group, round by round."""
    still = {"n_epochs": 1, "learning_rate": 0.0, "seed": 0}
    agent = POAD("LLMPolicy", make(4), n_episodes=2, group_size=2, batch_size=8, **still).learn(1)
    prompts: dict[int, list[Any]] = {}
    starts: set[tuple[int, int]] = set()
    for action in agent.rollout_buffer.sampled_actions():
        position, env = action.step, action.env
        if position == 0 or agent.rollout_buffer.episode_ends[position - 1].all():
            assert (position, env) not in starts
            starts.add((position, env))
            prompts.setdefault(len(starts), []).append(action.path.prompt)
    first = [prompt for (prompt,) in prompts.values()]
    assert len(first) == 8
    assert [a == b for a, b in zip(first[::2], first[1::2], strict=True)] == [True] * 4
    assert len(set(first)) > 1


class Unseeded(UnevenLamp):
    """A third party's lamp, whose reset takes no notice of the seed."""

    number = 0

    def _restart(self, options: Mapping[str, Any]) -> None:
        Unseeded.number += 1
        self.colour, self.left = ("red", "green", "blue")[self.number % 3], 1


@pytest.mark.parametrize("n_envs", [1, 2])
def test_a_group_that_begins_differently_is_warned_about(n_envs: int) -> None:
    agent = GRPO("LLMPolicy", DummyVecEnv([Unseeded] * n_envs), n_steps=1, group_size=2, learning_rate=1e-3)
    with pytest.warns(RuntimeWarning, match="Expected the 2 episodes of a group to begin alike"):
        agent.learn(1)


def test_without_groups_environments_wait_at_the_end_of_a_rollout_only() -> None:
    agent = ReBN("LLMPolicy", DummyVecEnv([UnevenLamp] * 3), n_steps=12, learning_rate=1e-4, seed=0).learn(1)
    buffer = agent.rollout_buffer
    assert buffer.counted[:12].all()
    assert not buffer.counted[12:].all()
    for env in range(3):
        (steps,) = np.nonzero(buffer.counted[:, env])
        assert steps.tolist() == list(range(len(steps)))
        assert buffer.episode_ends[steps[-1], env]
        assert not buffer.episode_ends[11 : steps[-1], env].any()
    assert len({int(buffer.counted[:, env].sum()) for env in range(3)}) > 1


def test_the_longest_rollout_follows_from_the_limits_of_episodes() -> None:
    """A rollout without a critic goes on to the end of an episode and of a group."""
    assert agent_of(DummyVecEnv([LampEnv])).max_rollout_steps() is None
    assert POAD("LLMPolicy", "VirtualHome-FoodPreparation-v0", n_episodes=2).max_rollout_steps() == 2 * 50
    wine = {"action_sampling": "free", "policy_kwargs": {"model": "pocket"}}
    code = gym.make("DataSciCoding-wine-v0", max_attempts=4)
    assert GRPO("LLMPolicy", code, n_steps=8, group_size=2, **wine).max_rollout_steps() == 8 + 2 * 4
    lamp = gym.make("KeyToken-v0", max_episode_steps=7)
    assert GRPO("LLMPolicy", lamp, n_steps=16, group_size=3).max_rollout_steps() == 16 + 3 * 7
    lamps = DummyVecEnv([partial(gym.make, "KeyToken-v0")] * 2)
    # Two environments make whole groups of three in three rounds.
    assert GRPO("LLMPolicy", lamps, n_steps=16, group_size=3).max_rollout_steps() == 16 + 3 * 50
