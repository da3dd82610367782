"""Reads request bodies within limits of size and total memory.

A body is read whole before its handler is called, so without limits clients would decide what is in memory. Invariants:
- A body over `limit` is refused, before it is read if its length is announced.
- Small bodies (`SMALL`) are taken from every client. For larger ones the server may require authentication first
  (`Admit`): an unknown client is refused after the headers, or once its body turns out not to be small.
- All bodies that are not small hold at most `budget` bytes together, from their first byte until their request is
  answered; a body that would exceed that is refused at once with a 503. Bytes are counted as they arrive, not as they
  are announced, so a client cannot reserve memory with an announcement.
- A body that arrives below the least rate is refused (`pace`), whichever way it is read. A body that is read whole also
  has a deadline, because it holds memory that others wait for; at the least rate alone a large one could take minutes.
- A streamed body holds only the buffer between the socket and its reader, because the sender waits for the reader. A
  client that expects `100 Continue` gets it at the first read, so a refusal by the headers transfers no body. The
  reader sets its limit.
"""

from collections.abc import AsyncIterator, Callable

from aiohttp import hdrs, web
from aiohttp.web_protocol import RequestPayloadError

from runyard.clock import Clock
from runyard.http.messages import Request, Response
from runyard.http.pace import LeastRate, Pace, TooSlow
from runyard.http.problems import problem
from runyard.wire.problem_codes import ProblemCode

SMALL = 64 << 10
BUDGET = 64 << 20

# Both are called with a request without its body.
Admit = Callable[[Request], Response | None]  # None: the client may send the body
Streamed = Callable[[Request], bool]  # whether the handler reads the body as it arrives


class Refusal(Exception):
    """The request is refused before its handler is called; `answer` is the response."""

    def __init__(self, answer: Response) -> None:
        super().__init__(answer.status)
        self.answer = answer


class Intake:
    """Reads the bodies of one server within its limits."""

    def __init__(
        self,
        *,
        limit: int,
        budget: int,
        timeout: float,
        least: LeastRate,
        clock: Clock,
        admit: Admit | None,
    ) -> None:
        self.held = 0  # bytes of bodies that are not small
        self._limit = limit
        self._budget = max(budget, limit)
        self._timeout = timeout
        self._least = least
        self._clock = clock
        self._admit = admit

    async def read(self, incoming: web.BaseRequest, head: Request, share: "Share") -> bytes:
        """Read the request's body into its share of the budget; raises `Refusal`."""
        announced = incoming.content_length or 0
        if announced > self._limit:
            raise self._too_large()
        admitted = announced > SMALL
        if admitted:
            self._check_admission(head)
        await _send_continue(incoming)
        parts: list[bytes] = []
        size = 0
        pace = Pace(self._least)
        try:
            async with self._clock.timeout(self._timeout):
                while part := await self._next(incoming, pace):
                    size += len(part)
                    if size > self._limit:
                        raise self._too_large()
                    if size > SMALL:
                        if not admitted:
                            self._check_admission(head)
                            admitted = True
                        share.hold(size)
                    parts.append(part)
        except TooSlow:
            raise Refusal(self._too_slow()) from None
        except TimeoutError:
            raise Refusal(problem(408, ProblemCode.BODY_LATE)) from None
        except (RequestPayloadError, web.HTTPException):
            raise Refusal(problem(400, ProblemCode.BODY_MALFORMED)) from None
        return b"".join(parts)

    async def pieces(self, incoming: web.BaseRequest) -> AsyncIterator[bytes]:
        """Yield the body as it arrives; raises `ConnectionError` if it is cut off, `TooSlow` below the least rate."""
        await _send_continue(incoming)
        pace = Pace(self._least)
        while True:
            try:
                part = await self._next(incoming, pace)
            except (RequestPayloadError, web.HTTPException):
                raise ConnectionError("the body broke off, or is malformed") from None
            if not part:
                return
            yield part

    async def _next(self, incoming: web.BaseRequest, pace: Pace) -> bytes:
        """Read what has arrived, or wait for it as long as the client's pace allows; empty at the end."""
        began = self._clock.monotonic()
        try:
            async with self._clock.timeout(min(self._timeout, pace.allowed())):
                part = await incoming.content.readany()
        except TimeoutError:
            # If this process was held up, the bytes may have arrived together with the deadline.
            part = incoming.content.read_nowait()
            if not part and not incoming.content.at_eof():
                raise TooSlow("the body arrives below the least rate") from None
        pace.passed(len(part), self._clock.monotonic() - began)
        return part

    def claim(self, more: int) -> None:
        """Reserve more bytes; raises `Refusal` if that exceeds the budget."""
        if self.held + more > self._budget:
            busy = problem(503, ProblemCode.SERVER_BUSY, fix="try again later")
            headers = (*busy.headers, ("retry-after", "1"))
            raise Refusal(Response(status=503, headers=headers, body=busy.body))
        self.held += more

    def _check_admission(self, head: Request) -> None:
        refused = self._admit(head) if self._admit is not None else None
        if refused is not None:
            raise Refusal(refused)

    def _too_slow(self) -> Response:
        reason = f"less than {self._least.rate:.0f} bytes per second for {self._least.grace:.0f} s"
        return problem(408, ProblemCode.BODY_SLOW, reason=reason)

    def _too_large(self) -> Refusal:
        reason = f"at most {self._limit} bytes are accepted"
        return Refusal(problem(413, ProblemCode.BODY_TOO_LARGE, reason=reason))


async def _send_continue(incoming: web.BaseRequest) -> None:
    """Send `100 Continue` to a client that expects it."""
    if incoming.headers.get(hdrs.EXPECT, "").lower() == "100-continue":
        await incoming.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        incoming.writer.output_size = 0  # the answer itself has not begun


class Share:
    """The part of the memory budget that one request holds."""

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self._held = 0

    def hold(self, size: int) -> None:
        """Set the total of reserved bytes; raises `Refusal` if that exceeds the budget."""
        self._intake.claim(size - self._held)
        self._held = size

    def free(self) -> None:
        """Release all reserved bytes."""
        self._intake.held -= self._held
        self._held = 0
