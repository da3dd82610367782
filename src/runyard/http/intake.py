"""Bodies of requests on their way in: what a server holds of them before anybody has looked at one.

A body is read whole before its handler is asked, so whoever sends bodies decides what lies in memory. Invariants:
- A body over `limit` is refused, before it is read if its length is told.
- Small bodies (`SMALL`) are taken from everybody. For the rest, whoever serves may ask first who it is that sends them
  (`Admit`): a stranger is refused at the head of a request, or once its body turns out not to be small.
- All bodies that are not small hold at most `budget` bytes together, from their first byte until their request is
  answered; what would pass that is refused with a 503, at once. Bytes are counted as they come, not as they are
  announced, so nobody can book what they do not send.
- A body that trickles is refused when patience ends.
- A body that is streamed costs what lies between the socket and its reader, whatever its size: the sender waits for
  the reader. It is asked for when it is first read: who refuses by the head has none of it. Its limit is the reader's.
"""

import asyncio
from collections.abc import AsyncIterator, Callable

from aiohttp import hdrs, web
from aiohttp.web_protocol import RequestPayloadError

from runyard.http.messages import Request, Response
from runyard.http.problems import problem

SMALL = 64 << 10
BUDGET = 64 << 20

Admit = Callable[[Request], Response | None]  # of a request without its body; None: it may send it
Streamed = Callable[[Request], bool]  # likewise; whether its handler reads the body as it comes


class Refusal(Exception):
    """The request cannot be handed to the handler; `answer` says why."""

    def __init__(self, answer: Response) -> None:
        super().__init__(answer.status)
        self.answer = answer


class Intake:
    """What one server takes in."""

    def __init__(self, *, limit: int, budget: int, patience: float, admit: Admit | None) -> None:
        self.held = 0  # bytes of bodies that are not small
        self._limit = limit
        self._budget = max(budget, limit)
        self._patience = patience
        self._admit = admit

    async def read(self, incoming: web.BaseRequest, head: Request, share: "Share") -> bytes:
        """The body of that request, at the expense of the share; raises `Refusal`."""
        told = incoming.content_length or 0
        if told > self._limit:
            raise self._too_large()
        asked = told > SMALL
        if asked:
            self._ask(head)
        await _go_on(incoming)
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._patience):
                while part := await incoming.content.readany():
                    size += len(part)
                    if size > self._limit:
                        raise self._too_large()
                    if size > SMALL:
                        if not asked:
                            self._ask(head)
                            asked = True
                        share.hold(size)
                    parts.append(part)
        except TimeoutError:
            raise Refusal(problem(408, "the body did not arrive in time")) from None
        except (RequestPayloadError, web.HTTPException):
            raise Refusal(problem(400, "the body is malformed")) from None
        return b"".join(parts)

    async def pieces(self, incoming: web.BaseRequest) -> AsyncIterator[bytes]:
        """The body as it comes; `ConnectionError` if it breaks off, `TimeoutError` if no more comes."""
        await _go_on(incoming)
        while True:
            try:
                async with asyncio.timeout(self._patience):
                    part = await incoming.content.readany()
            except (RequestPayloadError, web.HTTPException):
                raise ConnectionError("the body broke off, or is malformed") from None
            if not part:
                return
            yield part

    def claim(self, more: int) -> None:
        """Hold that many bytes more; raises `Refusal` if that would be too many."""
        if self.held + more > self._budget:
            busy = problem(503, "the server is busy with other bodies", fix="try again later")
            headers = (*busy.headers, ("retry-after", "1"))
            raise Refusal(Response(status=503, headers=headers, body=busy.body))
        self.held += more

    def _ask(self, head: Request) -> None:
        refused = self._admit(head) if self._admit is not None else None
        if refused is not None:
            raise Refusal(refused)

    def _too_large(self) -> Refusal:
        reason = f"at most {self._limit} bytes are accepted"
        return Refusal(problem(413, "the body is too large", reason=reason))


async def _go_on(incoming: web.BaseRequest) -> None:
    """Say that the body is wanted, to a client that waits for that."""
    if incoming.headers.get(hdrs.EXPECT, "").lower() == "100-continue":
        await incoming.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        incoming.writer.output_size = 0  # the answer itself has not begun


class Share:
    """What one request holds of the budget."""

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self._held = 0

    def hold(self, size: int) -> None:
        """Hold that many bytes in all; raises `Refusal`."""
        self._intake.claim(size - self._held)
        self._held = size

    def free(self) -> None:
        """Give them back."""
        self._intake.held -= self._held
        self._held = 0
