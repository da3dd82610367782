"""Access rules and TLS for the sockets of a component of `runyard up`.

On loopback every user of this machine has access, if the request's `Host` is one of this machine's names. Other
machines connect over TLS only, and need the dashboard's token. The same holds for every component.
"""

import ssl

from runyard.components.probing import ProbeSocket
from runyard.embedded.up.context import Context
from runyard.embedded.up.trust import serving
from runyard.github.manifest import web_of
from runyard.http.addresses import is_loopback
from runyard.web.access import Access
from runyard.web.settings import Settings


def access_settings(context: Context, address: str) -> Settings:
    """The access rules of a socket at that address."""
    local = is_loopback(address)
    token = "" if local else context.secrets().dashboard_token
    # The practice GitHub has no pages.
    github = "" if context.boot.github is None else web_of(context.boot.github_url)
    return Settings(listen=address, token=token, secure=not local, github=github)


def tls_context(context: Context, address: str) -> ssl.SSLContext | None:
    """The TLS context of a socket that other machines can reach; None on loopback."""
    if is_loopback(address):
        return None
    return serving(context.boot.layout, now=context.clock.now(), address=address)


def probe_sockets(context: Context) -> tuple[ProbeSocket, ...]:
    """The sockets for this component's probes; empty if it has none."""
    return tuple(
        ProbeSocket(
            sock=sock,
            tls=tls_context(context, address),
            guard=Access(access_settings(context, address), clock=context.clock).refusal,
        )
        for address, sock in context.sockets()
    )
