"""`poad doctor`: its findings on machines of several kinds, and its output."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from stable_baselines3.common.utils import get_device
from typer.testing import CliRunner

from poad_sb3.cli.app import app
from poad_sb3.cli.memory import plain
from poad_sb3.memory import doctor
from poad_sb3.memory.common_models import COMMON_MODELS, common_size
from poad_sb3.memory.doctor import (
    PRECISIONS,
    TOKENS,
    Device,
    HostMemory,
    Machine,
    diagnose,
    fits,
    free_memory,
    largest_choice,
    usable_memory,
)
from poad_sb3.memory.doctor import host_memory as memory_of
from poad_sb3.memory.estimate import estimate
from poad_sb3.settings import ModelSettings

GIB = 2**30
HOST = HostMemory(64 * GIB, 60 * GIB)


def fake_torch(**parts: Any) -> Any:
    """A torch of another machine; products of matrices are made here."""
    nothing = SimpleNamespace(is_available=lambda: False)
    switches = {f"{name}_sdp_enabled": lambda: True for name in ("flash", "mem_efficient", "math")}
    whole = {
        "cuda": nothing,
        "mps": SimpleNamespace(),
        "backends": SimpleNamespace(cuda=SimpleNamespace(**switches)),
        "version": SimpleNamespace(hip=None),
        "ones": lambda *shape, dtype, device, **more: torch.ones(*shape, dtype=dtype, **more),
        **{name: getattr(torch, name) for name in ("float32", "bfloat16", "float16", "isfinite")},
    }
    return SimpleNamespace(**{**whole, **parts})


def examine(machine: Any, memory: HostMemory = HOST) -> Machine:
    """Look at another machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(doctor, "torch", machine)
        patch.setattr(doctor, "host_memory", lambda: memory)
        return doctor.examine()


def fake_cuda(*, major: int = 9, free: int | None = 130 * GIB) -> Any:
    def mem_get_info(number: int) -> tuple[int, int]:
        if free is None:
            raise RuntimeError("the device is busy")
        return free, 140 * GIB

    properties = SimpleNamespace(name="NVIDIA H200", major=major, minor=0, total_memory=140 * GIB)
    return SimpleNamespace(
        is_available=lambda: True, device_count=lambda: 2, get_device_properties=lambda number: properties,
        mem_get_info=mem_get_info,
    )  # fmt: skip


def fake_bitsandbytes(patch: pytest.MonkeyPatch, *, fails: str = "") -> None:
    class Layer(torch.nn.Linear):
        def __init__(self, inputs: int, outputs: int, *, bias: bool, **rest: Any) -> None:
            if fails and ("has_fp16_weights" in rest) == (fails == "8bit"):
                raise RuntimeError("no kernel for this device\nand more")
            super().__init__(inputs, outputs, bias=bias, dtype=torch.bfloat16)

        def to(self, device: str) -> Layer:
            return self

    layers = SimpleNamespace(Linear8bitLt=Layer, Linear4bit=Layer)
    patch.setitem(sys.modules, "bitsandbytes", SimpleNamespace(nn=layers))
    patch.setattr(doctor, "_version", lambda package: "0.50.2" if package == "bitsandbytes" else None)


@pytest.fixture
def without_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_version", lambda package: None)


# ---------------------------------------------------------------------- machines


def test_this_machine() -> None:
    machine = doctor.examine()
    assert machine.automatic.partition(":")[0] == get_device("auto").type
    assert machine.devices[-1].name == "cpu"
    assert "float32" in machine.device.dtypes
    assert machine.versions["torch"] == torch.__version__
    assert machine.cores >= 1
    assert "math" in machine.attention.sdpa_backends


@pytest.mark.usefixtures("without_packages")
def test_a_cuda_machine() -> None:
    machine = examine(fake_torch(cuda=fake_cuda()))
    assert [device.name for device in machine.devices] == ["cuda:0", "cuda:1", "cpu"]
    assert machine.automatic == "cuda:0"
    first = machine.device
    assert (first.label, first.total, first.free, first.capability) == ("NVIDIA H200", 140 * GIB, 130 * GIB, "9.0")
    assert first.dtypes == ("float32", "bfloat16", "float16")
    assert not first.emulates_bfloat16
    assert machine.attention.sdpa_backends == ("flash", "math", "efficient")
    assert diagnose(machine).usable == int(0.9 * 130 * GIB)


def test_what_is_free_on_one_device(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = fake_cuda()
    cuda.current_device = lambda: 1
    monkeypatch.setattr(doctor, "torch", fake_torch(cuda=cuda))
    for name in ("cuda", "cuda:0"):
        assert free_memory(name) == 130 * GIB
    assert free_memory("cuda:2") is None
    monkeypatch.setattr(doctor, "torch", fake_torch())
    assert free_memory("mps") is None
    monkeypatch.setattr(doctor, "host_memory", lambda: HOST)
    assert free_memory("cpu") == HOST.available
    assert usable_memory(None) is None


@pytest.mark.usefixtures("without_packages")
def test_an_old_or_busy_cuda_device() -> None:
    assert examine(fake_torch(cuda=fake_cuda(major=7))).device.emulates_bfloat16
    machine = examine(fake_torch(cuda=fake_cuda(free=None)))
    assert machine.device.free is None
    found = diagnose(machine)
    assert (found.usable, found.best) == (None, None)
    assert {fit.verdict for fit in found.fits} == {""}


@pytest.mark.usefixtures("without_packages")
def test_an_apple_machine() -> None:
    backends = fake_torch().backends
    backends.mps = SimpleNamespace(is_available=lambda: True)
    mps = SimpleNamespace(recommended_max_memory=lambda: 48 * GIB, driver_allocated_memory=lambda: GIB)
    machine = examine(fake_torch(backends=backends, mps=mps))
    assert [device.name for device in machine.devices] == ["mps", "cpu"]
    assert (machine.devices[0].total, machine.devices[0].free) == (48 * GIB, 47 * GIB)
    assert machine.automatic == "cpu", "as stable_baselines3 chooses"


@pytest.mark.usefixtures("without_packages")
def test_what_a_device_cannot_compute_is_left_out() -> None:
    def ones(*shape: int, dtype: torch.dtype, device: str) -> torch.Tensor:
        if dtype == torch.bfloat16:
            raise RuntimeError("not implemented for 'BFloat16'")
        return torch.ones(*shape, dtype=dtype)

    machine = examine(fake_torch(ones=ones))
    assert machine.device.dtypes == ("float32", "float16")
    best = diagnose(machine).best
    assert best is not None
    assert best.policy_kwargs["dtype"] == "float32"


def test_bitsandbytes(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_bitsandbytes(monkeypatch)
    machine = examine(fake_torch())
    assert machine.quantization == ("0.50.2", {})
    best = diagnose(machine).best
    assert best is not None
    fake_bitsandbytes(monkeypatch, fails="8bit")
    assert examine(fake_torch()).quantization.problems == {"8bit": "no kernel for this device"}
    fake_bitsandbytes(monkeypatch, fails="4bit")
    without = examine(fake_torch())
    assert without.quantization.problems == {"4bit": "no kernel for this device"}
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    assert set(examine(fake_torch()).quantization.problems) == {"8bit", "4bit"}


# ---------------------------------------------------------------------- memory of the host


def files(root: Path, contents: dict[str, str]) -> Path:
    for name, content in contents.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return root


@pytest.fixture(autouse=True)
def memory_of_the_machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "tmp_path" in request.fixturenames:
        memory = SimpleNamespace(total=64000 * 1024, available=48000 * 1024)
        monkeypatch.setattr(doctor.psutil, "virtual_memory", lambda: memory)


def test_a_machine_without_limits(tmp_path: Path) -> None:
    group = {"sys/fs/cgroup/user/memory.max": "max\n", "sys/fs/cgroup/user/memory.current": "5\n"}
    root = files(tmp_path, {"proc/self/cgroup": "0::/user\n", **group})
    assert memory_of(root) == HostMemory(64000 * 1024, 48000 * 1024)


def test_the_limit_of_a_container(tmp_path: Path) -> None:
    group = {
        "sys/fs/cgroup/memory.max": "30000000\n",
        "sys/fs/cgroup/memory.current": "9000000\n",
        "sys/fs/cgroup/memory.stat": "anon 1\ninactive_file 4000000\n",
    }
    root = files(tmp_path, {"proc/self/cgroup": "0::/\n", **group})
    assert memory_of(root) == HostMemory(30_000_000, 25_000_000, limited=True)


def test_the_limit_of_a_group_above(tmp_path: Path) -> None:
    groups = {
        "sys/fs/cgroup/job/step/memory.max": "max",
        "sys/fs/cgroup/job/step/memory.current": "1",
        "sys/fs/cgroup/job/memory.max": "20000000",
        "sys/fs/cgroup/job/memory.current": "25000000",
    }
    root = files(tmp_path, {"proc/self/cgroup": "0::/job/step\n", **groups})
    assert memory_of(root) == HostMemory(20_000_000, 0, limited=True)


def test_the_first_version_of_control_groups(tmp_path: Path) -> None:
    groups = {
        "proc/self/cgroup": "5:devices:/a\n4:cpu,memory:/job\n0::/\n",
        "sys/fs/cgroup/memory/job/memory.limit_in_bytes": "10000000\n",
        "sys/fs/cgroup/memory/job/memory.usage_in_bytes": "4000000\n",
        "sys/fs/cgroup/memory/job/memory.stat": "total_inactive_file 1000000\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": str(2**63 - 4096),
        "sys/fs/cgroup/memory/memory.usage_in_bytes": "4000000\n",
    }
    assert memory_of(files(tmp_path, {**groups})) == HostMemory(10_000_000, 7_000_000, True)


# ---------------------------------------------------------------------- models that fit


def test_verdicts_follow_from_the_estimates() -> None:
    settings = ModelSettings(dtype="bfloat16")
    room = estimate(common_size("Llama-3.2-1B", settings), settings).total
    found = {(fit.model, fit.precision.name): fit for fit in fits(room)}
    assert len(found) == len(COMMON_MODELS) * len(PRECISIONS)
    assert found["Llama-3.2-1B", "bfloat16"].verdict == "yes"
    assert found["Qwen2.5-1.5B", "bfloat16"].verdict == "checkpointing"
    assert found["Llama-3-70B", "4-bit"].verdict == "no"


def test_of_settings_that_fit_the_cheapest_is_chosen() -> None:
    models = ["Qwen2.5-0.5B"]
    plenty = largest_choice(10**12, models=models)
    assert plenty is not None
    assert plenty.policy_kwargs == {
        "dtype": "float32",
        "quantization": None,
        "gradient_checkpointing": False,
        "max_tokens_per_forward": TOKENS[0],
    }
    for room in range(1 * 10**9, 12 * 10**9, 10**9):
        choice = largest_choice(room, models=models)
        assert choice is None or choice.needed.total <= room
    assert largest_choice(10**8) is None
    largest = largest_choice(10**12)
    assert largest is not None
    assert largest.model == "Llama-3-70B"


# ---------------------------------------------------------------------- the command


def said(machine: Machine | None, patch: pytest.MonkeyPatch, *options: str) -> str:
    if machine is not None:
        patch.setattr(doctor, "examine", lambda: machine)
    result = CliRunner().invoke(app, ("doctor", *options))
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


def test_the_command_here(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = said(None, monkeypatch)
    assert all(name in shown for name in (*COMMON_MODELS, "device=auto", "sdpa", "quantization", torch.__version__))
    *rest, last = shown.splitlines()
    assert all(len(line) <= 80 for line in rest), "fits a narrow terminal"
    assert "fits" in last


def test_the_command_with_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_bitsandbytes(monkeypatch)
    shown = said(examine(fake_torch(cuda=fake_cuda())), monkeypatch)
    assert "capability 9.0; 139.6 GB free of 150.3 GB" in " ".join(shown.split())
    assert "bitsandbytes 0.50.2 on cuda:0: 8bit: works; 4bit: works" in " ".join(shown.split())
    assert shown.splitlines()[-1].startswith("largest that fits: Llama-3-70B in ")
    assert "policy_kwargs=dict(dtype='bfloat16', quantization='8bit', gradient_checkpointing=False, max_tokens" in shown


@pytest.mark.usefixtures("without_packages")
def test_the_command_where_little_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    bare = examine(fake_torch())._replace(devices=(Device("cpu", "a chip", None, None, dtypes=("float32",)),))
    shown = said(bare, monkeypatch)
    assert "How much memory is free is unknown here" in shown
    assert "bfloat16, 8-bit, 4-bit: what they would need; they do not work here." in " ".join(shown.split())
    assert '-e ".[quant]"' in " ".join(shown.split())
    tiny = bare._replace(devices=(Device("cpu", "a chip", GIB, GIB // 8, dtypes=("float32",)),))
    assert "None of these models fits" in said(tiny, monkeypatch)


def test_facts_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    found = json.loads(said(examine(fake_torch(cuda=fake_cuda())), monkeypatch, "--json"))
    assert found["machine"]["devices"][0]["capability"] == "9.0"
    assert found["usable"] == int(0.9 * 130 * GIB)
    assert len(found["fits"]) == len(COMMON_MODELS) * len(PRECISIONS)
    assert set(found["best"]["policy_kwargs"]) == {
        "dtype", "quantization", "gradient_checkpointing", "max_tokens_per_forward",
    }  # fmt: skip
    assert found["best"]["needed"]["weights"] > 0
    assert plain(((HOST,), {"a": (1, 2)})) == [[HOST._asdict()], {"a": [1, 2]}]
