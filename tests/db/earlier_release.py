"""A database of an earlier release: migrated up to a number, as that release left it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.rows import dict_row

from runyard.db import migrate


@contextmanager
def database_before(url: str, number: int) -> Iterator[psycopg.Connection[Any]]:
    """A connection to a database that has the migrations before `number`, and the record of them."""
    old = [each for each in migrate.history() if each.number < number]
    with psycopg.connect(url, autocommit=True, row_factory=dict_row) as link:
        for each in old:
            link.execute(each.sql.encode())
        link.execute(
            "CREATE TABLE runyard_migrations (name text PRIMARY KEY, checksum text NOT NULL,"
            " applied_at timestamptz NOT NULL DEFAULT statement_timestamp())"
        )
        for each in old:
            link.execute(
                "INSERT INTO runyard_migrations (name, checksum) VALUES (%s, %s)",
                [each.name, each.checksum],
            )
        yield link
