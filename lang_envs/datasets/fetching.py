"""Downloads of tables from OpenML and Kaggle over HTTP, and files that were downloaded by hand.

The network is used only for a table that is not on this machine.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib.util
import json
import os
import re
import shutil
import threading
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from xml.etree import ElementTree

from lang_envs.datasets import errors, store
from lang_envs.datasets.manifest import Manifest, Service
from lang_envs.errors import MissingExtraError, install_command
from lang_envs.redaction import without_secrets
from lang_envs.text import printable

__all__ = ["Progress", "fetch", "fetch_by_hand", "is_reachable"]

DEFAULT_TIMEOUT = 30.0
"""Seconds without a byte before a service counts as dead."""
_CONNECT_SECONDS = 10.0
_PROBE_SECONDS = 1.2
_TRIES = 3
_CHUNK = 1 << 16
_MAX_BYTES = 1 << 30
"""Maximum size of a file; all tables here are smaller."""
_POLL = 0.2
_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)
"""Errors of file systems without locks, such as some network file systems."""
_MAX_TEXT = 200  # characters of a message or licence of a service
_OPENML = "https://www.openml.org/api/v1/xml"
_OPENML_NAMESPACE = "{http://openml.org/openml}"


class Progress(NamedTuple):
    """State of a fetch.

    Attributes:
        stage: `"fetching"`, `"again"` (after the error in `detail`) or `"preparing"` (making arrays).
        done: Bytes fetched so far.
        total: Bytes in all; 0 if the service does not report it.
        detail: Reason for the stage.
    """

    stage: str
    done: int = 0
    total: int = 0
    detail: str = ""


Watch = Callable[[Progress], None]


def has_packages() -> bool:
    """Return whether the packages that fetch a table are installed."""
    return all(importlib.util.find_spec(package) for package in ("requests", "pandas"))


def fetch(
    wanted: Manifest,
    *,
    force: bool = False,
    timeout: float = DEFAULT_TIMEOUT,
    watch: Watch = lambda progress: None,
) -> store.Receipt:
    """Fetch a table from its service, unless it is here.

    A lost connection or a failing service is tried again.

    Args:
        wanted: Manifest of the table.
        force: Whether to fetch a table that is here already.
        timeout: Seconds without a byte before the service counts as dead.
        watch: Called with the progress.

    Raises:
        DataError: If it fails, as the subclass for the kind of failure; a table that was here before is still here.
        MissingExtraError: If requests or pandas is not installed.
    """
    if not has_packages():
        raise MissingExtraError(
            f"Expected requests and pandas, to fetch the {wanted.name} table; at least one is not installed. "
            f"Fix: `{install_command('data')}`."
        )
    obtain = _fetch_openml if wanted.service is Service.OPENML else _fetch_kaggle
    with _partial_folder(wanted) as folder:
        receipt = store.read_receipt(wanted.name)
        if receipt is not None and not force and store.is_whole(wanted):
            return receipt
        for attempt in range(1, _TRIES + 1):
            try:
                with _explained(wanted, timeout):
                    path, origin = obtain(wanted, folder, timeout, watch)
                break
            except (errors.InterruptedFetchError, errors.ServiceError) as error:
                if attempt == _TRIES:
                    raise
                watch(Progress("again", detail=str(error).partition(" Fix: ")[0]))
                time.sleep(attempt)
        watch(Progress("preparing", detail=path.name))
        return store.install(wanted, path, origin)


def fetch_by_hand(wanted: Manifest, file: Path) -> store.Receipt:
    """Keep a file that was downloaded by hand: CSV, parquet, ARFF, or an archive from Kaggle with the file in it.

    Raises:
        DataError: If it is another file, or cannot be stored; a table that was here before is still here.
    """
    try:
        if file.exists() and not file.is_file():  # before it is opened: a pipe would block
            raise OSError("no ordinary file")
        with file.open("rb") as opened:
            opened.read(1)
    except OSError as error:
        raise errors.DataMissingError(
            f"Expected a file to read at {str(file)!r}; got {error.strerror or error}. Fix: the path of the file that "
            f"you downloaded."
        ) from None
    with _partial_folder(wanted) as folder:
        if file.suffix.lower() == ".zip":
            file = _unpack(file, wanted, folder)
        return store.install(wanted, file, store.Origin("by hand"))


@contextlib.contextmanager
def _partial_folder(wanted: Manifest) -> Iterator[Path]:
    """Lock and give an empty folder for a download of a table; it is removed at the end."""
    try:
        import fcntl
    except ImportError as error:  # Windows, where no code could be run on the table either
        raise errors.StorageError("Expected Linux or macOS, whose file locks this uses. Fix: WSL2.") from error
    base = store.data_folder() / ".partial"
    folder = base / wanted.name
    with store.storage_errors(store.data_folder()):
        base.mkdir(parents=True, exist_ok=True)
        with (base / f"{wanted.name}.lock").open("ab") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)  # waits for a process that is fetching the table
            except OSError as error:  # without locks, of two processes that fetch at the same time, the last one counts
                if error.errno not in _NO_LOCKS:
                    raise
            shutil.rmtree(folder, ignore_errors=True)  # of a process that was killed
            folder.mkdir(exist_ok=True)
            try:
                yield folder
            finally:
                shutil.rmtree(folder, ignore_errors=True)


# ---------------------------------------------------------------------- OpenML


def _fetch_openml(wanted: Manifest, folder: Path, timeout: float, watch: Watch) -> tuple[Path, store.Origin]:
    """Download a table as parquet, or as ARFF where there is no parquet file or one with another MD5 than its ETag."""
    settings = _openml_settings()
    key = {"api_key": settings["apikey"]} if settings["apikey"] else {}
    response = _request("GET", f"{settings['server']}/data/{wanted.id}", timeout, params=key)
    description = ElementTree.fromstring(response.content)
    about = {field.tag.removeprefix(_OPENML_NAMESPACE): field.text or "" for field in description}
    licence = printable(about.get("licence", ""))[:_MAX_TEXT]
    if "parquet_url" in about:
        with contextlib.suppress(errors.NotServedError, errors.ForbiddenError), _explained(wanted, timeout):
            path, tag = _download("GET", about["parquet_url"], folder / f"{wanted.name}.pq", timeout, watch)
            if not re.fullmatch("[0-9a-f]{32}", tag) or _md5(path) == tag:
                return path, store.Origin("OpenML", licence)
    is_theirs = urlsplit(about["url"])[:2] == urlsplit(settings["server"])[:2]
    key = key if is_theirs else {}  # the description may name any host
    path, _ = _download("GET", about["url"], folder / f"{wanted.name}.arff", timeout, watch, params=key)
    stated = about.get("md5_checksum")
    if stated and _md5(path) != stated:
        raise errors.ChecksumError(
            f"Expected the {wanted.name} table from OpenML with the checksum that it states; got other bytes, and kept "
            f"none of them. Fix: fetch again; if that does not help, download {wanted.file!r} from {wanted.page} and "
            f"use --from."
        )
    return path, store.Origin("OpenML", licence, f"MD5 {stated}" if stated else "")


def _openml_settings() -> dict[str, str]:
    """Return server and key of the configuration file of OpenML's own client."""
    settings = {"server": _OPENML, "apikey": ""}
    for folder in (os.environ.get("XDG_CONFIG_HOME") or "~/.config", "~"):
        file = Path(folder, "openml" if folder != "~" else ".openml", "config")
        with contextlib.suppress(OSError, UnicodeDecodeError, RuntimeError):
            for line in file.expanduser().read_text(encoding="utf-8").splitlines():
                key, _, value = (part.strip() for part in line.partition("="))
                if key in settings and value:
                    settings[key] = value
            break
    return settings


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


# ---------------------------------------------------------------------- Kaggle


def _fetch_kaggle(wanted: Manifest, folder: Path, timeout: float, watch: Watch) -> tuple[Path, store.Origin]:
    """Download the archive of a data set or competition, and unpack the file of a table."""
    if wanted.service is Service.KAGGLE_COMPETITION:
        method, parameters = "competitions.CompetitionApiService/DownloadDataFiles", {"competitionName": wanted.id}
    else:
        owner, _, name = wanted.id.partition("/")
        method, parameters = "datasets.DatasetApiService/DownloadDataset", {"ownerSlug": owner, "datasetSlug": name}
    token, pair = _kaggle_credentials()
    archive, _ = _download(
        "POST",
        f"{_kaggle_server()}/v1/{method}",
        folder / f"{wanted.name}.zip",
        timeout,
        watch,
        json=parameters,
        auth=pair,
        headers={"Authorization": f"Bearer {token}"} if token else {},
    )
    return _unpack(archive, wanted, folder), store.Origin("Kaggle")


def _kaggle_server() -> str:
    return (
        "http://localhost/api" if os.environ.get("KAGGLE_API_ENVIRONMENT") == "LOCALHOST" else "https://api.kaggle.com"
    )


def _kaggle_credentials() -> tuple[str, tuple[str, str] | None]:
    """Access token, and user name with key, from where Kaggle's own client looks for them."""
    chosen = os.environ.get("KAGGLE_CONFIG_DIR")
    config = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    folders = [Path(chosen)] if chosen else [Path("~/.kaggle"), Path(config, "kaggle")]
    token = os.environ.get("KAGGLE_API_TOKEN", "")
    user, key = os.environ.get("KAGGLE_USERNAME"), os.environ.get("KAGGLE_KEY")
    for folder in folders:
        with contextlib.suppress(OSError, RuntimeError):
            token = token or (folder.expanduser() / "access_token").read_text(encoding="utf-8").strip()
        with contextlib.suppress(OSError, RuntimeError, ValueError, KeyError):
            held = json.loads((folder.expanduser() / "kaggle.json").read_text(encoding="utf-8"))
            user, key = user or held["username"], key or held["key"]
    return token, (user, key) if user and key and not token else None


def _unpack(archive: Path, wanted: Manifest, folder: Path) -> Path:
    """Write the file of a table out of an archive from Kaggle into a folder.

    Raises:
        ChecksumError: If the file is not an archive, or is damaged.
        NotServedError: If the archive does not hold exactly one file of that name, or the file is too large.
    """
    try:
        with zipfile.ZipFile(archive) as opened:
            members = [info for info in opened.infolist() if Path(info.filename).name == wanted.file]
            if len(members) != 1 or members[0].file_size > _MAX_BYTES:
                names = printable(", ".join(info.filename for info in opened.infolist()[:10]))
                raise errors.NotServedError(
                    f"Expected one file {wanted.file!r} in the archive from Kaggle; it holds {names or 'nothing'}. "
                    f"Fix: see {wanted.page}."
                )
            path = folder / wanted.file
            with opened.open(members[0]) as member, path.open("wb") as file:
                shutil.copyfileobj(member, file)
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError) as error:
        raise errors.ChecksumError(
            f"Expected an archive from Kaggle; got a damaged one, or none ({archive.stat().st_size} bytes), and kept "
            f"nothing of it. Fix: fetch again; if that does not help, download {wanted.file!r} from {wanted.page}."
        ) from error
    return path


# ---------------------------------------------------------------------- HTTP


def _request(method: str, url: str, timeout: float, **options: Any) -> Any:
    import requests

    options["headers"] = {"Accept-Encoding": "identity", **options.pop("headers", {})}  # lengths count encoded bytes
    response = requests.request(method, url, timeout=(_CONNECT_SECONDS, timeout), **options)
    response.raise_for_status()
    return response


def _download(method: str, url: str, path: Path, timeout: float, watch: Watch, **options: Any) -> tuple[Path, str]:
    """Download a file; return its path, and its ETag without quotes."""
    with _request(method, url, timeout, stream=True, **options) as response, path.open("wb") as file:
        length = response.headers.get("Content-Length", "")
        done, total, shown = 0, int(length) if length.isdigit() else 0, 0.0
        for chunk in response.iter_content(_CHUNK):
            file.write(chunk)
            done += len(chunk)
            if done > _MAX_BYTES:
                raise errors.ChecksumError(
                    f"Expected a table of less than 1 GiB; got {done} bytes and no end. Fix: look at the page of the "
                    f"table."
                )
            if done == total or time.monotonic() - shown > _POLL:
                shown = time.monotonic()
                watch(Progress("fetching", done, total))
        return path, response.headers.get("ETag", "").strip('"')


@contextlib.contextmanager
def _explained(wanted: Manifest, timeout: float) -> Iterator[None]:
    """Turn an error of a request into a `DataError` with the fix; the error itself would show an address with a key."""
    import requests
    import urllib3

    service, table = wanted.service.label, f"the {wanted.name} table"
    by_hand = f"download {wanted.file!r} from {wanted.page} and use --from"
    try:
        yield
    except requests.HTTPError as error:
        raise _refused(error.response, wanted) from None
    except (ElementTree.ParseError, KeyError, requests.TooManyRedirects):
        raise errors.ServiceError(
            f"Expected {table} from {service}; got something else (a login page?). Fix: look at {wanted.page} with a "
            f"browser on this machine."
        ) from None
    except (requests.RequestException, ValueError) as error:  # ValueError: an address that is none
        wrapped: Any = error.args[0] if error.args else None
        reason = getattr(wrapped, "reason", wrapped)
        why = without_secrets(printable(" ".join(str(reason or error).split())))[:_MAX_TEXT]
        if isinstance(error, requests.Timeout) or isinstance(wrapped, urllib3.exceptions.ReadTimeoutError):
            raise errors.TimedOutError(
                f"Expected {table} from {service}; it sent no data for {timeout:g} s. Fix: fetch again, or with a "
                f"longer --timeout."
            ) from None
        if isinstance(wrapped, urllib3.exceptions.ProtocolError):
            raise errors.InterruptedFetchError(
                f"Expected {table} from {service}; the connection broke off ({why}). Fix: fetch again."
            ) from None
        raise errors.OfflineError(
            f"Expected to reach {service} for {table}; got {why}. Fix: connect to the network, set HTTPS_PROXY if "
            f"yours needs it, or {by_hand}."
        ) from None


def _refused(response: Any, wanted: Manifest) -> errors.DataError:
    """Return the error that a status means."""
    service, status = wanted.service.label, response.status_code
    message = re.search(r'(?:<oml:message>|"message":\s*")([^<"]+)', response.text[:10_000])
    reason = printable(" ".join(message[1].split()))[:_MAX_TEXT] if message else response.reason or "unknown"
    got = f"got status {status} ({reason})"
    if status in (401, 403):
        rules = ""
        if wanted.service is Service.KAGGLE_COMPETITION:
            rules = f"accept the rules of the competition at {wanted.page.removesuffix('/data')}/rules, and "
        keys = "~/.kaggle/kaggle.json or KAGGLE_USERNAME and KAGGLE_KEY" if service == "Kaggle" else "openml's apikey"
        return errors.ForbiddenError(
            f"Expected to be let in by {service} for the {wanted.name} table; {got}. Fix: {rules}check your "
            f"credentials ({keys}), or download {wanted.file!r} from {wanted.page} and use --from."
        )
    if status in (404, 410, 412):  # OpenML returns 412 for an unknown number
        return errors.NotServedError(
            f"Expected {service} to serve {wanted.id}; {got}. Fix: see {wanted.page}; if it has moved, download "
            f"{wanted.file!r} and use --from."
        )
    return errors.ServiceError(f"Expected the {wanted.name} table from {service}; {got}. Fix: try again later.")


def is_reachable(service: Service) -> bool:
    """Return whether a service answers at all within 1.2 s, directly or through the proxy before it."""
    import requests

    address = _openml_settings()["server"] if service is Service.OPENML else _kaggle_server()
    answered = threading.Event()

    def ask() -> None:
        with contextlib.suppress(Exception):  # any failure is no answer
            requests.head(address, timeout=_PROBE_SECONDS)
            answered.set()

    # in a thread, as a name server that does not answer cannot be interrupted
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(_PROBE_SECONDS)
    return answered.is_set()
