"""Tests of this folder use a real Postgres, some of them through a real PgBouncer."""

from tests.fixtures_pgbouncer import bouncer  # noqa: F401 fixtures are found by their names here
from tests.fixtures_postgres import database_url, postgres  # noqa: F401 likewise
