"""The hub of Hugging Face as its client 2.4 sees it when a folder is uploaded, with large files by Git LFS."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .server import Answer, Request, StandIn

__all__ = ["LFS", "HubStandIn", "Repository", "error", "json_answer"]

_USER, _TOKEN, _READER = "a-tester", "hf_0123456789", "hf_readonly"
_JSON = {"Content-Type": "application/json; charset=utf-8"}
LFS = ".safetensors"


@dataclass
class Repository:
    """A repository of models: its readers, and its commits."""

    private: bool
    files: dict[str, bytes] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)


class HubStandIn(StandIn):
    """The part of the hub that uploads ask. One user has an account, with a token to write and one to read.

    Args:
        public: Repositories of the user that are there already and public.

    Attributes:
        repositories: By `user/name`.
        objects: Large files that arrived, by SHA-256; a commit may refer to these only.
    """

    def __init__(self, *, public: Collection[str] = ()) -> None:
        super().__init__()
        self.repositories = {name: Repository(private=False) for name in public}
        self.objects: dict[str, bytes] = {}

    @property
    def hosts(self) -> frozenset[str]:
        return frozenset({f"127.0.0.1:{self.port}"})

    @property
    def token(self) -> str:
        """That of the user."""
        return _TOKEN

    @property
    def reader(self) -> str:
        """A token that may not write."""
        return _READER

    def environment(self, home: Path, *, token: str = _TOKEN) -> dict[str, str]:
        """As in the base; large files go by Git LFS, as where hf_xet is not installed.

        Args:
            home: The child's home, made if missing.
            token: That of the user; "" for none.
        """
        variables = {"HF_ENDPOINT": self.proxy, "HF_TOKEN": token, "HF_HOME": str(home / "hub")}
        variables |= {"HF_HUB_DISABLE_XET": "1", "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
        return {**super().environment(home), **variables}

    def answer(self, request: Request) -> Answer:
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        match request.path.strip("/").split("/"):
            case ["storage", oid]:  # a signed URL: no token
                return self._store(request.body, oid)
            case _ if bearer not in (_TOKEN, _READER):
                return error(401, "Invalid username or password.")
            case ["api", "models", user, name]:
                return self._describe(f"{user}/{name}")
            case ["api", "validate-yaml"]:
                return json_answer({"errors": [], "warnings": []})
            case _ if bearer == _READER:
                return error(403, "Forbidden: you must use a write token.")
            case parts:
                return self._write(parts, request.body)

    def _write(self, parts: list[str], body: bytes) -> Answer:
        match parts:
            case ["api", "repos", "create"]:
                return self._create(json.loads(body))
            case ["api", "models", user, name, "preupload", "main"]:
                return self._sort(f"{user}/{name}", json.loads(body))
            case [_, _, "info", "lfs", "objects", "batch"]:
                return self._batch(json.loads(body))
            case ["api", "models", user, name, "commit", "main"]:
                return self._commit(f"{user}/{name}", body)
        return error(404, "Sorry, we can't find the page you are looking for.")

    def _create(self, content: Mapping[str, Any]) -> Answer:
        user = content["organization"] or _USER
        name = f"{user}/{content['name']}"
        if user != _USER:
            return error(403, f"You don't have the rights to create a model under the namespace {json.dumps(user)}.")
        if name in self.repositories:
            return json_answer({"error": "You already created this model repo", "url": f"{self.proxy}/{name}"}, 409)
        self.repositories[name] = Repository(private=content.get("visibility") == "private")
        return json_answer({"url": f"{self.proxy}/{name}", "id": "0", "name": name})

    def _describe(self, name: str) -> Answer:
        if name not in self.repositories:
            return error(404, "Repository not found", {"X-Error-Code": "RepoNotFound"})
        return json_answer({"id": name, "private": self.repositories[name].private, "sha": "0" * 40, "siblings": []})

    def _sort(self, name: str, content: Mapping[str, Any]) -> Answer:
        """Upload mode of files, as in the hub's default `.gitattributes`."""
        if name not in self.repositories:
            return error(404, "Repository not found", {"X-Error-Code": "RepoNotFound"})
        files = [
            {"path": file["path"], "uploadMode": "lfs" if file["path"].endswith(LFS) else "regular",
             "shouldIgnore": False, "oid": None}
            for file in content["files"]
        ]  # fmt: skip
        return json_answer({"files": files})

    def _batch(self, content: Mapping[str, Any]) -> Answer:
        """Where Git LFS uploads objects to."""
        objects = [
            {**entry, "actions": {"upload": {"href": f"{self.proxy}/storage/{entry['oid']}"}}}
            for entry in content["objects"]
        ]
        return json_answer({"transfer": "basic", "objects": objects})

    def _store(self, body: bytes, oid: str) -> Answer:
        if hashlib.sha256(body).hexdigest() != oid:
            return Answer(400, b"BadDigest")
        self.objects[oid] = body
        return Answer(200)

    def _commit(self, name: str, body: bytes) -> Answer:
        if name not in self.repositories:
            return error(404, "Repository not found", {"X-Error-Code": "RepoNotFound"})
        repository, files = self.repositories[name], {}
        header, *operations = map(json.loads, body.splitlines())
        for operation in operations:
            value = operation["value"]
            match operation["key"]:
                case "file":
                    files[value["path"]] = base64.b64decode(value["content"], validate=True)
                case "lfsFile" if value["oid"] in self.objects:
                    files[value["path"]] = self.objects[value["oid"]]
                case _:
                    return error(400, f"Cannot do {operation['key']} of {value['path']}.")
        repository.files |= files
        repository.messages.append(header["value"]["summary"])
        oid = f"{len(repository.messages):040x}"
        return json_answer({"success": True, "commitOid": oid, "commitUrl": f"{self.proxy}/{name}/commit/{oid}"})


def json_answer(value: Mapping[str, Any], status: int = 200) -> Answer:
    """An answer in JSON."""
    return Answer(status, json.dumps(value).encode(), _JSON)


def error(status: int, message: str, headers: Mapping[str, str] | None = None) -> Answer:
    """A refusal as the hub words it."""
    return Answer(
        status, json.dumps({"error": message}).encode(), {**_JSON, "X-Error-Message": message, **(headers or {})}
    )
