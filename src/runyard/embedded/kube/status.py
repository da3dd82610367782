"""Refusals, as Kubernetes words them: a `Status` object with a code, a reason and details.

Everything below `KubeCore.handle` refuses by raising `StatusError`; `handle` turns it into the
answer. Each function here is one refusal, so that the wording of a reason exists once.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from runyard.embedded.kube.resources import Resource
from runyard.http.messages import Response, json_response


class Cause(msgspec.Struct, frozen=True):
    """One invalid field and what is wrong with it."""

    field: str
    message: str
    reason: str = "FieldValueInvalid"


class StatusError(Exception):
    """A refusal on its way to the client."""

    def __init__(
        self, code: int, reason: str, message: str, details: dict[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details

    def body(self) -> dict[str, Any]:
        """The `Status` object."""
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        }
        if self.details:
            status["details"] = self.details
        return status

    def response(self) -> Response:
        """The HTTP answer."""
        return json_response(self.code, self.body())


def success(resource: Resource, name: str, uid: str) -> Response:
    """What a deletion or a binding answers when nothing else is left to show."""
    details = {"name": name, "group": resource.group, "kind": resource.plural, "uid": uid}
    body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return json_response(200, {**body, "details": details})


def _about(resource: Resource, name: str) -> dict[str, Any]:
    return {"name": name, "group": resource.group, "kind": resource.plural}


def _titled(resource: Resource) -> str:
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural


def bad_request(message: str) -> StatusError:
    """The request itself cannot be read."""
    return StatusError(400, "BadRequest", message)


def unauthorized() -> StatusError:
    """Nobody we know."""
    return StatusError(401, "Unauthorized", "Unauthorized")


def forbidden(resource: Resource, name: str, why: str) -> StatusError:
    """Known, and not allowed."""
    message = f'{_titled(resource)} "{name}" is forbidden: {why}'
    return StatusError(403, "Forbidden", message, _about(resource, name))


def not_found(resource: Resource, name: str) -> StatusError:
    """No such object."""
    message = f'{_titled(resource)} "{name}" not found'
    return StatusError(404, "NotFound", message, _about(resource, name))


def unknown_path() -> StatusError:
    """No such path."""
    return StatusError(404, "NotFound", "the server could not find the requested resource")


def method_not_allowed(method: str) -> StatusError:
    """That path exists; that method does not, there."""
    message = f"the server does not allow {method} on the requested resource"
    return StatusError(405, "MethodNotAllowed", message)


def already_exists(resource: Resource, name: str) -> StatusError:
    """A create met an object of that name."""
    message = f'{_titled(resource)} "{name}" already exists'
    return StatusError(409, "AlreadyExists", message, _about(resource, name))


def conflict(resource: Resource, name: str, why: str, causes: Iterable[Cause] = ()) -> StatusError:
    """A precondition did not hold, or another manager owns the field."""
    message = f'Operation cannot be fulfilled on {_titled(resource)} "{name}": {why}'
    details = _about(resource, name)
    if listed := msgspec.to_builtins(list(causes)):
        details["causes"] = listed
    return StatusError(409, "Conflict", message, details)


def expired(asked: int, oldest: int) -> StatusError:
    """History no longer reaches back that far: list again."""
    return StatusError(410, "Expired", f"too old resource version: {asked} ({oldest})")


def version_too_large(asked: int, current: int) -> StatusError:
    """The client is ahead of this server."""
    message = f"Too large resource version: {asked}, current: {current}"
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    return StatusError(504, "Timeout", message, {"causes": causes, "retryAfterSeconds": 1})


def body_too_large(limit: int) -> StatusError:
    """More than this server wants to hold."""
    return StatusError(413, "RequestEntityTooLarge", f"limit is {limit} bytes")


def unsupported_media(kind: str, accepted: Iterable[str]) -> StatusError:
    """A body in a language this server does not read."""
    message = f"the body of the request was in an unknown format {kind!r}; accepted: "
    return StatusError(415, "UnsupportedMediaType", message + ", ".join(accepted))


def invalid(resource: Resource, name: str, causes: Iterable[Cause]) -> StatusError:
    """The object breaks a rule; the causes say which fields."""
    listed = tuple(causes)
    details = _about(resource, name) | {
        "kind": resource.kind,
        "causes": msgspec.to_builtins(listed),
    }
    told = ", ".join(f"{cause.field}: {cause.message}" for cause in listed)
    message = f'{resource.kind} "{name}" is invalid: {told}'
    return StatusError(422, "Invalid", message, details)


def internal() -> StatusError:
    """A defect of this server."""
    return StatusError(500, "InternalError", "internal error of the embedded Kubernetes API")


def not_kept(why: str, *, full: bool) -> StatusError:
    """The disk refused the write, so it was taken back as a whole."""
    message = f"nothing was written: {why}"
    if full:
        return StatusError(507, "InsufficientStorage", message)
    return StatusError(500, "InternalError", message)


def stopped(why: str) -> StatusError:
    """This server no longer trusts its disk and is about to end."""
    return StatusError(503, "ServiceUnavailable", f"the embedded Kubernetes API is stopping: {why}")


def not_ready(loops: Iterable[str]) -> StatusError:
    """Requests are answered, and what should happen by itself does not."""
    return StatusError(503, "ServiceUnavailable", f"no recent success of: {', '.join(loops)}")


def not_served(what: str) -> StatusError:
    """Kubernetes has it; the embedded API does not, and says so."""
    message = f"the embedded Kubernetes API does not serve {what}"
    return StatusError(501, "NotImplemented", message)
