"""Tables on this machine: stored files, detection of damage, and no half-written table at any time."""

from __future__ import annotations

import errno
import gc
import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_tables import (
    contents,
    install_tumours,
    tumour_arrays,
    tumours,
    with_digest,
)

from lang_envs.datasets import fetching, load, store
from lang_envs.datasets.errors import (
    ChecksumError,
    DataMissingError,
    StorageError,
)
from lang_envs.datasets.manifest import manifest

pytest.importorskip("pandas", reason="the extra data is not installed")
pytest.importorskip("pyarrow", reason="the extra data is not installed")

TUMOURS = manifest("breast-w")


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the tables: empty, and no network to fill it."""
    monkeypatch.setenv("LANG_ENVS_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("LANG_ENVS_OFFLINE", "1")
    return tmp_path / "data"


@pytest.fixture
def archive(data: Path, tmp_path: Path) -> Path:
    """The arrays of an installed breast-w."""
    install_tumours(tmp_path)
    return data / "breast-w" / "arrays.npz"


def receipt_of(path: Path) -> dict[str, Any]:
    with np.load(path, allow_pickle=False) as opened:
        return json.loads(str(opened["receipt"]))


def rewrite(path: Path, **changes: Any) -> None:
    """Other members in an archive of arrays; None leaves one out."""
    with np.load(path, allow_pickle=False) as opened:
        members = {name: opened[name] for name in opened.files}
    members |= {name.replace("__", "."): value for name, value in changes.items()}
    np.savez_compressed(path, **{name: value for name, value in members.items() if value is not None})


# ---------------------------------------------------------------------- stored files


@pytest.mark.parametrize("recipe", ["default", "published"])
def test_what_is_installed_is_read(recipe: str, data: Path, tmp_path: Path) -> None:
    receipt = install_tumours(tmp_path)
    x, y = store.read_arrays(TUMOURS, recipe)
    expected = tumour_arrays(tumours())
    assert (x.dtype, y.dtype, x.shape, y.shape) == (np.float64, np.int64, (69, 9), (69,))
    assert np.array_equal(x, expected[0])
    assert np.array_equal(y, expected[1])
    source = tmp_path / "tumours-0.parquet"
    assert receipt.recipes[recipe] == store.Checked(store.array_digest(*expected), verified=False)
    assert (receipt.file, receipt.size) == ("breast-w.parquet", source.stat().st_size)
    assert (receipt.sha256, receipt.verified) == (store.file_digest(source), False)
    assert receipt.origin == store.Origin("a test", "Public", "")
    assert receipt.time.endswith("+00:00")
    assert store.read_receipt("breast-w") == store.verify(TUMOURS) == receipt
    assert contents(data)["breast-w/breast-w.parquet"] == source.read_bytes()
    assert sorted(contents(data)) == ["breast-w/arrays.npz", "breast-w/breast-w.parquet"]


def test_what_the_manifest_knows_counts_as_verified(archive: Path, tmp_path: Path) -> None:
    source = tmp_path / "tumours-0.parquet"
    pinned = TUMOURS._replace(sha256=store.file_digest(source)[:16])
    pinned = with_digest(pinned, "default", receipt_of(archive)["recipes"]["default"]["digest"])
    receipt = store.install(pinned, source, store.Origin("a test"))
    assert receipt.verified
    assert [receipt.recipes[name].verified for name in ("default", "published")] == [True, False]
    assert store.verify(pinned) == receipt


def test_a_table_takes_the_place_of_another(archive: Path, data: Path, tmp_path: Path) -> None:
    tumours(1).to_csv(tmp_path / "new.csv", index=False)
    store.install(TUMOURS, tmp_path / "new.csv", store.Origin("by hand"))
    assert np.array_equal(store.read_arrays(TUMOURS, "default")[0], tumour_arrays(tumours(1))[0])
    assert sorted(contents(data)) == ["breast-w/arrays.npz", "breast-w/breast-w.csv"]


@pytest.mark.parametrize(
    ("table", "error"),
    [
        (TUMOURS._replace(sha256="00" * 32), r"breast-w table a file with SHA-256 0{16}; got [0-9a-f]{16}, and\s+kept"),
        (with_digest(TUMOURS, "published", "0" * 16), r"published arrays with digest 0{16}; got [0-9a-f]{16}, and"),
    ],
)
def test_rejects_another_file(table: Any, error: str, archive: Path, data: Path, tmp_path: Path) -> None:
    before = contents(data)
    tumours(1).to_csv(tmp_path / "new.csv", index=False)
    with pytest.raises(ChecksumError, match=error):
        store.install(table, tmp_path / "new.csv", store.Origin("by hand"))
    assert contents(data) == before


# ---------------------------------------------------------------------- damage


def halve(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip_an_array(path: Path) -> None:
    """Changed, with a good CRC: as if somebody had edited it."""
    x = np.load(path)["default.x"]
    x[3, 4] += 1
    rewrite(path, default__x=x)


def to_another_layout(path: Path) -> None:
    rewrite(path, receipt=np.array(json.dumps({**receipt_of(path), "layout": 2})))


def without_array(path: Path) -> None:
    rewrite(path, default__y=None)


@pytest.mark.parametrize(
    ("damage", "receipt_stays"),
    [(halve, False), (to_another_layout, False), (flip_an_array, True), (without_array, True)],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_damage_is_an_error_that_says_what_to_do(
    damage: Callable[[Path], None], receipt_stays: bool, archive: Path, tmp_path: Path
) -> None:
    damage(archive)
    fix = r"arrays of the breast-w table in .*arrays\.npz; got a damaged file .*`lang-envs data fetch breast-w --force`"
    for read in (lambda: store.read_arrays(TUMOURS, "default"), lambda: store.verify(TUMOURS)):
        with pytest.raises(ChecksumError, match=fix) as caught:
            read()
        assert caught.value.exit_code == 8
    with pytest.raises(ChecksumError, match=fix):
        load("breast-w")
    assert (store.read_receipt("breast-w") is not None) == receipt_stays
    assert not store.is_whole(TUMOURS)
    receipt = install_tumours(tmp_path)
    assert store.verify(TUMOURS) == receipt
    del caught
    gc.collect()  # files left open are found here, not in another test


def flipped(data: bytes, at: int) -> bytes:
    changed = bytearray(data)
    changed[at] ^= 0x80
    return bytes(changed)


class Trap:
    """Would make a file if it were unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("member", ["receipt", "default.x"])
def test_pickles_are_never_opened(member: str, archive: Path, tmp_path: Path) -> None:
    trap = np.empty(1, dtype=object)
    trap[0] = Trap(tmp_path / "sprung")
    rewrite(archive, **{member.replace(".", "__"): trap})
    with pytest.raises(ChecksumError, match="Object arrays cannot be loaded"):
        store.read_arrays(TUMOURS, "default")
    archive.write_bytes(pickle.dumps(Trap(tmp_path / "sprung")))
    with pytest.raises(ChecksumError, match="damaged file"):
        store.read_arrays(TUMOURS, "default")
    assert store.read_receipt("breast-w") is None
    assert not (tmp_path / "sprung").exists()


def test_a_missing_table(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for read in (lambda: store.read_arrays(TUMOURS, "default"), lambda: store.verify(TUMOURS)):
        with pytest.raises(DataMissingError, match=r"the breast-w table in .*breast-w/arrays\.npz; it is not there"):
            read()
    with pytest.raises(FileNotFoundError, match=r"not there, and LANG_ENVS_OFFLINE is set\. Fix, one of:\n *lang-envs"):
        load("breast-w")
    monkeypatch.delenv("LANG_ENVS_OFFLINE")
    monkeypatch.setattr(fetching, "has_packages", lambda: False)
    with pytest.raises(DataMissingError, match=r"requests or pandas, to fetch it, is not installed \(pip"):
        load("breast-w")
    assert store.read_receipt("breast-w") is None
    assert not store.is_whole(TUMOURS)
    assert not data.exists(), "nothing is made by looking"


# ---------------------------------------------------------------------- verify


def change_file(folder: Path) -> None:
    (folder / "breast-w.parquet").write_bytes(flipped((folder / "breast-w.parquet").read_bytes(), 4000))


def other_arrays(folder: Path) -> None:
    """Arrays and receipt agree with each other, but not with the file."""
    path = folder / "arrays.npz"
    x, y = np.load(path)["published.x"] + 1, np.load(path)["published.y"]
    entry = receipt_of(path)
    entry["recipes"]["published"]["digest"] = store.array_digest(x, y)
    rewrite(path, published__x=x, receipt=np.array(json.dumps(entry)))


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (change_file, r"breast-w\.parquet; got a damaged file \(SHA-256 [0-9a-f]{16}\)"),
        (other_arrays, r"arrays\.npz; got a damaged file \(published arrays that the file does not give\)"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_verify_finds(change: Callable[[Path], None], error: str, archive: Path) -> None:
    change(archive.parent)
    with pytest.raises(ChecksumError, match=error):
        store.verify(TUMOURS)


# ---------------------------------------------------------------------- writing that fails


def test_drafts_of_the_dead_are_removed(archive: Path, data: Path, tmp_path: Path) -> None:
    for name in (".arrays.npz.999999999.tmp", ".breast-w.parquet.00ff00ff00ff00ff.tmp"):
        (archive.parent / name).write_bytes(b"half")
    install_tumours(tmp_path, seed=1)
    assert sorted(contents(data)) == ["breast-w/arrays.npz", "breast-w/breast-w.parquet"]


@pytest.mark.parametrize("step", ["copy", "arrays"])
def test_a_disk_that_fails_leaves_the_old_table(
    step: str, archive: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(data)
    tumours(1).to_csv(tmp_path / "new.csv", index=False)

    def fail(*arguments: Any, **options: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(*(store.shutil, "copyfile") if step == "copy" else (np, "savez_compressed"), fail)
    with pytest.raises(
        StorageError, match=r"Expected to write to .*breast-w; got '.*', and nothing was kept\. Fix: make"
    ):
        store.install(TUMOURS, tmp_path / "new.csv", store.Origin("by hand"))
    after = contents(data)
    assert after.pop("breast-w/breast-w.csv", None) in (None, (tmp_path / "new.csv").read_bytes())
    assert after == before
    assert np.array_equal(store.read_arrays(TUMOURS, "default")[0], tumour_arrays(tumours())[0])
    assert store.verify(TUMOURS).file == "breast-w.parquet"


def test_a_table_that_is_no_table_changes_nothing(archive: Path, data: Path, tmp_path: Path) -> None:
    before = contents(data)
    tumours(1).iloc[:-1].to_csv(tmp_path / "short.csv", index=False)
    with pytest.raises(ChecksumError, match=r"Expected 699 rows and 10 columns in breast-w\.arff; got 698 rows"):
        store.install(TUMOURS, tmp_path / "short.csv", store.Origin("by hand"))
    assert contents(data) == before


# ---------------------------------------------------------------------- files of others


def test_files_that_are_not_ours_stay(data: Path, tmp_path: Path) -> None:
    install_tumours(tmp_path, seed=1)
    folder = data / "breast-w"
    (folder / "thesis.txt").write_text("years of work")
    (folder / "notes").mkdir()
    download = folder / "my_download.csv"
    tumours(2).to_csv(download, index=False)
    store.install(TUMOURS, download, store.Origin("by hand"))
    assert {path.name for path in folder.iterdir()} == {
        "arrays.npz",
        "breast-w.csv",
        "my_download.csv",
        "notes",
        "thesis.txt",
    }
