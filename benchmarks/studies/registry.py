"""All studies."""

from __future__ import annotations

from benchmarks.studies.credit import CREDIT
from benchmarks.studies.credit_truth.study import CREDIT_TRUTH
from benchmarks.studies.credit_truth.trainings import Noise
from benchmarks.studies.critic import CRITIC
from benchmarks.studies.critic_noise import CRITIC_NOISE
from benchmarks.studies.curves import CURVES
from benchmarks.studies.datasci import DATASCI
from benchmarks.studies.distractors import DISTRACTORS
from benchmarks.studies.engine.comparing import Comparing
from benchmarks.studies.engine.study import Study
from benchmarks.studies.foreign import FOREIGN
from benchmarks.studies.lambda_token import LAMBDA_TOKEN
from benchmarks.studies.long_actions import LONG_ACTIONS
from benchmarks.studies.multikey import MULTIKEY_STUDY
from benchmarks.studies.real_model import CRITICS, REAL_MODEL, CurvesOfPresets
from benchmarks.studies.small_rate import SMALL_RATE
from benchmarks.studies.thoughts import THOUGHTS
from benchmarks.studies.values_inside import VALUES_INSIDE
from benchmarks.studies.values_inside_noise import VALUES_INSIDE_NOISE
from benchmarks.studies.warm_start import WARM_START

ALL: tuple[Study | Comparing | Noise | CurvesOfPresets, ...] = (
    LAMBDA_TOKEN,
    MULTIKEY_STUDY,
    CURVES,
    LONG_ACTIONS,
    WARM_START,
    DATASCI,
    CRITIC,
    CREDIT,
    CREDIT_TRUTH,
    CRITIC_NOISE,
    VALUES_INSIDE,
    VALUES_INSIDE_NOISE,
    DISTRACTORS,
    SMALL_RATE,
    REAL_MODEL,
    CRITICS,
    FOREIGN,
    THOUGHTS,
)
"""All studies in the order of docs/benchmarks/protocol.md; `lambda-token` first, as it sets a default of the rest."""
