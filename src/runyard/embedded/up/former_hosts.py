"""Removes the hosts that an earlier start with a higher `--hosts` had.

Without this their Nodes stay, and their Pods count as runners until Kubernetes gives them up. A host is removed as
`runyard host remove` removes one that joined: first its account, then its Node; its Pods follow, by the operator and
by the API's own collector. Its directory stays, and a later start with more hosts uses it again.

Invariants:
- The VMs of a host have ended before its Node is deleted: a job never runs twice. If one cannot be ended, the host
  stays, is reported, and the next start tries again.
- Only `host-1`, `host-2`, … are removed, which no other machine can be named.
"""

import asyncio
from collections.abc import Callable

from runyard.clock import Clock
from runyard.embedded.up.hosts import host_names, vm_home
from runyard.embedded.up.layout import Layout
from runyard.hosts.joining import accounts
from runyard.kube.client import Kube
from runyard.kube.kinds import NODES
from runyard.vm.contract import VmError
from runyard.vm.registry import opened_before
from runyard.vm.teardown import stop_all

_GRACE = 2.0  # seconds that VMs have for their end
_MOST = 50  # hosts that a machine can have


async def remove(
    kube: Kube, layout: Layout, *, hosts: int, clock: Clock, report: Callable[[str], None]
) -> None:
    """Remove the Nodes of our own hosts beyond this number, once their VMs have ended."""
    found = {each["metadata"]["name"] for each in (await kube.list(NODES)).items}
    joined = await accounts.joined(kube)
    former = [name for name in host_names(_MOST)[hosts:] if name in found and name not in joined]
    async with asyncio.TaskGroup() as group:
        ends = {name: group.create_task(_remove(kube, layout, name, clock)) for name in former}
    removed = [name for name, end in ends.items() if not end.result()]
    if removed:
        verb = "is" if len(removed) == 1 else "are"
        report(
            f"{', '.join(removed)} {verb} removed: this start has fewer hosts than an earlier one"
        )
    for name, end in ends.items():
        if why := end.result():
            report(
                f"{name} cannot be removed, because its VMs do not end: {why}. The next start tries again"
            )


async def _remove(kube: Kube, layout: Layout, name: str, clock: Clock) -> str:
    """End the host's VMs and remove it; returns why that is not possible."""
    try:
        for driver in opened_before(vm_home(layout, name), clock=clock):
            await stop_all(driver, grace=_GRACE)
    except (VmError, OSError) as error:
        return str(error)
    await accounts.revoke(kube, name)
    await accounts.forget_node(kube, name)
    return ""
