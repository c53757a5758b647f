"""The wheel in empty environments, with each extra alone.

Both archives are built as they are published. For each extra, a new virtual environment gets the wheel with that extra
and the versions of `constraints.txt`; `pip check` looks at it, and a line of Python uses it in an empty folder. It
needs pip's network and 2 GB of disk.

Writes installing.json.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
from pathlib import Path

from benchmarks.files import write_result
from benchmarks.reports.tables import show_records
from lang_bench.runner.errors import BenchmarkError

ROOT = Path(__file__).parents[2]
_PLAY = (
    "import gymnasium, lang_envs as le; e = gymnasium.make({!r}); e.reset(seed=0); "
    "print(e.step(e.action_space.encode(le.oracle(e))))"
)
_TRAIN = "from poad_sb3 import POAD; POAD('LLMPolicy', 'KeyToken-v0', n_steps=32, {}).learn(32)"
USES = {
    "nothing": _PLAY.format("Overcooked-TomatoSalad-v0"),
    "llm": _TRAIN.format("seed=0"),
    "datasci": _PLAY.format("DataSciCoding-iris-v0"),
    "data": "import arff, pandas, pyarrow, lang_envs.datasets.fetching",
    "bench": "import matplotlib; from lang_bench.app import app; app('run --agent random --env KeyToken-v0'.split())",
    "cli": "import lang_envs.cli.app",
    "gguf": "import gguf, poad_sb3.language_model.smollm2",
    "openai": "import openai; openai.OpenAI(api_key='none')",
    "wandb": "import wandb; from poad_sb3.common.callbacks import WandbCallback; WandbCallback('x', mode='offline')",
    "quant": _TRAIN.format("policy_kwargs={'quantization': '8bit'}"),
    "tune": "import optuna, poad_sb3.tuning",
    "scale": (
        "from poad_sb3.distributed.ray_vec_env import make_ray_envs; "
        "e = make_ray_envs('KeyToken-v0', {}, 2, 1); e.reset(); e.close()"
    ),
    "minigrid": _PLAY.format("BabyAIText-GoToRedBall-v0"),
    "textworld": _PLAY.format("TextWorld-CoinCollector-v0"),
    "textarena": "import gymnasium, lang_envs; gymnasium.make('TextArena-FrozenLake-v0').reset(seed=0)",
    "openenv": "import lang_envs.bridges.openenv",
    "inspect": "import inspect_ai, lang_envs.report.exports",
    "minari": "import minari, lang_envs.report.exports",
    "video": "import moviepy; from gymnasium.wrappers import RecordVideo",
    "notebooks": "import ipykernel, nbclient, nbformat",
    "docs": "import latex2mathml, material, mkdocs, mkdocstrings",
    "test": "import hypothesis, mypy.api, pytest, pytest_cov, ruff, scipy, xdist",
}
"""A line of Python for each extra; `nothing` is the wheel alone."""


def listed_files() -> list[str]:
    """Return the files of the checkout, relative to it: tracked ones, and new ones that git does not ignore."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return sorted(name for name in listed.split("\0") if name and (ROOT / name).is_file())


def extras() -> list[str]:
    """Return the names of the extras, as in `pyproject.toml`."""
    return list(tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"])


def build(folder: Path) -> tuple[Path, Path]:
    """Build the source archive, and the wheel from it, without a network.

    It builds in a copy: setuptools puts into a wheel all that an earlier build left in `build/`.

    Args:
        folder: Empty folder for the copy and the archives.

    Raises:
        BenchmarkError: If setuptools fails; its output is in the message.
    """
    for name in listed_files():
        (folder / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, folder / "tree" / name)
    source = _built("build_sdist", folder / "tree", folder / "source")
    with tarfile.open(source) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    return source, _built("build_wheel", next((folder / "unpacked").iterdir()), folder / "wheel")


def _built(hook: str, tree: Path, out: Path) -> Path:
    out.mkdir()
    _run([sys.executable, "-c", f"from setuptools import build_meta; build_meta.{hook}({str(out)!r})"], tree)
    return next(out.iterdir())


def try_extra(wheel: Path, extra: str, folder: Path) -> dict[str, float]:
    """Install the wheel with one extra, or with "nothing", in an empty folder, use it, and delete the environment.

    Returns:
        Seconds of installing, and megabytes of all that was installed.

    Raises:
        BenchmarkError: If a command fails; its output is in the message.
    """
    environment, work = folder / "environment", folder / "work"
    work.mkdir()
    python = str(environment / "bin/python")
    try:
        _run([sys.executable, "-m", "venv", str(environment)], folder)
        started = time.perf_counter()
        target = str(wheel) if extra == "nothing" else f"{wheel}[{extra}]"
        _run([python, "-m", "pip", "install", "--quiet", "-c", str(ROOT / "constraints.txt"), target], folder)
        seconds = time.perf_counter() - started
        _run([python, "-m", "pip", "check"], folder)
        size = sum(path.lstat().st_size for path in environment.rglob("*") if path.is_file() and not path.is_symlink())
        _run([python, "-I", "-c", USES[extra]], work, HOME=str(work), LANG_ENVS_CACHE=str(work / "cache"))
    finally:
        shutil.rmtree(environment, ignore_errors=True)
    return {"install_seconds": round(seconds, 1), "megabytes": round(size / 1e6)}


def _run(command: list[str], folder: Path, **variables: str) -> None:
    """Run a command without variables that lead to this checkout."""
    hidden = ("PYTHON", "LANG_ENVS", "VIRTUAL_ENV")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    done = subprocess.run(command, cwd=folder, env={**kept, **variables}, capture_output=True, text=True)
    if done.returncode != 0:
        output = (done.stdout + done.stderr).strip()[-3000:]
        raise BenchmarkError(f"Expected {' '.join(command)} to succeed; got {output}. Fix: see its output.")


def installing() -> None:
    """Try the wheel in empty environments, with each extra alone."""
    rows = {}
    with tempfile.TemporaryDirectory(prefix="lang-envs-installing-") as name:
        source, wheel = build(Path(name))
        for extra in USES:
            folder = Path(name) / f"extra-{extra}"
            folder.mkdir()
            rows[extra] = try_extra(wheel, extra, folder)
        sizes = {"wheel_bytes": wheel.stat().st_size, "source_bytes": source.stat().st_size}
    show_records("extra", rows, ("install_seconds", "megabytes"))
    write_result("installing", {**sizes, "extras": rows})
