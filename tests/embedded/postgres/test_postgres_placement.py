"""The server never runs as root, wherever its data and its programs lie.

The tests that are about root need root; a plain user runs the others, and root runs the plain user's case
with a user of its own.
"""

import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import psycopg
import pytest

import runyard
from runyard.embedded.postgres import binaries as programs
from runyard.embedded.postgres.binaries import Binaries, copy_to, find
from runyard.embedded.postgres.errors import EmbeddedPostgresError
from runyard.embedded.postgres.placement import choose, namespace_works, reachable
from runyard.embedded.postgres.process import Identity, run
from runyard.embedded.postgres.server import EmbeddedPostgres, HostSetup

Absent = Callable[[str, str], NoReturn]
NOBODY = Identity(kind="drop", uid=65534, gid=65534)
INSIDE = Identity(kind="namespace", uid=65534, gid=65534)
SYSTEM_TEMP = tempfile.gettempdir()  # before a test moves it


@pytest.fixture
def root(absent: Absent) -> None:
    if os.geteuid() != 0:
        absent("root", "run the tests as root too")


@pytest.fixture
def open_place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory that every user can reach, also the temporary directory of this test."""
    with tempfile.TemporaryDirectory(prefix="runyard-open-") as name:
        place = Path(name)
        place.chmod(0o755)
        if not reachable(place, NOBODY):
            pytest.skip("the system's temporary directory is private")
        monkeypatch.setattr(tempfile, "tempdir", name)
        yield place


@pytest.fixture
def private(open_place: Path) -> Path:
    """A home that only its owner may enter."""
    home = open_place / "home"
    home.mkdir(mode=0o700)
    return home


@pytest.fixture(scope="module")
def program_places() -> Iterator[Path]:
    """Copies of the programs are large: one place for all tests of this module."""
    with tempfile.TemporaryDirectory(prefix="runyard-programs-", dir=SYSTEM_TEMP) as name:
        Path(name).chmod(0o755)
        (Path(name) / "open").mkdir(mode=0o755)
        (Path(name) / "private").mkdir(mode=0o700)
        yield Path(name)


@pytest.fixture
def open_programs(program_places: Path) -> Binaries:
    found = find()
    return found if reachable(found.bin, NOBODY) else copy_to(found, program_places / "open")


@pytest.fixture
def private_programs(program_places: Path) -> Binaries:
    return copy_to(find(), program_places / "private")


def started_as(server: EmbeddedPostgres) -> tuple[int, int]:
    """The server's user as the system sees it, and its capabilities."""
    conninfo = server.start()
    with psycopg.connect(conninfo) as link:
        assert link.execute("SELECT 1").fetchone() == (1,)
    status = Path(f"/proc/{server.pid}/status").read_text(encoding="utf-8").splitlines()
    fields = {line.partition(":")[0]: line.partition(":")[2].split() for line in status}
    assert fields["NoNewPrivs"] == ["1"]
    return int(fields["Uid"][1]), int(fields["CapEff"][0], 16)


@pytest.mark.usefixtures("root")
def test_root_runs_it_as_the_user_nobody_in_an_open_directory(
    open_place: Path, open_programs: Binaries
) -> None:
    server = EmbeddedPostgres(
        open_place / "data", durable=False, host=HostSetup(binaries=open_programs)
    )
    try:
        assert started_as(server) == (65534, 0)
        assert (open_place / "data" / "cluster").stat().st_uid == 65534
        assert stat.S_IMODE((open_place / "data" / "cluster").stat().st_mode) == 0o700
        assert server.notice == ""
    finally:
        server.stop()


@pytest.mark.slow
@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("what", ["data", "programs", "both"])
def test_root_with_a_private_home_runs_it_without_privileges(
    open_place: Path, private: Path, what: str, request: pytest.FixtureRequest
) -> None:
    binaries: Binaries = request.getfixturevalue(
        "open_programs" if what == "data" else "private_programs"
    )
    if not namespace_works(binaries, INSIDE):
        pytest.skip("this kernel refuses user namespaces; the next test is its case")
    place = (open_place if what == "programs" else private) / "data"
    server = EmbeddedPostgres(place, durable=False, host=HostSetup(binaries=binaries))
    try:
        _, capabilities = started_as(server)
        assert capabilities == 0
        inside = Path(f"/proc/{server.pid}/uid_map").read_text(encoding="utf-8").split()
        assert inside == ["65534", "0", "1"]
        assert (place / "cluster" / "PG_VERSION").exists()
        assert server.notice == ""
    finally:
        server.stop()


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("what", ["data", "programs", "both"])
def test_root_without_namespaces_runs_it_in_a_shared_directory_with_a_notice(
    open_place: Path, private: Path, what: str, request: pytest.FixtureRequest
) -> None:
    binaries: Binaries = request.getfixturevalue(
        "open_programs" if what == "data" else "private_programs"
    )
    place = (open_place if what == "programs" else private) / "data"
    server = EmbeddedPostgres(
        place, durable=False, host=HostSetup(binaries=binaries, namespaces=False)
    )
    try:
        assert started_as(server) == (65534, 0)
        moved = what != "programs"
        assert (place / "cluster").exists() is not moved
        assert (f"not in {place}" in server.notice) is moved
        assert stat.S_IMODE(private.stat().st_mode) == 0o700, "a home was opened to others"
    finally:
        server.stop()


@pytest.mark.usefixtures("root")
def test_a_cluster_in_a_shared_directory_is_moved_back_when_possible(
    private: Path, open_programs: Binaries
) -> None:
    if not namespace_works(open_programs, INSIDE):
        pytest.skip("this kernel refuses user namespaces")
    away = EmbeddedPostgres(
        private / "data", durable=False, host=HostSetup(binaries=open_programs, namespaces=False)
    )
    with psycopg.connect(away.start(), autocommit=True) as link:
        link.execute("CREATE TABLE kept (id int)")
    away.stop()
    with (
        EmbeddedPostgres(
            private / "data", durable=False, host=HostSetup(binaries=open_programs)
        ) as conninfo,
        psycopg.connect(conninfo) as link,
    ):
        assert link.execute("SELECT count(*) FROM kept").fetchone() == (0,)
    refused = EmbeddedPostgres(
        private / "data", durable=False, host=HostSetup(binaries=open_programs, namespaces=False)
    )
    with pytest.raises(EmbeddedPostgresError, match="holds data"):
        refused.start()


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("trap", ["writable", "foreign", "link"])
def test_a_shared_directory_that_others_could_write_is_refused(
    open_place: Path, private: Path, private_programs: Binaries, trap: str
) -> None:
    shared = open_place / "runyard-postgres"
    if trap == "link":
        shared.symlink_to(private)
    else:
        shared.mkdir()
        shared.chmod(0o777 if trap == "writable" else 0o755)
        if trap == "foreign":
            os.chown(shared, 65534, 65534)
    with pytest.raises(EmbeddedPostgresError, match="remove it"):
        choose(private_programs, private / "data", namespaces=False)


PLAIN = """
import os, sys
sys.path[:0] = {path!r}
from pathlib import Path
import psycopg
from runyard.embedded.postgres.server import EmbeddedPostgres, HostSetup
assert os.geteuid() != 0
where = Path(sys.argv[1])
with EmbeddedPostgres(where / "data", durable=False, host=HostSetup(cache_dir=where / "cache")) as conninfo:
    with psycopg.connect(conninfo) as link:
        print(link.execute("SELECT 42").fetchone()[0])
"""


def plain_user(place: Path) -> Identity:
    """A user that is not root: ourselves, or nobody, in a namespace if nobody cannot even run Python."""
    if os.geteuid() != 0:
        return Identity(kind="direct", uid=os.geteuid(), gid=os.getegid())
    needed = [
        sys.executable,
        os.path.realpath(sys.executable),
        runyard.__file__,
        psycopg.__file__,
        os.__file__,
    ]
    if all(reachable(Path(path), NOBODY) for path in needed):
        shutil.chown(place, 65534, 65534)
        return NOBODY
    return INSIDE


@pytest.mark.slow
def test_a_plain_user_runs_it_directly(open_place: Path) -> None:
    place = open_place / "of a user"
    place.mkdir(mode=0o700)
    identity = plain_user(place)
    code = PLAIN.format(path=[str(Path(runyard.__file__).parent.parent)])
    argv = [sys.executable, "-c", code, str(place)]
    ended = run(argv, identity=identity, cwd=place, timeout=60)
    assert (ended.stdout, ended.returncode) == ("42\n", 0), ended.stderr


@pytest.mark.slow
def test_a_user_without_a_name_runs_it_too(open_place: Path) -> None:
    place = open_place / "of a container"
    place.mkdir(mode=0o700)
    nameless = Identity(kind="namespace", uid=1_000_690_000, gid=1_000_690_000)
    if not namespace_works(find(), nameless):
        pytest.skip("this kernel refuses user namespaces")
    code = PLAIN.format(path=[str(Path(runyard.__file__).parent.parent)])
    ended = run([sys.executable, "-c", code, str(place)], identity=nameless, cwd=place, timeout=60)
    assert (ended.stdout, ended.returncode) == ("42\n", 0), ended.stderr


def test_a_directory_is_judged_by_all_of_its_parents(private: Path, open_place: Path) -> None:
    other_user = Identity(kind="drop", uid=os.geteuid() + 1, gid=os.getegid() + 1)
    assert reachable(open_place / "not yet" / "there", other_user)
    assert not reachable(private / "not yet" / "there", other_user)
    owner = Identity(kind="drop", uid=os.geteuid(), gid=os.getegid())
    assert reachable(private, owner)


def test_the_programs_of_runyard_pg_bin_have_precedence(tmp_path: Path) -> None:
    named = find().bin
    assert find({"RUNYARD_PG_BIN": str(named)}).bin == named.resolve()
    with pytest.raises(EmbeddedPostgresError, match="does not contain postgres"):
        find({"RUNYARD_PG_BIN": str(tmp_path)})


def test_the_error_for_missing_programs_has_a_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "_WHEELS", ("no_such_wheel",))
    with pytest.raises(EmbeddedPostgresError, match=r"pip install 'runyard\[up\]'"):
        find({})
