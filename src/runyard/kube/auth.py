"""A transport that authenticates to the Kubernetes API.

It is placed between the client and the transport that sends the request. A request with its own
`Authorization` passes unchanged. After a 401 the request is repeated once with a renewed credential. That is safe for
every request, because a server does nothing before it has authenticated one.

A client certificate belongs to a connection and not to a request. When it changes, new connections are made with the
new one (`redial`); those made with the old one end with the requests and streams that are still under way on them.

Invariants:
- A request is sent at most twice, and the second time only after a 401 and with another credential.
- `timeout` covers it all: waiting for a credential, both attempts.
- A refused stream is closed here.
"""

from collections.abc import AsyncIterator, Callable
from typing import Protocol, runtime_checkable

import msgspec

from runyard.clock import Clock
from runyard.http.messages import Request, Response, Stream, Transport
from runyard.kube.config import ConfigError
from runyard.kube.credentials import (
    Certificate,
    Credential,
    Credentials,
    CredentialsUnavailable,
)
from runyard.telemetry.log import get_logger

SLOW_FIX = "try again: the credential plugin is still running"


@runtime_checkable
class Closing(Protocol):
    """A transport whose connections can be closed."""

    async def close(self) -> None:
        """Close the connections."""
        ...


Redial = Callable[[Certificate], Transport]


class _Connections:
    """The connections that were made with one certificate."""

    def __init__(self, transport: Transport, certificate: Certificate) -> None:
        self.transport = transport
        self.certificate = certificate
        self.users = 0
        self.retired = False

    async def release(self) -> None:
        """Release one use; the last one of retired connections closes them."""
        self.users -= 1
        await self.settle()

    async def settle(self) -> None:
        """Close if they are retired and unused."""
        if self.retired and self.users == 0:
            await _close(self.transport)


class _OpenStream(Stream):
    """A stream that keeps its connections open."""

    def __init__(self, inner: Stream, connections: _Connections) -> None:
        super().__init__(aiter(inner), status=inner.status, headers=inner.headers)
        self._inner = inner
        self._connections: _Connections | None = connections

    def __aiter__(self) -> AsyncIterator[bytes]:
        return aiter(self._inner)

    async def aclose(self) -> None:
        """Close the stream, then release its connections."""
        connections, self._connections = self._connections, None
        try:
            await self._inner.aclose()
        finally:
            if connections is not None:
                await connections.release()


class AuthTransport:
    """Sends requests with credentials. Implements `Transport`."""

    def __init__(
        self,
        transport: Transport,
        credentials: Credentials,
        *,
        clock: Clock,
        redial: Redial | None = None,
    ) -> None:
        self._transport = transport
        self._credentials = credentials
        self._clock = clock
        self._redial = redial
        self._current: _Connections | None = None
        self._retired: list[_Connections] = []
        self._log = get_logger("kube.auth")

    async def send(self, request: Request, *, timeout: float) -> Response | Stream:
        """Send one request; see `http.messages.Transport`."""
        if request.header("authorization"):
            return await self._transport.send(request, timeout=timeout)
        ends = self._clock.monotonic() + timeout
        credential = await self._wait(None, timeout)
        left = ends - self._clock.monotonic()
        answer = await self._send_with(request, credential, timeout=left)
        if answer.status != 401:
            return answer
        if isinstance(answer, Stream):
            await answer.aclose()
            answer = Response(status=401, headers=answer.headers)
        left = ends - self._clock.monotonic()
        renewed = await self._wait(credential, left) if left > 0 else credential
        left = ends - self._clock.monotonic()
        if renewed == credential or left <= 0:
            return answer
        return await self._send_with(request, renewed, timeout=left)

    async def close(self) -> None:
        """End plugins and close every connection; streams that are still open are cut."""
        await self._credentials.close()
        opened = [*self._retired, *([] if self._current is None else [self._current])]
        self._retired, self._current = [], None
        for transport in (*(each.transport for each in opened), self._transport):
            await _close(transport)

    async def _wait(self, refused: Credential | None, seconds: float) -> Credential:
        bound = self._clock.timeout(max(0.0, seconds))
        try:
            async with bound:
                if refused is None:
                    return await self._credentials.current()
                return await self._credentials.renew(refused)
        except TimeoutError:
            if not bound.expired():
                raise
        cause = f"no credentials within {seconds:.3g} s"
        raise CredentialsUnavailable(cause, fix=SLOW_FIX)

    async def _send_with(
        self, request: Request, credential: Credential, *, timeout: float
    ) -> Response | Stream:
        if credential.token:
            header = ("authorization", f"Bearer {credential.token.reveal()}")
            request = msgspec.structs.replace(request, headers=(*request.headers, header))
        connections = await self._connections_for(credential.certificate)
        if connections is None:
            return await self._transport.send(request, timeout=timeout)
        connections.users += 1
        try:
            answer = await connections.transport.send(request, timeout=timeout)
        except BaseException:
            await connections.release()
            raise
        if isinstance(answer, Stream):
            return _OpenStream(answer, connections)
        await connections.release()
        return answer

    async def _connections_for(self, certificate: Certificate | None) -> _Connections | None:
        """Return the connections to use; those of an older certificate are retired."""
        if certificate is None or self._redial is None:
            return None
        old = self._current
        if old is not None and old.certificate == certificate:
            return old
        try:
            new = _Connections(self._redial(certificate), certificate)
        except ConfigError as error:
            if old is None:
                raise CredentialsUnavailable(error.cause, fix=error.fix) from None
            # Half of a pair of files may be new and half old; the next read gets both.
            self._log.warning(
                "cannot load the new client certificate, keeping the previous one",
                cause=error.cause,
            )
            return old
        self._current = new
        if old is not None:
            old.retired = True
            self._retired = [each for each in (*self._retired, old) if each.users]
            await old.settle()
        return new


async def _close(transport: Transport) -> None:
    if isinstance(transport, Closing):
        await transport.close()
