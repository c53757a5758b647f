"""The discount inside actions, exactly.

Value iteration on tabular problems (`benchmarks.exact`), without sampling except for the problems of the third picture:

* KeyToken with actions of equal length: how far the first-token values of the token backup are from the optimum,
  against the length and `gamma_token`, beside the curve that theory predicts;
* KeyToken with actions of 2 words up to a greatest length: the share of the optimal return that is left to the greedy
  policy of the token backup;
* random problems: how often that policy is wrong.

Writes theory.json and theory.png.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from benchmarks.exact import (
    TokenMDP,
    evaluate_tokens,
    greedy_actions,
    random_token_mdp,
    solve_actions,
    solve_tokens,
    token_reference,
)
from benchmarks.files import RESULTS, write_picture
from benchmarks.reports.plots import style
from benchmarks.reports.tables import show_records
from lang_bench.runner.machine import describe_machine
from lang_envs.envs.keytoken.env import KeyTokenEnv
from lang_envs.files import write_json

GAMMA = 0.99
GAMMA_TOKENS = (1.0, 0.95, 0.9, 0.8, 0.5)
LENGTHS = tuple(range(2, 65))
"""Words of the (longest) action. The end token comes on top, as it does in the policy."""
N_RANDOM = 500
"""Number of random problems."""
SHOWN_LENGTHS = (2, 4, 8, 16, 32, 64)
_END = "<end>"


# ---------------------------------------------------------------------- the exact part


def keytoken_table(env: KeyTokenEnv, gamma: float) -> TokenMDP:
    """Make a table of KeyToken: state number `done * n_actions + key`, and a terminal state at the end.

    Args:
        env: The environment; only its arguments are read.
        gamma: Discount between actions.
    """
    n_keys, n_states = env.n_actions, env.horizon * env.n_actions + 1
    rewards, transitions = np.zeros((n_states, n_keys)), np.zeros((n_states, n_keys, n_states))
    for state in range(n_states - 1):
        done, key = divmod(state, n_keys)
        rewards[state, key] = 1 / env.horizon
        later = slice((done + 1) * n_keys, (done + 2) * n_keys) if done + 1 < env.horizon else slice(n_states - 1, None)
        transitions[state, :, later] = 1 / n_keys if done + 1 < env.horizon else 1.0
    admissible = np.ones((n_states, n_keys), dtype=bool)
    admissible[-1] = False
    actions = tuple((*sentence.split(), _END) for sentence in env.sentences)
    return TokenMDP(actions, admissible, rewards, transitions, gamma)


def discrepancy(n_words: int, gamma_token: float, *, gamma: float = GAMMA) -> float:
    """Return the optimal value of the start minus its value by the token backup, for actions of equal length."""
    table = keytoken_table(KeyTokenEnv(n_tokens=n_words, key_position=0), gamma)
    return float(solve_actions(table).values[0] - solve_tokens(table, gamma_token).values[0, 0])


def predicted_gap(n_words: int, gamma_token: float, *, horizon: int = 4, gamma: float = GAMMA) -> float:
    """Return the same in closed form: an action of n tokens scales its reward and later ones by gamma_token^(n-1).

    sum_t gamma^t r (1 - c^(t+1)) with c = gamma_token^(n-1), r = 1 / horizon, n = n_words + 1, t = 0 .. horizon - 1.
    """
    scale, decisions = gamma_token**n_words, np.arange(horizon)
    return float((gamma**decisions / horizon * (1 - scale ** (decisions + 1))).sum())


def greedy_share(longest: int, gamma_token: float, *, gamma: float = GAMMA) -> float:
    """Return of the token backup's greedy policy, as a share of the optimal one; actions of 2 to `longest` words."""
    env = KeyTokenEnv(n_tokens=longest, key_position=0, variable_lengths=longest > 2)
    table = keytoken_table(env, gamma)
    chosen = greedy_actions(table, solve_tokens(table, gamma_token))
    weights = np.eye(env.n_actions)[chosen] * ~table.terminal[:, None]
    earned = evaluate_tokens(table, token_reference(table, weights), gamma_token=1.0).values[: env.n_actions, 0]
    return float(earned.mean() / solve_actions(table).values[: env.n_actions].mean())


def wrong_share(gamma_token: float, *, n_problems: int = N_RANDOM, gamma: float = GAMMA) -> float:
    """Return the share of random problems whose optimal policy differs from the greedy policy of the token backup."""
    wrong = 0
    for seed in range(n_problems):
        table = random_token_mdp(np.random.default_rng(seed), gamma=gamma, n_splits=8, max_length=8)
        q, rows = solve_actions(table).q, np.flatnonzero(~table.terminal)
        chosen = greedy_actions(table, solve_tokens(table, gamma_token))
        wrong += bool((q[rows].max(axis=1) - q[rows, chosen[rows]] > 1e-9).any())
    return wrong / n_problems


def exact_part() -> dict[str, Any]:
    """Compute all numbers of the pictures; lists are by length."""
    started = time.perf_counter()
    curves = {
        f"{gamma_token:g}": {
            "gap": [discrepancy(n, gamma_token) for n in LENGTHS],
            "predicted": [predicted_gap(n, gamma_token) for n in LENGTHS],
            "greedy_share": [greedy_share(n, gamma_token) for n in LENGTHS],
            "wrong_share": wrong_share(gamma_token),
        }
        for gamma_token in GAMMA_TOKENS
    }
    return {
        **describe_machine(),
        "seconds": round(time.perf_counter() - started, 1),
        "gamma": GAMMA,
        "horizon": 4,
        "n_actions": 5,
        "lengths": list(LENGTHS),
        "n_random_problems": N_RANDOM,
        "curves": curves,
    }


# ---------------------------------------------------------------------- pictures and files


@style()
def plot_exact(part: dict[str, Any]) -> Figure:
    """Plot gaps to the optimal value, shares of the optimal return, and random problems."""
    figure = Figure(figsize=(14, 4.4), layout="constrained")
    gaps, shares, wrong = figure.subplots(1, 3, width_ratios=(5, 5, 3))
    colors = dict(zip(part["curves"], ("#2f6f8f", "#3a9a6f", "#d9a326", "#d2652d", "#a02f3c"), strict=True))
    places = [part["lengths"].index(n) for n in SHOWN_LENGTHS]
    for name, curve in part["curves"].items():
        gaps.plot(part["lengths"], curve["predicted"], color=colors[name], linewidth=1.4)
        gap = [curve["gap"][index] for index in places]
        gaps.plot(SHOWN_LENGTHS, gap, "o", color=colors[name], label=_label(name), clip_on=False, zorder=3)
        shares.plot(part["lengths"], curve["greedy_share"], color=colors[name], linewidth=1.6, label=_label(name))
    gaps.set(title="Gap to the optimal value, actions of equal length", ylabel="V* - V of the start")
    shares.set(title="What the greedy policy earns, actions of 2 to n words", ylabel="share of the optimal return")
    for axes, label in ((gaps, "words of an action"), (shares, "words of the longest action, n")):
        axes.set_xscale("log", base=2)
        axes.set_xticks(SHOWN_LENGTHS, [str(n) for n in SHOWN_LENGTHS])
        axes.set(xlabel=label, ylim=(-0.03, 1.06))
    gaps.plot([], [], color="0.4", linewidth=1.4, label="predicted")
    gaps.legend(fontsize=8, loc="center right")
    shares.legend(fontsize=8, loc="lower left")
    names = list(part["curves"])
    bars = wrong.bar(names, [100 * part["curves"][name]["wrong_share"] for name in names], color=list(colors.values()))
    wrong.bar_label(bars, fmt="%.1f", fontsize=8)
    wrong.set(title="Random problems with a wrong\ngreedy policy", xlabel="gamma_token", ylabel="per cent")
    wrong.margins(y=0.12)
    return figure


def _label(name: str) -> str:
    return "gamma_token = 1 (BAD)" if name == "1" else f"gamma_token = {name}"


def theory() -> None:
    """Solve KeyToken and random problems exactly, by the discount inside the action."""
    part = exact_part()
    write_json(RESULTS / "theory.json", {"exact": part})
    write_picture(RESULTS / "theory.png", plot_exact(part))
    last = {
        _label(name): {key: curve[key][-1] for key in curve if key != "wrong_share"}
        for name, curve in part["curves"].items()
    }
    show_records("longest actions", last, ("gap", "predicted", "greedy_share"))
