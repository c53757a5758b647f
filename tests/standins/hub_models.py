"""The hub of Hugging Face as its client 2.4 sees it when a model is loaded by id and revision, or uploaded."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from .server import Answer, Request, StandIn, serve_bytes

__all__ = ["ModelHubStandIn", "StoredModel"]

_CDN = "cas-bridge.xethub.hf.co"
_JSON = {"Content-Type": "application/json; charset=utf-8"}
_LFS = ".safetensors"


@dataclass
class StoredModel:
    """A repository as it is read.

    Attributes:
        commits: Files by name, by commit.
        revisions: Commits by the names of branches and tags.
    """

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    revisions: dict[str, str] = field(default_factory=dict)

    def commit(self, files: Mapping[str, bytes], *names: str) -> str:
        """Add a commit that branches and tags point to from now on, and return its id."""
        text = "".join(f"{name} {_oid(body)}" for name, body in sorted(files.items()))
        commit = _oid(f"{text} {len(self.commits)}".encode())
        self.commits[commit] = dict(files)
        self.revisions |= dict.fromkeys(names, commit)
        return commit


class ModelHubStandIn(StandIn):
    """The part of the hub used by downloads and by commits of small files, and its storage of large files, elsewhere.

    Attributes:
        models: By `user/name`.
        private: Names of the models that were made private.
        objects: Large files, by SHA-256.
    """

    def __init__(self) -> None:
        super().__init__()
        self.models: dict[str, StoredModel] = {}
        self.private: set[str] = set()
        self.objects: dict[str, bytes] = {}
        self._then: list[tuple[str, Callable[[], object]]] = []

    @property
    def storage(self) -> str:
        """Host of the large files."""
        return _CDN

    @property
    def hosts(self) -> frozenset[str]:
        return frozenset({f"127.0.0.1:{self.port}", _CDN})

    def environment(self, home: Path, *, token: str = "hf_0123456789") -> dict[str, str]:
        """As in the base; large files go by Git LFS, as where hf_xet is not installed.

        Args:
            home: The child's home, made if missing.
            token: That of the user; "" for none.
        """
        variables = {"HF_ENDPOINT": self.proxy, "HF_TOKEN": token, "HF_HOME": str(home / "hub")}
        variables |= {"HF_HUB_DISABLE_XET": "1", "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
        return {**super().environment(home), **variables}

    def put(self, name: str, folder: Path, *revisions: str) -> str:
        """Commit the files of a folder, for branches and tags, and return the commit's id."""
        files = {path.name: path.read_bytes() for path in folder.iterdir()}
        return self.models.setdefault(name, StoredModel()).commit(files, *revisions)

    def when(self, path: str, do: Callable[[], object]) -> None:
        """Do something once, when a file is first asked for.

        Args:
            path: How the file's path ends.
            do: Done before the answer.
        """
        self._then.append((path, do))

    def answer(self, request: Request) -> Answer:
        for entry in [entry for entry in self._then if request.path.endswith(entry[0])]:
            self._then.remove(entry)
            entry[1]()
        if request.host == _CDN:
            return self._large(request)
        match [unquote(part) for part in request.path.strip("/").split("/")]:
            case ["api", "repos", "create"]:
                return self._create(request)
            case ["api", "validate-yaml"]:
                return _json_answer({"errors": [], "warnings": []})
            case ["api", "models", user, name, "preupload", _]:
                files = [{**file, "uploadMode": "regular", "shouldIgnore": False} for file in _body(request)["files"]]
                return _json_answer({"files": files})
            case ["api", "models", user, name, "commit", revision]:
                return self._commit(request, f"{user}/{name}", revision)
            case ["api", "models", user, name]:
                return self._info(f"{user}/{name}", "main")
            case ["api", "models", user, name, "revision", revision]:
                return self._info(f"{user}/{name}", revision)
            case ["api", "models", user, name, "tree", revision, *folder]:
                if folder:  # all files are in the root
                    return _error(404, f"{folder[0]} does not exist", {"X-Error-Code": "EntryNotFound"})
                return self._tree(f"{user}/{name}", revision)
            case [user, name, "resolve", revision, *path]:
                return self._file(request, f"{user}/{name}", revision, "/".join(path))
        return _error(404, "Sorry, we can't find the page you are looking for.")

    def _create(self, request: Request) -> Answer:
        if "authorization" not in request.headers:
            return _error(401, "Invalid username or password.")
        asked = _body(request)
        name = f"{asked['organization']}/{asked['name']}"
        self.models.setdefault(name, StoredModel())
        self.private |= {name} if asked.get("visibility") == "private" else set()
        return _json_answer({"url": f"{self.proxy}/{name}", "name": name})

    def _commit(self, request: Request, name: str, revision: str) -> Answer:
        """A commit by lines of JSON, its files in base64."""
        if "authorization" not in request.headers:
            return _error(401, "Invalid username or password.")
        lines = [json.loads(line) for line in request.body.splitlines()]
        files = {
            line["value"]["path"]: base64.b64decode(line["value"]["content"]) for line in lines if line["key"] == "file"
        }
        model = self.models[name]
        before = model.commits.get(model.revisions.get(revision, ""), {})
        commit = model.commit({**before, **files}, revision)
        return _json_answer({"commitUrl": f"{self.proxy}/{name}/commit/{commit}", "commitOid": commit, "success": True})

    def _find(self, name: str, revision: str) -> Answer | tuple[StoredModel, str]:
        """The repository and the commit that are meant, or a refusal."""
        model = self.models.get(name)
        if model is None:
            return _error(401, "Invalid username or password.")  # does not reveal whether there is one
        commit = model.revisions.get(revision, revision)
        if commit not in model.commits:
            return _error(404, f"Invalid rev id: {revision}", {"X-Error-Code": "RevisionNotFound"})
        return model, commit

    def _info(self, name: str, revision: str) -> Answer:
        answer = self._find(name, revision)
        if isinstance(answer, Answer):
            return answer
        model, commit = answer
        siblings = [{"rfilename": path} for path in sorted(model.commits[commit])]
        return _json_answer({"id": name, "private": False, "sha": commit, "siblings": siblings})

    def _tree(self, name: str, revision: str) -> Answer:
        answer = self._find(name, revision)
        if isinstance(answer, Answer):
            return answer
        model, commit = answer
        files = sorted(model.commits[commit].items())
        return _json_answer(
            [{"type": "file", "path": path, "size": len(body), "oid": _oid(body)} for path, body in files]
        )

    def _file(self, request: Request, name: str, revision: str, path: str) -> Answer:
        answer = self._find(name, revision)
        if isinstance(answer, Answer):
            return answer
        model, commit = answer
        repository = {"X-Repo-Commit": commit}
        if path not in model.commits[commit]:
            return _error(404, "Entry not found", {**repository, "X-Error-Code": "EntryNotFound"})
        body = model.commits[commit][path]
        if not path.endswith(_LFS):
            plain = serve_bytes(request, body, "text/plain")
            return plain._replace(headers={**plain.headers, **repository})
        digest = hashlib.sha256(body).hexdigest()
        self.objects[digest] = body
        linked = {"X-Linked-ETag": f'"{digest}"', "X-Linked-Size": str(len(body))}
        return Answer(302, b"", {**repository, **linked, "Location": f"http://{_CDN}/{digest}"})

    def _large(self, request: Request) -> Answer:
        """A signed address: no token, since the token must not come here at all."""
        digest = request.path.strip("/")
        if "authorization" in request.headers or digest not in self.objects:
            return Answer(400, b"BadRequest")
        return serve_bytes(request, self.objects[digest], "application/octet-stream")


def _body(request: Request) -> Any:
    return json.loads(request.body)


def _oid(body: bytes) -> str:
    return hashlib.sha1(body, usedforsecurity=False).hexdigest()


def _json_answer(value: Any) -> Answer:
    return Answer(200, json.dumps(value).encode(), _JSON)


def _error(status: int, message: str, headers: Mapping[str, str] | None = None) -> Answer:
    """A refusal as the hub words it."""
    return Answer(
        status, json.dumps({"error": message}).encode(), {**_JSON, "X-Error-Message": message, **(headers or {})}
    )
