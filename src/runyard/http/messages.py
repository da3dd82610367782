"""Types for HTTP requests, responses, streams, handlers and transports.

The embedded Kubernetes API, the practice GitHub and the dispatch server's internal API are *cores*:
`handle(request) -> Response | Stream`. An adapter puts a core behind a socket; the simulator puts it
behind a loopback with faults. The clients in `kube` and `github` use a `Transport`, which is either of these.

Invariants:
- Header names are lower case. Query parameters keep their order and are already decoded.
- `path` is the decoded path without the query string and starts with `/`.
- A handler never raises; it returns a status code for every request.
- A body is complete before its handler is called, unless the server streams such requests: then `body` is empty and
  `content` yields it once, as it arrives; it raises `ConnectionError` if the sender disconnects.
"""

from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol

import msgspec

Pairs = tuple[tuple[str, str], ...]


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One HTTP request."""

    method: str
    path: str
    query: Pairs = ()
    headers: Pairs = ()
    body: bytes = b""
    content: AsyncIterator[bytes] | None = None
    client: str = ""
    """The address that the request came from, at a server on a socket; empty elsewhere."""
    may_send: Callable[[], bool] | None = None
    """Called by a client just before bytes are written; if it is false they are not, and the error is `NotSent`."""

    def header(self, name: str, default: str = "") -> str:
        """The first header of that (lower-case) name."""
        for key, value in self.headers:
            if key == name:
                return value
        return default

    def param(self, name: str, default: str = "") -> str:
        """The first query parameter of that name."""
        for key, value in self.query:
            if key == name:
                return value
        return default


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """One complete HTTP response."""

    status: int
    headers: Pairs = ()
    body: bytes = b""

    def header(self, name: str, default: str = "") -> str:
        """The first header of that (lower-case) name."""
        for key, value in self.headers:
            if key == name:
                return value
        return default

    def json(self) -> Any:
        """The body as JSON; raises `msgspec.DecodeError` if it is not."""
        return msgspec.json.decode(self.body)


class Stream:
    """A response whose body arrives over time: a watch, a log, server-sent events.

    Iterate it once. The receiver must call `aclose()`, also after an error; it may be
    called twice. The producer gives `chunks` and, optionally, a function to call when the reader has closed it.
    `paced`: a server cuts off a client that reads below the least rate (`http.pace`). A watch or a log is not paced: a
    person may have paused its reader.
    """

    def __init__(
        self,
        chunks: AsyncIterator[bytes],
        *,
        status: int = 200,
        headers: Pairs = (),
        on_close: Callable[[], None] | None = None,
        paced: bool = False,
    ) -> None:
        self.status = status
        self.paced = paced
        self.headers = headers
        self._chunks = chunks
        self._on_close = on_close

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._chunks

    async def aclose(self) -> None:
        """Close the stream and notify its producer."""
        self.close()

    def close(self) -> None:
        """Close the stream without waiting."""
        on_close, self._on_close = self._on_close, None
        if on_close is not None:
            on_close()


Serve = Callable[[StreamReader, StreamWriter], Awaitable[None]]


class Upgraded(Stream):
    """A 101 response: `serve` takes over the connection with another protocol.

    Where a connection cannot be handed over it is an empty stream, which must be closed like any other.
    Whether or not `serve` was called, `aclose()` frees what was held for it.
    """

    def __init__(
        self, serve: Serve, *, headers: Pairs, on_close: Callable[[], None] | None = None
    ) -> None:
        super().__init__(_Nothing(), status=101, headers=headers, on_close=on_close)
        self.serve = serve


class _Nothing:
    """No chunks."""

    def __aiter__(self) -> "_Nothing":
        return self

    async def __anext__(self) -> bytes:
        raise StopAsyncIteration


Handler = Callable[[Request], Awaitable[Response | Stream]]


class Transport(Protocol):
    """Sends a request to a server and returns its response."""

    async def send(self, request: Request, *, timeout: float) -> Response | Stream:
        """Send and wait for the answer (for a stream: for its beginning), at most `timeout` seconds.

        Raises `NotSent` if the request certainly never reached the peer and `OutcomeUnknown` if it may
        have been carried out. Callers must treat the two differently; see `http.errors`. After either error,
        and after a cancellation, nothing more of a request that changes something leaves this machine.
        """
        ...


def json_response(status: int, value: object, headers: Pairs = ()) -> Response:
    """Build a JSON response."""
    return Response(
        status=status,
        headers=(("content-type", "application/json"), *headers),
        body=msgspec.json.encode(value),
    )
