"""Show the facts of this machine, of a model or of an agent."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lang_envs import ENV_ROWS
from lang_envs.cli.common import PlainConsole
from lang_envs.errors import LangEnvsError, install_command
from poad_sb3.cli.common import environments, fail, found
from poad_sb3.cli.memory import plain
from poad_sb3.common.save_util import read_header
from poad_sb3.distributed.cluster_doctor import describe_nodes
from poad_sb3.distributions.agreement import examine_model
from poad_sb3.errors import PoadError
from poad_sb3.memory.doctor import MARGIN, PRECISIONS, Attention, Choice, Device, Diagnosis, Fit, Machine, diagnose
from poad_sb3.presets import ALGORITHMS
from poad_sb3.settings import ModelSettings
from poad_sb3.settings.model import DEFAULT_LORA
from poad_sb3.vec_env.text_observations import ActionKind, action_kind

_GB = 1e9
_WIDTH = 80
_MARK = 3
_QUANT = install_command("quant")
_ON_THE_CPU = (
    "On the CPU run with MALLOC_MMAP_THRESHOLD_=262144 in the environment: without it gaps in the heap make a pass "
    "take 1.2 to 4 times as much."
)
"""Measured: benchmarks/performance/memory.py."""
_VERDICTS = {"yes": ("", "green"), "checkpointing": ("*", "yellow"), "no": (" no", "dim"), "": ("", "")}


def show_diagnosis(console: Console, *, as_json: bool = False) -> None:
    """Examine this machine and show the result.

    Args:
        console: Console to print to.
        as_json: Whether to print the facts as JSON instead of tables.
    """
    diagnosis = diagnose()
    if as_json:
        console.print(json.dumps(plain(diagnosis), indent=1), markup=False, highlight=False, soft_wrap=True)
        return
    narrow = PlainConsole(file=console.file, width=min(console.width, _WIDTH), markup=False, emoji=False)
    _show_facts(narrow, diagnosis.machine)
    _show_fits(narrow, diagnosis)
    console.print(Text.assemble("\n", _verdict(diagnosis)), soft_wrap=True)  # one line, to be copied


def show_model(console: Console, model: str, *, as_json: bool = False) -> None:
    """Measure how well training reproduces a model, and show the figures.

    Args:
        console: Console to print to.
        model: Name of the model: `"pocket"`, a folder or an id of the hub.
        as_json: Whether to print the figures as JSON.
    """
    try:
        report = examine_model(model)
    except PoadError as error:
        fail(str(error))
    if as_json:
        console.print(json.dumps(report.to_dict(), indent=1), markup=False, highlight=False, soft_wrap=True)
        return
    export = report.export_problem if report.export is None else f"{report.export:.1e}"
    lines = (
        f"architecture         {report.architecture}",
        f"ratio error          {report.ratio:.1e}",
        f"log-prob error       {report.log_prob:.1e}",
        f"merged export error  {export}",
        f"passes               {report.passes}",
        f"verdict              {report.verdict}",
    )
    console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)


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
        facts = [node._asdict() for node in nodes]
        console.print(json.dumps(facts, indent=1), markup=False, highlight=False, soft_wrap=True)
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
            header = read_header(found(path)[0])
        except PoadError as error:
            fail(str(error))
        facts = {name: header[name] for name in ("algorithm", "num_timesteps", "action_sampling", "model")}
    elif not path.exists() and (subject in gym.registry or re.fullmatch(r"[\w.]+:[\w./-]+", subject)):
        envs = environments(subject, _trial(subject), 1)
        try:
            kind = action_kind(envs)
        except PoadError as error:
            fail(str(error))
        finally:
            envs.close()
        of_lists = ("TWOSOME", "GLAM", "BADQ")
        known = [*ALGORITHMS, "BADQ"]
        methods = ", ".join(name for name in known if kind is ActionKind.LISTED or name not in of_lists)
        facts = {"actions": kind, "action_sampling": kind.action_sampling, "model": kind.model, "methods": methods}
    else:
        return False
    lines = json.dumps(facts, indent=1) if as_json else "\n".join(f"{name:<17}{value}" for name, value in facts.items())
    console.print(lines, markup=False, highlight=False, soft_wrap=True)
    return True


def _trial(env_id: str) -> dict[str, Any]:
    """Return the arguments to make an id of `lang_envs` whose table is not on this machine."""
    return next((row.trial for row in ENV_ROWS if row.id == env_id), {})


# ---------------------------------------------------------------------- facts


def _show_facts(console: Console, machine: Machine) -> None:
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for name, value in _facts(machine):
        table.add_row(Text(name, style="bold", no_wrap=True), Text(value))
    console.print(table)


def _facts(machine: Machine) -> Iterable[tuple[str, str]]:
    yield "python", f"{machine.python} ({machine.system})"
    yield "packages", ", ".join(f"{name} {version or 'missing'}" for name, version in machine.versions.items())
    yield "memory", _memory(machine)
    for device in machine.devices:
        yield device.name, _device(device)
    yield "device=auto", machine.automatic + _beside_auto(machine)
    yield "attention", _attention(machine.attention)
    yield "quantization", _quantization(machine)


def _memory(machine: Machine) -> str:
    limit = " (limit of this container or job)" if machine.memory.limited else ""
    return f"{_gb(machine.memory.available)} GB free of {_gb(machine.memory.total)} GB{limit}"


def _device(device: Device) -> str:
    parts = [device.label]
    if device.capability is not None:
        parts.append(f"capability {device.capability}")
    if device.name != "cpu" and device.total is not None:  # that of the CPU has a line
        parts.append(f"{'?' if device.free is None else _gb(device.free)} GB free of {_gb(device.total)} GB")
    formats = ", ".join(device.dtypes) or "no number format"
    slowly = " (bfloat16 is emulated, slowly)" if device.emulates_bfloat16 and "bfloat16" in device.dtypes else ""
    return f"{'; '.join(parts)}; computes in {formats}{slowly}"


def _beside_auto(machine: Machine) -> str:
    if any(device.name == "mps" for device in machine.devices):
        return '; say device="mps" for the Apple GPU'
    return ""


def _attention(attention: Attention) -> str:
    flash = f"yes ({attention.flash_attention_2})" if attention.flash_attention_2 else "no (flash-attn not installed)"
    return f"eager: yes; sdpa: {', '.join(attention.sdpa_backends) or 'no kernel'}; flash_attention_2: {flash}"


def _quantization(machine: Machine) -> str:
    found = machine.quantization
    if found.version is None:
        return f"bitsandbytes is not installed; for 8bit and 4bit: {_QUANT}"
    precisions = (f"{name}: {found.problems.get(name, 'works')}" for name in ("8bit", "4bit"))
    return f"bitsandbytes {found.version} on {machine.automatic}: {'; '.join(precisions)}"


# ---------------------------------------------------------------------- models that fit


def _show_fits(console: Console, diagnosis: Diagnosis) -> None:
    room = "unknown" if diagnosis.usable is None else f"{_gb(diagnosis.usable)} GB"
    console.print(
        Text.assemble("\n", ("GB to train an adapter", "bold"), f", of {room} on {diagnosis.machine.automatic}")
    )
    table = Table("model", box=None)
    for precision in PRECISIONS:
        table.add_column(Text(f"{precision.name:<{len(precision.name) + _MARK}}"), justify="right")
    rows: dict[str, list[Text]] = {}
    for fit in diagnosis.fits:
        rows.setdefault(fit.model, []).append(_cell(fit))
    for model, cells in rows.items():
        table.add_row(Text(model, style="cyan", no_wrap=True), *cells)
    console.print(table)
    missing = [precision.name for precision in PRECISIONS if not diagnosis.machine.can_train(precision)]
    console.print(Text(_legend(missing), style="dim"))
    if diagnosis.machine.automatic == "cpu" and diagnosis.machine.system.startswith("Linux"):
        console.print(Text(_ON_THE_CPU, style="dim"))


def _legend(missing: Sequence[str]) -> str:
    would = f" {', '.join(missing)}: what they would need; they do not work here." if missing else ""
    return (
        f"*: with gradient_checkpointing=True; so are the figures marked no. Rank {DEFAULT_LORA['r']} on "
        f"q_proj and v_proj, max_tokens_per_forward={ModelSettings().max_tokens_per_forward}; "
        f"{MARGIN:.0%} of what is free is left alone.{would}"
    )


def _cell(fit: Fit) -> Text:
    mark, style = _VERDICTS[fit.verdict]
    size = fit.bytes if fit.verdict in ("yes", "") else fit.bytes_with_checkpointing
    return Text(f"{_gb(size)}{mark:<{_MARK}}", style=style)


def _verdict(diagnosis: Diagnosis) -> Text:
    if diagnosis.usable is None:
        return Text("How much memory is free is unknown here: compare the table with what you have.")
    if diagnosis.best is None:
        return Text('None of these models fits; the embedded one (model="pocket") always does.')
    return Text.assemble("largest that fits: ", (_shown(diagnosis.best), "bold green"))


def _shown(best: Choice) -> str:
    said = ", ".join(f"{name}={value!r}" for name, value in best.policy_kwargs.items())
    return f"{best.model} in {_gb(best.needed.total)} GB: learning_rate=1e-4, policy_kwargs=dict({said})"


def _gb(size: int) -> str:
    return f"{size / _GB:.1f}"
