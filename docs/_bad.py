"""The tables of "BAD step by step": one kitchen in words, solved and walked through by the shipped code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from _tables import code, table

from poad_sb3.credit.advantages import next_state_values, token_gae
from poad_sb3.tabular import (
    TokenMDP,
    action_reference,
    evaluate_tokens,
    greedy_actions,
    solve_actions,
    solve_tokens,
    uniform_over_children,
)

__all__ = ["BAD_TABLES", "advantages", "kitchen"]

GAMMA = 0.95
END = "<end>"


class Choice(NamedTuple):
    """What an action does: the state it is said in, its reward, the next state."""

    state: int
    sentence: str
    reward: float
    after: int


RAW, CHOPPED, OVER = range(3)
SITUATIONS = ("The tomato lies on the board, whole.", "The tomato lies on the board, chopped.")
CHOICES = (
    Choice(RAW, "chop the tomato", 0.0, CHOPPED),
    Choice(RAW, "chop the bowl", -0.5, RAW),
    Choice(RAW, "serve it", 0.7, OVER),
    Choice(CHOPPED, "put the tomato in the bowl", 1.0, OVER),
    Choice(CHOPPED, "put the tomato in the bin", -0.5, OVER),
)
TRAJECTORIES = {"positive": (0, 3), "negative": (0, 4)}
"""Positions of the actions in `CHOICES`."""


@lru_cache(maxsize=1)
def kitchen() -> TokenMDP:
    """The problem as a table."""
    n = len(CHOICES)
    admissible, rewards, transitions = np.zeros((3, n), dtype=bool), np.zeros((3, n)), np.zeros((3, n, 3))
    for number, choice in enumerate(CHOICES):
        admissible[choice.state, number] = True
        rewards[choice.state, number] = choice.reward
        transitions[choice.state, number, choice.after] = 1.0
    return TokenMDP(tuple(_tokens(choice) for choice in CHOICES), admissible, rewards, transitions, GAMMA)


def _tokens(choice: Choice) -> tuple[str, ...]:
    return (*choice.sentence.split(), END)


def _signed(number: float) -> str:
    return f"{round(number, 3) + 0.0:+.3f}"  # + 0.0: no "-0.000"


def _rules(_: str) -> str:
    where = [*(situation.rstrip(".") for situation in SITUATIONS), "the end"]
    rows = [
        (SITUATIONS[one.state], code(one.sentence), str(len(_tokens(one))), f"{one.reward:+g}", where[one.after])
        for one in CHOICES
    ]
    return table(("situation", "action", "tokens", "reward", "leads to"), rows)


# ---------------------------------------------------------------------- targets of an untrained critic


def _targets(numbers: Sequence[int], gamma_token: float) -> list[list[float]]:
    """Targets of every prefix of a trajectory's actions, by token GAE over a critic that says 0, both lambdas 1."""
    chosen = [CHOICES[number] for number in numbers]
    lengths = np.array([[len(_tokens(one))] for one in chosen])
    values, ends = np.zeros((len(chosen), 1, lengths.max())), np.array([[one.after == OVER] for one in chosen])
    following = next_state_values(values[..., 0], np.zeros(1), ends, np.zeros(ends.shape))
    returns = values + token_gae(
        np.array([[one.reward] for one in chosen]),
        values,
        lengths,
        following,
        ends,
        gamma=GAMMA,
        gae_lambda=1.0,
        gamma_token=gamma_token,
        gae_lambda_token=1.0,
    )
    return [row[0, :n].tolist() for row, (n,) in zip(returns, lengths, strict=True)]


def _target_table(name: str) -> str:
    numbers, rows = TRAJECTORIES[name], []
    naive, bad = _targets(numbers, GAMMA), _targets(numbers, 1.0)
    for step, number in enumerate(numbers):
        for j, token in enumerate(_tokens(CHOICES[number])):
            whole = _signed(bad[step][0]) if j == 0 else ""  # the action level knows the first value only
            place = str(step + 1) if j == 0 else ""
            rows.append((place, code(token), whole, _signed(naive[step][j]), _signed(bad[step][j])))
    return table(("decision", "before the token", "action level", "naive", "BAD"), rows)


# ---------------------------------------------------------------------- credit, once the critic knows


def advantages(number: int, gamma_token: float) -> list[float]:
    """Q - V of every token of an action, of the policy that is uniform at every node of the trie."""
    mdp = kitchen()
    solved, state = evaluate_tokens(mdp, uniform_over_children(mdp), gamma_token), CHOICES[number].state
    path = [mdp.trie.prefixes.index(mdp.actions[number][:n]) for n in range(1, len(mdp.actions[number]) + 1)]
    return [float(solved.q[state, node] - solved.values[state, mdp.trie.parents[node]]) for node in path]


def action_advantage(number: int) -> float:
    """Q - V of a whole action, of the same policy, by the action-level equation."""
    mdp, state = kitchen(), CHOICES[number].state
    weights = action_reference(mdp, uniform_over_children(mdp))
    steps = mdp.gamma * np.einsum("oa,oan->on", weights, mdp.transitions)
    values = np.linalg.solve(np.eye(len(steps)) - steps, (weights * mdp.rewards).sum(axis=1))
    after = float(mdp.transitions[state, number] @ values)
    return float(mdp.rewards[state, number] + mdp.gamma * after - values[state])


def _credit_table(name: str) -> str:
    rows = []
    for step, number in enumerate(TRAJECTORIES[name]):
        whole, naive, bad = action_advantage(number), advantages(number, GAMMA), advantages(number, 1.0)
        for j, token in enumerate(_tokens(CHOICES[number])):
            place = str(step + 1) if j == 0 else ""
            rows.append((place, code(token), _signed(whole), _signed(naive[j]), _signed(bad[j])))
        rows.append(("", "*sum*", "", _signed(sum(naive)), _signed(sum(bad))))
    return table(("decision", "token", "action level", "naive", "BAD"), rows)


# ---------------------------------------------------------------------- what is learned in the end


def _choice_table(_: str) -> str:
    mdp = kitchen()
    solved, best = {}, {}
    for name, gamma_token in (("naive", GAMMA), ("BAD", 1.0)):
        tokens = solve_tokens(mdp, gamma_token)
        best[name] = greedy_actions(mdp, tokens)[RAW]
        # seen from the first token: every further one discounts what comes with the last
        scale = [gamma_token ** (len(action) - 1) for action in mdp.actions]
        solved[name] = tokens.q[:, mdp.trie.ends] * scale
    exact = solve_actions(mdp).q
    best["action level"] = int(exact[RAW].argmax())
    solved["action level"] = exact
    rows = [
        (code(one.sentence), *(_marked(solved[name][RAW, number], number == best[name]) for name in _METHODS))
        for number, one in enumerate(CHOICES)
        if one.state == RAW
    ]
    return table(("action", *_METHODS), rows)


_METHODS = ("action level", "naive", "BAD")


def _marked(number: float, chosen: bool) -> str:
    return f"**{_signed(number)}**" if chosen else _signed(number)


BAD_TABLES: dict[str, Callable[[str], str]] = {
    "bad-choice": _choice_table,
    "bad-credit": _credit_table,
    "bad-rules": _rules,
    "bad-targets": _target_table,
}
"""Generators by the name of their marker."""
