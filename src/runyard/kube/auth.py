"""A transport that authenticates to the Kubernetes API.

It stands between the client and the transport that carries the request. A request that brings its own
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

SLOW_FIX = "ask again: what is under way goes on"


@runtime_checkable
class Closing(Protocol):
    """Something that holds connections."""

    async def close(self) -> None:
        """Close the connections."""
        ...


Redial = Callable[[Certificate], Transport]


class _Line:
    """The connections that were made with one certificate."""

    def __init__(self, transport: Transport, certificate: Certificate) -> None:
        self.transport = transport
        self.certificate = certificate
        self.users = 0
        self.retired = False

    async def release(self) -> None:
        """Release one use; the last one of a retired line closes it."""
        self.users -= 1
        await self.settle()

    async def settle(self) -> None:
        """Close if it is not needed any more."""
        if self.retired and self.users == 0:
            await _close(self.transport)


class _Borrowed(Stream):
    """A stream that keeps its line open."""

    def __init__(self, inner: Stream, line: _Line) -> None:
        super().__init__(aiter(inner), status=inner.status, headers=inner.headers)
        self._inner = inner
        self._line: _Line | None = line

    def __aiter__(self) -> AsyncIterator[bytes]:
        return aiter(self._inner)

    async def aclose(self) -> None:
        """Close the stream, then give the line back."""
        line, self._line = self._line, None
        try:
            await self._inner.aclose()
        finally:
            if line is not None:
                await line.release()


class AuthTransport:
    """Carries requests with credentials. Implements `Transport`."""

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
        self._line: _Line | None = None
        self._retired: list[_Line] = []
        self._log = get_logger("kube.auth")

    async def send(self, request: Request, *, timeout: float) -> Response | Stream:
        """Carry one request; see `http.messages.Transport`."""
        if request.header("authorization"):
            return await self._transport.send(request, timeout=timeout)
        ends = self._clock.monotonic() + timeout
        credential = await self._wait(None, timeout)
        left = ends - self._clock.monotonic()
        answer = await self._carry(request, credential, timeout=left)
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
        return await self._carry(request, renewed, timeout=left)

    async def close(self) -> None:
        """End plugins and close every connection; streams that are still open are cut."""
        await self._credentials.close()
        lines = [*self._retired, *([] if self._line is None else [self._line])]
        self._retired, self._line = [], None
        for transport in (*(line.transport for line in lines), self._transport):
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

    async def _carry(
        self, request: Request, credential: Credential, *, timeout: float
    ) -> Response | Stream:
        if credential.token:
            shown = ("authorization", f"Bearer {credential.token.reveal()}")
            request = msgspec.structs.replace(request, headers=(*request.headers, shown))
        line = await self._line_for(credential.certificate)
        if line is None:
            return await self._transport.send(request, timeout=timeout)
        line.users += 1
        try:
            answer = await line.transport.send(request, timeout=timeout)
        except BaseException:
            await line.release()
            raise
        if isinstance(answer, Stream):
            return _Borrowed(answer, line)
        await line.release()
        return answer

    async def _line_for(self, certificate: Certificate | None) -> _Line | None:
        """The connections to use; those of an older certificate are given up."""
        if certificate is None or self._redial is None:
            return None
        old = self._line
        if old is not None and old.certificate == certificate:
            return old
        try:
            new = _Line(self._redial(certificate), certificate)
        except ConfigError as error:
            if old is None:
                raise CredentialsUnavailable(error.cause, fix=error.fix) from None
            # Half of a pair of files may be new and half old; the next read gets both.
            self._log.warning("keeping the certificate from before", cause=error.cause)
            return old
        self._line = new
        if old is not None:
            old.retired = True
            self._retired = [line for line in (*self._retired, old) if line.users]
            await old.settle()
        return new


async def _close(transport: Transport) -> None:
    if isinstance(transport, Closing):
        await transport.close()
