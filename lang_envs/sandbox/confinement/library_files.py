"""Files that numerical Python code must be able to read, and no other: the rules of Landlock in the sandbox."""

from __future__ import annotations

import importlib.util
import os
import sysconfig
from collections.abc import Collection, Iterator
from pathlib import Path

LIBRARIES = {
    "numpy": "numpy",
    "scipy": "scipy",
    "sklearn": "scikit_learn",
    "joblib": "joblib",
    "threadpoolctl": "threadpoolctl",
    "narwhals": "narwhals",
    "cloudpickle": "cloudpickle",
}
"""Packages that confined code may import, by the name of their distribution; every other one is unreadable."""

# Bundled tables, labels included: a task may be made of one of them.
_LABELLED_TABLES = ("datasets/data", "datasets/tests")
# Where the standard library's folder holds the installed packages as well.
_INSTALLED_PACKAGES = ("site-packages", "dist-packages")

_SYSTEM_PATHS = (
    "/etc/ld.so.cache", "/etc/localtime", "/usr/share/zoneinfo", "/dev/null", "/dev/zero", "/dev/urandom",
    "/sys/devices/system/cpu", "/sys/fs/cgroup", "/proc/cpuinfo",
)  # fmt: skip


def library_paths() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the paths that confined code must read to import and use the libraries, and no further ones.

    The standard library; the packages of `LIBRARIES` without the tables that scikit-learn bundles; the shared
    libraries of the system and those that this process has mapped; files with the numbers of processors and bytes of
    memory; `/proc/self`. Never a whole `site-packages`, nor a folder that is only on `sys.path`.

    Returns:
        Paths that may be read, and folders that may be listed (the import system looks for packages there).
    """
    locations = {name: _location(name) for name in LIBRARIES}
    packages = {name: path for name, path in locations.items() if path is not None}
    readable = [
        *(path for folder in _standard_library() for path in _beneath(folder, _INSTALLED_PACKAGES)),
        *(path for name, folder in packages.items() for path in _package_paths(name, folder)),
        *_shared_library_folders(),
        *(Path(path) for path in _SYSTEM_PATHS),
    ]
    listable = {path.parent for path in packages.values()} | set(_standard_library())
    resolved = dict.fromkeys(path.resolve() for path in readable if _exists(path))
    # Rules cost time at every fork: none for a library that lies in a folder that has one.
    # Some packages map a copy and remove its file, such as TextWorld's interpreter.
    mapped = [file for file in _mapped_libraries() if _exists(file)]
    resolved |= dict.fromkeys(file for file in mapped if resolved.keys().isdisjoint(file.parents))
    return (*map(str, resolved), "/proc/self"), tuple(sorted(str(path.resolve()) for path in listable))


def _location(name: str) -> Path | None:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        return None
    origin = Path(spec.origin)
    return origin.parent if spec.submodule_search_locations else origin


def _standard_library() -> list[Path]:
    folders = {Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")}
    # In a virtual environment `platstdlib` is the environment's own folder, with packages only.
    return sorted(folder for folder in folders if _exists(folder / "os.py") or _exists(folder / "lib-dynload"))


def _package_paths(name: str, path: Path) -> Iterator[Path]:
    yield from _beneath(path, _LABELLED_TABLES if name == "sklearn" else ())
    yield from path.parent.glob(f"{LIBRARIES[name]}-*.dist-info")
    yield from path.parent.glob(f"{LIBRARIES[name]}.libs")


def _exists(path: Path) -> bool:
    return os.path.exists(path)  # noqa: PTH110 - where a folder may not be searched, Path.exists raises


def _beneath(folder: Path, hidden: Collection[str]) -> Iterator[Path]:
    """Yield the fewest paths that cover `folder` without its `hidden` parts: rules can grant, never take away."""
    if not hidden:
        yield folder
        return
    try:
        entries = sorted(folder.iterdir())
    except PermissionError:  # a process that has become another user since it loaded its modules
        return
    for entry in entries:
        inner = [name.partition("/")[2] for name in hidden if name.split("/")[0] == entry.name]
        if "" not in inner:
            yield from _beneath(entry, inner)


def _shared_library_folders() -> list[Path]:
    """Return Debian's, with libraries only; elsewhere Python's packages may be among the libraries."""
    multiarch = sysconfig.get_config_var("MULTIARCH")
    return [Path(folder, multiarch) for folder in ("/lib", "/usr/lib")] if multiarch else []


def _mapped_libraries() -> list[Path]:
    try:
        mappings = Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return []
    return sorted({Path(line.split(maxsplit=5)[5]) for line in mappings if ".so" in line and "/" in line})
