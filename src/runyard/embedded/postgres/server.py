"""Runs a real Postgres server for one machine, with nothing to install and nothing left behind.

    with EmbeddedPostgres(Path("data"), durable=True) as conninfo: ...

In the data directory: `cluster/` (the server's own), `password` (0600, random), `socket/` while it runs,
`server.log`, and `lock`. The lock is held by this process, the launcher and every process of the server
together, so it is free exactly when nothing of a former server runs. So a left-over `postmaster.pid` can be
removed without checking which process has its number.

Invariants: the server never runs as root; it listens on a unix socket only and requires a password
(SCRAM); it ends when this process ends, however this process ends; a second start on the same
directory is an `AlreadyRunning` error; every error carries the last lines of the server's log.
"""

import contextlib
import os
import secrets
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import msgspec
import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.sql import SQL, Identifier, Literal

from runyard.embedded.lock import DirectoryInUse, DirectoryLock, DirectoryStuck, GivenUp
from runyard.embedded.postgres import cluster, settings
from runyard.embedded.postgres.binaries import Binaries, find
from runyard.embedded.postgres.databases import create_database
from runyard.embedded.postgres.errors import (
    Abandoned,
    AlreadyRunning,
    EmbeddedPostgresError,
    tail,
)
from runyard.embedded.postgres.placement import Placement, choose
from runyard.embedded.postgres.process import Launched, command
from runyard.files import write_whole

# The kernel's limit for a socket's path, without its closing zero byte.
_SOCKET_PATH_LIMIT = 107 if sys.platform == "linux" else 103
_SOCKET_NAME = "/.s.PGSQL.5432"
_MEMORY_IN_USE = "shared memory block"  # in its log when a process of the last start still runs
_LOG_LIMIT = 16 * 1024 * 1024
_STOP_TIMEOUT = 60.0


class HostSetup(msgspec.Struct, frozen=True, kw_only=True):
    """Where the server's programs come from and how they are started; None is found out on this machine."""

    cache_dir: Path | None = None
    binaries: Binaries | None = None
    namespaces: bool = True
    environ: Mapping[str, str] | None = None


THIS_HOST = HostSetup()


class EmbeddedPostgres:
    """One server on one data directory. `start` and `stop` block; use a thread beside an event loop."""

    def __init__(
        self,
        data_dir: Path,
        *,
        durable: bool = True,
        database: str = "postgres",
        max_connections: int = 50,
        extra_settings: Mapping[str, str] | None = None,
        start_timeout: float = 120.0,
        host: HostSetup = THIS_HOST,
    ) -> None:
        self.data_dir = Path(os.path.abspath(data_dir))  # noqa: PTH100 links stay: the user chose them
        self.log = self.data_dir / "server.log"
        self.notice = ""
        self.pid = 0
        self.conninfo = ""
        self._durable = durable
        self._database = database
        self._max_connections = max_connections
        self._extra = dict(extra_settings or {})
        self._environ = os.environ if host.environ is None else host.environ
        self._cache = host.cache_dir or cluster.default_cache(self._environ)
        self._start_timeout = start_timeout
        self._binaries = host.binaries
        self._namespaces = host.namespaces
        self._lock = DirectoryLock(self.data_dir)
        self._launched: Launched | None = None
        self._ending: Launched | None = None
        self._abandoned = threading.Event()
        self._socket: Path | None = None
        self._short_socket: Path | None = None  # the same after a restart: clients keep the address

    def start(self) -> str:
        """Creates the cluster if there is none, starts the server, returns how to connect to it."""
        if self._launched is not None:
            raise EmbeddedPostgresError(f"the server in {self.data_dir} is already started")
        found = self._binaries or find(self._environ)
        placement = choose(found, self.data_dir, namespaces=self._namespaces)
        self._prepare(placement)
        self._take_lock()
        try:
            self.notice = placement.notice
            self._raise_if_abandoned()
            self._ensure_cluster(placement)
            self._raise_if_abandoned()
            self._socket = self._make_socket_dir(placement)
            self._launch(placement, self._socket)
            self.conninfo = self._prepare_database()
        except (EmbeddedPostgresError, psycopg.Error) as error:
            self.stop(immediate=self._abandoned.is_set())
            self._raise_if_abandoned()
            if isinstance(error, psycopg.Error):
                raise self._login_error(error) from error
            raise
        except BaseException:
            self.stop()
            raise
        return self.conninfo

    def abandon(self) -> None:
        """Makes a `start` in another thread, and every later one, raise `Abandoned` soon, leaving nothing."""
        self._abandoned.set()
        self._lock.give_up()
        if self._launched is not None:
            self._launched.order(b"i")

    def stop_immediately(self) -> None:
        """Makes a `stop` in another thread continue as if it were `immediate`."""
        if self._ending is not None:
            self._ending.order(b"i")

    def stop(self, *, immediate: bool = False) -> None:
        """Ends the server (`immediate`: as a power cut would) and removes its socket. Idempotent."""
        launched, self._launched = self._launched, None
        self._ending = launched
        try:
            if launched is not None:
                launched.stop(b"i" if immediate else b"f", timeout=_STOP_TIMEOUT)
        finally:
            self._ending = None
            if self._socket is not None:
                shutil.rmtree(self._socket, ignore_errors=True)
            self._socket = None
            self.conninfo = ""
            self.pid = 0
            self._lock.release()

    @property
    def running(self) -> bool:
        """Whether the server runs."""
        return self._launched is not None and self._launched.running

    def exit_code(self) -> int | None:
        """Why a server that was not stopped runs no more: its code, negative for a signal; None if it is not known."""
        return None if self._launched is None else self._launched.exit_code()

    def __enter__(self) -> str:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _raise_if_abandoned(self) -> None:
        if self._abandoned.is_set():
            raise Abandoned(f"the start of the server in {self.data_dir} was abandoned")

    def _login_error(self, error: psycopg.Error) -> EmbeddedPostgresError:
        """The error for a server that starts and refuses the login: its password was lost, or it is stopping."""
        text = f"the server in {self.data_dir} runs and refuses the login: {str(error).strip()}"
        lost = isinstance(error, psycopg.OperationalError) and "authentication failed" not in text
        if lost:
            return EmbeddedPostgresError(f"{text}. Its log is {self.log}")
        kept = self.data_dir / "password"
        return EmbeddedPostgresError(
            f"{text}. Restore {kept}, or move {self.data_dir} away to start with an empty database"
        )

    def _start_error(self, text: str) -> EmbeddedPostgresError:
        """The error for a server that ended before it was ready."""
        if (
            _MEMORY_IN_USE in text
        ):  # after a kill the sessions of the earlier server end a moment later
            fix = "Processes of the earlier server are still ending; start it again in a moment."
        else:
            fix = (
                f"If its files are damaged, restore them, or move {self.data_dir} away to start with an empty"
                " database."
            )
        return EmbeddedPostgresError(
            f"the server in {self.data_dir} ended while starting. {fix} Its log, {self.log}, says:\n{text}"
        )

    def _take_lock(self) -> None:
        try:
            self._lock.acquire()
        except GivenUp:
            self._raise_if_abandoned()
        except DirectoryInUse as error:
            raise AlreadyRunning(str(error)) from error
        except DirectoryStuck as error:
            raise EmbeddedPostgresError(str(error)) from error

    def _prepare(self, placement: Placement) -> None:
        """Creates the directories; the server's user must be able to pass through to its cluster."""
        mode = 0o711 if placement.identity.kind == "drop" else 0o700
        try:
            for folder in (self.data_dir, placement.home):
                folder.mkdir(parents=True, exist_ok=True, mode=mode)
        except OSError as error:
            raise EmbeddedPostgresError(
                f"cannot create the data directory: {error}. Free some space, or move away what has"
                " its path"
            ) from error
        if self.log.exists() and self.log.stat().st_size > _LOG_LIMIT:
            self.log.replace(self.log.with_suffix(".log.1"))

    def _ensure_cluster(self, placement: Placement) -> None:
        """Uses the existing cluster, or creates one; the caller holds the lock."""
        place = placement.home / "cluster"
        self._follow_moves(placement)
        if not place.exists():
            if (self.data_dir / "password").exists():  # written when the first start succeeded
                raise EmbeddedPostgresError(
                    f"{place} is missing, but {self.data_dir} belongs to a database. Restore it from a backup,"
                    f" or move {self.data_dir} away to start with an empty database"
                )
            first = cluster.create(placement, cache=self._cache, durable=self._durable)
            write_whole(self.data_dir / "password.first", first)
        cluster.own(place, placement.identity)
        wanted = placement.binaries.version.partition(".")[0]
        has = _version_of(place)
        if has != wanted:
            raise EmbeddedPostgresError(
                f"{place} was written by Postgres {has}, the programs here are {wanted}: dump and "
                "restore it, or name the old programs in RUNYARD_PG_BIN"
            )
        (place / "postmaster.pid").unlink(missing_ok=True)  # stale: we hold the lock

    def _follow_moves(self, placement: Placement) -> None:
        """Refuses to start with an empty cluster while the full one is in the other directory."""
        place, usual = placement.home / "cluster", self.data_dir / "cluster"
        note = self.data_dir / "cluster.moved"
        if place != usual:
            if usual.exists():
                raise EmbeddedPostgresError(
                    f"{usual} holds data, but no unprivileged user can reach it and user namespaces "
                    "are refused here: move the data directory out of the private home"
                )
            note.write_text(f"{place}\n", encoding="utf-8")
        elif note.exists():
            away = Path(note.read_text(encoding="utf-8").rstrip("\n"))
            if away.exists() and not usual.exists():
                shutil.move(away, usual)
            note.unlink()

    def _make_socket_dir(self, placement: Placement) -> Path:
        """`home/socket`, or a short private directory when that path cannot be a socket's.

        The kernel limits its length, and a client parses a comma as the end of a host's name.
        """
        folder = placement.home / "socket"
        too_long = len(os.fsencode(str(folder) + _SOCKET_NAME)) > _SOCKET_PATH_LIMIT
        if too_long or "," in str(folder):
            folder = self._short_socket = _short_directory(self._short_socket)
        else:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(mode=0o700)
        if os.geteuid() == 0:
            os.chown(folder, *placement.identity.owner)
        return folder

    def _launch(self, placement: Placement, socket: Path) -> None:
        place = placement.home / "cluster"
        argv = [placement.binaries.program("postgres"), "-D", str(place)]
        argv += settings.arguments(
            version=placement.binaries.version,
            durable=self._durable,
            max_connections=self._max_connections,
            socket=socket,
            extra=self._extra,
        )
        spec: dict[str, object] = {
            "mode": "serve",
            "argv": argv,
            "cwd": str(place),
            "ready_file": str(place / "postmaster.pid"),
            "remove": [str(socket)],
            "stop_signal": int(signal.SIGINT if self._durable else signal.SIGQUIT),
        }
        log = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            since = os.fstat(log).st_size
            line = command(spec, placement.identity)
            self._launched = Launched(line, log=log, keep=self._lock.descriptor)
            self._raise_if_abandoned()  # from now on `abandon` sees what was launched
        finally:
            os.close(log)
        pid = self._launched.wait_ready(self._start_timeout)
        if pid is None:
            self._raise_if_abandoned()
            raise self._start_error(tail(self.log, since=since))
        self.pid = pid

    def _prepare_database(self) -> str:
        """Replaces the template's password, ensures that the database exists, returns the conninfo."""
        first = self.data_dir / "password.first"
        if first.exists():
            self._rotate(first)
        password = self._password()
        if self._database != "postgres":
            create_database(self._address(password), self._database, exist_ok=True)
        return self._address(password, dbname=self._database)

    def _password(self) -> str:
        path = self.data_dir / "password"
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise EmbeddedPostgresError(
                f"{path} cannot be read ({error}). Restore it, or move {self.data_dir} away to start with an"
                " empty database"
            ) from error

    def _rotate(self, first: Path) -> None:
        """Writes the new password, sets it, then removes the first: a crash in between is repaired.

        If the first password is refused, the new one had already been set.
        """
        kept = self.data_dir / "password"
        try:
            link = psycopg.connect(
                self._address(first.read_text(encoding="utf-8")), autocommit=True
            )
        except psycopg.OperationalError:
            if not kept.exists():
                raise
        else:
            with link:
                new = secrets.token_urlsafe(24)
                write_whole(kept, new)
                link.execute("SET synchronous_commit = on")  # or a kill right now could undo it
                order = SQL("ALTER ROLE {} PASSWORD {}")
                link.execute(order.format(Identifier(cluster.USER), Literal(new)))
        first.unlink()

    def _address(self, password: str, *, dbname: str = "postgres") -> str:
        return make_conninfo(
            host=str(self._socket), user=cluster.USER, password=password, dbname=dbname, port=5432
        )


def _version_of(place: Path) -> str:
    """The release that wrote the cluster, from its version file."""
    path = place / "PG_VERSION"
    try:
        found = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        found = f"({error})"
    if not found.isdecimal():
        raise EmbeddedPostgresError(
            f"{path} is damaged: {found[:60]!r} is no version. Restore {place} from a backup, or move"
            f" {place.parent} away to start with an empty database"
        )
    return found


def _short_directory(previous: Path | None) -> Path:
    """A private directory with a short path: the previous one, unless another program has taken its name since."""
    if previous is not None:
        with contextlib.suppress(OSError):
            previous.mkdir(mode=0o700)
            return previous
    return Path(tempfile.mkdtemp(prefix="runyard-pg-", dir=_short_temp()))


def _short_temp() -> str:
    """The temporary directory, unless its path is too long."""
    usual = tempfile.gettempdir()
    return usual if len(os.fsencode(usual)) < 60 else "/tmp"  # noqa: S108 mkdtemp makes it private
