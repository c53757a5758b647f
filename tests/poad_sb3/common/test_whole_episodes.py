"""Rollouts of whole episodes: counted steps, their credit, and the seeds that episodes begin with."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv
from toy import LampEnv

from poad_sb3 import GRPO, POAD, ReBN
from poad_sb3.common import on_policy_algorithm
from poad_sb3.common.token_table import GenerationTableCallback
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
        prompts = [agent.policy.lm.tokenizer.decode(one.path.prompt) for one in actions if one.env == env]
        starts = np.cumsum([0, *lengths[:-1]])
        assert all(f"have {n} moves" in prompts[start] for start, n in zip(starts, lengths, strict=True))


@pytest.mark.filterwarnings("ignore:.*learning_rate")
def test_an_episode_has_the_credit_that_it_has_alone() -> None:
    agent = agent_of(DummyVecEnv([UnevenLamp] * 2), gamma=0.9, gae_lambda=0.8, normalize_advantage=False).learn(1)
    buffer = agent.rollout_buffer
    for env in range(2):
        following = (0.0, 0.0)
        for action in reversed([one for one in buffer.sampled_actions() if one.env == env]):
            ends = buffer.episode_ends[action.position, env]
            value, advantage = (0.0, 0.0) if ends else following
            # Inside an action discount and lambda are 1: every token has the return of the action, less its own value.
            delta = action.reward + 0.9 * value - action.values[-1]
            last = delta + 0.9 * 0.8 * advantage
            np.testing.assert_allclose(action.advantages[-1], last, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(action.advantages, last + action.values[-1] - action.values, atol=1e-4)
            following = (float(action.values[0]), float(action.advantages[0]))


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
    known: set[tuple[int, int]] = set()
    for one in agent.rollout_buffer.sampled_actions():
        position, env = one.position, one.env
        if position == 0 or agent.rollout_buffer.episode_ends[position - 1].all():
            assert (position, env) not in known
            known.add((position, env))
            prompts.setdefault(len(known), []).append(one.path.prompt)
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


def test_training_on_episodes_resumes_exactly(tmp_path: Any) -> None:
    def made() -> POAD:
        return agent_of(DummyVecEnv([UnevenLamp] * 2), learning_rate=1e-3, critic_learning_rate=1e-3)

    whole, first = made(), made()
    whole.learn(1)
    whole.learn(1, reset_num_timesteps=False)
    first.learn(1)
    first.save(tmp_path / "first")
    resumed = POAD.load(tmp_path / "first", DummyVecEnv([UnevenLamp] * 2))
    assert resumed.n_episodes == 2
    resumed.learn(1, reset_num_timesteps=False)
    for ours, theirs in zip(resumed.policy.state_dict().values(), whole.policy.state_dict().values(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "2"])
def test_a_wrong_number_of_episodes_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="n_episodes"):
        agent_of(DummyVecEnv([LampEnv]), n_episodes=wrong)


def test_the_start_that_the_seed_gives_is_played() -> None:
    agent = agent_of(dummy(2), n_episodes=1, seed=3).learn(1)
    env = dummy(2)
    env.seed(3)
    shown = [agent.policy.lm.tokenizer.decode(one.path.prompt) for one in agent.rollout_buffer.sampled_actions()][:2]
    assert all(text in prompt for text, prompt in zip(env.reset(), shown, strict=True))


def test_environments_that_wait_are_asked_for_no_action() -> None:
    agent = agent_of(DummyVecEnv([UnevenLamp] * 3), n_episodes=2)
    asked, act = [], agent.policy.act

    def count(observation: Any, *args: Any, **kwargs: Any) -> Any:
        asked.append(len(observation["text"]))
        return act(observation, *args, **kwargs)

    agent.policy.act = count  # type: ignore[method-assign]
    agent.learn(1)
    assert sum(asked) == agent.rollout_buffer.counted.sum()


def test_the_table_of_generations_counts_the_steps_of_episodes(tmp_path: Any) -> None:
    agent = agent_of(DummyVecEnv([UnevenLamp] * 2), learning_rate=1e-3)
    agent.learn(40, GenerationTableCallback(tmp_path, n_samples=100))
    steps = [json.loads(line)["step"] for line in (tmp_path / "generations.jsonl").read_text().splitlines()]
    assert steps == sorted(steps)
    assert 0 < steps[0] <= steps[-1] == agent.num_timesteps


def test_without_groups_environments_wait_at_the_end_of_a_rollout_only() -> None:
    agent = ReBN("LLMPolicy", DummyVecEnv([UnevenLamp] * 3), n_steps=12, learning_rate=1e-4, seed=0).learn(1)
    buffer = agent.rollout_buffer
    assert buffer.counted[:12].all()
    assert not buffer.counted[12:].all()
    for env in range(3):
        (own,) = np.nonzero(buffer.counted[:, env])
        assert own.tolist() == list(range(len(own)))
        assert buffer.episode_ends[own[-1], env]
        assert not buffer.episode_ends[11 : own[-1], env].any()
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


@pytest.mark.filterwarnings("ignore:.*learning_rate")
def test_callbacks_see_the_ends_of_counted_episodes_alone() -> None:
    ends = CountEnds()
    agent = agent_of(DummyVecEnv([lambda: Monitor(UnevenLamp())] * 3), n_episodes=2).learn(1, callback=ends)
    assert not agent.rollout_buffer.counted.all(), "no environment waited"
    assert (ends.n_dones, ends.n_episodes) == (6, 6)


@pytest.mark.filterwarnings("ignore:.*learning_rate")
def test_episodes_that_do_not_end_are_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_policy_algorithm, "_LONG_EPISODE", 4)
    with pytest.warns(RuntimeWarning, match=r"Expected episodes that end, which POAD learns from; .*TimeLimit"):
        agent_of(DummyVecEnv([partial(LampEnv, moves=6)]), n_episodes=1).learn(1)
    agent_of(DummyVecEnv([partial(LampEnv, moves=4)]), n_episodes=3).learn(1)  # warnings are errors


class CountEnds(BaseCallback):
    """Counts ends of episodes, as `StopTrainingOnMaxEpisodes` does, and episodes of `Monitor`."""

    n_dones, n_episodes = 0, 0

    def _on_step(self) -> bool:
        self.n_dones += int(np.sum(self.locals["dones"]))
        self.n_episodes += sum("episode" in info for info in self.locals["infos"])
        return True
