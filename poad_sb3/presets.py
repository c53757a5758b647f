"""Presets: the published settings, and those of the pocket model, as data.

Importing this module imports nothing of the `llm` extra, so that a command line can list presets at once.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from poad_sb3.arguments import MERGED, PresetError, check_arguments, nearest

if TYPE_CHECKING:
    import gymnasium as gym
    from stable_baselines3.common.vec_env import VecEnv

    from poad_sb3.on_policy import LLMOnPolicyAlgorithm

__all__ = [
    "ALGORITHMS",
    "PRESETS",
    "Preset",
    "PresetError",
    "from_preset",
    "preset",
    "preset_arguments",
]

Kind = TypeVar("Kind", bound="LLMOnPolicyAlgorithm")

ALGORITHMS = ("POAD", "NTPO", "TWOSOME", "ARCHER", "GLAM")
"""The algorithms of this package, by name."""


@dataclass(frozen=True)
class Preset:
    """Settings of several methods for one family of environments.

    Attributes:
        summary: Where they come from, one line.
        note: What to know before they are used.
        n_envs: Environments that step together.
        minibatches: Of a rollout, by algorithm; the batch size follows.
        methods: Constructor arguments, by algorithm.
    """

    summary: str
    note: str
    n_envs: int
    minibatches: Mapping[str, int]
    methods: Mapping[str, Mapping[str, Any]]


class _Row(NamedTuple):
    """A row of the published tables."""

    critic_learning_rate: float
    learning_rate: float
    n_epochs: int
    minibatches: int
    gamma: float
    ent_coef: float


_PUBLISHED: Mapping[str, Mapping[str, _Row]] = {
    "overcooked": {
        "POAD": _Row(1e-5, 5e-7, 5, 2, 0.99, 0.01),
        "NTPO": _Row(1e-5, 5e-7, 5, 4, 0.99, 0.01),
        "TWOSOME": _Row(1e-5, 5e-7, 1, 4, 0.99, 0.01),
    },
    "virtualhome": {
        "POAD": _Row(5e-5, 1e-6, 5, 2, 0.95, 0.0001),
        "NTPO": _Row(5e-5, 1e-6, 5, 2, 0.95, 0.01),
        "TWOSOME": _Row(5e-5, 1e-6, 1, 4, 0.95, 0.01),
    },
    "datascicoding": {
        "POAD": _Row(5e-5, 1e-6, 1, 4, 0.95, 0.01),
        "NTPO": _Row(5e-5, 1e-6, 1, 4, 0.95, 0.01),
    },
}
"""The paper's appendix. Its captions are lost in the source text: which table is whose is inferred from the epochs."""

_LORA: Mapping[str, Any] = {"r": 8, "lora_alpha": 16, "target_modules": ["q_proj", "v_proj"]}
_CANDIDATES = {"action_sampling": "candidates", "candidate_normalization": "word"}
_FREE = {"action_sampling": "free", "max_new_tokens": 128}
_TOKEN_CREDIT = {"gae_lambda_token": 0.95}
"""As in the public code; the default, 1, lets the first of many tokens hear of the reward."""

_RATES = (
    "The learning rates belong to a 7-billion-parameter model whose LoRA weights and Adam state are pure fp16, where "
    "steps come out about 50 times larger. Ours are fp32: start with learning_rate=1e-4, and higher for a small model. "
    "The model is not part of the preset: policy_kwargs={'model': ...}."
)
_CODE_NOTE = (
    "The public code samples with temperature 0.5 and among 50 tokens, but optimises as if it had not; here what is "
    "sampled from is what is optimised."
)
_OFF_POLICY = "paper_mode optimises other probabilities than it samples from, as the public code does: off-policy."


def _published(task: str, source: str, *, n_steps: int, acting: Mapping[str, Mapping[str, Any]], note: str) -> Preset:
    """A preset of published numbers.

    Args:
        task: Key of the tables.
        source: Where the settings come from.
        n_steps: Steps of each environment in a rollout.
        acting: How each algorithm acts and gives credit.
        note: What to know.
    """
    rows = _PUBLISHED[task]
    methods = {}
    for name, row in rows.items():
        numbers = row._asdict()
        del numbers["minibatches"]
        methods[name] = {
            **numbers,
            "n_critic_epochs": row.n_epochs,
            "n_steps": n_steps,
            "gae_lambda": 0.95,
            "clip_range": 0.2,
            "vf_coef": 0.5,
            "max_grad_norm": 0.5,
            "target_kl": 0.02,
            "min_advantage_std": 1e-8,  # the published normalisation has no floor
            **acting[name],
            "policy_kwargs": {"lora": dict(_LORA)},
        }
    minibatches = {name: row.minibatches for name, row in rows.items()}
    return Preset(f"{source}, {task}", note, n_envs=4, minibatches=minibatches, methods=methods)


def _listed(*, paper_mode: bool) -> dict[str, dict[str, Any]]:
    """How the methods act where actions are listed."""
    token = {**_CANDIDATES, **_TOKEN_CREDIT, **({"paper_mode": True} if paper_mode else {})}
    return {"POAD": token, "NTPO": token, "TWOSOME": _CANDIDATES}


_WRITING = {name: {**_FREE, **_TOKEN_CREDIT} for name in ("POAD", "NTPO")}
_SHARPENED = {name: {**acting, "temperature": 0.5, "top_k": 50} for name, acting in _WRITING.items()}
_POCKET_NUMBERS = {
    "learning_rate": 2e-3,
    "critic_learning_rate": 1e-3,
    "n_steps": 128,
    "n_epochs": 5,
    "n_critic_epochs": 5,
    "gamma": 0.95,
    "gae_lambda": 0.95,
    "clip_range": 0.2,
    "clip_range_vf": 0.2,
    "ent_coef": 0.02,
    "vf_coef": 0.5,
    "max_grad_norm": 0.5,
    "target_kl": 0.02,
    "min_advantage_std": 0.01,
}
"""The constructors' defaults, tuned for POAD; written down, so that a run of a preset outlives a change of them."""
_CODER_NUMBERS = {"n_steps": 32, "ent_coef": 0.0, "learning_rate": "lin_3e-3"}
_CODER_LORA = {"r": 16, "lora_alpha": 16, "target_modules": "all-linear"}
"""What is otherwise with the pocket coder. With the defaults an update used a fifteenth of `target_kl`; at a constant
rate the share of code that runs fell by up to 50 points from one rollout to the next, late in training too."""


def _pocket(task: str) -> Preset:
    token = {**_POCKET_NUMBERS, "gae_lambda_token": 1.0}
    by_credit = {"POAD": token, "NTPO": token, "ARCHER": token, "TWOSOME": _POCKET_NUMBERS, "GLAM": _POCKET_NUMBERS}
    note = "Tuned for POAD with the embedded pocket model; a larger model wants a smaller learning_rate (try 1e-4)."
    return Preset(
        f"pocket model, {task}",
        note,
        n_envs=1,
        minibatches=dict.fromkeys(by_credit, 2),
        methods={name: {**arguments, "policy_kwargs": {"model": "pocket"}} for name, arguments in by_credit.items()},
    )


def _pocket_coder() -> Preset:
    token = {**_POCKET_NUMBERS, **_CODER_NUMBERS, **_FREE, "gae_lambda_token": 1.0}
    policy = {"model": "pocket-coder", "lora": _CODER_LORA}
    methods = {name: {**token, "policy_kwargs": policy} for name in ("POAD", "NTPO")}
    note = "For the embedded pocket coder; of a few settings the one that learned fastest in trials of POAD on wine."
    return Preset("pocket coder, datascicoding", note, n_envs=4, minibatches=dict.fromkeys(methods, 8), methods=methods)


_paper = partial(_published, source="the paper's appendix (arXiv 2405.15821)", n_steps=32)
_code = partial(_published, source="the public reference code")
PRESETS: Mapping[str, Preset] = {
    "paper/overcooked": _paper("overcooked", acting=_listed(paper_mode=False), note=_RATES),
    "paper/virtualhome": _paper("virtualhome", acting=_listed(paper_mode=False), note=_RATES),
    "paper/datascicoding": _paper("datascicoding", acting=_WRITING, note=_RATES),
    "reference-code/overcooked": _code(
        "overcooked", n_steps=32, acting=_listed(paper_mode=True), note=f"{_RATES} {_OFF_POLICY}"
    ),
    "reference-code/virtualhome": _code(
        "virtualhome", n_steps=32, acting=_listed(paper_mode=True), note=f"{_RATES} {_OFF_POLICY}"
    ),
    "reference-code/datascicoding": _code("datascicoding", n_steps=8, acting=_SHARPENED, note=f"{_RATES} {_CODE_NOTE}"),
    "pocket/overcooked": _pocket("overcooked"),
    "pocket/virtualhome": _pocket("virtualhome"),
    "pocket/datascicoding": _pocket_coder(),
}
"""All presets by name. The learning rates of `paper/...` and `reference-code/...` belong to fp16 Adam: see `note`."""


def preset(name: str, algorithm: str, *, n_envs: int | None = None) -> dict[str, Any]:
    """Constructor arguments of an algorithm.

    The actor's rates of the published presets belong to a 7-billion-parameter model with fp16 Adam. With fp32 LoRA
    weights, as here, start two orders of magnitude higher.

    Args:
        name: Key of `PRESETS`.
        algorithm: One of those that the preset is for.
        n_envs: Environments that step together; those of the preset if None.

    Returns:
        A fresh dictionary.

    Raises:
        PresetError: If there is no such preset, or it says nothing about the algorithm.
    """
    found = _find(name, algorithm)
    return _with_batch_size(found, algorithm, n_envs, _merged(found.methods[algorithm], {}))


def preset_arguments(
    kind: type[LLMOnPolicyAlgorithm], name: str, n_envs: int | None, overrides: Mapping[str, Any]
) -> dict[str, Any]:
    """Arguments of a preset with some replaced, checked against the constructor.

    Args:
        kind: The class that will be made.
        name: Key of `PRESETS`.
        n_envs: Environments that step together; those of the preset if None.
        overrides: Arguments that replace those of the preset; `policy_kwargs` are laid over its own. With another
            `n_steps` the number of minibatches is kept.

    Raises:
        PresetError: For an unknown preset, an unknown argument, or a given one that would have no effect.
        ValueError: For numbers out of range.
    """
    algorithm = next((one.__name__ for one in kind.__mro__ if one.__name__ in ALGORITHMS), kind.__name__)
    found = _find(name, algorithm)
    arguments = _merged(found.methods[algorithm], overrides)
    check_arguments(kind, arguments, overrides)
    return _with_batch_size(found, algorithm, n_envs, arguments)


def from_preset(
    kind: type[Kind],
    name: str,
    env: gym.Env[Any, Any] | VecEnv | str,
    **overrides: Any,  # noqa: ANN401 - of the constructor
) -> Kind:
    """Make an algorithm by a preset; `LLMOnPolicyAlgorithm.from_preset` is this.

    Args:
        kind: The class.
        name: Key of `PRESETS`.
        env: An environment, a vector of them, or an id; of an id as many are made as the preset wants.
        **overrides: Constructor arguments that replace those of the preset.

    Raises:
        PresetError: For an unknown preset, an unknown argument, or a given one that would have no effect.
        ValueError: For numbers out of range.
    """
    from stable_baselines3.common.vec_env import VecEnv

    from poad_sb3.runs import make_envs

    policy = overrides.pop("policy", "LLMPolicy")
    n_envs = None if isinstance(env, str) else env.num_envs if isinstance(env, VecEnv) else 1
    arguments = preset_arguments(kind, name, n_envs, overrides)
    wanted = PRESETS[name].n_envs
    if n_envs not in (None, wanted):
        warnings.warn(
            f"Preset {name} is for {wanted} environments; got {n_envs}, so a rollout has {n_envs / wanted:.2g} times "
            f"the actions. Fix: make_vec_env(id, {wanted}), the id alone, or another n_steps.",
            stacklevel=3,
        )
    vector = make_envs(env, {}, wanted) if isinstance(env, str) else env
    return kind(policy, vector, **arguments)


def _find(name: str, algorithm: str) -> Preset:
    if name not in PRESETS:
        raise PresetError(f"There is no preset {name!r}. {nearest(name, PRESETS)}")
    found = PRESETS[name]
    if algorithm not in found.methods:
        raise PresetError(f"Preset {name} is for {', '.join(found.methods)}; got {algorithm}. Fix: give its arguments.")
    return found


def _merged(own: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    return {**own, **overrides, MERGED: {**_copy(own.get(MERGED)), **_copy(overrides.get(MERGED))}}


def _with_batch_size(found: Preset, algorithm: str, n_envs: int | None, arguments: dict[str, Any]) -> dict[str, Any]:
    """With the batch size that gives the preset's number of minibatches, unless one is given."""
    rollout = arguments["n_steps"] * (found.n_envs if n_envs is None else n_envs)
    return {"batch_size": max(1, rollout // found.minibatches[algorithm]), **arguments}


def _copy(arguments: Mapping[str, Any] | None) -> dict[str, Any]:
    return {key: dict(value) if isinstance(value, Mapping) else value for key, value in (arguments or {}).items()}
