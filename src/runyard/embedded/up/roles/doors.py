"""Who may look at a part of one machine, and where.

Whoever is on this machine may look, at its loopback, if they ask for it by a name that is this machine's. From
elsewhere a part is reached over TLS only, and there the dashboard's token is asked for. This holds for each part,
whatever else it serves.
"""

import contextlib
import ssl
from collections.abc import AsyncIterator

from runyard.embedded.up.context import Context
from runyard.embedded.up.trust import serving
from runyard.http.addresses import is_loopback
from runyard.http.probes import probe_routes
from runyard.http.routes import Routes
from runyard.http.server import listen
from runyard.telemetry.freshness import Freshness
from runyard.telemetry.health import Health
from runyard.telemetry.meter import Meter
from runyard.web.access import Access
from runyard.web.settings import Settings


def looking(context: Context, address: str) -> Settings:
    """What is asked of those who look at a socket of that address."""
    local = is_loopback(address)
    token = "" if local else context.secrets().dashboard_token
    return Settings(listen=address, token=token, secure=not local)


def secrecy(context: Context, address: str) -> ssl.SSLContext | None:
    """TLS for a socket that others can reach."""
    if is_loopback(address):
        return None
    return serving(context.boot.layout, now=context.clock.now(), address=address)


@contextlib.asynccontextmanager
async def probed(
    context: Context, *, health: Health, freshness: Freshness, meter: Meter
) -> AsyncIterator[None]:
    """Serve the probes of a part that serves nothing else; one that was given no socket serves none."""
    async with contextlib.AsyncExitStack() as stack:
        for address, sock in context.sockets():
            access = Access(looking(context, address), clock=context.clock)
            title = f"runyard {context.boot.role}"
            routes = probe_routes(health, freshness, meter, guard=access.refusal)
            table = Routes(title, "v1", routes, guard=access.refusal, private=True)
            listening = await listen(table.handle, sock=sock, tls=secrecy(context, address))
            stack.push_async_callback(listening.close)
        yield
