"""`launch`: the ranks of a training on one machine, by torchrun's agent."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import sys
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException, Std
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from poad_sb3.errors import LostRankError

__all__ = ["LOST_RANK", "launch"]

LOST_RANK = 5
"""Exit code of a rank that has lost another one."""
_TAIL = 5
"""Number of lines shown of the output of a rank that failed."""
_STOPPED = (signal.SIGTERM, -signal.SIGTERM)
"""Exit codes of ranks that the agent stops when another one ends; the positive one is by Ray's handler."""
_HOST = "127.0.0.1"


def launch(n_procs: int, arguments: Sequence[str]) -> int:
    """Run a command of `poad` in several ranks; return its exit code.

    Rank 0 writes to the terminal. The output of the other ranks is kept aside, and its end is shown if they fail.

    Args:
        n_procs: Number of ranks.
        arguments: Arguments of the command.

    Raises:
        LostRankError: If a rank was killed, or lost another one.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if sys.platform == "linux":  # all ranks are here: gloo needs no other address, and listens on no other
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    store = _loopback_store()  # lives as long as the ranks
    with tempfile.TemporaryDirectory(prefix="poad-ranks-") as folder, _quiet():
        logs = DefaultLogsSpecs(log_dir=folder, redirects=dict.fromkeys(range(1, n_procs), Std.ALL))
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=n_procs,
            run_id=uuid.uuid4().hex,
            rdzv_backend="static",
            rdzv_endpoint=f"{_HOST}:{store.port}",
            rdzv_configs={"rank": 0},
            local_addr=_HOST,
            max_restarts=0,  # an agent that starts ranks again meets the addresses of the lost ones
            logs_specs=logs,
        )
        if (hangup := getattr(signal, "SIGHUP", None)) and signal.getsignal(hangup) is signal.SIG_IGN:
            config.signals_to_handle = "SIGTERM,SIGINT,SIGQUIT"  # what `nohup` ignores; torch before 2.10 handles it
        try:
            elastic_launch(config, sys.executable)("-m", "poad_sb3.cli", *arguments)
        except SignalException as error:  # the ranks have got it too, and rank 0 names the checkpoint
            return 128 + int(error.sigval)
        except ChildFailedError as error:
            everywhere = {rank: failure.exitcode for rank, failure in error.failures.items()}
            codes = {rank: code for rank, code in everywhere.items() if code not in _STOPPED} or everywhere
            killed = [rank for rank, code in codes.items() if code < 0]
            failed = sorted(rank for rank, code in codes.items() if code > 0 and code not in (LOST_RANK, *_STOPPED))
            if failed and not killed:  # an error of the training itself, that would come again
                _show_end(Path(folder), failed[0])
                return codes[failed[0]]
            rank = min(killed or codes)  # the other ranks may end with any code when the agent stops them
            raise LostRankError(f"Rank {rank} of {n_procs} was lost ({_reason(codes[rank])}).") from error
    return 0


def _reason(code: int) -> str:
    if code == LOST_RANK:
        return "it waited in vain for another"
    return f"signal {abs(code)}"


def _loopback_store() -> Any:
    """Make the store of the ranks, which torchrun's agent finds by its port, as both are multi-tenant.

    The agent's own would listen on all interfaces, and ranks unpickle its content.
    """
    with socket.create_server((_HOST, 0)) as listener:
        port = listener.getsockname()[1]
        return dist.TCPStore(  # type: ignore[attr-defined]
            _HOST, port, is_master=True, wait_for_workers=False, multi_tenant=True, master_listen_fd=listener.detach()
        )


def _show_end(folder: Path, rank: int) -> None:
    """Show the last lines of a rank whose output went to a file."""
    for path in sorted(folder.glob(f"**/{rank}/stderr.log")):
        for line in path.read_text(errors="replace").splitlines()[-_TAIL:]:
            sys.stderr.write(f"[rank {rank}] {line}\n")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the agent from printing its own account of a failure beside ours."""
    logger = logging.getLogger("torch.distributed.elastic")
    before, logger.level = logger.level, logging.CRITICAL + 1
    try:
        yield
    finally:
        logger.level = before
