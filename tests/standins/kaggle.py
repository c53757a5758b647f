"""Kaggle as its client 2.2 sees it: a service that redirects to signed URLs, and the storage behind them.

The client speaks to `http://localhost` (`KAGGLE_API_ENVIRONMENT=LOCALHOST`), port 80, closed to tests; but it
goes through the proxy that the environment names, and the stand-in is that proxy.
"""

from __future__ import annotations

import base64
import io
import json
import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Literal
from urllib.parse import quote, unquote

from .server import Answer, Request, StandIn, serve_bytes

__all__ = ["KaggleStandIn", "zip_of"]

_SERVICE = "localhost"
_STORAGE = "storage.localhost"
_USER, _KEY, _TOKEN = "a-tester", "0123456789abcdef", "KGAT_0123456789"
_SIGNATURE = "X-Goog-Signature=5167"
_ARCHIVE = "archive.zip"

Files = Mapping[str, bytes]


class KaggleStandIn(StandIn):
    """The part of Kaggle that downloads ask. One user has an account.

    Args:
        datasets: Files of each data set, by "owner/slug"; everybody may have them.
        competitions: Files of each competition, by name; the user may have them.
        unaccepted: Competitions whose rules the user has not accepted.
    """

    def __init__(
        self,
        datasets: Mapping[str, Files] | None = None,
        competitions: Mapping[str, Files] | None = None,
        *,
        unaccepted: Collection[str] = (),
    ) -> None:
        super().__init__()
        self.datasets = dict(datasets or {})
        self.competitions = dict(competitions or {})
        self._unaccepted = unaccepted

    @property
    def hosts(self) -> frozenset[str]:
        return frozenset({_SERVICE, _STORAGE})

    def environment(self, home: Path, *, credentials: Literal["key", "token", ""] = "key") -> dict[str, str]:
        """As in the base.

        Args:
            home: The child's home, made if missing.
            credentials: Those of the user: name and key, an access token, or none.
        """
        held = {
            "key": {"KAGGLE_USERNAME": _USER, "KAGGLE_KEY": _KEY},
            "token": {"KAGGLE_API_TOKEN": _TOKEN},
            "": {},
        }[credentials]
        return {**super().environment(home), "KAGGLE_API_ENVIRONMENT": "LOCALHOST", **held}

    def answer(self, request: Request) -> Answer:
        if request.host == _STORAGE:
            return self._store(request)
        if not _known(request.headers.get("authorization", "")):
            return _error(401, "Unauthenticated")
        asked = json.loads(request.body or b"{}")
        match request.path.rsplit("/", 2)[1:]:
            case ["security.OAuthService", "IntrospectToken"]:
                return _json(200, {"active": True, "username": _USER})
            case ["datasets.DatasetApiService", "DownloadDataset"]:
                name = f"{asked['ownerSlug']}/{asked['datasetSlug']}"
                return self._redirect("datasets", name, asked.get("fileName"))
            case ["competitions.CompetitionApiService", "DownloadDataFiles" | "DownloadDataFile"]:
                return self._enter(request, asked["competitionName"], asked.get("fileName"))
        return _error(404, "Not found")

    def _enter(self, request: Request, name: str, file: str | None) -> Answer:
        """Only users who have accepted the rules get the data of a competition."""
        if "authorization" not in request.headers:
            return _error(401, "Unauthenticated")
        if name in self._unaccepted:
            return _error(403, "You must accept this competition's rules before you'll be able to download files.")
        return self._redirect("competitions", name, file)

    def _redirect(self, kind: str, name: str, file: str | None) -> Answer:
        files = self._shelf(kind).get(name)
        if files is None or (file and file not in files):
            return _error(404, "Not found")
        where = f"http://{_STORAGE}/{kind}/{name}/{quote(file or _ARCHIVE)}?{_SIGNATURE}"
        return Answer(302, b"", {"Location": where})

    def _store(self, request: Request) -> Answer:
        kind, _, rest = request.path.lstrip("/").partition("/")
        name, _, file = rest.rpartition("/")
        files = self._shelf(kind).get(name)
        if request.url.query != _SIGNATURE or files is None:
            return Answer(403, b"<Error><Code>AccessDenied</Code></Error>", {"Content-Type": "application/xml"})
        if file == _ARCHIVE:
            return serve_bytes(request, zip_of(files), "application/zip")
        return serve_bytes(request, files[unquote(file)], "application/octet-stream")

    def _shelf(self, kind: str) -> Mapping[str, Files]:
        return {"datasets": self.datasets, "competitions": self.competitions}.get(kind, {})


def zip_of(files: Files) -> bytes:
    """The archive of these files, always the same; they are stored, not compressed, so that its size is known."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name, (2025, 3, 4, 5, 6, 6)), data)
    return buffer.getvalue()


def _known(authorization: str) -> bool:
    """Whether it is the user's, or that of no user."""
    basic = "Basic " + base64.b64encode(f"{_USER}:{_KEY}".encode()).decode()
    return authorization in ("", basic, f"Bearer {_TOKEN}")


def _error(code: int, message: str) -> Answer:
    return _json(code, {"code": code, "message": message})


def _json(status: int, content: Mapping[str, object]) -> Answer:
    # a version newer than any: the client says so on stdout, as it would of the real service
    headers = {"Content-Type": "application/json; charset=utf-8", "X-Kaggle-ApiVersion": "99.0.0"}
    return Answer(status, json.dumps(content).encode(), headers)
