"""`poad train --engine`: a server of vLLM on this machine that generates free actions as long as a training lasts."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from lang_envs.cli.common import echo
from lang_envs.sandbox.confinement.privileges import prctl
from poad_sb3.cli.common import fail
from poad_sb3.errors import EndpointError
from poad_sb3.language_model.loading import located

if TYPE_CHECKING:
    from poad_sb3.common.on_policy_algorithm import LLMOnPolicyAlgorithm

LOG = "engine.log"
"""Output of the server, in the folder of the run."""
_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Values of `--max-lora-rank` that vLLM takes."""
_ON_CPU = ("--enforce-eager", "--no-enable-chunked-prefill")
"""A seeded request whose prompt is read in parts ends a server of 0.32: "CPU Generator does not use offset"."""
_DEFAULTS = {"VLLM_NO_USAGE_STATS": "1"}
_DEFAULTS_ON_CPU = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "TORCH_COMPILE_DISABLE": "1"}
"""1 GiB, since the default is most of the memory; no cores of its own; and no compiler at the first request."""
_PR_SET_PDEATHSIG = 1
_SECONDS_BETWEEN_LINES = 30
_SECONDS_TO_END = 15


def program(engine: str) -> list[str]:
    """Return the command of `--engine`: vLLM's program or its path, and more arguments of `vllm serve`; or fail."""
    try:
        name, *more = shlex.split(engine) or ["vllm"]
    except ValueError as error:
        fail(f"Expected a command after --engine; got {engine!r} ({error}).")
    path = shutil.which(name)
    if path is None:
        fail(
            f"Expected the program of vLLM after --engine; there is no {name!r} here. Fix: pip install vllm in a "
            "virtual environment of its own and --engine ENVIRONMENT/bin/vllm; without a GPU `make engine` in a "
            "checkout and --engine .engines/vllm/bin/vllm."
        )
    return [path, *more]


def free_url() -> str:
    """Return the URL of a server on a port that is free now."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return f"http://127.0.0.1:{listening.getsockname()[1]}/v1"


def serve_arguments(model: LLMOnPolicyAlgorithm) -> list[str]:
    """Return the arguments of `vllm serve` for the base model of an algorithm."""
    lm = model.policy.lm
    if not isinstance(lm.source.model, str) or lm.source.quantization is not None:
        fail("Expected a base model from files, not quantised, with --engine. Fix: another model, or no --engine.")
    commit = getattr(lm.base.config, "_commit_hash", None)
    rank = max(adapter.r for adapter in lm.network.peft_config.values())
    return [
        located(lm.source)[0], *(["--revision", commit] if commit else []), "--dtype", lm.source.dtype,
        *(["--max-model-len", str(lm.max_length)] if lm.max_length < sys.maxsize else []),
        "--max-lora-rank", str(next((allowed for allowed in _RANKS if allowed >= rank), rank)),
        *(_ON_CPU if lm.base.device.type == "cpu" else ()),
    ]  # fmt: skip


@contextlib.contextmanager
def serving(command: Sequence[str], arguments: Sequence[str], url: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start a server of vLLM, wait until it answers, and stop it at the end.

    Args:
        command: Its program, and arguments that come last; see `program`.
        arguments: Model and other arguments of `vllm serve`.
        url: URL that it is to have, on this machine.
        log: File for its output, which is added to.

    Raises:
        EndpointError: If it ends before it answers.
    """
    words = [
        command[0], "serve", *arguments, "--host", "127.0.0.1", "--port", str(urlsplit(url).port),
        "--enable-lora", "--logprobs-mode", "processed_logprobs", *command[1:],
    ]  # fmt: skip
    defaults = {**_DEFAULTS, **(_DEFAULTS_ON_CPU if _ON_CPU[0] in arguments else {})}
    environment = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True", **defaults, **os.environ}
    with log.open("ab") as output:
        size = output.tell()
        # A session of its own: Ctrl-C reaches the training first, which then stops the server.
        server = subprocess.Popen(
            words, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
            preexec_fn=_end_with_parent,
        )  # fmt: skip
    try:
        _wait(server, command[0], url, log, size)
        yield server
    finally:
        _stop(server)


def _end_with_parent() -> None:
    """Have the kernel end the server with a training that is killed. It ends its workers itself."""
    if sys.platform == "linux":
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _wait(server: subprocess.Popen[bytes], path: str, url: str, log: Path, size: int) -> None:
    begun = line = time.monotonic()
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy does not reach this machine
    while server.poll() is None:
        with contextlib.suppress(OSError):
            opener.open(f"{url.removesuffix('/v1')}/health", timeout=5).close()
            return
        if time.monotonic() > line + _SECONDS_BETWEEN_LINES:
            line = time.monotonic()
            output = f"its output is in {log}"
            if log.stat().st_size == size:
                output = f"{path} has written nothing yet. If it is not vLLM's program, stop by Ctrl-C"
            echo(f"poad: vLLM has been starting for {line - begun:.0f} s; {output}", err=True)
        time.sleep(0.5)
    raise EndpointError(
        f"Expected a server of vLLM; {path} ended with code {server.returncode} before it answered. "
        f"Fix: see {log}, or name another program after --engine."
    )


def _stop(server: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):  # its workers are processes of the same group
        with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS refuses a group that has ended
            os.killpg(server.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(_SECONDS_TO_END)
