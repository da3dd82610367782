"""Access rules and TLS for the sockets of a component of `runyard up`.

Every socket needs the dashboard's token, also on loopback, where jobs run; metrics are open to this machine. Other
machines connect over TLS only. The same holds for every component.
"""

import socket
import ssl

from runyard.components.probing import ProbeSocket
from runyard.embedded.up.context import Context
from runyard.embedded.up.token_files import read_token
from runyard.embedded.up.trust import serving
from runyard.github.manifest import web_of
from runyard.http.addresses import is_loopback
from runyard.web.access import Access
from runyard.web.settings import Settings


def access_settings(context: Context, address: str) -> Settings:
    """The access rules of a socket at that address."""
    layout = context.boot.layout
    # The practice GitHub has no pages.
    github = "" if context.boot.github is None else web_of(context.boot.github_url)
    return Settings(
        listen=address,
        token=read_token(layout.dashboard_token),
        metrics_token=read_token(layout.metrics_token),
        secure=not is_loopback(address),
        github=github,
    )


def tls_context(context: Context, address: str) -> ssl.SSLContext | None:
    """The TLS context of a socket that other machines can reach; None on loopback."""
    if is_loopback(address):
        return None
    return serving(context.boot.layout, now=context.clock.now(), address=address)


def probe_sockets(context: Context) -> tuple[ProbeSocket, ...]:
    """The sockets for this component's probes; empty if it has none."""
    return tuple(_probe_socket(context, address, sock) for address, sock in context.sockets())


def _probe_socket(context: Context, address: str, sock: socket.socket) -> ProbeSocket:
    access = Access(access_settings(context, address), clock=context.clock)
    return ProbeSocket(
        sock=sock,
        tls=tls_context(context, address),
        guard=access.refusal,
        metrics_guard=access.metrics_refusal,
    )
