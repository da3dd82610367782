"""One Postgres and one key for all fleets of a test process."""

from collections.abc import Iterator

import pytest
from benches.recovery.matrix import Environment, open_environment
from tests.fixtures_postgres import database_url, postgres  # noqa: F401 fixtures are found by their names here


@pytest.fixture(scope="session")
def environment() -> Iterator[Environment]:
    with open_environment() as made:
        yield made
