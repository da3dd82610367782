"""Builds the error responses of a real API server: a `Status` object with a code, a reason and details.

Everything below `KubeCore.handle` raises `StatusError`; `handle` turns it into the response. Each function here is
one error, so that its message is written once.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from runyard.embedded.kube.resources import Resource
from runyard.http.messages import Pairs, Response, json_response


class Cause(msgspec.Struct, frozen=True):
    """One invalid field and what is wrong with it."""

    field: str
    message: str
    reason: str = "FieldValueInvalid"


class StatusError(Exception):
    """A refusal of a request."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: dict[str, Any] | None = None,
        *,
        continue_token: str = "",  # where an expired listing can continue
    ) -> None:
        super().__init__(message)
        self.continue_token = continue_token
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.warnings: tuple[str, ...] = ()  # further warnings about the request

    def body(self) -> dict[str, Any]:
        """The `Status` object."""
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {"continue": self.continue_token} if self.continue_token else {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details is not None:
            status["details"] = self.details
        return status | {"code": self.code}

    def response(self) -> Response:
        """The HTTP answer."""
        answer = json_response(self.code, self.body())
        if not self.warnings:
            return answer
        headers = (*answer.headers, *warning_headers(self.warnings))
        return msgspec.structs.replace(answer, headers=headers)


@contextmanager
def warned(warnings: Iterable[str]) -> Iterator[None]:
    """Adds the warnings of a request to a refusal raised inside."""
    try:
        yield
    except StatusError as refusal:
        refusal.warnings = tuple(warnings)
        raise


def warning_headers(warnings: Iterable[str]) -> Pairs:
    """The warning headers."""
    return tuple(("warning", f"299 - {msgspec.json.encode(item).decode()}") for item in warnings)


def success(resource: Resource, name: str, uid: str) -> Response:
    """The answer of a deletion or a binding without an object to return."""
    details = _about(resource, name) | {"uid": uid}
    body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return json_response(200, {**body, "details": details})


def _about(resource: Resource, name: str) -> dict[str, Any]:
    return _details(name, resource.group, resource.plural)


def _details(name: str, group: str, kind: str) -> dict[str, Any]:
    given = {"name": name, "group": group, "kind": kind}
    return {key: value for key, value in given.items() if value}


def _titled(resource: Resource) -> str:
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural


def bad_request(message: str) -> StatusError:
    """The request cannot be parsed."""
    return StatusError(400, "BadRequest", message)


def unauthorized() -> StatusError:
    """The caller is not authenticated."""
    return StatusError(401, "Unauthorized", "Unauthorized")


def forbidden(resource: Resource, name: str, why: str) -> StatusError:
    """The caller is authenticated, and not allowed."""
    message = f'{_titled(resource)} "{name}" is forbidden: {why}'
    return StatusError(403, "Forbidden", message, _about(resource, name))


def not_found(resource: Resource, name: str) -> StatusError:
    """No such object."""
    message = f'{_titled(resource)} "{name}" not found'
    return StatusError(404, "NotFound", message, _about(resource, name))


class NoPage(StatusError):
    """An unknown path; the response is plain text, not a Status."""

    def response(self) -> Response:
        """The HTTP answer: plain text."""
        headers = (("content-type", "text/plain; charset=utf-8"),)
        return Response(status=self.code, headers=headers, body=b"404 page not found\n")


def no_page() -> StatusError:
    """No such group, or no path of an API."""
    return NoPage(404, "NotFound", "404 page not found")


def unknown_path() -> StatusError:
    """No such path."""
    return StatusError(404, "NotFound", "the server could not find the requested resource", {})


def method_not_allowed(method: str) -> StatusError:
    """That path exists, and does not support that method."""
    message = "the server does not allow this method on the requested resource"
    return StatusError(405, "MethodNotAllowed", message, {})


def already_exists(resource: Resource, name: str, *, deleting: bool = False) -> StatusError:
    """An object of that name exists, and may be terminating."""
    message = f'{_titled(resource)} "{name}" already exists'
    if deleting:
        message = f"object is being deleted: {message}"
    return StatusError(409, "AlreadyExists", message, _about(resource, name))


def other_uid(resource: Resource, name: str, wanted: str, found: str) -> StatusError:
    """The uid in a PUT is that of another object of the same name."""
    why = f"Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}"
    return conflict(resource, name, why)


def conflict(resource: Resource, name: str, why: str) -> StatusError:
    """A precondition did not hold."""
    message = f'Operation cannot be fulfilled on {_titled(resource)} "{name}": {why}'
    return StatusError(409, "Conflict", message, _about(resource, name))


def modified(resource: Resource, name: str) -> StatusError:
    """The client has an older version."""
    why = "the object has been modified; please apply your changes to the latest version"
    return conflict(resource, name, f"{why} and try again")


def delete_conflict(resource: Resource, name: str, why: str) -> StatusError:
    """A precondition of a deletion did not hold."""
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    message = f'Operation cannot be fulfilled on {kind} "{name}": {why}'
    return StatusError(409, "Conflict", message, _details(name, resource.group, resource.kind))


def apply_conflict(causes: list[Cause]) -> StatusError:
    """Other managers own what an apply would change."""
    if len(causes) == 1:
        given = f"Apply failed with 1 conflict: {causes[0].message}: {causes[0].field}"
    else:
        lines: list[str] = []
        for manager in dict.fromkeys(cause.message for cause in causes):
            lines.append(manager.replace("conflict with", "conflicts with", 1) + ":")
            lines += [f"- {cause.field}" for cause in causes if cause.message == manager]
        given = f"Apply failed with {len(causes)} conflicts: " + "\n".join(lines)
    return StatusError(409, "Conflict", given, {"causes": msgspec.to_builtins(causes)})


def expired(requested: int, oldest: int) -> StatusError:
    """History no longer reaches back that far: list again."""
    return StatusError(410, "Expired", f"too old resource version: {requested} ({oldest})")


def list_expired() -> StatusError:
    """History no longer reaches back to the version that a list requests."""
    message = "The resourceVersion for the provided list is too old."
    return StatusError(410, "Expired", message)


def page_expired(continue_token: str) -> StatusError:
    """A listing took longer than history reaches back; `continue_token` continues inconsistently."""
    message = (
        "The provided continue parameter is too old to display a consistent list result. You can start a new list "
        "without the continue parameter, or use the continue token in this response for the rest of the results, "
        "which then may not fit to those that you have."
    )
    return StatusError(410, "Expired", message, continue_token=continue_token)


def version_too_large(requested: int, current: int) -> StatusError:
    """The client's version is newer than this server's."""
    message = f"Timeout: Too large resource version: {requested}, current: {current}"
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    return StatusError(504, "Timeout", message, {"causes": causes, "retryAfterSeconds": 1})


def bad_version(text: str, *, listing: bool = False) -> StatusError:
    """The version is not a number. Only a list answers with a client error."""
    message = f'resourceVersion: Invalid value: "{text[:64]}": strconv.ParseUint: invalid syntax'
    if listing:
        return bad_request(f"invalid resource version: {message}")
    return StatusError(500, "", message)


def body_too_large(limit: int) -> StatusError:
    """The body is larger than the limit."""
    return StatusError(413, "RequestEntityTooLarge", f"limit is {limit} bytes")


def unsupported_media(kind: str, accepted: Iterable[str]) -> StatusError:
    """The content type of the body is not supported."""
    message = "the body of the request was in an unknown format - accepted media types include: "
    return StatusError(415, "UnsupportedMediaType", message + ", ".join(accepted))


def unsupported_patch() -> StatusError:
    """The patch type is unknown."""
    return StatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})


def not_acceptable(available: Iterable[str]) -> StatusError:
    """The requested content type of the answer is not supported."""
    message = "406: Not Acceptable\n\nAvailable representations: " + ", ".join(available)
    return StatusError(406, "NotAcceptable", message, {})


def unprocessable() -> StatusError:
    """A patch that does not apply to this object."""
    message = "the server rejected our request due to an error in our request"
    return StatusError(422, "Invalid", message, {})


def invalid(resource: Resource, name: str, causes: Iterable[Cause]) -> StatusError:
    """The object breaks a rule; the causes say which fields."""
    titled = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    return _invalid(titled, _details(name, resource.group, resource.kind), name, causes)


def other_kind(resource: Resource, name: str, kind: str) -> StatusError:
    """An object of a custom kind names another kind."""
    cause = Cause("kind", f'Invalid value: "{kind}": must be {resource.kind}')
    about = _details(name, resource.group, kind)
    return _invalid(f"{kind}.{resource.group}", about, name, [cause])


def version_required(resource: Resource, name: str) -> StatusError:
    """A PUT of this kind must name the version that it replaces."""
    why = "Invalid value: 0: must be specified for an update"
    cause = Cause("metadata.resourceVersion", why)
    return _invalid(_titled(resource), _about(resource, name), name, [cause])


def invalid_options(kind: str, causes: Iterable[Cause]) -> StatusError:
    """The parameters of a request break a rule."""
    details = {"group": "meta.k8s.io", "kind": kind}
    return _invalid(f"{kind}.meta.k8s.io", details, "", causes)


def invalid_log(pod: str, causes: Iterable[Cause]) -> StatusError:
    """The options of a log request are invalid."""
    details = {"name": pod, "kind": "PodLogOptions"}
    return _invalid("PodLogOptions", details, pod, causes)


def invalid_patch(value: str, why: str) -> StatusError:
    """The result of a patch cannot be read as an object."""
    cause = Cause("patch", f"Invalid value: {value}: {why}")
    return _invalid("", {}, "", [cause])


def _invalid(
    titled: str, details: dict[str, Any], name: str, causes: Iterable[Cause]
) -> StatusError:
    listed = tuple(causes)
    given = list(dict.fromkeys(f"{cause.field}: {cause.message}" for cause in listed))
    text = given[0] if len(given) == 1 else f"[{', '.join(given)}]"
    details = details | {"causes": msgspec.to_builtins(listed)}
    return StatusError(422, "Invalid", f'{titled} "{name}" is invalid: {text}', details)


def failed(why: str) -> StatusError:
    """The server cannot compute the response."""
    details = {"causes": [{"message": why}]}
    return StatusError(500, "InternalError", f"Internal error occurred: {why}", details)


def internal() -> StatusError:
    """An unexpected exception in this server."""
    return StatusError(500, "InternalError", "internal error of the embedded Kubernetes API")


def not_persisted(why: str, *, full: bool) -> StatusError:
    """The write to disk failed, so the batch was rolled back."""
    message = f"nothing was written: {why}"
    if full:
        return StatusError(507, "InsufficientStorage", message)
    return StatusError(500, "InternalError", message)


def stopped(why: str) -> StatusError:
    """This server stops because its disk failed, or the client has disconnected."""
    return StatusError(503, "ServiceUnavailable", f"the embedded Kubernetes API is stopping: {why}")


def not_ready(loops: Iterable[str]) -> StatusError:
    """Requests are answered, but the controllers do not run."""
    return StatusError(503, "ServiceUnavailable", f"no recent success of: {', '.join(loops)}")


def not_served(what: str) -> StatusError:
    """Kubernetes has it; the embedded API does not."""
    message = f"the embedded Kubernetes API does not serve {what}"
    return StatusError(501, "NotImplemented", message)
