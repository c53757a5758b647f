"""Options of `poad train` and `poad bc`: the configuration of a new run, and the comparison with that of a run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
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
)
from poad_sb3.pocket import SHIPPED_MODELS
from poad_sb3.presets import MERGED, PRESETS
from poad_sb3.runs.run_folder import RunConfig, differences

Options = dict[str, Any]
"""Given options, by the fields of `RunConfig`; `given` holds the constructor arguments of `--set`."""

ZOO = "zoo:"
"""Beginning of a `--warm-start` from the zoo."""
_OPTION_OF = {"seed": "--seed", "policy": "nothing", "env": "ENV", "verbose": "nothing", "tensorboard_log": "--out"}
"""Arguments that `--set` refuses, and the option that sets each."""
_KEPT = {
    "env_id": "ENV",
    "algorithm": "--algo",
    "preset": "--preset",
    "seed": "--seed",
    "n_envs": "--n-envs",
    "warm_start": "--warm-start",
}
"""Fields that a run keeps, and the option that sets each."""
_FREE = ("steps", "save_every", "record_episodes", "ray", "n_actors")
"""Fields that may change when a run is resumed."""
_PLACES = ("device", "generation_endpoint")
"""Arguments that may."""


def parse_options(settings: Sequence[str] | None, env_settings: Sequence[str] | None, **options: Any) -> Options:
    """Parse the options of the command line; None stands for one that was not given."""
    given = parse_settings("--set", settings or (), fail)
    for name in given:
        if name in _OPTION_OF:
            fail(f"Expected a constructor argument after --set; got {name}, which is set by {_OPTION_OF[name]}.")
    if not isinstance(given.get(MERGED, {}), dict):
        fail(f"Expected {MERGED} to be a mapping; got {given[MERGED]!r}. Fix: {MERGED}.NAME=VALUE.")
    options = {name: value for name, value in options.items() if value is not None}
    if options.get("preset", "").endswith(".json"):
        tuned = read_preset(Path(options.pop("preset")))
        options = {"algorithm": tuned["algorithm"], "n_envs": tuned["n_envs"], **options}
        policy = {**(tuned["arguments"].get(MERGED) or {}), **(given.get(MERGED) or {})}
        given = {**tuned["arguments"], **given, **({MERGED: policy} if policy else {})}
    if "algorithm" in options:
        options["algorithm"] = algorithm_name(options["algorithm"])
    if not options.get("warm_start", ZOO).startswith(ZOO):
        options["warm_start"] = str(Path(options["warm_start"]).resolve())
    return {**options, "given": given, "env_kwargs": parse_settings("--env-set", env_settings or (), fail)}


def read_preset(path: Path) -> dict[str, Any]:
    """Read the result of `poad tune`."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        arguments, n_envs = content["arguments"], content["n_envs"]
        is_preset = isinstance(arguments, dict) and isinstance(arguments.get(MERGED) or {}, dict)
        if not is_preset or not isinstance(n_envs, int) or n_envs < 1 or not isinstance(content["algorithm"], str):
            raise TypeError("other values")
    except (OSError, ValueError, KeyError, TypeError) as error:
        fail(f"Expected a file of `poad tune`; {path} cannot be read ({type(error).__name__}: {error}).")
    return dict(content)


def moved(options: Options) -> dict[str, Any]:
    """Return the place of the base model in the options, if given; the fingerprint verifies that it is the same."""
    settings = options["given"].get(MERGED)
    return {name: settings[name] for name in MOVABLE if name in settings} if isinstance(settings, dict) else {}


def default_folder(options: Options) -> Path:
    """Return the folder of the run if none is given."""
    if "env_id" not in options:
        fail("Expected an environment, such as Overcooked-TomatoSalad-v0, or --resume with --out FOLDER.")
    name = options["env_id"].replace("/", "-").replace(":", "-")
    return Path("runs") / f"{options.get('algorithm', 'POAD')}-{name}-seed{options.get('seed', 0)}"


def new_run(options: Options) -> RunConfig:
    """Create the config of a new run; fields that need the loaded model are left empty."""
    if "env_id" not in options:
        fail("Expected an environment, such as Overcooked-TomatoSalad-v0: there is no run to resume.")
    config, n_envs = RunConfig(**options), options.get("n_envs")
    kind, preset, given = algorithm(config.algorithm), config.preset, config.given
    try:
        preset = preset or model_preset(kind, config.env_id, given)[0]
        if preset is None:
            check_arguments(kind, given)
        else:
            given = preset_arguments(kind, preset, n_envs, given)
            n_envs = n_envs or PRESETS[preset].n_envs
    except (ValueError, TypeError, AssertionError) as error:
        fail(str(error))
    settings = given.get(MERGED) or {}
    model = settings.get("model")
    if isinstance(model, str) and model not in (*SHIPPED_MODELS, "smollm2") and Path(model).exists():
        given[MERGED] = {**settings, "model": str(Path(model).resolve())}  # found from any folder
    return replace(config, preset=preset, given=given, n_envs=n_envs or 1)


def resumed_run(options: Options, config: RunConfig) -> RunConfig:
    """Return the config of a run with the options that may change; refuse other settings than its own."""
    for name in options["given"]:
        if name not in config.arguments and name not in _PLACES:
            fail(f"There is no argument {name!r}. {nearest(name, config.arguments)}")
    arguments = dict(options["given"])
    places = {name: arguments.pop(name) for name in _PLACES if name in arguments}
    kept = {option: name for name, option in _KEPT.items() if name in options}
    changes = [
        *differences(
            {option: getattr(config, name) for option, name in kept.items()},
            {option: options[name] for option, name in kept.items()},
        ),
        *differences(config.arguments, arguments, "--set "),
        *differences(config.env_kwargs, options["env_kwargs"], "--env-set "),
    ]
    if changes:
        fail(f"A run keeps its settings: {'; '.join(changes)}. Fix: leave that out, or use another --out.")
    free = {name: options[name] for name in _FREE if name in options}
    return replace(config, **free, given={**config.given, **places})
