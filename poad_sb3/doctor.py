"""What this machine can do: devices, number formats, attention kernels, quantisation, and the models that fit.

Every claim is tried out where that takes no time: a small product of matrices in each number format, a quantised layer
forth and back. Nothing is downloaded, and nothing is loaded but a few small tensors.
"""

from __future__ import annotations

import importlib
import os
import platform
import warnings
from collections.abc import Iterable, Mapping
from importlib import metadata
from types import ModuleType
from typing import Any, NamedTuple

from poad_sb3.fitting import WAYS, Choice, Fit, fits, largest_choice
from poad_sb3.host_memory import HostMemory, host_memory

__all__ = ["Attention", "Device", "Diagnosis", "Machine", "Quantization", "diagnose", "examine", "free_memory", "plain",
           "usable_memory"]  # fmt: skip

MARGIN = 0.1
"""Share of the free memory that is left alone: for the allocator's gaps, and for what is not counted."""
_PACKAGES = ("lang-envs", "torch", "transformers", "peft", "stable-baselines3")
_DTYPES = ("float32", "bfloat16", "float16")
_NATIVE_BFLOAT16 = 8
"""First compute capability (Ampere) with bfloat16 in hardware; before it, torch emulates, slowly."""


class Device(NamedTuple):
    """Where tensors can be.

    Attributes:
        name: As torch calls it.
        label: What it is.
        total: Bytes of memory; None if it does not say.
        free: Bytes that are free now.
        capability: CUDA's compute capability, such as `"9.0"`.
        dtypes: Number formats in which a product of matrices works.
        emulates_bfloat16: Whether bfloat16 works, but not in hardware (CUDA only).
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
    """What bitsandbytes can do on the device that `auto` takes.

    Attributes:
        version: None if it is not installed.
        problems: Why a way does not work here, by `"8bit"` and `"4bit"`; one that is missing works.
    """

    version: str | None
    problems: Mapping[str, str]


class Machine(NamedTuple):
    """All that was found.

    Attributes:
        python: Version.
        system: Operating system and architecture.
        versions: Of the packages that matter; None for one that is not installed.
        cores: That this process may use.
        memory: Of the host.
        devices: The CPU last.
        automatic: Name of the device that `device="auto"` takes.
        attention: Kernels.
        quantization: bitsandbytes.
    """

    python: str
    system: str
    versions: Mapping[str, str | None]
    cores: int
    memory: HostMemory | None
    devices: tuple[Device, ...]
    automatic: str
    attention: Attention
    quantization: Quantization

    @property
    def device(self) -> Device:
        """The device that `auto` takes."""
        return next(device for device in self.devices if device.name == self.automatic)


class Diagnosis(NamedTuple):
    """A machine and what fits there.

    Attributes:
        machine: What there is.
        usable: Bytes that a training may take: what is free, less a margin; None if nobody knows what is free.
        fits: Each common model, in each way to hold its weights.
        best: The largest model that can be trained here, and how; None if there is none.
    """

    machine: Machine
    usable: int | None
    fits: tuple[Fit, ...]
    best: Choice | None


def diagnose(machine: Machine | None = None) -> Diagnosis:
    """Find out what this machine can do, and which models can be trained on it.

    Args:
        machine: One that was examined already; this one by default.
    """
    machine = examine() if machine is None else machine
    free = machine.device.free
    usable = usable_memory(free)
    ways = [way for way in WAYS if way.dtype in machine.device.dtypes]
    ways = [way for way in ways if way.quantization not in machine.quantization.problems]
    best = None if usable is None else largest_choice(usable, ways)
    return Diagnosis(machine, usable, fits(usable), best)


def examine(torch: ModuleType | None = None, memory: HostMemory | None = None) -> Machine:
    """Look at this machine.

    Args:
        torch: The module; another one in tests.
        memory: Of the host, if it is known.
    """
    torch = importlib.import_module("torch") if torch is None else torch
    memory = host_memory() if memory is None else memory
    cores = _cores()
    cpu = Device("cpu", f"{platform.processor() or platform.machine()}, {cores} cores", *(memory or (None, None))[:2])
    devices = (*_cuda(torch), *_mps(torch), cpu)
    devices = tuple(device._replace(dtypes=_working(torch, device.name)) for device in devices)
    automatic = devices[0].name if devices[0].name.startswith("cuda") else "cpu"  # as stable_baselines3's get_device
    return Machine(
        python=platform.python_version(),
        system=f"{platform.system()} {platform.release()}, {platform.machine()}",
        versions={name: _version(name) for name in _PACKAGES},
        cores=cores,
        memory=memory,
        devices=devices,
        automatic=automatic,
        attention=_attention(torch),
        quantization=_quantization(torch, automatic),
    )


def free_memory(device: str, torch: ModuleType | None = None) -> int | None:
    """Bytes that are free on one device; None if it does not say.

    Args:
        device: As torch calls it: `"cpu"`, `"cuda"` (the current one), `"cuda:1"`, `"mps"`.
        torch: The module; another one in tests.
    """
    torch = importlib.import_module("torch") if torch is None else torch
    if device == "cpu":
        memory = host_memory()
        return None if memory is None else memory.available
    name = f"cuda:{torch.cuda.current_device()}" if device == "cuda" else device
    return next((one.free for one in (*_cuda(torch), *_mps(torch)) if one.name == name), None)


def usable_memory(free: int | None) -> int | None:
    """Bytes that a training may take of those that are free; None if nobody knows."""
    return None if free is None else int((1 - MARGIN) * free)


def plain(value: Any) -> Any:  # noqa: ANN401 - any nesting of tuples and mappings
    """Named tuples as mappings, all the way down: what JSON can hold."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: plain(item) for name, item in value._asdict().items()}
    if isinstance(value, Mapping):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    return value


# ---------------------------------------------------------------------- devices


def _cores() -> int:
    """Those that this process is allowed, where the system says; a container often has fewer than the machine."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cuda(torch: ModuleType) -> Iterable[Device]:
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


def _mps(torch: ModuleType) -> Iterable[Device]:
    backend = getattr(torch.backends, "mps", None)
    if backend is None or not backend.is_available():
        return
    total = int(torch.mps.recommended_max_memory()) if hasattr(torch.mps, "recommended_max_memory") else None
    free = None if total is None else total - int(torch.mps.driver_allocated_memory())
    yield Device("mps", "Apple GPU (memory shared with the CPU)", total, free)


def _working(torch: ModuleType, device: str) -> tuple[str, ...]:
    return tuple(name for name in _DTYPES if _multiplies(torch, device, name))


def _multiplies(torch: ModuleType, device: str, dtype: str) -> bool:
    try:
        ones = torch.ones(8, 8, dtype=getattr(torch, dtype), device=device)
        return float((ones @ ones).sum()) == 8**3
    except (RuntimeError, TypeError):  # a NotImplementedError of torch is a RuntimeError
        return False


# ---------------------------------------------------------------------- packages


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _attention(torch: ModuleType) -> Attention:
    switches = {"flash": "flash_sdp", "math": "math_sdp"}
    if torch.cuda.is_available():  # elsewhere these are switched on too, but there is nothing behind them
        switches |= {"efficient": "mem_efficient_sdp", "cudnn": "cudnn_sdp"}
    asked = {name: getattr(torch.backends.cuda, f"{switch}_enabled", None) for name, switch in switches.items()}
    enabled = tuple(name for name, is_enabled in asked.items() if is_enabled is not None and is_enabled())
    return Attention(enabled, _version("flash_attn"))


def _quantization(torch: ModuleType, device: str) -> Quantization:
    version = _version("bitsandbytes")
    if version is None:
        return Quantization(None, dict.fromkeys(("8bit", "4bit"), "bitsandbytes is not installed"))
    problems = {}
    for name in ("8bit", "4bit"):
        try:
            _try_quantised(torch, device, name)
        except Exception as error:  # bitsandbytes raises whatever its libraries do
            problems[name] = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
    return Quantization(version, problems)


def _try_quantised(torch: ModuleType, device: str, name: str) -> None:
    """A quantised layer, forth and back: training needs both."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        layers = importlib.import_module("bitsandbytes").nn
        if name == "8bit":
            layer = layers.Linear8bitLt(64, 64, bias=False, has_fp16_weights=False)
        else:
            layer = layers.Linear4bit(64, 64, bias=False, compute_dtype=torch.bfloat16)
        given = torch.ones(8, 64, dtype=torch.bfloat16, device=device, requires_grad=True)
        layer.to(device)(given).float().sum().backward()
    if not bool(torch.isfinite(given.grad).all()):
        raise ValueError("a layer gives gradients that are not finite")
