"""`critic`: the worth of whitened features, zero initialization and critic-first order for POAD's critic."""

from __future__ import annotations

from typing import Any

from benchmarks.studies.engine.comparing import Comparing
from benchmarks.studies.engine.findings import Planned, Prediction
from benchmarks.studies.engine.study import FEWEST_SEEDS
from benchmarks.studies.tasks import FOOD, GAE_LAMBDA_TOKEN, POAD, TOMATO, trie

_CHANGES: dict[str, dict[str, Any]] = {
    "without whitening": {"critic_whitening": False},
    "PyTorch's initialization": {"critic_init": "default"},
    "neither of both": {"critic_whitening": False, "critic_init": "default"},
}
_ARMS = (
    POAD,
    *(
        trie(name, "POAD", gae_lambda_token=GAE_LAMBDA_TOKEN, policy_kwargs={"model": "pocket", **change})._replace(
            rate_of="POAD"
        )
        for name, change in _CHANGES.items()
    ),
    trie("both in one pass", "POAD", gae_lambda_token=GAE_LAMBDA_TOKEN, critic_first=False)._replace(rate_of="POAD"),
)

CRITIC = Comparing(
    "critic",
    "POAD's critic: whitened features, zero initialization, trained before the policy; each left out",
    "Settings of the critic: interquartile means over seeds, 95 % intervals",
    ((FOOD, _ARMS), (TOMATO, _ARMS)),
    (
        Planned("POAD", "neither of both", Prediction.NOT_SETTLED, gated=False),
        Planned("POAD", "without whitening", Prediction.NOT_SETTLED, gated=False),
        Planned("POAD", "PyTorch's initialization", Prediction.NOT_SETTLED, gated=False),
        Planned("POAD", "both in one pass", Prediction.NOT_SETTLED, gated=False),
    ),
    ("All have the learning rate that was chosen for POAD as it is by default.",),
    FEWEST_SEEDS,
)
