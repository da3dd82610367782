"""An external database: shared by mistake, or unavailable for a while."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from tests.embedded.up.upsupport import HAS_PROC, PATIENCE, Up, directory, nothing_left, until

from runyard.embedded.postgres.server import EmbeddedPostgres, HostSetup

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not HAS_PROC, reason="searches for processes in /proc"),
]


@pytest.fixture
def external() -> Iterator[EmbeddedPostgres]:
    """An external database server."""
    with directory() as place:
        server = EmbeddedPostgres(
            place, durable=False, database="shared", host=HostSetup(environ={})
        )
        server.start()
        try:
            yield server
        finally:
            server.stop()


def refused(data: Path, url: str) -> str:
    with Up(data, DATABASE_URL=url) as up:
        assert up.finish() == 2, (up.lines, up.errors)
        printed = up.errors
        nothing_left(data)
    assert "Traceback" not in printed and len(printed.splitlines()) == 1, printed
    return printed


def test_a_second_machine_on_the_same_database_is_refused(external: EmbeddedPostgres) -> None:
    url = external.conninfo
    with directory() as one, directory() as two:
        with Up(one, DATABASE_URL=url) as first:
            first.ready()
            printed = refused(two, url)  # while the other one runs
            assert f"belongs to another machine, whose state is in {one}" in printed
            assert "Use another database" in printed and "DELETE FROM machine" in printed
            assert first.run("true") == "success"
            assert first.interrupt() == 0
        assert "belongs to another machine" in refused(two, url)  # and when it does not
        with Up(one, DATABASE_URL=url) as again:
            again.ready()
            assert again.interrupt() == 0
        with psycopg.connect(url, autocommit=True) as link:
            link.execute("DELETE FROM machine")  # as the message prints
        with Up(two, DATABASE_URL=url) as heir:
            heir.ready()
            assert heir.interrupt() == 0


def test_a_database_with_tables_of_others_is_refused(external: EmbeddedPostgres) -> None:
    with psycopg.connect(external.conninfo, autocommit=True) as link:
        link.execute("CREATE TABLE accounts (id int)")
    with directory() as data:
        printed = refused(data, external.conninfo)
    assert "not runyard's" in printed and "Use an empty database" in printed


@pytest.mark.parametrize(
    "change",
    [{"dbname": "nowhere"}, {"host": "/no/such/folder"}, {"password": "wrong"}],
    ids=["no such database", "no server", "a wrong password"],
)
def test_a_database_that_cannot_be_used_is_refused(
    external: EmbeddedPostgres, change: dict[str, str]
) -> None:
    with directory() as data:
        printed = refused(data, make_conninfo(external.conninfo, **change))
    assert "unset DATABASE_URL" in printed


@pytest.mark.parametrize("url", ["postgre://u:pass-word@h/d", "postgresql://u:%pass-word@h/d"])
def test_an_invalid_address_is_refused_without_its_password(url: str) -> None:
    with directory() as data:
        printed = refused(data, url)
    assert "DATABASE_URL" in printed and "pass-word" not in printed


def test_the_machine_waits_for_an_unavailable_database(external: EmbeddedPostgres) -> None:
    """Keeps the database down for more restarts than the machine's first start would allow."""
    with directory() as data, Up(data, DATABASE_URL=external.conninfo) as up:
        up.ready()
        up.install()
        assert up.run("true") == "success"
        external.stop()
        os.kill(until(lambda: up.pid("server"), what="the server"), signal.SIGKILL)
        for _ in range(7):
            reported = up.prints("server died")
        assert "connection" in reported, "the line names the cause"
        assert up.process.poll() is None
        external.start()
        up.prints("server is back")
        assert up.run("echo afterwards", within=2 * PATIENCE) == "success"
        assert up.interrupt() == 0
        nothing_left(data)
