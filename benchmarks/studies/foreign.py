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
LAKE, BALL, TREASURE = (
    Task(name, env_id, steps, Evaluation(every, episodes), FOOD, arguments=_PRIOR)
    for name, env_id, steps, every, episodes in (
        ("frozen-lake", "TextArena-FrozenLake-v0", 8_192, 1_024, 50),
        ("go-to-red-ball", "BabyAIText-GoToRedBallNoDists-v0", 12_288, 2_048, 40),
        ("treasure-hunter", "TextWorld-TreasureHunter-v0", 6_144, 1_536, 20),
    )
)
_ARMS = (DUELING_8, ACTION_LEVEL, TWOSOME, GRPO)
_SAME_RATE = ACTION_LEVEL._replace(name="action level, rate of dueling 0.8", rate_of=DUELING_8.name)
_RATE_OF_TWOSOME = DUELING_8._replace(name="dueling 0.8, rate of TWOSOME", rate_of=TWOSOME.name)

FOREIGN = Comparing(
    "foreign",
    "POAD, action level, TWOSOME and GRPO on tasks of BabyAI, TextWorld and TextArena",
    "Tasks of other packages with the pocket model: interquartile means over seeds, 95 % intervals",
    ((BALL, (*_ARMS, _SAME_RATE, _RATE_OF_TWOSOME)), (LAKE, _ARMS), (TREASURE, _ARMS)),
    (
        Planned(DUELING_8.name, ACTION_LEVEL.name, Prediction.NOT_SETTLED, (BALL.name,), gated=False),
        Planned(DUELING_8.name, TWOSOME.name, Prediction.HIGHER, (BALL.name,)),
        Planned(DUELING_8.name, GRPO.name, Prediction.NOT_SETTLED, (BALL.name,), gated=False),
    ),
    (
        "Rates are those of food-preparation. TextArena has no oracle; its line is the reward of a game that is won.",
        "Dueling 0.8 is POAD with a critic of `values-inside`.",
        "Action level at its rate, and dueling 0.8 at that of TWOSOME, were added after the other runs.",
        "By plan, frozen-lake and treasure-hunter have five seeds.",
    ),
    tuple(range(600, 608)),
)
