"""Options of `poad train`, and their comparison with the run in its folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lang_envs.cli.common import parse_settings
from lang_envs.text import nearest
from poad_sb3.cli.common import algorithm, algorithm_name, fail
from poad_sb3.common.hyperparameters import (
    MOVABLE,
    check_arguments,
    model_preset,
    preset_arguments,
    typed_arguments,
)
from poad_sb3.pocket import SHIPPED_MODELS
from poad_sb3.presets import MERGED, PRESETS
from poad_sb3.runs.run_folder import RunConfig, differences

_OPTION_OF = {"seed": "--seed", "policy": "nothing", "env": "ENV", "verbose": "nothing", "tensorboard_log": "--out"}
"""Arguments that `--set` refuses, and the option that sets each."""
_STEPS, _SAVE_EVERY = 10_000, 1_000


@dataclass(frozen=True)
class TrainOptions:
    """Options of `poad train` and `poad bc`; None for those that were not given.

    Attributes:
        env_id: Id of the environment.
        algorithm: Name of the algorithm.
        preset: Name of the preset.
        arguments: Constructor arguments of the algorithm.
        env_kwargs: Arguments of `gym.make`.
        seed: Seed of everything random.
        steps: Number of environment steps in all.
        n_envs: Number of environments that step together.
        ray: Ray cluster that steps them: `"local"`, `"auto"` or its address; `"off"` for this process.
        n_actors: Number of actors of the cluster.
        save_every: Number of steps between checkpoints.
        record_episodes: Number of episodes that are recorded at a time.
        warm_start: Path of the run or checkpoint whose weights the training starts from.
    """

    env_id: str | None
    algorithm: str | None
    preset: str | None
    arguments: Mapping[str, Any]
    env_kwargs: Mapping[str, Any]
    seed: int | None = None
    steps: int | None = None
    n_envs: int | None = None
    ray: str | None = None
    n_actors: int | None = None
    save_every: int | None = None
    record_episodes: int | None = None
    warm_start: Path | None = None

    @classmethod
    def parse(
        cls,
        *,
        algo: str | None,
        settings: Sequence[str],
        env_settings: Sequence[str],
        **options: Any,
    ) -> TrainOptions:
        """Parse the options of the command line."""
        arguments = parse_settings("--set", settings, fail)
        for name in arguments:
            if name in _OPTION_OF:
                fail(f"Expected a constructor argument after --set; got {name}, which is set by {_OPTION_OF[name]}.")
        return cls(
            algorithm=None if algo is None else algorithm_name(algo),
            arguments=arguments,
            env_kwargs=parse_settings("--env-set", env_settings, fail),
            **options,
        )

    def moved(self) -> dict[str, Any]:
        """Return the place of the base model in the options, if given; the fingerprint verifies that it is the same."""
        settings = self.arguments.get(MERGED)
        return {name: settings[name] for name in MOVABLE if name in settings} if isinstance(settings, dict) else {}

    @property
    def _warm_start(self) -> str | None:
        return None if self.warm_start is None else str(self.warm_start.resolve())

    def default_folder(self) -> Path:
        """Return the folder of the run if none is given."""
        if self.env_id is None:
            fail("Expected an environment, such as Overcooked-TomatoSalad-v0, or --resume with --out FOLDER.")
        name = self.env_id.replace("/", "-").replace(":", "-")
        return Path("runs") / f"{self.algorithm or 'POAD'}-{name}-seed{self.seed or 0}"

    def new(self) -> RunConfig:
        """Create the run's config; fields that need the loaded model are left empty."""
        if self.env_id is None:
            fail("Expected an environment, such as Overcooked-TomatoSalad-v0: there is no run to resume.")
        name = self.algorithm or "POAD"
        kind, n_envs, preset = algorithm(name), self.n_envs, self.preset
        try:
            given = typed_arguments(kind, self.arguments)
            preset = preset or model_preset(kind, self.env_id, given)[0]
            if preset is None:
                check_arguments(kind, given)
            else:
                given = preset_arguments(kind, preset, n_envs, given)
                n_envs = n_envs or PRESETS[preset].n_envs
        except (ValueError, TypeError, AssertionError) as error:
            fail(str(error))
        _make_absolute(given)
        return RunConfig(
            algorithm=name,
            preset=preset,
            seed=self.seed or 0,
            env_id=self.env_id,
            env_kwargs=dict(self.env_kwargs),
            n_envs=n_envs or 1,
            ray=self.ray,
            n_actors=self.n_actors,
            given=given,
            arguments={},
            model={},
            dataset=None,
            prompt_template={},
            steps=self.steps or _STEPS,
            save_every=self.save_every or _SAVE_EVERY,
            record_episodes=self.record_episodes,
            warm_start=self._warm_start,
        )

    def require_same(self, config: RunConfig) -> None:
        """Refuse to resume a run with other settings than its own; options left out are as in the run."""
        for name in self.arguments:
            if name not in config.arguments and name != "device":
                fail(f"There is no argument {name!r}. {nearest(name, config.arguments)}")
        options = {
            "ENV": (config.env_id, self.env_id),
            "--algo": (config.algorithm, self.algorithm),
            "--preset": (config.preset, self.preset),
            "--seed": (config.seed, self.seed),
            "--n-envs": (config.n_envs, self.n_envs),
            "--warm-start": (config.warm_start, self._warm_start),
        }
        recorded = {name: value for name, (value, _) in options.items()}
        requested = {name: value for name, (_, value) in options.items() if value is not None}
        try:
            given = typed_arguments(algorithm(config.algorithm), self.arguments)
        except ValueError as error:
            fail(str(error))
        arguments = {name: value for name, value in given.items() if name != "device"}
        changes = [
            *differences(recorded, requested),
            *differences(config.arguments, arguments, "--set "),
            *differences(config.env_kwargs, self.env_kwargs, "--env-set "),
        ]
        if changes:
            fail(f"A run keeps its settings: {'; '.join(changes)}. Fix: leave that out, or use another --out.")


def _make_absolute(given: dict[str, Any]) -> None:
    """Replace the folder or the file of a base model by its absolute path."""
    settings = given.get(MERGED) or {}
    model = settings.get("model")
    if isinstance(model, str) and model not in (*SHIPPED_MODELS, "smollm2") and Path(model).exists():
        given[MERGED] = {**settings, "model": str(Path(model).resolve())}
