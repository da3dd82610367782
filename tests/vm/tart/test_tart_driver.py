"""Tests the tart driver on the stand-in for tart: what is cloned, started once, counted, and torn down."""

import asyncio
import contextlib
import os
import re
import signal
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from tests.vm.tart_harness import BOOT, NAME, QUICK, TAG, TartHarness, run

from runyard.vm.contract import (
    DriverFailed,
    Hung,
    ImageMissing,
    NoSpace,
    SlotsFull,
    VmSpec,
    VmState,
    VmView,
)
from runyard.vm.shim import control
from runyard.vm.shim.directory import ShimState

PATIENT = msgspec.structs.replace(QUICK, start_window=10.0)
BRIEF = msgspec.structs.replace(QUICK, power_off=0.2)
pytestmark = pytest.mark.slow  # each command of tart is a program


@contextlib.asynccontextmanager
async def foreign(harness: TartHarness, name: str = "theirs") -> AsyncIterator[None]:
    """A VM that another program runs."""
    harness.tart.create(name)
    argv = (str(harness.tart.program), "run", name, "--no-graphics")
    with subprocess.Popen(argv, env=harness.tart.environment, stdout=subprocess.DEVNULL) as run:
        try:
            while not harness.tart.storage.local(name).pid:
                await harness.clock.sleep(0.02)
            yield
        finally:
            run.kill()


async def ran(harness: TartHarness, name: str = NAME) -> int:
    """How many times it was run, once its guest is up."""
    await harness.listening(name)
    return harness.tart.runs(name)


# ── create ──────────────────────────────────────────────────────────────────────────────────────


def test_a_clone_has_an_identity_and_a_size_of_its_own() -> None:
    async def scenario(harness: TartHarness) -> None:
        image = harness.put_image()
        await harness.driver.create(harness.spec())
        golden = harness.golden(image)
        sets = [argv[1:] for argv in harness.tart.journal("set")]
        assert sets == [[NAME, "--random-mac", "--random-serial", "--cpu", "4", "--memory", "8192"]]
        assert harness.tart.journal("clone") == [["clone", image, golden], ["clone", golden, NAME]]
        await harness.driver.create(harness.spec(name="second"))
        assert len(harness.tart.journal("clone")) == 3  # from the golden VM that exists
        names = [each.name for each in await harness.driver.list()]
        assert names == [NAME, "second"]  # a golden VM is none of the agent's

    run(scenario)


def test_a_foreign_vm_is_neither_replaced_nor_touched() -> None:
    async def scenario(harness: TartHarness) -> None:
        harness.put_image()
        theirs = Path(harness.tart.create(NAME).file("disk.img"))
        before = theirs.stat()
        with pytest.raises(DriverFailed, match="not created here"):
            await harness.driver.create(harness.spec())
        await harness.driver.stop(NAME, grace=1)
        await harness.driver.delete(NAME)
        assert theirs.stat() == before
        assert await harness.driver.list() == (
            VmView(name=NAME, state=VmState.STOPPED, owned=False),
        )

    run(scenario)


def test_a_broken_golden_vm_is_made_again() -> None:
    async def scenario(harness: TartHarness) -> None:
        image = harness.put_image()
        await harness.driver.create(harness.spec(name="first"))
        golden = harness.tart.storage.local(harness.golden(image))
        Path(golden.file("nvram.bin")).unlink()
        await harness.driver.create(harness.spec())
        assert Path(golden.file("nvram.bin")).exists()

    run(scenario)


def test_a_golden_vm_that_cannot_be_cloned_is_made_again_once() -> None:
    async def scenario(harness: TartHarness) -> None:
        image = harness.put_image()
        harness.tart.set("fail-clone", "times=1 1 Error: The file is damaged.", vm=NAME)
        await harness.driver.create(harness.spec())
        golden = harness.golden(image)
        assert harness.tart.journal("delete") == [["delete", golden]]
        harness.tart.set("fail-clone", "1 Error: The file is damaged.", vm="second")
        with pytest.raises(DriverFailed, match="damaged"):
            await harness.driver.create(harness.spec(name="second"))

    run(scenario)


def test_a_clone_that_failed_names_its_image_and_not_an_option() -> None:
    async def scenario(harness: TartHarness) -> None:
        image = harness.put_image()
        host = frozenset({image.partition("/")[0]})
        harness.settings = msgspec.structs.replace(harness.settings, insecure=host)
        harness.tart.set("fail-clone", "1 Error: The file is damaged.")
        with pytest.raises(DriverFailed, match=f"tart clone {re.escape(image)} "):
            await harness.reopened().create(harness.spec())

    run(scenario)


def test_a_foreign_vm_with_the_name_of_a_golden_one_is_left_alone() -> None:
    async def scenario(harness: TartHarness) -> None:
        harness.tart.create(harness.golden(harness.put_image()))
        with pytest.raises(DriverFailed, match="not made here"):
            await harness.driver.create(harness.spec())
        assert not harness.tart.journal("delete") or harness.tart.journal("delete")[0][1:] == [NAME]

    run(scenario)


@pytest.mark.parametrize("step", ["clone", "set"])
def test_a_full_disk_while_creating_leaves_nothing(step: str) -> None:
    async def scenario(harness: TartHarness) -> None:
        harness.put_image()
        full = "1 Error: The file “disk.img” couldn’t be saved because there isn’t enough space."
        harness.tart.set(f"fail-{step}", full, vm=NAME)
        with pytest.raises(NoSpace):
            await harness.driver.create(harness.spec(token="secret"))
        assert await harness.driver.list() == ()
        assert not harness.directory().path.exists()
        harness.tart.unset(f"fail-{step}", vm=NAME)
        await harness.driver.create(harness.spec())

    run(scenario)


def test_an_image_that_was_not_pulled_is_not_pulled_by_a_clone() -> None:
    async def scenario(harness: TartHarness) -> None:
        spec = VmSpec(name=NAME, image="registry.test/a@sha256:0", cpu_milli=0, memory_mb=0)
        with pytest.raises(ImageMissing):
            await harness.driver.create(spec)
        assert not harness.tart.journal("clone")

    run(scenario)


def test_a_killed_agents_half_made_vm_is_listed_completed_and_started() -> None:
    async def scenario(harness: TartHarness) -> None:
        harness.put_image()
        harness.tart.set("hang-clone", 1, vm=NAME)
        creating = asyncio.ensure_future(harness.driver.create(harness.spec("exit 4")))
        while NAME not in str(harness.tart.journal("clone")):
            await harness.clock.sleep(0.01)
        assert await harness.driver.list() == ()  # it appears when it is complete
        creating.cancel()
        with pytest.raises(asyncio.CancelledError):
            await creating
        harness.tart.unset("hang-clone", vm=NAME)
        again = harness.driver = harness.reopened()
        assert await again.list() == (VmView(name=NAME, state=VmState.STOPPED),)
        await again.start(NAME)
        assert (await harness.exited()).exit_code == 4

    run(scenario)


# ── secrets ─────────────────────────────────────────────────────────────────────────────────────


def copies(harness: TartHarness, secret: str) -> list[str]:
    """The files of this host that hold it."""
    found = []
    for path in sorted(harness.root.rglob("*")):
        if path.is_file() and not path.is_symlink() and secret.encode() in path.read_bytes():
            found.append(str(path.relative_to(harness.root / "agent")))
    return found


READS_TOKEN = """#!/bin/sh
cat "$STANDIN_SHARES/token/sa_token" >"$STANDIN_SHARES/status/length.new"
wc -c <"$STANDIN_SHARES/status/length.new" >"$STANDIN_SHARES/status/length"
rm "$STANDIN_SHARES/status/length.new" "$STANDIN_SHARES/token/sa_token"
while [ -e "$STANDIN_SHARES/env/sa_token" ]; do sleep 0.05; done
echo 7 >"$STANDIN_SHARES/status/runner-rc"
"""


def test_a_token_is_wiped_from_the_host_as_soon_as_the_guest_has_read_it() -> None:
    async def scenario(harness: TartHarness) -> None:
        harness.put_image({"boot": READS_TOKEN})
        await harness.driver.create(harness.spec(token="s3cret"))
        vm = f"vms/{NAME}"
        assert copies(harness, "s3cret") == [f"{vm}/env/sa_token", f"{vm}/token/sa_token"]
        mode = {path.stat().st_mode & 0o077 for path in harness.directory().path.parent.rglob("*")}
        assert mode == {0}
        await harness.driver.start(NAME)
        ended = await harness.exited()  # the guest saw its copy in the read-only share go
        assert ended.exit_code == 7
        assert (harness.directory().status / "length").read_text().strip() == "6"
        assert copies(harness, "s3cret") == []
        assert "s3cret" not in str(harness.tart.journal())

    run(scenario)


@pytest.mark.parametrize("how", ["deleted unstarted", "ended", "shim killed"])
def test_a_token_that_no_guest_has_read_is_wiped(how: str) -> None:
    async def scenario(harness: TartHarness) -> None:
        harness.put_image()
        await harness.driver.create(harness.spec(token="s3cret"))
        if how == "deleted unstarted":
            await harness.driver.delete(NAME)
        else:
            await harness.driver.start(NAME)
            assert copies(harness, "s3cret")
            if how == "shim killed":
                kill_shim(harness)
                await harness.until(lambda vm: vm is not None and vm.state is VmState.EXITED)
            else:
                await harness.driver.stop(NAME, grace=0)
        assert copies(harness, "s3cret") == []

    run(scenario)


def kill_shim(harness: TartHarness, name: str = NAME) -> None:
    os.kill(int((harness.directory(name).state / "started").read_text()), signal.SIGKILL)


def test_credentials_for_registries_do_not_reach_the_launch_order() -> None:
    async def scenario(harness: TartHarness) -> None:
        harness.put_image()
        harness.driver.tart.environment.update(TART_REGISTRY_PASSWORD="s3cret", MINE="s3cret")
        await harness.driver.create(harness.spec())
        await harness.driver.start(NAME)
        env = harness.directory().order()["env"]
        assert env["TART_NO_AUTO_PRUNE"] == "1" and env["TART_HOME"] == str(harness.tart.home)
        assert copies(harness, "s3cret") == []

    run(scenario)


def test_credentials_for_registries_reach_only_commands_that_ask_one() -> None:
    async def scenario(harness: TartHarness) -> None:
        seen = harness.root / "seen"
        program = harness.root / "watched"
        program.write_text(
            f'#!/bin/sh\necho "$1 ${{TART_REGISTRY_PASSWORD:-none}}" >>{seen}\n'
            f'exec {harness.tart.program} "$@"\n'
        )
        program.chmod(0o755)
        harness.settings = msgspec.structs.replace(harness.settings, binary=str(program))
        harness.driver = harness.reopened()
        harness.driver.tart.environment.update(TART_REGISTRY_PASSWORD="s3cret")
        await harness.up()
        async with harness.driver.exec(NAME, ("true",)) as session:
            assert await session.wait() == 0
        found = {tuple(line.split()) for line in seen.read_text().splitlines()}
        assert {name for name, held in found if held == "s3cret"} == {"clone"}
        assert {"list", "set", "run", "exec", "ip"} <= {name for name, _ in found}

    run(scenario)


def test_variables_of_the_host_reach_every_tart_and_stay_out_of_files() -> None:
    async def scenario(harness: TartHarness) -> None:
        seen = harness.root / "seen"
        program = harness.root / "watched"
        program.write_text(
            f'#!/bin/sh\necho "$1 ${{MINE:+set}}" >>{seen}\nexec {harness.tart.program} "$@"\n'
        )
        program.chmod(0o755)
        harness.settings = msgspec.structs.replace(harness.settings, binary=str(program))
        harness.driver = harness.reopened()
        harness.driver.tart.environment.update(MINE="v4lue")
        await harness.up("ignores-term")
        assert copies(harness, "v4lue") == []
        await harness.driver.stop(NAME, grace=0)
        found = {tuple(line.split()) for line in seen.read_text().splitlines()}
        assert {"list", "clone", "set", "run", "ip", "stop"} <= {words[0] for words in found}
        assert {words[1:] for words in found} == {("set",)}

    run(scenario)


# ── start ───────────────────────────────────────────────────────────────────────────────────────


def test_a_vm_that_has_run_is_never_run_again_although_tart_says_stopped() -> None:
    async def scenario(harness: TartHarness) -> None:
        harness.put_image()
        await harness.driver.create(harness.spec("exit 0"))
        await harness.driver.start(NAME)
        await harness.exited()
        for driver in (harness.driver, harness.reopened()):
            with pytest.raises(DriverFailed, match="never starts again"):
                await driver.start(NAME)
        assert harness.tart.runs(NAME) == 1

    run(scenario)


@pytest.mark.parametrize("victim", ["shim", "run", "machine"])
def test_whatever_is_killed_the_vm_ends_once_and_leaves_nothing(victim: str) -> None:
    async def scenario(harness: TartHarness) -> None:
        await harness.up()
        if victim == "shim":
            kill_shim(harness)
        else:
            os.kill(harness.tart.pids(NAME)[victim], signal.SIGKILL)
        harness.driver = harness.reopened()
        ended = await harness.until(lambda vm: vm is not None and vm.state is VmState.EXITED)
        assert ended is not None and ended.exit_reason
        with pytest.raises(DriverFailed):
            await harness.driver.start(NAME)
        assert harness.tart.storage.local(NAME).pid == 0
        await harness.driver.delete(NAME)
        assert harness.tart.runs(NAME) == 1

    run(scenario)


def test_the_agent_may_go_and_come_back_while_the_vm_runs() -> None:
    async def scenario(harness: TartHarness) -> None:
        before = await harness.up()
        harness.driver = harness.reopened()
        await harness.driver.start(NAME)
        after = await harness.until(lambda vm: vm is not None and vm.state is VmState.RUNNING)
        assert after == before
        assert harness.tart.runs(NAME) == 1

    run(scenario)


def test_many_starts_at_once_are_one_run() -> None:
    async def scenario(harness: TartHarness) -> None:
        harness.put_image()
        await harness.driver.create(harness.spec())
        other = harness.reopened()
        await asyncio.gather(*(each.start(NAME) for each in (harness.driver, other) * 3))
        assert await ran(harness) == 1

    run(scenario)


# ── slots ───────────────────────────────────────────────────────────────────────────────────────


def test_vms_of_other_programs_take_slots_and_no_third_run_is_tried() -> None:
    async def scenario(harness: TartHarness) -> None:
        async with foreign(harness):
            await harness.up(name="first")
            await harness.driver.create(harness.spec(name="second"))
            with pytest.raises(SlotsFull, match=r"2 of 2 VM slots .* first, theirs"):
                await harness.driver.start("second")
            assert harness.tart.runs("second") == 0
            assert (await harness.driver.capacity()).slots_used == 2
            await harness.driver.stop("first", grace=0)
            await harness.driver.start("second")
            assert await ran(harness, "second") == 1
            theirs = await harness.view("theirs")
            assert theirs == VmView(name="theirs", state=VmState.RUNNING, owned=False)

    run(scenario)


def test_two_starts_at_once_do_not_both_take_the_last_slot() -> None:
    async def scenario(harness: TartHarness) -> None:
        harness.put_image()
        names = ("first", "second")
        for name in names:
            await harness.driver.create(harness.spec(name=name))
        async with foreign(harness):
            starts = (harness.driver.start(name) for name in names)
            found = await asyncio.gather(*starts, return_exceptions=True)
            full = [isinstance(each, SlotsFull) for each in found]
            assert sorted(full) == [False, True]
            assert await ran(harness, names[full.index(False)]) == 1
            assert harness.tart.runs(names[full.index(True)]) == 0

    run(scenario)


def test_a_run_that_tart_refuses_is_no_start() -> None:
    """Strangers may start between our count and our run."""

    async def scenario(harness: TartHarness) -> None:
        harness.put_image()
        harness.tart.set("vm-limit", 0)
        await harness.driver.create(harness.spec("exit 5"))
        with pytest.raises(SlotsFull, match="too many VMs"):
            await harness.driver.start(NAME)
        assert await harness.view() == VmView(name=NAME, state=VmState.STOPPED)
        harness.tart.unset("vm-limit")
        await harness.driver.start(NAME)
        assert (await harness.exited()).exit_code == 5

    run(scenario, PATIENT)


# ── a tart that hangs ───────────────────────────────────────────────────────────────────────────


def test_a_hung_list_is_ended_with_its_children_and_tried_again() -> None:
    async def scenario(harness: TartHarness) -> None:
        harness.with_deadlines(list=0.5)
        harness.tart.set("hang-list", "ignore-term")
        with pytest.raises(Hung, match=r"tart list .* did not end within 0\.5 s"):
            await harness.driver.list()
        assert len(harness.tart.journal("list")) == 3

    run(scenario)


def test_a_list_that_hangs_delays_neither_stop_nor_delete() -> None:
    async def scenario(harness: TartHarness) -> None:
        await harness.up()
        harness.tart.set("hang-list")
        async with harness.clock.timeout(10):
            await harness.driver.stop(NAME, grace=0)
            await harness.driver.delete(NAME)
        assert not harness.directory().path.exists()

    run(scenario)


def test_a_slow_address_neither_delays_nor_fails_the_list() -> None:
    async def scenario(harness: TartHarness) -> None:
        harness.put_image()
        harness.tart.set("hang-ip", 1, vm=NAME)
        await harness.up(name="other")
        await harness.driver.create(harness.spec())
        await harness.driver.start(NAME)
        await harness.listening()
        async with harness.clock.timeout(10):
            found = await harness.view()
        assert found == VmView(name=NAME, state=VmState.BOOTING)
        other = await harness.view("other")
        assert other is not None and other.state is VmState.RUNNING
        harness.tart.unset("hang-ip", vm=NAME)
        await harness.until(lambda vm: vm is not None and vm.state is VmState.RUNNING)

    run(scenario)


def test_the_agent_is_asked_where_there_is_no_lease() -> None:
    async def scenario(harness: TartHarness) -> None:
        harness.put_image()
        harness.tart.set("no-ip")
        await harness.driver.create(harness.spec())
        await harness.driver.start(NAME)
        while not any("agent" in argv for argv in harness.tart.journal("ip")):
            await harness.view()
            await harness.clock.sleep(0.02)

    run(scenario)


def test_a_shim_that_was_killed_with_its_run_is_found_by_its_record_only() -> None:
    async def scenario(harness: TartHarness) -> None:
        await harness.up()
        kill_shim(harness)
        os.kill(harness.tart.pids(NAME)["run"], signal.SIGKILL)
        assert await control.wait_gone(harness.directory(), harness.clock, within=10)
        assert harness.directory().shim_state() is ShimState.ORPHANED
        await harness.driver.stop(NAME, grace=5)
        await harness.driver.delete(NAME)

    run(scenario)


# ── images ──────────────────────────────────────────────────────────────────────────────────────


def test_a_pull_that_was_cancelled_is_repeated_and_its_image_can_be_cloned_and_removed() -> None:
    async def scenario(harness: TartHarness) -> None:
        registry = harness.root / "registry"
        registry.mkdir()
        harness.tart.set("registry-directory", registry)
        harness.tart.create("made", {"boot": BOOT}, disk_bytes=4 << 20)
        assert harness.tart.call("push", "made", TAG).code == 0
        manifests = (registry / "registry.test" / "runner" / "manifests").iterdir()
        digest = next(path.name for path in manifests if path.name.startswith("sha256:"))
        harness.image = f"registry.test/runner@{digest}"
        harness.tart.set("hang-pull")
        pulling = asyncio.create_task(harness.driver.pull(harness.image))
        while not harness.tart.journal("pull"):
            await harness.clock.sleep(0.01)
        pulling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await pulling
        harness.tart.unset("hang-pull")
        seen: list[float] = []
        for _ in range(2):
            await harness.driver.pull(
                harness.image, progress=lambda each: seen.append(each.percent)
            )
        assert len(harness.tart.journal("pull")) == 2  # the third time it was there
        assert seen == sorted(seen) and seen[-1] == 100
        assert [each.reference for each in await harness.driver.images()] == [harness.image]
        await harness.driver.create(harness.spec())
        for _ in range(2):
            await harness.driver.remove_image(harness.image)
        assert await harness.driver.images() == ()
        assert [each.name for each in await harness.driver.list()] == [NAME, "made"]

    run(scenario)
