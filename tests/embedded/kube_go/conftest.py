"""The Go program that the embedded API must satisfy."""

from pathlib import Path

import pytest
from tests.conftest import Absent
from tests.embedded.kube_go import gosupport


@pytest.fixture
def kube_client(absent: Absent) -> Path:
    """The program; a test that needs it is not run where go is missing."""
    found = gosupport.program()
    if found is None:
        absent("go 1.26", gosupport.HOW)
    return found
