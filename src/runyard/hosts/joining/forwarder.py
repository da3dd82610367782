"""Serves the polls of this host's runners on loopback, and passes them on to the main machine.

A guest knows no authority and cannot reach the main machine. So the agent of a joined host offers what a host of the
main machine has: plain HTTP on loopback, which a network of its own reaches as it does there. Requests go on over TLS,
with the credential that the guest itself shows; the host's own is never added.

Invariants:
- Exactly the listed requests are passed on.
- The practice GitHub is known to runners by its address on the main machine. The same port is taken here if it is
  free, so that a runner without a network of its own finds it, too.
- A later agent serves at the port of the earlier one, because the runners that wait for a job keep the URL that they
  were started with. If another program has taken the port, that is an error in the log, and the server's recovery of
  silent Pods replaces the runners that poll it.
"""

import asyncio
import contextlib
import errno
import socket
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from runyard.files import write_whole
from runyard.hosts.joining.client import transport_to
from runyard.hosts.joining.membership import MembershipFiles
from runyard.hosts.joining.passing import Answer, Upstream, passed
from runyard.http.connection_limits import ConnectionLimits
from runyard.http.messages import Request
from runyard.http.problems import problem
from runyard.http.server import listen
from runyard.telemetry.log import get_logger
from runyard.wire.paths import DISPATCH
from runyard.wire.problem_codes import ProblemCode

_LOOPBACK = "127.0.0.1"
_PORT_FILE = "forwarder-port"
# Below the ports that systems give to outgoing connections: one of those could hold the port while no agent runs.
_PORTS = range(24310, 24410)


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
        sock = _bound(files.folder / _PORT_FILE, urlsplit(membership.practice_url).port or 0)
        listening = await listen(handle, sock=sock, limits=ConnectionLimits())
        try:
            yield listening.url
        finally:
            await listening.close()
    finally:
        await transport.close()


def _bound(remembered: Path, practice: int) -> socket.socket:
    """A socket on loopback: on the port of the last agent, else that of the practice GitHub, else any free one."""
    last = _last_port(remembered, practice)
    wanted = (last,) if last else (practice, *_PORTS) if practice else _PORTS
    sock = next((sock for port in wanted if (sock := _open(port)) is not None), None)
    sock = sock or socket.create_server((_LOOPBACK, 0))
    port = int(sock.getsockname()[1])
    if last and port != last:
        get_logger("agent").error(
            "another program has taken the port that waiting runners poll; they get no job and are replaced by the"
            " server within about ten minutes. Stop that program, or delete the runners to have new ones at once",
            taken=last,
            instead=port,
        )
    if port != last:
        try:
            write_whole(remembered, f"{port} {practice}\n")
        except BaseException:
            sock.close()
            raise
    return sock


def _last_port(remembered: Path, practice: int) -> int:
    """The port of the last agent; 0 if there was none, its practice GitHub was another, or the file is damaged."""
    try:
        port, then = (int(part) for part in remembered.read_text(encoding="ascii").split())
    except (FileNotFoundError, ValueError):
        return 0
    return port if then == practice and 0 < port < 1 << 16 else 0


def _open(port: int) -> socket.socket | None:
    """A socket on this port; None if it is taken."""
    try:
        return socket.create_server((_LOOPBACK, port))
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        return None
