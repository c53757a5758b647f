"""Facts of this machine: devices, number formats, attention kernels, quantisation, and the models that fit.

Every claim is tried out where that is quick: a small product of matrices in each number format, a quantised layer
forward and backward. There are no downloads, and only a few small tensors are loaded.
"""

from __future__ import annotations

import importlib
import itertools
import platform
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import torch

from lang_envs.machine import n_cores
from poad_sb3.language_model.loading import cpu_emulates_bfloat16
from poad_sb3.memory.common_models import COMMON_MODELS, common_size
from poad_sb3.memory.estimate import MemoryEstimate, estimate
from poad_sb3.settings import ModelSettings

MARGIN = 0.1
"""Share of the free memory that is kept free: for the allocator's gaps, and for uncounted memory."""
TOKENS = (1024, 512, 256)
"""Values of `max_tokens_per_forward` to try: a smaller pass takes less memory and more time, and learns the same."""
_PACKAGES = ("lang-envs", "torch", "transformers", "peft", "stable-baselines3")
_DTYPES = ("float32", "bfloat16", "float16")
_NATIVE_BFLOAT16 = 8
"""First compute capability (Ampere) with bfloat16 in hardware; before it, torch emulates, slowly."""
_MACHINE = Path("/")


class Precision(NamedTuple):
    """Number format of the weights."""

    name: str
    dtype: str
    quantization: str | None = None


class HostMemory(NamedTuple):
    """Main memory, in bytes.

    Attributes:
        total: Maximum memory that this process could have.
        available: Memory that is free now, or would be freed on demand.
        limited: Whether a control group (a container, a job of a scheduler) sets the bound.
    """

    total: int
    available: int
    limited: bool = False


class Device(NamedTuple):
    """Device for tensors.

    Attributes:
        name: Name of the device in torch.
        label: Description of the device.
        total: Size of the memory, in bytes; None if unknown.
        free: Free memory, in bytes; None if unknown.
        capability: CUDA compute capability of the device, such as `"9.0"`; None without CUDA.
        dtypes: Number formats in which a matrix product works.
        emulates_bfloat16: Whether bfloat16 works, but not in hardware.
    """

    name: str
    label: str
    total: int | None
    free: int | None
    capability: str | None = None
    dtypes: tuple[str, ...] = ()
    emulates_bfloat16: bool = False


class Attention(NamedTuple):
    """Values of `attn_implementation` that work: `eager` always does.

    Attributes:
        sdpa_backends: Kernels that scaled-dot-product attention may choose from.
        flash_attention_2: Version of the package flash-attn; None if it is not installed.
    """

    sdpa_backends: tuple[str, ...]
    flash_attention_2: str | None


class Quantization(NamedTuple):
    """Quantisation by bitsandbytes on the device that `auto` takes.

    Attributes:
        version: Version of bitsandbytes; None if it is not installed.
        problems: Reasons why `"8bit"` or `"4bit"` does not work here; one without an entry works.
    """

    version: str | None
    problems: Mapping[str, str]


class Machine(NamedTuple):
    """Facts of a machine.

    Attributes:
        python: Version of Python.
        system: Operating system and architecture.
        versions: Versions of the packages that matter; None for one that is not installed.
        cores: Number of cores that this process may use.
        memory: Memory of the host.
        devices: Devices, the CPU last.
        automatic: Name of the device that `device="auto"` takes.
        attention: Attention implementations.
        quantization: Quantisation by bitsandbytes.
    """

    python: str
    system: str
    versions: Mapping[str, str | None]
    cores: int
    memory: HostMemory
    devices: tuple[Device, ...]
    automatic: str
    attention: Attention
    quantization: Quantization

    @property
    def device(self) -> Device:
        """Device that `auto` takes."""
        return next(device for device in self.devices if device.name == self.automatic)

    def can_train(self, precision: Precision) -> bool:
        """Return whether that device computes in a number format, and quantises to it if asked."""
        return precision.dtype in self.device.dtypes and precision.quantization not in self.quantization.problems


PRECISIONS = (
    Precision("float32", "float32"),
    Precision("bfloat16", "bfloat16"),
    Precision("8-bit", "bfloat16", "8bit"),
    Precision("4-bit", "bfloat16", "4bit"),
)
"""Number formats of weights with an adapter each, the most exact first."""


class Choice(NamedTuple):
    """A model, and settings for training it.

    Attributes:
        model: Name of a common model.
        policy_kwargs: Arguments of the policy.
        needed: Estimate of the memory that the training needs.
    """

    model: str
    policy_kwargs: Mapping[str, object]
    needed: MemoryEstimate


class Fit(NamedTuple):
    """One model in one number format of its weights, with passes of the default size.

    Attributes:
        model: Name of a common model.
        precision: Number format of its weights.
        bytes: Memory needed without gradient checkpointing, in bytes.
        bytes_with_checkpointing: Memory needed with gradient checkpointing, in bytes.
        verdict: `"yes"`, `"checkpointing"` (only with it), `"no"`, or `""` if the free memory is unknown.
    """

    model: str
    precision: Precision
    bytes: int
    bytes_with_checkpointing: int
    verdict: str


class Diagnosis(NamedTuple):
    """A machine and the models that fit there.

    Attributes:
        machine: Examined machine.
        usable: Memory that a training may use, in bytes: the free memory less a margin; None if unknown.
        fits: Result of each common model in each number format.
        best: Largest model that can be trained here, with its settings; None if there is none.
    """

    machine: Machine
    usable: int | None
    fits: tuple[Fit, ...]
    best: Choice | None


def diagnose(machine: Machine | None = None) -> Diagnosis:
    """Examine this machine, and find the models that can be trained on it.

    Args:
        machine: Facts of a machine; this one is examined by default.
    """
    machine = examine() if machine is None else machine
    usable = usable_memory(machine.device.free)
    best = None if usable is None else largest_choice(usable, [one for one in PRECISIONS if machine.can_train(one)])
    return Diagnosis(machine, usable, fits(usable), best)


def fits(usable: int | None) -> tuple[Fit, ...]:
    """Return the fit of all common models in all number formats.

    Args:
        usable: Memory that a training may use, in bytes; None if unknown.
    """
    found = []
    for model, precision in itertools.product(COMMON_MODELS, PRECISIONS):
        settings = ModelSettings(dtype=precision.dtype, quantization=precision.quantization)
        size = common_size(model, settings)
        needed = estimate(size, settings).total
        least = estimate(size, replace(settings, gradient_checkpointing=True)).total
        verdict = "" if usable is None else "yes" if needed <= usable else "checkpointing" if least <= usable else "no"
        found.append(Fit(model, precision, needed, least, verdict))
    return tuple(found)


def largest_choice(
    usable: int, precisions: Sequence[Precision] = PRECISIONS, models: Iterable[str] = tuple(COMMON_MODELS)
) -> Choice | None:
    """Return the largest model that can be trained; of the settings that fit, those that cost the least.

    Large passes come before small ones, then exact weights before coarse ones, and no checkpointing before
    checkpointing.

    Args:
        usable: Memory that a training may use, in bytes.
        precisions: Number formats that work.
        models: Names of candidates, from small to large.
    """
    tried = itertools.product(reversed(tuple(models)), TOKENS, precisions, (False, True))
    for model, tokens, (_, dtype, quantization), again in tried:
        kwargs: dict[str, Any] = {"dtype": dtype, "quantization": quantization}
        kwargs |= {"gradient_checkpointing": again, "max_tokens_per_forward": tokens}
        settings = ModelSettings(**kwargs)
        needed = estimate(common_size(model, settings), settings)
        if needed.total <= usable:
            return Choice(model, kwargs, needed)
    return None


def examine() -> Machine:
    """Examine this machine."""
    memory = host_memory()
    cores = n_cores()
    name = f"{platform.processor() or platform.machine()}, {cores} cores"
    cpu = Device("cpu", name, memory.total, memory.available, emulates_bfloat16=cpu_emulates_bfloat16())
    devices = (*_cuda(), *_mps(), cpu)
    devices = tuple(device._replace(dtypes=_working(device.name)) for device in devices)
    automatic = devices[0].name if devices[0].name.startswith("cuda") else "cpu"  # as stable_baselines3's get_device
    return Machine(
        python=platform.python_version(),
        system=f"{platform.system()} {platform.release()}, {platform.machine()}",
        versions={name: _version(name) for name in _PACKAGES},
        cores=cores,
        memory=memory,
        devices=devices,
        automatic=automatic,
        attention=_attention(),
        quantization=_quantization(automatic),
    )


# ---------------------------------------------------------------------- memory


def free_memory(device: str) -> int | None:
    """Return the free memory of a device, in bytes; None if unknown.

    Args:
        device: Name of the device in torch: `"cpu"`, `"cuda"` (the current one), `"cuda:1"`, `"mps"`.
    """
    if device == "cpu":
        return host_memory().available
    name = f"cuda:{torch.cuda.current_device()}" if device == "cuda" else device
    return next((one.free for one in (*_cuda(), *_mps()) if one.name == name), None)


def usable_memory(free: int | None) -> int | None:
    """Return the part of the free memory that a training may use, in bytes; None if unknown."""
    return None if free is None else int((1 - MARGIN) * free)


def host_memory(root: Path = _MACHINE) -> HostMemory:
    """Return the main memory within the limits of control groups (v1, v2): a container may have less than the host.

    Args:
        root: Folder with `proc` and `sys`; another one in tests.
    """
    memory = psutil.virtual_memory()
    found = HostMemory(memory.total, memory.available)
    for limit, used in _group_limits(root):
        free = max(limit - used, 0)
        if limit < found.total or free < found.available:
            found = HostMemory(min(found.total, limit), min(found.available, free), limited=True)
    return found


def _group_limits(root: Path) -> Iterator[tuple[int, int]]:
    """Yield limit and use of each control group that this process is in, and of those above: each may have a limit."""
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            mount, names = root / "sys/fs/cgroup", ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            mount = root / "sys/fs/cgroup/memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        group = mount / path.strip("/")
        for one in (group, *group.parents):
            if one == mount or mount in one.parents:
                limit, used = _read(one / names[0]).strip(), _read(one / names[1]).strip()
                statistics = dict(row.split() for row in _read(one / "memory.stat").splitlines())
                if limit.isdigit() and used.isdigit():  # without a limit it is "max"
                    # The page cache counts as used, but would be given back.
                    yield int(limit), max(int(used) - int(statistics.get(names[2], 0)), 0)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""


# ---------------------------------------------------------------------- devices


def _cuda() -> Iterable[Device]:
    if not torch.cuda.is_available():
        return
    for number in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(number)
        try:
            free = torch.cuda.mem_get_info(number)[0]
        except RuntimeError:  # one that another process has to itself
            free = None
        emulates = properties.major < _NATIVE_BFLOAT16 and not getattr(torch.version, "hip", None)
        capability = f"{properties.major}.{properties.minor}"
        yield Device(
            f"cuda:{number}", properties.name, properties.total_memory, free, capability, emulates_bfloat16=emulates
        )


def _mps() -> Iterable[Device]:
    backend = getattr(torch.backends, "mps", None)
    if backend is None or not backend.is_available():
        return
    total = int(torch.mps.recommended_max_memory()) if hasattr(torch.mps, "recommended_max_memory") else None
    free = None if total is None else total - int(torch.mps.driver_allocated_memory())
    yield Device("mps", "Apple GPU (memory shared with the CPU)", total, free)


def _working(device: str) -> tuple[str, ...]:
    """Return the number formats that support a matrix product."""
    working = []
    for name in _DTYPES:
        try:
            ones = torch.ones(8, 8, dtype=getattr(torch, name), device=device)
            if float((ones @ ones).sum()) == 8**3:
                working.append(name)
        except (RuntimeError, TypeError):  # a NotImplementedError of torch is a RuntimeError
            continue
    return tuple(working)


# ---------------------------------------------------------------------- packages


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _attention() -> Attention:
    switches = {"flash": "flash_sdp", "math": "math_sdp"}
    if torch.cuda.is_available():  # elsewhere these are switched on too, but have no implementation
        switches |= {"efficient": "mem_efficient_sdp", "cudnn": "cudnn_sdp"}
    asked = {name: getattr(torch.backends.cuda, f"{switch}_enabled", None) for name, switch in switches.items()}
    enabled = tuple(name for name, is_enabled in asked.items() if is_enabled is not None and is_enabled())
    return Attention(enabled, _version("flash_attn"))


def _quantization(device: str) -> Quantization:
    version = _version("bitsandbytes")
    if version is None:
        return Quantization(None, dict.fromkeys(("8bit", "4bit"), "bitsandbytes is not installed"))
    problems = {}
    for name in ("8bit", "4bit"):
        try:
            _try_quantised(device, name)
        except Exception as error:  # bitsandbytes raises any error of its libraries
            problems[name] = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
    return Quantization(version, problems)


def _try_quantised(device: str, name: str) -> None:
    """Run a quantised layer forward and backward: training needs both."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        layers = importlib.import_module("bitsandbytes").nn
        if name == "8bit":
            layer = layers.Linear8bitLt(64, 64, bias=False, has_fp16_weights=False)
        else:
            layer = layers.Linear4bit(64, 64, bias=False, compute_dtype=torch.bfloat16)
        given = torch.ones(8, 64, dtype=torch.bfloat16, device=device, requires_grad=True)
        layer.to(device)(given).float().sum().backward()
    if given.grad is None or not bool(torch.isfinite(given.grad).all()):
        raise ValueError("a layer gives gradients that are not finite")
