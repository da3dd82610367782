"""Tests a VM's control group: it holds all processes of the VM and no others, and is removed with the VM.

The kernel's part is tested on the kernel, where there is a group of version 2 that may be split. Its controllers
differ by machine, so splitting is tested with those that are offered. That a limit is enforced is tested only where
the `cpu` or `memory` controller is available.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.conftest import Absent
from tests.vm.process_harness import TIMEOUT, ProcessHarness, isolation, run_on

from runyard.clock import RealClock
from runyard.vm.contract import DriverFailed
from runyard.vm.process import cgroup, cgroups
from runyard.vm.process.cgroup_probe import probe_cgroups
from runyard.vm.process.isolation import Isolation
from runyard.vm.process.limits import CONTROLLERS, Limits

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="control groups are Linux's")
IDLE = '#!/bin/sh\necho up >"$RUNYARD_STATUS_DIR/up"\nexec sleep 86400\n'


@pytest.fixture
def ground(absent: Absent) -> Iterator[Path]:
    """A control group for one test, below our own."""
    ours = cgroups.own()
    if ours is None:
        absent("control groups of version 2", "run the tests where they are mounted")
    path = ours / f"runyard-test-{os.getpid()}"
    try:
        path.mkdir()
        if not (path / "cgroup.procs").exists():
            raise OSError("it is not a control group")
    except OSError as error:
        absent("a writable control group (version 2)", f"delegate one to the tests: {error}")
    try:
        yield path
    finally:
        asyncio.run(cgroups.clear(path, RealClock()))
        assert not path.exists()


def process_in(group: Path) -> subprocess.Popen[bytes]:
    """A process that runs in this group until it is killed or its input ends."""
    argv = ["/bin/sh", "-c", 'echo 0 >"$1/cgroup.procs" && echo in && exec cat', "sh", str(group)]
    child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"in\n"
    return child


def plain() -> Isolation:
    way = isolation("plain")
    assert isinstance(way, Isolation), way
    return way


# ── splitting ───────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def offered(ground: Path, absent: Absent) -> Iterator[tuple[str, ...]]:
    """Controllers that the group offers to groups below; enabled in the true root for one test."""
    above, borrowed = ground.parent, ()
    if not words(ground, "cgroup.controllers") and cgroups.inspect(above).true_root:
        borrowed, _ = cgroups.split(above, words(above, "cgroup.controllers"))
    found = words(ground, "cgroup.controllers")
    if not found:
        absent("a controller of control groups", "enable one for the group of the tests")
    try:
        yield found
    finally:
        (ground / "cgroup.subtree_control").write_text(" ".join(f"-{name}" for name in found))
        for name in borrowed:
            (above / "cgroup.subtree_control").write_text(f"-{name}")


def words(group: Path, name: str) -> tuple[str, ...]:
    return tuple((group / name).read_text().split())


def test_processes_in_a_group_are_moved_before_it_is_split(
    ground: Path, offered: tuple[str, ...]
) -> None:
    """The kernel refuses to split a group with processes in it: the test fails unless they are moved."""
    os.setxattr(ground, "user.delegate", b"1")
    with process_in(ground) as one, process_in(ground) as two:
        try:
            enabled, why = cgroups.split(ground, offered)
            assert (enabled, why) == (offered, "")
            assert sorted(cgroup.members(str(ground / cgroups.INSIDE))) == sorted(
                [one.pid, two.pid]
            )
            assert cgroup.members(str(ground)) == []
            assert cgroups.split(ground, offered) == (offered, "")  # again, as the next agent does
            found = cgroups.make(ground, Path("/a/vm"), ())
            assert words(found, "cgroup.controllers") == offered
        finally:
            cgroup.kill_all(str(ground))


def test_a_group_that_was_not_delegated_is_not_split(ground: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("a plain user's group is its own")
    (ground / "below").mkdir()
    offered = words(ground, "cgroup.controllers")
    with process_in(ground) as other:
        try:
            enabled, why = cgroups.split(ground, offered or CONTROLLERS)
            assert enabled == () and why
            assert cgroup.members(str(ground)) == [other.pid]
            assert not (ground / cgroups.INSIDE).exists()
        finally:
            cgroup.kill_all(str(ground))


def test_the_probe_leaves_nothing_and_reports_only_what_worked(ground: Path) -> None:
    found = probe_cgroups(ground)
    assert found.group == str(ground)
    assert all((ground / "cgroup.subtree_control").read_text().count(c) for c in found.controllers)
    assert bool(found.why) == (found.controllers != CONTROLLERS)
    assert [path for path in ground.iterdir() if path.is_dir()] == []


def test_a_directory_that_is_no_control_group_is_not_used(tmp_path: Path) -> None:
    fake_group(tmp_path, "cpu memory pids")
    found = probe_cgroups(tmp_path)
    assert (found.group, found.controllers) == ("", ())
    assert found.why


# ── a VM in its leaf ────────────────────────────────────────────────────────────────────────────


def test_a_vms_leaf_exists_only_while_the_vm_runs(ground: Path) -> None:
    way = msgspec.structs.replace(plain(), cgroup=str(ground))

    async def scenario(harness: ProcessHarness) -> None:
        harness.put_image(IDLE)
        directory = await harness.create("vm")
        up = harness.pipe("vm", "up")
        await harness.driver.start("vm")
        assert await up.line() == "up"
        own = cgroups.leaf_path(ground, directory.path)
        assert cgroup.is_populated(str(own))
        shim = int((directory.state / "started").read_text())
        assert shim not in cgroup.members(str(own))  # or it would end itself
        await harness.driver.stop("vm", grace=0)
        assert not own.exists()

    run_on(way, scenario)


def test_a_leaf_of_a_vm_that_was_removed_by_hand_is_cleared_by_the_next_driver(
    ground: Path,
) -> None:
    way = msgspec.structs.replace(plain(), cgroup=str(ground))

    async def scenario(harness: ProcessHarness) -> None:
        gone = cgroups.make(ground, harness.root / "removed", ())
        kept = cgroups.make(ground, harness.root, ())
        (gone / "made by a guest").mkdir()
        unmarked = ground / "runyard-0000000000000000"
        unmarked.mkdir()  # without a mark its owner is unknown
        with process_in(gone) as lost, process_in(kept) as living:
            try:
                assert cgroups.abandoned(ground) == (gone,)
                assert await harness.driver.list() == ()
                assert lost.wait(TIMEOUT) == -signal.SIGKILL
                assert not gone.exists()
                assert living.poll() is None and unmarked.exists()
            finally:
                cgroup.kill_all(str(kept))

    run_on(way, scenario)


MEMORY_HOG = """#!/bin/sh
exec "$RUNYARD_PYTHON" -I -S -c '
import os
held = bytearray(256 << 20)
held[::4096] = b"x" * len(held[::4096])
open(os.environ["RUNYARD_STATUS_DIR"] + "/allocated", "w").close()
'
"""
BUSY = """#!/bin/sh
echo up >"$RUNYARD_STATUS_DIR/up"
while :; do :; done
"""


def enforced(ground: Path, controller: str, absent: Absent) -> Isolation:
    found = probe_cgroups(ground)
    if controller not in found.controllers:
        absent(f"the {controller} controller of control groups (version 2)", found.why)
    return msgspec.structs.replace(plain(), cgroup=found.group, controllers=found.controllers)


def test_a_vm_over_its_memory_limit_is_ended_with_the_reason(ground: Path, absent: Absent) -> None:
    async def scenario(harness: ProcessHarness) -> None:
        harness.put_image(MEMORY_HOG)
        directory = await harness.create("vm")
        await harness.driver.start("vm")
        ended = await harness.exited("vm")
        assert not (directory.status / "allocated").exists()
        assert "memory was used up" in ended.exit_reason

    run_on(enforced(ground, "memory", absent), scenario, Limits(memory_mb=64))


def test_a_busy_vm_is_throttled_to_its_cpu_limit(ground: Path, absent: Absent) -> None:
    async def scenario(harness: ProcessHarness) -> None:
        harness.put_image(BUSY)
        directory = await harness.create("vm")
        up = harness.pipe("vm", "up")
        await harness.driver.start("vm")
        await up.line()
        stat = cgroups.leaf_path(ground, directory.path) / "cpu.stat"
        async with harness.clock.timeout(TIMEOUT):
            while "nr_throttled 0" in stat.read_text():
                await harness.clock.sleep(0.01)

    run_on(enforced(ground, "cpu", absent), scenario, Limits(cpu_milli=50))


# ── a directory that looks like a group: for what this kernel does not offer ────────────────────


def fake_group(path: Path, offered: str) -> Path:
    for name in ("cgroup.procs", "cgroup.subtree_control", "cgroup.type"):
        (path / name).write_text("")
    (path / "cgroup.controllers").write_text(offered)
    return path


def leaf_in(path: Path, vm: Path, *files: str) -> Path:
    found = cgroups.leaf_path(path, vm)
    found.mkdir()
    for name in files:
        (found / name).write_text("max\n")
    return found


def test_limits_are_written_when_the_leaf_is_created(tmp_path: Path) -> None:
    vm = tmp_path / "vm"
    made = leaf_in(tmp_path, vm, "cpu.max", "memory.max", "pids.max")  # and no swap
    limits = (("cpu.max", "50000 100000"), ("memory.max", "1"), ("memory.swap.max", "0"))
    assert cgroups.make(tmp_path, vm, (*limits, ("pids.max", "7"))) == made
    assert (made / "cpu.max").read_text().startswith("50000 100000")
    assert not (made / "memory.swap.max").exists()


def test_a_limit_that_cannot_be_set_fails_the_vm(tmp_path: Path) -> None:
    leaf_in(tmp_path, tmp_path / "vm")
    with pytest.raises(DriverFailed, match="cannot create the control group of vm"):
        cgroups.make(tmp_path, tmp_path / "vm", (("cpu.max", "1 2"),))


def test_the_driver_sets_the_limits_of_the_vm(tmp_path: Path) -> None:
    way = msgspec.structs.replace(plain(), cgroup=str(tmp_path), controllers=CONTROLLERS)

    async def scenario(harness: ProcessHarness) -> None:
        harness.put_image(IDLE)
        directory = await harness.create("vm")
        made = leaf_in(
            tmp_path, directory.path, "cpu.max", "memory.max", "memory.swap.max", "pids.max"
        )
        (made / "cgroup.procs").touch()
        await harness.driver.start("vm")
        written = {path.name: path.read_text().split("\n")[0] for path in made.glob("*.max")}
        assert written == {
            "cpu.max": "100000 100000",
            "memory.max": str(256 << 20),
            "memory.swap.max": "0ax",
            "pids.max": "9ax",
        }
        assert (made / "cgroup.procs").read_text() == "0"  # the guest entered it by itself
        await harness.driver.stop("vm", grace=0)

    run_on(way, scenario, Limits(pids=9))


def test_without_cgroup_kill_each_member_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child:
        (tmp_path / "cgroup.procs").write_text(f"0\n{child.pid}\n")
        cgroup.kill_all(str(tmp_path))
        assert child.wait(TIMEOUT) == -signal.SIGKILL


def test_oom_kills_are_counted(tmp_path: Path) -> None:
    assert cgroup.oom_kills(str(tmp_path)) == cgroup.oom_kills("") == 0
    (tmp_path / "memory.events").write_text("low 0\noom 3\noom_kill 2\noom_group_kill 0\n")
    assert cgroup.oom_kills(str(tmp_path)) == 2
