"""The refusals of node calls, with the messages of a real server."""

from runyard.embedded.kube.nodeproxy.calls import NodeCall
from runyard.embedded.kube.status import StatusError
from runyard.http.errors import NotSent
from runyard.http.exchange import Fault, NotConnected
from runyard.http.messages import Response

_KIND = "pods/log"
_UNKNOWN = "the server responded with the status code {} but did not return more information"
_MESSAGES = {  # for the status codes of a node
    401: ("Unauthorized", "the server has asked for the client to provide credentials"),
    403: ("Forbidden", "{given}"),
    404: ("NotFound", "the server could not find the requested resource"),
    405: (
        "MethodNotAllowed",
        "the server does not allow this method on the requested resource",
    ),
    429: ("TooManyRequests", "{given}"),
    503: ("ServiceUnavailable", "{given}"),
    504: (
        "Timeout",
        "the server was unable to return a response in the time allotted, but may still be processing the request",
    ),
}
_MAX_TEXT = 2048


def too_many(what: str) -> Response:
    """Too many calls at a time."""
    message = f"Too many requests: {what} are open, please try again later."
    refusal = StatusError(429, "TooManyRequests", message, {"retryAfterSeconds": 1}).response()
    return Response(status=429, headers=(*refusal.headers, ("retry-after", "1")), body=refusal.body)


def dial_failed(call: NodeCall, url: str, address: str, error: NotSent) -> Response:
    """The node cannot be reached."""
    given = f"dial tcp {address}: {error}"
    if isinstance(error, NotConnected):
        if error.fault is Fault.TLS:
            given = str(error)
        elif error.fault is Fault.HOST:
            given = f"dial tcp: lookup {call.host}: {error}"
        elif error.fault is Fault.PORT:
            given = f"dial tcp: address {call.port}: {error}"
    message = f'Get "{url}": {given}' if call.what == "log" else f"error dialing backend: {given}"
    return StatusError(500, "", message).response()


def unanswered(call: NodeCall, url: str, why: str) -> Response:
    """The node was reached and did not answer."""
    if call.what == "log":
        return StatusError(500, "", f'Get "{url}": {why}').response()
    return _internal(why)


def log_refused(call: NodeCall, answer: Response) -> Response:
    """The node has no such log."""
    given = answer.body[:_MAX_TEXT].decode(errors="replace")
    if answer.status == 400:
        return StatusError(400, "BadRequest", given).response()
    if answer.status == 500:
        return _internal(given)
    reason, text = _MESSAGES.get(answer.status, ("", _UNKNOWN.format(answer.status)))
    if not reason and answer.status >= 500:
        shown = given.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
        reason = "InternalError"
        text = f'an error on the server ("{shown}") has prevented the request from succeeding'
    message = f"{text.replace('{given}', given)} ( {_KIND} {call.pod})"
    details = {"name": call.pod, "kind": _KIND}
    return StatusError(answer.status, reason, message, details).response()


def _internal(why: str) -> Response:
    message = f"Internal error occurred: {why}"
    return StatusError(500, "InternalError", message, {"causes": [{"message": why}]}).response()
