"""Functions and classes of a user's own module as agents."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import inspect
import json
import linecache
import sys
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lang_bench.agents.arguments import check_settings, hints_of
from lang_bench.agents.base import JSON, Agent, AgentError, Decision
from lang_bench.agents.texts import Reply, TextAgent
from lang_envs import LangEnv

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_PLAIN = (int, float, str, bytes, list, dict, set, tuple, deque, type(None))
_CHANCE = "rng"
_SHOW = "show_actions"


def load(spec: str) -> object:
    """Import the object of `module:name`; the current folder is looked in too, last, as with `python -m`.

    Raises:
        AgentError: If it cannot be imported.
    """
    module, _, name = spec.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))  # last: a module of this folder must not hide an installed one
    try:
        member: object = importlib.import_module(module)
        for part in name.split("."):
            member = getattr(member, part)
    except (Exception, SystemExit) as error:  # a module may raise anything, and a script end the process
        raise AgentError(
            f"Expected an agent in {spec!r}; it cannot be imported ({type(error).__name__}: {error}). "
            "Fix: check the spelling, and run the command where the module can be imported."
        ) from error
    return member


def agent_of(target: object, name: str, settings: Mapping[str, Any]) -> Agent:
    """Turn an object of a user's module into an agent.

    * An `Agent` is one. A subclass of it, any other class, or a function that needs no argument is called with the
      settings, and returns the agent, or one of the following.
    * A callable of one argument goes from text to text.
    * A callable of two gets the observation and `info`, and returns the action.

    Keyword-only arguments of a callable are its settings; one called `rng` is a random generator that the seed of the
    episode fixes.

    Raises:
        AgentError: If the object is none of these, or has no such setting.
    """
    if isinstance(target, Agent):
        check_settings(name, settings, [], {})
        return _described(target, name, {}, target)
    if not callable(target):
        raise AgentError(
            f"Expected a callable or an Agent in {name!r}; got {type(target).__name__}. "
            "Fix: def agent(text): return ..."
        )
    needed, keywords = _arguments(target)
    if inspect.isclass(target) or needed == 0:
        return _made(target, name, settings)
    if needed > 2:
        raise AgentError(
            f"Expected a callable of a text, or of an observation and info; {name!r} needs {needed} arguments. "
            "Fix: def agent(text): return ..."
        )
    extra = {_SHOW: bool} if needed == 1 else {}
    check_settings(name, settings, sorted([*keywords - {_CHANCE}, *extra]), hints_of(target) | extra)
    return (_TextCallable if needed == 1 else _InfoCallable)(target, name, settings, draws=_CHANCE in keywords)


def _made(factory: Callable[..., object], name: str, settings: Mapping[str, Any]) -> Agent:
    signature = inspect.signature(factory)
    parameters = signature.parameters.values()
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    names = sorted(parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_POSITIONAL)
    check_settings(name, settings, None if takes_any else names, hints_of(factory))
    try:
        signature.bind(**settings)
    except TypeError as error:
        raise AgentError(f"Expected {name!r} to be called with {sorted(settings)}; got {error}.") from error
    made = factory(**settings)
    if isinstance(made, Agent):
        return _described(made, name, settings, factory)
    if inspect.isclass(made) or not callable(made) or _arguments(made)[0] == 0:
        raise AgentError(f"Expected {name!r} to make an Agent or a callable; it made {type(made).__name__}.")
    agent = agent_of(made, name, {})
    agent.settings = {**settings, **_source(factory, made)}
    return agent


def _described(agent: Agent, name: str, settings: Mapping[str, Any], source: object) -> Agent:
    """Complete the name and settings of a user's own agent.

    Raises:
        AgentError: If the name is not a text, or the settings cannot be written as JSON.
    """
    agent.name = getattr(agent, "name", name)
    if not isinstance(agent.name, str):
        raise AgentError(f"Expected a name of {name!r} that is a str; got {agent.name!r}. Fix: name = str(...).")
    agent.settings = {**settings, **getattr(agent, "settings", {}), **_source(source, agent)}
    try:
        json.dumps(agent.settings, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise AgentError(
            f"Expected settings of {name!r} in terms of JSON: texts, finite numbers, lists and mappings; got "
            f"{agent.settings!r:.200} ({error}). Fix: settings that say the same in such terms."
        ) from error
    return agent


def _arguments(target: Callable[..., object]) -> tuple[int, set[str]]:
    """Return the number of positional arguments that a callable needs, and the names of its keyword-only ones."""
    try:
        parameters = inspect.signature(target).parameters.values()
    except ValueError:  # some built-in functions have no signature
        return 1, set()
    positional = [
        parameter for parameter in parameters if parameter.kind in _POSITIONAL and parameter.default is parameter.empty
    ]
    takes_any = any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters)
    keywords = {parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY}
    return max(len(positional), 1 if takes_any else 0), keywords


def _source(*targets: object) -> dict[str, JSON]:
    """Return a digest of the files (in a notebook the cells) that functions or classes are from.

    The code behind a name may change, and the behaviour may depend on a prompt or a helper in the same file.
    """
    texts: dict[str, None] = {}
    for target in map(_unwrapped, targets):
        described = target if inspect.isroutine(target) or inspect.isclass(target) else type(target)
        with contextlib.suppress(OSError, TypeError):
            file = inspect.getsourcefile(described) or ""
            linecache.checkcache(file)
            # Not `findsource`, which parses: in two threads at once CPython 3.11 may end in a SystemError.
            if lines := linecache.getlines(file):
                texts["".join(lines)] = None
    if not texts:
        return {}
    return {"source_sha256": hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]}


def _unwrapped(target: object) -> object:
    """Return the function inside of partial functions, caches and decorators."""
    while isinstance(target, functools.partial):
        target = target.func
    return inspect.unwrap(target) if callable(target) else target


def _state_of(instance: object) -> dict[str, str]:
    """Return the attributes of an object that are numbers, texts and collections of them, as texts to compare."""
    return {name: repr(value) for name, value in getattr(instance, "__dict__", {}).items() if isinstance(value, _PLAIN)}


class _Callable(Agent):
    """The common part of both kinds of callables."""

    def __init__(self, call: Callable[..., str], name: str, settings: Mapping[str, Any], *, draws: bool) -> None:
        self.name, self.settings = name, {**settings, **_source(call)}
        self._call, self._draws = call, draws
        self._arguments = {key: value for key, value in settings.items() if key != _SHOW}
        inner: object = call
        while isinstance(inner, functools.partial):
            inner = inner.func
        if inspect.isroutine(inner):  # the object of a bound method; of a built-in function it is a module
            inner = getattr(inner, "__self__", None)
            inner = None if inspect.ismodule(inner) or inspect.isclass(inner) else inner
        self._instance = inner
        self._fresh: dict[str, str] | None = None

    def begin(self, env: LangEnv[Any], seed: int) -> None:
        if self._draws:
            self._arguments[_CHANCE] = np.random.default_rng([seed, 1])  # the environment draws from [seed]
        begin = getattr(self._instance, "begin", None)
        if begin is not None:
            begin(env, seed)
            return
        state = _state_of(self._instance)
        self._fresh = state if self._fresh is None else self._fresh
        changed = [name for name in state if state[name] != self._fresh.get(name)]
        if changed:
            raise AgentError(
                f"Expected {self.name!r} to begin every episode alike; its {changed[0]!r} has changed since the first, "
                "and results would depend on the number of workers. Fix: a method begin(self, env, seed) that resets "
                "it."
            )

    def _text_of(self, *arguments: object) -> str:
        text = self._call(*arguments, **self._arguments)
        if not isinstance(text, str):
            raise AgentError(f"Expected {self.name!r} to return a str; got {type(text).__name__}. Fix: return text.")
        return text


def memory_of(agent: Agent) -> object:
    """Return the object that keeps what an agent remembers: of one around a callable object, that object."""
    return agent._instance if isinstance(agent, _Callable) and agent._instance is not None else agent


class _TextCallable(_Callable, TextAgent):
    def __init__(self, call: Callable[..., str], name: str, settings: Mapping[str, Any], *, draws: bool) -> None:
        super().__init__(call, name, settings, draws=draws)
        self.show_actions = settings.get(_SHOW, True)

    def reply(self, prompt: str) -> Reply:
        return Reply(self._text_of(prompt))


class _InfoCallable(_Callable):
    def act(self, observation: str, info: Mapping[str, Any]) -> Decision:
        return Decision(self._text_of(observation, info))
