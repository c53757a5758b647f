"""`multikey`: token credit where many tokens of an action are a choice and few of them decide."""

from __future__ import annotations

from benchmarks.studies.engine.comparing import Beside, Comparing
from benchmarks.studies.engine.findings import Planned, Prediction
from benchmarks.studies.engine.jobs import Evaluation
from benchmarks.studies.engine.tuning import Arm
from benchmarks.studies.key_credit import key_credit_jobs, key_credit_rows
from benchmarks.studies.tasks import (
    ACTION_LEVEL,
    GRPO,
    MATCHED,
    MULTIKEY,
    NTPO,
    NTPO_DISCOUNTED,
    OLD_TRACE,
    POAD,
    RLOO,
    TURN_PPO,
    TWOSOME,
    discount_trend,
)

_TUNED = MULTIKEY._replace(tuned_on=MULTIKEY)
ONE = _TUNED._replace(
    name="multikey 1 0",
    steps=2_048,
    evaluation=Evaluation(every=256, episodes=50),
    env_kwargs={"k": 1, "d": 0, "horizon": 4},
)
EIGHT = _TUNED._replace(name="multikey 4 4", env_kwargs={"k": 4, "d": 4, "horizon": 4})
TRAP = _TUNED._replace(name="length-trap", env_id="MultiKey-length-trap-v0", env_kwargs={})

_ON_TRIE = (POAD, NTPO, MATCHED, ACTION_LEVEL, GRPO, RLOO, TURN_PPO)
_POAD_20, _ACTION_LEVEL_20 = (
    Arm(f"{arm.name}, 20 critic epochs", arm.algorithm, {**arm.arguments, "n_critic_epochs": 20}, rate_of=arm.name)
    for arm in (POAD, ACTION_LEVEL)
)
"""Methods with the passes of the critic that `critic-noise` found to help token credit."""
_FASTER = "POAD learns faster than {} on MultiKey"

MULTIKEY_STUDY = Comparing(
    "multikey",
    "POAD, NTPO, action level, TWOSOME, GRPO, RLOO and turn PPO on MultiKey with (keys, distractors)",
    "MultiKey: interquartile means over seeds, 95 % intervals",
    (
        (MULTIKEY, (*_ON_TRIE, TWOSOME, *NTPO_DISCOUNTED, _POAD_20, _ACTION_LEVEL_20)),
        (TRAP, (*_ON_TRIE, TWOSOME)),
        (EIGHT, _ON_TRIE),
        (ONE, (*_ON_TRIE, TWOSOME)),
    ),
    (
        Planned("POAD", "NTPO", Prediction.NOT_SETTLED, (MULTIKEY.name, EIGHT.name), _FASTER.format("NTPO")),
        Planned("POAD", "NTPO", Prediction.HIGHER, (TRAP.name,), "NTPO prefers the wrong length", gated=False),
        Planned(MATCHED.name, "NTPO", Prediction.NOT_SETTLED, (MULTIKEY.name, EIGHT.name)),
        Planned("POAD", "TWOSOME", Prediction.HIGHER, (MULTIKEY.name,), _FASTER.format("TWOSOME")),
        Planned("POAD", "GRPO", Prediction.HIGHER, (MULTIKEY.name,)),
        Planned("POAD", "RLOO", Prediction.HIGHER, (MULTIKEY.name,)),
        Planned(_POAD_20.name, "POAD", Prediction.HIGHER, (MULTIKEY.name,), gated=False),
        Planned(_POAD_20.name, _ACTION_LEVEL_20.name, Prediction.NOT_SETTLED, (MULTIKEY.name,), gated=False),
        discount_trend(MULTIKEY),
    ),
    (
        "Two words a slot, four decisions an episode. Actions: 2 with (1, 0), 64 with (2, 4), 256 with (4, 4). TWOSOME "
        "scores every candidate and is left out of (4, 4).",
        "Rates are chosen on (2, 4) for all tasks.",
        "Credit of key tokens and distractors: mean change of the value by one token, after 4,096 steps of POAD on "
        "(2, 4) with a rate of 0.001 that was not tuned.",
        f"The runs of {MATCHED.name} were {OLD_TRACE}",
    ),
    beside=Beside(key_credit_jobs, key_credit_rows),
)
