"""The stand-in tart, with a TART_HOME of its own for each test; the registries of tests that pull."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fixtures_registry import private_registry, registry, registry_program
from tests.standins.tart.helper import StandIn

__all__ = ["private_registry", "registry", "registry_program", "tart"]


@pytest.fixture
def tart(tmp_path: Path) -> Iterator[StandIn]:
    standin = StandIn(tmp_path)
    yield standin
    standin.close()
