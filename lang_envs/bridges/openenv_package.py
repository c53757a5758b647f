"""The folder of a task that OpenEnv's tools take: `openenv.yaml`, server, client and oracle."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from lang_envs.bridges.text_env import TextEnv
from lang_envs.errors import LangEnvsError
from lang_envs.files import write_text

_EPISODES = {"oracle": 10, "random": 50}
"""Episodes that the range of returns and the floor are measured with."""
_APP = '''"""Server of {task}."""

import argparse

from lang_envs.bridges.openenv import make_app, serve

app = make_app({task!r}{settings})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    arguments = parser.parse_args()
    serve({task!r}, host=arguments.host, port=arguments.port{settings})


if __name__ == "__main__":
    main()
'''
_CLIENT = '''"""Client of {task}."""

from lang_envs.bridges.openenv import LangAction, LangEnvClient, LangObservation, LangState

__all__ = ["LangAction", "LangEnvClient", "LangObservation", "LangState"]
'''
_ORACLE = '''"""Plays {task} as its oracle does, and prints the return of each episode."""

from lang_envs.bridges import text_env

env = text_env({task!r}{settings})
for seed in range(10):
    env.reset(seed=seed)
    while not env.is_over:
        env.step(env.oracle_action())
    print(seed, env.episode_return)
'''
_PROJECT = """[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "openenv-{name}"
version = "0.1.0"
dependencies = ["openenv>=0.10", "lang-envs"]

[project.scripts]
server = "{name}.server.app:main"

[tool.setuptools]
packages = ["{name}", "{name}.server"]
package-dir = {{ "{name}" = ".", "{name}.server" = "server" }}
"""
_MANIFEST = """spec_version: 1
name: {name}
version: 0.1.0
type: space
runtime: fastapi
app: server.app:app
port: 8000
validation:
  reward:
    range: {range}
    oracle_tolerance: {oracle_tolerance}
    floor_margin: {floor_margin}
  resources:
    cpu: 1.0
    memory_mb: 1024
    disk_mb: 1024
    episode_timeout_s: 600.0
  capabilities:
    verifier:
      kind: reward_channel
    oracle:
      form: script
      location: oracle.py
  types:
    tags: [text]
"""


def measured_reward(task: str, **kwargs: Any) -> dict[str, Any]:
    """Return the `validation.reward` of a task: the range of returns, and the gap between oracle and random play.

    Args:
        task: Id of the environment.
        **kwargs: Arguments of `TextEnv`.

    Raises:
        LangEnvsError: If the task has no oracle.
    """
    env = TextEnv(task, seed=0, **kwargs)
    returns: dict[str, list[float]] = {}
    try:
        for player, act in (("oracle", env.oracle_action), ("random", env.sample_random_action)):
            returns[player] = []
            for seed in range(_EPISODES[player]):
                env.reset(seed=seed)
                while not env.is_over:
                    env.step(act())
                returns[player].append(env.episode_return)
    except NotImplementedError as error:
        raise LangEnvsError(f"Expected a task with an oracle, for OpenEnv's validation; got {task!r}.") from error
    finally:
        env.close()
    best, floor = max(returns["oracle"]), float(np.mean(returns["random"]))
    return {
        "range": [round(min(*returns["random"], *returns["oracle"]), 4), round(best, 4)],
        "oracle_tolerance": round(best - min(returns["oracle"]), 4),
        "floor_margin": round(max(0.0, best - floor), 4),
    }


def write_package(task: str, folder: Path, **kwargs: Any) -> Path:
    """Write the folder of a task; its reward is measured with the task's oracle and with random play.

    Args:
        task: Id of the environment.
        folder: New folder.
        **kwargs: Arguments of `TextEnv`, which Python can read as they are printed.

    Raises:
        LangEnvsError: If the folder is not empty, or the task has no oracle.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise LangEnvsError(f"Expected a new folder; got {str(folder)!r}. Fix: another name.")
    settings = "".join(f", {name}={value!r}" for name, value in kwargs.items())
    name = re.sub(r"\W+", "_", task.lower()).strip("_")
    reward = {key: json.dumps(value) for key, value in measured_reward(task, **kwargs).items()}
    for path, text in (
        ("__init__.py", _CLIENT),
        ("client.py", _CLIENT),
        ("server/__init__.py", ""),
        ("server/app.py", _APP),
        ("oracle.py", _ORACLE),
        ("pyproject.toml", _PROJECT),
        ("openenv.yaml", _MANIFEST),
    ):
        write_text(folder / path, text.format(task=task, name=name, settings=settings, **reward))
    return folder
