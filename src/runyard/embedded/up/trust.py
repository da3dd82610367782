"""TLS on one machine: an authority of its own, a certificate for the API, and who trusts whom.

The authority lives as long as the data directory. Clients are given its certificate and trust nothing else.
"""

import socket
import ssl

from runyard.embedded.up.layout import FULL, BadDirectory, Layout
from runyard.http.client import HttpTransport
from runyard.http.tls import (
    Pair,
    client_context,
    issue_client,
    keep_authority,
    keep_server,
    server_context,
    write_pair,
)

NAMES = ("localhost", "127.0.0.1", "::1")
# Who the API is to a node, as a cluster made by kubeadm has it.
TO_NODES, TO_NODES_GROUP = "kube-apiserver-kubelet-client", "system:masters"
_ANY = ("0.0.0.0", "::")  # noqa: S104 compared, not bound


def signer(layout: Layout, *, now: float) -> Pair:
    """The authority with its key, for whoever signs."""
    return keep_authority(layout.tls, now=now)


def authority(layout: Layout, *, now: float) -> bytes:
    """The authority's certificate, as PEM; made when there is none."""
    try:
        return signer(layout, now=now).certificate
    except OSError as error:
        if error.errno in FULL:
            raise  # told as what it is
        raise BadDirectory(
            f"{layout.tls} cannot be used ({error.strerror}). Make it a directory that you may write, or"
            " remove it to begin with a new authority"
        ) from error


def serving(
    layout: Layout, *, now: float, address: str = "", clients: bool = False
) -> ssl.SSLContext:
    """The context of a server on this machine; its certificate is renewed when it is due.

    `address` is where others reach it: the certificate is then good for that and for this machine's name too. With
    `clients` those who connect may show a certificate of the authority, and need not.
    """
    folder = layout.tls / "others" if address else layout.tls
    names = (*NAMES, *_names_of(address)) if address else NAMES
    own = signer(layout, now=now)
    files, _ = keep_server(folder, own, names, now=now)
    return server_context(files, clients=own.certificate if clients else b"")


def _names_of(address: str) -> tuple[str, ...]:
    own = socket.gethostname()
    if address not in _ANY:
        return (address, own)
    try:
        found = socket.getaddrinfo(own, None)
    except OSError:
        return (own,)
    return (own, *sorted({str(each[4][0]).partition("%")[0] for each in found}))


def to_nodes(layout: Layout, *, now: float) -> ssl.SSLContext:
    """How the API calls a node: it shows a certificate, new with each start, and believes the authority only."""
    own = signer(layout, now=now)
    pair = issue_client(own, TO_NODES, (TO_NODES_GROUP,), now=now)
    return client_context(own.certificate, files=write_pair(layout.tls, "kubelet-client", pair))


def kube_transport(layout: Layout, url: str, *, now: float) -> HttpTransport:
    """A way to the machine's own API."""
    return HttpTransport(url, tls=client_context(authority(layout, now=now)))
