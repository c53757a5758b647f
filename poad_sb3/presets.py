"""Presets: the published settings, and those of the pocket model, as data.

Importing this module imports no package of the `llm` extra, so that a command line can list presets at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

__all__ = ["ALGORITHMS", "MERGED", "PRESETS", "Preset"]

MERGED = "policy_kwargs"
"""Argument whose value is merged: given keys replace those of a preset."""

ALGORITHMS = (
    *("POAD", "NTPO", "TWOSOME", "ARCHER", "GLAM"),
    *("TurnPPO", "BiLevelPPO", "GRPO", "DrGRPO", "RLOO", "GiGPO", "REINFORCEPlusPlus", "ReBN"),
)
"""Names of the on-policy algorithms of this package."""


@dataclass(frozen=True)
class Preset:
    """Settings of several methods for one family of environments.

    Attributes:
        summary: Source of the settings, in one line.
        note: Caveats.
        n_envs: Number of environments that step together.
        minibatches: Number of minibatches in a rollout, by algorithm; the batch size follows.
        methods: Constructor arguments, by algorithm.
        default_for: Model whose default the preset is, in the family of environments that the preset is named by; None
            for none.
    """

    summary: str
    note: str
    n_envs: int
    minibatches: Mapping[str, int]
    methods: Mapping[str, Mapping[str, Any]]
    default_for: str | None = None


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
"""The paper's appendix. Its captions are lost in the source text: each table's task is inferred from the epochs."""

_LORA: Mapping[str, Any] = {"r": 8, "lora_alpha": 16, "target_modules": ["q_proj", "v_proj"]}
_CANDIDATES = {"action_sampling": "candidates", "candidate_normalization": "word"}
_FREE = {"action_sampling": "free", "max_new_tokens": 128}
_TOKEN_CREDIT = {"gae_lambda_token": 0.95}
"""Token lambda of the public code; with the default, 1, the reward reaches even the first of many tokens."""

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
    """Return a preset of published numbers.

    Args:
        task: Key of the task in the tables.
        source: Source of the settings.
        n_steps: Number of steps of each environment in a rollout.
        acting: Arguments for action sampling and credit, by algorithm.
        note: Caveats.
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
            "critic_first": False,
            **acting[name],
            "policy_kwargs": {"lora": dict(_LORA), "critic_whitening": False, "critic_init": "default"},
        }
    minibatches = {name: row.minibatches for name, row in rows.items()}
    return Preset(f"{source}, {task}", note, n_envs=4, minibatches=minibatches, methods=methods)


def _listed(*, paper_mode: bool) -> dict[str, dict[str, Any]]:
    """Return the arguments for acting where actions are listed, by method."""
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
_WITHOUT_CRITIC = {
    name: _POCKET_NUMBERS[name]
    for name in ("learning_rate", "n_steps", "n_epochs", "clip_range", "ent_coef", "max_grad_norm", "target_kl")
}
_COMPARED: Mapping[str, Mapping[str, Any]] = {
    "GRPO": {"group_size": 8},
    "DrGRPO": {"group_size": 8},
    "RLOO": {"group_size": 8},
    "GiGPO": {"group_size": 8, "gamma": 0.95},
    "REINFORCEPlusPlus": {"gamma": 1.0},
    "ReBN": {"gamma": 0.9, "n_epochs": 1},
}
"""Settings of the methods without a critic that are theirs, by method."""
_CODER_NUMBERS = {"n_steps": 32, "ent_coef": 0.0, "learning_rate": "lin_3e-3"}
_CODER_LORA = {"r": 16, "lora_alpha": 16, "target_modules": "all-linear"}
"""Settings that differ for the pocket coder. With the defaults an update used a fifteenth of `target_kl`; at a constant
rate the share of code that runs fell by up to 50 points from one rollout to the next, late in training too."""


def _pocket(task: str) -> Preset:
    token = {**_POCKET_NUMBERS, "gae_lambda_token": 1.0}
    by_credit = {
        **dict.fromkeys(("POAD", "NTPO", "ARCHER"), token),
        **dict.fromkeys(("TWOSOME", "GLAM"), _POCKET_NUMBERS),
        "TurnPPO": {**_POCKET_NUMBERS, "gamma": 0.99, "gae_lambda": 0.9},
        "BiLevelPPO": {**_POCKET_NUMBERS, "gae_lambda_token": 0.95},
        **{name: {**_WITHOUT_CRITIC, **arguments} for name, arguments in _COMPARED.items()},
    }
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
    methods["GRPO"] = {**_WITHOUT_CRITIC, **_COMPARED["GRPO"], **_CODER_NUMBERS, **_FREE, "policy_kwargs": policy}
    note = "For the embedded pocket coder; of a few settings the one that learned fastest in trials of POAD on wine."
    return Preset("pocket coder, datascicoding", note, n_envs=4, minibatches=dict.fromkeys(methods, 8), methods=methods)


_SMOLLM2: Mapping[str, Mapping[str, Any]] = {
    "overcooked": {"learning_rate": 1e-3, "n_steps": 32, "temperature": 8.0},
    "virtualhome": {"n_steps": 32, "n_epochs": 2, "temperature": 8.0},
}
"""Settings that differ for SmolLM2, by family. At temperature 1 it begins on a few wrong actions, and learns only to
avoid penalties (docs, real models)."""


def _smollm2(task: str) -> Preset:
    arguments = {**_POCKET_NUMBERS, "gae_lambda_token": 1.0, **_SMOLLM2[task], MERGED: {"model": "smollm2"}}
    return Preset(
        f"SmolLM2-135M, {task}",
        "Tuned for POAD with actions on the trie.",
        n_envs=8,
        minibatches={"POAD": 4},
        methods={"POAD": arguments},
        default_for="smollm2",
    )


_SOURCES: Mapping[str, Mapping[str, Any]] = {
    "TurnPPO": {"gamma": 0.99, "gae_lambda": 0.9},
    "BiLevelPPO": {"bootstrap": "action", "gamma": 0.95, "gae_lambda": 1.0, "gae_lambda_token": 1.0},
    "GRPO": {"group_size": 8, "advantage_scale": "cell", "loss_reduction": "sequence_mean"},
    "DrGRPO": {"group_size": 8, "advantage_scale": "none", "loss_reduction": "constant"},
    "RLOO": {"group_size": 8, "ratio": "sequence_product", "kl_coef": 0.05},
    "GiGPO": {"group_size": 8, "gamma": 0.95, "omega": 1.0, "advantage_scale": "none"},
    "REINFORCEPlusPlus": {"gamma": 1.0},
    "ReBN": {"gamma": 0.9},
}
"""Turn-PPO: gamma and lambda of its paper. Bi-level GAE: VAGEN. GRPO: TRL, without the KL penalty of the paper. RLOO:
TRL. GiGPO: verl-agent. ReBN: the games of GEM."""


def _source(task: str) -> Preset:
    """Return the settings of each estimator's own source, as far as they are about credit and the loss."""
    common = {
        "learning_rate": 1e-4,
        "n_steps": 128,
        "n_epochs": 1,
        "clip_range": 0.2,
        "ent_coef": 0.0,
        "target_kl": None,
    }
    acting = _FREE if task == "datascicoding" else {}
    note = (
        "Learning rates are ours: those of the sources belong to full fine-tuning of models of billions of parameters."
    )
    methods = {name: {**common, **arguments, **acting, MERGED: {}} for name, arguments in _SOURCES.items()}
    return Preset(f"the source of each estimator, {task}", note, 4, dict.fromkeys(methods, 4), methods)


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
    "source/overcooked": _source("overcooked"),
    "source/virtualhome": _source("virtualhome"),
    "source/datascicoding": _source("datascicoding"),
    "pocket/overcooked": _pocket("overcooked"),
    "pocket/virtualhome": _pocket("virtualhome"),
    "pocket/datascicoding": _pocket_coder(),
    "smollm2/overcooked": _smollm2("overcooked"),
    "smollm2/virtualhome": _smollm2("virtualhome"),
}
"""All presets by name. The learning rates of `paper/...` and `reference-code/...` belong to fp16 Adam: see `note`."""
