"""Measure an agent of your own beside the random agent and the oracle. About 5 seconds.

python examples/measure_an_agent.py [EPISODES]

From a shell: `lang-bench run --agent my_module:careful --env ID`, then `report` (docs/benchmarks.md).
"""

import sys
from pathlib import Path

from lang_bench import Plan, load, measure
from lang_envs.report.statistics import estimate, mean

ENV_ID = "VirtualHome-FoodPreparation-v0"


def careful(observation: str, info: dict) -> str:
    """Return one of the admissible actions. A function of one text works too: the actions are then listed in it."""
    if "You hold the pancake" in observation:
        open_or_put = "put the pancake in" if "microwave open" in observation else "open"
        wishes = [f"{open_or_put} the microwave", "walk to the microwave"]
    elif "hands are empty" in observation:
        wishes = ["grab the pancake", "walk to the pancake", "walk to the kitchen"]
    else:
        wishes = ["close the microwave"]
    return next(wish for wish in wishes if wish in info["admissible_actions"])


if __name__ == "__main__":
    n_episodes = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    files = []
    for agent in ("random", "__main__:careful", "oracle"):
        path = Path("runs/measured") / f"{agent.replace('__main__:', '')}.jsonl"
        # A killed measurement resumes. After a change of the agent remove its file: it holds episodes of the old one.
        files.append(measure(Plan(agent, (ENV_ID,), episodes=n_episodes, seeds=3), path).path)

    for cell in load(files):
        value, low, high = estimate([cell.scores("discounted_return")], mean)
        success = cell.scores("success").mean()
        print(f"{cell.agent:>18}: discounted return {value:.3f} [{low:.3f}, {high:.3f}], success {success:.0%}")
