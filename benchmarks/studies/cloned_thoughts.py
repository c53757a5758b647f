"""Return of SmolLM2-135M on Parity after cloning, with and without thoughts.

POAD without a thought, with 4 tokens and with 16 clones the oracle with its thoughts, as in the study `thoughts`: one
pass over 1,000 rows of 8 objects. Fifty episodes are played by sampling, before and after. Seeds differ in the adapter
alone. Writes cloned_thoughts.json after each clone. Clones in that file are not made again.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import Annotated, Any

import gymnasium as gym
import torch
import typer

from benchmarks.files import RESULTS, write_result
from benchmarks.options import parse_seeds
from benchmarks.reports.tables import show_table
from benchmarks.studies.engine.jobs import Cloning
from benchmarks.studies.engine.training import EVALUATION_SEED, clone
from benchmarks.studies.thoughts import MARKS
from lang_bench.agents.policy import PolicyAgent
from lang_bench.runner.evaluation import play, summarize
from poad_sb3 import POAD

ENV_ID, EPISODES, BUDGETS = "Parity-v0", 50, (16, 0, 4)
CLONING = Cloning((ENV_ID,), (0.0,), episodes=250, epochs=1, batch_size=8, learning_rate=1e-3)


def run(budget: int, seed: int, *, is_first: bool) -> dict[str, Any]:
    """Clone with thoughts of at most `budget` tokens, and return the mean returns.

    A fresh adapter changes nothing: the policy before cloning is that of every seed, and is measured with the first.
    """
    torch.set_num_threads(1)
    thoughts: dict[str, Any] = {}
    if budget:
        thoughts = {"action_sampling": "think", "max_thought_tokens": budget, "thought_marks": MARKS}
    env = gym.make(ENV_ID)
    model = POAD("LLMPolicy", env, seed=seed, temperature=1.0, policy_kwargs={"model": "smollm2"}, **thoughts)

    def score() -> float:
        return summarize(play(ENV_ID, PolicyAgent.of(model), EPISODES, seed=EVALUATION_SEED)).mean_return

    before, start = score() if is_first else None, time.process_time()
    clone(model, CLONING)
    seconds = time.process_time() - start
    return {"budget": budget, "seed": seed, "before": before, "cloned": score(), "cpu_seconds": round(seconds, 1)}


def cloned_thoughts(seeds: Annotated[str, typer.Option(metavar="N,N")] = "610,611,612") -> None:
    """Clone thoughts of 16, 0 and 4 tokens with SmolLM2 on Parity."""
    file = RESULTS / "cloned_thoughts.json"
    runs = json.loads(file.read_text(encoding="utf-8"))["runs"] if file.exists() else []
    done, chosen_seeds = {(result["budget"], result["seed"]) for result in runs}, parse_seeds(seeds)
    for seed in chosen_seeds:
        for budget in BUDGETS:
            if (budget, seed) not in done:
                runs.append(run(budget, seed, is_first=seed == chosen_seeds[0]))
                write_result("cloned_thoughts", {"env": ENV_ID, "cloning": asdict(CLONING), "runs": runs})
    show_table(list(runs[0]), [result.values() for result in runs])
