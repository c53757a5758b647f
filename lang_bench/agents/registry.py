"""Agents by name: one table of kinds, and `make_agent`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, NamedTuple

from lang_bench.agents.arguments import check_settings, hints_of
from lang_bench.agents.base import Agent, AgentError
from lang_bench.agents.callables import agent_of, load
from lang_envs import MissingExtraError
from lang_envs.errors import install_command


class Kind(NamedTuple):
    """A row of the table.

    Attributes:
        factory: `module:function`, imported at its first use. It takes the argument behind the colon, if the kind
            has one, and its settings as keyword-only arguments.
        argument: Text behind the colon; empty for none. `SPEC` is another agent, passed to the factory as an object;
            settings unknown to the kind are those of that agent.
        help: Description in one line.
        extra: Extra with the packages that it needs; empty for none.
    """

    factory: str
    argument: str
    help: str
    extra: str = ""


_HERE, _SPEC = "lang_bench.agents", "SPEC"
KINDS: Mapping[str, Kind] = {
    "random": Kind(f"{_HERE}.local:random", "", "uniform over the admissible actions"),
    "oracle": Kind(f"{_HERE}.local:oracle", "", "the environment's own optimal policy"),
    "human": Kind(f"{_HERE}.local:HumanAgent", "", "a person at the terminal", "cli"),
    "scripted": Kind(f"{_HERE}.local:scripted", "FILE", "given actions: one a line, or a recorded episode in .jsonl"),
    "coder": Kind(f"{_HERE}.local:coder", "", "random scikit-learn code, often wrong, on DataSciCoding"),
    "checkpoint": Kind(f"{_HERE}.policy:checkpoint", "PATH", "a checkpoint of any method here, or a run", "llm"),
    "zoo": Kind(f"{_HERE}.policy:zoo", "ROW", "a trained agent of `poad zoo list`", "llm"),
    "hf": Kind(f"{_HERE}.policy:zero_shot", "MODEL", "a local Hugging Face model, zero-shot", "llm"),
    "openai": Kind(f"{_HERE}.served:ServedAgent", "MODEL", "a model behind an OpenAI-compatible server", "openai"),
    "react": Kind(f"{_HERE}.react:ReactAgent", _SPEC, "thoughts before actions, and a memory, around another agent"),
    "caafe": Kind(
        f"{_HERE}.caafe:CaafeAgent", _SPEC, "features by another agent, classifier by a person, on DataSciCoding"
    ),
}
"""Kinds by name."""


def make_agent(spec: str, **settings: Any) -> Agent:
    """Make an agent.

    Args:
        spec: `KIND`, `KIND:ARGUMENT` (see `KINDS`), or `module:name` of anything that `agent_of` understands.
        settings: Keyword arguments of the kind's factory, or of the user's callable.

    Raises:
        AgentError: For an unknown kind or setting, a missing or needless argument, or a value of the wrong type.
        MissingExtraError: If a package of the kind is not installed.
    """
    name, _, argument = spec.partition(":")
    if name in KINDS:
        return _of_kind(name, KINDS[name], argument, settings)
    if not name or not argument:
        raise AgentError(
            f"Expected an agent as KIND, KIND:ARGUMENT or module:name; got {spec!r}. Kinds: {', '.join(sorted(KINDS))}."
        )
    return agent_of(load(spec), spec, settings)


def _of_kind(name: str, kind: Kind, argument: str, settings: Mapping[str, Any]) -> Agent:
    if argument and not kind.argument:
        raise AgentError(
            f"Expected {name!r} alone; got {name}:{argument}. Fix: leave {argument!r} out, or rename your module "
            f"{name!r}: a kind of agent has its name."
        )
    if kind.argument and not argument:
        raise AgentError(f"Expected {name}:{kind.argument}; got {name!r} alone. Fix: add it.")
    try:
        factory = _factory(kind)
        parameters = inspect.signature(factory).parameters.values()
        names = [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
        hints = {key: hint for key, hint in hints_of(factory).items() if key in names}
        check_settings(name, settings, None if kind.argument == _SPEC else names, hints)
        if kind.argument == _SPEC:
            inner = make_agent(argument, **{key: value for key, value in settings.items() if key not in names})
            return factory(inner, **{key: value for key, value in settings.items() if key in names})
        return factory(argument, **settings) if kind.argument else factory(**settings)
    except ModuleNotFoundError as error:
        if not kind.extra:
            raise
        raise MissingExtraError(
            f"Expected the packages of the extra {kind.extra!r} for {name!r}; {error.name} is not installed. "
            f"Fix: {install_command(kind.extra)}."
        ) from error


def _factory(kind: Kind) -> Callable[..., Agent]:
    module, _, function = kind.factory.partition(":")
    made: Callable[..., Agent] = getattr(import_module(module), function)
    return made
