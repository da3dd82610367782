"""Tests that all VMs are ended in bounded time even if they ignore TERM, and that logs are bounded."""

import asyncio

import pytest
from tests.conftest import Absent
from tests.vm.guest_harness import JIT, TOKEN, Server
from tests.vm.process_harness import WAYS, Pipe, ProcessHarness, Way, isolation, run_on

from runyard.vm.contract import DriverFailed, VmState
from runyard.vm.process.isolation import Isolation
from runyard.vm.process.limits import Limits
from runyard.vm.shim.control import POWER_OFF_TIMEOUT
from runyard.vm.shim.processes import table
from runyard.vm.teardown import stop_all

COUNT = 12
GRACE = 0.5
TIMEOUT = 60.0

# Processes that ignore TERM: a child, a daemon in a session of its own without an environment, and
# a grandchild whose parents have ended, so that it has another parent; each holds the pipe open as long as it lives.
FAMILY = r"""
import os, signal
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
held = os.open(os.environ["RUNYARD_STATUS_DIR"] + "/held", os.O_WRONLY)
os.set_inheritable(held, True)

def stay(name):
    os.write(held, name + b"\n")
    os.execve("/bin/sleep", ["sleep", "86400"], {})

if os.fork() == 0:
    stay(b"child")
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        stay(b"daemon")
    os._exit(0)
if os.fork() == 0:
    if os.fork() == 0:
        os.setpgid(0, 0)
        if os.fork() == 0:
            stay(b"orphan")
        os._exit(0)
    os._exit(0)
stay(b"parent")
"""
BOOT = """#!/bin/sh
trap '' TERM INT HUP
exec "$RUNYARD_PYTHON" -I -S "$RUNYARD_VM_DIR/image/family.py"
"""


def found(way: Way, absent: Absent) -> Isolation:
    held = isolation(way)
    if isinstance(held, str):
        absent(f"a machine for VMs as processes, {way}", held)
    return held


async def start_all(harness: ProcessHarness) -> list[Pipe]:
    """Start a dozen VMs with these processes, all of them running."""
    harness.put_image(BOOT, **{"family.py": FAMILY})
    vms = [f"vm-{number}" for number in range(COUNT)]
    for name in vms:
        await harness.create(name)
    pipes = [harness.pipe(name, "held") for name in vms]
    async with asyncio.TaskGroup() as group:
        for name in vms:
            group.create_task(harness.driver.start(name))
    for pipe in pipes:
        lines = [await pipe.line() for _ in range(4)]
        assert sorted(lines) == ["child", "daemon", "orphan", "parent"]
    return pipes


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_dozen_vms_that_ignore_term_are_ended_together(way: Way, absent: Absent) -> None:
    async def scenario(harness: ProcessHarness) -> None:
        pipes = await start_all(harness)
        shims = [
            int((harness.directory(view.name).state / "started").read_text())
            for view in await harness.driver.list()
        ]
        # One grace and one power-off for all of them together, not for each.
        async with harness.clock.timeout(GRACE + POWER_OFF_TIMEOUT):
            await stop_all(harness.driver, grace=GRACE)
        assert [pipe.held() for pipe in pipes] == [False] * COUNT
        views = await harness.driver.list()
        assert [view.exit_reason for view in views] == ["powered off"] * COUNT
        # A shim ends shortly after it has written the exit record.
        async with harness.clock.timeout(TIMEOUT):
            while any(pid in table() for pid in shims):
                await harness.clock.sleep(0.01)

    run_on(found(way, absent), scenario)


def test_a_vm_that_cannot_be_reached_does_not_delay_the_others(absent: Absent) -> None:
    async def scenario(harness: ProcessHarness) -> None:
        harness.put_image('#!/bin/sh\necho up >"$RUNYARD_STATUS_DIR/up"\nexec sleep 86400\n')
        for name in ("unreachable", "vm"):
            await harness.create(name)
            up = harness.pipe(name, "up")
            await harness.driver.start(name)
            await up.line()
        control = harness.directory("unreachable").state / "control"
        hidden = control.rename(control.with_name("hidden"))
        with pytest.raises(DriverFailed, match="unreachable cannot be reached"):
            await stop_all(harness.driver, grace=0)
        assert (await harness.view("vm")).state is VmState.EXITED
        hidden.rename(control)

    run_on(found("plain", absent), scenario)


# ── logs ────────────────────────────────────────────────────────────────────────────────────────

VERBOSE = """#!/bin/sh
head -c 100000000 /dev/zero | tr '\\0' 'x'
sleep 86400 & # holds the pipe open, as a job's daemon does
echo the last word
exit 3
"""


def test_a_runner_that_prints_a_hundred_megabytes_does_not_fill_the_disk(absent: Absent) -> None:
    """The VM's disk limit is far lower: if all output were kept, the VM would be ended."""

    async def scenario(harness: ProcessHarness) -> None:
        harness.put_guest_image(VERBOSE)
        with Server([JIT]) as server:
            directory = await harness.create(
                "vm", token=TOKEN, TUIST_RUNNER_DISPATCH_URL=server.url
            )
            await harness.driver.start("vm")
            ended = await harness.exited("vm")
        assert (ended.exit_code, ended.exit_reason) == (3, "the guest reported 3")
        published = (directory.status / "runner.log").read_bytes()
        assert len(published) == 65536
        assert published.endswith(b"xthe last word\n")
        logs = [
            *directory.state.glob("*.log*"),
            *directory.run.glob("*.log"),
            *directory.status.glob("*.log"),
        ]
        assert sum(path.stat().st_size for path in logs) < 4 << 20

    run_on(found("plain", absent), scenario, Limits(disk_mb=8, disk_watch_seconds=0.05))
