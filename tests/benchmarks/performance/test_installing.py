"""The archives hold the right files and no others. `make wheel` installs them too, with a network."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_string
from email.message import Message
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

import lang_envs
from benchmarks.files import RESULTS
from benchmarks.performance import installing
from benchmarks.performance.installing import ROOT, build, extras, listed_files
from lang_envs import errors

PACKAGES = ("lang_bench/", "lang_envs/", "poad_sb3/", "lang_envs_verifiers.py")
ELSEWHERE = {"skyrl_gym", "verifiers"}
"""Packages of Python environments of their own, whose versions do not fit ours."""
Archives = tuple[Path, Path]
needs_git = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="git says which files are ours")


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Archives:
    before = {path.name for path in ROOT.iterdir()}
    built = build(tmp_path_factory.mktemp("archives"))
    assert {path.name for path in ROOT.iterdir()} == before  # no build/, whose leftovers would get into wheels
    return built


@pytest.fixture(scope="module")
def metadata(archives: Archives) -> Message:
    with zipfile.ZipFile(archives[1]) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return message_from_string(archive.read(name).decode())


def normal(requirement: str) -> str:
    """Name of a requirement or distribution, as indices compare them."""
    return re.sub(r"[-_.]+", "-", re.match(r"[\w.-]+", requirement)[0]).lower()


# ---------------------------------------------------------------------- files of the archives


@pytest.mark.process
@needs_git
def test_the_wheel_is_every_file_of_its_packages_as_it_is_here(archives: Archives) -> None:
    ours = {name for name in listed_files() if name.startswith(PACKAGES)}
    assert {"lang_envs/py.typed", "poad_sb3/py.typed", "poad_sb3/pocket/weights/model.safetensors"} <= ours
    with zipfile.ZipFile(archives[1]) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
        assert held == ours
        assert [name for name in sorted(ours) if archive.read(name) != (ROOT / name).read_bytes()] == []
        (licence,) = [name for name in archive.namelist() if name.endswith(".dist-info/licenses/LICENSE")]
        assert archive.read(licence) == (ROOT / "LICENSE").read_bytes()


@needs_git
def test_the_source_archive_is_what_the_wheel_is_built_from(archives: Archives) -> None:
    with tarfile.open(archives[0]) as archive:
        held = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    ours = {name for name in listed_files() if name.startswith(PACKAGES)}
    made = {"PKG-INFO", "setup.cfg"}
    rest = {name for name in held - ours - made if not name.startswith("lang_envs.egg-info/")}
    assert ours <= held
    assert rest == {"LICENSE", "MANIFEST.in", "README.md", "pyproject.toml"}


# ---------------------------------------------------------------------- metadata


@needs_git
def test_the_metadata_of_the_wheel(metadata: Message) -> None:
    assert (metadata["Name"], metadata["Version"]) == ("lang-envs", lang_envs.__version__)
    assert (metadata["License-Expression"], metadata["Requires-Python"]) == ("MIT", ">=3.11")
    assert metadata.get_all("Provides-Extra") == extras()
    needed = {normal(one) for one in metadata.get_all("Requires-Dist") if "extra ==" not in one}
    assert needed == {"gymnasium", "numpy", "pillow"}
    assert "# lang_envs and poad_sb3" in metadata.get_payload()


@needs_git
def test_every_package_that_is_imported_is_declared(archives: Archives, metadata: Message) -> None:
    declared = {normal(one) for one in metadata.get_all("Requires-Dist")}
    homes = packages_distributions()
    imported: dict[str, str] = {}
    with zipfile.ZipFile(archives[1]) as archive:
        for file in (name for name in archive.namelist() if name.endswith(".py")):
            for node in ast.walk(ast.parse(archive.read(file))):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                names += [node.module] if isinstance(node, ast.ImportFrom) and not node.level else []
                imported.update((name.partition(".")[0], file) for name in names)
    others = set(imported) - set(sys.stdlib_module_names) - {"lang_bench", "lang_envs", "poad_sb3"} - ELSEWHERE
    assert {"torch", "gymnasium", "typer"} <= others
    undeclared = [name for name in others if not {normal(home) for home in homes.get(name, [name])} & declared]
    assert {one: imported[one] for one in undeclared} == {}


def test_the_fix_for_a_missing_extra_is_one_that_works_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert errors.install_command("llm") == 'pip install -c constraints.txt -e ".[llm]"'
    monkeypatch.setattr(errors, "_CONSTRAINTS_FILE", tmp_path / "constraints.txt")
    assert errors.install_command("cli,llm") == 'pip install "lang-envs[cli,llm]"'


# ---------------------------------------------------------------------- the command that installs them


def test_every_extra_has_a_use_and_nothing_else_was_measured() -> None:
    wanted = {"nothing", *extras()}
    assert set(installing.USES) == wanted
    measured = json.loads((RESULTS / "installing.json").read_text(encoding="utf-8"))
    assert set(measured["extras"]) == wanted


@pytest.mark.process
@pytest.mark.parametrize("extra", ["nothing", "llm"])
def test_the_uses_are_whole_programs(extra: str) -> None:
    """In this environment: it has these extras."""
    subprocess.run([sys.executable, "-c", installing.USES[extra]], cwd=ROOT, check=True, capture_output=True)
