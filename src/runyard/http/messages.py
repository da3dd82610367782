"""Requests and responses as values, so that a server can be a function.

The embedded Kubernetes API, the practice GitHub and the dispatch server's internal API are *cores*:
`handle(request) -> Response | Stream`. An adapter puts a core behind a socket; the simulator puts it
behind a loopback with faults. The clients in `kube` and `github` speak to a `Transport`, which is
either of these, and cannot tell the difference.

Invariants:
- Header names are lower case. Query parameters keep their order and are already decoded.
- `path` is the decoded path without the query string and starts with `/`.
- A handler never raises: whatever enters, it answers with a status code.
- A body is whole before its handler is asked, unless the server was told to stream such requests: then `body` is empty
  and `content` gives it as it comes, once; a sender that goes away is a `ConnectionError` there.
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

    Iterate it once. `aclose()` must be called by whoever received it, also after an error; it may be
    called twice. The producer gives `chunks` and, optionally, what to do when the reader has gone.
    """

    def __init__(
        self,
        chunks: AsyncIterator[bytes],
        *,
        status: int = 200,
        headers: Pairs = (),
        on_close: Callable[[], None] | None = None,
    ) -> None:
        self.status = status
        self.headers = headers
        self._chunks = chunks
        self._on_close = on_close

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._chunks

    async def aclose(self) -> None:
        """Tell the producer that nobody reads any more."""
        self.close()

    def close(self) -> None:
        """The same, at once."""
        on_close, self._on_close = self._on_close, None
        if on_close is not None:
            on_close()


Serve = Callable[[StreamReader, StreamWriter], Awaitable[None]]


class Upgraded(Stream):
    """A 101: from here on the connection speaks another language, which `serve` reads and writes.

    To whoever cannot hand a connection over it is a stream with nothing in it, to be closed as any other.
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
    """Carries one request to a peer and brings the answer back."""

    async def send(self, request: Request, *, timeout: float) -> Response | Stream:
        """Send and wait for the answer (for a stream: for its beginning), at most `timeout` seconds.

        Raises `NotSent` if the request certainly never reached the peer and `OutcomeUnknown` if it may
        have been carried out. Callers must treat the two differently; see `http.errors`.
        """
        ...


def json_response(status: int, value: object, headers: Pairs = ()) -> Response:
    """A JSON answer."""
    return Response(
        status=status,
        headers=(("content-type", "application/json"), *headers),
        body=msgspec.json.encode(value),
    )
