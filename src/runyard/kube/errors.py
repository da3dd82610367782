"""Errors of the Kubernetes API, by what the caller should do next.

    KubeError(status, reason, message)
    ├── NotFound        404  the object is not there: success for a delete, proof for "gone"
    ├── AlreadyExists   409  the name exists already: read it and compare
    ├── Conflict        409  a precondition failed: the plan is stale, read again and plan again
    │                   422  the same, where a patch named the uid of an object that is no longer there
    ├── Gone            410  that resourceVersion is compacted: list again
    ├── Invalid         400/405/415/422, or refused before sending: repeating gives the same result
    ├── Unauthorized    401  our identity was not accepted
    ├── Forbidden       403  our identity may not do this
    ├── Throttled       429  later
    └── ServerFailed    5xx, or an answer that cannot be read: the outcome is unknown

Any of them may have `retry_after`, in seconds: from the header, or from the `Status` object (an error inside of a watch
has no header). The value is untrusted, so callers must bound it.

Transport errors (`http.errors.NotSent`, `OutcomeUnknown`) are no answers at all and pass through the
client unchanged. Messages never hold a request body: it may carry a token.
"""

import msgspec

from runyard.http.messages import Response


class KubeError(Exception):
    """The API refused the request."""

    def __init__(self, status: int, reason: str, message: str, *, retry_after: float = 0.0) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after  # seconds; zero if the server sent none


class NotFound(KubeError):
    """No such object (or no such resource)."""


class AlreadyExists(KubeError):
    """An object of that name is there already."""


class Conflict(KubeError):
    """A precondition (uid, resourceVersion) or a field ownership did not hold."""


class Gone(KubeError):
    """The resourceVersion or the continue token is too old."""


class Invalid(KubeError):
    """The request itself is wrong; repeating it is useless."""


class Unauthorized(KubeError):
    """The credentials were not accepted."""


class Forbidden(KubeError):
    """These credentials may not do that."""


class Throttled(KubeError):
    """Too many requests."""


class ServerFailed(KubeError):
    """The server failed, or its answer cannot be read."""


class Cause(msgspec.Struct, frozen=True):
    """One field that a refusal is about."""

    field: str | None = None


class Details(msgspec.Struct, frozen=True, rename="camel"):
    """What a refusal is about."""

    causes: list[Cause] | None = None
    retry_after_seconds: int | None = None


class Status(msgspec.Struct, frozen=True):
    """The `Status` object that the API sends with every refusal; any field may be missing."""

    code: int | None = None
    reason: str | None = None
    message: str | None = None
    details: Details | None = None

    @property
    def other_uid(self) -> bool:
        """Whether a patch named the uid of another object: the API reports an immutable field with 422."""
        causes = (self.details and self.details.causes) or []
        return any(cause.field == "metadata.uid" for cause in causes)

    @property
    def wait(self) -> float:
        """The server's Retry-After in seconds; zero if it sent none."""
        seconds = self.details.retry_after_seconds if self.details is not None else None
        return float(max(0, seconds or 0))


_BY_STATUS: dict[int, type[KubeError]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    405: Invalid,
    409: Conflict,
    410: Gone,
    415: Invalid,
    422: Invalid,
}
_STATUS_DECODER = msgspec.json.Decoder(Status)


def error_for(response: Response, *, what: str) -> KubeError:
    """The error that an unsuccessful response means; `what` names the request for the message."""
    try:
        status = _STATUS_DECODER.decode(response.body)
    except msgspec.MsgspecError:
        status = Status()
    wait = _seconds(response.header("retry-after"))
    return error_of(status, code=response.status, what=what, retry_after=wait)


def error_of(status: Status, *, code: int, what: str, retry_after: float = 0.0) -> KubeError:
    """The error that a `Status` means, whether it came as an answer or inside of a watch."""
    kind, usual = _meaning(status, code)
    message = f"{what}: {status.message}" if status.message else what
    wait = retry_after or status.wait
    return kind(code, status.reason or usual, message, retry_after=wait)


def _meaning(status: Status, code: int) -> tuple[type[KubeError], str]:
    """The kind of error, and its reason if the server gave none."""
    if code == 429:
        return Throttled, "TooManyRequests"
    if code == 409 and status.reason == "AlreadyExists":
        return AlreadyExists, status.reason
    if code == 422 and status.other_uid:
        return Conflict, "Invalid"
    if code == 410 or status.reason in {"Expired", "Gone"}:
        return Gone, "Gone"
    if code >= 500:
        return ServerFailed, "InternalError"
    kind = _BY_STATUS.get(code, KubeError)
    return kind, kind.__name__


def _seconds(text: str) -> float:
    return float(text) if text.isdecimal() else 0.0
