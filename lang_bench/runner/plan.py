"""A plan of episodes: agent, environments, seeds and episodes, in one order that never changes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import gymnasium as gym

from lang_bench.runner.errors import BenchmarkError, ResultFileError
from lang_bench.runner.machine import describe_machine
from lang_envs.core import LangEnv
from lang_envs.redaction import without_secrets
from poad_sb3.common.episode_lines import EPISODES_PER_SEED, FORMAT, N_SEEDS, discount_of, reset_seed_of

_LARGEST_SEED = N_SEEDS // EPISODES_PER_SEED - 1
_PLACE = "{seed}"
_MEASURED_WITH = ("command", "commit", "cpu", "cpu_capability", "cores", "threads")
"""Header fields that may differ between sessions; each session records its own in the file of times."""
_OF_MODELS = tuple(f"versions.{name}" for name in ("torch", "stable-baselines3", "transformers", "peft"))
"""Header fields that may differ where torch is not loaded: such an agent uses none of these packages."""
_OF_AGENT = ("agent.settings", "agent.arguments")


class Job(NamedTuple):
    """One episode to play.

    Attributes:
        env: Id of the environment.
        seed: Group of the episode; intervals are taken over groups.
        episode: Number of the episode in its group, from 0.
    """

    env: str
    seed: int
    episode: int

    @property
    def reset_seed(self) -> int:
        """Seed of environment and agent; see `reset_seed_of`."""
        return reset_seed_of(self.env, self.seed, self.episode)

    def __str__(self) -> str:
        return f"{self.env}, seed {self.seed}, episode {self.episode}"


class Identity(NamedTuple):
    """An agent as the header describes it; see `Agent`."""

    name: str
    settings: Mapping[str, Any]
    incidental: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Plan:
    """A measurement.

    Attributes:
        agent: Argument of `make_agent`; `{seed}` in it stands for the seed, as for five checkpoints of five trainings.
        envs: Ids of the environments, each once.
        episodes: Number of episodes of each seed on each environment.
        seeds: Number of seeds.
        first_seed: First seed; the rest follow it.
        agent_settings: Further arguments of `make_agent`; texts may hold `{seed}` too.
        env_settings: Arguments of `gym.make`, for all environments.
        steps: Whether steps are recorded.
        label: Name of the agent in tables, instead of its own.

    Raises:
        BenchmarkError: If the plan is empty, or a number is out of range.
    """

    agent: str
    envs: tuple[str, ...]
    episodes: int = 100
    seeds: int = 5
    first_seed: int = 0
    agent_settings: Mapping[str, Any] = field(default_factory=dict)
    env_settings: Mapping[str, Any] = field(default_factory=dict)
    steps: bool = False
    label: str | None = None

    def __post_init__(self) -> None:
        if not self.envs:
            raise BenchmarkError("Expected at least one environment; got none. Fix: --env ID.")
        names = Counter(env_id.rpartition(":")[2] for env_id in self.envs)  # a module before an id imports its package
        twice = sorted(name for name, count in names.items() if count > 1)
        if twice:
            raise BenchmarkError(f"Expected every environment once; got {', '.join(twice)} again. Fix: leave it out.")
        if not 1 <= self.episodes <= EPISODES_PER_SEED:
            raise BenchmarkError(
                f"Expected 1 to {EPISODES_PER_SEED:,} episodes; got {self.episodes}. Fix: --episodes 100."
            )
        if self.seeds < 1 or self.first_seed < 0 or self.first_seed + self.seeds - 1 > _LARGEST_SEED:
            raise BenchmarkError(
                f"Expected one seed or more, from 0 to {_LARGEST_SEED}; got {self.seeds} from {self.first_seed}. "
                "Fix: --seeds 5."
            )

    @property
    def is_per_seed(self) -> bool:
        """Whether every seed has an agent of its own."""
        return self.agent_of(0) != self.agent_of(1)

    def agent_of(self, seed: int) -> tuple[str, dict[str, Any]]:
        """Return the arguments of `make_agent` for a seed."""
        settings = {
            name: value.replace(_PLACE, str(seed)) if isinstance(value, str) else value
            for name, value in self.agent_settings.items()
        }
        return self.agent.replace(_PLACE, str(seed)), settings

    def all_seeds(self) -> range:
        """Return the seeds."""
        return range(self.first_seed, self.first_seed + self.seeds)

    def jobs(self) -> list[Job]:
        """Return every episode, in the order of the results file."""
        return [
            Job(env_id, seed, episode)
            for env_id in self.envs
            for seed in self.all_seeds()
            for episode in range(self.episodes)
        ]


def header_of(plan: Plan, identities: Mapping[int, Identity], *, envs_are_here: bool = True) -> dict[str, Any]:
    """Return the first line of a results file.

    Args:
        plan: The plan to play.
        identities: Identity of the agent by seed; of the first seed only, where all seeds have the same.
        envs_are_here: Whether the environments can be made in this process. What shapes their worlds is recorded then:
            the digests of tables and games, and the versions of the packages that make them.
    """
    first = identities[plan.first_seed]
    agent: dict[str, Any] = {
        "name": plan.label or (plan.agent if plan.is_per_seed else first.name),
        "spec": without_secrets(plan.agent),
        "arguments": without_secrets(plan.agent_settings),
    }
    if plan.is_per_seed:
        agent["settings_by_seed"] = {
            str(seed): without_secrets(identity.settings) for seed, identity in identities.items()
        }
    else:
        agent["settings"] = without_secrets(first.settings)
    if first.incidental:
        agent["incidental"] = sorted(first.incidental)
    header = {
        "format": FORMAT,
        "agent": agent,
        "envs": [
            {"id": env_id, "discount": discount_of(env_id), "arguments": gym.spec(env_id.rpartition(":")[2]).kwargs}
            for env_id in plan.envs
        ],
        "env_settings": without_secrets(plan.env_settings),
        "episodes": plan.episodes,
        "seeds": list(plan.all_seeds()),
        "steps": plan.steps,
        **describe_machine(),
    }
    try:
        header["worlds"] = {env_id: without_secrets(_world_of(env_id, plan.env_settings)) for env_id in plan.envs}
    except Exception:
        if envs_are_here:
            raise
    as_read: dict[str, Any] = json.loads(json.dumps(header, default=_as_text))
    return as_read


def _world_of(env_id: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    env = gym.make(env_id, disable_env_checker=True, **settings)
    inner: Any = env.unwrapped
    configuration: dict[str, Any] = inner._configuration() if isinstance(inner, LangEnv) else {}
    env.close()
    return configuration


def _as_text(value: object) -> str:
    """Return a function by its name, so that it is the same in the next process."""
    name = getattr(value, "__qualname__", None)
    return str(value) if name is None else f"{getattr(value, '__module__', '')}:{name}"


def require_same(recorded: Mapping[str, Any], asked: Mapping[str, Any], path: object) -> None:
    """Refuse to continue a file that holds another measurement.

    Command, commit and hardware may differ. Versions of packages that are used may not: they change numbers.

    Raises:
        ResultFileError: If anything else differs.
    """
    without = () if "worlds" in recorded and "worlds" in asked else ("worlds",)
    recorded_facts, planned_facts = (
        dict(_flat({key: value for key, value in without_incidental(header).items() if key not in without}))
        for header in (recorded, asked)
    )
    differ = [
        key
        for key in sorted(recorded_facts.keys() | planned_facts.keys())
        if recorded_facts.get(key) != planned_facts.get(key)
    ]
    may_differ = _MEASURED_WITH if "threads" in asked else (*_MEASURED_WITH, *_OF_MODELS)
    differ = [key for key in differ if key not in may_differ]
    settings, arguments = _OF_AGENT
    shown = [
        key for key in differ if key.replace(arguments, settings, 1) not in differ or not key.startswith(arguments)
    ]
    if shown:
        differences = [
            _difference(key, recorded_facts.get(key, "nothing"), planned_facts.get(key, "nothing")) for key in shown
        ]
        raise ResultFileError(
            f"{path} holds another measurement. {'; '.join(differences)}. "
            "Fix: go on with what it was begun with, take another file with --out, or remove this one."
        )


def _difference(key: str, recorded: object, planned: object) -> str:
    changed = "the file that the agent is in has changed (any edit counts), " if key.endswith("source_sha256") else ""
    return f"{changed}{key}: expected {recorded!r}, got {planned!r}"


def without_incidental(header: Mapping[str, Any]) -> dict[str, Any]:
    """Return a header without the agent's incidental settings; of an agent within another, arguments have no prefix."""
    agent = dict(header["agent"])
    names = set(agent.pop("incidental", ()))
    names |= {name.rpartition(".")[2] for name in names}

    def essential(settings: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in settings.items() if name not in names}

    agent |= {part: essential(agent[part]) for part in ("settings", "arguments") if part in agent}
    if "settings_by_seed" in agent:
        agent["settings_by_seed"] = {seed: essential(settings) for seed, settings in agent["settings_by_seed"].items()}
    return {**header, "agent": agent}


def _flat(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the leaves of nested mappings with dotted names; lists are leaves, empty mappings have none."""
    for key, inner in value.items():
        if isinstance(inner, Mapping):
            yield from _flat(inner, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", inner
