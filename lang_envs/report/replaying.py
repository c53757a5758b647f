"""Recorded episodes, played again and compared with the record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from lang_envs.arguments import finite_reward
from lang_envs.wrappers import TextAction

__all__ = ["Replayed", "recorded_arguments", "replayed"]


class Replayed(NamedTuple):
    """A moment of an episode that is played again.

    Attributes:
        text: Text of the observation.
        reward: Reward of the action before it; 0 after the reset.
        info: Info of the observation.
        differences: Parts of the record that differ, each after `step N: `; N counts from 1.
    """

    text: str
    reward: float
    info: Mapping[str, Any]
    differences: tuple[str, ...] = ()


def recorded_arguments(header: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of the environments of a results file.

    Without a tokenizer: an untrusted file could name any folder or download, and actions are recorded as text. Without
    a render mode, which the caller chooses.
    """
    recorded = header.get("env_settings") or {}
    return {name: value for name, value in recorded.items() if name not in ("tokenizer", "render_mode")}


def replayed(env: TextAction, seed: int, steps: Sequence[Mapping[str, Any]]) -> Iterator[Replayed]:
    """Play the recorded actions of an episode.

    Args:
        env: Environment that plays the actions.
        seed: Seed of the reset.
        steps: Recorded steps with at least `observation`, `action` and `reward`; `terminated`, `truncated` and
            `final_observation` are compared where a step has them.

    Yields:
        A `Replayed` after the reset and after each action.
    """
    text, info = env.reset(seed=seed)
    yield Replayed(text, 0.0, info)
    for number, step in enumerate(steps, start=1):
        differences = [] if text == step["observation"] else ["another observation"]
        text, reward, terminated, truncated, info = env.step(step["action"])
        reward = finite_reward(reward, env.unwrapped)
        if reward != step["reward"]:
            differences.append(f"reward {reward:g} instead of {step['reward']:g}")
        ends = {"terminated": terminated, "truncated": truncated}
        if any(step.get(name, end) != end for name, end in ends.items()):
            differences.append("another end of the episode")
        if step.get("final_observation", text) != text:
            differences.append("another final observation")
        yield Replayed(text, reward, info, tuple(f"step {number}: {difference}" for difference in differences))
