"""Prepares the network of a VM: the files that it needs, and the part of the launch order that connects it.

A VM with a network of its own cannot reach this machine. What its poller and its runner need from servers on this
machine goes through relays (`relay.py`): the poller's is derived from the Pod's dispatch URL, others are given to the
driver. The poller's is used wherever the server is, because names are not resolved here: the server may be on this
machine by a name that does not say so.
"""

import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from runyard.vm.process.addresses import (
    free_subnet,
    ipv4_lack,
    is_http,
    is_local,
    one_of_each,
    own_addresses,
    resolv_conf,
)
from runyard.vm.process.isolation import Isolation
from runyard.vm.process.layout import VmDirectory
from runyard.vm.relays import Relay

_ADDRESSES = "/proc/net/fib_trie"
_ROUTE, _IPV6_ROUTE = "/proc/net/route", "/proc/net/ipv6_route"
_NAMES = "/etc/resolv.conf"
DISPATCH_SOCKET = "RUNYARD_DISPATCH_SOCKET"


def network_order(
    directory: VmDirectory,
    isolation: Isolation,
    *,
    users: tuple[int, ...],
    dispatch_url: str = "",
    dispatch_direct: bool = False,
    relays: tuple[Relay, ...] = (),
) -> dict[str, Any] | None:
    """Writes the files of a VM's own network; returns the shim's order for it, None if the network is the host's.

    Raises OSError if this machine's addresses are unknown: the VM could reach them.
    `dispatch_direct`: its poller has its own proxy or certificates, which a relay does not use. It then connects by
    itself, unless the server is known to be on this machine.
    """
    if isolation.network != "own":
        return None
    own = _own_addresses()
    subnet = free_subnet(_read(_ROUTE), own)
    directory.net.mkdir(exist_ok=True)
    directory.net.chmod(0o711)  # the agent's own: a guest enters it, and cannot replace a socket
    names = directory.net / "resolv.conf"
    names.write_text(resolv_conf(_read(_NAMES), subnet), encoding="utf-8")
    names.chmod(0o644)
    host = socket.gethostname()
    polled = () if dispatch_direct else _dispatch(dispatch_url)
    found = (*_dispatch(dispatch_url), *relays)
    used = [each for each in found if each in polled or is_local(each.url, own=own, host_name=host)]
    return {
        "slirp": isolation.slirp,
        "subnet": subnet,
        "own": list(own),
        "user": users[0] if users else -1,
        "env": {relay.variable: f"/vm/net/{relay.name}" for relay in used},
        "relays": [_described(relay, directory, users) for relay in used],
    }


def why_not_own() -> str:
    """Why a network of its own would be a loss for every VM on this machine; empty if it would not."""
    return ipv4_lack(names=_read(_NAMES), route=_read(_ROUTE), ipv6_route=_read(_IPV6_ROUTE))


def own_samples() -> tuple[str, ...]:
    """This machine's addresses other than loopback, one of each network that is its own, networks first.

    Raises OSError if they are unknown.
    """
    return one_of_each(sorted(_own_addresses(), key=lambda each: "/" not in each))


def _own_addresses() -> tuple[str, ...]:
    try:
        return own_addresses(Path(_ADDRESSES).read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError) as error:
        raise OSError(
            f"this machine's addresses, which a VM must not reach, cannot be read from {_ADDRESSES}: "
            f"{getattr(error, 'strerror', None) or error}. Make it readable, or use host-network"
        ) from error


def _dispatch(url: str) -> tuple[Relay, ...]:
    """The relay of the poller: one method, one path."""
    if not is_http(url):
        return ()
    return (
        Relay(
            name="dispatch",
            variable=DISPATCH_SOCKET,
            url=url,
            allow=(("POST", urlsplit(url).path or "/"),),
            for_job=False,
        ),
    )


def _described(relay: Relay, directory: VmDirectory, users: tuple[int, ...]) -> dict[str, Any]:
    user = users[-1 if relay.for_job else 0] if users else -1
    parts = urlsplit(relay.url)
    tls = parts.scheme == "https"
    return {
        "folder": str(directory.net),
        "name": relay.name,
        "host": parts.hostname,
        "port": parts.port or (443 if tls else 80),
        "authority": parts.netloc.rpartition("@")[2],
        "tls": tls,
        "allow": [list(each) for each in relay.allow],
        "user": user,
    }


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
