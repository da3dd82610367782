"""Connects to ports of guests, by the network interface that leads to them.

On macOS the route to a VM's network is scoped to its interface: a connection without a scope is looked up on the
primary interface and fails with "no route to host", although the guest answers. So the socket is bound to the interface
whose network has the guest's address. Elsewhere the system's routes are right.
"""

import asyncio
import contextlib
import ipaddress
import re
import socket
import sys
from collections.abc import AsyncIterator

from runyard import proc
from runyard.clock import Clock
from runyard.procgroup import ProcError
from runyard.vm.connections import over
from runyard.vm.contract import Connection, Unreachable

_IP_BOUND_IF, _IPV6_BOUND_IF = 25, 125  # of <netinet/in.h> on macOS; Python has no names for them
_IFCONFIG_TIMEOUT = 5.0
_FLAGS = re.compile(r"([^\s:]+): flags=\w+<([^>]*)>")
_INET = re.compile(r"\s+inet (\S+) (?:--> \S+ )?netmask 0x([0-9a-f]{8})")
_INET6 = re.compile(r"\s+inet6 ([^\s%]+)(?:%\S+)? prefixlen (\d+)")


@contextlib.asynccontextmanager
async def connect(
    address: str, port: int, *, clock: Clock, within: float
) -> AsyncIterator[Connection]:
    """A connection to this address; `Unreachable` if none comes about in time."""
    late = clock.timeout(within)
    try:
        async with late:
            link = await _connected(address, port, clock)
    except (OSError, TimeoutError) as error:
        if isinstance(error, TimeoutError) and not late.expired():
            raise
        why = f"no answer within {within:g} s" if late.expired() else str(error)
        raise Unreachable(f"port {port} of the guest at {address}: {why}") from error
    async with over(link) as connection:
        yield connection


async def _connected(address: str, port: int, clock: Clock) -> socket.socket:
    version = ipaddress.ip_address(address).version
    link = socket.socket(socket.AF_INET if version == 4 else socket.AF_INET6, socket.SOCK_STREAM)
    try:
        link.setblocking(False)
        if sys.platform == "darwin":
            await _bind_to_interface(link, address, clock)
        await asyncio.get_running_loop().sock_connect(link, (address, port))
    except BaseException:
        link.close()
        raise
    return link


async def _bind_to_interface(link: socket.socket, address: str, clock: Clock) -> None:
    """Bind it to the interface that leads to the address; without such an interface nothing is bound."""
    try:
        argv = ("/sbin/ifconfig", "-a")
        done = await proc.run(argv, timeout=_IFCONFIG_TIMEOUT, clock=clock)
    except ProcError:
        return
    interface = interface_to(address, done.stdout.decode(errors="replace"))
    if not interface:
        return
    index = socket.if_nametoindex(interface)
    if link.family is socket.AF_INET:
        link.setsockopt(socket.IPPROTO_IP, _IP_BOUND_IF, index)
    else:
        link.setsockopt(socket.IPPROTO_IPV6, _IPV6_BOUND_IF, index)


def interface_to(address: str, ifconfig: str) -> str:
    """The interface, of those that are up, with the smallest network that has the address; empty if none has it."""
    wanted = ipaddress.ip_address(address)
    name, best, longest = "", "", -1
    for line in ifconfig.splitlines():
        if flags := _FLAGS.match(line):
            name = flags[1] if "UP" in flags[2].split(",") else ""
        network = _network(line) if name else None
        if network is not None and wanted in network and network.prefixlen > longest:
            best, longest = name, network.prefixlen
    return best


def _network(line: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    with contextlib.suppress(ValueError):
        if four := _INET.match(line):
            mask = ipaddress.IPv4Address(int(four[2], 16))
            return ipaddress.IPv4Network(f"{four[1]}/{mask}", strict=False)
        if six := _INET6.match(line):
            return ipaddress.IPv6Network(f"{six[1]}/{six[2]}", strict=False)
    return None
