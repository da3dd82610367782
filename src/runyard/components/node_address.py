"""Finds the address under which other machines reach this host.

`auto` takes the first IPv4 address of an interface that is up, without loopback, link-local addresses and the bridges
of VMs: their network appears with the first VM and would otherwise be chosen after a restart. `tailscale` asks
tailscale, and fails if there is no address: a public one in its place would expose the host.
"""

import ipaddress
from collections.abc import Iterable

from runyard import proc
from runyard.components.interfaces import Interface, interfaces

TAILSCALE = "/usr/local/bin/tailscale"
_TAILSCALE_TIMEOUT = 10.0
_VM_BRIDGES = ("bridge", "vmnet")


class NoAddress(Exception):
    """The address cannot be found; the message says why and what to do."""


def own_address(found: Iterable[Interface] | None = None) -> str:
    """The first address that other machines may use; empty if there is none."""
    for each in interfaces() if found is None else found:
        address = ipaddress.ip_address(each.address)
        usable = address.version == 4 and not address.is_loopback and not address.is_link_local
        if usable and each.up and not each.name.startswith(_VM_BRIDGES):
            return each.address
    return ""


async def tailscale_address(binary: str = TAILSCALE) -> str:
    """This host's address in the tailnet; raises `NoAddress`."""
    try:
        done = await proc.run([binary, "ip", "-4"], timeout=_TAILSCALE_TIMEOUT)
    except proc.ProcError as error:
        raise NoAddress(f"{error}. Start tailscale, or give --node-ip") from None
    lines = done.stdout.decode(errors="replace").split()
    if done.code != 0 or not lines or not _is_ipv4(lines[0]):
        detail = done.stderr.decode(errors="replace").strip()[:200] or f"exit code {done.code}"
        raise NoAddress(f"{binary} ip -4 gave no address ({detail}). Run 'tailscale up'")
    return lines[0]


def _is_ipv4(text: str) -> bool:
    try:
        return ipaddress.ip_address(text).version == 4
    except ValueError:
        return False
