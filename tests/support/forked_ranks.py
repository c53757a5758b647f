"""Ranks that share the imports of one process: a start by torchrun imports for ten seconds in each."""

from __future__ import annotations

import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable


def forked_ranks(n_procs: int, run: Callable[[], None]) -> None:
    """Run a function in `n_procs` ranks, and exit with 1 if one fails; call it before torch has computed anything."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    os.environ.update(WORLD_SIZE=str(n_procs), LOCAL_WORLD_SIZE=str(n_procs), MASTER_ADDR="127.0.0.1")
    os.environ["MASTER_PORT"] = str(port)
    children = set()
    for rank in range(n_procs):
        child = os.fork()
        if child:
            children.add(child)
            continue
        os.environ["RANK"] = os.environ["LOCAL_RANK"] = str(rank)
        try:
            run()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    while children:
        child, status = os.wait()
        children.remove(child)
        if status:
            for other in children:
                os.kill(other, signal.SIGKILL)
            sys.exit(1)
