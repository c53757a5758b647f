"""`foreign`: POAD, action level, TWOSOME and GRPO on three tasks that others have written."""

from __future__ import annotations

from benchmarks.studies.engine.comparing import Comparing
from benchmarks.studies.engine.findings import Planned, Prediction
from benchmarks.studies.engine.jobs import Evaluation
from benchmarks.studies.engine.tuning import Task
from benchmarks.studies.tasks import FOOD, GRPO, TWOSOME
from benchmarks.studies.values_inside import ACTION_LEVEL, DUELING_8

_PRIOR = {"temperature": 4.0}
"""The pocket model was not made for these tasks; see docs/environments/foreign.md, "Training"."""
LAKE = Task(
    "frozen-lake",
    "TextArena-FrozenLake-v0",
    8_192,
    Evaluation(every=1_024, episodes=50),
    tuned_on=FOOD,
    arguments=_PRIOR,
)
BALL = Task(
    "go-to-red-ball",
    "BabyAIText-GoToRedBallNoDists-v0",
    12_288,
    Evaluation(every=2_048, episodes=40),
    tuned_on=FOOD,
    arguments=_PRIOR,
)
TREASURE = Task(
    "treasure-hunter",
    "TextWorld-TreasureHunter-v0",
    6_144,
    Evaluation(every=1_536, episodes=20),
    tuned_on=FOOD,
    arguments=_PRIOR,
)
_ARMS = (DUELING_8, ACTION_LEVEL, TWOSOME, GRPO)

FOREIGN = Comparing(
    "foreign",
    "POAD, action level, TWOSOME and GRPO on tasks of BabyAI, TextWorld and TextArena",
    "Tasks of other packages with the pocket model: interquartile means over seeds, 95 % intervals",
    ((BALL, _ARMS), (LAKE, _ARMS), (TREASURE, _ARMS)),
    (
        Planned(DUELING_8.name, ACTION_LEVEL.name, Prediction.NOT_SETTLED, (BALL.name,), gated=False),
        Planned(DUELING_8.name, TWOSOME.name, Prediction.HIGHER, (BALL.name,)),
        Planned(DUELING_8.name, GRPO.name, Prediction.NOT_SETTLED, (BALL.name,), gated=False),
    ),
    (
        "Rates are those of food-preparation. TextArena has no oracle; its line is the reward of a game that is won.",
        "Dueling 0.8 is POAD with a critic of `values-inside`.",
    ),
    tuple(range(600, 608)),
)
