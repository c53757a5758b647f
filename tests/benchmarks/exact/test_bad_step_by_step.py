"""The tables of "BAD, step by step": one kitchen in words, solved and walked through by the shipped code."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from benchmarks.exact import (
    TokenMDP,
    action_reference,
    evaluate_tokens,
    greedy_actions,
    solve_actions,
    solve_tokens,
    uniform_over_children,
)

PAGE = Path(__file__).parents[3] / "docs/bad-step-by-step.md"
GAMMA = 0.95
END = "<end>"


class Choice(NamedTuple):
    """An action: its state, its reward, the next state."""

    state: int
    sentence: str
    reward: float
    after: int


RAW, CHOPPED, OVER = range(3)
CHOICES = (
    Choice(RAW, "chop the tomato", 0.0, CHOPPED),
    Choice(RAW, "chop the bowl", -0.5, RAW),
    Choice(RAW, "serve it", 0.7, OVER),
    Choice(CHOPPED, "put the tomato in the bowl", 1.0, OVER),
    Choice(CHOPPED, "put the tomato in the bin", -0.5, OVER),
)
TRAJECTORIES = {"positive": (0, 3), "negative": (0, 4)}
"""Positions of the actions in `CHOICES`."""


@cache
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


def credit(name: str) -> list[tuple[str, ...]]:
    rows = []
    for step, number in enumerate(TRAJECTORIES[name]):
        whole, naive, bad = action_advantage(number), advantages(number, GAMMA), advantages(number, 1.0)
        for j, token in enumerate(_tokens(CHOICES[number])):
            place = str(step + 1) if j == 0 else ""
            rows.append((place, f"`{token}`", _signed(whole), _signed(naive[j]), _signed(bad[j])))
        rows.append(("", "*sum*", "", _signed(sum(naive)), _signed(sum(bad))))
    return rows


# ---------------------------------------------------------------------- final policies


def choices() -> list[tuple[str, ...]]:
    mdp = kitchen()
    solved, best = {}, {}
    for name, gamma_token in (("naive", GAMMA), ("BAD", 1.0)):
        tokens = solve_tokens(mdp, gamma_token)
        best[name] = greedy_actions(mdp, tokens)[RAW]
        # seen from the first token: every further one discounts the reward at the last
        scale = [gamma_token ** (len(action) - 1) for action in mdp.actions]
        solved[name] = tokens.q[:, mdp.trie.ends] * scale
    exact = solve_actions(mdp).q
    best["action level"] = int(exact[RAW].argmax())
    solved["action level"] = exact
    return [
        (f"`{one.sentence}`", *(_marked(solved[name][RAW, number], number == best[name]) for name in _METHODS))
        for number, one in enumerate(CHOICES)
        if one.state == RAW
    ]


_METHODS = ("action level", "naive", "BAD")


def _marked(number: float, chosen: bool) -> str:
    return f"**{_signed(number)}**" if chosen else _signed(number)


# ---------------------------------------------------------------------- tests


def test_the_tables_of_credit_and_of_final_policies() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    shown = [tuple(cell.strip() for cell in line.split("|")[1:-1]) for line in lines if line.startswith("|")]
    heads = [number for number, row in enumerate(shown) if all(set(cell) <= set(":- ") for cell in row)]
    ends = [*(number - 1 for number in heads[1:]), len(shown)]
    tables = [shown[start + 1 : end] for start, end in zip(heads, ends, strict=True)]
    assert tables[3:] == [credit("positive"), credit("negative"), choices()]


def test_the_sum_over_tokens_is_the_advantage_of_the_action() -> None:
    for number in range(len(CHOICES)):
        assert sum(advantages(number, 1.0)) == pytest.approx(action_advantage(number), abs=1e-12)
        assert sum(advantages(number, 0.95)) != pytest.approx(action_advantage(number), abs=1e-3)
