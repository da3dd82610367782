"""A VM's control group holds it, ends with it and is found again; nobody else's processes are touched.

What the kernel does is tested on the kernel, where there is a group of version 2 that may be divided. Which controllers
it has there differs, so dividing is tested with whichever are offered. That a written limit *bites* is tested only
where the `cpu` or `memory` controller can be had.
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
from tests.vm.processbench import PATIENCE, ProcessBench, isolation, run_on

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
    """A group of the kernel's, made for one test below ours."""
    ours = cgroups.own()
    if ours is None:
        absent("control groups of version 2", "run the tests where they are mounted")
    path = ours / f"runyard-test-{os.getpid()}"
    try:
        path.mkdir()
        if not (path / "cgroup.procs").exists():
            raise OSError("it is no control group")
    except OSError as error:
        absent("a writable control group (version 2)", f"delegate one to the tests: {error}")
    try:
        yield path
    finally:
        asyncio.run(cgroups.clear(path, RealClock()))
        assert not path.exists()


def inhabitant(group: Path) -> subprocess.Popen[bytes]:
    """A process that lives in this group until it is killed or its input ends."""
    argv = ["/bin/sh", "-c", 'echo 0 >"$1/cgroup.procs" && echo in && exec cat', "sh", str(group)]
    child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"in\n"
    return child


def plain() -> Isolation:
    way = isolation("plain")
    assert isinstance(way, Isolation), way
    return way


# ── dividing ────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def offered(ground: Path, absent: Absent) -> Iterator[tuple[str, ...]]:
    """Controllers that the group may hand on; from the true root they are borrowed for one test."""
    above, borrowed = ground.parent, ()
    if not words(ground, "cgroup.controllers") and cgroups.inspect(above).true_root:
        borrowed, _ = cgroups.split(above, words(above, "cgroup.controllers"))
    found = words(ground, "cgroup.controllers")
    if not found:
        absent("a controller to hand out", "enable one for the group of the tests")
    try:
        yield found
    finally:
        (ground / "cgroup.subtree_control").write_text(" ".join(f"-{name}" for name in found))
        for name in borrowed:
            (above / "cgroup.subtree_control").write_text(f"-{name}")


def words(group: Path, name: str) -> tuple[str, ...]:
    return tuple((group / name).read_text().split())


def test_whoever_lives_in_a_divided_group_steps_aside(
    ground: Path, offered: tuple[str, ...]
) -> None:
    """The kernel refuses to divide a group with processes in it: the test fails without the stepping aside."""
    os.setxattr(ground, "user.delegate", b"1")
    with inhabitant(ground) as one, inhabitant(ground) as two:
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


def test_a_group_that_is_not_ours_is_left_as_it_is(ground: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("a plain user's group is its own")
    (ground / "below").mkdir()
    offered = words(ground, "cgroup.controllers")
    with inhabitant(ground) as stranger:
        try:
            enabled, why = cgroups.split(ground, offered or CONTROLLERS)
            assert enabled == () and why
            assert cgroup.members(str(ground)) == [stranger.pid]
            assert not (ground / cgroups.INSIDE).exists()
        finally:
            cgroup.kill_all(str(ground))


def test_the_trial_leaves_nothing_and_claims_only_what_worked(ground: Path) -> None:
    found = probe_cgroups(ground)
    assert found.group == str(ground)
    assert all((ground / "cgroup.subtree_control").read_text().count(c) for c in found.controllers)
    assert bool(found.why) == (found.controllers != CONTROLLERS)
    assert [path for path in ground.iterdir() if path.is_dir()] == []


def test_a_directory_that_only_looks_like_a_group_is_not_believed(tmp_path: Path) -> None:
    lookalike(tmp_path, "cpu memory pids")
    found = probe_cgroups(tmp_path)
    assert (found.group, found.controllers) == ("", ())
    assert found.why


# ── a VM in its leaf ────────────────────────────────────────────────────────────────────────────


def test_a_vms_leaf_is_there_while_it_runs_and_gone_when_it_has_ended(ground: Path) -> None:
    way = msgspec.structs.replace(plain(), cgroup=str(ground))

    async def scenario(bench: ProcessBench) -> None:
        bench.put_image(IDLE)
        directory = await bench.create("vm")
        up = bench.pipe("vm", "up")
        await bench.driver.start("vm")
        assert await up.line() == "up"
        own = cgroups.leaf_path(ground, directory.path)
        assert cgroup.is_populated(str(own))
        shim = int((directory.state / "started").read_text())
        assert shim not in cgroup.members(str(own))  # or it would end itself
        await bench.driver.stop("vm", grace=0)
        assert not own.exists()

    run_on(way, scenario)


def test_a_leaf_of_a_vm_that_was_removed_by_hand_is_cleared_by_the_next_driver(
    ground: Path,
) -> None:
    way = msgspec.structs.replace(plain(), cgroup=str(ground))

    async def scenario(bench: ProcessBench) -> None:
        gone = cgroups.make(ground, bench.root / "removed", ())
        kept = cgroups.make(ground, bench.root, ())
        (gone / "made by a guest").mkdir()
        stranger = ground / "runyard-0000000000000000"
        stranger.mkdir()  # it bears no mark: whose it is, nobody knows
        with inhabitant(gone) as lost, inhabitant(kept) as living:
            try:
                assert cgroups.abandoned(ground) == (gone,)
                assert await bench.driver.list() == ()
                assert lost.wait(PATIENCE) == -signal.SIGKILL
                assert not gone.exists()
                assert living.poll() is None and stranger.exists()
            finally:
                cgroup.kill_all(str(kept))

    run_on(way, scenario)


HUNGRY = """#!/bin/sh
exec "$RUNYARD_PYTHON" -I -S -c '
import os
held = bytearray(256 << 20)
held[::4096] = b"x" * len(held[::4096])
open(os.environ["RUNYARD_STATUS_DIR"] + "/ate", "w").close()
'
"""
BUSY = """#!/bin/sh
echo up >"$RUNYARD_STATUS_DIR/up"
while :; do :; done
"""


def promised(ground: Path, controller: str, absent: Absent) -> Isolation:
    found = probe_cgroups(ground)
    if controller not in found.controllers:
        absent(f"the {controller} controller of control groups (version 2)", found.why)
    return msgspec.structs.replace(plain(), cgroup=found.group, controllers=found.controllers)


def test_a_vm_that_eats_more_memory_than_it_has_is_ended_and_says_why(
    ground: Path, absent: Absent
) -> None:
    async def scenario(bench: ProcessBench) -> None:
        bench.put_image(HUNGRY)
        directory = await bench.create("vm")
        await bench.driver.start("vm")
        ended = await bench.exited("vm")
        assert not (directory.status / "ate").exists()
        assert "for want of memory" in ended.exit_reason

    run_on(promised(ground, "memory", absent), scenario, Limits(memory_mb=64))


def test_a_busy_vm_is_held_to_its_share_of_a_processor(ground: Path, absent: Absent) -> None:
    async def scenario(bench: ProcessBench) -> None:
        bench.put_image(BUSY)
        directory = await bench.create("vm")
        up = bench.pipe("vm", "up")
        await bench.driver.start("vm")
        await up.line()
        stat = cgroups.leaf_path(ground, directory.path) / "cpu.stat"
        async with bench.clock.timeout(PATIENCE):
            while "nr_throttled 0" in stat.read_text():
                await bench.clock.sleep(0.01)

    run_on(promised(ground, "cpu", absent), scenario, Limits(cpu_milli=50))


# ── a directory that looks like a group: for what this kernel does not offer ────────────────────


def lookalike(path: Path, offered: str) -> Path:
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


def test_limits_are_written_into_the_leaf_before_anybody_is_in_it(tmp_path: Path) -> None:
    vm = tmp_path / "vm"
    made = leaf_in(tmp_path, vm, "cpu.max", "memory.max", "pids.max")  # and no swap
    told = (("cpu.max", "50000 100000"), ("memory.max", "1"), ("memory.swap.max", "0"))
    assert cgroups.make(tmp_path, vm, (*told, ("pids.max", "7"))) == made
    assert (made / "cpu.max").read_text().startswith("50000 100000")
    assert not (made / "memory.swap.max").exists()


def test_a_promised_limit_that_cannot_be_set_is_no_vm(tmp_path: Path) -> None:
    leaf_in(tmp_path, tmp_path / "vm")
    with pytest.raises(DriverFailed, match="cannot create the control group of vm"):
        cgroups.make(tmp_path, tmp_path / "vm", (("cpu.max", "1 2"),))


def test_a_driver_asks_for_what_the_vm_asked_for(tmp_path: Path) -> None:
    way = msgspec.structs.replace(plain(), cgroup=str(tmp_path), controllers=CONTROLLERS)

    async def scenario(bench: ProcessBench) -> None:
        bench.put_image(IDLE)
        directory = await bench.create("vm")
        made = leaf_in(
            tmp_path, directory.path, "cpu.max", "memory.max", "memory.swap.max", "pids.max"
        )
        (made / "cgroup.procs").touch()
        await bench.driver.start("vm")
        told = {path.name: path.read_text().split("\n")[0] for path in made.glob("*.max")}
        assert told == {
            "cpu.max": "100000 100000",
            "memory.max": str(256 << 20),
            "memory.swap.max": "0ax",
            "pids.max": "9ax",
        }
        assert (made / "cgroup.procs").read_text() == "0"  # the guest went in by itself
        await bench.driver.stop("vm", grace=0)

    run_on(way, scenario, Limits(pids=9))


def test_where_a_group_cannot_be_killed_at_once_its_members_are(tmp_path: Path) -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child:
        (tmp_path / "cgroup.procs").write_text(f"0\n{child.pid}\n")
        cgroup.kill_all(str(tmp_path))
        assert child.wait(PATIENCE) == -signal.SIGKILL


def test_processes_that_starved_are_counted(tmp_path: Path) -> None:
    assert cgroup.oom_kills(str(tmp_path)) == cgroup.oom_kills("") == 0
    (tmp_path / "memory.events").write_text("low 0\noom 3\noom_kill 2\noom_group_kill 0\n")
    assert cgroup.oom_kills(str(tmp_path)) == 2
