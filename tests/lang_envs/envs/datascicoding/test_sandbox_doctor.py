"""The doctor of the sandbox: its findings and conclusions."""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("sklearn", reason="the extra datasci is not installed")

from lang_envs.envs.datascicoding.sandbox_doctor import Diagnosis, Verdict, diagnose
from lang_envs.sandbox.confinement.layers import Confinement, Layer

ESSENTIAL = {Layer.LANDLOCK, Layer.SECCOMP}


@pytest.fixture(scope="module")
def diagnosis() -> Diagnosis:
    # in a place of its own: the tests of another worker may meet in the usual one
    with tempfile.TemporaryDirectory(prefix="le") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", folder)
        return diagnose()


def test_honest_code_runs_and_gets_its_score(diagnosis: Diagnosis) -> None:
    assert diagnosis.problem == ""
    assert diagnosis.latency is not None
    assert diagnosis.latency.score == pytest.approx(0.7858, abs=1e-3)
    assert 0 < diagnosis.latency.warm < diagnosis.latency.first


@pytest.mark.process
@pytest.mark.parametrize("layer", sorted(ESSENTIAL))
def test_a_missing_layer_is_noticed(layer: Layer, diagnosis: Diagnosis) -> None:
    if layer not in diagnosis.confinement.active:
        pytest.skip(f"this machine has no {layer}")
    got = diagnose([layer])
    assert got.verdict is Verdict.REDUCED
    assert got.confinement.missing[layer].startswith(f"Without {layer}, ")
    assert got.supervisor is not None
    assert layer not in got.supervisor.layers
    assert f"without {layer}" in got.supervisor.refused
    assert got.latency is not None
    assert got.latency.score == diagnosis.latency.score if diagnosis.latency else False


@pytest.fixture
def runtime_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where sockets are; the path of pytest's own folder may be too long for one."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        yield Path(folder)


def test_a_supervisor_that_cannot_start_makes_it_unusable(runtime_folder: Path) -> None:
    (runtime_folder / f"lang-envs-{os.getuid()}").mkdir(mode=0o755)
    got = diagnose()
    assert got.verdict is Verdict.UNUSABLE
    assert "Fix: remove it, or set XDG_RUNTIME_DIR." in got.problem
    assert (got.supervisor, got.latency) == (None, None)
    assert got.confinement.active  # the layers are tried without a supervisor


@pytest.mark.parametrize(
    ("missing", "problem", "verdict"),
    [
        ([], "", Verdict.FULL),
        ([Layer.NAMESPACES], "", Verdict.FULL),
        ([Layer.LANDLOCK], "", Verdict.REDUCED),
        ([Layer.RESOURCE_LIMITS, Layer.NAMESPACES], "", Verdict.REDUCED),
        ([], "broken", Verdict.UNUSABLE),
        ([Layer.SECCOMP], "broken", Verdict.UNUSABLE),
    ],
)
def test_verdicts(missing: list[Layer], problem: str, verdict: Verdict, diagnosis: Diagnosis) -> None:
    confinement = Confinement(frozenset(Layer) - set(missing), dict.fromkeys(missing, "why"))
    assert dataclasses.replace(diagnosis, confinement=confinement, problem=problem).verdict is verdict
