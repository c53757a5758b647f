"""Fetches one table with the client of its service, in a process of its own: `python -m ...datasets.clients`.

In a process of its own because both clients do things at import that no user of an environment asked for (messages,
folders, log handlers, a login), keep their settings in globals, and may wait for ever. What they print is dropped; one
line of JSON on stdout for every event is all that leaves this process. `fetching` is the other side.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pickle
import re
import sys
import threading
import time
import zipfile
import zlib
from pathlib import Path
from typing import Any, NamedTuple

from lang_envs.datasets import errors
from lang_envs.datasets.explain import explain
from lang_envs.datasets.manifest import Manifest, Service
from lang_envs.datasets.plain import printable
from lang_envs.datasets.store import Origin, data_folder, install, storage_errors
from lang_envs.datasets.wire import CHUNK, CONNECT_SECONDS, MAX_BYTES, Tell, Wire

__all__ = ["Order", "main", "unpack"]

_TRIES = 3
_MAX_LICENCE = 200
_PARENT_SECONDS = 0.5
_PARTIAL = 206


class Order(NamedTuple):
    """What to do.

    Attributes:
        wanted: The table.
        folder: For what has come so far; it is this process's alone.
        timeout: Seconds without a byte after which the service counts as dead.
        openml: `server` and `apikey` that the user has set in a running `openml`; empty for those of its settings.
    """

    wanted: Manifest
    folder: str
    timeout: float
    openml: dict[str, str]


# ---------------------------------------------------------------------- OpenML


def fetch_openml(order: Order, wire: Wire) -> tuple[Path, Origin]:
    """The file of a table of OpenML: parquet, as its client prefers, or ARFF where there is none that is whole."""
    import openml

    wanted = order.wanted
    openml.config.set_root_cache_directory(order.folder)
    openml.config.set_retry_policy("human", 1)
    for key, value in order.openml.items():
        setattr(openml.config, key, value)
    dataset = openml.datasets.get_dataset(
        int(wanted.id), download_data=False, download_qualities=False, download_features_meta_data=False
    )
    by, licence = f"openml {openml.__version__}", printable(str(dataset.licence or ""))[:_MAX_LICENCE]
    url = dataset._parquet_url
    path = None if url is None else _fetch_parquet(url, Path(order.folder) / f"{wanted.name}.pq", wire)
    if path is not None:
        return path, Origin(by, licence)
    os.environ["OPENML_SKIP_PARQUET"] = "true"
    dataset = openml.datasets.get_dataset(
        int(wanted.id), download_data=True, download_qualities=False, download_features_meta_data=False
    )
    return Path(str(dataset.data_file)), Origin(
        by, licence, f"MD5 {dataset.md5_checksum}" if dataset.md5_checksum else ""
    )


def _fetch_parquet(url: str, path: Path, wire: Wire) -> Path | None:
    """Fetch or go on fetching an object; None if there is none.

    The client starts over whenever it is cut off, so this asks its storage client for the missing bytes.
    """
    from urllib.parse import urlsplit

    import minio
    import requests
    import urllib3

    parts = urlsplit(url)
    bucket, _, name = parts.path.lstrip("/").partition("/")
    timeout = urllib3.Timeout(connect=CONNECT_SECONDS, read=wire.timeout)
    proxy = requests.utils.select_proxy(url, requests.utils.get_environ_proxies(url))
    pool = urllib3.ProxyManager(proxy) if proxy else urllib3.PoolManager()
    pool.connection_pool_kw.update(timeout=timeout, retries=False)
    store = minio.Minio(parts.netloc, secure=parts.scheme == "https", http_client=pool)
    try:
        found = store.stat_object(bucket, name)
        part = path.with_name(f"{path.name}.{''.join(filter(str.isalnum, found.etag or ''))}.part")
        with storage_errors(part), part.open("ab") as file:
            if found.size is None or file.tell() > found.size:
                file.truncate(0)
            if found.size is None or file.tell() < found.size:
                _read_on(store, bucket, found, file, wire)
    except minio.error.S3Error as error:
        if error.code in ("NoSuchKey", "NoSuchBucket", "AccessDenied", "ResourceNotFound"):
            return None  # there is the ARFF file still
        raise
    if re.fullmatch("[0-9a-f]{32}", found.etag or "") and _md5(part) != found.etag:
        part.unlink()
        return None  # damaged, or an ETag that is no MD5: the ARFF file has a checksum that means something
    return part.replace(path)


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _read_on(store: Any, bucket: str, found: Any, file: Any, wire: Wire) -> None:
    start = file.tell()
    wire.begin(start, (found.size or 0) - start)
    headers = {"If-Match": f'"{found.etag}"'} if found.etag else None
    response = store.get_object(bucket, found.object_name, offset=start, request_headers=headers)
    try:
        if start and response.status != _PARTIAL:  # it begins at the beginning all the same
            file.truncate(0)
            wire.begin(0, found.size or 0)
        for chunk in response.stream(CHUNK):
            file.write(chunk)
            wire.count(len(chunk))
    finally:
        response.close()
        response.release_conn()
    if found.size is not None and file.tell() != found.size:
        got = file.tell()
        file.truncate(0)
        raise errors.InterruptedFetchError(f"Expected {found.size} bytes; got {got}. Fix: fetch again.")


# ---------------------------------------------------------------------- Kaggle


def fetch_kaggle(order: Order, wire: Wire) -> tuple[Path, Origin]:
    """The file of a table of Kaggle, out of the archive of its data set or competition."""
    with contextlib.suppress(SystemExit):  # what older releases do without credentials
        import kaggle
    api, folder, wanted = kaggle.api, Path(order.folder), order.wanted
    download = api.download_file

    def download_once(*arguments: Any, **options: Any) -> None:
        try:
            download(*arguments, **{**options, "max_retries": 0, "timeout": order.timeout})
        except ValueError:  # of another size than announced: nothing to go on from
            for path in folder.glob(f"{Path(arguments[1]).name}*"):
                path.unlink(missing_ok=True)
            raise

    api.download_file = download_once  # its own retries take a minute, and take a full disk for a lost connection
    with storage_errors(folder):
        if wanted.service is Service.KAGGLE_COMPETITION:
            api.competition_download_files(wanted.id, path=str(folder), quiet=True)
        else:
            api.dataset_download_files(wanted.id, path=str(folder), quiet=True)
        by = Origin(f"kaggle {kaggle.__version__}")
        return unpack(_only_file(folder, wanted), wanted, folder), by


def _only_file(folder: Path, wanted: Manifest) -> Path:
    stem = wanted.id.rpartition("/")[2]
    found = sorted(path for path in folder.iterdir() if path.stem == stem and path.suffix in (".zip", ".csv"))
    if not found:
        names = sorted(path.name for path in folder.iterdir())
        raise errors.NotServedError(f"Expected an archive {stem}.zip from Kaggle; got {names}.")
    return found[0]


def unpack(archive: Path, wanted: Manifest, folder: Path) -> Path:
    """The file of a table out of an archive from Kaggle, written into a folder; a CSV as it is.

    Raises:
        ChecksumError: If it is no archive, or a damaged one.
        NotServedError: If the file is not in it.
    """
    if not zipfile.is_zipfile(archive) and archive.suffix == ".csv":
        return archive
    try:
        return _unpack_member(archive, wanted, folder)
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError) as error:
        raise errors.ChecksumError(
            f"Expected an archive from Kaggle; got a damaged one, or none ({archive.stat().st_size} bytes), and kept "
            f"nothing of it. Fix: fetch again; if that does not help, download {wanted.file!r} from {wanted.page}."
        ) from error


def _unpack_member(archive: Path, wanted: Manifest, folder: Path) -> Path:
    with zipfile.ZipFile(archive) as opened:
        found = [info for info in opened.infolist() if Path(info.filename).name == wanted.file]
        if len(found) != 1 or found[0].file_size > MAX_BYTES:
            names = printable(", ".join(info.filename for info in opened.infolist()[:10]))
            raise errors.NotServedError(
                f"Expected one file {wanted.file!r} in the archive from Kaggle; it holds {names or 'nothing'}. "
                f"Fix: see {wanted.page}."
            )
        path = folder / "unpacked" / wanted.file
        path.parent.mkdir(exist_ok=True)
        with opened.open(found[0]) as member, path.open("wb") as file:
            while chunk := member.read(1 << 20):
                file.write(chunk)
    return path


# ---------------------------------------------------------------------- the process


def fetch(order: Order, tell: Tell) -> None:
    """Fetch and install a table; a lost connection or a busy service is tried again, from where it stopped."""
    wanted = order.wanted
    wire = Wire(order.timeout, tell, Path(order.folder), strict=wanted.service is not Service.OPENML)
    wire.attach()
    obtain = fetch_openml if wanted.service is Service.OPENML else fetch_kaggle
    for attempt in range(1, _TRIES + 1):
        try:
            with storage_errors(data_folder()):
                path, origin = obtain(order, wire)
            break
        except Exception as error:  # clients raise anything
            explained = explain(error, wanted, wire)
            again = isinstance(explained, errors.InterruptedFetchError | errors.ServiceError)
            if not again or attempt == _TRIES:
                raise explained from error
            tell("again", str(explained).partition(" Fix: ")[0])
            time.sleep(attempt)
    tell("preparing", path.name)
    install(wanted, path, origin)


def _end_with(parent: int) -> None:
    """End when the process that wants the table does, also in the middle of a silence."""
    while os.getppid() == parent:
        time.sleep(_PARENT_SECONDS)
    os._exit(1)


def main() -> None:
    """Read a pickled `Order` from stdin; write events to what was stdout."""
    events = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)  # what clients print

    def tell(event: str, content: Any) -> None:
        events.write(json.dumps([event, content]) + "\n")
        events.flush()  # raises where nobody listens any more: so ends a process whose parent is gone

    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    try:
        fetch(pickle.load(sys.stdin.buffer), tell)
    except BrokenPipeError:
        os._exit(1)
    except Exception as error:
        tell("error", [type(error).__name__, str(error)])
    else:
        tell("done", None)


if __name__ == "__main__":
    main()
