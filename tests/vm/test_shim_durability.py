"""Tests that what a shim records is on the disk before it acts on it: after a power cut no VM runs twice."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from runyard.vm.contract import HostPolling, VmSpec
from runyard.vm.shim.directory import ShimDirectory
from runyard.vm.tart.directory import TartDirectory

# Runs a shim, and writes in which order it synced files, renamed them and started programs.
RECORDING = """
import os, subprocess, sys
from runyard.vm.shim import exits, main
journal = open(sys.argv[1], "a", buffering=1)

def note(what, name):
    journal.write(f"{what} {os.path.basename(name)}\\n")

class Recorded(subprocess.Popen):
    def __init__(self, argv, **options):
        note("spawn", argv[0])
        super().__init__(argv, **options)

def fsync(handle, sync=os.fsync):
    note("sync", os.readlink(f"/proc/self/fd/{handle}"))
    sync(handle)

def replace(old, new, move=os.replace):
    note("rename", new)
    move(old, new)

os.fsync, os.replace, subprocess.Popen = fsync, replace, Recorded
sys.exit(main.main(["try", sys.argv[2]]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="it names open files by /proc")
def test_a_start_or_an_end_is_on_the_disk_before_anything_follows(tmp_path: Path) -> None:
    directory = ShimDirectory("vm", tmp_path / "state")
    directory.prepare()
    directory.write_order({"argv": ["true"], "env": {"PATH": os.environ["PATH"]}, "mark": "m"})
    journal = tmp_path / "journal"
    done = subprocess.run(
        [sys.executable, "-c", RECORDING, str(journal), str(directory.state)],
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
        timeout=60,
    )
    assert done.returncode == 0
    assert journal.read_text().splitlines() == [
        *("sync exit.new", "sync started", "sync state", "spawn true"),
        *("sync exit.new", "rename exit.json", "sync state"),
    ]
    ended = directory.ended()
    assert ended is not None and ended.status == 0 and not ended.refused


def test_the_order_of_a_shim_is_on_the_disk_before_it_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = []

    def fsync(handle: int) -> None:
        synced.append(os.fstat(handle).st_ino)

    directory = ShimDirectory("vm", tmp_path / "state")
    directory.prepare()
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fsync)
        directory.write_order({"a": 1})
    path = directory.state / "order.json"
    assert synced == [path.stat().st_ino, directory.state.stat().st_ino]
    assert json.loads(path.read_bytes()) == {"a": 1}
    assert path.stat().st_mode & 0o077 == 0


@pytest.mark.skipif(sys.platform != "linux", reason="it names open files by /proc")
@pytest.mark.parametrize("polling", [None, HostPolling(url="http://localhost")])
def test_a_vm_has_an_empty_token_after_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, polling: HostPolling | None
) -> None:
    synced: list[str] = []

    def fsync(handle: int) -> None:
        synced.append(Path(f"/proc/self/fd/{handle}").readlink().name)

    monkeypatch.setattr(os, "fsync", fsync)
    spec = VmSpec(
        name="vm",
        image="i",
        cpu_milli=0,
        memory_mb=0,
        env=(("A", "b"),),
        token="s",
        polling=polling,
    )
    TartDirectory(tmp_path / "vm").stage(spec)
    staged = ["token"] if polling else ["tuist.env", "sa_token", "sa_token"]
    assert synced[: len(staged)] == staged
    assert synced[-1] == tmp_path.name  # the VM appears last
