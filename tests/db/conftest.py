"""Tests of this folder use a real Postgres."""

from tests.fixtures_pgbouncer import bouncer  # noqa: F401 fixtures
from tests.fixtures_postgres import (  # noqa: F401 fixtures are found by their names here
    database_url,
    empty_database_url,
    postgres,
)
