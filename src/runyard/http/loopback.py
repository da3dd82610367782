"""A transport that calls a handler in the same process."""

import asyncio

from runyard.http.errors import OutcomeUnknown
from runyard.http.messages import Handler, Request, Response, Stream, Upgraded
from runyard.http.problems import problem
from runyard.wire.problem_codes import ProblemCode


class Loopback:
    """Sends requests to a handler by calling it, without faults; the simulator has a transport with faults."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    async def send(self, request: Request, *, timeout: float) -> Response | Stream:
        """Call the handler; a handler slower than `timeout` is an unknown outcome."""
        try:
            async with asyncio.timeout(timeout):
                answer = await self._handler(request)
        except TimeoutError:
            raise OutcomeUnknown(f"no answer to {request.method} {request.path}") from None
        if isinstance(answer, Upgraded):
            await answer.aclose()
            return problem(501, ProblemCode.NO_CONNECTION)
        return answer
