"""A host goes down in bounded time, however its jobs resist, and a job's talk fills no disk."""

import asyncio

import pytest
from tests.conftest import Absent
from tests.vm.guestbench import JIT, TOKEN, Server
from tests.vm.processbench import WAYS, Pipe, ProcessBench, Way, isolation, run_on

from runyard.vm.contract import DriverFailed, VmState
from runyard.vm.process.isolation import Isolation
from runyard.vm.process.limits import Limits
from runyard.vm.process.processes import table
from runyard.vm.process.shims import POWER_OFF_TIMEOUT

COUNT = 12
GRACE = 0.5
PATIENCE = 60.0

# A family that wants to stay: each ignores TERM; a child, a daemon in a session of its own without an environment, and
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


async def settled(bench: ProcessBench) -> list[Pipe]:
    """A dozen such families, each complete."""
    bench.put_image(BOOT, **{"family.py": FAMILY})
    vms = [f"vm-{number}" for number in range(COUNT)]
    for name in vms:
        await bench.create(name)
    pipes = [bench.pipe(name, "held") for name in vms]
    async with asyncio.TaskGroup() as group:
        for name in vms:
            group.create_task(bench.driver.start(name))
    for pipe in pipes:
        heard = [await pipe.line() for _ in range(4)]
        assert sorted(heard) == ["child", "daemon", "orphan", "parent"]
    return pipes


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_dozen_vms_that_refuse_to_end_are_ended_together_and_whole(
    way: Way, absent: Absent
) -> None:
    async def scenario(bench: ProcessBench) -> None:
        pipes = await settled(bench)
        shims = [
            int((bench.directory(view.name).state / "started").read_text())
            for view in await bench.driver.list()
        ]
        # One grace and one power-off for all of them together, not for each.
        async with bench.clock.timeout(GRACE + POWER_OFF_TIMEOUT):
            await bench.driver.stop_all(grace=GRACE)
        assert [pipe.held() for pipe in pipes] == [False] * COUNT
        views = await bench.driver.list()
        assert [view.exit_reason for view in views] == ["powered off"] * COUNT
        async with bench.clock.timeout(
            PATIENCE
        ):  # the exit is written down by a shim that is still going
            while any(pid in table() for pid in shims):
                await bench.clock.sleep(0.01)

    run_on(found(way, absent), scenario)


def test_a_vm_that_cannot_be_reached_does_not_keep_the_others_up(absent: Absent) -> None:
    async def scenario(bench: ProcessBench) -> None:
        bench.put_image('#!/bin/sh\necho up >"$RUNYARD_STATUS_DIR/up"\nexec sleep 86400\n')
        for name in ("deaf", "vm"):
            await bench.create(name)
            up = bench.pipe(name, "up")
            await bench.driver.start(name)
            await up.line()
        control = bench.directory("deaf").state / "control"
        hidden = control.rename(control.with_name("hidden"))
        with pytest.raises(DriverFailed, match="deaf cannot be reached"):
            await bench.driver.stop_all(grace=0)
        assert (await bench.view("vm")).state is VmState.EXITED
        hidden.rename(control)

    run_on(found("plain", absent), scenario)


# ── talk ────────────────────────────────────────────────────────────────────────────────────────

TALKATIVE = """#!/bin/sh
head -c 100000000 /dev/zero | tr '\\0' 'x'
sleep 86400 & # holds the pipe open, as a job's daemon does
echo the last word
exit 3
"""


def test_a_runner_that_prints_a_hundred_megabytes_fills_no_disk(absent: Absent) -> None:
    """The VM may use far less than that; were it all kept, it would be ended for it."""

    async def scenario(bench: ProcessBench) -> None:
        bench.put_guest_image(TALKATIVE)
        with Server([JIT]) as server:
            directory = await bench.create("vm", token=TOKEN, TUIST_RUNNER_DISPATCH_URL=server.url)
            await bench.driver.start("vm")
            ended = await bench.exited("vm")
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
