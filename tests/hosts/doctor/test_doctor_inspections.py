"""What is read from the file system is what is there: VMs that run, images, the data directory, a stored password."""

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.hosts.doctor.cases import facts

from runyard.cli.main import OPTIONAL
from runyard.hosts.doctor import inspections
from runyard.hosts.doctor.facts import MODULES, gather
from runyard.hosts.doctor.plans.findings import LoginPassword, TartHome

HOLD = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""
OURS = facts("linux")


@pytest.fixture
def tart(tmp_path: Path) -> Path:
    for vm in ("idle", "runs"):
        folder = tmp_path / "vms" / vm
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{}")
    images = tmp_path / "cache" / "OCIs" / "registry.example%3A5000" / "acme" / "runner"
    image = images / "sha256:0123"
    image.mkdir(parents=True)
    (image / "config.json").write_text("{}")
    (image / "disk.img").write_bytes(b"x" * 100_000)
    (images / "latest").symlink_to(image)
    return tmp_path


@pytest.fixture
def held(tart: Path) -> Iterator[None]:
    argv = [sys.executable, "-S", "-c", HOLD, str(tart / "vms" / "runs" / "config.json")]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        yield
        assert holder.stdin is not None
        holder.stdin.close()


def home(tart: Path) -> TartHome:
    return inspections.tart_home(msgspec.structs.replace(OURS, tart_home=str(tart)))


@pytest.mark.usefixtures("held")
def test_a_vm_that_runs_is_not_seen_or_an_idle_one_is(tart: Path) -> None:
    assert home(tart).running == ("runs",)


@pytest.mark.usefixtures("held")
def test_reading_a_lock_takes_or_frees_it(tart: Path) -> None:
    path = tart / "vms" / "runs" / "config.json"
    assert inspections.is_locked(path)
    with path.open("r+b") as file, pytest.raises(BlockingIOError):
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert inspections.is_locked(path)


def test_an_image_counts_twice_by_its_tag(tart: Path) -> None:
    [(name, size)] = home(tart).images
    assert name == "registry.example:5000/acme/runner@sha256:0123"
    assert 100_000 <= size < 200_000


def test_a_mac_without_tart_fails_the_inspection(tmp_path: Path) -> None:
    assert home(tmp_path / "none") == TartHome()


def test_the_data_directory_is_created_or_misjudged(tmp_path: Path) -> None:
    new = tmp_path / "a" / "b"
    found = inspections.data_directory(msgspec.structs.replace(OURS, data=str(new)))
    assert (found.exists, found.writable, found.used) == (False, True, False)
    assert not new.parent.exists()
    new.mkdir(parents=True, mode=0o700)
    (new / "kube.db").touch()
    found = inspections.data_directory(msgspec.structs.replace(OURS, data=str(new)))
    assert (found.exists, found.mode, found.owner, found.used) == (True, 0o700, os.getuid(), True)


def test_a_link_hides_where_the_data_is(tmp_path: Path) -> None:
    (tmp_path / "Dropbox").mkdir()
    (tmp_path / "data").symlink_to(tmp_path / "Dropbox")
    found = inspections.data_directory(msgspec.structs.replace(OURS, data=str(tmp_path / "data")))
    assert found.path.endswith("/Dropbox")


KEY = bytes.fromhex("7d895223d2bcddeaa3b91f")


@pytest.mark.parametrize(
    ("plain", "expected"),
    [
        (b"<sealed>\0\0\0", LoginPassword(exists=True, sealed=True)),
        (b"hunter2\0\0\0\0", LoginPassword(exists=True, sealed=False)),
        (b"", LoginPassword(exists=True, sealed=False)),
        (None, LoginPassword(exists=False)),
    ],
)
def test_a_rejected_password_is_taken_for_a_stored_one(
    plain: bytes | None, expected: LoginPassword, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "kcpassword"
    monkeypatch.setattr(inspections, "KCPASSWORD", path)
    if plain is not None:
        path.write_bytes(bytes(a ^ b for a, b in zip(plain, KEY, strict=False)))
    found = inspections.login_password(OURS)
    assert found == expected
    assert "hunter2" not in repr(found)


def test_the_facts_of_this_machine_cannot_be_gathered(tmp_path: Path) -> None:
    found = gather(data=tmp_path / "new" / "data", environ={"TART_HOME": "relative"}, now=1.0)
    assert found.data_disk == str(tmp_path)
    assert found.tart_home.endswith("/.tart")
    assert found.platform == sys.platform
    assert found.extras == ()


def test_sudo_makes_root_the_fleets_user(tmp_path: Path) -> None:
    found = gather(data=tmp_path, environ={"SUDO_UID": "501"}, now=1.0)
    assert found.uid == (501 if os.geteuid() == 0 else os.getuid())
    assert gather(data=tmp_path, environ={"SUDO_UID": "x"}, now=1.0).uid == os.getuid()


def test_a_package_of_the_extra_is_forgotten() -> None:
    assert {*MODULES, "psycopg_pool"} == OPTIONAL
