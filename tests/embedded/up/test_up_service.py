"""`runyard up` as a service of a real systemd: a restart of it leaves jobs alone, and removing it leaves nothing."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import Absent
from tests.embedded.up.upsupport import (
    HAS_PROC,
    all_processes,
    directory,
    environment,
    processes_of,
    until,
)
from tests.hosts.services.usermanager import missing, user_manager

RUNYARD = Path(sys.executable).parent / "runyard"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not HAS_PROC, reason="searches for processes in /proc"),
]


def run(environ: dict[str, str], *words: str) -> str:
    """What a command prints; it must succeed."""
    done = subprocess.run(
        [RUNYARD, *words], env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def executes(script: str) -> bool:
    """Whether a job's script runs; its `sleep` is a process."""
    return any(
        each.arguments.split(b"\0")[:2] == script.encode().split() for each in all_processes()
    )


def test_a_job_survives_a_restart_of_the_service_and_nothing_survives_its_removal(
    absent: Absent,
) -> None:
    lacking = missing()
    if lacking:
        absent("a systemd user manager", lacking)
    with directory() as data, user_manager() as manager:
        environ = {**environment(), **manager, "TMPDIR": "/var/tmp"}
        where = ("--data", str(data))
        run(environ, "up", "--install", *where)
        log = data / "logs" / "service.log"
        until(lambda: " up. " in log.read_text(), what="the whole machine")
        sleep = "sleep 12.125"  # no other process is called like this
        job = subprocess.Popen(
            [RUNYARD, "practice", *where, f"{sleep}; echo it survived"],
            env=environ,
            stdout=subprocess.PIPE,
            text=True,
        )
        until(lambda: executes(sleep), what="a runner with a job")
        unit = next(Path(manager["HOME"], ".config/systemd/user").glob("*.service")).name
        subprocess.run(["sh", "-c", f"systemctl --user restart {unit}"], env=environ, check=True)
        assert executes(sleep), "the job ended with the service"
        output, _ = job.communicate(timeout=120)
        assert job.returncode == 0 and "it survived" in output
        assert "login?code=" not in log.read_text()
        run(environ, "up", "--status", *where)
        run(environ, "up", "--uninstall", *where)
        until(lambda: not list(processes_of(data)), what="the end of everything")
        assert (data / "kube.db").exists()
