"""Binds the sockets of one machine once, in the process that owns everything; its children inherit them.

So a component that crashed is restarted on the same port, requests that arrive meanwhile wait in the socket's queue,
and no other program can take the port in between. A port that was chosen freely is stored and used again at the
next start, because links, kubeconfigs and metric scrapers point at it.
"""

import errno
import socket
from collections.abc import Mapping

import msgspec

from runyard.embedded.up.layout import Layout, read_json
from runyard.files import write_whole
from runyard.http.addresses import is_loopback

NAMES = ("kube", "server", "github")
HOSTS = "hosts"  # for hosts on other machines, over TLS
PUBLIC = "public"  # the server again, for other machines, over TLS
LOOPBACK = "127.0.0.1"
_BACKLOG = 512


class PortTaken(Exception):
    """A requested port is in use."""


def bind(
    layout: Layout,
    *,
    host: str,
    wanted: Mapping[str, int],
    probed: tuple[str, ...] = (),
    joining: bool = False,
) -> dict[str, socket.socket]:
    """Listens for each of `NAMES`, for other machines if `host` is not loopback, and with `joining` for their hosts.

    `wanted` names ports that are required, 0 or absent means any; the server's is the public one, and
    hosts join at the next one. `probed` names the
    components that listen on loopback for probes and metrics only.
    """
    exposed = not is_loopback(host)
    ports = dict(wanted)
    outside = (*((PUBLIC,) if exposed else ()), *((HOSTS,) if joining else ()))
    if joining:
        server = ports.get("server", 0)
        ports[HOSTS] = server + 1 if server else 0  # for any
    if exposed:
        ports[PUBLIC] = ports.pop("server", 0)
    stored = read_json(layout.ports, fix="Remove it: new ports are then chosen")
    known = stored if isinstance(stored, dict) else {}
    bound: dict[str, socket.socket] = {}
    try:
        for name in (*NAMES, *outside, *probed):
            served = name in outside or (name == "server" and not exposed)
            address = host if served else LOOPBACK
            port = ports.get(name, 0)
            bound[name] = (
                _listen(address, port, name)
                if port
                else _listen_again(address, _port(known.get(name)), name)
            )
    except BaseException:
        for each in bound.values():
            each.close()
        raise
    # Ports of hosts that do not run this time are stored too.
    chosen = {name: port for name, port in known.items() if _port(port)}
    chosen |= {name: each.getsockname()[1] for name, each in bound.items()}
    write_whole(layout.ports, msgspec.json.encode(chosen))
    return bound


def _port(port: object) -> int:
    """A stored port, if it is valid; else 0 for any."""
    sound = isinstance(port, int) and 1024 <= port < 65536
    return port if isinstance(port, int) and sound else 0


def _listen_again(address: str, port: int, name: str) -> socket.socket:
    try:
        return _listen(address, port, name)
    except PortTaken:
        return _listen(address, 0, name)  # another program has taken it meanwhile


def _listen(address: str, port: int, name: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((address, port))
        found.listen(_BACKLOG)
    except OSError as error:
        found.close()
        fix = (
            "Stop the program that uses it, or choose another port with --listen HOST:PORT"
            if error.errno == errno.EADDRINUSE
            else "Choose an address of this machine, and a port that you may use, with --listen HOST:PORT"
        )
        raise PortTaken(
            f"cannot listen on {address}:{port} ({name}): {error.strerror}. {fix}"
        ) from error
    return found
