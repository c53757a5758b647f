"""The sandbox that the environments of a process share."""

from __future__ import annotations

import atexit
from functools import lru_cache

from lang_envs.sandbox.client import Confining, Sandbox


@lru_cache
def shared_sandbox(confinement: Confining = "auto") -> Sandbox:
    """Return the one sandbox of the process for a level of confinement.

    Environments do not close it: the next one would wait seconds for another supervisor. The supervisor ends with the
    last process that uses it.
    """
    sandbox = Sandbox(confinement=confinement)
    atexit.register(sandbox.close)
    return sandbox
