"""Tasks and methods that several studies share."""

from __future__ import annotations

from typing import Any

from benchmarks.studies.engine.findings import Prediction, Trend
from benchmarks.studies.engine.jobs import Evaluation
from benchmarks.studies.engine.tuning import Arm, Task

OLD_TRACE = "made before 2026-11-28, when the trace acted at forced tokens too, and are to be made again."
"""End of a remark about runs with a `gae_lambda_token` below 1."""
MULTIKEY = Task(
    "multikey 2 4",
    "MultiKey-v0",
    8_192,
    Evaluation(every=1_024, episodes=50),
    env_kwargs={"k": 2, "d": 4, "horizon": 4},
)
SALAD = Task("tomato-lettuce-salad", "Overcooked-TomatoLettuceSalad-v0", 24_576, Evaluation(every=3_072, episodes=30))
TOMATO = Task("tomato-salad", "Overcooked-TomatoSalad-v0", 8_192, Evaluation(every=1_024, episodes=50), tuned_on=SALAD)
FOOD = Task(
    "food-preparation",
    "VirtualHome-FoodPreparation-v0",
    4_096,
    Evaluation(every=512, episodes=50),
)
ENTERTAINMENT = Task(
    "entertainment", "VirtualHome-Entertainment-v0", 8_192, Evaluation(every=1_024, episodes=50), tuned_on=FOOD
)
GAMMA, GAE_LAMBDA_TOKEN = 0.95, 1.0
"""Discount between actions, that of NTPO inside them too; and the trace inside actions, kept at 1 by the rule of the
protocol and the results of `lambda-token`."""


def trie(name: str, algorithm: str, **arguments: Any) -> Arm:
    """Return a method that samples token by token among the listed actions."""
    return Arm(name, algorithm, {"action_sampling": "trie", **arguments})


POAD = trie("POAD", "POAD", gae_lambda_token=GAE_LAMBDA_TOKEN)
NTPO = trie("NTPO", "NTPO", gae_lambda_token=GAE_LAMBDA_TOKEN)
MATCHED = trie("POAD, matched traces", "POAD", gae_lambda_token=GAMMA * GAE_LAMBDA_TOKEN)
"""POAD with the noise of NTPO where one token decides: its trace inside actions decays as NTPO's discount does."""
ACTION_LEVEL = trie("action level", "POAD", credit_level="action", ratio="token")
"""POAD with one advantage for all tokens of an action, and the same loss."""
TWOSOME = Arm("TWOSOME", "TWOSOME", {"action_sampling": "candidates"})
"""TWOSOME: a softmax over whole candidates, and a loss of whole actions."""
GRPO, RLOO = trie("GRPO", "GRPO"), trie("RLOO", "RLOO")
TURN_PPO = trie("turn PPO", "TurnPPO", gamma=GAMMA, gae_lambda=0.95)
"""Turn PPO with the discount and trace between actions of the compared methods; its own defaults are 0.99 and 0.9."""
GAMMA_TOKENS = {f"NTPO, gamma_token {value:g}": value for value in (0.9, 0.8, 0.5)}
NTPO_DISCOUNTED = tuple(
    trie(name, "NTPO", gae_lambda_token=GAE_LAMBDA_TOKEN, gamma_token=value) for name, value in GAMMA_TOKENS.items()
)
"""NTPO with a smaller discount inside actions; its own is that between actions, 0.95."""


def discount_trend(task: Task) -> Trend:
    """Return the comparison of NTPO's discounts inside actions on a task."""
    return Trend(
        "NTPO, gamma_token from 0.5 to 0.95",
        {NTPO.name: GAMMA, **GAMMA_TOKENS},
        Prediction.HIGHER,
        (task.name,),
        "NTPO gets worse as gamma_token falls",
    )
