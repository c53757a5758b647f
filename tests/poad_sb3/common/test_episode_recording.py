"""Recorded episodes of a training: it stays the same bit for bit, files can be resumed, and their numbers are right."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from poad_runs import SMALL, N, Run
from toy import EndsAtItsLimit, LampEnv, everything, make_agent, make_method, randomise

from lang_envs import LangEnvsError
from lang_envs.core import Outcome
from lang_envs.report import read_results
from poad_sb3 import BADQ, POAD
from poad_sb3.common.callbacks import EpisodeRecordingCallback, LatestCheckpointCallback
from poad_sb3.common.episode_lines import encode, reset_seed_of

LAMP, NOISY, BROKEN, LIMITED = "RecordedLamp-v0", "NoisyLamp-v0", "BrokenLamp-v0", "LimitedLamp-v0"
ALWAYS: dict[str, Any] = {"every": 1, "max_share": math.inf}


class NoisyLamp(LampEnv):
    """Draws from the generators of the process."""

    def _move(self, reward: float) -> Outcome:
        torch.rand(1)
        return super()._move(reward + random.random() + np.random.random())


class BrokenLamp(LampEnv):
    """Fails after its first moves."""

    def _move(self, reward: float) -> Outcome:
        if self.left < self.moves:
            raise LangEnvsError("The lamp is broken.")
        return super()._move(reward)


for env_id, kind in ((LAMP, LampEnv), (NOISY, NoisyLamp), (BROKEN, BrokenLamp), (LIMITED, EndsAtItsLimit)):
    gym.register(env_id, kind)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def recorded(folder: Path) -> tuple[list[dict[str, Any]], dict[tuple[int, int], list[dict[str, Any]]]]:
    """The lines of the episodes, and those of their steps by training step and episode."""
    steps: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for line in lines(folder / "episodes.steps.jsonl")[1:]:
        steps.setdefault((line["training_steps"], line["episode"]), []).append(line)
    return lines(folder / "episodes.jsonl")[1:], steps


# ------------------------------------------------------------------ the training


@pytest.mark.parametrize("name", ["POAD", "GRPO", pytest.param("POAD, free", marks=pytest.mark.matrix)])
def test_a_training_is_the_same_with_and_without_recording(tmp_path: Path, name: str) -> None:
    ends = []
    for callback in (None, EpisodeRecordingCallback(tmp_path, NOISY, **ALWAYS)):
        agent = make_method(name).learn(3 * 16, callback)
        ends.append([everything(agent), random.random(), np.random.random(), float(torch.rand(1))])
    assert ends[0] == ends[1]
    episodes, steps = recorded(tmp_path)
    assert len(episodes) == 4 * len({line["training_steps"] for line in episodes}) >= 12
    assert [line["steps"] for line in episodes] == [len(of_episode) for of_episode in steps.values()]


class Killer(EpisodeRecordingCallback):
    """Raises in an evaluation, as Ctrl-C does."""

    def _totals(self, episode: Any) -> dict[str, Any]:
        if self.model.num_timesteps == 4 * 16:
            raise KeyboardInterrupt
        return super()._totals(episode)


@pytest.mark.matrix
def test_a_resumed_training_gives_the_same_files(tmp_path: Path) -> None:
    make_agent(n_epochs=1).learn(6 * 16, EpisodeRecordingCallback(tmp_path / "straight", LAMP, **ALWAYS))
    folder, checkpoint = tmp_path / "stopped", tmp_path / "latest.zip"
    callbacks = [LatestCheckpointCallback(checkpoint, 16), Killer(folder, LAMP, **ALWAYS)]
    with pytest.raises(KeyboardInterrupt):
        make_agent(n_epochs=1).learn(6 * 16, callbacks)
    model = POAD.load(checkpoint, LampEnv())
    assert model.num_timesteps == 4 * 16
    for path in folder.iterdir():  # beyond the checkpoint, and cut short by a kill
        *_, last = lines(path)
        alone, later = (encode({**last, "training_steps": n * 16}) for n in (4, 5))
        steps_alone = alone if path.name == "episodes.steps.jsonl" else b""
        path.write_bytes(path.read_bytes() + steps_alone + 2 * later + later[:-9])
    model.learn(2 * 16, EpisodeRecordingCallback(folder, LAMP, **ALWAYS), reset_num_timesteps=False)
    names = ("episodes.jsonl", "episodes.steps.jsonl")
    straight, stopped = ([(parent / name).read_bytes() for name in names] for parent in (tmp_path / "straight", folder))
    assert straight == stopped
    taken = [line["training_steps"] for line in recorded(folder)[0]]
    assert taken == [n for n in range(0, 97, 16) for _ in range(4)]


@pytest.mark.parametrize("share", [0.0, 0.6])
def test_drops_episodes_whose_steps_are_lost(tmp_path: Path, share: float) -> None:
    make_agent(n_epochs=1).learn(
        2 * 16, [LatestCheckpointCallback(tmp_path / "a.zip", 16), EpisodeRecordingCallback(tmp_path, LAMP, **ALWAYS)]
    )
    steps = tmp_path / "episodes.steps.jsonl"
    steps.write_bytes(steps.read_bytes()[: int(share * steps.stat().st_size)])
    model = POAD.load(tmp_path / "a.zip", LampEnv())
    model.learn(16, EpisodeRecordingCallback(tmp_path, LAMP, **ALWAYS), reset_num_timesteps=False)
    episodes = read_results(tmp_path / "episodes.jsonl").episodes
    assert {episode["training_steps"] for episode in episodes} >= {32, 48}
    assert all(episode["steps_list"] for episode in episodes)


@pytest.mark.parametrize("wrong", [{"training_steps": None}, {"training_steps": 0, "episode": []}, None], ids=repr)
def test_drops_lines_of_wrong_types(tmp_path: Path, wrong: Any) -> None:
    make_agent(n_epochs=1).learn(
        2 * 16, [LatestCheckpointCallback(tmp_path / "a.zip", 16), EpisodeRecordingCallback(tmp_path, LAMP, **ALWAYS)]
    )
    for name in ("episodes.jsonl", "episodes.steps.jsonl"):
        header, *lines = (tmp_path / name).read_bytes().splitlines(keepends=True)
        (tmp_path / name).write_bytes(b"".join([header, *lines[:4], json.dumps(wrong).encode() + b"\n", *lines[4:]]))
    model = POAD.load(tmp_path / "a.zip", LampEnv())
    model.learn(16, EpisodeRecordingCallback(tmp_path, LAMP, **ALWAYS), reset_num_timesteps=False)
    assert {episode["training_steps"] for episode in read_results(tmp_path / "episodes.jsonl").episodes} >= {32, 48}


def test_beyond_its_share_of_time_only_the_first_and_the_last_are_recorded(tmp_path: Path) -> None:
    callback = EpisodeRecordingCallback(tmp_path, LAMP, every=1, max_share=0.0, n_episodes=1)
    make_agent(n_epochs=1).learn(3 * 16, callback)
    assert [line["training_steps"] for line in recorded(tmp_path)[0]] == [0, 48]
    assert callback.seconds > 0
    seldom = EpisodeRecordingCallback(tmp_path, LAMP, every=32, max_share=math.inf, n_episodes=1)
    make_agent(n_epochs=1).learn(3 * 16, seldom)
    assert [line["training_steps"] for line in recorded(tmp_path)[0]] == [0, 32, 48]


def test_an_error_ends_the_recording_and_not_the_training(tmp_path: Path) -> None:
    with pytest.warns(RuntimeWarning, match=r"step 0; got LangEnvsError: The lamp is broken\. Training continues"):
        agent = make_agent().learn(32, EpisodeRecordingCallback(tmp_path, BROKEN, **ALWAYS))
    assert agent.num_timesteps == 32
    assert everything(agent) == everything(make_agent().learn(32))
    assert recorded(tmp_path) == ([], {})


# ------------------------------------------------------------------ the lines


def test_the_fields_of_an_episode_are_those_of_the_policy(tmp_path: Path) -> None:
    agent = make_agent(learning_rate=1e-9)
    randomise(agent.policy)
    callback = EpisodeRecordingCallback(tmp_path, LAMP, env_kwargs={"truncates": True}, seed=5)
    agent.learn(16, callback)
    episodes, by_episode = recorded(tmp_path)
    header = lines(tmp_path / "episodes.steps.jsonl")[0]
    assert (header["format"], header["training"], header["episodes"], header["seeds"]) == (1, True, 4, [5])
    assert header["credit"]["rules"] == {"POAD": {"gamma_token": 1.0, "whole_actions": False}}
    policy, n_choices = agent.policy, 0
    for episode in episodes[4:]:
        steps = by_episode[16, episode["episode"]]
        assert episode["reset_seed"] == reset_seed_of(LAMP, 5, episode["episode"])
        assert episode["return"] == pytest.approx(sum(step["reward"] for step in steps))
        assert (episode["truncated"], steps[-1]["truncated"]) == (True, True)
        end = {"text": steps[-1]["final_observation"], "admissible_actions": "[]"}
        assert steps[-1]["final_value"] == pytest.approx(float(policy.predict_values(end)[0]), abs=1e-5)
        for step in steps:
            assert ("final_value" in step) == (step is steps[-1])
            listed = step["admissible_actions"]
            assert "".join(step["tokens"]).strip() == step["action"] + "</s>"
            assert "".join(step["prompt_tokens"]).startswith(f"<s>{step['observation']}")
            probabilities = policy.action_probabilities(step["observation"], listed)
            assert step["action_probs"] == pytest.approx([probabilities[action] for action in listed], rel=1e-4)
            assert math.exp(sum(step["log_probs"])) == pytest.approx(probabilities[step["action"]], rel=1e-4)
            observation = {"text": step["observation"], "admissible_actions": json.dumps(listed)}
            assert step["values"][0] == pytest.approx(float(policy.predict_values(observation)[0]), abs=1e-5)
            lists = ("log_probs", "values", "token_options", "alternatives", "entropies")
            for text, log_prob, _, options, others, entropy in zip(
                step["tokens"], *(step[name] for name in lists), strict=True
            ):
                assert (options == 1) == (log_prob == 0) == (others is None)
                if options == 1:
                    assert entropy == 0
                    continue
                n_choices += 1
                assert others[0] == [text, log_prob]
                assert len(others) == options  # at most 5 here
                chances = np.exp([log_prob for _, log_prob in others])
                assert chances.sum() == pytest.approx(1, abs=1e-5)
                assert entropy == pytest.approx(-(chances * np.log(chances)).sum(), abs=1e-5)
    assert n_choices > 8


@pytest.mark.parametrize("setting", ["gamma_thought", "thought_penalty"])
def test_thoughts_are_the_notes_of_steps(tmp_path: Path, setting: str) -> None:
    arguments = {"action_sampling": "think", "max_thought_tokens": 2, "keep_thoughts": True, setting: 0.9}
    make_agent(**arguments).learn(16, EpisodeRecordingCallback(tmp_path, LAMP))
    header = lines(tmp_path / "episodes.steps.jsonl")[0]
    assert header["credit"]["rules"] == {}, "POAD's own is not that of one discount and of the recorded rewards"
    for steps in recorded(tmp_path)[1].values():
        for step in steps:
            assert step["note"].endswith("</think>")
            assert "".join(step["tokens"]).strip().startswith(step["note"])
        lengths = [len(step["prompt_tokens"]) for step in steps]
        assert lengths == sorted({*lengths})


def test_success_of_the_environment_is_that_of_the_recorded_episode(tmp_path: Path) -> None:
    """It passes through the wrappers of observation, monitor and training."""
    successes = []
    for truncates in (False, True):
        callback = EpisodeRecordingCallback(tmp_path, LAMP, env_kwargs={"truncates": truncates}, n_episodes=2)
        make_agent(n_epochs=1, env={"truncates": truncates}).learn(16, callback)
        successes.append([line["success"] for line in recorded(tmp_path)[0]])
    assert successes == [[True] * 4, [False] * 4]


def test_no_value_is_recorded_after_the_end_of_a_task_at_its_time_limit(tmp_path: Path) -> None:
    make_agent(n_epochs=1).learn(16, EpisodeRecordingCallback(tmp_path, LIMITED, n_episodes=1))
    _, steps = recorded(tmp_path)
    assert [steps[16, 0][-1][name] for name in ("terminated", "truncated")] == [True, True]
    assert "final_value" not in steps[16, 0][-1]


@pytest.mark.parametrize("penalty", [0.0, 0.25])
def test_credit_of_a_group_is_recorded(tmp_path: Path, penalty: float) -> None:
    thoughts = {"action_sampling": "think", "max_thought_tokens": 2, "thought_penalty": penalty} if penalty else {}
    agent = make_method("RLOO", **thoughts)  # groups of 2
    randomise(agent.policy)
    agent.learn(16, EpisodeRecordingCallback(tmp_path, LAMP))
    episodes, by_episode = recorded(tmp_path)
    assert [line["group"] for line in episodes] == 2 * [0, 0, 1, 1]
    for episode, other in zip(episodes[::2], episodes[1::2], strict=True):
        steps, others = (by_episode[line["training_steps"], line["episode"]] for line in (episode, other))
        assert episode["reset_seed"] == other["reset_seed"]
        assert steps[0]["observation"] == others[0]["observation"]
        for step in steps:
            assert step["values"] == []
            expected = [paid(episode, steps, penalty) - paid(other, others, penalty)] * len(step["tokens"])
            assert step["credits"]["RLOO"] == pytest.approx(expected)
    assert any(
        episode["return"] != other["return"] for episode, other in zip(episodes[::2], episodes[1::2], strict=True)
    )
    assert any(step["action"] != by_episode[0, 1][n]["action"] for n, step in enumerate(by_episode[0, 0]))


def paid(episode: dict[str, Any], steps: list[dict[str, Any]], penalty: float) -> float:
    """The return with the penalty of the tokens of thoughts, each up to the end of its mark."""
    n_thought = 0
    for step in steps:
        texts = ["".join(step["tokens"][:n]).strip() for n in range(len(step["tokens"]))]
        n_thought += texts.index(step["note"]) if step["note"] else 0
    return float(episode["return"]) - penalty * n_thought


def test_recordings_of_badq_have_whole_actions_only(tmp_path: Path) -> None:
    model = BADQ("BADQPolicy", LampEnv(), seed=0, learning_starts=4)
    model.learn(8, EpisodeRecordingCallback(tmp_path, LAMP, every=8, n_episodes=2))
    steps = [step for of_episode in recorded(tmp_path)[1].values() for step in of_episode]
    assert all("tokens" not in step and "token_options" not in step for step in steps)
    assert all(sum(step["action_probs"]) == pytest.approx(1) for step in steps)


# ------------------------------------------------------------------ the command


def test_the_command_records_episodes(run: Run) -> None:
    run("train", LAMP, *SMALL, "--steps", str(N), "--out", "run", "--record-episodes", "2", "--seed", "7")
    episodes, _ = recorded(Path("run"))
    assert [(line["training_steps"], line["episode"], line["seed"]) for line in episodes] == [
        (0, 0, 7),
        (0, 1, 7),
        (N, 0, 7),
        (N, 1, 7),
    ]
    assert lines(Path("run/episodes.jsonl"))[0]["command"]
    run("train", "--out", "run", "--resume", "--steps", str(2 * N))
    assert len(recorded(Path("run"))[0]) == 6
    run("train", LAMP, *SMALL, "--steps", str(N), "--out", "none", "--record-episodes", "0")
    assert not list(Path("none").glob("episodes*"))
