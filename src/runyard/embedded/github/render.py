"""Renders the practice GitHub's records in the shape of GitHub's REST API and webhooks.

Only fields that the real API has; links point to a host that cannot exist, so that following one by accident
fails.
"""

from typing import Any

from runyard.embedded.github.model import Installation, Job, Repo, Run, Runner
from runyard.wire.instants import to_rfc3339

HOST = "https://practice.invalid"

Json = dict[str, Any]
PERMISSIONS = {
    "actions": "write",
    "metadata": "read",
    "administration": "write",  # registers runners of repositories
    "organization_self_hosted_runners": "write",
}
RUNNER_VERSION = "2.330.0"
DOWNLOADS: list[Json] = [
    {
        "os": system,
        "architecture": architecture,
        "download_url": f"{HOST}/actions-runner-{system}-{architecture}-{RUNNER_VERSION}.tar.gz",
        "filename": f"actions-runner-{system}-{architecture}-{RUNNER_VERSION}.tar.gz",
    }
    for system, architecture in (("osx", "arm64"), ("linux", "x64"), ("linux", "arm64"))
]
DEFAULT_GROUP: Json = {
    "id": 1,
    "name": "Default",
    "visibility": "all",
    "default": True,
    "inherited": False,
    "allows_public_repositories": False,
    "restricted_to_workflows": False,
    "selected_workflows": [],
}


def runner(record: Runner) -> Json:
    """A self-hosted runner."""
    return {
        "id": record.id,
        "name": record.name,
        "os": "unknown",
        "status": "online" if record.online else "offline",
        "busy": record.busy,
        "ephemeral": True,
        "runner_group_id": record.group_id,
        "labels": [
            {"id": position, "name": label, "type": "custom"}
            for position, label in enumerate(record.labels, start=1)
        ],
    }


def job(record: Job) -> Json:
    """A workflow job, as in reads and webhooks."""
    runner_id, runner_name = record.runner_id, record.runner_name
    if record.status == "completed" and runner_id is None:
        runner_id, runner_name = 0, ""  # as GitHub renders a job that never had a runner
    url = f"{HOST}/repos/{record.repo.full_name}/actions"
    return {
        "id": record.id,
        "run_id": record.run_id,
        "run_attempt": record.attempt,
        "workflow_name": "practice",
        "head_branch": "main",
        "head_sha": f"{record.run_id:040x}",
        "url": f"{url}/jobs/{record.id}",
        "run_url": f"{url}/runs/{record.run_id}",
        "status": record.status,
        "conclusion": record.conclusion,
        "created_at": to_rfc3339(record.created_at),
        # GitHub fills this in from the start, with the time of creation.
        "started_at": to_rfc3339(record.started_at or record.created_at),
        "completed_at": None if record.completed_at is None else to_rfc3339(record.completed_at),
        "name": record.name,
        "steps": [],
        "labels": record.labels,
        "runner_id": runner_id,
        "runner_name": runner_name,
        "runner_group_id": record.runner_group_id,
        "runner_group_name": None if record.runner_group_id is None else "Default",
    }


def run(record: Run) -> Json:
    """A workflow run."""
    conclusions = [each.conclusion for each in record.jobs.values()]
    status = record.status
    conclusion = None
    if status == "completed":
        conclusion = next((each for each in conclusions if each != "success"), "success")
    return {
        "id": record.id,
        "name": "practice",
        "event": "push",
        "head_branch": "main",
        "head_sha": f"{record.id:040x}",
        "status": status,
        "conclusion": conclusion,
        "created_at": to_rfc3339(record.created_at),
        "repository": repository(record.repo),
        "head_repository": repository(record.repo),
        "jobs_url": f"{HOST}/repos/{record.repo.full_name}/actions/runs/{record.id}/jobs",
    }


def repository(record: Repo) -> Json:
    """A repository, briefly."""
    return {
        "id": record.id,
        "name": record.name,
        "full_name": record.full_name,
        "private": True,
        "owner": {"login": record.owner},
    }


def installation(record: Installation) -> Json:
    """An installation of the App."""
    suspended = record.suspended_at
    return {
        "id": record.id,
        "account": {"login": record.account, "id": record.account_id, "type": record.kind},
        "target_type": record.kind,
        "repository_selection": "selected",
        "permissions": PERMISSIONS,
        "events": ["workflow_job"],
        "created_at": to_rfc3339(record.created_at),
        "suspended_at": None if suspended is None else to_rfc3339(suspended),
    }


def job_event(record: Job, action: str, *, owner: Installation) -> Json:
    """The body of a `workflow_job` webhook."""
    account: Json = {"login": owner.account, "id": owner.account_id, "type": owner.kind}
    event: Json = {
        "action": action,
        "workflow_job": job(record),
        "repository": {**repository(record.repo), "owner": account},
        "installation": {"id": owner.id},
        "sender": account,
    }
    if owner.kind == "Organization":
        event["organization"] = {"login": owner.account, "id": owner.account_id}
    return event
