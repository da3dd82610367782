"""TLS on one machine: its own certificate authority, a certificate for the API, and the contexts of clients.

The authority lasts as long as the data directory. Clients trust its certificate and no other.
"""

import socket
import ssl

from runyard.embedded.up.layout import FULL, BadDirectory, Layout
from runyard.http.client import HttpTransport
from runyard.http.tls import (
    Files,
    Pair,
    client_context,
    ensure_authority,
    ensure_server,
    issue_client,
    read_again,
    server_context,
    write_pair,
)
from runyard.wire.joining import TLS_NAME

NAMES = ("localhost", "127.0.0.1", "::1")
# The API's client name towards a node, as in a cluster made by kubeadm.
TO_NODES, TO_NODES_GROUP = "kube-apiserver-kubelet-client", "system:masters"
_ANY = ("0.0.0.0", "::")  # noqa: S104 compared, not bound
_AWAY = {  # addresses for documentation, to which nothing is sent
    "0.0.0.0": (socket.AF_INET, "192.0.2.1"),  # noqa: S104 as above
    "::": (socket.AF_INET6, "2001:db8::1"),
}


def has_authority(layout: Layout) -> bool:
    """Whether the machine has an authority, or a part of one."""
    return any((layout.tls / name).exists() for name in ("ca.crt", "ca.key"))


def signer(layout: Layout, *, now: float) -> Pair:
    """The authority with its key, for signing."""
    return ensure_authority(layout.tls, now=now)


def authority(layout: Layout, *, now: float) -> bytes:
    """The authority's certificate, as PEM; created if there is none."""
    try:
        return signer(layout, now=now).certificate
    except OSError as error:
        if error.errno in FULL:
            raise  # a full disk has its own message
        raise BadDirectory(
            f"{layout.tls} cannot be used ({error.strerror}). Make it a directory that you may write, or"
            " remove it to start with a new authority"
        ) from error


def serving(
    layout: Layout, *, now: float, address: str = "", clients: bool = False
) -> ssl.SSLContext:
    """The TLS context of a server on this machine; its certificate is renewed when it is due.

    `address` is where other machines reach it: the certificate is then also valid for that and for this machine's
    name. With `clients` a client may present a certificate of the authority; it is optional.
    """
    folder = layout.tls / "others" if address else layout.tls
    names = (*NAMES, *_names_of(address)) if address else NAMES
    own = signer(layout, now=now)
    files, _ = ensure_server(folder, own, names, now=now)
    return server_context(files, clients=own.certificate if clients else b"")


class HostsCertificate:
    """The certificate of the listener for hosts. It is renewed while that serves; new connections get the new one.

    It is valid for a fixed name, which hosts expect whatever address they dialled, and for the listener's addresses.
    """

    def __init__(self, layout: Layout, address: str, *, now: float) -> None:
        self._layout = layout
        self._names = (TLS_NAME, *NAMES, *_names_of(address))
        files, _ = self._ensured(now)
        self.context = server_context(files)

    def renew(self, *, now: float) -> bool:
        """Renew it if that is due; whether it was."""
        files, renewed = self._ensured(now)
        if renewed:
            read_again(self.context, files)
        return renewed

    def _ensured(self, now: float) -> tuple[Files, bool]:
        own = signer(self._layout, now=now)
        return ensure_server(self._layout.tls / "hosts", own, self._names, now=now)


def reachable(address: str) -> str:
    """An address under which other machines may reach a socket that is bound to this one."""
    if address not in _ANY:
        return address
    family, away = _AWAY[address]
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((away, 9))  # sends nothing; the system chooses the address
            return str(probe.getsockname()[0])
    except OSError:
        return socket.gethostname()


def _names_of(address: str) -> tuple[str, ...]:
    own = socket.gethostname()
    if address not in _ANY:
        return (address, own)
    try:
        found = socket.getaddrinfo(own, None)
    except OSError:
        found = []
    named = {str(each[4][0]).partition("%")[0] for each in found}
    # What is printed for people must be among them; the machine's name may resolve to loopback only.
    return (own, *sorted((named | {reachable(address)}) - {own}))


def to_nodes(layout: Layout, *, now: float) -> ssl.SSLContext:
    """The context for the API's calls to a node: shows a client certificate, new with each start."""
    own = signer(layout, now=now)
    pair = issue_client(own, TO_NODES, (TO_NODES_GROUP,), now=now)
    return client_context(own.certificate, files=write_pair(layout.tls, "kubelet-client", pair))


def kube_transport(layout: Layout, url: str, *, now: float) -> HttpTransport:
    """A transport to the machine's API."""
    return HttpTransport(url, tls=client_context(authority(layout, now=now)))
