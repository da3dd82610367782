"""While the list of VMs hangs the host stays alive, a sibling Pod ends in its grace, and the Node says what is wrong.

Each of these has its guard. With the guard switched off it does not hold.
"""

import itertools
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from tests.node.agent_harness import NODE, AgentHarness, play

from runyard.kube.kinds import LEASES
from runyard.node.effects import Effects
from runyard.node.lease import LeaseLoop
from runyard.node.plans import actions as do
from runyard.node.vms import Vms
from runyard.wire import names
from runyard.wire.instants import from_rfc3339

GRACE = 20
LONGEST_GAP = 15.0  # seconds between two renewals of the lease
HANGS = 240  # seconds


class Seen(msgspec.Struct):
    """What others see of a host whose list hangs."""

    gap: float  # longest time without a renewal
    ended: bool  # the sibling is gone within its grace
    ready: tuple[str, str]  # while it hangs, and after it


async def hang_the_list(harness: AgentHarness) -> Seen:
    for name in ("a", "b"):
        harness.guests[name] = 1e6
        await harness.add_pod(name)
        await harness.until_phase(name, "Running")
    harness.driver.hang("list", times=1000)
    await harness.delete_pod("b", grace=GRACE)
    renewals, ended = [harness.clock.now()], False
    for second in range(HANGS):
        lease = await harness.kube.get(LEASES, NODE, namespace=names.NODE_LEASE_NAMESPACE)
        renewals.append(from_rfc3339(lease["spec"]["renewTime"]))
        ended = ended or (second <= GRACE and await harness.phase("b") == "gone")
        await harness.clock.sleep(1)
    renewals.append(harness.clock.now())
    during = await ready(harness)
    harness.driver.heal()
    await harness.clock.sleep(180)
    assert await harness.phase("a") == "Running"
    gaps = [later - earlier for earlier, later in itertools.pairwise(sorted(renewals))]
    return Seen(max(gaps), ended, (during, await ready(harness)))


async def ready(harness: AgentHarness) -> str:
    found = (await harness.node())["status"]["conditions"]
    return str(next(each["status"] for each in found if each["type"] == "Ready"))


def seen(directory: Path) -> Seen:
    found: list[Seen] = []

    async def scenario(harness: AgentHarness) -> None:
        found.append(await hang_the_list(harness))

    play(scenario, directory)
    return found[0]


def test_a_hanging_list_costs_neither_the_lease_nor_a_siblings_end(tmp_path: Path) -> None:
    host = seen(tmp_path)
    assert host.gap < LONGEST_GAP
    assert host.ended
    assert host.ready == ("Unknown", "True")


def lease_after_a_list(patch: pytest.MonkeyPatch) -> None:
    """The lease is renewed by the loop that lists the VMs."""
    step = LeaseLoop.step

    async def late(self: LeaseLoop) -> None:
        await self._deps.driver.list()
        await step(self)

    patch.setattr(LeaseLoop, "step", late)


def end_after_a_list(patch: pytest.MonkeyPatch) -> None:
    """A VM is stopped only after a new list."""
    stop = Effects.stop

    async def late(self: Effects, action: do.StopVm) -> None:
        await self._vms.newer_than(self._vms.begun)
        await stop(self, action)

    patch.setattr(Effects, "stop", late)


def no_age_of_the_list(patch: pytest.MonkeyPatch) -> None:
    """The age of the newest list is not known."""
    patch.setattr(Vms, "silent_for", 0.0)


@pytest.mark.parametrize(
    ("switch_off", "holds"),
    [
        pytest.param(lease_after_a_list, lambda host: host.gap < LONGEST_GAP, id="lease"),
        pytest.param(end_after_a_list, lambda host: host.ended, id="sibling"),
        pytest.param(no_age_of_the_list, lambda host: host.ready[0] == "Unknown", id="ready"),
    ],
)
def test_without_its_guard_a_hanging_list_costs_it(
    switch_off: Callable[[pytest.MonkeyPatch], None],
    holds: Callable[[Seen], bool],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    switch_off(monkeypatch)
    assert not holds(seen(tmp_path))
