"""Critics: closed forms of values and targets, and what an update and a checkpoint make of them."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from toy import LampEnv, SaveAt, collect, everything, make_method, randomise

from poad_sb3 import POAD
from poad_sb3.common.critics import CRITICS, DuelingCritic, MarginalCritic, StateCritic
from poad_sb3.credit.advantages import next_state_values
from poad_sb3.credit.estimators import GAE, ReturnToGo, Rollout
from poad_sb3.distributions.base import Leaves, TokenPath
from poad_sb3.errors import NoEffectWarning
from poad_sb3.language_model.packing import path_to
from poad_sb3.memory import estimate_training

IS_STATE = torch.tensor([True, False, False, True, True, False])
"""Hidden states of three actions, of three, one and two tokens."""


def rollout_of(seed: int, *, tokens: int = 4, envs: int = 2) -> Rollout:
    """A rollout with one-token actions, a terminal state, a time limit, and an end in mid-episode."""
    rng = np.random.default_rng(seed)
    shape = (6, envs)
    ends = np.zeros(shape, dtype=bool)
    ends[2], ends[4, 0] = True, True
    truncated = ends & (rng.random(shape) < 0.5)
    lengths = rng.integers(1, tokens + 1, shape)
    return Rollout(
        rewards=rng.normal(size=shape),
        lengths=lengths,
        episode_ends=ends,
        counted=np.ones(shape, dtype=bool),
        values=np.where(np.arange(tokens) < lengths[..., None], rng.normal(size=(*shape, tokens)), 0.0),
        last_values=rng.normal(size=envs),
        final_values=np.where(truncated, rng.normal(size=shape), 0.0),
        durations=rng.integers(1, 4, shape).astype(float),
        groups=np.zeros(shape, dtype=np.int64),
        states=np.zeros(shape, dtype=np.int64),
    )


@pytest.mark.parametrize("gamma_token", [1.0, 0.8])
@pytest.mark.parametrize("seed", range(3))
def test_targets_are_the_lambda_return_of_the_state_and_one_step_of_the_prefix(seed: int, gamma_token: float) -> None:
    rollout, credit = rollout_of(seed), GAE(0.9, 0.7, gamma_token, 0.6)
    returns, advantages = credit.state_returns(rollout), credit.one_step_advantages(rollout)
    values = rollout.values[..., 0]
    following = next_state_values(values, rollout.last_values, rollout.episode_ends, rollout.final_values)
    for step, env in np.ndindex(rollout.rewards.shape):
        total, weight = 0.0, 1.0
        for later in range(step, 6):
            inside = gamma_token ** (rollout.lengths[later, env] - 1)
            gamma = 0.9 ** rollout.durations[later, env]
            delta = inside * (rollout.rewards[later, env] + gamma * following[later, env]) - values[later, env]
            total += weight * delta
            weight *= inside * gamma * 0.7
            if rollout.episode_ends[later, env]:
                break
        assert returns[step, env] == pytest.approx(values[step, env] + total, abs=1e-12)
        paid = rollout.rewards[step, env] + 0.9 ** rollout.durations[step, env] * following[step, env]
        for token in range(rollout.lengths[step, env]):
            discount = gamma_token ** (rollout.lengths[step, env] - 1 - token)
            assert advantages[step, env, token] == pytest.approx(discount * paid - values[step, env], abs=1e-12)


def test_advantages_of_exact_values_are_their_expected_targets() -> None:
    """Over all actions of three tokens: E[d | prefix] = V(prefix) - V(s), which is 0 for the empty prefix."""
    rng = np.random.default_rng(0)
    actions = list(itertools.product(range(2), range(3), range(2)))
    chances, paid = rng.dirichlet(np.ones(len(actions))), rng.normal(size=len(actions))
    value = chances @ paid
    n = len(actions)
    values = np.zeros((1, n, 3))
    values[..., 0] = value
    one, nothing = np.ones((1, n)), np.zeros((1, n))
    rollout = Rollout(
        paid[None], 3 * one.astype(int), one > 0, one > 0, values, nothing[0], nothing, one, 0 * one, 0 * one
    )
    targets = DuelingCritic.targets(GAE(0.9), rollout, np.zeros_like(values))
    np.testing.assert_allclose(targets[..., 0], paid[None], atol=1e-12)
    for length in (1, 2):
        for prefix in {action[:length] for action in actions}:
            below = [number for number, action in enumerate(actions) if action[:length] == prefix]
            share = chances[below] / chances[below].sum()
            assert share @ targets[0, below, length] == pytest.approx(share @ paid[below] - value, abs=1e-12)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("token", [1.0, 0.1, 0.2]), ("state", [1.0, 1.0, 1.0]), ("dueling", [1.0, 1.1, 1.2]), ("marginal", [1.0] * 3)],
)
def test_values_of_prefixes_follow_from_the_outputs(kind: str, expected: list[float]) -> None:
    """Without a list of actions the marginal critic has values of states."""
    path = TokenPath((7,), (1, 2, 3), ())
    outputs = np.array([1.0, 0.1, 0.2])[: len(CRITICS[kind].row(path, 3).reads)]
    for n in (1, 3):
        np.testing.assert_allclose(CRITICS[kind].values(path, n, outputs), expected[:n])
        assert CRITICS[kind].learned_reads(path, n).tolist() == [
            read if read == 0 or (read < n and kind in ("token", "dueling")) else -1 for read in range(3)
        ]


def marginal_values(path: TokenPath, advantages: dict[tuple[int, ...], float]) -> np.ndarray:
    """Values of a marginal critic with these advantages of actions, and 0 for the value of the state."""
    row = MarginalCritic.row(path, len(path.action))
    ends = [path_to(row, read).tokens[len(path.prompt) :] for read in row.reads]
    assert ends[0] == ()
    outputs = np.array([0.0, *(advantages[end] for end in ends[1:])])
    assert ends[MarginalCritic.learned_reads(path, len(path.action))[-1]] == path.action
    return MarginalCritic.values(path, len(path.action), outputs)


@pytest.mark.parametrize("seed", range(4))
def test_marginal_values_are_those_of_the_enumeration_and_a_martingale(seed: int) -> None:
    """For any A; with forced tokens, actions of different lengths, and one action that has all the probability."""
    rng = np.random.default_rng(seed)
    words = [w for n in (1, 2, 3) for w in itertools.product((1, 2, 3), repeat=n)]
    sequences = tuple((*words[pick], 9) for pick in rng.choice(len(words), 12, replace=False))
    chances = rng.dirichlet(np.full(len(sequences), 0.3)) if seed else np.eye(len(sequences))[3]
    advantages = dict(zip(sequences, rng.normal(size=len(sequences)).tolist(), strict=True))
    leaves = Leaves(sequences, tuple(chances.tolist()))
    overall = sum(chance * advantages[sequence] for chance, sequence in zip(chances, sequences, strict=True))
    value_of: dict[tuple[int, ...], float] = {}
    for sequence in sequences:
        values = marginal_values(TokenPath((7, 8), sequence, (), leaves=leaves), advantages)
        for j, value in enumerate(values):
            below = [(c, advantages[s]) for c, s in zip(chances, sequences, strict=True) if s[:j] == sequence[:j]]
            mass = sum(chance for chance, _ in below)
            expected = sum(chance * a for chance, a in below) / mass - overall if mass else 0.0
            assert value == pytest.approx(expected, abs=1e-12)
            value_of[sequence[:j]] = value
    mass_of = {p: sum(c for c, s in zip(chances, sequences, strict=True) if s[: len(p)] == p) for p in value_of}
    for prefix, value in value_of.items():
        following = [p for p in value_of if len(p) == len(prefix) + 1 and p[:-1] == prefix]
        ended = sum(c for c, s in zip(chances, sequences, strict=True) if s[:-1] == prefix)
        if mass_of[prefix] and not ended:
            mean = sum(mass_of[p] * value_of[p] for p in following) / mass_of[prefix]
            assert mean == pytest.approx(value, abs=1e-12)


def test_the_end_of_a_long_list_is_left_out_with_an_error_below_its_bound() -> None:
    rng = np.random.default_rng(0)
    sequences = tuple((first, second, 9) for first in range(40) for second in range(50, 100))
    chances = rng.dirichlet(np.full(len(sequences), 0.05))
    advantages = dict(zip(sequences, rng.normal(size=len(sequences)).tolist(), strict=True))
    spread = max(advantages.values()) - min(advantages.values())
    for pick in (int(chances.argmin()), *rng.integers(len(sequences), size=5).tolist()):
        path = TokenPath((7,), sequences[pick], (), leaves=Leaves(sequences, tuple(chances.tolist())))
        assert len(MarginalCritic.row(path, 3).reads) == 1 + MarginalCritic.max_leaves
        kept = set(np.argsort(-chances)[: MarginalCritic.max_leaves - 1].tolist()) | {pick}
        lost = [leaf for leaf in range(len(sequences)) if leaf not in kept]
        below = [leaf for leaf, sequence in enumerate(sequences) if sequence[0] == sequences[pick][0]]
        share = chances[below] / chances[below].sum()
        exact = share @ [advantages[sequences[leaf]] for leaf in below]
        exact -= chances @ [advantages[sequence] for sequence in sequences]
        bound = spread * (chances[lost].sum() + chances[sorted({*below} & {*lost})].sum() / chances[below].sum())
        assert abs(marginal_values(path, advantages)[1] - exact) <= bound + 1e-12


def test_states_and_prefixes_have_networks_and_whitening_of_their_own() -> None:
    critic, features = DuelingCritic(8, (16,)), torch.randn(6, 8, generator=torch.Generator().manual_seed(0))
    randomise(critic, scale=0.5)
    critic.observe(features, IS_STATE)
    torch.testing.assert_close(critic.whitening.mean, features[IS_STATE].mean(0))
    torch.testing.assert_close(critic.advantage.whitening.mean, features[~IS_STATE].mean(0))
    outputs = critic.outputs(features, IS_STATE)
    assert torch.equal(outputs[IS_STATE], critic(features[IS_STATE]))
    assert torch.equal(outputs[~IS_STATE], critic.advantage(features[~IS_STATE]))
    only_states = StateCritic(8, (16,))
    only_states.observe(features, IS_STATE)
    assert float(only_states.whitening.count) == 3


@pytest.mark.parametrize("kind", ["state", "dueling", "marginal"])
def test_one_token_actions_have_no_prefix(kind: str) -> None:
    critic = CRITICS[kind](8, (16,))
    features, is_state = torch.randn(3, 8), torch.ones(3, dtype=torch.bool)
    critic.observe(features, is_state)
    critic.observe_targets(torch.tensor([1.0, 2.0, 3.0]), is_state)
    outputs = critic.outputs(features, is_state).detach().numpy()
    path = TokenPath((7,), (1,), (), leaves=Leaves(((1,),), (1.0,)))
    assert critic.values(path, 1, outputs[:1]).tolist() == outputs[:1].tolist()
    assert critic.learned_reads(path, 1).tolist() == [0]
    assert torch.isfinite(critic.units(is_state)).all()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("POAD", "state"),
        ("POAD", "dueling"),
        ("POAD", "marginal"),
        ("POAD, free", "dueling"),
        ("POAD, candidates", "marginal"),
        ("POAD, paper", "marginal"),
        ("TWOSOME", "dueling"),
        ("TWOSOME", "marginal"),
    ],
)
def test_a_rollout_is_valued_and_learned_from(name: str, kind: str) -> None:
    """Values in the buffer are those of the networks, one prefix at a time; an update moves every network it trains."""
    agent, _ = collect(name, critic=kind, n_steps=8, gamma=0.9, env={"truncates": True})
    randomise(agent.policy.critic)
    before = {key: tensor.clone() for key, tensor in agent.policy.critic.named_parameters()}
    agent.learn(16)
    flat, critic = agent.rollout_buffer.all_samples(), agent.policy.critic
    has_advantage = kind != "state" and name != "TWOSOME"
    n_targets = {"state": 1, "marginal": 2, "dueling": None}[kind] if name != "TWOSOME" else 1
    for path, has_target in zip(flat.paths, flat.has_target.split([len(p.action) for p in flat.paths]), strict=True):
        assert int(has_target.sum()) == (n_targets or len(path.action))
        assert path.leaves is None
    trained = {key for key, tensor in critic.named_parameters() if not torch.equal(tensor, before[key])}
    assert trained == {key for key in before if has_advantage or not key.startswith("advantage")}
    for action in agent.rollout_buffer.sampled_actions():
        if kind == "state":
            assert len(set(action.values.tolist())) == 1
        assert len(action.values) == (1 if name == "TWOSOME" else len(action.path.action))
    assert "train/explained_variance" in agent.logger.name_to_value
    assert ("train/advantage_explained_variance" in agent.logger.name_to_value) == has_advantage


def test_a_critic_of_states_without_decay_gives_every_token_the_advantage_of_its_action() -> None:
    agent, _ = collect("POAD", critic="state", n_steps=8, gamma=0.9, gae_lambda=0.8)
    randomise(agent.policy.critic)
    agent.learn(16)
    for action in agent.rollout_buffer.sampled_actions():
        np.testing.assert_allclose(action.advantages, action.advantages[0], atol=1e-6)
    decayed, _ = collect("POAD", critic="state", n_steps=8, gamma=0.9, gae_lambda=0.8, gae_lambda_token=0.5)
    actions = list(decayed.rollout_buffer.sampled_actions())
    assert any(np.ptp(action.advantages) > 1e-4 for action in actions if len(action.path.decisions) > 1)


def test_features_of_the_base_model_do_not_change_what_a_critic_of_states_learns() -> None:
    """`kl_coef` needs the features of all tokens; targets and values are still of states.

    (The whitening counts a state once for each distinct row, so that values differ a little.)
    """
    plain, _ = collect("POAD", critic="state", n_steps=8)
    anchored, _ = collect("POAD", critic="state", n_steps=8, kl_coef=0.1)
    ours, theirs = (agent.rollout_buffer.all_samples() for agent in (plain, anchored))
    for name in ("has_target", "targets", "old_outputs", "advantages"):
        torch.testing.assert_close(getattr(theirs, name), getattr(ours, name), rtol=0, atol=1e-3)
    assert len(theirs.features) > len(ours.features)


@pytest.mark.parametrize(("kind", "other"), [("token", "state"), ("dueling", "marginal")])
def test_a_checkpoint_of_another_critic_is_refused(tmp_path: Path, kind: str, other: str) -> None:
    make_method("POAD", critic=kind, n_steps=8).learn(8).save(tmp_path / "model.zip")
    with pytest.raises(ValueError, match=f"Expected critic='{kind}'.*; got '{other}'"):
        POAD.load(tmp_path / "model.zip", LampEnv(), critic=other)


def test_the_first_unit_of_each_network_turns_the_clip_of_values_off() -> None:
    critic, features = DuelingCritic(8, (16,)), torch.randn(6, 8)
    critic.observe(features, IS_STATE)
    targets = torch.arange(6.0)
    assert critic.observe_targets(targets[IS_STATE], IS_STATE[IS_STATE])
    assert critic.observe_targets(targets, IS_STATE), "the first of the network of advantages"
    assert not critic.observe_targets(targets, IS_STATE)


def test_without_values_inside_actions_there_is_one_network() -> None:
    for kind in ("dueling", "marginal"):
        agent = make_method("TurnPPO", critic=kind, kl_coef=0.1)
        assert type(agent.policy.critic) is StateCritic
    with pytest.warns(NoEffectWarning, match="critic='marginal' has no effect"):
        make_method("GRPO", critic="marginal", kl_coef=0.1, n_envs=2, n_steps=4)


@pytest.mark.parametrize("kind", ["dueling", "marginal"])
def test_training_with_two_networks_resumes_exactly(tmp_path: Path, kind: str) -> None:
    arguments: dict[str, Any] = {"critic": kind, "normalize_value": True, "n_steps": 8}
    straight = make_method("POAD", **arguments)
    straight.learn(32, callback=SaveAt(16, tmp_path / "model.zip"))
    resumed = type(straight).load(tmp_path / "model.zip", LampEnv())
    assert isinstance(resumed.policy.critic, DuelingCritic)
    resumed.learn(32 - resumed.num_timesteps, reset_num_timesteps=False)
    assert everything(resumed) == everything(straight)


def test_a_rollout_of_another_version_is_refused() -> None:
    agent, _ = collect("POAD", n_steps=4)
    state = agent.rollout_buffer.get_state()
    del state["targets"]
    with pytest.raises(ValueError, match=r"Expected a rollout with targets; this one was saved by another version"):
        agent.rollout_buffer.set_state(state)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"action_sampling": "free"}, r"Expected listed actions with critic='marginal'"),
        ({"kl_coef": 0.1}, r"Expected kl_coef=0 with critic='marginal'"),
        ({"gamma_token": 0.9}, r"Expected gamma_token=1 with critic='marginal'"),
        ({"critic": "duel"}, r"critic"),
    ],
)
def test_settings_that_do_not_fit_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_method("POAD", **{"critic": "marginal", **arguments})


def test_the_memory_estimate_counts_networks_and_the_states_that_they_read() -> None:
    models = {kind: make_method("POAD", critic=kind, n_steps=4) for kind in CRITICS}
    needed = {kind: estimate_training(model, model.env.reset()) for kind, model in models.items()}
    assert needed["marginal"].critic == needed["dueling"].critic == 2 * needed["token"].critic
    assert needed["state"].rollout < needed["dueling"].rollout == needed["token"].rollout
    n_listed = len(models["marginal"].env.reset()["admissible_actions"][0])
    assert n_listed > 1
    assert needed["marginal"].rollout > needed["state"].rollout


def test_estimators_without_a_critic_ignore_its_kind() -> None:
    credit = make_method("GRPO", n_envs=2, n_steps=4).credit
    assert "critic" in replace(credit).ignores


def test_an_estimator_with_a_critic_gives_it_targets() -> None:
    class Returns(ReturnToGo):
        has_critic = True

    agent = make_method("POAD", n_steps=4)
    agent.rollout_buffer.estimator = Returns(0.9)
    with pytest.raises(TypeError, match=r"Expected an estimator with a critic to derive from GAE.*got Returns\. Fix"):
        agent.learn(4)
