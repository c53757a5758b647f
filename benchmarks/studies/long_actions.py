"""`long-actions`: token credit and action-level credit where actions are written with the whole vocabulary."""

from __future__ import annotations

from benchmarks.studies.engine.comparing import Comparing
from benchmarks.studies.engine.findings import Planned, Prediction
from benchmarks.studies.engine.jobs import Cloning, Evaluation
from benchmarks.studies.engine.study import FEWEST_SEEDS
from benchmarks.studies.engine.tuning import Arm, Task
from benchmarks.studies.tasks import FOOD, GAE_LAMBDA_TOKEN

_FREE = {"action_sampling": "free", "max_new_tokens": 64, "ent_coef": 0.0}
"""As in the preset of the pocket coder, which writes freely too, the entropy of the whole vocabulary is no aim."""
_CLONING = Cloning((FOOD.env_id,), (0.75,))
WORDS = Task(
    "free text, words",
    FOOD.env_id,
    2_048,
    Evaluation(every=256, episodes=50),
    arguments=_FREE,
    cloning=_CLONING,
)
CHARACTERS = WORDS._replace(
    name="free text, characters", arguments={**_FREE, "policy_kwargs": {"model": "pocket-char"}}
)
_ARMS = (
    Arm("POAD", "POAD", {"gae_lambda_token": GAE_LAMBDA_TOKEN}),
    Arm("NTPO", "NTPO", {"gae_lambda_token": GAE_LAMBDA_TOKEN}),
    Arm("action level", "POAD", {"credit_level": "action", "ratio": "token"}),
)

LONG_ACTIONS = Comparing(
    "long-actions",
    "POAD, NTPO and action level on Food Preparation in free text, of words and of characters",
    "Free text: interquartile means over seeds, 95 % intervals",
    ((WORDS, _ARMS), (CHARACTERS, _ARMS)),
    (Planned("POAD", "action level", Prediction.HIGHER), Planned("POAD", "NTPO", Prediction.NOT_SETTLED)),
    (
        "Every token is chosen among the whole vocabulary: 5 tokens an action with the pocket model, 23 with the "
        "character-level one. An untrained model succeeds in about 1 of 100 episodes, so that all methods begin with "
        "behaviour cloning of the same noisy episodes.",
    ),
    FEWEST_SEEDS,
)
