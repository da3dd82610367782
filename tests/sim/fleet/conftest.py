"""One database server for all simulated fleets of a test process."""

from collections.abc import Iterator

import pytest

from runyard.sim.run import Stage


@pytest.fixture(scope="session")
def stage() -> Iterator[Stage]:
    with Stage() as opened:
        yield opened
