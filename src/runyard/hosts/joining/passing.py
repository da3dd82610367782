"""Passes a request on to another server, and its answer back.

Invariants:
- Only the listed headers are passed on, in both directions; an upgrade is not, so no connection is handed over.
- An answer that is a stream is passed on as it arrives. When the client disconnects, so does the request.
- Nothing is repeated here. 503 says that the request was not sent, 504 that its outcome is unknown.
"""

import msgspec

from runyard.http.errors import NotSent, TransportError
from runyard.http.messages import Request, Response, Stream, Transport
from runyard.http.problems import problem
from runyard.wire.problem_codes import ProblemCode

Answer = Response | Stream

POLL_WITHIN = 120.0  # the longest poll is shorter
_TO_PASS = ("authorization", "content-type", "accept", "prefer", "user-agent")
_TO_RETURN = ("content-type", "retry-after", "warning")


class Upstream(msgspec.Struct, frozen=True, kw_only=True):
    """A server to pass requests on to, its name for people, and seconds until its answer begins."""

    what: str
    transport: Transport
    within: float = POLL_WITHIN


async def passed(request: Request, upstream: Upstream) -> Answer:
    """The answer of that server to this request."""
    again = Request(
        method=request.method,
        path=request.path,
        query=request.query,
        headers=tuple(pair for pair in request.headers if pair[0] in _TO_PASS),
        body=request.body,
    )
    try:
        answer = await upstream.transport.send(again, timeout=upstream.within)
    except TransportError as error:
        status = 503 if isinstance(error, NotSent) else 504
        return problem(status, ProblemCode.CONTROL_PLANE_AWAY, what=upstream.what)
    headers = tuple(pair for pair in answer.headers if pair[0] in _TO_RETURN)
    if isinstance(answer, Response):
        return msgspec.structs.replace(answer, headers=headers)
    return Stream(aiter(answer), status=answer.status, headers=headers, on_close=answer.close)
