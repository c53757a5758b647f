"""The studies of learning curves, as data: `curves`, `gamma-token` and `gamma`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from benchmarks.studies.engine.comparing import Comparing
from benchmarks.studies.engine.findings import Claim
from benchmarks.studies.engine.jobs import Evaluation
from benchmarks.studies.engine.study import Options
from benchmarks.studies.engine.tuning import Arm, Comparison, Task
from lang_envs import UNSEEN_IDS

_FOOD = Task(
    "food-preparation",
    "VirtualHome-FoodPreparation-v0",
    4_096,
    Evaluation(every=512, episodes=50, tests=UNSEEN_IDS, test_episodes=100),
)
_TOMATO = Task("tomato-salad", "Overcooked-TomatoSalad-v0", 8_192, Evaluation(every=1_024, episodes=50))
_HARDER = (
    Task("entertainment", "VirtualHome-Entertainment-v0", 8_192, Evaluation(every=1_024, episodes=50), _FOOD),
    Task(
        "tomato-lettuce-salad",
        "Overcooked-TomatoLettuceSalad-v0",
        12_288,
        Evaluation(every=1_536, episodes=50),
        _TOMATO,
    ),
)
TASKS: dict[str, Task] = {task.name: task for task in (_FOOD, _TOMATO, *_HARDER)}
"""The tasks of the paper, cheapest first. The last two take their rates from the easier task of their family."""

METHODS = ("POAD", "NTPO", "TWOSOME", "ARCHER")
"""Of the paper's main figure."""


def _arm(name: str, algorithm: str, **arguments: float) -> Arm:
    return Arm(name, algorithm, {"action_sampling": "candidates", **arguments})


SAME_POLICY: tuple[Arm, ...] = tuple(_arm(name, name) for name in METHODS)
"""All act by TWOSOME's softmax over whole candidates; they differ in credit, and TWOSOME also in the loss."""
OWN_POLICY: tuple[Arm, ...] = tuple(
    _arm(name, name) if name == "TWOSOME" else Arm(name, name, {"action_sampling": "trie"}) for name in METHODS
)
"""The methods with token credit sample token by token. TWOSOME is the same as above, and its runs are shared."""


def find_tasks(options: Options, known: Sequence[str]) -> list[Task]:
    """Tasks that are chosen by name or id."""
    return [TASKS[name] for name in options.chosen_tasks(known, {TASKS[name].env_id: name for name in known})]


_FIRST = ("food-preparation", "tomato-salad")
"""Tasks that are to have all their seeds before another is begun."""
_KITCHEN = (
    "In the kitchen gamma is 0.95 per macro-action, in training: with 0.99 farming of chop rewards would be the best "
    "plan. The return that is shown is discounted 0.99 per primitive move, as the published code reports it; the plan "
    "that is best for 0.95 per macro-action has 0.896 of the oracle's 0.921 in Tomato Salad."
)
_TUNED = (
    "Every method is tried with the same learning rates on the same tuning seeds; nothing is reported of these seeds. "
    "Entertainment takes the rates chosen on Food Preparation, Tomato Lettuce Salad those chosen on Tomato Salad. "
    "All other arguments are those of the pocket presets, which were once tuned for POAD with its own policy: an "
    "advantage of POAD that equal budgets of this study do not remove."
)
_FEW = (
    "Bootstrap intervals of a few seeds are too narrow, and no more than a lower bound of the doubt. "
    "Whether a difference may be chance is judged by the exact test of ranks, which three seeds against three never "
    "settle."
)
_LOSSES = (
    "TWOSOME's loss is that of whole actions: one ratio, clip and entropy for each, where the others have them for "
    "tokens."
)
_UNDISCOUNTED = (
    "With gamma 1 the kitchen is another problem: farming of chop rewards is worth more there than with 0.95, while "
    "the return that is shown stays the same."
)
_PAPER = "arXiv 2405.15821, LLaMA2-7B with LoRA on A100s, 3 seeds:"


PANELS = {
    "one policy for all (candidates)": SAME_POLICY,
    "each method's own policy": OWN_POLICY,
}
"""The headline, where POAD, NTPO and ARCHER differ in credit alone; and each method with the policy it comes with."""


def _curves(options: Options) -> list[Comparison]:
    chosen = find_tasks(options, list(TASKS))
    return [
        Comparison(title, task, arms)
        for is_first in (True, False)
        for title, arms in PANELS.items()
        for task in chosen
        if (task.name in _FIRST) is is_first
    ]


CURVES = Comparing(
    "curves",
    "POAD, NTPO, TWOSOME and ARCHER on the four embodied tasks",
    "POAD, NTPO, TWOSOME and ARCHER with the pocket model: interquartile means over seeds, 95 % intervals",
    _curves,
    (Claim("POAD", "NTPO"), Claim("POAD", "TWOSOME", strict=False)),
    f"{_PAPER} on every task POAD reaches at least TWOSOME's final return, faster and with smaller spread, and NTPO is "
    "below POAD.",
    (_TUNED, _LOSSES, _KITCHEN, _FEW),
)


GAMMA_TOKENS: tuple[Arm, ...] = (
    _arm("1 (POAD)", "POAD"),
    _arm("0.95 (NTPO)", "NTPO"),
    *(_arm(f"{value:g}", "NTPO", gamma_token=value) for value in (0.9, 0.8, 0.5)),
)
"""By the discount inside an action. The first two are runs of `curves`, and shared."""

GAMMA_TOKEN = Comparing(
    "gamma-token",
    "discount inside an action: 1 (POAD), 0.95 (NTPO), 0.9, 0.8, 0.5",
    "The discount inside an action, one policy for all: interquartile means over seeds, 95 % intervals",
    lambda options: [
        Comparison("discount inside the action", task, GAMMA_TOKENS) for task in find_tasks(options, _FIRST)
    ],
    tuple(Claim(one.name, two.name) for one, two in itertools.pairwise(GAMMA_TOKENS)),
    f"{_PAPER} NTPO gets worse as its discount inside actions falls from 1.",
    (_TUNED, _KITCHEN, _FEW),
)

GAMMAS: tuple[Arm, ...] = (
    _arm("POAD, 0.95", "POAD"),
    _arm("POAD, 1", "POAD", gamma=1.0),
    _arm("TWOSOME, 0.95", "TWOSOME"),
    _arm("TWOSOME, 1", "TWOSOME", gamma=1.0),
)
"""By the discount between actions. Those of 0.95 are runs of `curves`, and shared."""

GAMMA = Comparing(
    "gamma",
    "discount between actions: 1 or 0.95, for POAD and TWOSOME",
    "The discount between actions, one policy for all: interquartile means over seeds, 95 % intervals",
    lambda options: [Comparison("discount between actions", task, GAMMAS) for task in find_tasks(options, _FIRST)],
    (Claim("POAD, 0.95", "POAD, 1"), Claim("TWOSOME, 0.95", "TWOSOME, 1")),
    f"{_PAPER} without a discount between actions both POAD and TWOSOME are much worse.",
    (_TUNED, _LOSSES, _KITCHEN, _UNDISCOUNTED, _FEW),
)
