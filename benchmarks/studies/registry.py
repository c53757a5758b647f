"""All studies."""

from __future__ import annotations

from benchmarks.studies.credit import CREDIT
from benchmarks.studies.credit_truth.study import CREDIT_TRUTH
from benchmarks.studies.curves import CURVES, GAMMA, GAMMA_TOKEN
from benchmarks.studies.datasci import DATASCI
from benchmarks.studies.engine.comparing import Comparing
from benchmarks.studies.engine.study import Study
from benchmarks.studies.generalisation import GENERALISATION_STUDY
from benchmarks.studies.lambda_token import LAMBDA_TOKEN
from benchmarks.studies.wall_time import WALL_TIME_STUDY

ALL: tuple[Study | Comparing, ...] = (
    CURVES,
    DATASCI,
    GAMMA_TOKEN,
    GAMMA,
    GENERALISATION_STUDY,
    CREDIT,
    CREDIT_TRUTH,
    LAMBDA_TOKEN,
    WALL_TIME_STUDY,
)
"""In the order of the paper."""
