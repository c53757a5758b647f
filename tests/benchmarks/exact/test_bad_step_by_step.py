"""The tables of "BAD, step by step": one kitchen in words, solved and walked through by the shipped code."""

from __future__ import annotations

from collections.abc import Sequence
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
from poad_sb3.credit.advantages import next_state_values, token_gae

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


def rules() -> list[tuple[str, ...]]:
    where = [*(situation.rstrip(".") for situation in SITUATIONS), "the end"]
    return [
        (SITUATIONS[one.state], f"`{one.sentence}`", str(len(_tokens(one))), f"{one.reward:+g}", where[one.after])
        for one in CHOICES
    ]


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


def targets(name: str) -> list[tuple[str, ...]]:
    numbers, rows = TRAJECTORIES[name], []
    naive, bad = _targets(numbers, GAMMA), _targets(numbers, 1.0)
    for step, number in enumerate(numbers):
        for j, token in enumerate(_tokens(CHOICES[number])):
            whole = _signed(bad[step][0]) if j == 0 else ""  # the action level knows the first value only
            place = str(step + 1) if j == 0 else ""
            rows.append((place, f"`{token}`", whole, _signed(naive[step][j]), _signed(bad[step][j])))
    return rows


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


def test_the_tables_of_the_page() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    shown = [tuple(cell.strip() for cell in line.split("|")[1:-1]) for line in lines if line.startswith("|")]
    heads = [number for number, row in enumerate(shown) if all(set(cell) <= set(":- ") for cell in row)]
    ends = [*(number - 1 for number in heads[1:]), len(shown)]
    tables = [shown[start + 1 : end] for start, end in zip(heads, ends, strict=True)]
    computed = [rules(), targets("positive"), targets("negative"), credit("positive"), credit("negative"), choices()]
    assert tables == computed


def test_the_credit_shown_is_what_the_page_says_of_it() -> None:
    numbers = range(len(CHOICES))
    for number in numbers:
        tokens = advantages(number, 1.0)
        assert sum(tokens) == pytest.approx(action_advantage(number), abs=1e-12)
        assert sum(advantages(number, 0.95)) != pytest.approx(sum(tokens), abs=1e-3)
    for number, reward in ((3, 1.0), (4, -0.5)):  # "put the tomato in the bowl" and "... bin"
        tokens = advantages(number, 1.0)
        assert [token != 0 for token in tokens] == [False] * 5 + [True, False]
        assert tokens[5] * reward > 0
    first = advantages(0, 1.0)  # "chop the tomato": a risk, and then the better word
    assert first[0] < 0 < first[2]
    assert greedy_actions(kitchen(), solve_tokens(kitchen(), 1.0)).tolist() == [0, 3, -1]
    assert greedy_actions(kitchen(), solve_tokens(kitchen(), 0.95)).tolist() == [2, 3, -1]


@pytest.mark.parametrize("name", ["positive", "negative"])
def test_the_targets_shown_are_those_of_the_backups(name: str) -> None:
    reward = CHOICES[TRAJECTORIES[name][1]].reward
    _, _, whole, naive, bad = (list(column) for column in zip(*targets(name), strict=True))
    assert bad == [f"{0.95 * reward:+.3f}"] * 4 + [f"{reward:+.3f}"] * 7
    assert naive == [f"{0.95**n * reward:+.3f}" for n in range(10, -1, -1)]
    assert [one for one in whole if one] == [bad[0], bad[-1]]
