"""Knows the addresses of running VMs without making anyone wait for tart.

`tart ip` may be slow, and it must not delay or fail a list of VMs. So an address is looked up in the background, with a
deadline, and until then the VM has none. Once found it is kept and looked up again from time to time.

The lease of the host's DHCP server is asked first: it needs no help of the guest. Where there is none, as with a
bridged network, the guest's agent is asked.

Invariants:
- What is known is an address, and printed in its usual form: nothing else is ever published or dialed.
- A guest does not choose where connections of the host go: of what its agent says, only an address is taken that could
  be a guest's, which excludes loopback, link-local and multicast ones and every address of this host.
"""

import asyncio
import ipaddress
import socket

from runyard.vm.contract import VmError
from runyard.vm.tart.commands import Tart

_RESOLVERS = ("dhcp", "agent")


class Addresses:
    """The addresses of this host's running VMs."""

    def __init__(self, tart: Tart) -> None:
        self._tart = tart
        self._known: dict[str, str] = {}
        self._due: dict[str, float] = {}
        self._lookups: dict[str, asyncio.Task[None]] = {}

    def of(self, name: str) -> str:
        """What is known now, empty if nothing is; looks it up in the background when that is due."""
        now = self._tart.clock.monotonic()
        if name not in self._lookups and now >= self._due.get(name, now):
            task = asyncio.get_running_loop().create_task(self._look_up(name))
            self._lookups[name] = task
            task.add_done_callback(lambda _: self._lookups.pop(name, None))
        return self._known.get(name, "")

    async def now(self, name: str) -> str:
        """What is known, or else the result of one lookup."""
        if not self.of(name) and name in self._lookups:
            await asyncio.wait((self._lookups[name],))
        return self._known.get(name, "")

    def keep_only(self, names: tuple[str, ...]) -> None:
        """Drop what belongs to VMs that no longer run."""
        for name in (*self._known, *self._due):
            if name not in names:
                self._known.pop(name, None)
                self._due.pop(name, None)

    async def _look_up(self, name: str) -> None:
        settings = self._tart.settings
        found = ""
        for resolver in _RESOLVERS:
            try:
                found = await self._tart.ip(name, resolver=resolver)
            except (VmError, UnicodeError):  # none yet, too slow, or no text: it is tried again
                continue
            found = address_of(found) if resolver == "dhcp" else guest_address(found)
            if found:
                break
        wait = settings.address_again if found else settings.address_retry
        self._due[name] = self._tart.clock.monotonic() + wait
        if found:
            self._known[name] = found


def address_of(text: str) -> str:
    """The address that a text consists of; empty if it is something else."""
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return ""


def guest_address(text: str) -> str:
    """The same for what a guest says about itself; empty if it cannot be a guest's address."""
    found = address_of(text)
    if not found or "%" in found:
        return ""
    address = ipaddress.ip_address(found)
    if isinstance(address, ipaddress.IPv6Address):
        address = address.ipv4_mapped or address
    no_guest = (
        address.is_loopback
        or address.is_link_local
        or address.is_multicast
        or address.is_unspecified
        or address.is_reserved
    )
    return "" if no_guest or _is_ours(str(address)) else found


def _is_ours(address: str) -> bool:
    """Whether the address is one of this host's: only to those a socket can be bound."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True
