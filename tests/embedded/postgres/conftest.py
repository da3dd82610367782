"""Tests of this folder use a real Postgres."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fixtures_postgres import (  # noqa: F401 fixtures are found by their names here
    database_url,
    empty_database_url,
    postgres,
)


@pytest.fixture(autouse=True)
def no_clusters_left(tmp_path: Path) -> Iterator[None]:
    """Removes this test's clusters, because they are too large to keep for inspection."""
    yield
    shutil.rmtree(tmp_path, ignore_errors=True)
