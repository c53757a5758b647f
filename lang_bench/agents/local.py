"""Agents that need no model: random, oracle, random coder, script, and a person."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lang_bench.agents.base import JSON, Agent, AgentError, Decision
from lang_envs import LangEnv
from lang_envs.agents import Agent as EnvFunction
from lang_envs.agents import oracle_agent, random_agent


class FunctionAgent(Agent):
    """A function of `lang_envs.agents`, made again for every episode.

    Args:
        name: Name in tables.
        make: Function from the seed of an episode to the agent's function.
        settings: Values that identify the agent.
    """

    def __init__(self, name: str, make: Callable[[int], EnvFunction], settings: Mapping[str, JSON]) -> None:
        self.name, self.settings, self._make = name, dict(settings), make

    def begin(self, env: LangEnv[Any], seed: int) -> None:
        """See `Agent.begin`."""
        self._env, self._function = env, self._make(seed)

    def act(self, observation: str, info: Mapping[str, Any]) -> Decision:
        """See `Agent.act`."""
        return Decision(self._function(self._env, observation, info["admissible_actions"]))


def random() -> Agent:
    """Return an agent that acts uniformly over the admissible actions; see `lang_envs.agents.random_agent`."""
    return FunctionAgent("random", lambda seed: random_agent(np.random.default_rng((seed, 1))), {})


def oracle() -> Agent:
    """Return the environment's own optimal policy."""
    return FunctionAgent("oracle", lambda _: oracle_agent(), {})


class _CoderAgent(FunctionAgent):
    def begin(self, env: LangEnv[Any], seed: int) -> None:
        if env.admissible_actions() is not None:
            raise AgentError(
                f"Expected an environment that takes code for 'coder'; got {type(env).__name__}, which lists its "
                "actions. Fix: a DataSciCoding id."
            )
        super().begin(env, seed)


def coder(*, spoiled: float = 0.5) -> Agent:
    """Return a `RandomCoder`: random scikit-learn code, often wrong, on DataSciCoding.

    Args:
        spoiled: Share of new bodies that get a mistake.
    """
    from lang_envs.envs.datascicoding.coder import RandomCoder

    RandomCoder(0, spoiled)  # refuses a number that is no probability now, not in the first episode
    return _CoderAgent("coder", lambda seed: RandomCoder(seed, spoiled), {"spoiled": spoiled})


# ---------------------------------------------------------------------- scripts


_OF_EPISODE = ("env", "seed", "episode", "training_steps")
"""Fields of a recorded step that identify its episode; the last in recordings of a training alone."""


class ScriptedAgent(Agent):
    """Says given actions, one after the other, in every episode.

    Args:
        name: Name in tables.
        actions: Actions of every episode, in order.
        settings: Values that identify the agent.
    """

    def __init__(self, name: str, actions: list[str], settings: Mapping[str, JSON]) -> None:
        self.name, self.settings, self._actions = name, dict(settings), actions

    def begin(self, env: LangEnv[Any], seed: int) -> None:
        """See `Agent.begin`."""
        self._place = 0

    def act(self, observation: str, info: Mapping[str, Any]) -> Decision:
        """See `Agent.act`.

        Raises:
            AgentError: If the script has ended and the episode has not.
        """
        if self._place == len(self._actions):
            raise AgentError(
                f"Expected the episode to end with the script of {self.name!r}, {len(self._actions)} actions; it goes "
                "on. Fix: add actions, or play the episode that it was recorded in."
            )
        self._place += 1
        return Decision(self._actions[self._place - 1])


def scripted(file: str, *, episode: int = 0) -> Agent:
    """Return a script: a text file with an action a line, or JSON lines of recorded episodes.

    A JSON line is a step, `{"action": ...}`, of the episode that `env`, `seed` and `episode` name (in recordings of a
    training `training_steps` too), or a whole episode, `{"steps": [{"action": ...}, ...]}`; other fields are ignored.
    Actions of several lines need JSON.

    Args:
        file: Path of the file; read as JSON lines if it ends in `.jsonl`.
        episode: Index among several recorded episodes, from 0.

    Raises:
        AgentError: If the file cannot be read, or has no such episode.
    """
    path = Path(file)
    try:
        text = path.read_text(encoding="utf-8-sig")
        lines = [line for line in text.split("\n") if line.strip()]  # other line separators may stand inside a text
    except (OSError, UnicodeDecodeError) as error:
        raise AgentError(f"Expected a script in {file!r}; it cannot be read ({error}). Fix: check the path.") from error
    episodes = _recorded(file, lines) if path.suffix == ".jsonl" else [lines]
    if not 0 <= episode < len(episodes) or not episodes[episode]:
        raise AgentError(
            f"Expected actions of episode {episode} in {file!r}; it holds "
            + (f"{len(episodes)} episodes. Fix: episode=0." if any(episodes) else "none. Fix: an action on each line.")
        )
    digest = hashlib.sha256("\0".join(episodes[episode]).encode(errors="backslashreplace")).hexdigest()[:16]
    settings: dict[str, JSON] = {"file": path.name, "episode": episode, "sha256": digest}
    return ScriptedAgent(f"scripted:{path.name}", episodes[episode], settings)


def _recorded(file: str, lines: list[str]) -> list[list[str]]:
    """Return the actions of each recorded episode, in the order of the file."""
    episodes: dict[object, list[str]] = {}
    for number, line in enumerate(lines, start=1):
        try:
            entry = json.loads(line)
            if number == 1 and "format" in entry and "action" not in entry:
                continue  # the header of the file
            if "steps" in entry:
                episodes[number] = [_text(step["action"]) for step in entry["steps"]]
            else:
                episode = tuple(entry.get(name) for name in _OF_EPISODE)
                episodes.setdefault(episode, []).append(_text(entry["action"]))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise AgentError(
                f"Expected a step with an action, or an episode with steps, in line {number} of {file!r}; got "
                f"{line[:80]!r} ({type(error).__name__}: {error}). Fix: record episodes with their steps."
            ) from error
    return list(episodes.values())


def _text(action: object) -> str:
    if not isinstance(action, str):
        raise TypeError(f"the action is {action!r}")
    return action


# ---------------------------------------------------------------------- a person


class HumanAgent(Agent):
    """A person at the terminal, asked as by `lang-envs play`. Leaving ends the run, as Ctrl-C does."""

    def __init__(self) -> None:
        from lang_envs.cli.common import console

        self.name, self.settings = "human", {}
        self._console = console()

    def begin(self, env: LangEnv[Any], seed: int) -> None:
        """See `Agent.begin`."""
        self._env = env

    def act(self, observation: str, info: Mapping[str, Any]) -> Decision:
        """See `Agent.act`.

        Raises:
            KeyboardInterrupt: If the person leaves.
        """
        from lang_envs.cli.play import ask, show

        show(self._console, self._env, observation)
        reply = ask(self._console, info["admissible_actions"])
        if reply is None:
            raise KeyboardInterrupt
        return Decision(reply)

    def observe(
        self,
        decision: Decision,
        observation: str,
        reward: float,
        terminated: bool,
        truncated: bool,
        info: Mapping[str, Any],
    ) -> None:
        """See `Agent.observe`."""
        from lang_envs.cli.play import tell

        tell(self._console, decision.text, reward, self._env.episode_return, info)
