"""The real program reports a bad directory or disk with cause and fix, or repairs it."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.conftest import Absent
from tests.embedded.up.smalldisk import small_disk
from tests.embedded.up.upsupport import (
    HAS_PROC,
    PATIENCE,
    Up,
    all_processes,
    command,
    directory,
    environment,
    nothing_left,
    until,
)
from tests.tiers import sample

from runyard.embedded.up.layout import FORMAT
from runyard.http.tls import issue_server, make_authority

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not HAS_PROC, reason="searches for processes in /proc"),
]
MIB = 1 << 20


@pytest.fixture(scope="module")
def used() -> Iterator[Path]:
    """A directory that was used once, as it was left."""
    with directory() as data:
        with Up(data) as up:
            up.ready()
            up.install()
            assert up.run("true") == "success"
            assert up.interrupt() == 0
        yield data


@pytest.fixture
def stopped(used: Path) -> Iterator[Path]:
    """The same directory, to be damaged: it is made good again afterwards."""
    sound = used.with_name("sound")
    subprocess.run(["cp", "-a", str(used), str(sound)], check=True)  # with owners and pipes
    try:
        yield used
    finally:
        shutil.rmtree(used, ignore_errors=True)
        if used.exists():
            used.unlink()
        sound.rename(used)


def refused(
    data: Path, *needles: str, code: tuple[int, ...] = (2,), arguments: tuple[str, ...] = ()
) -> str:
    """Checks that it does not start, prints these texts on standard error, and leaves nothing running."""
    with Up(data, *arguments) as up:
        assert up.finish() in code, (up.lines, up.errors)
        printed = up.errors
        nothing_left(data)
    assert "Traceback" not in printed, printed
    assert printed.startswith("runyard: ") and len(printed.splitlines()) <= 16, printed
    for needle in needles:
        assert re.search(needle, printed), (needle, printed)
    return printed


def starts(data: Path) -> Up:
    """Checks that it starts and works."""
    with Up(data) as up:
        up.ready()
        assert up.run("true", within=2 * PATIENCE) == "success"
        assert up.interrupt() == 0
        assert up.errors == ""
    return up


def garbage(path: Path) -> None:
    path.write_bytes(b"\x5anot what it was\x00" * (path.stat().st_size // 16 + 1))


# Damage


REFUSED = {
    "kube.db": (r"kube\.db", r"[Rr]estore|[Mm]ove"),
    "github.db": (r"github\.db", r"[Rr]estore|[Rr]emove|[Mm]ove"),
    "secrets.json": (r"secrets\.json", r"[Rr]estore"),
    "ports.json": (r"ports\.json", r"Remove it"),
    "format": (r"format is damaged", r"Write \d+ into it"),
    "machine-id": (r"machine-id is damaged", r"[Rr]estore"),
    "tls/ca.crt": (r"authority is damaged", r"restore .*ca\.crt.*remove both"),
    "tls/ca.key": (r"authority is damaged", r"restore .*ca\.crt.*remove both"),
    "postgres/password": (
        r"refuses the login|cannot be read",
        r"Restore .*password",
        r"move .*postgres away",
    ),
    "postgres/cluster/PG_VERSION": (r"PG_VERSION is damaged", r"Restore|move"),
    "postgres/cluster/global/pg_control": (r"postgres ended while starting", r"restore|move"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_damaged_file_is_reported_with_cause_and_fix(stopped: Path, name: str) -> None:
    for beside in (f"{name}-wal", f"{name}-shm"):  # which could save it
        (stopped / beside).unlink(missing_ok=True)
    garbage(stopped / name)
    refused(stopped, *REFUSED[name], code=(1, 2))


LOST = ("kube.db", "github.db", "postgres", "postgres/cluster")


@pytest.mark.parametrize("name", LOST)
def test_a_store_that_was_lost_is_not_replaced_by_an_empty_one(stopped: Path, name: str) -> None:
    lose(stopped, name)
    refused(stopped, rf"{name} is missing, but", r"Restore it from a backup, or ")
    assert not (stopped / name).exists()


def lose(data: Path, name: str) -> None:
    for path in data.glob(f"{name}*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def give_up(data: Path, name: str) -> None:
    """Loses a store on purpose, as the message says."""
    lose(data, name)
    used: list[str] = json.loads((data / "stores.json").read_text())
    used.remove(name)
    (data / "stores.json").write_text(json.dumps(used))


def test_a_key_of_another_authority_is_reported(stopped: Path) -> None:
    other = make_authority(now=1.8e9)
    (stopped / "tls" / "ca.key").write_bytes(other.key)
    refused(stopped, r"the key is of another certificate", r"ca\.key")


def authority_of(data: Path) -> bytes:
    return (data / "tls" / "ca.crt").read_bytes()


def expired(data: Path) -> None:
    folder = data / "tls"
    from_authority = make_authority(now=1.0e9, key=(folder / "ca.key").read_bytes())
    pair = issue_server(from_authority, ["127.0.0.1", "localhost", "::1"], now=1.0e9)
    (folder / "server.crt").write_bytes(pair.certificate)
    (folder / "server.key").write_bytes(pair.key)


def another_key(data: Path) -> None:
    other = issue_server(make_authority(now=1.8e9), ["127.0.0.1"], now=1.8e9)
    (data / "tls" / "server.key").write_bytes(other.key)


def stale_tokens(data: Path) -> None:
    """Deletes the API's journal, so the stored tokens were signed by an API that no longer exists."""
    give_up(data, "kube.db")


def bad_records(data: Path) -> None:
    folder = data / "hosts" / "host-1" / "records"
    folder.mkdir(exist_ok=True)
    (folder / "0b7c4a3e-1111-2222-3333-444444444444.json").write_bytes(b"\xff{")
    (folder / "half.tmp").write_text("{")


def bad_tokens(data: Path) -> None:
    for path in (data / "tokens").iterdir():
        garbage(path)


REPAIRED: dict[str, Callable[[Path], None]] = {
    "a server's certificate that is none": lambda data: garbage(data / "tls" / "server.crt"),
    "a server's key that is none": lambda data: garbage(data / "tls" / "server.key"),
    "a server's key of another certificate": another_key,
    "a server's certificate that has expired": expired,
    "tokens that are none": bad_tokens,
    "tokens that the API does not know": stale_tokens,
    "a practice GitHub whose jobs the server has finished": lambda data: give_up(data, "github.db"),
    "a record of a host": bad_records,
    "a kubeconfig": lambda data: garbage(data / "kubeconfig"),
    "an image": lambda data: shutil.rmtree(data / "images"),
    "a list of addresses": lambda data: garbage(data / "urls.json"),
    "a lock": lambda data: garbage(data / "lock"),
    "a directory of the first version": lambda data: (data / "format").unlink(),
}


@pytest.mark.parametrize("damage", sample(list(REPAIRED), of=4))
def test_files_that_can_be_generated_again_are_replaced(stopped: Path, damage: str) -> None:
    before = authority_of(stopped)
    REPAIRED[damage](stopped)
    starts(stopped)
    assert authority_of(stopped) == before, (
        "clients that trust this machine must not need a new certificate"
    )


def test_a_file_in_place_of_a_folder_is_reported(stopped: Path) -> None:
    for name, fix in (("postgres", r"cannot create|move"), ("tls", r"tls cannot be used.*remove")):
        kept = stopped.with_name(f"{name}.kept")
        (stopped / name).rename(kept)
        (stopped / name).write_text("")
        refused(stopped, name, fix)
        (stopped / name).unlink()
        kept.rename(stopped / name)


# Directories that cannot be used


def test_a_directory_of_a_newer_version_is_refused(stopped: Path) -> None:
    (stopped / "format").write_text(f"{FORMAT + 1}\n")
    refused(stopped, r"newer version", r"--data DIR")


def test_a_file_as_data_directory_is_refused() -> None:
    with directory() as data:
        data.write_text("mine")
        refused(data, r"data' is a file|is a file")
        assert data.read_text() == "mine"


def test_the_directory_of_another_user_is_refused(stopped: Path) -> None:
    if os.geteuid() == 0:
        os.chown(stopped, 4242, -1)
        refused(stopped, r"belongs to the user 4242", r"Start it as its owner", r"--data DIR")
        return
    # Only root can change the owner of a directory, so it is one of root's.
    argv = command("--data", "/usr")
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=environment())
    assert done.returncode == 2 and "--data DIR" in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


def test_a_directory_that_may_not_be_written_is_refused(absent: Absent) -> None:
    with directory() as data:
        data.mkdir(mode=0o500)
        prefix: tuple[str, ...] = ()
        if os.geteuid() == 0:  # root may write in any mode: use a read-only disk
            prefix = ("bwrap", "--dev-bind", "/", "/", "--ro-bind", str(data), str(data), "--")
            if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode != 0:
                absent("a read-only disk", "run the tests where bubblewrap may be used")
        with Up(data, prefix=prefix) as up:
            assert up.finish() == 2, up.errors
            printed = up.errors
    assert re.search(r"Permission denied|Read-only file system", printed), printed
    assert "--data DIR" in printed and "Traceback" not in printed


def test_a_port_in_use_is_reported_with_a_fix() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, directory() as data:
        port = taken.getsockname()[1]
        refused(
            data,
            rf"cannot listen on 127\.0\.0\.1:{port} .*--listen",
            arguments=("--listen", f"127.0.0.1:{port}"),
        )


# A full disk


@pytest.mark.parametrize("size", [64 << 10, 8 * MIB], ids=["tiny", "small"])
def test_a_disk_that_is_too_small_is_reported_at_the_start(size: int, absent: Absent) -> None:
    with small_disk(size, absent) as disk, Up(disk.path / "data", prefix=disk.prefix) as up:
        assert up.finish() == 2, (up.lines, up.errors)
        printed = up.errors
        nothing_left(disk.path)
    assert re.search(r"[Nn]o space left|is full", printed), printed
    assert re.search(r"[Ff]ree some", printed), printed
    assert "Traceback" not in printed, printed


def owner_pid(up: Up) -> int:
    """The process that owns the machine, also if a wrapper started it."""
    mark = os.fsencode(up.data)
    for seen in all_processes():
        words = seen.arguments.split(b"\0")
        if words[0].endswith(os.fsencode(Path(sys.executable).name)) and mark in words:
            return seen.pid
    return 0


def test_a_full_disk_is_reported_and_everything_continues_with_free_space(
    absent: Absent,
) -> None:
    with small_disk(400 * MIB, absent) as disk, Up(disk.path / "data", prefix=disk.prefix) as up:
        up.ready()
        pid = until(lambda: owner_pid(up), what="the machine's own process")
        external = disk.seen_by(pid)
        inside, up.data = up.data, external / "data"
        up.install()
        assert up.run("true") == "success"
        filler = external / "filler"
        with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(b"x" * 4096):
                pass
        up.prints("is nearly full")
        # A component exits now, and writes are refused.
        os.kill(until(lambda: process_of(inside, "operator"), what="the operator"), signal.SIGKILL)
        up.prints("operator died")
        filler.unlink()
        up.prints("has free space again")
        up.data = external / "data"
        assert up.run("echo afterwards", within=3 * PATIENCE) == "success"
        os.kill(pid, signal.SIGINT)
        assert up.finish() == 0, up.errors
        up.data = inside
        nothing_left(inside)


def process_of(data: Path, component: str) -> int:
    for seen in all_processes():
        words = seen.arguments.split(b"\0")
        ours = b"runyard.embedded.up.child" in words and words[-2] == component.encode()
        if ours and seen.folder == str(data):
            return seen.pid
    return 0


# Invalid settings


def test_an_unknown_isolation_is_refused_before_anything_starts() -> None:
    with directory() as data:
        done = subprocess.run(
            command("--data", str(data)),
            capture_output=True,
            text=True,
            check=False,
            env=environment(RUNYARD_ISOLATION="maximum"),
        )
        assert done.returncode == 2 and "auto, host-network or none" in done.stderr
        assert not data.exists()
