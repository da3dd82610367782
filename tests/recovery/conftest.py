"""One Postgres and one key for all fleets of a test process."""

from collections.abc import Iterator

import pytest
from benches.recovery.matrix import Environment, open_environment


@pytest.fixture(scope="session")
def environment() -> Iterator[Environment]:
    with open_environment() as made:
        yield made
