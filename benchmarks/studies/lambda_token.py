"""`lambda-token`: the trace inside actions, for POAD and NTPO; its outcome sets the default of `gae_lambda_token`."""

from __future__ import annotations

from benchmarks.studies.engine.comparing import Comparing
from benchmarks.studies.engine.findings import Claim
from benchmarks.studies.engine.jobs import Evaluation
from benchmarks.studies.engine.tuning import BEYOND, Arm, Comparison, Task

SEEDS = tuple(range(200, 210))
"""Of this study alone: the others use seeds that did not choose the default."""
MULTIKEY = Task(
    "multikey 2 4",
    "MultiKey-v0",
    8_192,
    Evaluation(every=1_024, episodes=50),
    env_kwargs={"k": 2, "d": 4, "horizon": 4},
)
SALAD = Task("tomato-lettuce-salad", "Overcooked-TomatoLettuceSalad-v0", 24_576, Evaluation(every=3_072, episodes=30))
TASKS = {task.name: task for task in (MULTIKEY, SALAD)}


def _arm(name: str, algorithm: str, **arguments: float | str) -> Arm:
    return Arm(name, algorithm, {"action_sampling": "trie", **arguments})


ARMS = (
    *(_arm(f"POAD {value:g}", "POAD", gae_lambda_token=value) for value in (1.0, 0.95, 0.8, 0.0)),
    *(_arm(f"NTPO {value:g}", "NTPO", gae_lambda_token=value) for value in (1.0, 0.95)),
    _arm("action level", "POAD", credit_level="action", ratio="token"),
)
"""All act on the same trie with the same loss, a ratio for each token; they differ in credit alone."""

LAMBDA_TOKEN = Comparing(
    "lambda-token",
    "trace inside an action: POAD 1, 0.95, 0.8, 0, NTPO 1, 0.95, action level",
    "gae_lambda_token: interquartile means over seeds, 95 % intervals",
    lambda options: [
        Comparison("trace inside the action", TASKS[name], ARMS, BEYOND) for name in options.chosen_tasks(TASKS)
    ],
    (),
    "The paper has no trace inside actions other than 1.",
    ("Hypotheses, predictions and rules: docs/benchmarks/protocol.md, written before the first run.",),
    SEEDS,
    (
        Claim("POAD 0.95", "POAD 1"),
        Claim("POAD 0.8", "POAD 1"),
        Claim("POAD 0", "POAD 1"),
        Claim("POAD 0.95", "POAD 0"),
        Claim("POAD 1", "action level"),
    ),
)
