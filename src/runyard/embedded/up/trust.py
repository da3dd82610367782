"""TLS on one machine: an authority of its own, a certificate for the API, and who trusts whom.

The authority lives as long as the data directory. Clients are given its certificate and trust nothing else.
"""

import ssl

from runyard.embedded.up.layout import Layout
from runyard.http.client import HttpTransport
from runyard.http.tls import client_context, keep_authority, keep_server, server_context

NAMES = ("localhost", "127.0.0.1", "::1")


def authority(layout: Layout, *, now: float) -> bytes:
    """The authority's certificate, as PEM; made when there is none."""
    return keep_authority(layout.tls, now=now).certificate


def serving(layout: Layout, *, now: float) -> ssl.SSLContext:
    """The context of a server on this machine; its certificate is renewed when it is due."""
    files, _ = keep_server(layout.tls, keep_authority(layout.tls, now=now), NAMES, now=now)
    return server_context(files)


def kube_transport(layout: Layout, url: str, *, now: float) -> HttpTransport:
    """A way to the machine's own API."""
    return HttpTransport(url, tls=client_context(authority(layout, now=now)))
