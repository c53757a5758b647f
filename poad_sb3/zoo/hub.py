"""Agents on the hub of Hugging Face: an adapter, its row and a model card. The client's own login and cache."""

from __future__ import annotations

import tempfile
from dataclasses import asdict, replace
from functools import partial
from json import loads
from pathlib import Path
from typing import Any

import huggingface_hub
from huggingface_hub import CommitOperationAdd, EvalResult, HfApi, ModelCard, ModelCardData
from huggingface_hub.errors import DryRunError, LocalEntryNotFoundError

import lang_envs
from poad_sb3.errors import CheckpointError, ExportError
from poad_sb3.zoo.adapters import digest_of, write_adapter
from poad_sb3.zoo.rows import ADAPTER, CURVE, Row, dump, row_of

_FILE, _ROW, _CARD = f"agent{ADAPTER}", "row.json", Path(__file__).with_name("model_card.md")
_CURVE = f"curve{CURVE}"
_LONGEST = 300
_LARGEST = {_FILE: 2_000_000_000, _ROW: 1_000_000}
"""Maximum number of bytes of the files of a download."""


def push_to_hub(
    model: Any, repo_id: str, *, row: Row | None = None, private: bool | None = None, token: str | None = None
) -> str:
    """Upload an agent, with its critic, to the hub of Hugging Face.

    Args:
        model: On-policy algorithm with its environment.
        repo_id: Repository, `USER/NAME`; it is made if it does not exist.
        row: Row with scores, for the model card.
        private: Whether a new repository is private; the account's default if None.
        token: Token; that of `hf auth login` or `HF_TOKEN` if None.

    Returns:
        Address of the commit.

    Raises:
        ExportError: If the hub refuses.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / _FILE
        write_adapter(model, path, critic=True)
        spec = model.env.get_attr("spec", indices=[0])[0]
        if row is None:
            row = Row(
                env_id=spec.id,
                model=model.policy.lm.source.name,
                method=type(model).__name__,
                steps=model.num_timesteps,
                version=lang_envs.__version__,
            )
        return push_adapter(row, path, repo_id, private=private, token=token)


def push_adapter(row: Row, path: Path, repo_id: str, *, private: bool | None = None, token: str | None = None) -> str:
    """Upload the file of an adapter with its row, a model card and its learning curve, if any; see `push_to_hub`."""
    row = replace(row, sha256=digest_of(path), size=path.stat().st_size)
    files: dict[str, Path | bytes] = {_FILE: path, _ROW: dump(asdict(row)).encode()}
    if (curve := path.with_suffix(CURVE)).exists():
        files[_CURVE] = curve
    files["README.md"] = str(_card(row, repo_id, _CURVE if _CURVE in files else None)).encode()
    try:
        api = HfApi(token=token)
        api.create_repo(repo_id, private=private, exist_ok=True)
        additions = [CommitOperationAdd(name, data) for name, data in files.items()]
        return str(api.create_commit(repo_id, additions, commit_message=f"Add {row.name}"))
    except Exception as error:  # of the client, of HTTP or of the network
        raise ExportError(
            f"Expected to upload {row.name} to {repo_id}; got {' '.join(str(error).split())[:_LONGEST]}. "
            "Fix: `hf auth login` with a token that may write there."
        ) from error


def download(repo_id: str, revision: str | None = None, token: str | None = None) -> tuple[Row, Path]:
    """Download an agent into the cache of the hub's client, and return its row and the path of its adapter.

    Raises:
        CheckpointError: If it cannot be downloaded, is too large, or is no agent of this package.
    """
    try:
        folder = _snapshot(repo_id, revision, token)
        row, path = row_of(loads((folder / _ROW).read_text(encoding="utf-8"))), folder / _FILE
        if not path.is_file():
            raise FileNotFoundError(f"no {_FILE}")
    except Exception as error:
        raise CheckpointError(
            f"Expected an agent of poad_sb3 in {repo_id}; got {' '.join(str(error).split())[:_LONGEST]}. "
            "Fix: name a repository of push_to_hub; for a private one, `hf auth login`."
        ) from error
    return row, path


def _snapshot(repo_id: str, revision: str | None, token: str | None) -> Path:
    """Return the folder of an agent's files, all of the commit whose sizes were checked before."""
    snapshot: Any = partial(huggingface_hub.snapshot_download, repo_id, token=token, allow_patterns=[*_LARGEST])
    try:
        files = snapshot(revision=revision, dry_run=True)
    except DryRunError as error:  # the hub does not answer, or refuses: an agent of the client's cache
        try:
            return Path(snapshot(revision=revision, local_files_only=True))
        except LocalEntryNotFoundError:
            raise error.__cause__ or error from None
    if not files:
        raise FileNotFoundError(f"no {_ROW}")
    for file in files:
        if file.file_size > _LARGEST[file.filename]:
            raise ValueError(f"{file.filename} of {file.file_size:,} bytes, over {_LARGEST[file.filename]:,}")
    return Path(snapshot(revision=files[0].commit_hash))


def _card(row: Row, repo_id: str, curve: str | None) -> ModelCard:
    metrics = [
        EvalResult(
            task_type="reinforcement-learning",
            dataset_type=row.env_id,
            dataset_name=row.env_id,
            metric_type=metric,
            metric_name=f"{metric.replace('_', ' ')}, {player} actions",
            metric_value=row.scores[player][metric][0],
        )
        for player in ("greedy", "sampled")
        if player in row.scores
        for metric in ("discounted_return", "success")
        if row.scores[player].get(metric)
    ]
    data = ModelCardData(
        library_name="poad_sb3",
        pipeline_tag="reinforcement-learning",
        tags=["reinforcement-learning", "poad", "lora", row.env_id],
    )
    if metrics:
        data.model_name, data.eval_results = row.name, metrics
    card: ModelCard = ModelCard.from_template(data, template_path=str(_CARD), row=row, repo_id=repo_id, curve=curve)
    return card
