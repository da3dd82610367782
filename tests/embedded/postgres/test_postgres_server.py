"""The embedded server: private, unprivileged, quick to create, never left running."""

import fcntl
import os
import shlex
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

import runyard
from runyard.embedded.postgres import server as server_module
from runyard.embedded.postgres.binaries import Binaries, find
from runyard.embedded.postgres.databases import create_database, drop_database
from runyard.embedded.postgres.errors import AlreadyRunning, EmbeddedPostgresError
from runyard.embedded.postgres.provide import provide
from runyard.embedded.postgres.server import EmbeddedPostgres, HostSetup

SOURCE = str(Path(runyard.__file__).parent.parent)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


def ask(conninfo: str, sql: str) -> object:
    with psycopg.connect(conninfo, autocommit=True) as link:
        row = link.execute(sql).fetchone()
    assert row is not None
    return row[0]


EXITING = 0x4  # PF_EXITING of the Linux kernel


def wait_until_nothing_holds(data_dir: Path) -> None:
    """Block until launcher and server are gone: they hold the directory's lock as long as they live."""
    with (data_dir / "lock").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)


def alive(pid: int) -> bool:
    """Whether that process is alive and not exiting.

    One that is on its way out frees its files, and the lock with them, a moment before the system lists
    it as ended; the flag distinguishes it from one that continues.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    except OSError:
        return False
    state, flags = fields[0], int(fields[6])
    return state != "Z" and not flags & EXITING


def test_text_is_utf8_and_sorted_by_bytes(postgres: str) -> None:
    if os.environ.get("DATABASE_URL"):
        pytest.skip("a given server has its own encoding")
    assert ask(postgres, "SHOW server_encoding") == "UTF8"
    assert ask(postgres, "SELECT datcollate FROM pg_database WHERE datname = 'postgres'") == "C"
    assert ask(postgres, "SHOW timezone") == "UTC"


def test_a_login_needs_the_password_and_the_socket(data: Path) -> None:
    with EmbeddedPostgres(data, durable=False) as conninfo:
        assert ask(conninfo, "SHOW listen_addresses") == ""
        kind = ask(conninfo, "SELECT string_agg(DISTINCT auth_method, ',') FROM pg_hba_file_rules")
        assert kind == "scram-sha-256"
        for wrong in ("", "wrong"):
            with pytest.raises(psycopg.OperationalError, match="password"):
                psycopg.connect(make_conninfo(conninfo, password=wrong))
        secret = data / "password"
        assert secret.read_text(encoding="utf-8") == conninfo_to_dict(conninfo)["password"]
        assert stat.S_IMODE(secret.stat().st_mode) == 0o600
        assert not (data / "password.first").exists()


def test_two_clusters_of_one_template_have_different_passwords(tmp_path: Path) -> None:
    secrets = []
    for name in ("one", "two"):
        with EmbeddedPostgres(tmp_path / name, durable=False) as conninfo:
            secrets.append(conninfo_to_dict(conninfo)["password"])
    assert secrets[0] != secrets[1]


def test_a_crash_while_the_first_password_is_changed_does_not_prevent_a_login(data: Path) -> None:
    with EmbeddedPostgres(data, durable=False) as conninfo:
        now = str(conninfo_to_dict(conninfo)["password"])
    # as if the crash came after the change and before the first password was forgotten
    (data / "password.first").write_text("the template's", encoding="utf-8")
    with EmbeddedPostgres(data, durable=False) as conninfo:
        assert conninfo_to_dict(conninfo)["password"] == now
    # as if it came after the new password was written down and before it was set
    (data / "password.first").write_text(now, encoding="utf-8")
    (data / "password").write_text("never set", encoding="utf-8")
    with EmbeddedPostgres(data, durable=False) as conninfo:
        assert ask(conninfo, "SELECT 1") == 1


@pytest.mark.parametrize("durable", [True, False])
def test_data_survives_a_stop_and_a_crash(data: Path, *, durable: bool) -> None:
    server = EmbeddedPostgres(data, durable=durable, database="fleet")
    with psycopg.connect(server.start(), autocommit=True) as link:
        assert link.info.dbname == "fleet"
        assert link.execute("SHOW fsync").fetchone() == ("on" if durable else "off",)
        link.execute("CREATE TABLE kept (id int)")
        link.execute("CHECKPOINT")
    server.stop()
    assert ask(server.start(), "SELECT count(*) FROM kept") == 0
    server.stop(immediate=True)
    assert ask(server.start(), "SELECT count(*) FROM kept") == 0
    server.stop()


def test_nothing_is_left_after_a_stop(data: Path) -> None:
    server = EmbeddedPostgres(data, durable=False)
    socket = Path(str(conninfo_to_dict(server.start())["host"]))
    pid = server.pid
    assert alive(pid) and server.running
    assert (socket / ".s.PGSQL.5432").exists()
    server.stop()
    server.stop()
    assert not alive(pid) and not server.running
    assert not socket.exists()


def test_the_signal_that_killed_a_server_is_not_lost(data: Path) -> None:
    server = EmbeddedPostgres(data)
    server.start()
    try:
        assert server._launched is not None
        os.kill(server.pid, signal.SIGKILL)
        server._launched._process.wait(30)
        assert not server.running
        assert server.exit_code() == -signal.SIGKILL
        assert server.exit_code() is None, "it is reported once"
    finally:
        server.stop()
    assert server.exit_code() is None


def test_a_server_whose_launcher_was_killed_has_no_exit_code(data: Path) -> None:
    server = EmbeddedPostgres(data)
    server.start()
    try:
        assert server._launched is not None
        server._launched._process.kill()
        server._launched._process.wait(30)
        assert server.exit_code() is None
    finally:
        server.stop()
        wait_until_nothing_holds(data)


def test_a_second_start_on_one_directory_is_refused_at_once(data: Path) -> None:
    with EmbeddedPostgres(data, durable=False) as conninfo:
        with pytest.raises(AlreadyRunning, match=f"in use by the process {os.getpid()}"):
            EmbeddedPostgres(data, durable=False).start()
        assert ask(conninfo, "SELECT 1") == 1, "the first server was hurt by the second start"


def test_a_second_start_of_one_object_is_refused(data: Path) -> None:
    server = EmbeddedPostgres(data, durable=False)
    server.start()
    try:
        with pytest.raises(EmbeddedPostgresError, match="already started"):
            server.start()
        assert server.running
    finally:
        server.stop()


def test_a_stale_pid_file_with_a_living_number_does_not_block(data: Path) -> None:
    with EmbeddedPostgres(data, durable=False):
        text = (data / "cluster" / "postmaster.pid").read_text(encoding="utf-8")
    lines = [str(os.getppid()), *text.splitlines()[1:]]
    (data / "cluster" / "postmaster.pid").write_text("\n".join(lines), encoding="utf-8")
    with EmbeddedPostgres(data, durable=False) as conninfo:
        assert ask(conninfo, "SELECT 1") == 1


def test_the_cause_of_a_failed_start_is_in_the_error(data: Path) -> None:
    server = EmbeddedPostgres(data, durable=False, extra_settings={"shared_buffers": "nonsense"})
    with pytest.raises(EmbeddedPostgresError, match='invalid value for parameter "shared_buffers"'):
        server.start()
    with EmbeddedPostgres(data, durable=False) as conninfo:
        assert ask(conninfo, "SELECT 1") == 1


def test_a_cluster_of_another_release_is_not_touched(data: Path) -> None:
    with EmbeddedPostgres(data, durable=False):
        pass
    (data / "cluster" / "PG_VERSION").write_text("9\n", encoding="ascii")
    with pytest.raises(EmbeddedPostgresError, match="was written by Postgres 9"):
        EmbeddedPostgres(data, durable=False).start()


def test_a_restart_keeps_the_address_of_a_server_with_a_long_path(tmp_path: Path) -> None:
    server = EmbeddedPostgres(tmp_path / ("long" * 40), durable=False)
    try:
        first = server.start()
        server.stop()
        assert server.start() == first
    finally:
        server.stop()


@pytest.mark.parametrize(
    "name", ["with a space", "with,comma", "with 'quotes\"", "ünï", "long" * 40], ids=str
)
def test_any_directory_name_works(tmp_path: Path, name: str) -> None:
    server = EmbeddedPostgres(tmp_path / name, durable=False)
    with server as conninfo:
        assert ask(conninfo, "SELECT 1") == 1
        socket = Path(str(conninfo_to_dict(conninfo)["host"]))
        assert len(os.fsencode(f"{socket}/.s.PGSQL.5432")) <= 107
        assert stat.S_IMODE(socket.stat().st_mode) == 0o700
    assert not socket.exists()


def test_a_cache_that_cannot_be_written_costs_only_time(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    with EmbeddedPostgres(
        tmp_path / "data", durable=False, host=HostSetup(cache_dir=blocked / "x")
    ) as conninfo:
        assert ask(conninfo, "SELECT 1") == 1


def test_a_broken_template_is_not_used(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with EmbeddedPostgres(tmp_path / "one", durable=False, host=HostSetup(cache_dir=cache)):
        pass
    (template,) = cache.iterdir()
    (template / "password").unlink()
    with EmbeddedPostgres(
        tmp_path / "two", durable=False, host=HostSetup(cache_dir=cache)
    ) as conninfo:
        assert ask(conninfo, "SELECT 1") == 1


def without_default_checksums(folder: Path) -> Binaries:
    """The installed programs with the default of releases before 18: a cluster without checksums."""
    real, folder = find(), folder / "bin"
    folder.mkdir(parents=True)
    since_18 = "--no-data-checksums" if int(real.version.split(".")[0]) >= 18 else ""
    (folder / "initdb").write_text(
        f'#!/bin/sh\nexec {shlex.quote(real.program("initdb"))} {since_18} "$@"\n'
    )
    (folder / "initdb").chmod(0o755)
    (folder / "postgres").symlink_to(real.program("postgres"))
    return Binaries(bin=folder, version=real.version, base=folder.parent, roots=(folder,))


def test_a_new_cluster_is_not_without_data_checksums(data: Path, tmp_path: Path) -> None:
    programs = without_default_checksums(tmp_path / "programs")
    host = HostSetup(binaries=programs, cache_dir=tmp_path / "cache")
    with EmbeddedPostgres(data, durable=False, host=host) as conninfo:
        assert ask(conninfo, "SHOW data_checksums") == "on"


def test_a_template_without_checksums_is_not_used(tmp_path: Path) -> None:
    """As an earlier version with programs whose default is no checksums has stored it."""
    cache = tmp_path / "cache"
    with EmbeddedPostgres(tmp_path / "one", durable=False, host=HostSetup(cache_dir=cache)):
        pass
    (template,) = cache.iterdir()
    bare = template.with_name(template.name.removesuffix("-checksums"))
    assert bare != template
    template.rename(bare)
    with EmbeddedPostgres(tmp_path / "two", durable=False, host=HostSetup(cache_dir=cache)):
        assert template.exists()


def test_a_cluster_that_was_lost_is_not_replaced_by_an_empty_one(data: Path) -> None:
    with EmbeddedPostgres(data, durable=False):
        pass
    (cluster,) = data.rglob("cluster")
    cluster.rename(data.parent / "lost")
    with pytest.raises(EmbeddedPostgresError, match=r"cluster is missing.*Restore"):
        EmbeddedPostgres(data, durable=False).start()
    assert not cluster.exists()


HOLD = """
import sys
sys.path[:0] = {path!r}
from pathlib import Path
from runyard.embedded.postgres.server import EmbeddedPostgres
server = EmbeddedPostgres(Path(sys.argv[1]), durable=sys.argv[2] == "True")
server.start()
print(server.pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def owner(data: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Another process that owns a server, and the server's process id."""
    code = HOLD.format(path=[SOURCE])
    with subprocess.Popen(
        [sys.executable, "-c", code, str(data), "False"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        yield process, int(process.stdout.readline())
        process.kill()


def test_a_killed_owner_leaves_no_server_and_no_socket(
    data: Path, owner: tuple[subprocess.Popen[str], int]
) -> None:
    process, pid = owner
    assert alive(pid)
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_until_nothing_holds(data)
    assert not alive(pid)
    assert not (data / "socket").exists()


def test_a_killed_launcher_leaves_no_server(
    data: Path, owner: tuple[subprocess.Popen[str], int]
) -> None:
    if sys.platform != "linux":
        pytest.skip("only Linux ends a child with its parent")
    process, pid = owner
    launcher = int(
        Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[1]
    )
    assert launcher != process.pid
    os.kill(launcher, signal.SIGKILL)
    process.kill()
    process.wait()
    wait_until_nothing_holds(data)
    assert not alive(pid)


def test_a_restart_right_after_a_kill_waits_for_the_old_server(
    data: Path, owner: tuple[subprocess.Popen[str], int]
) -> None:
    process, pid = owner
    process.send_signal(signal.SIGKILL)
    process.wait()
    with EmbeddedPostgres(data, durable=False) as conninfo:
        assert ask(conninfo, "SELECT 1") == 1
        assert not alive(pid)


def test_an_owner_that_forgets_to_stop_leaves_no_server(
    data: Path, owner: tuple[subprocess.Popen[str], int]
) -> None:
    process, pid = owner
    assert process.stdin is not None
    process.stdin.close()
    process.wait()
    wait_until_nothing_holds(data)
    assert not alive(pid)


def test_a_given_database_wins(tmp_path: Path) -> None:
    given = {"DATABASE_URL": "postgresql://somewhere/else"}
    with provide(tmp_path / "data", environ=given) as conninfo:
        assert conninfo == "postgresql://somewhere/else"
    assert not (tmp_path / "data").exists()


def test_without_a_given_database_there_is_an_embedded_one(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    with provide(tmp_path / "data", durable=False, database="fleet", environ=environ) as conninfo:
        assert ask(conninfo, "SELECT current_database()") == "fleet"
    assert (tmp_path / "cache" / "runyard" / "postgres").is_dir()


def test_a_database_is_a_copy_of_its_template_and_can_be_dropped_in_use(postgres: str) -> None:
    suffix = os.getpid()
    source = create_database(postgres, f"source {suffix}")
    with psycopg.connect(source, autocommit=True) as link:
        link.execute("CREATE TABLE there AS SELECT 42 AS answer")
    copy = create_database(postgres, f"copy {suffix}", template=f"source {suffix}")
    with psycopg.connect(copy, autocommit=True) as busy:
        assert busy.execute("SELECT answer FROM there").fetchone() == (42,)
        drop_database(postgres, f"copy {suffix}")
    drop_database(postgres, f"source {suffix}")
    drop_database(postgres, f"source {suffix}")
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(copy)


def test_a_socket_path_at_the_kernels_limit_works_and_one_past_it_moves(tmp_path: Path) -> None:
    limit = server_module._SOCKET_PATH_LIMIT
    with tempfile.TemporaryDirectory() as short:
        fixed = len(f"{short}//socket/.s.PGSQL.5432")
        for extra, stays in ((0, True), (1, False)):
            data = Path(short) / ("x" * (limit - fixed + extra))
            with EmbeddedPostgres(data, durable=False) as conninfo:
                host = str(conninfo_to_dict(conninfo)["host"])
                assert host.startswith(str(data)) is stays
                assert ask(conninfo, "SELECT 1") == 1
