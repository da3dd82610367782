"""The pool behind a real PgBouncer in transaction mode: more clients than connections, and nobody notices."""

import asyncio
import os
import random
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from tests.conftest import Absent
from tests.db.dbsupport import CuttingProxy, FrozenClock, make_table

from runyard.db.contract import Constraint, Tx
from runyard.db.pooled import PooledDatabase, open_pool

CONNECTIONS = 2
CONFIG = """
[databases]
* = {server}
[pgbouncer]
listen_addr =
unix_socket_dir = {folder}
listen_port = 6432
auth_type = any
pool_mode = transaction
default_pool_size = {connections}
"""


@pytest.fixture
def bouncer(database_url: str, absent: Absent) -> Iterator[str]:
    """How to connect to the test's database through a PgBouncer of its own."""
    program = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if program is None:
        absent("pgbouncer", "install the package pgbouncer")
    with CuttingProxy(database_url) as proxy, tempfile.TemporaryDirectory() as folder:
        settings = Path(folder) / "pgbouncer.ini"
        server = conninfo_to_dict(proxy.conninfo)
        link = " ".join(f"{key}='{server[key]}'" for key in _LINK if key in server)
        settings.write_text(CONFIG.format(server=link, folder=folder, connections=CONNECTIONS))
        command = [program, str(settings)]
        if os.geteuid() == 0:  # it refuses to be root, and nobody else reaches the server's socket
            proxy.open_to("nobody")
            for path in (folder, settings):
                shutil.chown(path, "nobody")
            command[1:1] = ["-u", "nobody"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            try:
                _wait_for_start(process)
                yield make_conninfo(
                    host=folder, port=6432, user=server["user"], dbname=server["dbname"]
                )
            finally:
                process.terminate()


def _wait_for_start(process: "subprocess.Popen[str]") -> None:
    said = []
    for line in process.stderr or ():
        said.append(line)
        if "process up" in line:
            return
    pytest.fail("pgbouncer did not start: " + "".join(said))


_LINK = ("host", "port", "user", "password")


def test_transactions_share_connections_and_leave_nothing_on_them(
    database_url: str, bouncer: str
) -> None:
    make_table(database_url)

    async def scenario() -> tuple[list[Any], list[Any]]:
        pool = open_pool(
            bouncer, clock=FrozenClock(), rng=random.Random(1), min_size=5, max_size=5, deadline=7
        )
        async with pool as database:
            await database._pool.wait()
            async with asyncio.TaskGroup() as group:
                works = [group.create_task(_work(database, number)) for number in range(20)]
            with pytest.raises(Constraint):
                await database.transact(_refused, name="refused")
            with psycopg.connect(bouncer, autocommit=True, prepare_threshold=None) as plain:
                rest = plain.execute(_LEFT).fetchall()
            return [each.result() for each in works], rest

    seen, rest = asyncio.run(scenario())
    assert [row["n"] for row in seen] == list(range(20))
    assert {row["limit"] for row in seen} == {"7s"}
    assert len({row["pid"] for row in seen}) <= CONNECTIONS
    assert rest == [("0", 0)], "a limit or a prepared statement was left for the next client"


_LEFT = "SELECT current_setting('statement_timeout'), (SELECT count(*) FROM pg_prepared_statements)"


async def _work(database: PooledDatabase, number: int) -> Any:
    async def work(tx: Tx) -> Any:
        await tx.run("UPDATE chores SET state = 'running' WHERE id = %(id)s", id=1)
        for _ in range(8):  # more often than any threshold for preparing a statement
            row = await tx.one(
                "SELECT %(n)s::int AS n, pg_backend_pid() AS pid,"
                " current_setting('statement_timeout') AS limit",
                n=number,
            )
        return row

    return await database.transact(work, name="work")


async def _refused(tx: Tx) -> None:
    await tx.run("INSERT INTO chores (id, state) VALUES (1, 'queued')")
