"""The folder of a training run: its files, and how to resume it."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stable_baselines3.common.logger import HumanOutputFormat, KVWriter, Logger, TensorBoardOutputFormat

import lang_envs
from lang_envs.files import lock, write_text
from lang_envs.report.schemas import WrongValueError, compile_schema, shown
from poad_sb3.errors import PoadError
from poad_sb3.presets import ALGORITHMS, MERGED
from poad_sb3.runs.progress_csv import ResumableCSV

if TYPE_CHECKING:
    from stable_baselines3.common.vec_env import VecEnv

    from poad_sb3.common.on_policy_algorithm import LLMOnPolicyAlgorithm

_PACKAGES = ("torch", "transformers", "peft", "stable-baselines3", "gymnasium", "numpy")


class RunError(PoadError, ValueError):
    """A run that cannot be started or resumed as asked."""


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Configuration of a run; `config.json` in its folder.

    Attributes:
        env_id: Id of the environment.
        algorithm: Name of the algorithm.
        preset: Name of the preset, or None.
        seed: Seed of everything random.
        env_kwargs: Arguments of `gym.make`.
        n_envs: Number of environments that step together.
        ray: Ray cluster that steps them: `"local"`, `"auto"` or an address; None or `"off"` for this process.
        n_actors: Number of actors of the cluster, as asked for; see `make_ray_envs`.
        given: Constructor arguments given by preset and command line.
        arguments: All constructor arguments, as the algorithm has them.
        model: Base model: `name`, `revision` (as asked for), `commit` (as found on a hub) and `fingerprint`.
        dataset: Digest of the table of DataSciCoding; None elsewhere.
        prompt_template: Template of the prompts; `poad_sb3.prompts.template_of` reads it.
        steps: Number of environment steps to train for.
        save_every: Number of steps between checkpoints.
        sessions: One entry for each process that has trained the run: `time` (UTC), `command`, `versions`, `from_step`.
        record_episodes: Number of episodes that are recorded at a time, 0 for none; None for the default of the
            environment.
        warm_start: Path of the run or checkpoint, or `zoo:ROW`, whose weights the run started from; None for the
            base model's own.
        format: Version of the layout.
    """

    env_id: str
    algorithm: str = "POAD"
    preset: str | None = None
    seed: int = 0
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    n_envs: int = 1
    given: dict[str, Any] = field(default_factory=dict)
    arguments: dict[str, Any] = field(default_factory=dict)
    model: dict[str, str | None] = field(default_factory=dict)
    dataset: str | None = None
    prompt_template: dict[str, Any] = field(default_factory=dict)
    steps: int = 10_000
    save_every: int = 1_000
    sessions: list[dict[str, Any]] = field(default_factory=list)
    ray: str | None = None
    n_actors: int | None = None
    record_episodes: int | None = None
    warm_start: str | None = None
    format: int = 1

    def moved(self, model: Mapping[str, Any]) -> RunConfig:
        """Return the same run with its base model elsewhere, by `policy_kwargs` that replace those of the run."""

        def changed(arguments: Mapping[str, Any]) -> dict[str, Any]:
            return {**arguments, MERGED: {**(arguments.get(MERGED) or {}), **model}} if model else dict(arguments)

        return replace(self, given=changed(self.given), arguments=changed(self.arguments))


@dataclass(frozen=True)
class RunFolder:
    """The folder of a run.

    Attributes:
        path: Path of the folder; it is created when something is written.
    """

    path: Path

    @property
    def config_file(self) -> Path:
        """Path of the configuration file."""
        return self.path / "config.json"

    @property
    def latest(self) -> Path:
        """Path of the last checkpoint."""
        return self.path / "latest.zip"

    @property
    def progress(self) -> Path:
        """Path of the logged metrics, a row for each rollout."""
        return self.path / "progress.csv"

    def read_config(self) -> RunConfig | None:
        """Return the run's config; None if there is no run here.

        Raises:
            RunError: If the config cannot be read.
        """
        try:
            values: dict[str, Any] = json.loads(self.config_file.read_text(encoding="utf-8"))
            _check_config(values)
            whole = {name: int(value) for name, value in values.items() if isinstance(value, float)}  # 16.0 is 16
            return RunConfig(**{**values, **whole})
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError, RecursionError, WrongValueError) as error:
            raise RunError(
                f"Expected the config of a run in {self.config_file}; it cannot be read ({error}). "
                "Fix: restore it, or train again in another folder."
            ) from error

    def write_config(self, config: RunConfig) -> None:
        """Replace the config in one step."""
        write_text(self.config_file, json.dumps(asdict(config), indent=2, default=str) + "\n")

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock the folder for this process alone, where the system has locks of files; create it if it is missing.

        Raises:
            RunError: If another process trains in the folder, or it cannot be created.
        """
        made = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            file = os.open(self.path, os.O_RDONLY) if os.name == "posix" else None
        except OSError as error:
            raise RunError(f"{self.path} cannot be written: {error}") from error
        try:
            if file is not None:
                self._lock(file)
            yield
        finally:
            if file is not None:
                os.close(file)
            with suppress(OSError):  # those of a run that was refused are empty
                for folder in made:
                    folder.rmdir()

    def _lock(self, file: int) -> None:
        try:
            lock(file)
        except BlockingIOError as error:
            raise RunError(
                f"Expected to be alone in {self.path}; another process trains in it. Fix: wait until it ends, or use "
                "another --out."
            ) from error
        except OSError:  # a file system without locks
            return

    def clean(self) -> None:
        """Remove half-written files of a killed process."""
        for scratch in self.path.glob(".*.tmp"):
            if not scratch.is_dir():  # a folder is that of an export beside this run
                scratch.unlink(missing_ok=True)


_TEXT, _MAPPING, _COUNT = {"type": "string"}, {"type": "object"}, {"type": "integer", "minimum": 0}
_MAYBE_TEXT, _MAYBE_COUNT = {"type": ["string", "null"]}, {"type": ["integer", "null"], "minimum": 0}
_ARGUMENTS = {**_MAPPING, "properties": {MERGED: {"type": ["object", "null"]}}}
_SESSION = {"time": _TEXT, "command": {"type": "array", "items": _TEXT}, "versions": _MAPPING}
_FIELDS: dict[str, dict[str, Any]] = {
    "algorithm": _TEXT,
    "preset": _MAYBE_TEXT,
    "seed": _COUNT,
    "env_id": _TEXT,
    "env_kwargs": _MAPPING,
    "n_envs": {"type": "integer", "minimum": 1},
    "given": _ARGUMENTS,
    "arguments": _ARGUMENTS,
    "model": {**_MAPPING, "additionalProperties": _MAYBE_TEXT},
    "dataset": _MAYBE_TEXT,
    "prompt_template": _MAPPING,
    "steps": {"type": "integer", "minimum": 1},
    "save_every": {"type": "integer", "minimum": 1},
    "sessions": {"type": "array", "items": {**_MAPPING, "required": list(_SESSION), "properties": _SESSION}},
    "ray": _MAYBE_TEXT,
    "n_actors": _MAYBE_COUNT,
    "record_episodes": _MAYBE_COUNT,
    "warm_start": _MAYBE_TEXT,
    "format": _COUNT,
}
_OPTIONAL = ("sessions", "ray", "n_actors", "record_episodes", "warm_start", "format")
_check_fields = compile_schema(
    {"type": "object", "required": [name for name in _FIELDS if name not in _OPTIONAL], "properties": _FIELDS}
)


def _check_config(values: object) -> None:
    """Check the JSON values of a `RunConfig`.

    Raises:
        WrongValueError: If a field is missing, unknown, or of another type, or the algorithm is unknown.
    """
    _check_fields(values)
    assert isinstance(values, dict)
    if values["algorithm"] not in ALGORITHMS:
        raise WrongValueError("the name of an algorithm", shown(values["algorithm"]), "algorithm")
    for name in sorted(values.keys() - _FIELDS.keys()):
        raise WrongValueError("no value", shown(values[name]), name)


def session(command: Sequence[str], from_step: int) -> dict[str, Any]:
    """Return the record of this process.

    Args:
        command: Command line of the process.
        from_step: Number of environment steps trained before the process started.
    """
    versions = {name: version(name) for name in _PACKAGES}
    packages = dict.fromkeys(("lang_envs", "poad_sb3"), lang_envs.__version__)  # one distribution
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": list(command),
        "versions": {**packages, **versions, "python": platform.python_version()},
        "from_step": from_step,
    }


def describe_model(model: LLMOnPolicyAlgorithm) -> dict[str, str | None]:
    """Return the base model of an algorithm."""
    settings = model.policy_kwargs
    config = model.policy.lm.base.config
    return {
        "name": model.policy.lm.source.name,
        "revision": settings.get("revision"),
        "commit": getattr(config, "_commit_hash", None),
        "fingerprint": model.policy.lm.fingerprint,
    }


def dataset_digest(envs: VecEnv) -> str | None:
    """Return the digest of the table that the environments are about; None if they are about no table."""
    if not envs.has_attr("dataset"):
        return None
    return getattr(envs.get_attr("dataset", indices=[0])[0], "digest", None)


def differences(recorded: Mapping[str, Any], given: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield a sentence for each key whose values differ between a command and the run.

    Args:
        recorded: Values of the run, by key; mappings are compared key by key.
        given: Values of the command, by key.
        prefix: Text before the keys.
    """
    for key, value in given.items():
        before = recorded.get(key)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            yield from differences(before, value, f"{prefix}{key}.")
        elif value != before:
            yield f"{prefix}{key} is {before!r} in the run, and {value!r} is asked for"


def run_logger(folder: RunFolder, up_to: int) -> Logger:
    """Create a logger that writes `progress.csv` and events of TensorBoard, and prints where there is no terminal.

    On a terminal SB3's progress bar is shown instead.

    Args:
        folder: Folder of the run.
        up_to: Step of the checkpoint to resume from.
    """
    folder.path.mkdir(parents=True, exist_ok=True)
    formats: list[KVWriter] = [
        ResumableCSV(folder.progress, up_to),
        TensorBoardOutputFormat(str(folder.path / "tensorboard")),
    ]
    if not sys.stdout.isatty():
        formats.append(HumanOutputFormat(sys.stdout))
    return Logger(folder=str(folder.path), output_formats=formats)
