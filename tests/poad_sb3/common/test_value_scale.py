"""Values in units of the returns: statistics, renewal, loss, and persistence."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from toy import ONE_STEP, collect, hold_still, run_update

from poad_sb3.common.critics import TokenCritic
from poad_sb3.language_model.value_network import ReturnScale

BATCHES = [(40, 5.0, 3.0), (7, -20.0, 0.1), (1, 3.0, 0.0), (300, 100.0, 50.0)]
"""Sizes, means and deviations of returns."""


def returns_of(seed: int, size: int, mean: float, deviation: float) -> torch.Tensor:
    return mean + deviation * torch.randn(size, generator=torch.Generator().manual_seed(seed))


def test_statistics_are_those_of_all_returns() -> None:
    scale, all_returns = ReturnScale(), np.empty(0)
    for seed, batch in enumerate(BATCHES):
        returns = returns_of(seed, *batch)
        scale.renew(returns)
        all_returns = np.append(all_returns, returns.numpy())
        assert float(scale.count) == len(all_returns)
        assert float(scale.mean) == pytest.approx(all_returns.mean(), rel=1e-4)
        assert float(scale.deviation) == pytest.approx(all_returns.std(), rel=1e-4)


def test_a_renewal_changes_no_value() -> None:
    critic, features = TokenCritic(12, (16, 8)), torch.randn(50, 12, generator=torch.Generator().manual_seed(0))
    critic.observe_features(features)
    for parameter in critic.parameters():
        torch.nn.init.normal_(parameter, std=0.3, generator=torch.Generator().manual_seed(1))
    before = critic(features).detach()
    assert before.std() > 0.05
    for seed, batch in enumerate(BATCHES):
        weights = critic.mlp[-2].weight.clone()
        critic.observe_returns(returns_of(seed, *batch))
        assert not torch.equal(critic.mlp[-2].weight, weights)
        torch.testing.assert_close(critic(features).detach(), before, rtol=1e-4, atol=1e-5)


def test_returns_without_spread_do_no_harm() -> None:
    critic = TokenCritic(12, (16, 8))
    for returns in (torch.zeros(5), torch.zeros(1), torch.full((3,), 0.0)):
        critic.observe_returns(returns)
    assert 0 < float(critic.scale.deviation) <= 1e-3
    assert torch.isfinite(critic(torch.ones(4, 12))).all()


@pytest.mark.parametrize("name", ["POAD", "TWOSOME", "POAD, free"])
def test_the_value_loss_is_in_units_of_the_returns(name: str) -> None:
    """Error and clip range are divided by their deviation; the critic's gradient is that of this loss."""
    agent, _ = collect(name, n_steps=12, normalize_value=True)
    hold_still(agent)
    critic, state = agent.policy.critic, agent.rollout_buffer.get_state()
    critic.scale.count.fill_(1e-6)  # as if returns had been seen: the first renewal would turn clipping off
    # The values at sampling are of a while ago, so that some changes are clipped.
    valued = state["has_target"]
    state["old_outputs"] = state["old_outputs"] + np.linspace(-0.4, 0.4, len(valued), dtype=np.float32)
    agent.rollout_buffer.set_state(state)
    logged = run_update(agent)
    deviation = state["targets"][valued].std()
    values = critic(torch.from_numpy(state["features"]))[torch.from_numpy(state["feature_of"][valued])]
    old, returns = (torch.from_numpy(state[key][valued]) for key in ("old_outputs", "targets"))
    clipped = old / deviation + ((values - old) / deviation).clamp(-0.2, 0.2)
    losses = torch.stack([((values - returns) / deviation) ** 2, (clipped - returns / deviation) ** 2])
    loss = losses.max(0).values.mean()
    assert 0 < losses.max(0).indices.float().mean() < 1
    ours = torch.cat([parameter.grad.flatten().clone() for parameter in critic.parameters()])
    parts = torch.autograd.grad(ONE_STEP.vf_coef * loss, list(critic.parameters()))
    expected = torch.cat([part.flatten() for part in parts])
    assert logged["value_loss"] == pytest.approx(loss.item(), rel=1e-4)
    assert (ours - expected).norm() < 1e-4 * expected.norm()
