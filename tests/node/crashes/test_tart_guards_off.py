"""Each guarantee of the crash matrix needs its guard: with the guard switched off, the check fails."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest
from tests.node.crashes.effects import AGENT, SHIM
from tests.node.crashes.host import Host, Mode
from tests.node.crashes.lives import WITHIN, Case, Effect
from tests.node.crashes.matrix import Matrix, open_matrix
from tests.tiers import sample

from runyard.node.plans.values import vm_name
from runyard.vm.contract import Fault

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
_SOON = 10.0  # seconds in which a life without its guard does not end


class Twin(msgspec.Struct, frozen=True):
    """A life that is right with the guard and wrong without it."""

    guard: str
    says: str  # one of the complaints without it
    kill: tuple[str, str, str] | None = None  # role and effect before which to kill, and the victim
    mode: Mode = "host"

    @property
    def case(self) -> Case | None:
        """The kill."""
        if self.kill is None:
            return None
        role, name, victim = self.kill
        return Case(self.mode, Effect(role, name), victim)


TWINS = (
    Twin("started", "was called 2 times", (SHIM, "start tart exec in POD", SHIM)),
    Twin("wipe", "a token is in"),
    Twin("removal", "left: agent/vm/tart/vms/POD"),
    Twin(
        "result",
        "only the agent was killed",
        (AGENT, "rename agent/records/uid.json exited", AGENT),
    ),
    Twin(
        "alive",
        "only the agent was killed",
        (SHIM, "write agent/vm/tart/vms/POD/state/started", AGENT),
    ),
)


def play(scenario: Callable[[Matrix], Awaitable[None]]) -> None:
    async def main() -> None:
        async with open_matrix(1) as matrix:
            await scenario(matrix)

    asyncio.run(main())


@pytest.mark.parametrize("twin", sample(TWINS, of=3), ids=lambda twin: twin.guard)
def test_without_its_guard_a_guarantee_does_not_hold(twin: Twin) -> None:
    async def scenario(matrix: Matrix) -> None:
        (host,) = matrix.hosts
        guarded = await matrix.live(host, twin.mode, twin.case)
        assert guarded.reached and not guarded.wrong, guarded
        bare = await matrix.live(host, twin.mode, twin.case, off=(twin.guard,), within=_SOON)
        assert bare.reached, f"the moment {twin.case} did not come"
        assert [each for each in bare.wrong if twin.says in each], bare.wrong

    play(scenario)


# ── others' VMs ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("off", [(), ("ownership",)], ids=["guarded", "bare"])
def test_a_vm_of_others_is_left_alone_because_it_has_no_record(off: tuple[str, ...]) -> None:
    async def scenario(matrix: Matrix) -> None:
        (host,) = matrix.hosts
        host.order(life="others", pod="job-1", off=off)
        await host.add_pod("job-1", "host")
        await host.until(lambda: host.present("job-1"), within=WITHIN)
        name = vm_name("job-1", host.pods["job-1"].metadata.uid)
        disk = Path(host.tart.create(name, {"boot": "#!/bin/sh\n# made by others\n"}).path)
        before = (disk / "disk.img").read_bytes()
        await host.start()
        await host.until(lambda: refused(host) or host.lines("begin", name) > 0, within=WITHIN)
        await host.delete_pod("job-1")
        await host.until(lambda: not host.present("job-1"), within=WITHIN)
        kept = disk.exists() and (disk / "disk.img").read_bytes() == before
        assert kept is not bool(off)

    play(scenario)


def refused(host: Host) -> bool:
    """Whether the Pod's container waits because the driver refused the name."""
    statuses = host.pods["job-1"].status.container_statuses
    state = statuses[0].state.waiting if statuses else None
    return state is not None and state.reason == Fault.DRIVER_FAILED.camel


# ── a VM that is gone already ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("off", [(), ("absent",)], ids=["guarded", "bare"])
def test_a_vm_that_does_not_exist_ends_its_pod(off: tuple[str, ...]) -> None:
    async def scenario(matrix: Matrix) -> None:
        (host,) = matrix.hosts
        host.order(life="absent", pod="job-1", off=off)
        await host.start()
        await host.add_pod("job-1", "host")
        await host.until(lambda: host.lines("begin", "job-1") > 0, within=WITHIN)
        name = vm_name("job-1", host.pods["job-1"].metadata.uid)
        await host.kill()
        assert host.tart.call("stop", name, "--timeout", "0").code == 0
        await host.until(lambda: host.tart.call("delete", name).code == 0, within=WITHIN)
        await host.delete_pod("job-1")
        await host.start()
        gone = await host.until(
            lambda: not host.present("job-1"), within=_SOON if off else WITHIN, strict=False
        )
        assert gone is not bool(off)

    play(scenario)
