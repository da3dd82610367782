"""Fixtures of the node agent's tests."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import controlplane
import pytest
from tests.conformance.kube.test_real_fleet import real_plane
from tests.conftest import Absent


@pytest.fixture
def audited_plane(absent: Absent) -> Iterator[controlplane.ControlPlane]:
    """A real control plane for this test alone."""
    folder = Path(tempfile.mkdtemp(prefix="runyard-kube-"))
    try:
        with real_plane(absent, folder) as plane:
            yield plane
    finally:
        shutil.rmtree(folder, ignore_errors=True)
