"""`lang-envs replay`: a recorded episode, compared with its record."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import gymnasium as gym
import pytest
import report_data
from typer.testing import CliRunner

from lang_envs.cli.app import app
from lang_envs.cli.replay import cautious


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return report_data.small(tmp_path / "small")[0]


def _replay(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["replay", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result.output


def _replace(path: Path, old: str, new: str) -> None:
    """Replace a text in the file and in that of its steps."""
    for file in (path, path.with_suffix(".steps.jsonl")):
        file.write_text(file.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")


def _episode(path: Path) -> str:
    episode = json.loads(path.read_text(encoding="utf-8").splitlines()[1])
    return f"{episode['env']}/{episode['seed']}/{episode['episode']}"


def test_a_recorded_episode_is_played_as_recorded(path: Path) -> None:
    output = _replay(path, _episode(path))
    assert output.rstrip().endswith(", as recorded.")
    assert "The kitchen has one cutting board" in output
    assert len(_replay(path, _episode(path), "--render")) > len(output)


def test_a_tokenizer_that_a_file_names_is_not_loaded(path: Path) -> None:
    for file in (path, path.with_suffix(".steps.jsonl")):
        header, _, rest = file.read_text(encoding="utf-8").partition("\n")
        content = json.loads(header)
        content["env_settings"] = {**content["env_settings"], "tokenizer": "/nowhere"}
        file.write_text(f"{json.dumps(content)}\n{rest}", encoding="utf-8")
    assert _replay(path, _episode(path)).rstrip().endswith(", as recorded.")


def test_a_changed_reward_is_reported(path: Path) -> None:
    for file, names in ((path, ("return", "discounted_return")), (path.with_suffix(".steps.jsonl"), ("reward",))):
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
        record = json.loads(lines[1])
        lines[1] = json.dumps({**record, **{name: record[name] + 1 for name in names}}) + "\n"
        file.write_text("".join(lines), encoding="utf-8")
    assert "not as recorded: step 1: reward" in _replay(path, _episode(path), code=1)


def test_an_unknown_episode_and_a_foreign_environment_are_refused(path: Path) -> None:
    assert "Expected ENV/SEED/EPISODE" in _replay(path, "Overcooked-TomatoSalad-v0/9/9", code=1)
    _replace(path, "Overcooked-TomatoSalad-v0", "os:Nothing-v0")
    assert "Expected a registered environment" in _replay(path, _episode(path), code=1)


def test_an_episode_of_a_report_is_a_file_of_its_own(path: Path, tmp_path: Path) -> None:
    episode = json.loads(path.read_text(encoding="utf-8").splitlines()[1])
    lines = path.with_suffix(".steps.jsonl").read_text(encoding="utf-8").splitlines()[1:]
    names = ("env", "seed", "episode")
    steps = [step for step in map(json.loads, lines) if all(step[name] == episode[name] for name in names)]
    settings = json.loads(path.read_text(encoding="utf-8").splitlines()[0])["env_settings"]
    alone = {"format": 1, "content": "episode", "env": episode["env"], "env_settings": settings,
             "reset_seed": episode["reset_seed"], "steps": steps}  # fmt: skip
    file = tmp_path / "episode.json"
    file.write_text(json.dumps(alone), encoding="utf-8")
    assert _replay(file).rstrip().endswith(", as recorded.")
    ends = {"terminated": not steps[-1]["terminated"], "final_observation": "gone"}
    file.write_text(json.dumps({**alone, "steps": [*steps[:-1], {**steps[-1], **ends}]}), encoding="utf-8")
    message = " ".join(_replay(file, code=1).split())
    assert re.search(r"step (\d+): another end of the episode; step \1: another final observation", message)
    file.write_text(json.dumps({**alone, "reset_seed": "7"}), encoding="utf-8")
    assert "Fix: download the episode again." in " ".join(_replay(file, code=1).split())


def test_a_module_that_registers_the_environment_is_named_by_the_user(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The module in the file is not imported."""
    _replace(path, "Overcooked-TomatoSalad-v0", "named:Replayed-v0")
    monkeypatch.syspath_prepend(tmp_path)
    kitchen = "gym.register('Replayed-v0', entry_point=OvercookedEnv, kwargs={'task': 'tomato-salad'})"
    code = f"import gymnasium as gym\nfrom lang_envs.envs.overcooked.env import OvercookedEnv\n{kitchen}\n"
    (tmp_path / "chosen.py").write_text(code, encoding="utf-8")
    assert "Fix: --import MODULE" in _replay(path, _episode(path), code=1)
    try:
        assert _replay(path, _episode(path), "--import", "chosen").rstrip().endswith(", as recorded.")
        assert _replay(path, _episode(path)).rstrip().endswith(", as recorded."), "now it is registered"
    finally:
        gym.registry.pop("Replayed-v0", None)
        sys.modules.pop("chosen", None)


def test_an_environment_of_other_spaces_is_refused(path: Path) -> None:
    _replace(path, "Overcooked-TomatoSalad-v0", "CartPole-v1")
    assert "CartPole-v1 has Box and Discrete" in " ".join(_replay(path, _episode(path), code=1).split())


def test_programs_of_others_are_confined() -> None:
    asked = {"time_limit": 86_400, "memory_limit": 64, "confinement": "auto", "max_attempts": 2}
    safe = {"time_limit": 30.0, "memory_limit": 64, "confinement": "require", "max_attempts": 2}
    assert cautious("DataSciCoding-iris-v0", asked) == safe
    assert cautious("DataSciCoding-iris-v0", {}) == {"confinement": "require"}
    assert cautious("Overcooked-TomatoSalad-v0", {"task": "onion-salad"}) == {"task": "onion-salad"}


def test_a_function_as_entry_point_confines_too() -> None:
    gym.register("Made-v0", entry_point=lambda **kwargs: gym.make("DataSciCoding-iris-v0", **kwargs).unwrapped)
    try:
        assert cautious("Made-v0", {"confinement": "auto"}) == {"confinement": "require"}
    finally:
        gym.registry.pop("Made-v0")
