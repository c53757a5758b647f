"""`distractors`: credit for single tokens on a task that is made for it."""

from __future__ import annotations

from benchmarks.studies.engine.comparing import Comparing
from benchmarks.studies.engine.findings import Planned, Prediction
from benchmarks.studies.engine.jobs import Evaluation
from benchmarks.studies.multikey import EIGHT
from benchmarks.studies.tasks import MULTIKEY
from benchmarks.studies.values_inside import ACTION_LEVEL, DUELING_8, EXACT_8, MARGINAL_8, SHORT, STATE_8

ONE_KEY = MULTIKEY._replace(
    name="multikey 1 7",
    steps=2_048,
    evaluation=Evaluation(every=256, episodes=50),
    env_kwargs={"k": 1, "d": 7, "horizon": 4},
)
SLOW = ONE_KEY._replace(name="multikey 1 7 slow", steps=6_144, evaluation=Evaluation(every=768, episodes=50), rate=5e-4)
"""The same with a policy that changes slowly beside its critic."""
_ARMS = (ACTION_LEVEL, STATE_8, DUELING_8, MARGINAL_8, EXACT_8)

DISTRACTORS = Comparing(
    "distractors",
    "credit for single tokens where one word of eight decides",
    "One key and seven distractors: interquartile means over seeds, 95 % intervals",
    ((ONE_KEY, _ARMS), (SLOW, (*_ARMS, SHORT[EIGHT.name]))),  # eight choices, as on (4, 4)
    (
        Planned(DUELING_8.name, STATE_8.name, Prediction.NOT_SETTLED, (ONE_KEY.name,), gated=False),
        Planned(MARGINAL_8.name, STATE_8.name, Prediction.NOT_SETTLED, (ONE_KEY.name,), gated=False),
        Planned(DUELING_8.name, STATE_8.name, Prediction.HIGHER, (SLOW.name,), gated=False),
        Planned(MARGINAL_8.name, STATE_8.name, Prediction.HIGHER, (SLOW.name,), gated=False),
        Planned(EXACT_8.name, MARGINAL_8.name, Prediction.HIGHER, gated=False),
    ),
    (
        "256 actions; two words a slot, four decisions an episode. Arms as in `values-inside`.",
        "Action level, lambda 0.2, was added after the other runs: 0.95 decayed by 0.8 at seven of eight choices.",
    ),
    tuple(range(620, 630)),
)
