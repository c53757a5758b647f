"""Lines of steps: the runner and the recording of a training write the same fields with the same numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from toy import LampEnv, make_agent, make_method, randomise

from lang_bench.agents.base import Agent
from lang_bench.agents.policy import PolicyAgent
from lang_bench.runner.credit import credit_of_episode
from lang_bench.runner.episodes import Step, make_text_env, play_episode
from lang_bench.runner.plan import Job
from lang_bench.runner.records import episode_record, step_records
from poad_sb3.common.callbacks import EpisodeRecordingCallback

LAMP = "LampOfTheRunner-v0"
gym.register(LAMP, LampEnv, kwargs={"truncates": True})


def recorded(agent: Agent, episode: int = 0) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The lines of an episode and of its steps, as they are read again."""
    job, steps = Job(LAMP, 0, episode), list[Step]()
    with make_text_env(LAMP) as env:
        result = play_episode(env, agent, job.reset_seed, 1.0, steps.append)
    lines = [episode_record(job, agent.name, 1.0, result), *step_records(job, steps)]
    first, *others = json.loads(json.dumps(lines))
    return first, others


@pytest.mark.parametrize("name", ["POAD", "RLOO"])
def test_a_training_and_the_runner_write_the_same_lines(tmp_path: Path, name: str) -> None:
    model = make_method(name)
    randomise(model.policy)
    model.train = lambda: None  # type: ignore[method-assign]
    model.learn(16, EpisodeRecordingCallback(tmp_path, LAMP, n_episodes=2))
    files = ("episodes.jsonl", "episodes.steps.jsonl")
    lines = [list(map(json.loads, (tmp_path / file).read_text(encoding="utf-8").splitlines()[1:])) for file in files]
    number = 0 if "RLOO" in name else 1  # its second episode has the reset seed of the first
    episode, steps = recorded(PolicyAgent.of(model), number)
    at = {"training_steps": model.num_timesteps, "episode": number}
    (ours,) = (line for line in lines[0] if line.items() >= at.items())
    assert ours.keys() - episode.keys() <= {"training_steps", "group"}
    assert ours.items() >= {name: value for name, value in episode.items() if name in ours and name != "agent"}.items()
    our_steps = [line for line in lines[1] if line.items() >= at.items()]
    assert len(steps) == len(our_steps) > 0
    for step, our_step in zip(steps, our_steps, strict=True):
        assert our_step.keys() - {"credits"} == step.keys() - {"advantages"} | {"training_steps"}
        for field in our_step.keys() & step.keys():
            mine, theirs = our_step[field], step[field]
            if field in ("alternatives", "log_probs", "values", "entropies", "action_probs", "final_value"):
                assert flat(mine) == pytest.approx(flat(theirs), abs=1e-5), field
            else:
                assert mine == theirs, field


def flat(value: Any) -> list[float]:
    """Numbers of nested lists; texts and null by their hash."""
    if isinstance(value, list):
        return [number for one in value for number in flat(one)]
    return [float(value) if isinstance(value, float | int) else float(hash(value) % 1000)]


def test_a_truncated_episode_is_credited_with_the_value_of_its_end() -> None:
    model = make_agent()
    randomise(model.policy)
    _, steps = recorded(PolicyAgent.of(model))
    *earlier, last = steps
    end = {"text": last["final_observation"], "admissible_actions": "[]"}
    assert last["truncated"]
    assert last["final_value"] == pytest.approx(float(model.policy.predict_values(end)[0]), abs=1e-5)
    assert abs(last["final_value"]) > 1e-3
    assert not any("final_value" in step for step in earlier)
    rewards, values = ([step[name] for step in steps] for name in ("reward", "values"))
    expected = credit_of_episode(rewards, values, last["final_value"])
    assert {rule: [step["advantages"][rule] for step in steps] for rule in expected} == expected
    assert expected != credit_of_episode(rewards, values)
