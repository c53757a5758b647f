"""Lines of results files: of an episode, and of its steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.runner.credit import credit_of_episode
from benchmarks.runner.episodes import Result, Step
from benchmarks.runner.errors import ResultFileError
from benchmarks.runner.plan import Job


def key_of(record: Mapping[str, Any]) -> Job:
    """Return the episode that a line belongs to.

    Raises:
        ResultFileError: If it is of none.
    """
    try:
        return Job(record["env"], record["seed"], record["episode"])
    except KeyError as error:
        raise ResultFileError(
            f"Expected env, seed and episode in every line but the first; got {str(record)[:80]}. "
            "Fix: restore the file, or begin another with --out."
        ) from error


def episode_record(job: Job, agent: str, discount: float, result: Result) -> dict[str, Any]:
    """Return the line of an episode."""
    return {
        **job._asdict(),
        "agent": agent,
        "reset_seed": job.reset_seed,
        "return": result.episode_return,
        "discounted_return": result.discounted_return,
        "discount": discount,
        "success": result.success,
        "steps": result.n_actions,
        "moves": result.n_moves,
        "invalid_actions": result.n_invalid,
        "terminated": result.terminated,
        "truncated": result.truncated,
        **result.usage._asdict(),
        **result.family,
    }


def step_records(job: Job, steps: Sequence[Step]) -> list[dict[str, Any]]:
    """Return the lines of the steps of an episode."""
    values = [step.decision.credit.values for step in steps if step.decision.credit is not None]
    # Advantages, if the agent has valued every token of the episode. An episode that was truncated is credited as if it
    # had terminated: the value of its end is unknown.
    is_valued = values and len(values) == len(steps) and all(values)
    credits = credit_of_episode([step.reward for step in steps], values) if is_valued else {}
    records = []
    for number, step in enumerate(steps):
        record: dict[str, Any] = {
            **job._asdict(),
            "step": number,
            "observation": step.observation,
            "admissible_actions": step.admissible_actions,
            "action": step.decision.text,
            "invalid": bool(step.info["invalid_action"]),
            "reward": step.reward,
            "success": bool(step.info["success"]),
            "moves": step.moves,
            "terminated": step.terminated,
            "truncated": step.truncated,
            "note": step.decision.note,
        }
        if (credit := step.decision.credit) is not None:
            record |= {"tokens": list(credit.tokens)}
            record |= {name: [float(one) for one in getattr(credit, name)] for name in ("log_probs", "values")}
            record["advantages"] = {name: rows[number] for name, rows in credits.items()}
        records.append(record)
    records[-1:] = [{**record, "final_observation": steps[-1].next_observation} for record in records[-1:]]
    return records
