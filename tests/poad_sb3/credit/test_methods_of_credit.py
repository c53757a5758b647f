"""The methods without a critic, ratios of other units, and rollouts of whole episodes in groups."""

from __future__ import annotations

import itertools
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from toy import (
    METHODS,
    ONE_STEP,
    LampEnv,
    SaveAt,
    TableEnv,
    adapter_gradient,
    assert_same_gradient,
    collect,
    everything,
    gradient_by_autograd,
    hold_still,
    make_method,
    randomise,
    run_update,
)

from poad_sb3 import GRPO, POAD
from poad_sb3.common.buffers import TokenRolloutBuffer
from poad_sb3.common.on_policy_algorithm import LLMOnPolicyAlgorithm
from poad_sb3.settings.ppo import Ratio, Reduction

# ------------------------------------------------------------------ no critic


@pytest.mark.parametrize("name", ["GRPO", "RLOO, free", "ReBN"])
def test_no_critic_is_made_or_saved(tmp_path: Path, name: str) -> None:
    agent = make_method(name).learn(16)
    assert agent.policy.critic is None
    assert agent.policy.critic_optimizer is None
    assert not [key for key in agent.policy.state_dict() if "critic" in key]
    flat = agent.rollout_buffer.all_samples()
    assert not flat.has_target.any()
    assert flat.features.numel() == 0
    logged = agent.logger.name_to_value
    assert not [key for key in logged if key.startswith("train/") and ("value" in key or "critic" in key)]
    agent.save(tmp_path / "model.zip")
    loaded = type(agent).load(tmp_path / "model.zip", LampEnv())
    weights, expected = loaded.policy.state_dict(), agent.policy.state_dict()
    assert all(torch.equal(weights[key], expected[key]) for key in expected)
    observation = loaded.env.reset()
    actions, values, log_probs = loaded.policy(observation)
    assert (len(actions), values.tolist()) == (1, [0.0])
    assert torch.isfinite(log_probs).all()


@pytest.mark.parametrize("name", ["GiGPO", "TurnPPO, free", pytest.param("ReBN", marks=pytest.mark.matrix)])
def test_training_resumes_exactly_from_the_middle_of_a_rollout(tmp_path: Path, name: str) -> None:
    path, kind = tmp_path / "mid.zip", METHODS[name][0]
    settings: dict[str, Any] = {"n_steps": 8, "batch_size": 3, "env": {"truncates": True}}
    straight = make_method(name, **settings)
    randomise(straight.policy)
    straight.learn(20, callback=SaveAt(3, path))
    resumed = kind.load(path, LampEnv(truncates=True))
    assert 3 < resumed.num_timesteps < straight.num_timesteps
    resumed.learn(20 - resumed.num_timesteps, reset_num_timesteps=False)
    assert everything(resumed) == everything(straight)


@pytest.mark.parametrize("name", ["GRPO", "TurnPPO"])
def test_a_rollout_without_features_has_no_divergence_from_the_base(tmp_path: Path, name: str) -> None:
    path, kind = tmp_path / "plain.zip", METHODS[name][0]
    make_method(name).learn(16, callback=SaveAt(3, path))
    with pytest.raises(ValueError, match="Expected a rollout with the features of all tokens, for kl_coef"):
        kind.load(path, LampEnv(), kl_coef=0.1)


# ------------------------------------------------------------------ advantages of a rollout


def episodes_of(buffer: TokenRolloutBuffer) -> list[list[tuple[int, int]]]:
    """Places of the steps of each episode, in the order in which the episodes were begun."""
    rounds: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for env in range(buffer.n_envs):
        number = 0
        for step in range(buffer.pos):
            if buffer.counted[step, env]:
                rounds.setdefault((number, env), []).append((step, env))
                number += bool(buffer.episode_ends[step, env])
    return [steps for _, steps in sorted(rounds.items())]


def advantages_by_action(agent: LLMOnPolicyAlgorithm) -> dict[tuple[int, int], list[float]]:
    return {(action.step, action.env): action.advantages.tolist() for action in agent.rollout_buffer.sampled_actions()}


@pytest.mark.parametrize("n_envs", [1, 3])
@pytest.mark.parametrize("name", ["GRPO", "RLOO", "DrGRPO, candidates"])
def test_every_token_of_an_episode_gets_its_advantage_in_the_group(name: str, n_envs: int) -> None:
    """Groups are episodes in a row, over environments and rounds; their first prompts are the same."""
    agent, _ = collect(name, n_envs=n_envs, n_steps=24, group_size=2, lamp=TableEnv)
    buffer, advantages = agent.rollout_buffer, advantages_by_action(agent)
    episodes = episodes_of(buffer)
    assert len(episodes) % 2 == 0
    assert buffer.pos >= 24
    prompts = {(action.step, action.env): action.path.prompt for action in buffer.sampled_actions()}
    differing = 0
    for pair in zip(episodes[::2], episodes[1::2], strict=True):
        assert len({prompts[steps[0]] for steps in pair}) == 1
        returns = [sum(buffer.rewards[step] for step in steps) for steps in pair]
        for steps, total, other in zip(pair, returns, returns[::-1], strict=True):
            expected = {"RLOO": total - other, "GRPO": 0.0}.get(name, (total - other) / 2)
            if name == "GRPO" and total != other:
                expected = (total - statistics.mean(returns)) / (statistics.stdev(returns) + 1e-6)
            differing += total != other
            for step in steps:
                assert advantages[step] == pytest.approx([expected] * len(advantages[step]), abs=1e-5)
    assert differing


@pytest.mark.parametrize("key", [None, len], ids=["text", "state_key"])
def test_gigpo_adds_the_advantage_among_visits_to_a_state(key: Any) -> None:
    agent, questions = collect("GiGPO", n_envs=4, n_steps=6, gamma=0.9, omega=0.5, state_key=key)
    buffer, advantages = agent.rollout_buffer, advantages_by_action(agent)
    episodes = episodes_of(buffer)
    texts = dict(
        zip(itertools.product(range(buffer.pos), range(4)), [question.text for question in questions], strict=False)
    )
    cells: dict[Any, list[float]] = {}
    returns: dict[tuple[int, int], float] = {}
    for number, steps in enumerate(episodes):
        following = 0.0
        for step in reversed(steps):
            returns[step] = following = float(buffer.rewards[step]) + 0.9 * following
            state = texts[step] if key is None else key(texts[step])
            cells.setdefault((number // 4, state), []).append(following)
    shared = 0
    for group in range(len(episodes) // 4):
        members = episodes[4 * group : 4 * group + 4]
        totals = [sum(float(buffer.rewards[step]) for step in steps) for steps in members]
        for steps, total in zip(members, totals, strict=True):
            for step in steps:
                state = texts[step] if key is None else key(texts[step])
                cell = cells[group, state]
                shared += len(cell) > 1
                expected = total - statistics.mean(totals) + 0.5 * (returns[step] - statistics.mean(cell))
                assert advantages[step] == pytest.approx([expected] * len(advantages[step]), abs=1e-5)
    assert shared


class SometimesCut(LampEnv):
    """Every other episode runs into a time limit."""

    def _restart(self, options: Any) -> None:
        super()._restart(options)
        self.truncates = bool(self.np_random.integers(2))


@pytest.mark.parametrize("ratio", ["token", "sequence_product"])
def test_the_update_goes_on_without_the_truncated_episodes(ratio: str) -> None:
    """Its gradient is that of a loss with the advantages of these episodes set to 0."""
    gradients = []
    for dropped in (True, False):
        agent, _ = collect("ReBN", n_envs=2, lamp=SometimesCut, drop_truncated=dropped)
        assert 0 < agent.rollout_buffer.truncated_share < 1
        flat = agent.rollout_buffer.all_samples()
        if dropped:
            lengths = torch.tensor([len(path.action) for path in flat.paths])
            of_action = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
            cut = torch.tensor([not path.decisions for path in flat.paths])[of_action]
            assert not flat.is_decision[cut].any()
        else:
            flat.advantages[cut] = 0.0
        hold_still(agent)
        settings = replace(ONE_STEP, ratio=ratio, loss_reduction="constant", batch_size=64, ent_coef=0.0)
        log = run_update(agent, replace(settings, normalize_advantage=False))
        assert log["first_ratio_error"] < 1e-4
        gradients.append(adapter_gradient(agent.policy))
    assert_same_gradient(*gradients)


# ------------------------------------------------------------------ ratios and reductions, the slow way


def slow_loss(agent: LLMOnPolicyAlgorithm, ratio: Ratio, reduction: Reduction, batch_size: int) -> torch.Tensor:
    """The policy loss of a whole rollout, unit by unit; log-probabilities come in one piece."""
    state = agent.rollout_buffer.get_state()
    (part,) = agent.policy.evaluate_actions(state["paths"])
    order = torch.argsort(part.units)
    new, entropy = part.log_prob[order], part.entropy[order]
    units: dict[Any, dict[str, Any]] = {}
    decision = 0
    for number, (path, start) in enumerate(zip(state["paths"], state["offsets"], strict=False)):
        for token in range(len(path.action)):
            episode = int(state["episodes"][number])
            chosen = bool(state["is_decision"][start + token])
            name: Any = (number, token)
            if ratio.of_actions:
                name = number
            if ratio.of_episodes:
                name = ("episode", episode)
            unit = units.setdefault(name, {"new": [], "old": 0.0, "advantages": [], "n": 0, "episode": episode})
            unit["n"] += 1
            unit["advantages"].append(float(state["advantages"][start + token]))
            if chosen:
                unit["new"].append(new[decision])
                unit["old"] += float(state["old_log_prob"][start + token])
                decision += 1
    real = [unit for unit in units.values() if unit["new"]]
    losses: list[torch.Tensor] = []
    for unit in real:
        log_ratio = torch.stack(unit["new"]).sum() - unit["old"]
        rho = torch.exp(log_ratio / unit["n"] if ratio.is_mean else log_ratio)
        advantage = statistics.mean(unit["advantages"])
        losses.append(-torch.min(rho * advantage, rho.clamp(0.8, 1.2) * advantage))
    if reduction == Reduction.CONSTANT:
        loss = torch.stack(losses).sum() / batch_size
        bonus = entropy.sum() / batch_size
    elif reduction == Reduction.MEAN:
        loss, bonus = torch.stack(losses).mean(), entropy.mean()
        if ratio.of_actions:
            bonus = entropy.sum() / len(real)
    else:
        episodes = {unit["episode"] for unit in real}
        means = [
            torch.stack([loss for loss, unit in zip(losses, real, strict=True) if unit["episode"] == episode]).mean()
            for episode in episodes
        ]
        loss, bonus = torch.stack(means).mean(), torch.zeros(())
    return loss - (0.0 if reduction == Reduction.SEQUENCE_MEAN else ONE_STEP.ent_coef) * bonus


@pytest.mark.parametrize(
    ("ratio", "reduction"),
    [
        (Ratio.TOKEN, Reduction.SEQUENCE_MEAN),
        (Ratio.ACTION, Reduction.MEAN),
        (Ratio.SEQUENCE, Reduction.CONSTANT),
        *(pytest.param(ratio, Reduction.MEAN, marks=pytest.mark.matrix) for ratio in Ratio),
    ],
)
def test_the_gradient_is_that_of_the_slow_loss(ratio: Ratio, reduction: Reduction) -> None:
    """With several chunks too: the ratio of an episode is that of all its chunks."""
    agent, _ = collect("ReBN", n_envs=2, n_steps=8, lamp=TableEnv, env={"forced": ["green"]})
    hold_still(agent, move_by=0.05)
    n_actions = len(agent.rollout_buffer.all_samples().paths)
    settings = replace(
        ONE_STEP,
        ratio=ratio,
        loss_reduction=reduction,
        batch_size=n_actions,
        normalize_advantage=False,
        ent_coef=0.0 if reduction == Reduction.SEQUENCE_MEAN else ONE_STEP.ent_coef,
    )
    loss = slow_loss(agent, ratio, reduction, n_actions)
    expected = gradient_by_autograd(agent.policy, loss)
    logged = run_update(agent, settings)
    assert_same_gradient(adapter_gradient(agent.policy), expected)
    agent.policy.lm.max_tokens_per_forward = 1
    apart = run_update(agent, settings)
    assert_same_gradient(adapter_gradient(agent.policy), expected)
    assert apart == pytest.approx(logged, rel=1e-3, abs=1e-4)


def test_minibatches_of_whole_episodes_hold_each_action_once() -> None:
    agent, _ = collect("GRPO", n_envs=2, n_steps=12)
    buffer = agent.rollout_buffer
    flat = buffer.all_samples()
    read: list[int] = []
    for batch in buffer.get(5, np.random.default_rng(0), whole_episodes=True):
        episodes = batch.episodes.tolist()
        for episode in set(episodes):
            assert episodes.count(episode) == flat.episodes.tolist().count(episode)
        read += episodes
        assert len(batch.paths) == len(episodes)
    assert sorted(read) == sorted(flat.episodes.tolist())


# ------------------------------------------------------------------ free text, and refusals


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        (GRPO, {"group_size": 1}, "Expected group_size of at least 2 with baseline='group'; got 1"),
        (GRPO, {"baseline": "state"}, "Expected the baseline of estimator='episode_return' to be one of"),
        (
            GRPO,
            {"n_episodes": 3, "group_size": 2},
            "Expected n_episodes of each of 1 environments to make whole groups",
        ),
        (GRPO, {"ratio": "action", "cispo_cap": 5.0}, "Expected cispo_cap with ratio='token'"),
        (POAD, {"dual_clip": 0.5}, "Expected dual_clip to be None or above 1"),
    ],
)
def test_settings_that_do_not_fit_are_refused(kind: Any, change: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        kind("LLMPolicy", LampEnv(), policy_kwargs={"critic_arch": (8,)}, **change)
