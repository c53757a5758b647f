"""`small-rate`: credit for single tokens where the policy changes slowly beside its critic."""

from __future__ import annotations

from benchmarks.studies.distractors import SLOW
from benchmarks.studies.engine.comparing import Comparing
from benchmarks.studies.engine.findings import Planned, Prediction
from benchmarks.studies.multikey import EIGHT
from benchmarks.studies.tasks import MULTIKEY
from benchmarks.studies.values_inside import DUELING_8, MARGINAL_8, SHORT, STATE_8

SMALL_RATE = Comparing(
    "small-rate",
    "credit for single tokens at one small learning rate",
    "MultiKey at a learning rate of 5e-4: interquartile means over seeds, 95 % intervals",
    tuple(
        (task._replace(name=f"{task.name} slow", rate=SLOW.rate), (SHORT[task.name], STATE_8, DUELING_8, MARGINAL_8))
        for task in (MULTIKEY, EIGHT)
    ),
    (
        Planned(MARGINAL_8.name, STATE_8.name, Prediction.HIGHER, gated=False),
        Planned(DUELING_8.name, STATE_8.name, Prediction.HIGHER, gated=False),
        *(
            Planned(MARGINAL_8.name, arm.name, Prediction.HIGHER, (f"{name} slow",), gated=False)
            for name, arm in SHORT.items()
        ),
    ),
    ("Arms as in `values-inside`, the rate of `distractors`.",),
    tuple(range(630, 638)),
)
