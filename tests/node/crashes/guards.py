"""Switches single guards of the agent off, to show that a check without them fails.

started     (in the shim) that a VM was started is not recorded
wipe        (in the shim) the token stays where it was staged
removal     what was staged for a VM stays after the VM
ownership   VMs of others are not seen as such: neither listed nor left alone
absent      `tart delete` of what does not exist is a failure
result      a VM is deleted as soon as it has ended, before its result is written
alive       neither the shim's lock nor its pipe says that it lives
"""

from collections.abc import Callable
from pathlib import Path

from runyard.node.effects import Effects
from runyard.node.facts import HostPod
from runyard.node.plans.values import Record
from runyard.vm.shim import control
from runyard.vm.shim.directory import ShimDirectory
from runyard.vm.tart.commands import Tart
from runyard.vm.tart.directory import TartDirectory
from runyard.vm.tart.listing import Entry

VMS = "agent/vm/tart/vms"  # the records of our VMs, below a host's folder


def replace(owner: type | object, name: str, value: object) -> None:
    """Put another function in the place of one of the product's."""
    assert hasattr(owner, name), f"{owner} has no {name} any more: the guard is elsewhere"
    setattr(owner, name, value)


def keep_staged_files(root: Path) -> None:
    """What was staged for a VM stays after the VM."""
    replace(TartDirectory, "remove", lambda self: None)


def see_no_others(root: Path) -> None:
    """Only VMs with a record are in the list; so others are not known to exist."""
    listed = Tart.list

    async def ours(self: Tart) -> tuple[Entry, ...]:
        names = [path.name for path in (root / VMS).glob("*")]
        return tuple(
            each
            for each in await listed(self)
            if not each.local or each.name in names or each.name.startswith("runyard-golden-")
        )

    replace(Tart, "list", ours)


def fail_where_nothing_is(root: Path) -> None:
    """`tart delete` of what does not exist is a failure."""

    async def delete(self: Tart, name: str) -> None:
        await self._retried("delete", name, timeout=self.settings.deadlines.delete)

    replace(Tart, "delete", delete)


def delete_before_the_result(root: Path) -> None:
    """A VM is deleted as soon as it has ended, before its result is written."""
    save = Effects.save

    async def late(self: Effects, pod: HostPod | None, record: Record) -> None:
        if record.result is not None:
            await self._deps.driver.delete(record.vm)
        await save(self, pod, record)

    replace(Effects, "save", late)


def forget_live_shims(root: Path) -> None:
    """Neither the shim's lock nor its pipe says that it lives."""
    replace(control, "flock", lambda handle: True)
    replace(ShimDirectory, "alive", lambda self: False)


OFF: dict[str, Callable[[Path], None]] = {
    "removal": keep_staged_files,
    "ownership": see_no_others,
    "absent": fail_where_nothing_is,
    "result": delete_before_the_result,
    "alive": forget_live_shims,
}
