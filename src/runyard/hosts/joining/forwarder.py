"""Serves the polls of this host's runners on loopback, and passes them on to the main machine.

A guest knows no authority and cannot reach the main machine. So the agent of a joined host offers what a host of the
main machine has: plain HTTP on loopback, which a network of its own reaches as it does there. Requests go on over TLS,
with the credential that the guest itself shows; the host's own is never added.

Invariants:
- Exactly the listed requests are passed on.
- The practice GitHub is known to runners by its address on the main machine. The same port is taken here if it is
  free, so that a runner without a network of its own finds it, too.
"""

import asyncio
import contextlib
import errno
import socket
from collections.abc import AsyncIterator, Sequence
from urllib.parse import urlsplit

from runyard.hosts.joining.client import transport_to
from runyard.hosts.joining.membership import MembershipFiles
from runyard.hosts.joining.passing import Answer, Upstream, passed
from runyard.http.crowd import Crowd
from runyard.http.messages import Request
from runyard.http.problems import problem
from runyard.http.server import listen
from runyard.wire.paths import DISPATCH
from runyard.wire.problem_codes import ProblemCode

_LOOPBACK = "127.0.0.1"


@contextlib.asynccontextmanager
async def forwarding(
    files: MembershipFiles, *, practice: Sequence[tuple[str, str]] = ()
) -> AsyncIterator[str]:
    """Serve until the context ends; gives the URL. `practice` are the requests of practice runners."""
    membership = files.read()
    authority = await asyncio.to_thread(files.authority)
    transport = transport_to(membership.url, authority)
    upstream = Upstream(what="main machine", transport=transport)
    allowed = {("POST", DISPATCH), *(practice if membership.practice_url else ())}

    async def handle(request: Request) -> Answer:
        if (request.method, request.path) not in allowed:
            return problem(404, ProblemCode.PATH_UNKNOWN)
        return await passed(request, upstream)

    try:
        sock = _bound(urlsplit(membership.practice_url).port or 0)
        listening = await listen(handle, sock=sock, crowd=Crowd())
        try:
            yield listening.url
        finally:
            await listening.close()
    finally:
        await transport.close()


def _bound(port: int) -> socket.socket:
    """A socket on loopback, on this port if it is free."""
    try:
        return socket.create_server((_LOOPBACK, port))
    except OSError as error:
        if not port or error.errno != errno.EADDRINUSE:
            raise
        return socket.create_server((_LOOPBACK, 0))
