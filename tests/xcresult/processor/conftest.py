"""Tests of this folder use a real Postgres."""

from tests.fixtures_postgres import database_url, postgres  # noqa: F401 fixtures are found by their names here
