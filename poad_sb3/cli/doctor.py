"""Show the facts of a model, of an agent, or of this machine."""

from __future__ import annotations

import json
import platform
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from stable_baselines3.common.utils import get_device

from lang_envs.cli.common import echo
from lang_envs.machine import n_cores
from poad_sb3.cli.memory import size
from poad_sb3.common.save_util import read_header
from poad_sb3.distributions.sampling_check import examine
from poad_sb3.language_model.language_model import LanguageModel
from poad_sb3.language_model.loading import cpu_emulates_bfloat16
from poad_sb3.memory import ModelSize, estimate, free_memory
from poad_sb3.runs.loading import find_checkpoint
from poad_sb3.runs.run_folder import session
from poad_sb3.settings import ModelSettings
from poad_sb3.settings.model import Check

_SMALL = {"dtype": "bfloat16", "gradient_checkpointing": True}
"""Settings that need less memory."""


def show(subject: str | None, *, as_json: bool) -> None:
    """Show the facts of a subject, as JSON or one a line.

    Args:
        subject: Model, folder of a run, or checkpoint; None for this machine.
        as_json: Whether to print the facts as JSON.
    """
    if subject is None:
        facts = _machine()
    elif Path(subject).suffix == ".zip" or Path(subject, "latest.zip").is_file():
        header = read_header(find_checkpoint(Path(subject))[0])
        facts = {name: header[name] for name in ("algorithm", "num_timesteps", "action_sampling", "model")}
    else:
        facts = _model(subject, as_json=as_json)
    width = 2 + max(map(len, facts))
    lines = (f"{name:<{width}}{value}" for name, value in facts.items())
    echo(json.dumps(facts, indent=1) if as_json else "\n".join(lines))


def _model(model: str, *, as_json: bool) -> dict[str, Any]:
    """Load a model with the default adapter, and measure how well training reproduces it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the findings have them
        lm = LanguageModel(model, check=Check.WARN)
    report = examine(lm)
    facts = {
        **report._asdict(),
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
    return facts


def _machine() -> dict[str, Any]:
    """Return versions, the device of a training and its free memory."""
    device = get_device("auto")
    is_cuda = device.type == "cuda"
    native = torch.cuda.is_bf16_supported(including_emulation=False) if is_cuda else not cpu_emulates_bfloat16()
    free = free_memory(device)
    return {
        "machine": f"{platform.system()} {platform.machine()}, {n_cores()} cores",
        **session([], 0)["versions"],
        "device": f"{device} ({torch.cuda.get_device_name(device)})" if is_cuda else str(device),
        "free": "unknown" if free is None else size(free),
        "bfloat16": "native" if native else "emulated, slowly",
    }


def _memory(lm: LanguageModel, changes: Mapping[str, Any]) -> int | None:
    """Return the memory to train the model with some settings; None if it cannot be estimated."""
    settings = ModelSettings(**changes)
    try:
        return estimate(ModelSize.of(lm.base.config, settings), settings).total
    except ValueError:  # a mixture of experts
        return None
