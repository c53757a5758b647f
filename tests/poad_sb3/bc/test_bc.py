"""Behaviour cloning: likelihood, targets of the critic, warm starts, refusals."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from poad_runs import Run
from toy import COLOURS, TimedLampEnv, make_agent, make_method, randomise

from lang_envs.report.results import read_results
from poad_sb3 import (
    BADQ,
    GRPO,
    NTPO,
    POAD,
    TWOSOME,
    CheckpointError,
    LLMPolicy,
    ObservationError,
    TurnPPO,
)
from poad_sb3.bc import BC, Episode, oracle_episodes, policy_episodes, recorded_episodes, warm_start
from poad_sb3.common.episodes import questions_of
from poad_sb3.common.on_policy_algorithm import LLMOnPolicyAlgorithm
from poad_sb3.distributions.base import TokenPath
from poad_sb3.prompts import CompletionPrompt
from poad_sb3.prompts.templates import ContextSpec
from poad_sb3.vec_env.make_envs import make_envs
from poad_sb3.zoo.adapters import write_adapter

KEYS = "KeyToken-v0"
PRESSES = [f"press the {colour} button" for colour in ("red", "green", "blue")]


def step(number: int, action: str, listed: list[str] | None, reward: float, *, over: bool = False) -> dict[str, Any]:
    """Return the line of a step; it takes two units of time."""
    key = {"env": "lamp", "seed": 0, "episode": 0, "step": number}
    shown = {"observation": "", "admissible_actions": listed, "action": action}
    return {**key, **shown, "reward": reward, "success": over, "moves": 2, "terminated": over, "truncated": False}


SHAPES: list[Episode] = [
    [step(0, "wait", ["wait"], 0.5, over=True)],
    [
        step(0, "press the red button", [*PRESSES, "wait"], 1.0),
        step(1, "wait", ["wait", *PRESSES], 0.0),
        step(2, "wait", ["wait"], -0.25),
        step(3, "press the blue button", PRESSES, 2.0, over=True),
    ],
    [step(0, "open", ["open", "wait here"], 0.0), step(1, "wait here", ["wait", "wait here"], 1.0, over=True)],
]
for colour, episode in zip(COLOURS, SHAPES, strict=True):
    for line in episode:
        line["observation"] = f"The {colour} lamp is on, {line['step']} moves."
"""Actions of one word and one token, an action without alternatives, an episode of one step."""


@pytest.fixture(scope="module")
def demonstrations() -> list[Episode]:
    return oracle_episodes(KEYS, 12, noise=0.0)


@pytest.fixture(scope="module")
def base(demonstrations: list[Episode], tmp_path_factory: pytest.TempPathFactory) -> tuple[POAD, Path]:
    """A cloned agent and its checkpoint. Leave both as they are."""
    model = keys(POAD)
    BC(model, demonstrations).train(3)
    path = tmp_path_factory.mktemp("base") / "base.zip"
    model.save(path)
    return model, path


def keys(kind: type[LLMOnPolicyAlgorithm], env_id: str = KEYS, **arguments: Any) -> Any:
    policy_kwargs = {"critic_arch": (16,), **arguments.pop("policy_kwargs", {})}
    arguments = {"n_steps": 16, "batch_size": 8, "seed": 0, **arguments}
    return kind("LLMPolicy", make_envs(env_id, {}, 1), policy_kwargs=policy_kwargs, **arguments)


def paths(policy: LLMPolicy, episodes: list[Episode]) -> list[TokenPath]:
    return [
        policy.distribution.path(question, line["action"])
        for episode in episodes
        for line, question in zip(episode, questions_of(episode, ContextSpec()), strict=True)
    ]


@torch.no_grad()
def log_probs(model: LLMOnPolicyAlgorithm, episodes: list[Episode]) -> torch.Tensor:
    return model.policy.distribution.log_prob(paths(model.policy, episodes))


# ------------------------------------------------------------------ likelihood


@pytest.mark.parametrize("name", ["POAD", "TWOSOME", "POAD, free"])
def test_an_action_chosen_elsewhere_has_the_path_of_a_sampled_one(name: str) -> None:
    policy = make_method(name, **({"max_new_tokens": 20} if "free" in name else {})).policy
    randomise(policy)
    question = questions_of(SHAPES[1], ContextSpec())[0]
    for _ in range(4):
        (sampled,) = policy.act([question])
        if sampled.path.action == policy.lm.action_ids(sampled.text):  # a free text may be tokenized in another way
            assert policy.distribution.path(question, sampled.text) == sampled.path
    assert policy.lm.prompter.action_text(policy.distribution.path(question, "wait").action) == "wait"


@pytest.mark.parametrize(("name", "max_norm"), [("POAD", 0.1), ("POAD", 1e9), ("POAD, free", 1e9), ("GRPO", 0.1)])
def test_a_step_is_that_of_a_slow_reference(name: str, max_norm: float) -> None:
    model = make_method(name, **({"max_new_tokens": 20} if "free" in name else {}), max_grad_norm=max_norm)
    randomise(model.policy)
    slow = copy.deepcopy(model.policy)
    losses_seen = []
    BC(model, SHAPES, batch_size=100).train(1, 0, lambda _, loss: losses_seen.append(loss))

    losses = []
    for path in paths(slow, SHAPES):
        logits = slow.lm.network(input_ids=torch.tensor([[*path.prompt, *path.action]])).logits[0]
        total = torch.zeros(())
        for position, token in enumerate(path.action):
            before = logits[len(path.prompt) - 1 + position]
            rivals = {d.position: d.children for d in path.decisions}.get(position, (token,)) or tuple(
                range(len(before))
            )
            total = total - torch.log_softmax(before[list(rivals)], 0)[rivals.index(token)]
        losses.append(total)
    loss = torch.stack(losses).mean()
    optimizer = torch.optim.AdamW(slow.adapter_parameters(), lr=2e-3, eps=1e-5, weight_decay=0.0)
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(slow.adapter_parameters(), max_norm)
    optimizer.step()
    assert norm > 0.1
    assert losses_seen == [pytest.approx(loss.item(), abs=1e-5)]
    for ours, expected in zip(model.policy.adapter_parameters(), slow.adapter_parameters(), strict=True):
        torch.testing.assert_close(ours.grad, expected.grad, atol=1e-5, rtol=1e-3)
        torch.testing.assert_close(ours, expected, atol=1e-5, rtol=1e-3)


def test_equal_seeds_give_equal_weights_and_other_methods_the_same_adapter(demonstrations: list[Episode]) -> None:
    def cloned(kind: type[LLMOnPolicyAlgorithm], seed: int) -> dict[str, torch.Tensor]:
        model = keys(kind, seed=seed)
        BC(model, demonstrations[:4]).train(1)
        return model.policy.state_dict()

    first, again, other, ntpo = (cloned(POAD, 1), cloned(POAD, 1), cloned(POAD, 2), cloned(NTPO, 1))
    assert all(torch.equal(tensor, again[name]) for name, tensor in first.items())
    assert not all(torch.equal(tensor, other[name]) for name, tensor in first.items())
    assert all(torch.equal(tensor, ntpo[name]) for name, tensor in first.items() if "lora" in name)
    assert not torch.equal(first["critic.mlp.0.weight"], ntpo["critic.mlp.0.weight"])


# ------------------------------------------------------------------ critic


@pytest.mark.parametrize(("name", "smdp"), [("POAD", True), ("NTPO", False), ("TurnPPO", False)])
def test_targets_are_the_recorded_returns_discounted_as_by_the_credit(name: str, smdp: bool) -> None:
    model = make_method(name, lamp=TimedLampEnv, gamma=0.9, smdp_discount=smdp)
    randomise(model.policy)  # a critic that has values already changes no target
    samples = BC(model, SHAPES)._rollout(model.policy.critic).all_samples()

    inside = 0.9 if name == "NTPO" else 1.0  # of one token and the next
    between = 0.9 ** (2 if smdp else 1)
    targets, lengths = [], iter([len(path.action) for path in samples.paths])
    for episode in SHAPES:
        sizes = [next(lengths) for _ in episode]
        for t, size in enumerate(sizes):
            for token in range(size):
                total, discount = 0.0, inside ** (size - 1 - token)
                for later in range(t, len(episode)):
                    total += discount * episode[later]["reward"]
                    if later + 1 < len(episode):
                        discount *= between * inside ** (sizes[later + 1] - 1)
                targets.append(total if name != "TurnPPO" or token == 0 else None)
    valued = torch.tensor([target is not None for target in targets])
    assert torch.equal(samples.has_target, valued)
    expected = torch.tensor([target for target in targets if target is not None])
    torch.testing.assert_close(samples.targets[valued], expected)


@pytest.mark.parametrize("normalize_value", [False, True])
def test_the_critic_learns_the_returns(normalize_value: bool) -> None:
    model = make_agent(gamma=0.9, normalize_value=normalize_value)
    adapter = [parameter.clone() for parameter in model.policy.adapter_parameters()]
    BC(model, SHAPES, critic_learning_rate=3e-3).train(0, 1000)
    values = model.policy.token_values(paths(model.policy, SHAPES))
    firsts = torch.tensor([row[0] for row in values.values])
    returns = torch.tensor([0.5, 1 + 0.81 * -0.25 + 0.729 * 2, 0.9 * -0.25 + 0.81 * 2, -0.25 + 0.9 * 2, 2.0, 0.9, 1.0])
    assert (firsts - returns).square().mean() < 0.1 * returns.var()
    assert all(map(torch.equal, model.policy.adapter_parameters(), adapter))


@pytest.mark.parametrize("kind", ["dueling", "marginal"])
def test_only_states_are_observed_and_learned(kind: str) -> None:
    """Advantages are whitened by the actions of the policy in training, which the network of advantages reads."""
    model = make_agent(critic=kind)
    critic = model.policy.critic
    before = copy.deepcopy(critic.advantage.state_dict())
    BC(model, SHAPES).train(0, 1)
    assert all(torch.equal(tensor, before[name]) for name, tensor in critic.advantage.state_dict().items())
    assert critic.whitening.count > 0


# ------------------------------------------------------------------ warm start


@pytest.mark.parametrize("kind", [POAD, TWOSOME, GRPO])
def test_a_warm_start_has_the_log_probabilities_of_the_base(
    kind: type[LLMOnPolicyAlgorithm], base: tuple[POAD, Path], demonstrations: list[Episode]
) -> None:
    cloned, path = base
    arguments = {"action_sampling": "trie"} if kind is TWOSOME else {}
    model = keys(kind, seed=5, gamma=cloned.gamma, **arguments)
    fresh = [rng.bit_generator.state for rng in (model._shuffle_rng, model.policy.predict_rng)]
    warm_start(model, path)
    assert torch.equal(log_probs(model, demonstrations), log_probs(cloned, demonstrations))
    if model.policy.critic is not None:
        both = [
            algorithm.policy.token_values(paths(algorithm.policy, demonstrations)).outputs
            for algorithm in (model, cloned)
        ]
        assert torch.equal(*both)
    assert [rng.bit_generator.state for rng in (model._shuffle_rng, model.policy.predict_rng)] == fresh
    assert not any(state["state"] for name, state in model.get_parameters().items() if name != "policy")
    model.learn(16)
    assert model.num_timesteps >= 16


@pytest.mark.parametrize("critic", [False, True])
def test_a_warm_start_from_an_adapter(
    critic: bool, base: tuple[POAD, Path], demonstrations: list[Episode], tmp_path: Path
) -> None:
    cloned, _ = base
    write_adapter(cloned, tmp_path / "agent.safetensors", critic=critic)
    model = keys(POAD, seed=5, gamma=cloned.gamma)
    warm_start(model, tmp_path / "agent.safetensors")
    assert torch.equal(log_probs(model, demonstrations), log_probs(cloned, demonstrations))
    ours, theirs = (algorithm.policy.critic.state_dict().values() for algorithm in (model, cloned))
    assert all(map(torch.equal, ours, theirs)) == critic
    with pytest.raises(CheckpointError, match="Expected the base model the checkpoint was written with"):
        warm_start(keys(POAD, policy_kwargs={"model": "pocket-coder"}), tmp_path / "agent.safetensors")


@pytest.mark.parametrize(
    ("kind", "arguments", "difference"),
    [
        (NTPO, {}, r"gamma_token 1 instead of 0\.95"),
        (POAD, {"smdp_discount": True}, "smdp_discount False instead of True"),
    ],
)
def test_a_critic_of_other_values_is_not_loaded(
    kind: type[LLMOnPolicyAlgorithm],
    arguments: dict[str, Any],
    difference: str,
    base: tuple[POAD, Path],
    demonstrations: list[Episode],
) -> None:
    cloned, path = base
    model = keys(kind, seed=5, **arguments)
    before = copy.deepcopy(model.policy.critic.state_dict())
    with pytest.warns(
        UserWarning, match=rf"Only the adapter of .* with {difference}\. .*poad bc --algo {kind.__name__}"
    ):
        warm_start(model, path)
    assert torch.equal(log_probs(model, demonstrations), log_probs(cloned, demonstrations))
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.policy.critic.state_dict().items())


def test_a_critic_that_discounts_thoughts_otherwise_is_not_loaded(base: tuple[POAD, Path], tmp_path: Path) -> None:
    discounting = keys(POAD, action_sampling="think", gamma_thought=0.9)
    with pytest.warns(UserWarning, match=r"Only the adapter of .* with gamma_thought 1 instead of 0\.9"):
        warm_start(discounting, base[1])
    discounting.save(tmp_path / "discounting.zip")
    for other in (keys(POAD), keys(TurnPPO, action_sampling="think", gamma=0.95)):
        with pytest.warns(UserWarning, match=r"Only the adapter of .* with gamma_thought 0\.9 instead of 1"):
            warm_start(other, tmp_path / "discounting.zip")
    warm_start(keys(POAD, action_sampling="think", gamma_thought=0.9), tmp_path / "discounting.zip")


def test_a_checkpoint_without_an_adapter_is_refused(tmp_path: Path) -> None:
    BADQ("BADQPolicy", "KeyToken-v0").save(tmp_path / "heads.zip")
    for kind in (POAD, GRPO):
        with pytest.raises(CheckpointError, match=r"a checkpoint with an adapter; .* is of BADQ"):
            warm_start(keys(kind), tmp_path / "heads.zip")


def test_a_critic_of_another_trunk_is_refused(base: tuple[POAD, Path]) -> None:
    """Its inputs would be other features."""
    model = keys(POAD, seed=5, policy_kwargs={"critic_trunk": "live"})
    with pytest.raises(CheckpointError, match=r"Expected policy_kwargs\.critic_trunk as in .*, frozen; got live"):
        warm_start(model, base[1])
    warm_start(keys(GRPO, seed=5, policy_kwargs={"critic_trunk": "live"}), base[1])


@pytest.mark.parametrize(
    ("policy_kwargs", "match"),
    [
        ({"lora": {"lora_alpha": 8}}, "'lora_alpha': 16"),
        ({"prompt": CompletionPrompt(history=2)}, r"policy_kwargs\.prompt as in"),
        ({"model": "pocket-coder"}, "Expected the base model the checkpoint was written with"),
        ({"critic_arch": (8,)}, r"base.zip does not fit. .* first 'critic.*Fix: make the policy with .* critic_arch"),
    ],
)
def test_a_base_of_another_policy_is_refused(
    policy_kwargs: dict[str, Any], match: str, base: tuple[POAD, Path]
) -> None:
    model = keys(POAD, policy_kwargs=policy_kwargs)
    before = copy.deepcopy(model.policy.state_dict())
    with pytest.raises(CheckpointError, match=match):
        warm_start(model, base[1])
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.policy.state_dict().items())


# ------------------------------------------------------------------ episodes


def test_an_oracle_with_noise_repeats_itself_and_takes_listed_actions_only() -> None:
    name = "VirtualHome-Entertainment-v0"  # its oracle knows commands that are not listed
    episodes = oracle_episodes(name, 8, noise=0.4, seed=3)
    assert episodes == oracle_episodes(name, 8, noise=0.4, seed=3)
    assert episodes != oracle_episodes(name, 8, noise=0.4, seed=4)
    assert all(line["action"] in line["admissible_actions"] for episode in episodes for line in episode)
    best, worst = (oracle_episodes(name, 4, noise=noise) for noise in (0.0, 1.0))
    assert [len(episode) for episode in best] == [11] * 4
    assert all(episode[-1]["success"] for episode in best)
    assert not any(episode[-1]["success"] for episode in worst)


def test_sampled_episodes_leave_the_generators_alone(base: tuple[POAD, Path]) -> None:
    policy = base[0].policy
    before = repr(policy.predict_rng.bit_generator.state), repr(policy.rollout_rngs), torch.get_rng_state()
    episodes = policy_episodes(policy, KEYS, 6)
    assert episodes == policy_episodes(policy, KEYS, 6)
    assert episodes[3:] == policy_episodes(policy, KEYS, 3, first=3)
    assert (repr(policy.predict_rng.bit_generator.state), repr(policy.rollout_rngs)) == before[:2]
    assert torch.equal(torch.get_rng_state(), before[2])


def test_prompts_with_history_see_the_recorded_steps() -> None:
    model = keys(POAD, policy_kwargs={"prompt": CompletionPrompt(history=2)})
    (episode,) = oracle_episodes(KEYS, 1, noise=0.0)
    spec = model.policy.lm.prompter.template.context_spec
    questions = questions_of(episode, spec)
    assert [len(question.context.history) for question in questions] == [0, 1, 2, 2]
    assert questions[2].context.history[1].action == episode[1]["action"]
    (played,) = policy_episodes(model.policy, KEYS, 1)
    BC(model, [episode, played]).train(1, 1)


@pytest.mark.parametrize("keep_thoughts", [False, True])
def test_thoughts_are_cloned_with_their_actions(keep_thoughts: bool) -> None:
    teacher = keys(POAD, action_sampling="think", max_thought_tokens=4, keep_thoughts=keep_thoughts)
    episodes = [[{**line, "note": f"{line['observation'][-4:]}</think>"} for line in episode] for episode in SHAPES]
    cloned = BC(teacher, episodes)
    paths = [transition.path for transition in cloned._transitions]
    untidy = [[{**line, "note": line["note"] + ".\n"} for line in episode] for episode in episodes]
    assert [transition.path for transition in BC(teacher, untidy)._transitions] == paths, "as one token may spell it"
    before = teacher.policy.distribution.log_prob(paths).sum()
    cloned.train(3)
    assert teacher.policy.distribution.log_prob(paths).sum() > before + 1
    longer = [len(paths[n + 1].prompt) > len(paths[n].prompt) for n in (1, 2, 3, 5)]  # within an episode
    assert longer == [keep_thoughts] * 4
    with pytest.raises(ObservationError, match="Expected a thought before the action"):
        BC(teacher, SHAPES)


@pytest.mark.parametrize("end", ["</think>", "\n</think>\n\n"])
def test_episodes_of_a_thinking_policy_are_cloned_with_their_thoughts(end: str) -> None:
    thinking = {"action_sampling": "think", "thought_marks": ("<think>", end)}
    teacher, student = (keys(POAD, max_thought_tokens=n, **thinking) for n in (4, 16))
    episodes = policy_episodes(teacher.policy, KEYS, 4)
    lines = [line for episode in episodes for line in episode]
    prompter, n_ended = student.policy.lm.prompter, 0
    for line, transition in zip(lines, BC(student, episodes)._transitions, strict=True):
        thought = transition.path.action[: transition.path.n_thought]
        assert line["note"].endswith(end)
        assert prompter.action_text(thought) == line["note"]
        n_ended += not prompter.end_tokens.isdisjoint(thought)
    assert n_ended, "the end token of a thought is that token again"


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (
            {"action": "fly away"},
            r"^Step 1 of episode 0, seed 0, of lamp cannot be cloned. .*got 'fly away'\..*Fix",
        ),
        ({"admissible_actions": None}, "Expected a list of admissible actions; got none"),
    ],
)
def test_actions_that_the_policy_cannot_take_are_refused(change: dict[str, Any], match: str) -> None:
    episode = copy.deepcopy(SHAPES[1])
    episode[1] |= change
    with pytest.raises(ObservationError, match=match):
        BC(make_agent(), [episode])


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"max_new_tokens": 2}, "Expected actions of at most max_new_tokens=2 tokens; got one of 3, 'wait'"),
        ({"top_k": 5}, r"Expected top_k=0 and top_p=1, .*; got 5 and 1\.0\. Fix"),
    ],
)
def test_free_texts_that_cannot_be_sampled_are_refused(arguments: dict[str, Any], match: str) -> None:
    with pytest.raises(ObservationError, match=match):
        BC(make_method("POAD, free", **arguments), SHAPES)


@pytest.mark.parametrize("episodes", [[], [[]]])
def test_empty_episodes_are_refused(episodes: list[Episode]) -> None:
    with pytest.raises(ObservationError, match=r"Expected recorded steps to learn from; got \d episodes .* Fix: pass"):
        BC(make_agent(), episodes)


# ------------------------------------------------------------------ command line

SMALL = ("--set", "batch_size=8", "--set", "policy_kwargs.critic_arch=[8]")
SHORT = ("--n-epochs", "2", "--eval-episodes", "3", *SMALL)


@pytest.mark.filterwarnings("default:Only the adapter")
def test_the_commands_from_episodes_to_reinforcement_learning(run: Run) -> None:
    output = run("bc", "--env", KEYS, "--env", "MultiKey-v0", "--n-episodes", "4", "--out", "base", *SHORT)
    record = json.loads(Path("base/bc.json").read_text())
    assert record["episodes"] == 8
    assert record["steps"] == 4 * 4 + 4 * 4
    assert [epoch["mean_success"] for epoch in record["epochs"]] == [None, None]
    assert set(record["successes"]["after"]) == {KEYS, "MultiKey-v0"}
    assert "MultiKey-v0" in output
    assert "KeyToken" in run("eval", "base", "--env", KEYS, "--episodes", "2")

    train = ("train", KEYS, "--algo", "NTPO", "--steps", "16", "--set", "n_steps=16", "--record-episodes", "1", *SMALL)
    run(
        *train,
        "--warm-start",
        "base",
        "--out",
        "rl",
        "--set",
        "learning_rate=1e-9",
        "--set",
        "critic_learning_rate=1e-9",
    )
    cloned, trained = POAD.load("base/latest.zip").policy, NTPO.load("rl/latest.zip").policy
    for ours, expected in zip(trained.adapter_parameters(), cloned.adapter_parameters(), strict=True):
        torch.testing.assert_close(ours, expected, atol=1e-6, rtol=0)
    assert json.loads(Path("rl/config.json").read_text())["warm_start"] == str(Path("base").resolve())
    assert "There is no checkpoint" in run(*train, "--warm-start", "nowhere", "--out", "none", code=1)
    assert not Path("none").exists()
    assert "--warm-start" in run(*train, "--warm-start", "rl", "--out", "rl", "--resume", code=1)

    steps = [line for line in read_results(Path("rl/episodes.jsonl")).episodes if line["steps_list"]]
    run("bc", "--env", KEYS, "--episodes", "rl/episodes.jsonl", "--out", "again", *SHORT)
    assert json.loads(Path("again/bc.json").read_text())["episodes"] == len(steps)
    assert len(recorded_episodes("rl/episodes.jsonl")) == len(steps)
    files = {Path("rl/episodes.steps.jsonl"): ('"invalid":false', '"invalid":true')}
    files[Path("rl/episodes.jsonl")] = ('"invalid_actions":0', '"invalid_actions":1')
    before = {path: path.read_text() for path in files}
    for path, change in files.items():
        path.write_text(before[path].replace(*change, 1))
    output = run("bc", "--env", KEYS, "--episodes", "rl/episodes.jsonl", "--out", "fewer", *SHORT)
    assert f"1 of {len(steps)} episodes have invalid actions and are left out" in output
    for path, text in before.items():
        path.write_text(text)
    wrong = ("bc", "--env", "MultiKey-v0", "--episodes", "rl/episodes.jsonl", "--out", "none", *SHORT)
    run(*wrong, code=1)
    assert not Path("none").exists()


def test_a_cloned_policy_outlives_the_fit_of_its_critic(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(BC, "_fit_critic", fail)
    run("bc", "--env", KEYS, "--n-episodes", "4", "--out", "base", *SHORT, code=130)
    assert POAD.load("base/latest.zip").num_timesteps == 0


def test_evaluations_have_other_episodes_than_the_recording(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    played: list[int] = []

    def play(policy: Any, env_id: str, n_episodes: int, *, first: int, **arguments: Any) -> list[Episode]:
        played.extend(range(first, first + n_episodes))
        return policy_episodes(policy, env_id, n_episodes, first=first, **arguments)

    train = ("train", KEYS, "--steps", "16", "--set", "n_steps=16", "--record-episodes", "5", "--out", "rl", *SMALL)
    run(*train)
    recorded = {line["episode"] for line in read_results(Path("rl/episodes.jsonl")).episodes}
    monkeypatch.setattr("poad_sb3.bc.policy_episodes", play)
    run("bc", "--env", KEYS, "--env-set", "horizon=4", "--episodes", "rl/episodes.jsonl", "--out", "base", *SHORT)
    assert recorded
    assert len({*played}) == len(played) == 6
    assert not recorded & {*played}
