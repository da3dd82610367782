"""Computers with stand-ins for launchd or systemd."""

from pathlib import Path

import pytest
from tests.hosts.services.computer import PLATFORMS, Computer


@pytest.fixture(params=sorted(PLATFORMS))
def computer(request: pytest.FixtureRequest, tmp_path: Path) -> Computer:
    return Computer(tmp_path, request.param)


@pytest.fixture
def mac(tmp_path: Path) -> Computer:
    return Computer(tmp_path, "launchd")


@pytest.fixture
def linux(tmp_path: Path) -> Computer:
    return Computer(tmp_path, "systemd")
