"""Tests that a VM leaves nothing outside its directory: no registry file and no incomplete directory."""

import asyncio
import signal
import subprocess
from pathlib import Path

import msgspec
import pytest
from tests.conftest import Absent
from tests.vm.process_harness import ProcessHarness, home, isolation, run_on

from runyard.vm.process.folders import holding
from runyard.vm.process.isolation import Isolation
from runyard.vm.process.leftovers import leftovers
from runyard.vm.process.probe import probe_isolation
from runyard.vm.process.users import abandoned, claim, tidy
from runyard.vm.shim.guest import Guest
from runyard.vm.shim.processes import Process, table
from runyard.vm.shim.reaping import kill_until_gone
from runyard.vm.teardown import stop_all

IDLE = '#!/bin/sh\necho up >"$RUNYARD_STATUS_DIR/up"\nexec sleep 86400\n'
BASE = 920_000_000


def owning(tmp_path: Path) -> Isolation:
    return Isolation(users="pair", registry=str(tmp_path / "users"), uid_base=BASE)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# ── users ───────────────────────────────────────────────────────────────────────────────────────


def test_only_the_registry_files_of_vms_that_are_gone_are_removed(tmp_path: Path) -> None:
    way = owning(tmp_path)
    registry = tmp_path / "users"
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        claim(way, tmp_path / name, tmp_path / f"{name} before")
    (registry / "another file").touch()
    (tmp_path / "a").rmdir()
    assert leftovers(registry=str(registry), group=tmp_path) == (str(registry / "0"),)
    tidy(str(registry))
    assert names(registry) == ["1", "another file"]
    assert leftovers(registry=str(registry), group=tmp_path) == ()
    (tmp_path / "c").mkdir()
    assert claim(way, tmp_path / "c")[0] == BASE
    assert claim(way, tmp_path / "c")[0] == BASE + 4


def test_removed_vms_leave_no_registry_files(tmp_path: Path) -> None:
    way = owning(tmp_path)
    for number in range(20):
        vm = tmp_path / str(number)
        vm.mkdir()
        claim(way, vm)
        vm.rmdir()
        tidy(way.registry)
    assert names(tmp_path / "users") == []


def test_leftovers_in_other_homes_are_not_listed(tmp_path: Path) -> None:
    registry = tmp_path / "users"
    claim(owning(tmp_path), tmp_path / "their home" / "vms" / "gone")
    claim(owning(tmp_path), tmp_path / "our home" / "vms" / "gone")
    ours, theirs = tmp_path / "our home", tmp_path / "their home"
    assert len(leftovers(registry=str(registry), group=tmp_path)) == 1, (
        "the second took over what the first left"
    )
    assert len(leftovers([ours], registry=str(registry), group=tmp_path)) == 1
    assert leftovers([theirs], registry=str(registry), group=tmp_path) == ()


@pytest.mark.parametrize("registry", ["none", "file"], ids=["there is none", "it is no folder"])
def test_an_unreadable_registry_is_ignored(tmp_path: Path, registry: str) -> None:
    (tmp_path / "file").touch()
    tidy(str(tmp_path / registry))
    assert abandoned(str(tmp_path / registry)) == ()


def test_deleting_a_vm_removes_its_registry_file(tmp_path: Path, absent: Absent) -> None:
    way = isolation("users")
    if isinstance(way, str):
        absent("a machine for VMs with users of their own", way)
    registry = tmp_path / "users"
    way = msgspec.structs.replace(way, registry=str(registry), uid_base=BASE)

    async def scenario(harness: ProcessHarness) -> None:
        harness.put_image(IDLE)
        await harness.create("one")
        await harness.create("two")
        assert len(names(registry)) == 2
        await harness.driver.delete("one")
        assert len(names(registry)) == 1
        # Removed by hand, as with a whole data directory: the next driver on this machine notices.
        harness.directory("two").path.rename(harness.root / "elsewhere")
        assert len(leftovers([harness.home], registry=str(registry))) == 1
        await harness.reopened().list()
        assert names(registry) == []

    run_on(way, scenario)


def test_stop_all_removes_registry_files_and_seals_directories(
    tmp_path: Path, absent: Absent
) -> None:
    way = isolation("users")
    if isinstance(way, str):
        absent("a machine for VMs with users of their own", way)
    registry = tmp_path / "users"
    way = msgspec.structs.replace(way, registry=str(registry), uid_base=BASE)

    async def scenario(harness: ProcessHarness) -> None:
        harness.put_image(IDLE)
        directory = await harness.create("vm")
        up = harness.pipe("vm", "up")
        await harness.driver.start("vm")
        await up.line()
        (held,) = names(registry)
        await stop_all(harness.driver, grace=0)
        assert names(registry) == []
        # Its users may belong to another VM now, which must not read this directory.
        about = directory.path.stat()
        assert (about.st_uid, about.st_gid, about.st_mode & 0o777) == (0, 0, 0o700)
        assert claim(way, tmp_path)[0] == BASE + 2 * int(held)

    run_on(way, scenario)


@pytest.mark.parametrize("want", ["auto", "none"])
def test_a_probe_leaves_nothing(tmp_path: Path, want: str) -> None:
    registry = tmp_path / "users"
    registry.mkdir()
    with home() as directory:
        asyncio.run(
            probe_isolation(
                directory, want="none" if want == "none" else "auto", registry=str(registry)
            )
        )
        assert names(directory) == []
        assert leftovers([directory], registry=str(registry)) == ()
    assert names(registry) == []


# ── directories ─────────────────────────────────────────────────────────────────────────────────


def test_the_next_driver_removes_what_a_killed_probe_left() -> None:
    way = isolation("plain")
    assert isinstance(way, Isolation), way

    async def scenario(harness: ProcessHarness) -> None:
        trial = harness.home / ".probe-killed"
        half = harness.home / "vms" / ".new-1-0-vm"
        for folder in (trial, half):
            (folder / "vm").mkdir(parents=True)
        registry = str(harness.root / "users")
        assert leftovers([harness.home], registry=registry) == (str(half), str(trial))
        with holding(harness.home, shared=True):  # as a running probe does
            await harness.reopened().list()
            assert trial.exists() and not half.exists()
        await harness.reopened().list()
        assert not trial.exists()
        assert leftovers([harness.home], registry=registry) == ()

    run_on(way, scenario)


# ── processes ───────────────────────────────────────────────────────────────────────────────────


def test_a_process_that_cannot_be_found_any_more_is_followed_to_its_end(tmp_path: Path) -> None:
    """A killed process loses its environment, and with it the mark, before it has ended."""
    child = subprocess.Popen(["/bin/sleep", "86400"])
    ours = table()[child.pid]
    rounds = iter([[ours], None, None])

    class Slow(Guest):
        """A guest whose process ends some rounds after it was killed."""

        def kill(self, found: list[Process]) -> None:
            if not found and next(left, None) is None:
                child.kill()
                child.wait()

    left = iter(range(3))
    kill_until_gone(Slow(str(tmp_path), {}), lambda: next(rounds, None))
    assert child.returncode == -signal.SIGKILL
