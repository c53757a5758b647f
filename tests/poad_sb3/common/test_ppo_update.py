from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
import torch
from toy import (
    COLOURS,
    ONE_STEP,
    Collector,
    assert_same_gradient,
    make_agent,
    moved,
    randomise,
    run_update,
    weights_of,
)

from poad_sb3 import POAD, LLMPolicy
from poad_sb3.common.buffers import TokenRolloutBuffer
from poad_sb3.common.rollout_types import TokenValues
from poad_sb3.credit.estimators import GAE
from poad_sb3.distributions.base import SampledAction, TokenPath
from poad_sb3.settings import PPOSettings


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


# ------------------------------------------------------------------ on policy


def test_both_adapter_matrices_and_the_critic_move_and_nothing_frozen() -> None:
    """B is 0 at first, so A has a gradient from the second update on."""
    agent = make_agent(Collector)
    before = weights_of(agent.policy)
    for _ in range(2):
        agent.learn(16, reset_num_timesteps=False)
        run_update(agent)
    trainable = {name for name, parameter in agent.policy.named_parameters() if parameter.requires_grad}
    assert {name for name in trainable if "lora_A" in name}
    assert {name for name in trainable if "lora_B" in name}
    assert moved(agent.policy, before) == trainable


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


# ------------------------------------------------------------------ edge cases of a minibatch


def test_without_decisions_only_the_critic_learns() -> None:
    agent = rollout(env={"forced": COLOURS})
    before = weights_of(agent.policy)
    logged = run_update(agent, replace(ONE_STEP, n_epochs=2, batch_size=4, target_kl=0.02))
    assert steps_taken(agent.policy.optimizer) == set()
    assert moved(agent.policy, before) == {name for name in before if name.startswith("critic.")}
    assert np.isfinite(list(logged.values())).all()
    assert logged["early_stop"] == 0


def test_single_actions_as_minibatches() -> None:
    """Some hold no decision, and some a single one, whose advantage has no deviation."""
    agent = rollout(env={"forced": ["green"]})
    counts = {len(path.decisions) for path in agent.rollout_buffer.get_state()["paths"]}
    assert {0, 1} <= counts
    before = weights_of(agent.policy)
    logged = run_update(agent, replace(ONE_STEP, batch_size=1))
    assert np.isfinite(list(logged.values())).all()
    assert all(torch.isfinite(tensor).all() for tensor in weights_of(agent.policy).values())
    assert any("lora_B" in name for name in moved(agent.policy, before))


def test_advantages_that_are_all_zero_are_no_error() -> None:
    agent = rollout()
    state = agent.rollout_buffer.get_state()
    state["advantages"][:] = 0.0
    agent.rollout_buffer.set_state(state)
    before = weights_of(agent.policy)
    logged = run_update(agent, replace(ONE_STEP, ent_coef=0.0))
    assert logged["policy_gradient_loss"] == logged["policy_grad_norm"] == 0
    assert not {name for name in moved(agent.policy, before) if "lora" in name}


# ------------------------------------------------------------------ the buffer


def hand_made_steps(rng: np.random.Generator, *, n_envs: int, tokens: int) -> list[SampledAction]:
    steps = []
    for _ in range(n_envs):
        n = int(rng.integers(1, tokens + 1))
        path = TokenPath((1, int(rng.integers(9))), tuple(rng.integers(9, size=n).tolist()), ())
        steps.append(SampledAction("", path, rng.normal(size=n).astype(np.float32)))
    return steps


def table_of_values(paths: list[TokenPath], n_values: list[int], *, all_features: bool) -> TokenValues:
    """Some value for every prefix: a function of its tokens alone."""
    values = [
        np.array([np.random.default_rng([*path.prompt, 99, *path.action[:j]]).normal() for j in range(n)], np.float32)
        for path, n in zip(paths, n_values, strict=True)
    ]
    starts = np.cumsum([0, *n_values[:-1]])
    is_state = torch.zeros(sum(n_values), dtype=torch.bool)
    is_state[starts] = True
    outputs = torch.from_numpy(np.concatenate(values))
    return TokenValues(torch.zeros(len(outputs), 2), is_state, outputs, starts, values)


def fill(buffer: TokenRolloutBuffer, seed: int, *, tokens: int, cut: bool) -> None:
    rng = np.random.default_rng(seed)
    buffer.reset()
    for _ in range(buffer.buffer_size):
        steps = hand_made_steps(rng, n_envs=buffer.n_envs, tokens=tokens)
        ends = rng.random(buffer.n_envs) < 0.4
        finals = {int(env): (2, 3) for env in np.flatnonzero(ends)} if cut else {}
        buffer.add(steps, rng.normal(size=buffer.n_envs), ends, finals)
    buffer.compute_returns_and_advantage(table_of_values, [(7,)] * buffer.n_envs)


def make_buffer() -> TokenRolloutBuffer:
    space = cast(Any, None)
    return TokenRolloutBuffer(6, space, space, n_envs=3, estimator=GAE(0.9, 0.95, gae_lambda_token=0.5))


def test_nothing_of_an_earlier_rollout_is_left() -> None:
    used, fresh = make_buffer(), make_buffer()
    fill(used, seed=0, tokens=9, cut=True)
    fill(used, seed=1, tokens=3, cut=False)
    fill(fresh, seed=1, tokens=3, cut=False)
    state, expected = used.get_state(), fresh.get_state()
    assert state["paths"] == expected["paths"]
    for name in set(state) - {"paths"}:
        np.testing.assert_array_equal(state[name], expected[name])


def test_minibatches_hold_every_action_once_with_its_own_tokens() -> None:
    buffer = make_buffer()
    fill(buffer, seed=2, tokens=5, cut=True)
    state = buffer.get_state()
    # Rewards and values are continuous random numbers: a token's return names it.
    expected = {
        tuple(state["targets"][start:end]): (path, tuple(state["old_log_prob"][start:end]))
        for path, start, end in zip(state["paths"], state["offsets"][:-1], state["offsets"][1:], strict=True)
    }
    seen = {}
    sizes = []
    for batch in buffer.get(4, np.random.default_rng(0)):
        sizes.append(len(batch.paths))
        ends = np.cumsum([len(path.action) for path in batch.paths])
        assert len(batch.targets) == len(batch.feature_of) == ends[-1]
        for path, end in zip(batch.paths, ends, strict=True):
            span = slice(end - len(path.action), end)
            seen[tuple(batch.targets[span].numpy())] = (path, tuple(batch.old_log_prob[span].numpy()))
    assert sizes == [4, 4, 4, 4, 2]
    assert seen == expected


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
