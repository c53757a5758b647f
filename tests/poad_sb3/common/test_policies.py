from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from stable_baselines3.common.callbacks import BaseCallback
from toy import batch_of, make_agent, randomise

from lang_envs import TextSpace, TokenSequence
from lang_envs.wrappers.admissible import admissible_observation, admissible_space
from poad_sb3 import POAD, LLMPolicy, ObservationError
from poad_sb3.common.ppo_update import optimizer_step
from poad_sb3.distributions.base import TokenPath
from poad_sb3.language_model.value_network import FeatureWhitening

Question = tuple[str, tuple[str, ...]]

RED: Question = (
    "The lamp is red.",
    ("press the red button", "press the red lever", "press it", "wait", "prepare the tomato", "wait here"),
)
GREEN: Question = (
    "The lamp in the other room is green. You have 3 moves left.",
    ("wait", "walk on", "walk around the room", "pick the lamp"),
)
FORCED: Question = ("The lamp is broken.", ("wait",))
STRANGE: Question = (
    'It says:\n"a, b", \t{c}',
    (
        "a, b",
        "a",
        "b",
        'say "a, b"',
        "say\nit",
        "say\r\nit",
        "[1, 2]",
        "naïve café 東京 🍅",
        "  spaced ",
        "\\n",
        "null",
    ),
)
QUESTIONS = (RED, GREEN, FORCED, STRANGE)


@pytest.fixture(scope="module")
def agent() -> POAD:
    """Leave its weights as they are. Its critic has seen features, so that it whitens its input."""
    agent = make_agent()
    randomise(agent.policy)
    paths = [TokenPath(agent.policy.lm.prompt_ids(text), (5, 6, 7), ()) for text, _ in QUESTIONS]
    agent.policy.token_values(paths, observe=True)
    return agent


@pytest.fixture(scope="module")
def policy(agent: POAD) -> LLMPolicy:
    return agent.policy


@pytest.fixture
def own_policy() -> LLMPolicy:
    """A policy whose weights the test may change."""
    policy = make_agent().policy
    randomise(policy)
    return policy


@torch.no_grad()
def brute_force(policy: LLMPolicy, question: Question) -> dict[str, float]:
    """The softmax over the whole vocabulary after every prefix, restricted to continuations of admissible texts."""
    text, actions = question
    prompt, sequences = policy.lm.prompt_ids(text), [policy.lm.action_ids(action) for action in actions]
    probabilities = []
    for sequence in sequences:
        logits = policy.lm.network(input_ids=torch.tensor([[*prompt, *sequence]])).logits[0].double()
        probability = 1.0
        for j, token in enumerate(sequence):
            p = torch.softmax(logits[len(prompt) - 1 + j], 0)
            children = {other[j] for other in sequences if other[:j] == sequence[:j]}
            probability *= float(p[token] / sum(p[child] for child in children))
        probabilities.append(probability)
    return dict(zip(actions, probabilities, strict=True))


def probabilities_of(policy: LLMPolicy, question: Question) -> dict[str, float]:
    return policy.action_probabilities(question[0], question[1])


# ------------------------------------------------------------------ one distribution: scored, sampled, stored


@pytest.mark.parametrize("question", QUESTIONS)
def test_action_probabilities_are_the_restricted_softmax(policy: LLMPolicy, question: Question) -> None:
    probabilities, expected = probabilities_of(policy, question), brute_force(policy, question)
    assert list(probabilities) == list(question[1])
    np.testing.assert_allclose(list(probabilities.values()), list(expected.values()), rtol=1e-3, atol=1e-6)
    assert sum(probabilities.values()) == pytest.approx(1, abs=1e-6)


# ------------------------------------------------------------------ batches


def test_the_value_of_a_prompt_does_not_know_its_neighbours(policy: LLMPolicy) -> None:
    """And it is read at the last token of the prompt, of the base model, adapter or not."""
    values = policy.predict_values(batch_of(QUESTIONS))
    for number, question in enumerate(QUESTIONS):
        alone = policy.predict_values(batch_of([question]))
        torch.testing.assert_close(values[number : number + 1], alone, rtol=0, atol=1e-4)
        prompt = torch.tensor([policy.lm.prompt_ids(question[0])])
        with torch.no_grad(), policy.lm.network.disable_adapter():
            states = policy.lm.network(input_ids=prompt, output_hidden_states=True).hidden_states[-1]
        torch.testing.assert_close(policy.critic(states[0, -1:]), alone, rtol=0, atol=1e-4)
    assert values.diff().abs().min() > 1e-3


def test_token_values_are_those_of_the_prefixes(policy: LLMPolicy) -> None:
    """The value before token j is that of the prompt with the first j tokens; equal paths share one computation."""
    prompt, action = policy.lm.prompt_ids(RED[0]), policy.lm.action_ids("press the red button")
    other = TokenPath(policy.lm.prompt_ids(GREEN[0]), policy.lm.action_ids("wait"), ())
    token_values = policy.token_values([TokenPath(prompt, action, ()), other, TokenPath(prompt, action, ())])
    assert token_values.starts.tolist() == [0, len(action), 0]
    assert len(token_values.outputs) == len(token_values.features) == len(action) + len(other.action)
    assert [len(values) for values in token_values.values] == [len(action), len(other.action), len(action)]
    prefixes = [TokenPath((*prompt, *action[:j]), (0,), ()) for j in range(len(action))]
    alone = np.concatenate([policy.token_values([prefix]).values[0] for prefix in prefixes])
    np.testing.assert_allclose(token_values.values[0], alone, rtol=0, atol=1e-4)


# ------------------------------------------------------------------ input of predict


def decoded(policy: LLMPolicy, actions: np.ndarray) -> list[str]:
    assert actions.dtype == np.int64
    return [policy.action_space.decode(action) for action in np.atleast_2d(actions)]


def test_predict_takes_every_form_of_a_question(agent: POAD) -> None:
    policy = agent.policy
    best = [max(question[1], key=probabilities_of(policy, question).__getitem__) for question in QUESTIONS]
    single = admissible_observation(RED[0], RED[1])
    state = (np.zeros(1),)
    action, after = agent.predict(single, state=state, deterministic=True)
    assert action.shape == policy.action_space.shape
    assert after is state
    assert decoded(policy, action) == best[:1]
    zero_dimensional = {key: np.array(value, dtype=object) for key, value in single.items()}
    assert agent.predict(zero_dimensional, deterministic=True)[0].shape == policy.action_space.shape
    batch, _ = agent.predict(batch_of(QUESTIONS), deterministic=True)
    assert batch.shape == (len(QUESTIONS), *policy.action_space.shape)
    assert decoded(policy, batch) == best
    assert agent.predict(batch_of([RED]), deterministic=True)[0].shape == (1, *policy.action_space.shape)
    text, _ = agent.predict(RED[0], admissible_actions=list(RED[1]), deterministic=True)
    assert text.shape == policy.action_space.shape
    assert decoded(policy, text) == best[:1]
    texts, lists = zip(*QUESTIONS, strict=True)
    several, _ = agent.predict(list(texts), admissible_actions=lists, deterministic=True)
    assert decoded(policy, several) == best


@pytest.mark.parametrize(
    ("observation", "admissible_actions", "message"),
    [
        (RED[0], None, r"got str\. Fix: .*AdmissibleObservation"),
        ({"text": RED[0], "admissible_actions": "press it, wait"}, None, "JSON list of strings; got 'press it, wait'"),
        ({"text": np.array(["a", "b"]), "admissible_actions": np.array(['["wait"]'])}, None, "as many lists as texts"),
        ([RED[0], GREEN[0]], [["wait"]], "as many texts as lists; got list with 1 lists"),
    ],
)
def test_observations_without_actions_are_refused(
    agent: POAD, observation: Any, admissible_actions: Any, message: str
) -> None:
    with pytest.raises(ObservationError, match=message):
        agent.predict(observation, admissible_actions=admissible_actions)


def test_an_action_listed_twice_is_one_action(policy: LLMPolicy) -> None:
    once, twice = (policy.action_probabilities(RED[0], actions) for actions in (["a", "b"], ["a", "b", "a"]))
    assert twice == once


# ------------------------------------------------------------------ evaluation apart from training


class Meddler(BaseCallback):
    """Evaluates in the middle of a rollout, on the rollout's own prompts and others, in other batches."""

    def _on_step(self) -> bool:
        current = [(str(text), ("press it", "wait")) for text in self.locals["new_obs"]["text"]]
        self.model.predict(self.locals["new_obs"])
        self.model.predict(batch_of([*current, *QUESTIONS]))
        self.model.predict(
            {key: np.concatenate([self.locals["new_obs"][key], batch_of([STRANGE])[key]]) for key in batch_of([RED])}
        )
        self.model.policy.action_probabilities(*current[0])
        self.model.policy.predict_values(self.locals["new_obs"])
        return True


def test_evaluation_does_not_alter_training() -> None:
    quiet, watched = (make_agent(n_epochs=1, batch_size=8) for _ in range(2))
    quiet.learn(32)
    watched.learn(32, Meddler())
    drawn_by = [[rng.bit_generator.state for rng in agent.policy.rollout_rngs] for agent in (watched, quiet)]
    assert drawn_by[0] == drawn_by[1] != []
    expected = quiet.policy.state_dict()
    for name, tensor in watched.policy.state_dict().items():
        assert torch.equal(tensor, expected[name]), name


# ------------------------------------------------------------------ weights


def change_in_place(policy: LLMPolicy) -> None:
    with torch.no_grad():
        policy.adapter_parameters()[1].add_(0.3)


def change_by_fused_optimiser(policy: LLMPolicy) -> None:
    parameters = policy.adapter_parameters()
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    optimizer_step(torch.optim.AdamW(parameters, lr=0.1, fused=True), parameters, 1e6, "policy")


def change_by_loading(policy: LLMPolicy) -> None:
    generator = torch.Generator().manual_seed(9)
    policy.load_state_dict(
        {
            name: tensor + 0.1 * torch.randn(tensor.shape, generator=generator)
            for name, tensor in policy.state_dict().items()
        }
    )


@pytest.mark.parametrize("change", [change_in_place, change_by_fused_optimiser, change_by_loading])
def test_scores_follow_the_weights(own_policy: LLMPolicy, change: Any) -> None:
    """Scores are cached; they are forgotten when the weights change, and only right when recomputed."""
    before = probabilities_of(own_policy, RED)
    (stored,) = own_policy.act(batch_of([RED]), deterministic=True)
    change(own_policy)
    after, expected = probabilities_of(own_policy, RED), brute_force(own_policy, RED)
    np.testing.assert_allclose(list(after.values()), list(expected.values()), rtol=1e-3, atol=1e-6)
    assert abs(after["wait"] - before["wait"]) > 1e-3, "the change was large enough to be seen"
    (fresh,) = own_policy.act(batch_of([RED]), deterministic=True)
    assert float(fresh.log_probs.sum()) == pytest.approx(np.log(max(after.values())), abs=1e-4)
    assert float(fresh.log_probs.sum()) != pytest.approx(float(stored.log_probs.sum()), abs=1e-4)


def test_state_dict_holds_adapter_and_critic_only(own_policy: LLMPolicy) -> None:
    state = own_policy.state_dict()
    assert all("lora_" in name or name.startswith("critic.") for name in state)
    adapters = [name for name in state if "lora_" in name]
    assert len(adapters) == 4 * 2 * 2, "A and B of q and v in each of the pocket model's four layers"
    assert {name for name in state if name.startswith("critic.")} == {
        f"critic.{name}" for name in own_policy.critic.state_dict()
    }


@pytest.mark.parametrize(
    ("damage", "strict"), [("shape", True), ("shape", False), ("missing", True), ("unknown", True)]
)
def test_a_state_dict_that_does_not_fit_changes_nothing(own_policy: LLMPolicy, damage: str, strict: bool) -> None:
    before = {name: tensor.clone() for name, tensor in own_policy.state_dict().items()}
    wrong = {name: tensor + 1 for name, tensor in before.items()}
    name = next(name for name, tensor in reversed(wrong.items()) if tensor.ndim == 2)
    if damage == "shape":
        wrong[name] = wrong[name][:, :-1]
    elif damage == "missing":
        del wrong[name]
    else:
        wrong[name + ".more"] = torch.zeros(1)
    message = r"Expected the trainable tensors of this policy; 1 differ, first .*Fix:"
    with pytest.raises(RuntimeError, match=message):
        own_policy.load_state_dict(wrong, strict=strict)
    assert not [name for name, tensor in own_policy.state_dict().items() if not torch.equal(tensor, before[name])]


def test_state_dependent_noise_is_refused(policy: LLMPolicy) -> None:
    with pytest.raises(ValueError, match="Expected use_sde=False"):
        LLMPolicy(policy.observation_space, policy.action_space, lambda _: 1e-3, use_sde=True)


def correlated_features(n: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(6, 6, generator=torch.Generator().manual_seed(99)) + 2 * torch.eye(6)
    return 3 + torch.randn(n, 6, generator=generator) @ mixing


def test_the_critic_whitens_by_all_it_was_shown() -> None:
    shown = [correlated_features(n, seed) for seed, n in enumerate((1, 40, 7, 300))]
    whitening, everything = FeatureWhitening(6), torch.cat(shown)
    for features in shown:
        whitening.observe(features)
    torch.testing.assert_close(whitening.mean, everything.mean(0), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(whitening.covariance, everything.T.cov(correction=0), rtol=1e-4, atol=1e-4)
    white = whitening(everything)
    torch.testing.assert_close(white.mean(0), torch.zeros(6), rtol=0, atol=1e-3)
    torch.testing.assert_close(white.T.cov(correction=0), torch.eye(6), rtol=0, atol=0.05)
    assert ((everything * white).sum(0) > 0).all(), "axes stay where they were"
    assert whitening(torch.full((1, 6), 1e6)).abs().max() == 10, "an outlier is clipped"


def test_features_without_variance_do_no_harm() -> None:
    whitening = FeatureWhitening(6)
    situation = correlated_features(1, seed=1)
    for _ in range(3):
        whitening.observe(situation.repeat(3, 1))
        assert torch.equal(whitening(situation), situation), "centred it would be 0, and so its value for ever"
    shown = torch.cat([situation.repeat(9, 1), correlated_features(1, seed=4)])
    whitening.observe(shown[9:])
    white = whitening(shown)
    torch.testing.assert_close((white - white.mean(0)).square().sum(1).mean(), torch.tensor(1.0), rtol=0, atol=0.01)


@pytest.mark.parametrize(("name", "value"), [("critic", "foo"), ("micro_batches", 0)])
def test_settings_of_a_bare_policy_are_checked(name: str, value: object) -> None:
    spaces = admissible_space(TextSpace(1)), TokenSequence()
    with pytest.raises(ValueError, match=f"Expected {name} to be "):
        LLMPolicy(*spaces, lambda _: 0.0, **{name: value})
