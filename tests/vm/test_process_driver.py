"""Tests that the process driver's directories are complete or absent, after any kill and on a full disk."""

import asyncio
import os
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from tests.conftest import Absent
from tests.vm.process_harness import IMAGE, ProcessHarness, home, isolation, run_on

from runyard.vm.contract import DriverFailed, ImageMissing, NoSpace, VmSpec, VmState, VmView
from runyard.vm.guest.image import build_image
from runyard.vm.process.folders import NewDirectory, sweep
from runyard.vm.process.isolation import Isolation
from runyard.vm.process.layout import quoted, unquoted
from runyard.vm.process.limits import Limits

IDLE = '#!/bin/sh\necho up >"$RUNYARD_STATUS_DIR/up"\nexec sleep 86400\n'


def plain() -> Isolation:
    way = isolation("plain")
    assert isinstance(way, Isolation), way
    return way


def on_plain(
    scenario: Callable[[ProcessHarness], Awaitable[None]], limits: Limits | None = None
) -> None:
    run_on(plain(), scenario, limits)


def spec(name: str = "vm", **changes: object) -> VmSpec:
    whole = {"name": name, "image": IMAGE, "cpu_milli": 1, "memory_mb": 1, **changes}
    return VmSpec(**whole)  # type: ignore[arg-type]  # names are checked by the struct itself


# ── incomplete directories ──────────────────────────────────────────────────────────────────────


def test_an_incomplete_vm_is_not_listed_and_does_not_block_the_next_attempt() -> None:
    async def scenario(harness: ProcessHarness) -> None:
        harness.put_image(IDLE)
        await harness.driver.pull(IMAGE)
        half = harness.home / "vms" / ".new-1-0-vm" / "made" / "work"
        half.mkdir(parents=True)
        harness.driver = harness.reopened()
        assert await harness.driver.list() == ()
        await harness.driver.create(spec())
        assert [path.name for path in (harness.home / "vms").iterdir()] == ["vm"]

    on_plain(scenario)


@pytest.mark.parametrize("folder", ["vms", "images"])
def test_a_partly_removed_directory_is_swept(folder: str) -> None:
    async def scenario(harness: ProcessHarness) -> None:
        gone = harness.home / folder / ".gone-1-0-x"
        (gone / "work").mkdir(parents=True)
        assert await harness.driver.list() == ()
        assert not gone.exists()

    on_plain(scenario)


def test_a_directory_under_construction_is_not_swept(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with NewDirectory(tmp_path / "vm") as fresh:
            fresh.path.mkdir()
            await sweep(tmp_path)
            fresh.publish()
        await sweep(tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == ["vm"]

    asyncio.run(scenario())


def test_a_failed_creation_leaves_nothing() -> None:
    async def scenario(harness: ProcessHarness) -> None:
        harness.put_image(IDLE)
        await harness.driver.pull(IMAGE)
        with pytest.raises(DriverFailed):
            await harness.driver.create(spec(env=(("not a name", "x"),)))
        assert list((harness.home / "vms").iterdir()) == []

    on_plain(scenario)


def test_creations_at_the_same_time_are_one_vm() -> None:
    async def scenario(harness: ProcessHarness) -> None:
        harness.put_image(IDLE)
        await harness.driver.pull(IMAGE)
        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(harness.driver.create(spec()))
        assert [path.name for path in (harness.home / "vms").iterdir()] == ["vm"]

    on_plain(scenario)


def test_starts_at_the_same_time_are_one_guest() -> None:
    async def scenario(harness: ProcessHarness) -> None:
        harness.put_image('#!/bin/sh\necho one >>"$RUNYARD_STATUS_DIR/starts"\nexit 0\n')
        directory = await harness.create("vm")
        drivers = [harness.driver, harness.reopened(), harness.reopened()]
        async with asyncio.TaskGroup() as group:
            for driver in drivers:
                group.create_task(driver.start("vm"))
        await harness.exited("vm")
        assert (directory.status / "starts").read_text() == "one\n"

    on_plain(scenario)


# ── a full disk ─────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def small_disk(absent: Absent) -> Iterator[Path]:
    """A file system of a few mebibytes."""
    if os.geteuid() != 0:
        absent("root", "run the tests as root too: a small disk must be mounted")
    with home() as directory:
        argv = ["mount", "-t", "tmpfs", "-o", "size=4m,mode=0711", "tmpfs", str(directory)]
        if subprocess.run(argv, capture_output=True, check=False).returncode != 0:
            absent("a mountable tmpfs", "run the tests where mounting is allowed")
        try:
            yield directory
        finally:
            subprocess.run(["umount", str(directory)], check=True)


def test_a_full_disk_raises_no_space(small_disk: Path) -> None:
    way = plain()

    async def scenario() -> None:
        harness = ProcessHarness(small_disk, way)
        harness.put_image(IDLE)
        folder = harness.root / "source" / quoted(IMAGE)
        (folder / "work").mkdir()
        (folder / "work" / "big").write_bytes(b"x" * (1500 << 10))
        await harness.driver.pull(IMAGE)
        with pytest.raises(NoSpace):
            await harness.driver.create(spec())
        assert await harness.driver.list() == ()
        await harness.driver.remove_image(IMAGE)
        (small_disk / "filler").write_bytes(b"x" * (1500 << 10))
        with pytest.raises(NoSpace):
            await harness.driver.pull(IMAGE)
        assert await harness.driver.images() == ()

    asyncio.run(scenario())


def test_a_full_disk_does_not_lose_an_exit(small_disk: Path) -> None:
    way = plain()

    async def scenario() -> None:
        harness = ProcessHarness(small_disk, way)
        harness.put_image(
            '#!/bin/sh\necho 6 >"$RUNYARD_STATUS_DIR/runner-rc"\n'
            'cat /dev/zero >"$RUNYARD_WORK_DIR/all" 2>/dev/null\n'
        )
        await harness.create("vm")
        await harness.driver.start("vm")
        assert (await harness.exited("vm")).exit_code == 6
        await harness.clear()

    asyncio.run(scenario())


# ── directories of guests ───────────────────────────────────────────────────────────────────────


def test_any_directory_of_a_guest_can_be_removed() -> None:
    deep = """#!/bin/sh
cd "$RUNYARD_WORK_DIR"
"$RUNYARD_PYTHON" -I -S -c '
import os
for _ in range(3000):
    os.mkdir("d"); os.chdir("d")
'
mkdir shut && : >shut/file && chmod 000 shut
ln -s / root
mkfifo pipe
exit 0
"""

    async def scenario(harness: ProcessHarness) -> None:
        harness.put_image(deep)
        directory = await harness.create("vm")
        await harness.driver.start("vm")
        await harness.exited("vm")
        assert (directory.work / "shut").exists()
        await harness.driver.delete("vm")
        assert list((harness.home / "vms").iterdir()) == []

    on_plain(scenario)


def test_a_guest_that_cannot_be_started_exits_with_a_reason() -> None:
    async def scenario(harness: ProcessHarness) -> None:
        harness.put_image("#!/nonexistent/interpreter\n")
        directory = await harness.create("vm")
        await harness.driver.start("vm")
        ended = await harness.exited("vm")
        assert ended.exit_code is None
        assert ended.exit_reason == "the guest ended with status 126 and reported nothing"
        assert "cannot start" in (directory.state / "console.log").read_text()

    on_plain(scenario)


def test_a_guest_killed_by_a_signal_has_that_exit_reason() -> None:
    async def scenario(harness: ProcessHarness) -> None:
        harness.put_image("#!/bin/sh\nkill -9 $$\n")
        await harness.create("vm")
        await harness.driver.start("vm")
        ended = await harness.exited("vm")
        assert ended.exit_reason == "the guest ended with status 137 and reported nothing"

    on_plain(scenario)


def test_a_missing_spec_does_not_hide_a_vm() -> None:
    async def scenario(harness: ProcessHarness) -> None:
        harness.put_image(IDLE)
        directory = await harness.create("vm")
        (directory.path / "spec.json").unlink()
        assert await harness.driver.list() == (VmView(name="vm", state=VmState.STOPPED),)
        with pytest.raises(DriverFailed):
            await harness.driver.start("vm")

    on_plain(scenario)


def test_the_used_part_of_a_disk_is_measured() -> None:
    boot = """#!/bin/sh
dd if=/dev/zero of="$RUNYARD_WORK_DIR/half" bs=1M count=4 2>/dev/null
echo up >"$RUNYARD_STATUS_DIR/up"
exec sleep 86400
"""

    async def scenario(harness: ProcessHarness) -> None:
        harness.put_image(boot)
        await harness.create("vm")
        up = harness.pipe("vm", "up")
        assert await harness.driver.disk_usage("vm") is None
        await harness.driver.start("vm")
        await up.line()
        async with harness.clock.timeout(60):
            while (used := await harness.driver.disk_usage("vm") or 0.0) < 50.0:
                await harness.clock.sleep(0.01)
        assert used < 60.0
        await harness.driver.stop("vm", grace=0)
        assert await harness.driver.disk_usage("vm") is None

    on_plain(scenario, Limits(disk_mb=8, disk_watch_seconds=0.05))


# ── names ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", ".hidden", "-x", "a\n", "x" * 300, "ä"])
def test_a_name_that_is_a_path_is_refused(name: str) -> None:
    async def scenario(harness: ProcessHarness) -> None:
        harness.put_image(IDLE)
        await harness.driver.pull(IMAGE)
        for attempt in (
            harness.driver.create(spec(name)),
            harness.driver.start(name),
            harness.driver.stop(name, grace=0),
            harness.driver.delete(name),
        ):
            with pytest.raises(DriverFailed):
                await attempt

    on_plain(scenario)


@pytest.mark.parametrize("image", ["a/b:c@sha256:0", "..", "../../etc", ".x", "ü", "a%2Fb"])
def test_a_quoted_image_reference_can_be_unquoted(image: str) -> None:
    name = quoted(image)
    assert "/" not in name and not name.startswith(".")
    assert unquoted(name) == image


@pytest.mark.parametrize("image", ["", "x" * 300])
def test_an_impossible_reference_is_refused(image: str) -> None:
    with pytest.raises(DriverFailed):
        quoted(image)


def test_an_image_without_a_boot_script_is_missing() -> None:
    async def scenario(harness: ProcessHarness) -> None:
        (harness.root / "source" / quoted(IMAGE)).mkdir(parents=True)
        with pytest.raises(ImageMissing):
            await harness.driver.pull(IMAGE)

    on_plain(scenario)


def test_a_rebuilt_image_is_pulled_again() -> None:
    async def scenario(harness: ProcessHarness) -> None:
        harness.put_guest_image("#!/bin/sh\nexit 1\n")
        await harness.driver.pull(IMAGE)
        assert [each.reference for each in await harness.driver.images()] == [IMAGE]
        runner = harness.root / "runner"
        (runner / "run.sh").write_text("#!/bin/sh\nexit 2\n", encoding="utf-8")
        build_image(harness.root / "source" / quoted(IMAGE), runner=runner)
        assert await harness.driver.images() == ()
        await harness.driver.pull(IMAGE)
        assert [each.reference for each in await harness.driver.images()] == [IMAGE]
        held = harness.home / "images" / quoted(IMAGE) / "work" / "runner" / "run.sh"
        assert "exit 2" in held.read_text(encoding="utf-8")

    on_plain(scenario)
