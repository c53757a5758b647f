"""Credit of tokens and of whole actions: targets against literal sums, policy gradients against brute force."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_advantages import Rollout, random_rollout, sb3_buffer
from toy import (
    METHODS,
    ONE_STEP,
    TableEnv,
    TimedLampEnv,
    adapter_gradient,
    all_log_probs,
    assert_same_gradient,
    children_after,
    collect,
    conditionals,
    gradient_by_autograd,
    hold_still,
    make_method,
    properties,
    run_update,
    whole_log_probs,
)

from poad_sb3 import LLMPolicy, UnsupportedEnvError
from poad_sb3.common.on_policy_algorithm import LLMOnPolicyAlgorithm
from poad_sb3.credit import estimators
from poad_sb3.credit.advantages import next_action_values, next_state_values, token_gae
from poad_sb3.credit.estimators import GAE
from poad_sb3.distributions.base import TokenPath
from poad_sb3.presets import ALGORITHMS
from poad_sb3.prompts import Question

# ------------------------------------------------------------------ the formula, as one sum for each token


def value_after(rollout: Rollout, t: int, env: int, bootstrap: str) -> float:
    """Bootstrap value of the last token of an action."""
    if rollout.ends[t, env]:
        return 0.0 if rollout.terminated[t, env] else float(rollout.final[t, env])
    if t == len(rollout.rewards) - 1:
        return float(rollout.last[env])
    token = 0 if bootstrap == "state" else rollout.lengths[t + 1, env] - 1
    return float(rollout.values[t + 1, env, token])


def literal(
    rollout: Rollout,
    discounts: np.ndarray,
    *,
    bootstrap: str,
    gae_lambda: float,
    gamma_token: float | np.ndarray,
    gae_lambda_token: float | np.ndarray,
    decisions: np.ndarray | None = None,
) -> np.ndarray:
    """Every advantage as the sum of all later temporal differences of its episode, each times its own weight.

    There is a difference from each decision to the next; forced tokens but the first of an action are left out.

    Args:
        rollout: Of NaN padding.
        discounts: Discount after each action, `[steps, envs]`.
        bootstrap: `"state"`, or `"action"` for ARCHER's.
        gae_lambda: Between actions.
        gamma_token: Inside an action, or after each token.
        gae_lambda_token: Inside an action, at decisions, or at each.
        decisions: Whether a token had alternatives; all had if None.
    """
    steps, envs, _ = rollout.values.shape
    advantages = np.zeros_like(rollout.values)
    decided = np.ones(rollout.values.shape, dtype=bool) if decisions is None else decisions
    gammas, lambdas = (np.broadcast_to(inside, advantages.shape) for inside in (gamma_token, gae_lambda_token))
    for env in range(envs):
        tokens = [(t, j) for t in range(steps) for j in range(rollout.lengths[t, env])]
        for number, (t, j) in enumerate(tokens):
            weight = 1.0
            entries = [(k, i) for k, i in tokens[number + 1 :] if decided[k, env, i] or (i == 0 and k > t)]
            for k, i in [(t, j), *entries]:
                value, n = rollout.values[k, env], rollout.lengths[k, env]
                following = next((m for m in range(i + 1, n) if decided[k, env, m]), None)
                if following is not None:
                    passed = gammas[k, env, i:following].prod()
                    advantages[t, env, j] += weight * (passed * value[following] - value[i])
                    weight *= passed * (lambdas[k, env, i] if decided[k, env, i] else 1.0)
                    continue
                passed = gammas[k, env, i : n - 1].prod()
                paid = rollout.rewards[k, env] + discounts[k, env] * value_after(rollout, k, env, bootstrap)
                advantages[t, env, j] += weight * (passed * paid - value[i])
                weight *= passed * discounts[k, env] * gae_lambda
                if rollout.ends[k, env]:
                    break
    return advantages


def shipped(rollout: Rollout, discounts: Any, *, bootstrap: str, **settings: Any) -> np.ndarray:
    final = np.where(rollout.terminated, 0.0, rollout.final)
    if bootstrap == "action":
        following = next_action_values(rollout.values, rollout.lengths, rollout.last, rollout.ends, final)
    else:
        following = next_state_values(rollout.values[..., 0], rollout.last, rollout.ends, final)
    return token_gae(
        rollout.rewards, rollout.values, rollout.lengths, following, rollout.ends, gamma=discounts, **settings
    )


@properties
@given(
    seed=st.integers(0, 2**32 - 1),
    shape=st.tuples(st.integers(1, 8), st.integers(1, 3), st.integers(1, 5)),
    numbers=st.tuples(*[st.floats(0, 1)] * 4),
    bootstrap=st.sampled_from(["state", "action"]),
    share=st.sampled_from([0.0, 0.3, 0.7, 1.0]),
)
def test_credit_is_the_literal_sum(
    seed: int, shape: tuple[int, int, int], numbers: tuple[float, ...], bootstrap: str, share: float
) -> None:
    """Ragged, with one-token actions, both ends of episodes inside, padding of NaN, and a discount for each action."""
    gamma, *others = numbers
    settings = dict(zip(("gae_lambda", "gamma_token", "gae_lambda_token"), others, strict=True))
    rollout = random_rollout(seed, steps=shape[0], envs=shape[1], tokens=shape[2])
    discounts = gamma ** np.random.default_rng(seed).integers(1, 6, rollout.rewards.shape)
    ours = shipped(rollout, discounts, bootstrap=bootstrap, **settings)
    expected = literal(rollout, discounts, bootstrap=bootstrap, **settings)
    np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-11)
    decisions = np.random.default_rng(seed).random(rollout.values.shape) < share
    ours = shipped(rollout, discounts, bootstrap=bootstrap, decisions=decisions, **settings)
    expected = literal(rollout, discounts, bootstrap=bootstrap, decisions=decisions, **settings)
    real = np.isfinite(rollout.values)
    np.testing.assert_allclose(ours[real], expected[real], rtol=0, atol=1e-11)
    constant = shipped(rollout, gamma, bootstrap=bootstrap, **settings)
    everywhere = np.full(rollout.rewards.shape, gamma)
    np.testing.assert_allclose(constant, literal(rollout, everywhere, bootstrap=bootstrap, **settings), atol=1e-11)


@properties
@given(
    seed=st.integers(0, 2**32 - 1),
    numbers=st.tuples(*[st.floats(0, 1)] * 6),
    alpha=st.one_of(st.none(), st.floats(0.1, 3)),
    bootstrap=st.sampled_from(["state", "action"]),
)
def test_thoughts_have_a_discount_and_a_trace_of_their_own(
    seed: int, numbers: tuple[float, ...], alpha: float | None, bootstrap: str
) -> None:
    rng = np.random.default_rng(seed)
    names = ("gamma", "gae_lambda", "gamma_token", "gae_lambda_token", "gamma_thought", "gae_lambda_thought")
    numbers_of = dict(zip(names, numbers, strict=True))
    rollout = random_rollout(seed)
    thoughts = rng.integers(0, rollout.lengths)  # an action has at least one token behind its thought
    estimator = GAE(**numbers_of, gae_alpha_thought=alpha, bootstrap=bootstrap)
    of_thought = np.arange(rollout.values.shape[-1]) < thoughts[..., None]
    trace: Any = numbers_of["gae_lambda_thought"]
    if alpha is not None:
        trace = [[[max(0.0, 1 - 1 / (alpha * max(n, 1)))] for n in row] for row in thoughts]
    expected = literal(
        rollout,
        np.full(rollout.rewards.shape, estimator.gamma),
        bootstrap=bootstrap,
        gae_lambda=estimator.gae_lambda,
        gamma_token=np.where(of_thought, estimator.gamma_thought, estimator.gamma_token),
        gae_lambda_token=np.where(of_thought, trace, estimator.gae_lambda_token),
    )
    final = np.where(rollout.terminated, 0.0, rollout.final)
    counted, numbered = np.ones_like(rollout.ends), np.zeros_like(rollout.lengths)
    record = estimators.Rollout(
        rollout.rewards, rollout.lengths, rollout.ends, counted, rollout.values, rollout.last, final,
        np.ones_like(rollout.rewards), numbered, numbered, None, thoughts,
    )  # fmt: skip
    np.testing.assert_allclose(estimator.advantages(record), expected, rtol=0, atol=1e-11)
    whole = replace(estimator, gamma_token=1.0, gamma_thought=1.0, gae_lambda_token=1.0, gae_lambda_thought=1.0)
    whole = replace(whole, gae_alpha_thought=None, bootstrap="state")
    of_actions = replace(whole, credit_level="action").advantages(record._replace(values=rollout.values[..., :1]))
    np.testing.assert_allclose(whole.advantages(record)[..., 0], of_actions[..., 0], rtol=0, atol=1e-11)
    inside = np.array([
        [
            [
                np.where(of_thought[t, env, j : n - 1], estimator.gamma_thought, estimator.gamma_token).prod()
                for j in range(rollout.values.shape[-1])
            ]
            for env, n in enumerate(row)
        ]
        for t, row in enumerate(rollout.lengths)
    ])  # fmt: skip
    first = rollout.values[..., :1]
    paid = replace(estimator, gamma_token=1.0, gamma_thought=1.0).one_step_advantages(record) + first
    np.testing.assert_allclose(estimator.one_step_advantages(record), inside * paid - first, rtol=0, atol=1e-11)
    one_step = replace(estimator, gae_lambda=0.0).state_returns(record)
    np.testing.assert_allclose(one_step, (inside * paid)[..., 0], rtol=0, atol=1e-11)


# ------------------------------------------------------------------ the buffer of a real rollout


def values_by_itself(policy: LLMPolicy, prompt: Sequence[int], action: Sequence[int]) -> list[float]:
    """V before each action token, read off the whole base model; batch of one."""
    ids = torch.tensor([[*prompt, *action[:-1]]])
    with torch.no_grad(), policy.lm.network.disable_adapter():
        states = policy.lm.network(input_ids=ids, output_hidden_states=True, use_cache=False).hidden_states[-1]
        values: list[float] = policy.critic(states[0, len(prompt) - 1 :]).tolist()
    return values


def state_value(policy: LLMPolicy, prompt: Sequence[int]) -> float:
    """V at the last token of the prompt."""
    return values_by_itself(policy, prompt, (0,))[0]


def as_rollout(agent: LLMOnPolicyAlgorithm) -> Rollout:
    """The content of the buffer of `agent`, with values computed one by one."""
    buffer, policy = agent.rollout_buffer, agent.policy
    shape = buffer.rewards.shape
    paths = [step.path for row in buffer.steps for step in row]
    whole = agent.credit_level == "action"
    lengths = np.array([1 if whole else len(path.action) for path in paths]).reshape(shape)
    values = np.full((*shape, lengths.max()), np.nan)
    for number, path in enumerate(paths):
        t, env = divmod(number, shape[1])
        values[t, env, : lengths[t, env]] = values_by_itself(policy, path.prompt, path.action[: lengths[t, env]])
    final = np.full(shape, np.nan)
    for index, prompt in buffer.final_prompts.items():
        final[index] = state_value(policy, prompt)
    truncated = np.isfinite(final)
    last = np.array([state_value(policy, prompt) for prompt in policy.prompts(agent._last_obs)])
    return Rollout(buffer.rewards, values, lengths, buffer.episode_ends & ~truncated, truncated, final, last)


def flat(rollout: Rollout, padded: np.ndarray) -> np.ndarray:
    return padded[np.arange(padded.shape[-1]) < rollout.lengths[..., None]]


@pytest.mark.parametrize("truncates", [True, False])
def test_credit_of_whole_actions_is_that_of_sb3(truncates: bool) -> None:
    """TWOSOME's buffer against SB3's own, time limits handled as SB3's algorithms do."""
    agent, _ = collect("TWOSOME", n_envs=2, env={"truncates": truncates}, gamma=0.9, gae_lambda=0.8)
    rollout, state = as_rollout(agent), agent.rollout_buffer.get_state()
    assert rollout.ends[:-1].any()
    assert rollout.truncated.any() == truncates
    theirs = sb3_buffer(rollout, gamma=0.9, gae_lambda=0.8)
    valued = state["has_target"]
    np.testing.assert_allclose(state["advantages"][valued], theirs.advantages.ravel(), rtol=0, atol=1e-5)
    np.testing.assert_allclose(state["targets"][valued], theirs.returns.ravel(), rtol=0, atol=1e-5)
    assert np.abs(theirs.advantages).max() > 0.1


def test_the_value_of_a_whole_action_is_read_at_the_last_token_of_its_prompt() -> None:
    """For any neighbours: prompts differ in length, and padding must not be read (defect 1)."""
    agent, questions = collect("TWOSOME", n_envs=2)
    state = agent.rollout_buffer.get_state()
    assert len({len(path.prompt) for path in state["paths"]}) > 1
    alone = [state_value(agent.policy, agent.policy.lm.prompt_ids(question.text)) for question in questions]
    np.testing.assert_allclose(state["old_outputs"][state["has_target"]], alone, rtol=0, atol=1e-4)
    assert np.std(alone) > 1e-3
    for batch in agent.rollout_buffer.get(5, np.random.default_rng(1)):
        again = agent.policy.critic(batch.features)[batch.feature_of[batch.has_target]].detach().numpy()
        expected = [state_value(agent.policy, path.prompt) for path in batch.paths]
        np.testing.assert_allclose(again, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "truncates"), [("POAD", True), ("NTPO", False), ("ARCHER", True), ("POAD, free", False)]
)
def test_token_credit_of_a_rollout_is_the_literal_sum(name: str, truncates: bool) -> None:
    """Also at the end of the rollout in mid-episode; ARCHER bootstraps there from the observation."""
    agent, _ = collect(name, n_steps=8, env={"truncates": truncates}, gamma=0.9, gae_lambda=0.8, gae_lambda_token=0.7)
    rollout, state = as_rollout(agent), agent.rollout_buffer.get_state()
    assert rollout.truncated.any() == truncates
    assert not rollout.ends[-1].any()
    decisions = np.zeros(rollout.values.shape, dtype=bool)
    decisions[np.isfinite(rollout.values)] = state["is_decision"]
    expected = literal(
        rollout,
        np.full(rollout.rewards.shape, 0.9),
        decisions=decisions,
        bootstrap="action" if name.startswith("ARCHER") else "state",
        gae_lambda=0.8,
        gamma_token=1.0 if name.startswith("POAD") else 0.9,
        gae_lambda_token=0.7,
    )
    np.testing.assert_allclose(state["advantages"], flat(rollout, expected), rtol=0, atol=1e-4)
    np.testing.assert_allclose(state["targets"], flat(rollout, expected + rollout.values), rtol=0, atol=1e-4)


# ------------------------------------------------------------------ discounts by duration


@pytest.mark.parametrize("name", ["NTPO", "TWOSOME"])
def test_actions_are_discounted_by_their_durations(name: str) -> None:
    agent, _ = collect(name, n_steps=8, lamp=TimedLampEnv, env={"truncates": True}, gamma=0.9, smdp_discount=True)
    rollout, state = as_rollout(agent), agent.rollout_buffer.get_state()
    durations = np.where(rollout.rewards > 0, 2, 3)
    np.testing.assert_array_equal(agent.rollout_buffer.durations, durations)
    expected = literal(
        rollout,
        0.9**durations,
        bootstrap="state",
        gae_lambda=0.95,
        gamma_token=0.9 if name == "NTPO" else 1.0,
        gae_lambda_token=1.0,
    )
    np.testing.assert_allclose(state["advantages"][state["has_target"]], flat(rollout, expected), rtol=0, atol=1e-4)


def test_missing_durations_are_refused() -> None:
    agent = make_method("TWOSOME", smdp_discount=True)
    with pytest.raises(UnsupportedEnvError, match=r"Expected info\['primitive_steps'\] with smdp_discount; got .*Fix"):
        agent.learn(1)


@pytest.mark.parametrize("seconds", [-5, float("nan")])
def test_impossible_durations_are_refused(seconds: float) -> None:
    """A negative one would discount by more than 1; the message names the error, before any update."""

    class Strange(TimedLampEnv):
        def _family_info(self, *, acted: bool) -> dict[str, Any]:
            return {**super()._family_info(acted=acted), "primitive_steps": seconds}

    agent = make_method("POAD", lamp=Strange, smdp_discount=True, n_steps=6)
    with pytest.raises((ValueError, UnsupportedEnvError, FloatingPointError), match="primitive_steps"):
        agent.learn(6)


# ------------------------------------------------------------------ the policy gradient, by brute force


Unit = tuple[int, torch.Tensor, torch.Tensor]
"""A unit with a ratio of its own: its place in the action, its log-probability, and the entropy it was chosen with."""


def units(agent: LLMOnPolicyAlgorithm, question: Question, path: TokenPath) -> list[Unit]:
    policy, actions = agent.policy, question.actions or ()
    if agent.action_sampling == "free" or agent.paper_mode:
        table = all_log_probs(policy, path.prompt, path.action)
        return [(j, row[token], entropy(row)) for j, (row, token) in enumerate(zip(table, path.action, strict=True))]
    if len(actions) == 1:
        return []
    if agent.action_sampling == "candidates" and agent.credit_level == "action":
        log_mu = whole_log_probs(policy, question.text, actions, agent.candidate_normalization)
        return [(0, log_mu[[policy.lm.action_ids(action) for action in actions].index(path.action)], entropy(log_mu))]
    choices = choices_on(agent, question, path)
    if agent.credit_level == "action":
        return [(0, torch.stack([unit[1] for unit in choices]).sum(), torch.stack([unit[2] for unit in choices]).sum())]
    return choices


def choices_on(agent: LLMOnPolicyAlgorithm, question: Question, path: TokenPath) -> list[Unit]:
    """The decisions of an action, one by one."""
    policy, actions, decisions = agent.policy, question.actions or (), []
    sequences = [policy.lm.action_ids(action) for action in actions]
    if agent.action_sampling == "candidates":
        log_mu = whole_log_probs(policy, question.text, actions, agent.candidate_normalization)
    table = all_log_probs(policy, path.prompt, path.action)
    for j, token in enumerate(path.action):
        children = children_after(path.action[:j], sequences)
        if agent.action_sampling == "candidates":
            log_probs = conditionals(log_mu, sequences, path.action[:j])[1]
        else:
            log_probs = table[j, children].log_softmax(0)
        if len(children) > 1:
            decisions.append((j, log_probs[children.index(token)], entropy(log_probs)))
    return decisions


def entropy(log_probs: torch.Tensor) -> torch.Tensor:
    return -(log_probs.exp() * log_probs).sum()


def brute_force_loss(agent: LLMOnPolicyAlgorithm, questions: list[Question]) -> torch.Tensor:
    """PPO's loss, every sample by itself."""
    state = agent.rollout_buffer.get_state()
    scored, advantages = [], []
    for question, path, start in zip(questions, state["paths"], state["offsets"], strict=False):
        for token, log_prob, bonus in units(agent, question, path):
            chosen = slice(start, start + len(path.action)) if agent.credit_level == "action" else start + token
            assert state["is_decision"][chosen].any()
            scored.append((log_prob, bonus, float(state["old_log_prob"][chosen].sum())))
            advantages.append(float(state["advantages"][start + token]))
    if agent.credit_level == "token":
        assert len(scored) == state["is_decision"].sum()
    mean, deviation = statistics.mean(advantages), statistics.stdev(advantages)
    total = torch.zeros(())
    for (log_prob, bonus, old), advantage in zip(scored, advantages, strict=True):
        normal, ratio = (advantage - mean) / deviation, torch.exp(log_prob - old)
        total = total - torch.min(ratio * normal, torch.clamp(ratio, 0.8, 1.2) * normal) - ONE_STEP.ent_coef * bonus
    return total / len(scored)


@pytest.mark.parametrize(
    ("name", "move_by"),
    [
        ("POAD", 0.05),
        ("TWOSOME", 0.05),
        ("POAD, candidates", 0.05),
        pytest.param("TWOSOME, trie", 0.04, marks=pytest.mark.matrix),
        pytest.param("POAD, paper", 0.02, marks=pytest.mark.matrix),
        pytest.param("POAD, free", 0.05, marks=pytest.mark.matrix),
    ],
)
def test_the_policy_gradient_is_that_of_brute_force(name: str, move_by: float) -> None:
    """TWOSOME: one ratio of mu for each action and the entropy of mu itself. The others: of tokens.

    Some samples share a question, some have a single action, and some ratios are clipped. Splitting the rows into
    chunks of one leaves the result unchanged (defects 6 and 15).
    """
    agent, questions = collect(name, n_steps=12, lamp=TableEnv, env={"forced": ["green"]})
    hold_still(agent, move_by=move_by)
    loss = brute_force_loss(agent, questions)
    expected = gradient_by_autograd(agent.policy, loss)
    logged = run_update(agent)
    assert_same_gradient(adapter_gradient(agent.policy), expected)
    assert logged["policy_gradient_loss"] - ONE_STEP.ent_coef * logged["entropy"] == pytest.approx(
        loss.item(), abs=1e-4
    )
    assert 0 < logged["clip_fraction"] < 1
    agent.policy.lm.max_tokens_per_forward = 1
    apart = run_update(agent)
    assert_same_gradient(adapter_gradient(agent.policy), expected)
    assert apart == pytest.approx(logged, rel=1e-3, abs=1e-4)


def test_every_class_is_among_the_methods() -> None:
    assert {kind.__name__ for kind, _ in METHODS.values()} == set(ALGORITHMS)
