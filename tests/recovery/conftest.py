"""One Postgres and one key for all fleets of a test process."""

from collections.abc import Iterator

import pytest
from benches.recovery.matrix import Ground, ground


@pytest.fixture(scope="session")
def place() -> Iterator[Ground]:
    with ground() as made:
        yield made
