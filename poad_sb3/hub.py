"""`push`: an export to the hub of Hugging Face."""

from __future__ import annotations

import glob
import re
from pathlib import Path

from huggingface_hub import HfApi, get_token
from huggingface_hub.errors import HfHubHTTPError

from poad_sb3.errors import ExportError
from poad_sb3.export_folder import require_whole

__all__ = ["push"]

_LONGEST = 300
"""Characters of a hub's error that are shown."""
_ADVICE = re.compile(r" For more information check: \S+")
_FIXES = {
    401: "log in anew (hf auth login), or set HF_TOKEN to a token that is valid",
    403: "use a token with the right to write there, or a repository of your own",
    404: "check the spelling of the repository, and HF_ENDPOINT if it is set",
}
_LATER = "check HF_ENDPOINT and the network, and push the folder again; it is whole"


def push(folder: str | Path, repo_id: str, *, private: bool = True, token: str | None = None) -> str:
    """Upload an export to a repository on the hub, which is made if there is none. Nothing else is in the upload.

    Args:
        folder: What `export_policy` has written.
        repo_id: `USER/REPO`.
        private: Whether only its owners may see the repository.
        token: Of the hub; the one that `hf auth login` or HF_TOKEN left, by default.

    Returns:
        Address of the commit.

    Raises:
        ExportError: If there are no credentials, the folder is no whole export, a repository that should be private
            is public, or the hub refuses. The folder is as it was.
    """
    folder = Path(folder)
    names = require_whole(folder)
    try:
        api = HfApi(token=token or get_token())
        if api.token is None:
            raise ExportError(
                "Expected credentials of the hub; there are none. Fix: run `hf auth login`, or set HF_TOKEN."
            )
        api.create_repo(repo_id, private=private, exist_ok=True)
        if private and not api.model_info(repo_id).private:  # one that was there keeps its visibility
            raise ExportError(
                f"Expected a private repository; {repo_id} is there and public. "
                "Fix: another name, or private=False (poad export --public)."
            )
        patterns = [glob.escape(name) for name in names]
        done = api.upload_folder(
            repo_id=repo_id, folder_path=folder, allow_patterns=patterns, commit_message="Export of poad_sb3"
        )
    except ExportError:
        raise
    except Exception as error:  # the client raises errors of its own, of httpx2, of hf_xet, ValueError, RuntimeError
        inner = error.__cause__ if isinstance(error, RuntimeError) and error.__cause__ else error
        status = inner.response.status_code if isinstance(inner, HfHubHTTPError) else 0
        said = _ADVICE.sub("", " ".join(str(inner).split()))[:_LONGEST]
        raise ExportError(
            f"Expected the hub to take {folder} as {repo_id}; got {type(inner).__name__}: {said.rstrip('.')}. "
            f"Fix: {_FIXES.get(status, _LATER)}."
        ) from error
    return str(done.commit_url)
