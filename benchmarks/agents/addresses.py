"""Remove secrets and local parts from addresses before publication: results hold settings and commands."""

from __future__ import annotations

import re
from typing import Any

_ACCOUNT = re.compile(r"(?<=://)[^/\s'\"]*@")
_QUERY = re.compile(r"(://[^?#\s'\"]*)[?#][^\s'\"]*")


def without_secrets(value: Any) -> Any:
    """Remove user, password, query and fragment from the addresses (`http://...`) in a text."""
    return _QUERY.sub(r"\1", _ACCOUNT.sub("", value)) if isinstance(value, str) else value
