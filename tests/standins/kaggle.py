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

from .server import Answer, Request, StandIn, serve_bytes

__all__ = ["KaggleStandIn", "zip_of"]

_SERVICE = "localhost"
_STORAGE = "storage.localhost"
_USER, _KEY = "a-tester", "0123456789abcdef"
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

    def environment(self, home: Path, *, credentials: Literal["key", ""] = "key") -> dict[str, str]:
        """As in the base, with the user's name and key or without credentials."""
        account = {"KAGGLE_USERNAME": _USER, "KAGGLE_KEY": _KEY} if credentials else {}
        return {**super().environment(home), "KAGGLE_API_ENVIRONMENT": "LOCALHOST", **account}

    def answer(self, request: Request) -> Answer:
        if request.host == _STORAGE:
            return self._store(request)
        if not _is_accepted(request.headers.get("authorization", "")):
            return _error(401, "Unauthenticated")
        asked = json.loads(request.body or b"{}")
        match request.path.rsplit("/", 2)[1:]:
            case ["datasets.DatasetApiService", "DownloadDataset"]:
                return self._redirect("datasets", f"{asked['ownerSlug']}/{asked['datasetSlug']}")
            case ["competitions.CompetitionApiService", "DownloadDataFiles"]:
                return self._enter(request, asked["competitionName"])
        return _error(404, "Not found")

    def _enter(self, request: Request, name: str) -> Answer:
        """Only users who have accepted the rules get the data of a competition."""
        if "authorization" not in request.headers:
            return _error(401, "Unauthenticated")
        if name in self._unaccepted:
            return _error(403, "You must accept this competition's rules before you'll be able to download files.")
        return self._redirect("competitions", name)

    def _redirect(self, kind: str, name: str) -> Answer:
        if name not in self._shelf(kind):
            return _error(404, "Not found")
        return Answer(302, b"", {"Location": f"http://{_STORAGE}/{kind}/{name}/{_ARCHIVE}?{_SIGNATURE}"})

    def _store(self, request: Request) -> Answer:
        kind, _, rest = request.path.lstrip("/").partition("/")
        files = self._shelf(kind).get(rest.rpartition("/")[0])
        if request.url.query != _SIGNATURE or files is None:
            return Answer(403, b"<Error><Code>AccessDenied</Code></Error>", {"Content-Type": "application/xml"})
        return serve_bytes(request, zip_of(files), "application/zip")

    def _shelf(self, kind: str) -> Mapping[str, Files]:
        return {"datasets": self.datasets, "competitions": self.competitions}.get(kind, {})


def zip_of(files: Files) -> bytes:
    """The archive of these files, always the same; they are stored, not compressed, so that its size is known."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name, (2025, 3, 4, 5, 6, 6)), data)
    return buffer.getvalue()


def _is_accepted(authorization: str) -> bool:
    """Whether it is the user's, or that of no user."""
    basic = "Basic " + base64.b64encode(f"{_USER}:{_KEY}".encode()).decode()
    return authorization in ("", basic)


def _error(code: int, message: str) -> Answer:
    return _json(code, {"code": code, "message": message})


def _json(status: int, content: Mapping[str, object]) -> Answer:
    return Answer(status, json.dumps(content).encode(), {"Content-Type": "application/json; charset=utf-8"})
