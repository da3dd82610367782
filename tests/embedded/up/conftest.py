"""Fixtures for tests of a whole machine."""

from collections.abc import Iterator

import pytest
from tests.embedded.up.upsupport import HAS_PROC, Up, machine


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    """A machine that the tests of one module share, one after the other."""
    if not HAS_PROC:
        pytest.skip("searches for processes in /proc")
    with machine() as running:
        yield running
