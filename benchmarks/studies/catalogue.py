"""The tasks and methods of the studies, as data."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.studies.arms import Arm, Task
from benchmarks.studies.errors import StudyError
from benchmarks.studies.jobs import Evaluation
from lang_envs import UNSEEN_IDS

__all__ = ["METHODS", "OWN_POLICY", "SAME_POLICY", "TASKS", "find_tasks"]

_FOOD = Task(
    "food-preparation",
    "VirtualHome-FoodPreparation-v0",
    4_096,
    Evaluation(every=512, episodes=50, tests=UNSEEN_IDS, test_episodes=100),
)
_TOMATO = Task("tomato-salad", "Overcooked-TomatoSalad-v0", 8_192, Evaluation(every=1_024, episodes=50))
TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        _FOOD,
        _TOMATO,
        Task("entertainment", "VirtualHome-Entertainment-v0", 8_192, Evaluation(every=1_024, episodes=50), _FOOD),
        Task(
            "tomato-lettuce-salad",
            "Overcooked-TomatoLettuceSalad-v0",
            12_288,
            Evaluation(every=1_536, episodes=50),
            _TOMATO,
        ),
    )
}
"""The tasks of the paper, cheapest first. The last two take their rates from the easier task of their family."""

METHODS = ("POAD", "NTPO", "TWOSOME", "ARCHER")
"""Of the paper's main figure."""

_BY_CANDIDATES = {"action_sampling": "candidates"}
SAME_POLICY: tuple[Arm, ...] = tuple(Arm(name, name, _BY_CANDIDATES) for name in METHODS)
"""All act by TWOSOME's softmax over whole candidates; what they differ in is credit, and TWOSOME in the loss of it."""
OWN_POLICY: tuple[Arm, ...] = tuple(
    Arm(name, name, _BY_CANDIDATES if name == "TWOSOME" else {"action_sampling": "trie"}) for name in METHODS
)
"""The methods with token credit sample token by token. TWOSOME is the same as above, and its runs are shared."""


def find_tasks(names: Sequence[str], known: Sequence[str]) -> list[Task]:
    """Tasks by name or id, in the order of the study; all that it has if none is named.

    Raises:
        StudyError: For a name that the study does not have.
    """
    ids = {TASKS[name].env_id: name for name in known}
    wanted = {ids.get(name, name) for name in names}
    wrong = [name for name in names if ids.get(name, name) not in known]
    if wrong:
        raise StudyError(f"Expected tasks among {', '.join(known)}; got {', '.join(wrong)}. Fix: name some of these.")
    return [TASKS[name] for name in known if not names or name in wanted]
