"""What an exception of a client means, in words with a fix."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus

from lang_envs.datasets import errors
from lang_envs.datasets.manifest import Manifest, Service
from lang_envs.datasets.plain import printable
from lang_envs.datasets.wire import Wire

__all__ = ["explain"]


def explain(error: BaseException, wanted: Manifest, wire: Wire) -> errors.DataError:
    """What an exception of a client means."""
    if isinstance(error, errors.DataError):
        return error
    names = {kind.__name__ for one in _chain(error) for kind in type(one).__mro__}
    status = _status(error, wire)
    service, what = wanted.service.label, f"the {wanted.name} table"
    if "OpenMLHashException" in names or "BadZipFile" in names:
        return errors.ChecksumError(
            f"Expected {what} from {service} with the checksum that it states; got other bytes, and kept none of them. "
            f"Fix: fetch again; if that does not help, download {wanted.file!r} from {wanted.page} and use --from."
        )
    # first: to urllib3 a connection that cannot be made is one that timed out
    if names & {"NewConnectionError", "NameResolutionError", "ProxyError", "SSLError", "MissingSchema", "InvalidURL"}:
        return errors.OfflineError(
            f"Expected to reach {service} for {what}; got {_innermost(error)}. Fix: connect to the network, set "
            f"HTTPS_PROXY if yours needs it, or download {wanted.file!r} from {wanted.page} and use --from."
        )
    if names & {"ReadTimeout", "ReadTimeoutError", "ConnectTimeout", "ConnectTimeoutError", "TimeoutError"}:
        return errors.TimedOutError(
            f"Expected {what} from {service}; it said nothing for {wire.timeout:g} s. Fix: fetch again, which goes on "
            f"where this stopped, or with a longer --timeout."
        )
    if names & {"TooManyRedirects", "InvalidSchema", "KeyError", "ExpatError"} and (status or 200) < 400:
        return errors.ServiceError(
            f"Expected {what} from {service}; got something else (a login page?). Fix: look at {wanted.page} with a "
            f"browser on this machine."
        )
    if status is not None and status >= 400:
        return _explain_status(status, error, wanted)
    if isinstance(error, OSError) or names & {"ProtocolError", "ChunkedEncodingError", "IncompleteRead"}:
        return errors.InterruptedFetchError(
            f"Expected {what} from {service}; the connection broke off ({_innermost(error)}). Fix: fetch again, which "
            f"goes on where this stopped."
        )
    return errors.DataError(
        f"Expected {what} from {service}; its client failed with {type(error).__name__}: {_innermost(error)}. "
        f"Fix: download {wanted.file!r} from {wanted.page} and use --from."
    )


def _explain_status(status: int, error: BaseException, wanted: Manifest) -> errors.DataError:
    service, told = wanted.service.label, f"status {status} ({_phrase(status, error)})"
    if status in (401, 403):
        rules = ""
        if wanted.service is Service.KAGGLE_COMPETITION:
            rules = f"accept the rules of the competition at {wanted.page.removesuffix('/data')}/rules, and "
        keys = "~/.kaggle/kaggle.json or KAGGLE_USERNAME and KAGGLE_KEY" if service == "Kaggle" else "openml's apikey"
        return errors.ForbiddenError(
            f"Expected to be let in by {service} for the {wanted.name} table; got {told}. "
            f"Fix: {rules}check your credentials ({keys}), or download {wanted.file!r} from {wanted.page} and use "
            f"--from."
        )
    if status in (404, 410, 412):  # 412 is how OpenML says that it knows no such number
        return errors.NotServedError(
            f"Expected {service} to serve {wanted.id}; got {told}. "
            f"Fix: see {wanted.page}; if it has moved, download {wanted.file!r} and use --from."
        )
    return errors.ServiceError(f"Expected the {wanted.name} table from {service}; got {told}. Fix: try again later.")


def _status(error: BaseException, wire: Wire) -> int | None:
    """The status that an exception is about: its own, or the last one where the client keeps it to itself."""
    for one in _chain(error):
        response = getattr(one, "response", None)
        for holder, name in ((one, "status_code"), (one, "_code"), (response, "status_code"), (response, "status")):
            status = getattr(holder, name, None)
            if isinstance(status, int) and 100 <= status < 600:
                return status
    return wire.status


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An exception and what it was raised from or wraps."""
    seen: list[BaseException] = []
    waiting: list[object] = [error]
    while waiting:
        one = waiting.pop(0)
        if isinstance(one, BaseException) and one not in seen:
            seen.append(one)
            waiting += [one.__cause__, one.__context__, getattr(one, "reason", None), *one.args]
            yield one


def _phrase(status: int, error: BaseException) -> str:
    """What the service said with a status, or what the status means."""
    said = printable(" ".join(str(error).split()))
    if (
        said
        and " for url: " not in said
        and type(error).__name__ in ("HTTPError", "OpenMLServerException", "OpenMLServerNoResult")
    ):
        return said[:200]
    return HTTPStatus(status).phrase if status in {one.value for one in HTTPStatus} else "unknown"


def _innermost(error: BaseException) -> str:
    said = [str(one) for one in _chain(error) if str(one)]
    return printable(" ".join(min(said, key=len).split()))[:200] if said else type(error).__name__
