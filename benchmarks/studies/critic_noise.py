"""`critic-noise`: noise of estimators with the critics of trainings, against the exact gradient."""

from __future__ import annotations

from benchmarks.studies.credit_truth.trainings import SHRUNK, Noise
from benchmarks.studies.tasks import ACTION_LEVEL, trie

_POAD = trie("POAD 1", "POAD", gae_lambda_token=1.0)
_MORE_EPOCHS = trie("POAD 1, 20 critic epochs", "POAD", gae_lambda_token=1.0, n_critic_epochs=20)
_LARGER_RATE = trie("POAD 1, critic rate 4e-3", "POAD", gae_lambda_token=1.0, critic_learning_rate=4e-3)

CRITIC_NOISE = Noise(
    "critic-noise",
    "noise of action level, BAD and NTPO with the critics of real trainings on MultiKey",
    {  # rates as chosen by `lambda-token`
        "POAD 1": (_POAD, 4e-3, ("action level", "BAD 1", "BAD 0.8")),
        "NTPO 0.95": (trie("NTPO 0.95", "NTPO", gae_lambda_token=0.95), 2e-3, ("action level", "NTPO 0.95")),
        "action level": (ACTION_LEVEL, 4e-3, ("action level",)),
        "POAD 1, shrunk": (_POAD, 4e-3, ("action level", SHRUNK)),
        _MORE_EPOCHS.name: (_MORE_EPOCHS, 4e-3, ("action level", "BAD 1", SHRUNK)),
        _LARGER_RATE.name: (_LARGER_RATE, 4e-3, ("action level", "BAD 1", SHRUNK)),
    },
    seeds=tuple(range(400, 404)),
)
