"""BADQ: targets against brute force and tabular optima, the replay buffer, learning, resuming, refusals."""

import io
import itertools
import json
import pickle
import zipfile

import gymnasium as gym
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from toy import LampEnv, SaveAt, everything, properties, randomise

from benchmarks.exact import (
    greedy_actions,
    random_token_mdp,
    solve_soft_tokens,
    solve_tokens,
    uniform_over_actions,
)
from lang_envs.wrappers import AdmissibleObservation
from poad_sb3 import POAD, CheckpointError, UnsupportedEnvError
from poad_sb3.badq import BADQ
from poad_sb3.badq.policy import KnownQuestion
from poad_sb3.badq.replay import Transition, TransitionBuffer
from poad_sb3.badq.targets import HardBackup, SoftBackup
from poad_sb3.badq.tree import build_tree, question_tree
from poad_sb3.badq.update import gather, update_head
from poad_sb3.distributions.action_trie import build_trie
from poad_sb3.distributions.base import TokenPath
from poad_sb3.errors import NoEffectWarning
from poad_sb3.language_model.packing import TokenRow
from poad_sb3.prompts import Question

SALAD = "Overcooked-TomatoSalad-v0"
SMALL = {"learning_starts": 10, "batch_size": 8, "exploration_steps": 30, "policy_kwargs": {"critic_arch": (16,)}}
BETA = 0.3
seeds = st.integers(0, 2**32 - 1)

# ---------------------------------------------------------------------- the tree of a question


def random_actions(rng):
    return random_token_mdp(rng, gamma=0.9, n_splits=8).actions


@properties
@given(seeds)
def test_tree_equals_slow_loops_over_actions(seed):
    actions = random_actions(np.random.default_rng(seed))
    tree = build_tree((7, 8), build_trie(actions))
    branching = {a[:j] for a in actions for j in range(len(a)) if len({b[j] for b in actions if b[:j] == a[:j]}) > 1}
    for action, path in zip(actions, tree.paths, strict=True):
        ends = [action[: j + 1] for j in range(len(action)) if action[:j] in branching] or [action[:1]]
        assert len(path) == len(ends)
        for edge, end, following in zip(path, ends, [*ends[1:], None], strict=True):
            assert tree.below[edge] == sum(other[: len(end)] == end for other in actions)
            assert tree.children[tree.node_of[edge]][edge - tree.edges_of(tree.node_of[edge]).start] == end[-1]
            node = tree.following[edge]
            assert (node == -1) == (following is None)
            read, spelled = tree.row.reads[edge], []
            while read >= 0:
                spelled.append(tree.row.tokens[read])
                read = tree.row.parents[read]
            assert tuple(reversed(spelled)) == (7, 8, *end), "the edge's feature is read at its token"
        assert path[0] in tree.edges_of(0)
        for edge, after in itertools.pairwise(path):
            assert after in tree.edges_of(tree.following[edge])


def test_features_are_the_frozen_hidden_states_at_the_tokens(lm):
    question = Question("The lamp is red.", ("press the red button", "press the red lever", "press the blue button"))
    tree = question_tree(lm, question)
    n_edges = len(tree.following)
    assert n_edges == 4  # red or blue, then button or lever
    features = lm.trunk_features([tree.row])[0]
    prompt, lever = lm.prompt_ids(question.text), lm.action_ids(question.actions[1])
    edge = tree.paths[1][-1]
    position = lever.index(tree.children[tree.node_of[edge]][edge - tree.edges_of(tree.node_of[edge]).start])
    row = TokenRow((*prompt, *lever), None, (len(prompt) + position, len(prompt) + position - 1))
    plain = lm.trunk_features([row])[0]
    assert torch.allclose(features[edge], plain[0], atol=1e-4)
    assert torch.allclose(features[n_edges + tree.node_of[edge]], plain[1], atol=1e-4)


# ---------------------------------------------------------------------- targets


@properties
@given(seeds, st.integers(1, 6))
def test_backups_equal_slow_loops(seed, n_groups):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 5, size=n_groups)
    groups = torch.from_numpy(np.repeat(np.arange(n_groups), sizes))
    online, target, reference = (torch.from_numpy(rng.normal(size=len(groups))) for _ in range(3))
    reference = torch.cat([torch.log_softmax(reference[groups == g], 0) for g in range(n_groups)])
    given_ = (online, target, reference, groups, n_groups)
    for g in range(n_groups):
        mine = [(float(q), float(t), float(p)) for q, t, p in zip(online, target, reference, strict=True)]
        mine = [child for child, group in zip(mine, groups, strict=True) if group == g]
        best = max(mine)[1]
        soft = BETA * np.log(sum(np.exp(p + t / BETA) for _, t, p in mine))
        assert float(HardBackup(double=False).values(*given_)[g]) == max(t for _, t, _ in mine)
        assert float(HardBackup(double=True).values(*given_)[g]) == best
        assert float(SoftBackup(BETA).values(*given_)[g]) == pytest.approx(soft, abs=1e-6)
        log_policy = SoftBackup(BETA).log_policy(target, reference, groups, n_groups)[groups == g]
        assert log_policy.numpy() == pytest.approx([p + (t - soft) / BETA for _, t, p in mine], abs=1e-6)
    greedy = HardBackup(double=True).log_policy(online, reference, groups, n_groups).exp()
    assert [int(greedy[groups == g].argmax()) for g in range(n_groups)] == [
        int(online[groups == g].argmax()) for g in range(n_groups)
    ]
    assert greedy.sum() == pytest.approx(n_groups)


def test_equally_good_children_share():
    policy = HardBackup(double=True).log_policy(torch.tensor([1.0, 2.0, 2.0]), torch.zeros(3), torch.zeros(3).long(), 1)
    assert policy.exp().tolist() == pytest.approx([0, 0.5, 0.5])


class Tabular:
    """The trees of a `TokenMDP`: the trie node of each flat edge of each state."""

    def __init__(self, mdp):
        self.mdp, self.number = mdp, {prefix: node for node, prefix in enumerate(mdp.trie.prefixes)}
        self.admissible = [np.flatnonzero(row).tolist() for row in mdp.admissible]
        self.trees = [
            build_tree((0,), build_trie(tuple(mdp.actions[a] for a in row))) if row else None for row in self.admissible
        ]

    def nodes(self, state):
        """Node of the trie that each edge leads to."""
        tree, nodes = self.trees[state], {}
        for action, path in zip(self.admissible[state], tree.paths, strict=True):
            tokens = self.mdp.actions[action]
            branching = [
                j
                for j in range(len(tokens))
                if len(
                    {self.mdp.actions[a][j] for a in self.admissible[state] if self.mdp.actions[a][:j] == tokens[:j]}
                )
                > 1
            ]
            for edge, j in zip(path, branching or [0], strict=True):
                nodes[edge] = self.number[tokens[: j + 1]]
        return [nodes[edge] for edge in range(len(nodes))]


def in_groups(tree, weights):
    """Log of weights, normalised among the edges of each node."""
    log = torch.as_tensor(np.log(weights))
    return torch.cat([torch.log_softmax(log[list(tree.edges_of(n))], 0) for n in range(len(tree.children))])


class TableHeads(torch.nn.Module):
    """Heads that are tables, behind one-hot features."""

    def __init__(self, size):
        super().__init__()
        self.online, self.target = (torch.nn.Linear(size, 1, bias=False, dtype=torch.float64) for _ in range(2))
        for head in (self.online, self.target):
            torch.nn.init.zeros_(head.weight)
            head.register_forward_hook(lambda _module, _inputs, output: output.squeeze(-1))


@pytest.mark.parametrize("soft", [False, True])
def test_the_update_solves_a_tabular_problem_exactly(soft):
    """The replay, `gather` and `update_head` as they are; only the features are one-hot and the head a table."""
    rng = np.random.default_rng(101)
    mdp = random_token_mdp(rng, gamma=0.8)
    certain = np.eye(len(mdp.rewards))[rng.integers(len(mdp.rewards), size=mdp.rewards.shape)]
    mdp = type(mdp)(mdp.actions, mdp.admissible, 0.3 * mdp.rewards, certain, mdp.gamma)
    table = Tabular(mdp)
    total = sum(len(tree.following) for tree in table.trees if tree is not None)
    one_hot, start, entries = torch.eye(total, dtype=torch.float64), 0, {}
    questions = [Question(f"state {s}", tuple(map(str, row))) for s, row in enumerate(table.admissible)]
    for question, tree in zip(questions, table.trees, strict=True):
        if tree is not None:
            n_edges = len(tree.following)
            log_reference = in_groups(tree, np.array(tree.below, dtype=np.float64))
            entries[question] = KnownQuestion(
                tree, one_hot[start : start + n_edges], log_reference, torch.tensor(tree.node_of)
            )
            start += n_edges
    transitions = []
    for state, row in enumerate(table.admissible):
        for index, action in enumerate(row):
            after = int(mdp.transitions[state, action].argmax())
            following = None if mdp.terminal[after] else questions[after]
            transitions.append(Transition(questions[state], index, float(mdp.rewards[state, action]), following))
    batch = gather(entries.__getitem__, transitions, mdp.gamma)
    heads, backup = TableHeads(total), SoftBackup(BETA) if soft else HardBackup(double=True)
    most = float(batch.features.sum(0).max())
    optimizer = torch.optim.SGD(heads.online.parameters(), lr=len(batch.features) / most)
    for _ in range(1000):
        update_head(heads, optimizer, batch, backup, max_grad_norm=1e9)
        heads.target.load_state_dict(heads.online.state_dict())
    solution = solve_soft_tokens(mdp, uniform_over_actions(mdp), BETA) if soft else solve_tokens(mdp, 1.0)
    weights, start = heads.online.weight[0].detach().numpy(), 0
    for state in np.flatnonzero(~mdp.terminal):
        nodes = table.nodes(state)
        assert weights[start : start + len(nodes)] == pytest.approx(solution.q[state, nodes], abs=1e-6)
        start += len(nodes)
    if not soft:
        assert (greedy_actions(mdp, solution)[~mdp.terminal] >= 0).all()


def test_several_steps_discount_what_follows():
    question = Question("o", ("a", "b"))
    tree = build_tree((0,), build_trie(((1,), (2,))))
    entry = KnownQuestion(tree, torch.eye(2), torch.zeros(2), torch.zeros(2).long())
    rows = [Transition(question, 0, 1.0, question, 3), Transition(question, 1, 2.0, None, 2)]
    batch = gather({question: entry}.__getitem__, rows, 0.5)
    assert batch.discounts.tolist() == [0.125, 0.0]
    assert batch.is_open.tolist() == [True, False]
    assert len(batch.next_features) == 2


def test_minibatches_of_terminal_transitions_learn_the_reward():
    question = Question("o", ("a",))
    entry = KnownQuestion(
        build_tree((0,), build_trie(((1, 2),))), torch.ones(1, 1).double(), torch.zeros(1), torch.zeros(1).long()
    )
    batch = gather({question: entry}.__getitem__, [Transition(question, 0, -2.0, None)], 0.9)
    heads = TableHeads(1)
    optimizer = torch.optim.SGD(heads.online.parameters(), lr=1.0)
    for _ in range(5):
        update_head(heads, optimizer, batch, HardBackup(double=True), 10.0)
    assert heads.online.weight.item() == pytest.approx(-2.0)


# ---------------------------------------------------------------------- the replay buffer


def fill(buffer, n_steps, rng):
    """Random episodes of `n_envs` environments; returns every step of each, as (transition, ended)."""
    histories, names = [[] for _ in range(buffer.n_envs)], iter(range(10**6))
    current = [Question(f"start {next(names)}", ("a",)) for _ in histories]
    for _ in range(n_steps):
        for env, history in enumerate(histories):
            ends = rng.random() < 0.2
            terminated = ends and rng.random() < 0.5
            after = None if terminated else Question(f"q {next(names)}", ("a",))
            history.append((Transition(current[env], 0, float(rng.normal()), after, ends=ends), ends))
            buffer.add(history[-1][0])
            current[env] = Question(f"start {next(names)}", ("a",)) if ends else after
    return histories


@pytest.mark.parametrize(("capacity", "n_envs", "n_steps"), [(20, 1, 50), (21, 3, 17)])
def test_joined_steps_equal_a_slow_loop(capacity, n_envs, n_steps):
    rng = np.random.default_rng(101)
    buffer = TransitionBuffer(capacity, n_envs)
    histories = fill(buffer, n_steps, rng)
    latest = [t.question for step in zip(*histories, strict=True) for t, _ in step][-capacity:]
    joined_of = {transition.question: transition for transition in buffer.sample(40 * capacity, rng, 4, 0.9)}
    assert set(joined_of) == set(latest), "the latest are kept"
    for history in histories:
        for index, (first, _) in enumerate(history):
            if first.question not in joined_of:
                continue
            reward, steps = 0.0, 0
            for transition, ends in history[index : index + 4]:
                reward += 0.9**steps * transition.reward
                steps, last = steps + 1, transition
                if ends:
                    break
            assert joined_of[first.question].reward == pytest.approx(reward)
            assert joined_of[first.question]._replace(reward=0.0) == Transition(
                first.question, 0, 0.0, last.following, steps, last.ends
            )


SAME = Question("nothing seems to change", ("a", "b"))


def test_joined_steps_stop_at_a_time_limit_although_the_next_episode_begins_with_the_same_question():
    buffer = TransitionBuffer(10)
    for ends in (False, True, False, False):
        buffer.add(Transition(SAME, 1, 1.0, SAME, ends=ends))
    again = pickle.loads(pickle.dumps(buffer))
    for filled in (buffer, again):
        joined = [filled._joined(age, 4, 0.5) for age in range(4)]
        assert [(each.reward, each.steps) for each in joined] == [(1.5, 2), (1.0, 1), (1.5, 2), (1.0, 1)]


@pytest.mark.parametrize(("capacity", "n_envs", "added"), [(5, 3, 9), (2, 3, 3), (4, 1, 0)])
def test_joined_steps_stop_where_episodes_were_left(capacity, n_envs, added):
    buffer = TransitionBuffer(capacity, n_envs)
    for _ in range(added):
        buffer.add(Transition(SAME, 0, 1.0, SAME))
    buffer.leave_episodes()
    ends = [buffer._at(age).ends for age in range(len(buffer))]
    last = min(n_envs, len(buffer))
    assert ends == [False] * (len(buffer) - last) + [True] * last


# ---------------------------------------------------------------------- the policy


def make(env=None, seed=101, **kwargs):
    return BADQ("BADQPolicy", LampEnv() if env is None else env, seed=seed, **{**SMALL, **kwargs})


def ask(model):
    observation = model.get_env().reset()
    text, listed = str(observation["text"][0]), json.loads(str(observation["admissible_actions"][0]))
    return text, listed


def test_an_untrained_soft_policy_is_the_reference():
    text, listed = ask(make())
    uniform = make(soft=True, reference="uniform-actions").policy.action_probabilities(text, listed)
    assert list(uniform.values()) == pytest.approx([1 / len(listed)] * len(listed))
    base = make(soft=True, reference="base").policy.action_probabilities(text, listed)
    model = POAD("LLMPolicy", LampEnv(), seed=0)  # a fresh adapter is the identity
    assert base == pytest.approx(model.policy.action_probabilities(text, listed), abs=1e-5)


@pytest.mark.parametrize(("soft", "name", "value"), [(False, "beta", 0.5), (True, "double_q", False)])
def test_an_argument_without_effect_is_warned_of(soft, name, value):
    with pytest.warns(NoEffectWarning, match=f"{name}={value} has no effect with soft={soft}"):
        make(soft=soft, **{name: value})


@pytest.mark.parametrize("soft", [False, True])
def test_predict_walks_the_trie_by_q(soft):
    model = make(soft=True, beta=1.0, reference="uniform-actions") if soft else make()
    randomise(model.policy.critic.online.mlp[-2], scale=3.0)
    with torch.no_grad():
        model.policy.critic.online.mlp[-2].weight.normal_(generator=torch.Generator().manual_seed(3))
    text, listed = ask(model)
    question = Question(text, tuple(listed))
    tree, features, _, _ = model.policy.distribution.known(question)
    q = model.policy.critic(features).detach().numpy()
    probabilities = model.policy.action_probabilities(text, listed)
    assert sum(probabilities.values()) == pytest.approx(1)
    node, path = 0, []
    while node != -1 and not soft:
        path.append(max(tree.edges_of(node), key=lambda edge: q[edge]))
        node = tree.following[path[-1]]
    best = max(probabilities, key=probabilities.get)
    if not soft:
        assert tree.paths[listed.index(best)] == tuple(path)
        assert probabilities[best] == pytest.approx(1)
    action, _ = model.predict(text, deterministic=True, admissible_actions=listed)
    assert model.action_space.decode(action) == best
    (chosen,) = model.policy.distribution.mode([question], None)
    assert chosen.path == TokenPath(model.policy.lm.prompt_ids(question), model.policy.lm.action_ids(best), ())
    values = model.policy.predict_values(model.get_env().reset())
    assert values.shape == (1,)
    (rng,) = model.policy.rngs_of(1)
    drawn = [model.policy.distribution.pick(question, rng) for _ in range(400)]
    frequencies = np.bincount(drawn, minlength=len(listed)) / 400
    assert frequencies == pytest.approx(list(probabilities.values()), abs=0.1)


def test_exploring_picks_whole_actions_uniformly():
    model = make()
    text, listed = ask(model)
    picks = [model.policy.explore([Question(text, tuple(listed))], 1.0)[1][0] for _ in range(1000)]
    assert np.bincount(picks, minlength=len(listed)) / 1000 == pytest.approx([1 / len(listed)] * len(listed), abs=0.06)


# ---------------------------------------------------------------------- learning


def mean_return(model, env, episodes=20):
    checked = Monitor(AdmissibleObservation(env))
    checked.reset(seed=9)
    return evaluate_policy(model, checked, n_eval_episodes=episodes)[0]


@pytest.mark.matrix
@pytest.mark.parametrize(
    "arguments",
    [{"soft": True, "beta": 0.02}, {"n_steps": 1, "double_q": False, "target_update_interval": 50, "tau": 1.0}],
    ids=["soft", "one step, hard target updates"],
)
def test_learns_the_lamp_to_the_optimum(arguments):
    settings = {
        "learning_starts": 60,
        "exploration_steps": 250,
        "learning_rate": lambda left: 2e-3 * left,
    }
    model = BADQ("BADQPolicy", LampEnv(), seed=102, **{**settings, **arguments})
    assert mean_return(model, LampEnv()) < 2
    model.learn(500)
    assert mean_return(model, LampEnv()) == pytest.approx(3.0)


def test_only_the_heads_move():
    model = make()
    before = {name: tensor.clone() for name, tensor in model.policy.named_parameters()}
    buffers = {name: tensor.clone() for name, tensor in model.policy.lm.named_buffers()}
    model.learn(60)
    for name, tensor in model.policy.named_parameters():
        assert torch.equal(before[name], tensor) == name.startswith("lm."), name
    for name, tensor in model.policy.lm.named_buffers():
        assert torch.equal(buffers[name], tensor), name


@pytest.mark.parametrize("truncates", [False, True])
def test_only_truncated_episodes_bootstrap_and_from_their_true_end(truncates):
    model = make(make_vec_env(lambda: LampEnv(truncates=truncates), 2)).learn(40)
    items = [model.replay_buffer._at(age) for age in range(len(model.replay_buffer))]
    assert len(items) == 40
    last = [transition.following for transition in items if "1 moves left" in transition.question.text]
    assert len(last) >= 10
    for following in last:
        assert (following is not None) == truncates
        assert not truncates or "0 moves left" in following.text
    assert all(
        transition.following is not None for transition in items if "1 moves left" not in transition.question.text
    )


# ---------------------------------------------------------------------- checkpoints


def fingerprint(model):
    """Everything that training goes on from, as one comparable value."""
    items = [model.replay_buffer._at(age) for age in range(len(model.replay_buffer))]
    return everything(model), model._episode_num, model._steps_since_update, items


@pytest.mark.parametrize(
    ("step", "arguments"), [(33, {}), (5, {"soft": True, "train_freq": 4, "gradient_steps": 2, "buffer_size": 25})]
)
def test_a_save_at_any_step_resumes_exactly(tmp_path, step, arguments):
    path = tmp_path / "at.zip"
    straight = make(SALAD, **arguments).learn(60, callback=SaveAt(step, path))
    np.random.random(7)  # the process's own generators are elsewhere by now
    torch.rand(3)
    resumed = BADQ.load(path, SALAD)
    assert resumed.num_timesteps == step
    resumed.learn(60 - step, reset_num_timesteps=False)
    assert fingerprint(resumed) == fingerprint(straight)


def test_training_twice_is_training_once(tmp_path):
    envs = [make_vec_env(LampEnv, 3) for _ in range(3)]
    straight = make(envs[0]).learn(90)
    first = make(envs[1]).learn(45)
    first.save(tmp_path / "model")
    loaded = BADQ.load(tmp_path / "model", envs[2])
    for model in (first, loaded):
        assert fingerprint(model.learn(45, reset_num_timesteps=False)) == fingerprint(straight)


def test_a_reset_counter_renews_the_whitening():
    model = make().learn(60)
    assert model._whitened_at == 40  # from 10, twice as late each time
    model.learn(15)
    assert model._whitened_at == 10


def test_another_number_of_environments_than_filled_the_replay_buffer_is_refused():
    model = make(make_vec_env(LampEnv, 2)).learn(40)
    whole, light = io.BytesIO(), io.BytesIO()
    model.save(whole)
    model.save(light, exclude=["replay_buffer"])
    wrong = r"Expected 2 environments, as many as fill the saved replay buffer; got 3\. Fix: pass that many"
    with pytest.raises(ValueError, match=wrong):
        BADQ.load(whole, make_vec_env(LampEnv, 3))
    loaded = BADQ.load(whole)
    with pytest.raises(ValueError, match=r"Expected 2 environments, as before; got 1\. Fix: pass that many"):
        loaded.set_env(LampEnv())
    assert np.isfinite(mean_return(loaded, LampEnv(), episodes=1))
    other = BADQ.load(light, make_vec_env(LampEnv, 3))
    with pytest.warns(UserWarning, match=r"exact_resume=False.*Fix"):
        other.learn(12, reset_num_timesteps=False)
    assert (len(other.replay_buffer), other.replay_buffer.n_envs) == (12, 3)


def test_without_the_replay_buffer_training_goes_on_from_an_empty_one():
    model = make().learn(40)
    whole, light = io.BytesIO(), io.BytesIO()
    model.save(whole)
    model.save(light, exclude=["replay_buffer"])
    for file, exact in ((whole, True), (light, False)):
        with zipfile.ZipFile(file) as archive:
            header = json.loads(archive.read("poad.json"))
        assert header["exact_resume"] is exact
        assert header["algorithm"] == "BADQ"
        file.seek(0)
    loaded = BADQ.load(light, LampEnv())
    assert len(loaded.replay_buffer) == 0
    loaded.learn(30, reset_num_timesteps=False)
    assert len(loaded.replay_buffer) == 30
    assert loaded._n_updates > model._n_updates


def test_a_foreign_checkpoint_and_another_buffer_size_are_refused(tmp_path):
    make().save(tmp_path / "badq.zip")
    POAD("LLMPolicy", LampEnv(), seed=0, policy_kwargs={"critic_arch": (8,)}).save(tmp_path / "poad.zip")
    with pytest.raises(CheckpointError, match=r"Expected a checkpoint of BADQ; got one of POAD.*\. Fix: POAD\.load"):
        BADQ.load(tmp_path / "poad.zip")
    with pytest.raises(ValueError, match="Expected buffer_size=20000"):
        BADQ.load(tmp_path / "badq.zip", buffer_size=7)


# ---------------------------------------------------------------------- refusals


def test_nonfinite_reward_stops_before_anything_is_learned():
    class Broken(gym.Wrapper):
        def step(self, action):
            observation, _, *rest = self.env.step(action)
            return observation, float("nan"), *rest

    model = make(Broken(AdmissibleObservation(LampEnv())))
    with pytest.raises(FloatingPointError, match=r"Expected finite rewards; got .*Fix: correct the environment"):
        model.learn(16)
    assert len(model.replay_buffer) == 0


def test_diverged_heads_are_refused():
    model = make().learn(20)
    with torch.no_grad():
        model.policy.critic.online.mlp[0].weight[0, 0] = float("nan")
    with pytest.raises(FloatingPointError, match=r"Expected a finite gradient of the Q head; got norm nan.*Fix"):
        model.train()
    with pytest.raises(FloatingPointError, match=r"Expected finite Q-values.*Fix: the head diverged"):
        model.predict(model.get_env().reset())


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"policy": "MlpPolicy"}, ValueError, r"Expected policy to be one of .*got 'MlpPolicy'\. Fix: BADQ\("),
        ({"env": "CartPole-v1"}, UnsupportedEnvError, r"TokenSequence action space; got Discrete.*Fix"),
        ({"tau": 0}, ValueError, r"Expected tau to be a number above 0, at most 1; got 0\."),
        ({"soft": "no"}, TypeError, r"Expected soft to be True or False; got 'no'\."),
        ({"policy_kwargs": {"beta": 1.0}}, ValueError, "policy_kwargs among .*'beta'"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_wrong_arguments_are_refused(arguments, error, match):
    with pytest.raises(error, match=match):
        BADQ(**{"policy": "BADQPolicy", "env": SALAD, **arguments})
