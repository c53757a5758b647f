"""`values-inside-noise`: noise of token credit with each critic, against the exact gradient, along `values-inside`."""

from __future__ import annotations

from benchmarks.studies.credit_truth.trainings import Noise
from benchmarks.studies.tasks import ACTION_LEVEL
from benchmarks.studies.values_inside import DUELING_8, MARGINAL_8, STATE_8, TOKEN_8

VALUES_INSIDE_NOISE = Noise(
    "values-inside-noise",
    "noise of token credit with critics of tokens, of states, and of advantages over states, on MultiKey",
    {  # rates as chosen by `values-inside`
        TOKEN_8.name: (TOKEN_8, 4e-3, ("action level", "BAD 0.8")),
        DUELING_8.name: (DUELING_8, 2e-3, ("action level", "BAD 0.8")),
        MARGINAL_8.name: (MARGINAL_8, 4e-3, ("action level", "BAD 0.8")),
        STATE_8.name: (STATE_8, 4e-3, ("action level", "BAD 0.8")),
        ACTION_LEVEL.name: (ACTION_LEVEL, 4e-3, ("action level",)),
    },
    seeds=tuple(range(500, 504)),
)
