"""Lines of results files: of an episode, and of its steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lang_bench.runner.credit import credit_of_episode
from lang_bench.runner.episodes import Result, Step
from lang_bench.runner.errors import ResultFileError
from lang_bench.runner.plan import Job
from poad_sb3.common.episode_lines import code_fields, step_line


def key_of(record: Mapping[str, Any]) -> Job:
    """Return the episode that a line belongs to.

    Raises:
        ResultFileError: If the line belongs to no episode.
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


def _credit_by_critic(steps: Sequence[Step], rewards: Sequence[float]) -> dict[str, list[list[float]]]:
    """Compute POAD's advantages by the values of each further critic."""
    names = steps[0].fields.get("critic_values", {}) if steps else {}
    values = {name: [step.fields["critic_values"][name] for step in steps] for name in names}
    return {name: credit_of_episode(rewards, rows)["POAD"] for name, rows in values.items()}


def step_records(job: Job, steps: Sequence[Step]) -> list[dict[str, Any]]:
    """Return the lines of the steps of an episode."""
    values = [step.decision.credit.values for step in steps if step.decision.credit is not None]
    # Advantages, if the agent has valued every token of the episode. Without a value of its end, an episode that was
    # truncated is credited as if it had terminated.
    is_valued = values and len(values) == len(steps) and all(values)
    rewards, end = [step.reward for step in steps], steps[-1].final_value if steps else None
    credits = credit_of_episode(rewards, values, end or 0.0) if is_valued else {}
    by_critic = {} if end is not None else _credit_by_critic(steps, rewards)  # their value of that end is not known
    records = []
    for number, step in enumerate(steps):
        record = step_line(
            job._asdict(),
            number,
            observation=step.observation,
            admissible_actions=step.admissible_actions,
            action=step.decision.text,
            info=step.info,
            reward=step.reward,
            terminated=step.terminated,
            truncated=step.truncated,
            note=step.decision.note,
        )
        if (credit := step.decision.credit) is not None:
            record |= {"tokens": list(credit.tokens)}
            record |= {name: [float(value) for value in getattr(credit, name)] for name in ("log_probs", "values")}
            record["advantages"] = {name: rows[number] for name, rows in credits.items()}
        if step is steps[-1]:
            record["final_observation"] = step.next_observation
        fields = {name: value for name, value in step.fields.items() if name != "critic_values"}
        if by_critic:
            record["credits"] = {name: rows[number] for name, rows in by_critic.items()}
        record = {**record, **fields, **code_fields(step.info, step.reward), **record}  # fields replace nothing
        if step.final_value is not None:
            record["final_value"] = step.final_value
        records.append(record)
    return records
