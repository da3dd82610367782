"""A real PgBouncer in transaction mode before a test's database. A folder's `conftest.py` imports the fixture."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from tests.conftest import Absent
from tests.db.dbsupport import CuttingProxy

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
_LINK = ("host", "port", "user", "password")


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
