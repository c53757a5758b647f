"""Registered environments as finite problems, and the worked example of the golden vectors."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

import lang_envs  # registers the ids
from benchmarks.exact.exploring import explore, random_policy
from benchmarks.exact.gradients import Floats, TimedMDP
from benchmarks.exact.problems import TokenMDP
from lang_envs.envs.multikey.admissible import key_slots

_VECTORS = Path(__file__).parents[3] / "data/golden/credit/estimators.json"


@dataclass(frozen=True, eq=False)
class Problem:
    """A task as a finite problem.

    Attributes:
        timed: Problem with its time limit.
        texts: Text and listed actions of each observation, in the order of their numbers; none without an environment.
        successes: Whether an action ends the episode in success, `[states, actions]`; where all actions have to be
            right, whether this one is.
        decisions: Number of actions that all have to be right; 0 if the last one decides.
    """

    timed: TimedMDP
    texts: Sequence[tuple[str, tuple[str, ...]]]
    successes: NDArray[np.bool_]
    decisions: int = 0

    def success_rate(self, policy: Floats) -> float:
        """Return the probability that an episode succeeds; an upper bound where steps are not right equally often."""
        from benchmarks.exact.gradients import visits

        chances = self.timed.action_probabilities(policy) * self.successes
        expected = float((visits(self.timed, policy).sum(axis=0)[:, None] * chances).sum())
        return (expected / self.decisions) ** self.decisions if self.decisions else expected


@cache
def _tokenize() -> Callable[[str], tuple[int, ...]]:
    from poad_sb3.language_model.language_model import LanguageModel

    return LanguageModel("pocket", is_trained=False).action_ids


def explored(env_id: str) -> Problem:
    """Return a deterministic environment as a problem.

    States are those of the world without its clock. The clock counts steps, or primitive moves where an action takes
    several, up to the environment's own time limit.
    """
    env = gym.make(env_id, disable_env_checker=True).unwrapped
    assert isinstance(env, lang_envs.LangEnv)
    graph = explore(env, random_policy)
    start = env.get_state()
    start.pop("digest")
    texts: dict[tuple[str, tuple[str, ...]], int] = {}
    listed = []
    for world in graph.worlds:
        env.set_state(start | {"world": world})
        question = str(env._describe()), tuple(env.admissible_actions() or ())
        listed.append(texts.setdefault(question, len(texts)))
    ways: list[list[tuple[str, float, int | None, int, bool]]] = [[] for _ in graph.worlds]
    for edge in graph.edges:
        after = None if edge.target < 0 else edge.target
        ways[edge.source].append((edge.text, edge.reward, after, edge.duration, edge.success))
    return _assembled(ways, listed, list(texts), graph.limit, np.eye(1, len(ways) + 1)[0])


def _assembled(
    ways: Sequence[Sequence[tuple[str, float, int | None, int, bool]]],
    listed: Sequence[int],
    texts: Sequence[tuple[str, tuple[str, ...]]],
    limit: int,
    start: Floats,
    tokenize: Callable[[str], tuple[Any, ...]] | None = None,
) -> Problem:
    """Fill the arrays; the last state is the end."""
    phrases = list(dict.fromkeys(action for outcomes in ways for action, *_ in outcomes))
    columns = {phrase: number for number, phrase in enumerate(phrases)}
    n_states, n_actions = len(ways) + 1, len(phrases)
    shape = (n_states, n_actions)
    admissible, successes = np.zeros(shape, dtype=bool), np.zeros(shape, dtype=bool)
    rewards, durations = np.zeros(shape), np.ones(shape, dtype=np.int64)
    transitions = np.zeros((*shape, n_states))
    for state, outcomes in enumerate(ways):
        for action, reward, after, duration, success in outcomes:
            at = (state, columns[action])
            admissible[at], rewards[at], durations[at], successes[at] = True, reward, duration, success
            transitions[(*at, n_states - 1 if after is None else after)] = 1.0
    tokens = tuple(map(tokenize or _tokenize(), phrases))
    mdp = TokenMDP(tokens, admissible, rewards, transitions, 1.0)
    observations = np.array([*listed, max(listed) + 1])
    return Problem(TimedMDP(mdp, start, limit, durations, observations), texts, successes)


def independent(env_id: str, *, share: bool, **kwargs: Any) -> Problem:
    """Return KeyToken or MultiKey as a problem: closed form, as their targets are drawn independently.

    Args:
        env_id: `KeyToken-v0` or `MultiKey-v0`.
        share: Whether steps share logits. KeyToken: one for each announced key and word. MultiKey: one for each slot
            and word counted from the right one, for all targets too; as every target is then alike, only one is listed.
            If False, there is one logit for each observation, prefix and token.
        **kwargs: Arguments of the environment.
    """
    env: Any = gym.make(env_id, disable_env_checker=True, **kwargs).unwrapped
    env.reset(seed=0)
    multikey = hasattr(env, "key_slots")
    n_words = env.n_words if multikey else env.n_actions
    n_keys = env.k if multikey else 1
    targets = np.array(np.meshgrid(*[np.arange(n_words)] * n_keys, indexing="ij")).reshape(n_keys, -1).T
    if multikey and share:
        targets = targets[:1]
    n_targets, n_actions, horizon = len(targets), len(env.sentences), env.horizon
    n_states = horizon * n_targets + 1
    rewards, right = np.zeros((n_states, n_actions)), np.zeros((n_states, n_actions), dtype=bool)
    texts = []
    first = env.get_state()
    first.pop("digest")
    for step in range(horizon):
        for number, target in enumerate(targets.tolist()):
            state = step * n_targets + number
            answers = (False,) * step
            world = first["world"]._replace(answers=answers, steps=step, target=tuple(target))
            env.set_state(first | {"world": world})
            texts.append((str(env._describe()), tuple(env.sentences)))
            scored = [env._score(action) for action in range(n_actions)]
            rewards[state] = [reward / horizon for reward, _, _ in scored]
            right[state] = [correct for _, _, correct in scored]
    admissible = np.ones((n_states, n_actions), dtype=bool)
    admissible[-1] = False
    transitions = np.zeros((n_states, n_actions, n_states))
    for step in range(horizon):
        rows = slice(step * n_targets, (step + 1) * n_targets)
        if step + 1 < horizon:
            transitions[rows, :, (step + 1) * n_targets : (step + 2) * n_targets] = 1 / n_targets
        else:
            transitions[rows, :, -1] = 1.0
    start = np.zeros(n_states)
    start[:n_targets] = 1 / n_targets
    mdp = TokenMDP(tuple(map(_tokenize(), env.sentences)), admissible, rewards, transitions, 1.0)
    durations = np.ones((n_states, n_actions), dtype=np.int64)
    shared = None
    if share:
        shared = _by_slot(mdp, env.k + env.d, n_words) if multikey else _by_key(mdp, n_targets)
    timed = TimedMDP(mdp, start, horizon, durations, np.arange(n_states), shared)
    return Problem(timed, texts, right, horizon)


def _by_slot(mdp: TokenMDP, n_slots: int, n_words: int) -> NDArray[np.int64]:
    """Index the logits by slot and word: nodes of a level of the trie that branches, in the order of the words."""
    numbers = np.full(len(mdp.trie.prefixes), -1)
    for node in range(len(mdp.trie.prefixes)):
        children, level = mdp.trie.children[node], len(mdp.trie.prefixes[node])
        if len(children) > 1:
            numbers[list(children)] = level * n_words + np.arange(n_words)
    assert int(numbers.max()) == n_slots * n_words - 1
    return np.tile(numbers, (len(mdp.rewards), 1))


def _by_key(mdp: TokenMDP, n_targets: int) -> NDArray[np.int64]:
    """Index the logits by announced key and word, for all steps."""
    words = np.full(len(mdp.trie.prefixes), -1)
    (branch,) = (node for node, children in enumerate(mdp.trie.children) if len(children) > 1)
    words[list(mdp.trie.children[branch])] = np.arange(n_targets)
    keys = np.arange(len(mdp.rewards)) % n_targets
    return np.where(words >= 0, keys[:, None] * n_targets + words, -1)


def multikey_logits(k: int, d: int, n_words: int, right: float) -> Floats:
    """Return logits of `independent("MultiKey-v0", share=True)` with a given probability of every right word.

    Distractors have the same probabilities, of their first word, as in the closed form.
    """
    logits = np.zeros((k + d, n_words))
    logits[:, 0] = np.log(right / (1 - right) * (n_words - 1))
    return logits.ravel()


def worked_example() -> Problem:
    """Return the problem `truth` of the golden vectors: two states, seven actions, 45 episodes."""
    truth: Mapping[str, Any] = json.loads(_VECTORS.read_text(encoding="utf-8"))["truth"]
    names = list(truth["actions"])
    ways = [
        [
            (text, reward, None if after is None else names.index(after), 1, after is None)
            for text, reward, after in outcomes
        ]
        for outcomes in truth["actions"].values()
    ]
    start = np.eye(1, len(names) + 1)[0]

    def words(text: str) -> tuple[str, ...]:
        return tuple(text.split())

    return _assembled(ways, list(range(len(names))), [], truth["limit"], start, words)


class Additive:
    """Closed form of MultiKey with additive rewards (n_words in each slot, P(right) alike): facts, section 6.3.

    Args:
        k: Number of key slots.
        d: Number of distractors.
        horizon: Number of actions of an episode.
        n_words: Number of words of a slot.
        right: Probability of the right word; in a distractor, of the first word.
        gamma_lambda: Product of gamma and lambda between actions.
    """

    def __init__(self, k: int, d: int, horizon: int, n_words: int, right: float, gamma_lambda: float) -> None:
        self.n, self.horizon, self.trace_of = k + d, horizon, gamma_lambda
        self.keys = key_slots(k, d)
        other = (1 - right) / (n_words - 1)
        chances = np.array([right, *[other] * (n_words - 1)])
        rows = np.eye(n_words) - chances
        x = np.eye(n_words)[0] - right
        norms = (rows**2).sum(axis=1)
        self.kappa = 1 / (horizon * k)
        self.variance = right * (1 - right)
        self.score_norm = float(chances @ norms)
        signal = (chances * x) @ rows
        self.signal = float(signal @ signal)
        self.own = float(chances @ (x**2 * norms)) - self.signal
        self.squared_gradient = k * (horizon * self.kappa) ** 2 * self.signal

    def nsr(self, kind: str, lambda_token: float = 1.0) -> float | None:
        """Return the noise to signal of `action`, `bad` or `bilevel` with exact values; None without a signal."""
        total = 0.0
        for t in range(self.horizon):
            for j in range(self.n):
                squares = sum(
                    self._weight(kind, lambda_token, t, j, u, i) ** 2
                    for u in range(t, self.horizon)
                    for i in self.keys
                    if (u, i) != (t, j)
                )
                total += self.score_norm * self.variance * squares + (self.own if j in self.keys else 0.0)
        trace = self.kappa**2 * total
        return trace / self.squared_gradient if self.squared_gradient else None

    def _weight(self, kind: str, lam: float, t: int, j: int, u: int, i: int) -> float:
        """Return the weight of the noise of slot i of action u in the advantage of slot j of action t."""
        if u == t:
            if kind == "action":
                return 1.0
            return float(lam ** (i - j)) if i > j else 0.0
        between = self.trace_of ** (u - t)
        if kind == "action":
            return float(between)
        if kind == "bilevel":
            return float(between * lam ** (self.n - j))
        return float(between * lam ** (self.n - j + self.n * (u - t - 1) + i))
