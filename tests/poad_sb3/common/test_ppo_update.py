from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv
from toy import (
    ONE_STEP,
    Collector,
    EndsAtItsLimit,
    assert_same_gradient,
    make_agent,
    randomise,
    run_update,
)

from poad_sb3 import POAD, LLMPolicy
from poad_sb3.distributions.base import TokenPath
from poad_sb3.settings import PPOSettings
from poad_sb3.vec_env.threads import ThreadVecEnv


def rollout(**kwargs: Any) -> POAD:
    """An agent with a full buffer, of actions its adapter had a say in."""
    agent = make_agent(Collector, **kwargs)
    randomise(agent.policy)
    agent.learn(agent.n_steps * agent.n_envs)
    return agent


def gradient(parameters: Any) -> torch.Tensor:
    return torch.cat([parameter.grad.flatten() for parameter in parameters])


# ------------------------------------------------------------------ the gradient, the slow way


def naive_value_loss(policy: LLMPolicy, state: dict[str, Any], settings: PPOSettings) -> torch.Tensor:
    """Every token of every action, forced ones too, its features from a pass of the base model of its own."""
    losses = []
    for path, start in zip(state["paths"], state["offsets"], strict=False):
        ids = torch.tensor([[*path.prompt, *path.action]])
        with torch.no_grad(), policy.lm.network.disable_adapter():
            states = policy.lm.network(input_ids=ids, output_hidden_states=True).hidden_states[-1][0]
        for j in range(len(path.action)):
            before = len(path.prompt) + j - 1
            value = policy.critic(states[before : before + 1])[0]
            target, old = float(state["targets"][start + j]), float(state["old_outputs"][start + j])
            clipped = old + torch.clamp(value - old, -settings.clip_range_vf, settings.clip_range_vf)
            losses.append(torch.max((value - target) ** 2, (clipped - target) ** 2))
    return settings.vf_coef * torch.stack(losses).mean()


@pytest.fixture(scope="module")
def stale() -> POAD:
    """A rollout whose weights have since moved on, so that ratios are not 1 and some are clipped.

    Its learning rates are 0: an update leaves gradients to compare, and the weights as they are.
    """
    agent = rollout(n_envs=2)
    generator = torch.Generator().manual_seed(1)
    policy = agent.policy
    with torch.no_grad():
        for parameters, scale in ((policy.adapter_parameters(), 0.1), (policy.critic.parameters(), 0.02)):
            for parameter in parameters:
                parameter.add_(scale * torch.randn(parameter.shape, generator=generator))
    for optimizer in (policy.optimizer, policy.critic_optimizer):
        optimizer.param_groups[0]["lr"] = 0.0
    return agent


def test_the_critic_is_trained_on_every_token(stale: POAD) -> None:
    policy, state = stale.policy, stale.rollout_buffer.get_state()
    assert not state["is_decision"].all()
    loss = naive_value_loss(policy, state, ONE_STEP)
    expected = torch.autograd.grad(loss, list(policy.critic.parameters()))
    logged = run_update(stale)
    assert logged["value_loss"] * ONE_STEP.vf_coef == pytest.approx(loss.item(), rel=1e-5)
    assert_same_gradient(gradient(policy.critic.parameters()), torch.cat([part.flatten() for part in expected]))


# ------------------------------------------------------------------ the KL bound


def steps_taken(optimizer: torch.optim.Optimizer) -> set[int]:
    return {int(state["step"]) for state in optimizer.state.values()}


@pytest.mark.parametrize(("target_kl", "steps"), [(1e-7, 1), (None, 3)])
def test_the_kl_bound_ends_the_epochs_of_the_policy_and_not_of_the_critic(target_kl: float | None, steps: int) -> None:
    agent = rollout()
    logged = run_update(agent, replace(ONE_STEP, n_epochs=3, n_critic_epochs=2, target_kl=target_kl))
    assert steps_taken(agent.policy.optimizer) == {steps}
    assert steps_taken(agent.policy.critic_optimizer) == {2}
    assert logged["early_stop"] == (target_kl is not None)


def test_one_minibatch_beyond_the_bound_ends_all_later_ones_too() -> None:
    agent = rollout()
    state = agent.rollout_buffer.get_state()
    state["old_log_prob"][state["offsets"][7] : state["offsets"][8]] -= 20.0
    agent.rollout_buffer.set_state(state)
    agent.policy.optimizer.param_groups[0]["lr"] = 0.0  # the others stay at a divergence of 0
    logged = run_update(agent, replace(ONE_STEP, n_epochs=2, batch_size=1, target_kl=0.02))
    assert logged["early_stop"] == 1
    assert max(steps_taken(agent.policy.optimizer), default=0) < len(state["paths"])


# ------------------------------------------------------------------ the buffer


def test_minibatches_hold_every_action_once_with_its_own_tokens() -> None:
    buffer = rollout(n_envs=3, n_steps=6, env={"truncates": True}).rollout_buffer
    state = buffer.get_state()
    state["targets"][:] = np.arange(len(state["targets"]))  # a name for each token
    buffer.set_state(state)
    expected = {
        tuple(state["targets"][start:end]): (path, tuple(state["old_log_prob"][start:end]))
        for path, start, end in zip(state["paths"], state["offsets"][:-1], state["offsets"][1:], strict=True)
    }
    read, sizes = {}, []
    for batch in buffer.get(4, np.random.default_rng(0)):
        sizes.append(len(batch.paths))
        ends = np.cumsum([len(path.action) for path in batch.paths])
        assert len(batch.targets) == len(batch.feature_of) == ends[-1]
        for path, end in zip(batch.paths, ends, strict=True):
            span = slice(end - len(path.action), end)
            read[tuple(batch.targets[span].numpy())] = (path, tuple(batch.old_log_prob[span].numpy()))
    assert sizes == [4, 4, 4, 4, 2]
    assert read == expected


@pytest.mark.parametrize(("truncates", "n_envs"), [(True, 1), (True, 2), (False, 2)])
def test_a_time_limit_bootstraps_from_the_observation_it_cut_off(truncates: bool, n_envs: int) -> None:
    """Not from that of the next episode; and after the end of a task there is no bootstrap."""
    agent = rollout(n_envs=n_envs, env={"truncates": truncates}, gae_lambda=1.0, gamma=0.9, gamma_token=0.7)
    buffer, policy = agent.rollout_buffer, agent.policy
    state, lm = buffer.get_state(), policy.lm
    assert buffer.episode_ends.sum() == n_envs * 5
    assert set(buffer.final_prompts) == (
        set(zip(*np.nonzero(buffer.episode_ends), strict=True)) if truncates else set()
    )
    last_tokens = state["targets"][state["offsets"][1:] - 1].reshape(16, n_envs)
    for step in zip(*np.nonzero(buffer.episode_ends), strict=True):
        following = 0.0
        if truncates:
            prompt = buffer.final_prompts[step]
            assert "You have 0 moves left." in lm.tokenizer.decode(prompt)
            following = float(policy.token_values([TokenPath(prompt, (0,), ())]).values[0][0])
            assert abs(following) > 1e-4
        assert last_tokens[step] == pytest.approx(buffer.rewards[step] + 0.9 * following, abs=1e-5)


@pytest.mark.parametrize("kind", [DummyVecEnv, ThreadVecEnv])
def test_after_the_end_of_a_task_at_its_time_limit_the_value_is_0(kind: type[VecEnv]) -> None:
    settings = {"n_steps": 6, "gae_lambda": 1.0, "gamma": 0.9, "policy_kwargs": {"critic_arch": (8,)}}
    agent = Collector("LLMPolicy", kind([EndsAtItsLimit]), seed=0, **settings)
    randomise(agent.policy)
    agent.learn(6)
    buffer, state = agent.rollout_buffer, agent.rollout_buffer.get_state()
    ends = buffer.episode_ends[:, 0]
    assert ends.sum() == 2
    assert not buffer.final_prompts
    np.testing.assert_allclose(state["targets"][state["offsets"][1:] - 1][ends], buffer.rewards[ends, 0], atol=1e-6)
