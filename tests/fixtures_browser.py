"""The Chromium of this machine, for tests of pages in a real browser."""

from pathlib import Path

import pytest
from tests.conftest import Absent

_PROGRAMS = ("/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome")


@pytest.fixture
def chromium(absent: Absent) -> str:
    """The browser's program; without one the test is counted as not run."""
    found = next((path for path in _PROGRAMS if Path(path).exists()), "")
    return found or absent("chromium", "apt-get install -y chromium")
