"""`thoughts`: POAD without a thought, with four tokens and with sixteen, where a thought can count along."""

from __future__ import annotations

from benchmarks.studies.engine.comparing import Comparing
from benchmarks.studies.engine.findings import Planned, Prediction
from benchmarks.studies.engine.jobs import Cloning, Evaluation
from benchmarks.studies.engine.tuning import Arm, Task
from benchmarks.studies.tasks import GAE_LAMBDA_TOKEN, trie

PARITY = Task(
    "parity",
    "Parity-v0",
    4_096,
    Evaluation(every=512, episodes=50),
    # As elsewhere, the entropy of the whole vocabulary is no aim. Short rollouts lost what was cloned (protocol).
    arguments={"ent_coef": 0.0, "n_steps": 512, "batch_size": 256},
    cloning=Cloning(("Parity-v0",), (0.0,), episodes=200, epochs=40, batch_size=64, learning_rate=5e-3),
)
MARKS = (":", ".")
"""Marks of a thought that are tokens of the pocket model's corpus; it does not learn to write those of the default."""


def _thinking(budget: int) -> Arm:
    sampling = {"action_sampling": "think", "max_thought_tokens": budget, "thought_marks": MARKS}
    return Arm(f"budget {budget}", "POAD", {"gae_lambda_token": GAE_LAMBDA_TOKEN, **sampling})


WITHOUT = trie("budget 0", "POAD", gae_lambda_token=GAE_LAMBDA_TOKEN)
_ARMS = (WITHOUT, _thinking(4), _thinking(16))

THOUGHTS = Comparing(
    "thoughts",
    "POAD on Parity without a thought, with 4 tokens and with 16",
    "Parity from behaviour cloning: interquartile means over seeds, 95 % intervals",
    ((PARITY, _ARMS),),
    (
        Planned("budget 16", "budget 0", Prediction.HIGHER, gated=False, measure="final"),
        Planned("budget 4", "budget 0", Prediction.NOT_SETTLED, gated=False, measure="final"),
    ),
    (
        "All begin with behaviour cloning of the same 200 episodes of the oracle, 800 rows of 8 objects; those that "
        "think clone the running parity too, as many words of it as the budget holds.",
        "A policy that ignores an object of a row has a return of 0.5, that of random play.",
    ),
    tuple(range(610, 618)),
)
