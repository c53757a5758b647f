"""Made-up tables in the shape of the real ones, and manifests of them, for tests that fetch, install and damage."""

from __future__ import annotations

import os
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lang_envs.datasets import store
from lang_envs.datasets.manifest import Manifest, Recipe, manifest

if TYPE_CHECKING:
    import pandas as pd
    import pytest

__all__ = [
    "contents",
    "flights",
    "flights_manifest",
    "install_flights",
    "install_tumours",
    "passengers",
    "throats",
    "throats_manifest",
    "tumour_arrays",
    "tumours",
    "use",
]

DAYS = ["1", "2", "3", "4", "5", "6", "7"]


def use(monkeypatch: pytest.MonkeyPatch, environment: Mapping[str, str], data: Path) -> None:
    """Make an environment of a stand-in, with a folder for tables, that of this process and its children."""
    for name in set(os.environ) - set(environment):
        monkeypatch.delenv(name)
    for name, value in {**environment, "LANG_ENVS_DATA": str(data)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("LANG_ENVS_OFFLINE", raising=False)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, without locks."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix != ".lock"
    }


# ---------------------------------------------------------------------- breast-w: no digest is known, so any rows do


def tumours(seed: int = 0) -> pd.DataFrame:
    """Rows that the manifest of breast-w takes: (699, 10); one value is missing, in a row that it leaves out."""
    import pandas as pd

    generator = np.random.default_rng(seed)
    columns: dict[str, Any] = {
        column.name: generator.normal(5, 2, 699) for column in manifest("breast-w").columns if not column.levels
    }
    columns["Bare_Nuclei"][int(np.setdiff1d(np.arange(699), manifest("breast-w").rows.at)[0])] = np.nan
    labels = np.where(generator.random(699) < 0.35, "malignant", "benign")
    return pd.DataFrame({**columns, "Class": pd.Categorical(labels)})


def tumour_arrays(table: pd.DataFrame) -> tuple[Any, Any]:
    """Arrays of `tumours`: (69, 9) and (69,)."""
    rows = table.iloc[list(manifest("breast-w").rows.at)]
    return rows.iloc[:, :9].to_numpy(np.float64), (rows["Class"] == "malignant").to_numpy(np.int64)


def install_tumours(folder: Path, seed: int = 0) -> store.Receipt:
    """Keep them, as a fetch would; `folder` is for the file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"tumours-{seed}.parquet"
    tumours(seed).to_parquet(path, index=False)
    return store.install(manifest("breast-w"), path, store.Origin("a test", "Public"))


# ---------------------------------------------------------------------- the tables of Kaggle: digests are known


def throats(n: int = 300, seed: int = 0) -> bytes:
    """CSV with the columns of pharyngitis, of n rows."""
    import pandas as pd

    generator = np.random.default_rng(seed)
    columns: dict[str, Any] = {column.name: generator.normal(size=n) for column in manifest("pharyngitis").columns}
    columns |= {"number": np.arange(n), "radt": np.arange(n) % 2}
    return pd.DataFrame(columns).to_csv(index=False).encode()


def throats_manifest(csv: bytes, n: int = 300) -> Manifest:
    """The manifest of pharyngitis, if this were its file."""
    real = manifest("pharyngitis")
    recipes = {name: recipe._replace(digest="") for name, recipe in real.recipes.items()}
    return real._replace(sha256=sha256(csv).hexdigest(), shape=(n, 20), arrays=(n, 18), recipes=recipes)


def passengers(n: int = 60) -> bytes:
    """CSV with the columns of spaceship-titanic, of n rows."""
    import pandas as pd

    generator = np.random.default_rng(1)
    columns = {
        column.name: [f"{column.name[0]}{level}" for level in generator.integers(0, 5, n)]
        if column.levels
        else generator.integers(0, 50, n).tolist()
        for column in manifest("spaceship-titanic").columns
    }
    return pd.DataFrame({**columns, "Transported": [row % 3 == 0 for row in range(n)]}).to_csv(index=False).encode()


# ---------------------------------------------------------------------- airlines: 2,000 rows of fewer


def flights(n: int = 2500) -> pd.DataFrame:
    """Rows with the columns of airlines."""
    import pandas as pd

    generator = np.random.default_rng(2)
    columns: dict[str, Any] = {}
    for column in manifest("airlines").columns:
        if column.levels:
            labels = DAYS if column.name == "DayOfWeek" else ["0", "1"] if column.name == "Delay" else None
            labels = labels or [f"{column.name[:1]}{level}" for level in range(column.levels)]
            columns[column.name] = pd.Categorical.from_codes(generator.integers(0, len(labels), n), labels)
        else:
            columns[column.name] = generator.integers(int(column.low), int(column.high) + 1, n)
    return pd.DataFrame(columns)


def flights_manifest(n: int = 2500, **changes: Any) -> Manifest:
    """The manifest of airlines, if its file had n rows."""
    return manifest("airlines")._replace(shape=(n, 8), **changes)


def install_flights(folder: Path, n: int = 2500) -> store.Receipt:
    """Keep a table that `gym.make("DataSciCoding-airlines-v0")` loads; `folder` is for the file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "flights.parquet"
    flights(n).to_parquet(path, index=False)
    return store.install(flights_manifest(n), path, store.Origin("a test", "Public"))


def with_digest(table: Manifest, recipe: str, digest: str) -> Manifest:
    """A manifest that knows the digest of the arrays of a recipe."""
    changed: dict[str, Recipe] = {**table.recipes, recipe: table.recipes[recipe]._replace(digest=digest)}
    return table._replace(recipes=changed)
