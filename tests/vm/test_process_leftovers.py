"""Nothing that a VM had outside its directory outlives it: neither a note of its users nor a directory half made."""

import asyncio
from pathlib import Path

import msgspec
import pytest
from tests.conftest import Absent
from tests.vm.processbench import ProcessBench, home, isolation, run_on

from runyard.vm.process.folders import holding
from runyard.vm.process.isolation import Isolation
from runyard.vm.process.leftovers import leftovers
from runyard.vm.process.probe import probe_isolation
from runyard.vm.process.users import abandoned, claim, tidy

IDLE = '#!/bin/sh\necho up >"$RUNYARD_STATUS_DIR/up"\nexec sleep 86400\n'
BASE = 920_000_000


def owning(tmp_path: Path) -> Isolation:
    return Isolation(users="pair", registry=str(tmp_path / "users"), uid_base=BASE)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# ── users ───────────────────────────────────────────────────────────────────────────────────────


def test_only_the_notes_of_vms_that_are_gone_are_tidied_away(tmp_path: Path) -> None:
    way = owning(tmp_path)
    registry = tmp_path / "users"
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        claim(way, tmp_path / name, tmp_path / f"{name} before")
    (registry / "a stranger's file").touch()
    (tmp_path / "a").rmdir()
    assert leftovers(registry=str(registry), group=tmp_path) == (str(registry / "0"),)
    tidy(str(registry))
    assert names(registry) == ["1", "a stranger's file"]
    assert leftovers(registry=str(registry), group=tmp_path) == ()
    (tmp_path / "c").mkdir()
    assert claim(way, tmp_path / "c")[0] == BASE
    assert claim(way, tmp_path / "c")[0] == BASE + 4


def test_many_vms_leave_no_more_notes_than_one(tmp_path: Path) -> None:
    way = owning(tmp_path)
    for number in range(20):
        vm = tmp_path / str(number)
        vm.mkdir()
        claim(way, vm)
        vm.rmdir()
        tidy(way.registry)
    assert names(tmp_path / "users") == []


def test_what_another_machine_on_this_computer_left_is_not_ours(tmp_path: Path) -> None:
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
def test_a_register_that_cannot_be_read_is_nobodys_trouble(tmp_path: Path, registry: str) -> None:
    (tmp_path / "file").touch()
    tidy(str(tmp_path / registry))
    assert abandoned(str(tmp_path / registry)) == ()


def test_a_vm_takes_its_note_with_it(tmp_path: Path, absent: Absent) -> None:
    way = isolation("users")
    if isinstance(way, str):
        absent("a machine for VMs with users of their own", way)
    registry = tmp_path / "users"
    way = msgspec.structs.replace(way, registry=str(registry), uid_base=BASE)

    async def scenario(bench: ProcessBench) -> None:
        bench.put_image(IDLE)
        await bench.create("one")
        await bench.create("two")
        assert len(names(registry)) == 2
        await bench.driver.delete("one")
        assert len(names(registry)) == 1
        # Removed by hand, as with a whole data directory: the next driver on this machine notices.
        bench.directory("two").path.rename(bench.root / "elsewhere")
        assert len(leftovers([bench.home], registry=str(registry))) == 1
        await bench.reopened().list()
        assert names(registry) == []

    run_on(way, scenario)


def test_an_orderly_end_of_the_host_leaves_no_note_and_no_open_directory(
    tmp_path: Path, absent: Absent
) -> None:
    way = isolation("users")
    if isinstance(way, str):
        absent("a machine for VMs with users of their own", way)
    registry = tmp_path / "users"
    way = msgspec.structs.replace(way, registry=str(registry), uid_base=BASE)

    async def scenario(bench: ProcessBench) -> None:
        bench.put_image(IDLE)
        directory = await bench.create("vm")
        up = bench.pipe("vm", "up")
        await bench.driver.start("vm")
        await up.line()
        (held,) = names(registry)
        await bench.driver.stop_all(grace=0)
        assert names(registry) == []
        # Its users may be another VM's now: who has them cannot get at what this one has left.
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


def test_what_a_killed_prober_has_left_is_swept_away_by_the_next_driver() -> None:
    way = isolation("plain")
    assert isinstance(way, Isolation), way

    async def scenario(bench: ProcessBench) -> None:
        trial = bench.home / ".probe-killed"
        half = bench.home / "vms" / ".new-1-0-vm"
        for folder in (trial, half):
            (folder / "vm").mkdir(parents=True)
        registry = str(bench.root / "users")
        assert leftovers([bench.home], registry=registry) == (str(half), str(trial))
        with holding(
            bench.home, shared=True
        ):  # as somebody does who is trying something in this home
            await bench.reopened().list()
            assert trial.exists() and not half.exists()
        await bench.reopened().list()
        assert not trial.exists()
        assert leftovers([bench.home], registry=registry) == ()

    run_on(way, scenario)
