"""States of the environments of an SB3 vector, with those of their wrappers' counters."""

from __future__ import annotations

from typing import Any

from gymnasium.wrappers import FrameStackObservation, NormalizeObservation, NormalizeReward
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper

from lang_envs.wrappers.admissible import EpisodeContext
from poad_sb3.vec_env.text_observations import VecAdmissibleObservation

__all__ = ["capture_envs", "restore_envs"]

_STATEFUL_WRAPPERS = (NormalizeReward, NormalizeObservation, FrameStackObservation)
"""Wrappers whose statistics or observations cannot be captured."""
_COUNTERS = ("rewards", "_elapsed_steps", "episode_context")
"""Attributes of SB3's Monitor, Gymnasium's TimeLimit and our AdmissibleObservation that belong to an episode in
progress."""


def capture_envs(env: VecEnv) -> list[dict[str, Any]] | None:
    """Return the state of every environment and of its wrappers' counters.

    None if an environment has no `get_state`, or one that does not find its world, or a wrapper whose state cannot be
    captured.
    """
    if any(any(env.env_is_wrapped(wrapper)) for wrapper in _STATEFUL_WRAPPERS):
        return None
    if not _have_states(env):
        return None
    kept = {name: env.get_attr(name) for name in _COUNTERS if env.has_attr(name)}
    return [
        {
            "env": state,
            "counters": {name: values[index] for name, values in kept.items()},
            "context": None if context is None else context[0][context[1]],
        }
        for index, (state, context) in enumerate(zip(env.env_method("get_state"), _contexts(env), strict=True))
    ]


def _have_states(env: VecEnv) -> bool:
    """Return whether `get_state` works, without a call: its error would end a subprocess worker."""
    return env.has_attr("get_state") and (not env.has_attr("has_state") or all(env.get_attr("has_state")))


def _contexts(env: VecEnv) -> list[tuple[list[EpisodeContext], int] | None]:
    """Return the list that holds the context of each environment, and its place there; None without the wrapper."""
    if isinstance(env, VecAdmissibleObservation):
        return [(env.contexts, index) for index in range(env.num_envs)]
    if isinstance(env, VecEnvWrapper):
        return _contexts(env.venv)
    return [None] * env.num_envs


def restore_envs(env: VecEnv, states: list[dict[str, Any]] | None) -> bool:
    """Restore the states of environments.

    Returns:
        False if that is impossible: no states, or another number or kind of environments. They need a reset then.
    """
    if states is None or len(states) != env.num_envs or not env.has_attr("set_state") or not _have_states(env):
        return False
    names = [_identity(state["env"]) for state in states]
    if any(names) and names != [_identity(now) for now in env.env_method("get_state")]:
        return False
    env.reset()  # wrappers that insist on a reset before a step have had it
    for index, (state, context) in enumerate(zip(states, _contexts(env), strict=True)):
        env.env_method("set_state", state["env"], indices=[index])
        for name, value in state["counters"].items():
            env.env_method("set_wrapper_attr", name, value, force=False, indices=[index])
        if context is not None and state.get("context") is not None:
            contexts, position = context
            contexts[position] = state["context"]
    env.unwrapped._reset_seeds()  # a seed that waits for the next reset was used before the checkpoint
    return True


def _identity(state: Any) -> str | None:
    """Return the environment that a state names, if any (`LangEnv` names its own)."""
    name = state.get("env") if isinstance(state, dict) else None
    return name if isinstance(name, str) else None
