"""The sandbox: runs code that a model wrote where it can do no harm and see no label it is scored on."""

import sys

from lang_envs.sandbox.errors import SandboxUnavailableError

if sys.platform == "win32":
    raise SandboxUnavailableError(
        "Expected Linux, or macOS with less confinement; got Windows, which cannot fork. Fix: use WSL2."
    )
