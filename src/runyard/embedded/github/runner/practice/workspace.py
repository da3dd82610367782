"""Prepares what a job runs in: its user, its directory, its environment.

Invariant: nothing of this program's own environment reaches the job but PATH and the language.
"""

from __future__ import annotations

import os
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any

ARCHITECTURES = {"x86_64": "X64", "amd64": "X64", "aarch64": "ARM64", "arm64": "ARM64"}


def job_user() -> tuple[int, int] | None:
    """The user that the job runs as, if it is another one; ValueError if the setting is invalid."""
    text = os.environ.get("RUNYARD_JOB_USER", "")
    if not text or os.geteuid() != 0:
        return None
    uid, _, gid = text.partition(":")
    return int(uid), int(gid)


def make_work(identity: dict[str, Any], user: tuple[int, int] | None) -> Path:
    """Creates an empty directory for the job, owned by its user. RUNYARD_JOB_DIR names it, else it is beside us."""
    folder = Path(str(identity.get("workFolder", ""))).name or "_work"
    base = Path(os.environ.get("RUNYARD_JOB_DIR") or Path.cwd() / folder)
    base.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="job-", dir=base))
    for path in (work, work / "workspace", work / "_temp"):
        path.mkdir(exist_ok=True)
        if user is not None:
            os.chown(path, *user)
    return work


def environment(job: dict[str, Any], work: Path, identity: dict[str, Any]) -> dict[str, str]:
    """The job's whole environment."""
    kept = {
        name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "TZ") if name in os.environ
    }
    machine = platform.machine().lower()
    ours = {
        "CI": "true",
        "HOME": work,
        "TMPDIR": work / "_temp",
        "SHELL": "/bin/sh",
        "GITHUB_ACTIONS": "true",
        "GITHUB_EVENT_NAME": "push",
        "GITHUB_JOB": job["name"],
        "GITHUB_REF": "refs/heads/main",
        "GITHUB_REPOSITORY": job["repository"],
        "GITHUB_REPOSITORY_OWNER": str(job["repository"]).partition("/")[0],
        "GITHUB_RUN_ATTEMPT": "1",
        "GITHUB_RUN_ID": job["run_id"],
        "GITHUB_SERVER_URL": identity["serverUrl"],
        "GITHUB_SHA": f"{int(job['run_id']):040x}",
        "GITHUB_WORKFLOW": "practice",
        "GITHUB_WORKSPACE": work / "workspace",
        "RUNNER_ARCH": ARCHITECTURES.get(machine, machine.upper()),
        "RUNNER_NAME": identity["agentName"],
        "RUNNER_OS": "macOS" if sys.platform == "darwin" else "Linux",
        "RUNNER_TEMP": work / "_temp",
        "RUNNER_WORKSPACE": work,
    }
    kept.setdefault("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
    return {name: str(value) for name, value in {**kept, **ours, **job["env"]}.items()}
