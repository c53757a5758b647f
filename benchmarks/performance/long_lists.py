"""Cost of a step with long lists of actions: the environment alone, and methods acting with the pocket model.

CPU time of one thread on MultiKey with half of its slots as keys, two words each. Every action is chosen for a new
prompt, with the action trie known from earlier ones. The sizes take turns, so that other load meets them alike.

Writes long_lists.json.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym

from benchmarks.performance.timing import milliseconds, one_thread
from benchmarks.reports.tables import show_records
from benchmarks.runner.files import write_result
from benchmarks.runner.options import Count
from lang_envs.wrappers import AdmissibleObservation
from poad_sb3 import POAD, TWOSOME, LLMPolicy

ENV_ID = "MultiKey-v0"
SLOTS = (6, 8, 12)
TWOSOME_SLOTS = (6, 8)
"""Numbers of slots for TWOSOME: fewer, as its passes hold all candidates."""


class Player:
    """An environment with some slots, and the methods that act in it."""

    def __init__(self, n_slots: int) -> None:
        self.n_actions = 2**n_slots
        self.env = gym.make(ENV_ID, k=n_slots // 2, d=n_slots - n_slots // 2)
        self.packed = AdmissibleObservation(gym.make(ENV_ID, k=n_slots // 2, d=n_slots - n_slots // 2))
        kinds = (POAD, TWOSOME) if n_slots in TWOSOME_SLOTS else (POAD,)
        self.models = {kind.__name__: kind("LLMPolicy", self.packed, seed=0, n_steps=8) for kind in kinds}

    def works(self, seed: int) -> dict[str, Callable[[], object]]:
        """Return the work that is measured, by name, after preparing it for one seed."""
        self.env.reset(seed=seed)
        action = self.env.action_space.encode(self.env.unwrapped.sentences[seed % self.n_actions])  # type: ignore[attr-defined]
        observation, _ = self.packed.reset(seed=seed)
        batch = {name: [text] for name, text in observation.items()}
        works: dict[str, Callable[[], object]] = {
            "env": lambda: self.env.step(action),
            "env, packed": lambda: self.packed.step(action),
        }
        for name, model in self.models.items():
            works[name] = partial(_act, model.policy, batch, False)
            works[f"{name}, greedy"] = partial(_act, model.policy, batch, True)
        return works


def _act(policy: LLMPolicy, batch: Any, deterministic: bool) -> None:
    policy.clear_caches()
    policy.act(batch, deterministic)


def measured(n_seeds: int) -> dict[str, dict[str, Any]]:
    """Return the median milliseconds of each kind of work, by the number of actions."""
    players = [Player(n_slots) for n_slots in SLOTS]
    for player in players:
        for work in player.works(n_seeds).values():
            work()
    times_of: dict[str, dict[str, list[float]]] = {f"{player.n_actions:,}": {} for player in players}
    for seed in range(n_seeds):
        for player in players:
            for name, work in player.works(seed).items():
                times_of[f"{player.n_actions:,}"].setdefault(name, []).append(milliseconds(work))
    return {
        size: {name: round(statistics.median(times), 3) for name, times in size_times.items()}
        for size, size_times in times_of.items()
    }


def long_lists(seeds: Count = 12) -> None:
    """Measure the environment and the methods at each number of actions.

    Args:
        seeds: Number of prompts for each number of actions.
    """
    with one_thread():
        rows = measured(seeds)
        write_result("long_lists", {"env": ENV_ID, "milliseconds": rows})
    show_records("actions", rows, tuple(rows[f"{2 ** SLOTS[0]:,}"]))
