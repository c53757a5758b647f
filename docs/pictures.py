"""Draw the pictures of README.md and of the pages into `docs/assets`: `python docs/pictures.py`. Needs minigrid too.

The picture of credits shows one action, its tokens, and the credit of each token by three rules. Its example is a
problem of one decision; the policy is uniform at every branch of the trie of the actions. Values are exact, and credits
are advantages by the functions that train, with both lambdas 0. The picture of failures shows committed trainings. The
other pictures are episodes of oracles.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # `benchmarks` is a folder of the repository and no installed package

from benchmarks.exact import TokenMDP, evaluate_tokens, uniform_over_children
from benchmarks.reports.plots import PALETTE, style
from lang_envs.agents import oracle_agent
from lang_envs.recording import encode_gif, record_episode
from poad_sb3.credit.estimators import GAE, Rollout

EPISODES = {
    "overcooked": "Overcooked-TomatoSalad-v0",
    "virtualhome": "VirtualHome-Entertainment-v0",
    "datascicoding": "DataSciCoding-balance-scale-v0",
    "keytoken": "KeyToken-v0",
    "multikey": "MultiKey-v0",
    "parity": "Parity-v0",
    "babyai": "BabyAIText-UnlockPickup-v0",
}
ACTIONS = ("use the knife to chop the onion", "use the knife to chop the tomato", "use the plate to serve")
REWARDS = (0.0, 1.0, 0.0)
"""The order is a tomato salad."""
GAMMA = 0.95
RULES = (
    ("Action level", "TWOSOME: one number for all", "action", 1.0),
    ("Naive token level", f"NTPO: \u03b3 = {GAMMA:g} at every token", "token", GAMMA),
    ("BAD", "POAD: \u03b3 between actions only", "token", 1.0),
)
"""Name, remark, `credit_level` and `gamma_token` of the rules."""
THEMES = {
    "light": {"ink": "#1f2328", "dim": "#59636e", "none": "#eaeef2", "good": "#0072b2", "bad": "#c2570c"},
    "dark": {"ink": "#f0f6fc", "dim": "#9198a1", "none": "#262c36", "good": "#2c74b3", "bad": "#b8691f"},
}
FAILURES = {
    ("Passive: TWOSOME on Tomato Salad", "curves"): (
        ("success, seed 301", "success", {"env_id": EPISODES["overcooked"], "algorithm": "TWOSOME", "seed": 301}),
        ("success, seed 300", "success", {"env_id": EPISODES["overcooked"], "algorithm": "TWOSOME", "seed": 300}),
        ("return, seed 300", "returns", {"env_id": EPISODES["overcooked"], "algorithm": "TWOSOME", "seed": 300}),
    ),
    ("Critic: POAD on Food Preparation, 8 seeds", "critic"): (
        ("success, zero at first", "success", {"learning_rate": 0.004, "critic_init": None, "critic_whitening": None}),
        ("success, PyTorch's", "success", {"learning_rate": 0.004, "critic_init": "default", "critic_whitening": None}),
    ),
    ("Unlearned clone: Parity, seed 102", "thoughts"): (
        ("return, rate 2.5e-4", "returns", {"max_thought_tokens": 16, "seed": 102, "learning_rate": 2.5e-4}),
        ("return, rate 1e-3", "returns", {"max_thought_tokens": 16, "seed": 102, "learning_rate": 1e-3}),
    ),
}
"""Label, field and settings of the curves, by the title and the study of their panel."""
_LEFT, _CELL, _ROW, _GAP = 2.75, 0.8, 0.62, 0.14  # inches


def credits(level: str, gamma_token: float) -> tuple[list[float], float]:
    """Compute the credit of each token of the first action, its end token included, and of the whole action.

    The critic has the exact values of the uniform policy under the backup of the rule.
    """
    n = len(ACTIONS)
    transitions = np.zeros((2, n, 2))
    transitions[..., 1] = 1.0  # the second state is the end
    admissible, rewards = np.array([[True] * n, [False] * n]), np.array([REWARDS, [0.0] * n])
    problem = TokenMDP(tuple((*action.split(), "<end>") for action in ACTIONS), admissible, rewards, transitions, GAMMA)
    solution = evaluate_tokens(problem, uniform_over_children(problem), gamma_token)
    action = problem.actions[0]
    values = [solution.values[0, problem.trie.prefixes.index(action[:j])] for j in range(len(action))]
    estimator = GAE(GAMMA, 0.0, gamma_token, 0.0, credit_level=level)
    n_values, ones = estimator.n_values(len(action)), np.ones((1, 1), dtype=np.int64)
    rollout = Rollout(
        rewards=np.array([[REWARDS[0]]]),
        lengths=len(action) * ones,
        episode_ends=ones > 0,
        counted=ones > 0,
        values=np.array(values[:n_values]).reshape(1, 1, n_values),
        last_values=np.zeros(1),
        final_values=np.zeros((1, 1)),
        durations=np.ones((1, 1)),
        groups=0 * ones,
        states=0 * ones,
    )
    advantages = estimator.advantages(rollout)[0, 0]
    spread = advantages if n_values > 1 else np.repeat(advantages, len(action))
    return spread.tolist(), float(advantages.sum())


def draw_credits(path: Path, theme: dict[str, str]) -> None:
    """Draw the three rules below each other: a column for each token, blue for praise and orange for blame."""
    words = [*ACTIONS[0].split(), "<end>"]
    rows = [(name, remark, *credits(level, gamma_token)) for name, remark, level, gamma_token in RULES]
    width, height = _LEFT + _CELL * (len(words) + 1) + 0.1, (_ROW + _GAP) * len(rows) + 0.75
    largest = max(abs(advantage) for *_, advantages, _ in rows for advantage in advantages)
    with mpl.rc_context({"svg.hashsalt": "credit", "svg.fonttype": "path", "font.family": "DejaVu Sans"}):
        figure = Figure((width, height))
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, width), ylim=(height, 0))
        axes.axis("off")

        def write(x: float, y: float, text: str, color: str, **options: Any) -> None:
            axes.text(x, y, text, **{"ha": "center", "va": "center", "color": color, "size": 10, **options})

        for j, word in enumerate(words):
            write(_LEFT + _CELL * (j + 0.5), 0.42, word, theme["ink"], weight="bold", family="DejaVu Sans Mono")
        write(_LEFT + _CELL * (len(words) + 0.5), 0.42, "action", theme["dim"])
        write(0.1, 0.32, "Reward 0: the order is", theme["dim"], ha="left", size=9.5)
        write(0.1, 0.52, "a tomato, not an onion", theme["dim"], ha="left", size=9.5)
        for number, (name, remark, advantages, total) in enumerate(rows):
            top = 0.7 + number * (_ROW + _GAP)
            write(0.1, top + 0.22, name, theme["ink"], ha="left", weight="bold", size=12.5)
            write(0.1, top + 0.46, remark, theme["dim"], ha="left", size=9.5)
            for j, advantage in enumerate(advantages):
                left, share = _LEFT + _CELL * j, abs(advantage) / largest
                strength = 0.0 if share < 1e-9 else 0.6 + 0.4 * share
                end = np.array(to_rgb(theme["good" if advantage > 0 else "bad"]))
                color = tuple((1 - strength) * np.array(to_rgb(theme["none"])) + strength * end)
                size, style = (_CELL - 0.14, _ROW - 0.06), "round,pad=0.02,rounding_size=0.08"
                axes.add_patch(FancyBboxPatch((left + 0.07, top + 0.03), *size, boxstyle=style, color=color, lw=0))
                text, ink = (f"{advantage:+.2f}", "#ffffff") if strength else ("0", theme["dim"])
                bold = "bold" if strength else "normal"
                write(left + _CELL / 2, top + _ROW / 2, text, ink, size=11, weight=bold)
            write(_LEFT + _CELL * (len(words) + 0.5), top + _ROW / 2, f"{total:+.2f}", theme["ink"], size=11)
        figure.savefig(path, transparent=True, metadata={"Date": None})


@style()
def draw_failures(path: Path) -> None:
    """Draw committed trainings that fail beside others that do not, as means over the seeds."""
    figure = Figure((10, 2.9), layout="constrained")
    for axes, ((title, study), curves) in zip(figure.subplots(1, 3), FAILURES.items(), strict=True):
        pieces = [json.loads(line) for line in (ROOT / f"data/results/studies/pieces/{study}.jsonl").open()]
        for color, (label, field, wanted) in zip(PALETTE, curves, strict=False):
            chosen = []
            for settings, result in ((piece["settings"], piece["result"]) for piece in pieces):
                arguments = settings.get("arguments", {})
                flat_settings = {**settings, **arguments, **arguments.get("policy_kwargs", {})}
                if field in result and all(flat_settings.get(name) == value for name, value in wanted.items()):
                    chosen.append(result)
            means = np.mean([result[field] for result in chosen], axis=0)
            axes.plot(chosen[0]["steps"], means, ".-", color=color, label=label)
        axes.set(title=title, xlabel="environment steps (actions)", ylim=(-0.15, 1.05))
        axes.legend(fontsize=8)
    figure.savefig(path, dpi=100)


if __name__ == "__main__":
    draw_failures(ROOT / "docs/assets/failures.png")
    for name, theme in THEMES.items():
        draw_credits(ROOT / f"docs/assets/credit_{name}.svg", theme)
    for name, env_id in EPISODES.items():
        frames = record_episode(env_id, oracle_agent()).frames
        (ROOT / f"docs/assets/{name}.gif").write_bytes(encode_gif(frames))
