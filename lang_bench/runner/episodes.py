"""The episode loop: one agent plays one episode, and its result is counted."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, SupportsFloat

import gymnasium as gym
import numpy as np

from lang_bench.agents.base import Agent, Decision, TokenCredit, Usage
from lang_bench.runner.errors import AgentFailedError
from lang_envs.arguments import finite_reward
from lang_envs.core import language_env
from lang_envs.errors import LangEnvsError
from lang_envs.wrappers import TextAction
from poad_sb3.common.episode_lines import moves_of


class Step(NamedTuple):
    """One action and its result.

    Attributes:
        observation: Observation before the action.
        admissible_actions: Listed actions; None where any text is an action.
        decision: Action of the agent, with its cost.
        reward: Reward of the step.
        terminated: Whether the episode ended by success or failure.
        truncated: Whether the time limit ended the episode.
        next_observation: Observation after the action.
        info: Info of the step.
        fields: Further fields of the step's line; see `Agent.step_fields`.
        final_value: Agent's value of the next observation after the last step of a truncated episode, if known.
    """

    observation: str
    admissible_actions: list[str] | None
    decision: Decision
    reward: float
    terminated: bool
    truncated: bool
    next_observation: str
    info: Mapping[str, Any]
    fields: Mapping[str, Any] = MappingProxyType({})
    final_value: float | None = None

    @property
    def moves(self) -> int:
        """Units of time that the action took: the moves of a macro-action, or 1."""
        return moves_of(self.info)


class Result(NamedTuple):
    """The outcome of an episode.

    Attributes:
        episode_return: Undiscounted sum of the rewards.
        discounted_return: Sum of the rewards, each discounted by the moves made before its action.
        success: Whether the goal was reached.
        n_actions: Number of actions.
        n_moves: Number of units of time.
        n_invalid: Number of actions whose text is outside the command set.
        terminated: Whether it ended by success or failure.
        truncated: Whether the time limit ended it.
        usage: Cost of all actions together.
        family: Fields of the family, see `FAMILY_FIELDS`.
    """

    episode_return: float
    discounted_return: float
    success: bool
    n_actions: int
    n_moves: int
    n_invalid: int
    terminated: bool
    truncated: bool
    usage: Usage
    family: dict[str, Any]


_SHARES: dict[str, tuple[str, Callable[[Mapping[str, Any]], bool], str]] = {
    "ran_share": ("status", lambda info: info["status"] == "ok", "share of the attempts whose code ran"),
    "refused_share": (
        "command_succeeded",
        lambda info: not (info["command_succeeded"] or info["invalid_action"]),
        "share of the actions that are commands, and that the world did not carry out",
    ),
    "key_share": ("key_correct", lambda info: bool(info["key_correct"]), "share of the actions with the right key"),
}
"""Shares of the actions whose info satisfies a test, where info has a key: key, test and description by name."""
_LAST = {
    "best_score": ("best_so_far", "best score of code that ran in the episode; absent if none did"),
    "data": ("data", "where the rows come from: `real`, `synthetic`, `generated` or `own`"),
}
FAMILY_FIELDS = {name: row[-1] for name, row in (*_SHARES.items(), *_LAST.items())}
"""Fields that only some families have, and their meaning."""


def make_text_env(env_id: str, settings: Mapping[str, Any] | None = None) -> TextAction:
    """Return an environment that takes texts; a text that is too long for its action space is an invalid action."""
    return TextAction(gym.make(env_id, disable_env_checker=True, **(settings or {})))


def play_episode(
    env: TextAction, agent: Agent, seed: int, discount: float, watch: Callable[[Step], None] | None = None
) -> Result:
    """Play a whole episode.

    Args:
        env: Environment, from `make_text_env`.
        agent: Agent that plays.
        seed: Seed of the environment and of the agent.
        discount: Discount per move. The reward of a macro-action is discounted inside it already, from its first move,
            so it is discounted here by the moves before it.
        watch: Called with every step.

    Raises:
        AgentFailedError: If the answer of the agent is not a valid `Decision`.
        LangEnvsError: If an action of the list is counted as invalid.
        RewardError: If a reward is no single finite number.
    """
    observation, info = env.reset(seed=seed)
    info = _copied(info)  # an environment may keep writing into its own
    inner: Any = language_env(env)
    agent.records_steps = watch is not None
    agent.begin(inner, seed)
    infos: list[Mapping[str, Any]] = []
    total = discounted = 0.0
    moves, usage, over = 0, Usage(), False
    terminated = truncated = False
    while not over:
        listed = info["admissible_actions"]
        decision = check_decision(agent.act(observation, _copied(info)))
        fields = {} if watch is None else copy.deepcopy(agent.step_fields())
        shown = observation
        observation, paid, terminated, truncated, info = env.step(decision.text)
        info = _copied(info)
        if info["invalid_action"] and listed and decision.text in listed:
            raise LangEnvsError(
                f"Expected listed actions to be valid; {decision.text!r:.80} is listed and was not. Fix: a larger "
                f"max_action_length than {env.tokens.max_length}, if it is longer, or another list."
            )
        step = Step(shown, listed, decision, finite_reward(paid, inner), terminated, truncated, observation, info)
        agent.observe(decision, observation, step.reward, terminated, truncated, _copied(info))
        if watch is not None:
            cut = truncated and not terminated
            end = agent.final_value(observation, _copied(info)) if cut else None
            watch(step._replace(fields=fields, final_value=end))
        total += step.reward
        discounted += discount**moves * step.reward
        moves += step.moves
        usage = usage + decision.usage
        infos.append(info)
        over = terminated or truncated
    shares = {name: sum(map(test, infos)) / len(infos) for name, (key, test, _) in _SHARES.items() if key in infos[-1]}
    family = shares | {name: info[key] for name, (key, _) in _LAST.items() if info.get(key) is not None}
    return Result(
        episode_return=total,
        discounted_return=discounted,
        success=bool(info["success"]),
        n_actions=len(infos),
        n_moves=moves,
        n_invalid=sum(bool(step_info["invalid_action"]) for step_info in infos),
        terminated=terminated,
        truncated=truncated,
        usage=usage,
        family=family,
    )


def _copied(value: Any) -> Any:
    """Copy an info for the agent: its changes are neither counted nor recorded."""
    if isinstance(value, Mapping):
        return {name: _copied(inner) for name, inner in value.items()}
    if isinstance(value, np.ndarray):
        return value.copy()
    return [_copied(inner) for inner in value] if isinstance(value, list) else value


def check_decision(answer: object) -> Decision:
    """Return the answer of an agent if it is valid, with its numbers converted to Python's own.

    Raises:
        AgentFailedError: If it is not a `Decision`, or could not be counted and recorded.
    """
    if not isinstance(answer, Decision) or not isinstance(answer.text, str):
        got = f"a text of type {type(answer.text).__name__}" if isinstance(answer, Decision) else type(answer).__name__
        raise AgentFailedError(
            f"Expected the agent to answer with a Decision whose text is a str; got {got}. "
            "Fix: return Decision(text), or from a function the text itself."
        )
    if not isinstance(answer.note, str):
        raise AgentFailedError(f"Expected a note that is a str; got {type(answer.note).__name__}. Fix: str(note).")
    if not all(isinstance(token, str) for token in (answer.credit or TokenCredit((), (), ())).tokens):
        raise AgentFailedError("Expected the texts of tokens; got others. Fix: tokenizer.convert_ids_to_tokens(ids).")
    credit, usage = answer.credit or TokenCredit((), (), ()), answer.usage
    if not all(len(part) in (0, len(credit.tokens)) for part in credit):
        lengths = ", ".join(str(len(part)) for part in credit)
        raise AgentFailedError(
            f"Expected as many log_probs and values as tokens, or none; got {lengths}. Fix: one for each token."
        )
    if not all(math.isfinite(number) for number in (*credit.log_probs, *credit.values)):
        raise AgentFailedError("Expected finite log_probs and values of tokens; got others. Fix: leave them empty.")
    if not isinstance(usage, Usage) or not all(
        isinstance(number, SupportsFloat) and 0 <= float(number) < math.inf for number in usage
    ):
        raise AgentFailedError(
            f"Expected a Usage of numbers, finite and not below 0; got {usage!r:.200}. "
            "Fix: Usage(requests=1, prompt_tokens=..., completion_tokens=..., cost=...)."
        )
    tokens = int(usage.prompt_tokens), int(usage.completion_tokens)
    return answer._replace(usage=Usage(int(usage.requests), *tokens, float(usage.cost)))
