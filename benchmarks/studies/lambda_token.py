"""`lambda-token`: the trace inside actions, for POAD and NTPO; its outcome sets the default of `gae_lambda_token`."""

from __future__ import annotations

from benchmarks.studies.engine.comparing import Comparing
from benchmarks.studies.engine.findings import Planned, Prediction
from benchmarks.studies.tasks import ACTION_LEVEL, MULTIKEY, OLD_TRACE, SALAD, trie

SEEDS = tuple(range(200, 210))
"""Seeds of this study alone: other studies use seeds that did not choose the default."""
ARMS = (
    *(trie(f"POAD {value:g}", "POAD", gae_lambda_token=value) for value in (1.0, 0.95, 0.8, 0.0)),
    *(trie(f"NTPO {value:g}", "NTPO", gae_lambda_token=value) for value in (1.0, 0.95)),
    ACTION_LEVEL,
)
"""Methods: all act on the same trie with the same loss, a ratio for each token; they differ in credit alone."""

LAMBDA_TOKEN = Comparing(
    "lambda-token",
    "trace inside an action: POAD 1, 0.95, 0.8, 0, NTPO 1, 0.95, action level",
    "gae_lambda_token: interquartile means over seeds, 95 % intervals",
    ((MULTIKEY, ARMS), (SALAD, ARMS)),
    (
        Planned("POAD 0.95", "POAD 1", Prediction.HIGHER, (MULTIKEY.name,)),
        Planned("POAD 0.95", "POAD 1", Prediction.NOT_SETTLED, (SALAD.name,)),
        Planned("POAD 0.8", "POAD 1", Prediction.NOT_SETTLED),
        Planned("POAD 0", "POAD 1", Prediction.NOT_SETTLED),
        Planned("POAD 0.95", "POAD 0", Prediction.HIGHER, gated=False),
        Planned("POAD 1", "action level", Prediction.NOT_SETTLED),
    ),
    (
        "The paper's code has 0.95 for every token.",
        f"All runs with values below 1 were {OLD_TRACE}",
    ),
    SEEDS,
)
