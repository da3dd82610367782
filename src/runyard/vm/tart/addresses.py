"""Knows the addresses of running VMs without making anyone wait for tart.

`tart ip` may be slow, and it must not delay or fail a list of VMs. So an address is looked up in the background, with a
deadline, and until then the VM has none. Once found it is kept and looked up again from time to time.

The lease of the host's DHCP server is asked first: it needs no help of the guest. Where there is none, as with a
bridged network, the guest's agent is asked.
"""

import asyncio

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
            except VmError:  # none yet, or too slow: the next lookup may find it
                continue
            if found:
                break
        wait = settings.address_again if found else settings.address_retry
        self._due[name] = self._tart.clock.monotonic() + wait
        if found:
            self._known[name] = found
