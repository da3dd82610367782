"""A clock, a table, and a proxy that cuts a connection, for the tests of this package.

The proxy is between a client and the server on a unix socket. Armed, it cuts the connection at the next COMMIT, either
before the server sees it or after the server has answered it: the client cannot distinguish the two, so both are
`CommitUnknown`.
"""

import asyncio
import select
import shutil
import socket
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from runyard.clock import RealClock

TABLE = """
CREATE TABLE chores (
    id bigint PRIMARY KEY,
    state text NOT NULL,
    due timestamptz,
    CONSTRAINT chores_state_known CHECK (state IN ('queued', 'running'))
);
CREATE TABLE parents (
    id bigint PRIMARY KEY,
    job bigint CONSTRAINT parents_job_there REFERENCES chores (id) DEFERRABLE INITIALLY DEFERRED
);
INSERT INTO chores (id, state) VALUES (1, 'queued'), (2, 'queued');
"""


class FrozenClock(RealClock):
    """Real timeouts, a fixed `now`, and sleeps that are recorded and return at once."""

    def __init__(self, now: float = 1_700_000_000.123456) -> None:
        self.at = now
        self.slept: list[float] = []

    def now(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)


def make_table(conninfo: str) -> None:
    with psycopg.connect(conninfo, autocommit=True) as link:
        link.execute(TABLE)


def states(conninfo: str) -> dict[int, str]:
    with psycopg.connect(conninfo) as link:
        return dict(link.execute("SELECT id, state FROM chores ORDER BY id").fetchall())


class CuttingProxy:
    """`with CuttingProxy(conninfo) as proxied:` a conninfo that leads through the proxy."""

    def __init__(self, conninfo: str) -> None:
        self._conninfo = conninfo
        self._folder = tempfile.TemporaryDirectory(prefix="runyard-proxy-")
        self._listener = socket.socket(socket.AF_UNIX)
        self._threads: list[threading.Thread] = []
        self.cut = ""  # "", "before" or "after"

    def __enter__(self) -> Self:
        self._listener.bind(str(Path(self._folder.name) / ".s.PGSQL.5432"))
        self._listener.listen()
        self._start(self._accept)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        self._listener.close()
        self._folder.cleanup()

    @property
    def conninfo(self) -> str:
        return make_conninfo(self._conninfo, host=self._folder.name, port=5432)

    def open_to(self, user: str) -> None:
        """Give another user access, who may not enter the server's own folder."""
        folder = Path(self._folder.name)
        for path in (folder, folder / ".s.PGSQL.5432"):
            shutil.chown(path, user)

    def _start(self, target: "object", *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)  # type: ignore[arg-type]  # any callable
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._start(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        with client, self._upstream() as server, suppress(OSError):
            while True:
                for ready in select.select([client, server], [], [])[0]:
                    data = ready.recv(65536)
                    if not data:
                        return
                    if ready is client and self.cut and b"COMMIT\0" in data:
                        if self.cut == "after":
                            server.sendall(data)
                            server.recv(65536)  # the server has answered: it is committed
                        return
                    (server if ready is client else client).sendall(data)

    def _upstream(self) -> socket.socket:
        where = conninfo_to_dict(self._conninfo)
        host, port = str(where.get("host", "localhost")), int(str(where.get("port") or 5432))
        if host.startswith("/"):
            server = socket.socket(socket.AF_UNIX)
            server.connect(f"{host}/.s.PGSQL.{port}")
            return server
        return socket.create_connection((host, port))
