"""Callbacks: last checkpoint of a run, best program found, generated actions, recorded episodes, Weights & Biases."""

from __future__ import annotations

import importlib
import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import KVWriter

from lang_envs.errors import missing_extra
from lang_envs.files import write_text
from poad_sb3.common.episode_recording import EpisodeRecordingCallback
from poad_sb3.common.token_table import GenerationTableCallback
from poad_sb3.errors import CheckpointError, UnsupportedEnvError

__all__ = [
    "BestCodeCallback",
    "EpisodeRecordingCallback",
    "GenerationTableCallback",
    "LatestCheckpointCallback",
    "WandbCallback",
]

_NOT_KEPT = ("code", "terminal_observation", "prefix", "suffix", "episode")
"""Fields of `info` that are stored elsewhere, or are the prompt."""


class LatestCheckpointCallback(BaseCallback):
    """Replaces one checkpoint again and again, at the ends of rollouts.

    Args:
        path: Path of the checkpoint. It is replaced in one step: killed at any time, a whole checkpoint is there.
        every: Minimum number of environment steps between two checkpoints.
    """

    def __init__(self, path: str | Path, every: int) -> None:
        super().__init__()
        self.path, self.every = Path(path), every
        self._saved_at = 0

    def _on_training_start(self) -> None:
        self._saved_at = self.num_timesteps = self.model.num_timesteps

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        if self.num_timesteps - self._saved_at >= self.every:
            self._saved_at = self.num_timesteps
            self.model.save(self.path)


class BestCodeCallback(BaseCallback):
    """Keeps the best program that was found, in `best_code.json` and, ready to read, `best_code.py`.

    The first of equally good ones is kept. A training resumed from a checkpoint continues from the file too; one
    that starts over replaces it by its own first program.

    Args:
        folder: Folder of the two files; each is replaced in one step.

    Attributes:
        best: `code`, `reward`, `step` (environment step that found it) and `info`; None before any program has run.

    Raises:
        UnsupportedEnvError: In training, if `info` has no `code` and `status`.
        CheckpointError: When a training is resumed, if the file is damaged.
    """

    def __init__(self, folder: str | Path) -> None:
        super().__init__()
        self.folder = Path(folder)
        self.best: dict[str, Any] | None = None

    def _on_training_start(self) -> None:
        self.best = self._read() if self.model.num_timesteps > 0 else None

    def _read(self) -> dict[str, Any] | None:
        path = self.folder / "best_code.json"
        if not path.exists():
            return None
        try:
            best: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            self._show(best)  # the process may have been killed between the two files
        except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
            raise CheckpointError(
                f"Expected the best program so far in {path}; it cannot be read ({error}). Fix: restore or remove it."
            ) from error
        return best

    def _on_step(self) -> bool:
        for reward, info in zip(self.locals["rewards"], self.locals["infos"], strict=True):
            if "code" not in info or "status" not in info:
                raise UnsupportedEnvError(
                    f"Expected info['code'] and info['status'] for BestCodeCallback; got {sorted(info)}. "
                    "Fix: use it with DataSciCoding, or leave it out."
                )
            if info["status"] == "ok" and (self.best is None or float(reward) > self.best["reward"]):
                self._keep(float(reward), info)
        return True

    def _keep(self, reward: float, info: Mapping[str, Any]) -> None:
        rest = {name: value for name, value in info.items() if name not in _NOT_KEPT}
        self.best = {"reward": reward, "step": self.num_timesteps, "code": info["code"], "info": rest}
        write_text(self.folder / "best_code.json", json.dumps(self.best, indent=2, default=_plain) + "\n")
        self._show(self.best)

    def _show(self, best: Mapping[str, Any]) -> None:
        heading = f"# Body of build_model(x_train, y_train); reward {best['reward']:.6g}, found at step {best['step']}."
        write_text(self.folder / "best_code.py", f"{heading}\n{best['code']}\n")


def _plain(value: object) -> object:
    """Return a value of `info` in terms of JSON."""
    return value.item() if isinstance(value, np.generic) else str(value)


class WandbCallback(BaseCallback):
    """Sends the logged values to Weights & Biases.

    SB3 does not notify callbacks when an error ends a training: call `close` in a `finally`.

    Args:
        project: Name of the project.
        run_id: Id of the run to resume, or to create if there is none; None for a new run.
        config: Configuration of the run, for display.
        **options: Further arguments of `wandb.init`.

    Raises:
        MissingExtraError: If the package is not installed.
    """

    def __init__(
        self,
        project: str,
        *,
        run_id: str | None = None,
        config: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        try:
            self._wandb = importlib.import_module("wandb")
        except ImportError as error:
            raise missing_extra("wandb", "the package wandb") from error
        self._options = {
            **options,
            "project": project,
            "id": run_id,
            "config": dict(config or {}),
            "resume": None if run_id is None else "allow",
        }
        self._run: Any = None
        self._writer: _WandbWriter | None = None

    def _on_training_start(self) -> None:
        self._run = self._wandb.init(**self._options)
        self._writer = _WandbWriter(self._run)
        self.logger.output_formats.append(self._writer)

    def _on_step(self) -> bool:
        return True

    def _on_training_end(self) -> None:
        self._finish()

    def close(self) -> None:
        """End a run that an error has left open, as a failed one; without such a run it has no effect."""
        self._finish(exit_code=1)

    def _finish(self, **options: int) -> None:
        if self._run is None:
            return
        if self._writer in self.logger.output_formats:  # not if the error came before it was there
            self.logger.output_formats.remove(self._writer)
        run, self._run = self._run, None
        try:
            run.finish(**options)
        except Exception as error:  # what was trained is worth more than its log
            warnings.warn(f"Weights & Biases could not end its run: {error!r}.", stacklevel=2)


class _WandbWriter(KVWriter):
    def __init__(self, run: Any) -> None:
        self._run = run

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:
        shown = {key: value for key, value in key_values.items() if "wandb" not in (key_excluded.get(key) or ())}
        self._run.log(shown, step=step)

    def close(self) -> None:
        """Do not end the run here: it ends with the training."""
