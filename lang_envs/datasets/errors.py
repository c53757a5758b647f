"""Errors of data; each class has the exit code of `lang-envs data`."""

from __future__ import annotations

from typing import ClassVar

from lang_envs.errors import LangEnvsError

__all__ = [
    "ChecksumError",
    "DataError",
    "DataMissingError",
    "ForbiddenError",
    "InterruptedFetchError",
    "NotServedError",
    "OfflineError",
    "ServiceError",
    "StorageError",
    "TableError",
    "TimedOutError",
]


class DataError(LangEnvsError):
    """A table is not available."""

    exit_code: ClassVar[int] = 1


class DataMissingError(DataError, FileNotFoundError):
    """A table is not on this machine."""


class NotServedError(DataError):
    """The service knows no such table or file."""

    exit_code = 3


class ForbiddenError(DataError):
    """The service wants credentials, other credentials, or its rules accepted."""

    exit_code = 4


class ServiceError(DataError):
    """The service failed."""

    exit_code = 5


class TimedOutError(DataError, TimeoutError):
    """The service did not answer in time."""

    exit_code = 6


class OfflineError(DataError, ConnectionError):
    """The service cannot be reached."""

    exit_code = 7


class ChecksumError(DataError):
    """A file is not the one that was expected, or damaged."""

    exit_code = 8


class StorageError(DataError, OSError):
    """The data cannot be written or read here: no space, no permission."""

    exit_code = 9


class InterruptedFetchError(DataError):
    """The connection broke off."""

    exit_code = 10


class TableError(DataError, ValueError):
    """A table without a learnable classification, with the reason."""
