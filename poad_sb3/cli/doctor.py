"""Show the facts of a model, of an agent, of this machine or of a cluster."""

from __future__ import annotations

import json
import platform
import re
import warnings
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import gymnasium as gym
import torch
from rich.console import Console
from stable_baselines3.common.utils import get_device

from lang_envs import ENV_ROWS
from lang_envs.errors import LangEnvsError
from lang_envs.machine import n_cores
from poad_sb3.cli.common import checkpoint_at, environments, fail
from poad_sb3.cli.memory import size
from poad_sb3.common.save_util import read_header
from poad_sb3.distributed.cluster_doctor import describe_nodes
from poad_sb3.distributions.sampling_check import examine
from poad_sb3.errors import PoadError
from poad_sb3.language_model.language_model import LanguageModel
from poad_sb3.language_model.loading import cpu_emulates_bfloat16
from poad_sb3.memory import ModelSize, estimate, free_memory
from poad_sb3.presets import ALGORITHMS
from poad_sb3.settings import ModelSettings
from poad_sb3.settings.model import Check
from poad_sb3.vec_env.text_observations import ActionKind, action_kind

_PACKAGES = ("lang-envs", "torch", "transformers", "peft", "stable-baselines3", "bitsandbytes")
_SMALL = {"dtype": "bfloat16", "gradient_checkpointing": True}
"""Settings that need less memory."""


def show_model(console: Console, model: str, *, as_json: bool = False) -> None:
    """Load a model with the default adapter, measure how well training reproduces it, and show the findings.

    Args:
        console: Console to print to.
        model: Name of the model: `"pocket"`, a folder or an id of the hub.
        as_json: Whether to print the findings as JSON.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # the findings have them
            lm = LanguageModel(model, check=Check.WARN)
        report = examine(lm)
    except (PoadError, LangEnvsError) as error:
        fail(str(error))
    facts = {
        **report.to_dict(),
        "parameters": sum(parameter.numel() for parameter in lm.parameters() if not parameter.requires_grad),
        "adapter": sorted(lm.network.peft_config["default"].target_modules),
        "prompt": lm.prompter.template.kind,
        "end_token": lm.tokenizer.convert_ids_to_tokens(lm.end_token),
        "max_length": lm.max_length,
        "memory": _memory(lm, {}),
        "memory_bfloat16_checkpointing": _memory(lm, _SMALL),
        "free": free_memory(get_device("auto")),
    }
    if not as_json:
        facts["export"] = report.export_problem if report.export is None else f"{report.export:.1e}"
        facts |= {name: f"{facts[name]:.1e}" for name in ("ratio", "log_prob")}
        facts |= {name: f"{facts[name]:,}" for name in ("parameters", "max_length")}
        for name in ("memory", "memory_bfloat16_checkpointing", "free"):
            facts[name] = "unknown" if facts[name] is None else size(facts[name])
        facts["adapter"] = ", ".join(facts["adapter"])
        del facts["export_problem"]
    _print(console, facts, as_json=as_json)


def show_acting(console: Console, subject: str, *, as_json: bool = False) -> bool:
    """Show how the agent of a run acts, or how one would act by default in an environment.

    Args:
        console: Console to print to.
        subject: Folder of a run, a checkpoint, or an environment's id; anything else is ignored.
        as_json: Whether to print the facts as JSON.

    Returns:
        Whether the subject was one of these.
    """
    path = Path(subject)
    if path.suffix == ".zip" or (path / "latest.zip").is_file():
        try:
            header = read_header(checkpoint_at(path)[0])
        except PoadError as error:
            fail(str(error))
        facts = {name: header[name] for name in ("algorithm", "num_timesteps", "action_sampling", "model")}
    elif not path.exists() and (subject in gym.registry or re.fullmatch(r"[\w.]+:[\w./-]+", subject)):
        # Arguments for an id whose table is not on this machine.
        trial = next((row.trial for row in ENV_ROWS if row.id == subject), {})
        envs = environments(subject, trial, 1)
        try:
            kind = action_kind(envs)
        except PoadError as error:
            fail(str(error))
        finally:
            envs.close()
        of_lists = ("TWOSOME", "GLAM", "BADQ")
        methods = [name for name in (*ALGORITHMS, "BADQ") if kind is ActionKind.LISTED or name not in of_lists]
        facts = {
            "actions": kind,
            "action_sampling": kind.action_sampling,
            "model": kind.model,
            "methods": ", ".join(methods),
        }
    else:
        return False
    _print(console, facts, as_json=as_json)
    return True


def show_machine(console: Console, *, as_json: bool = False) -> None:
    """Show versions, the device of a training and its free memory.

    Args:
        console: Console to print to.
        as_json: Whether to print the facts as JSON.
    """
    device = get_device("auto")
    is_cuda = device.type == "cuda"
    native = torch.cuda.is_bf16_supported(including_emulation=False) if is_cuda else not cpu_emulates_bfloat16()
    free = free_memory(device)
    facts = {
        "python": f"{platform.python_version()} ({platform.system()} {platform.machine()}, {n_cores()} cores)",
        **{name: _version(name) for name in _PACKAGES},
        "device": f"{device} ({torch.cuda.get_device_name(device)})" if is_cuda else str(device),
        "free": "unknown" if free is None else size(free),
        "bfloat16": "native" if native else "emulated, slowly",
    }
    _print(console, facts, as_json=as_json)


def show_cluster(console: Console, address: str, *, as_json: bool = False) -> None:
    """Show the nodes of a Ray cluster.

    Args:
        console: Console to print to.
        address: Address of the cluster, or `"local"` or `"auto"`.
        as_json: Whether to print the facts as JSON.
    """
    try:
        nodes = describe_nodes(address)
    except (PoadError, LangEnvsError) as error:
        fail(str(error))
    if as_json:
        _print(console, [node._asdict() for node in nodes], as_json=True)
        return
    for node in nodes:
        lines = [
            f"{node.name}: {node.cores:g} cores, {node.gpus:g} GPUs, {node.sandboxes:g} sandboxes",
            f"  {node.problem}" if node.problem else f"  Python {node.python}, lang-envs {node.package or 'missing'}",
        ]
        if not node.problem:
            lines.append(f"  sandbox layers: {', '.join(node.layers) or 'none'}")
        if node.missing:
            lines.append(f"  missing layers: {', '.join(node.missing)}")
        console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)


def _memory(lm: LanguageModel, changes: Mapping[str, Any]) -> int | None:
    """Return the memory to train the model with some settings; None if it cannot be estimated."""
    settings = ModelSettings(**changes)
    try:
        return estimate(ModelSize.of(lm.base.config, settings), settings).total
    except ValueError:  # a mixture of experts
        return None


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "missing"


def _print(console: Console, facts: Any, *, as_json: bool) -> None:
    """Print facts as JSON, or one a line."""
    if as_json:
        text = json.dumps(facts, indent=1)
    else:
        width = 2 + max(map(len, facts))
        text = "\n".join(f"{name:<{width}}{value}" for name, value in facts.items())
    console.print(text, markup=False, highlight=False, soft_wrap=True)
