"""A real Postgres for tests: one server for a test process, one database for a test.

A folder whose tests need it has a `conftest.py` that imports the fixtures it uses from here:

    from tests.fixtures_postgres import database_url, postgres  # noqa: F401 fixtures

The server is shared by all folders of a process (each pytest-xdist worker has its own; a start takes about
0.2 s). With `DATABASE_URL` set, that server is used instead and left as it was. A test's database is a copy
of a migrated template and is dropped afterwards.
"""

import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import pytest

from runyard.db import migrate
from runyard.embedded.postgres.databases import create_database, drop_database
from runyard.embedded.postgres.provide import provide

_numbers = itertools.count()


class _Server:
    """The server of this process, started by its first user and stopped with its last."""

    def __init__(self) -> None:
        self._users = 0
        self._stack = ExitStack()
        self.conninfo = ""
        self.template = ""

    def __enter__(self) -> Self:
        self._users += 1
        if self._users == 1:
            folder = Path(tempfile.mkdtemp(prefix="runyard-test-"))
            self._stack.callback(shutil.rmtree, folder, ignore_errors=True)
            self.conninfo = self._stack.enter_context(provide(folder / "data", durable=False))
        return self

    def __exit__(self, *_: object) -> None:
        self._users -= 1
        if self._users == 0:
            if self.template:
                drop_database(self.conninfo, self.template)
            self.template = ""
            self._stack.close()

    def migrated(self) -> str:
        """The name of a database with every migration applied; made when it is first asked for."""
        if not self.template:
            name = fresh_name("template")
            migrate.apply(create_database(self.conninfo, name))
            self.template = name
        return self.template


_server = _Server()


def fresh_name(word: str) -> str:
    """A name that no other test process on the same server uses."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    return f"runyard_{word}_{worker}_{os.getpid()}_{next(_numbers)}"


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The conninfo of a server's maintenance database."""
    with _server as server:
        yield server.conninfo


@pytest.fixture
def database_url(postgres: str) -> Iterator[str]:
    """The conninfo of a database of this test's own, migrated."""
    name = fresh_name("test")
    yield create_database(postgres, name, template=_server.migrated())
    drop_database(postgres, name)


@pytest.fixture
def empty_database_url(postgres: str) -> Iterator[str]:
    """The conninfo of a database of this test's own, with nothing in it."""
    name = fresh_name("empty")
    yield create_database(postgres, name)
    drop_database(postgres, name)
