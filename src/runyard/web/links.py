"""Builds links to runs at GitHub from the ids that are stored with a job.

The address of an event's `html_url` is not used: a link leads only to the GitHub that the server is configured for, and
only if the repository's name is one that GitHub allows.
"""

import re
from urllib.parse import urlsplit

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}", re.ASCII)


def run_url(github: str, repository: str, *, run_id: int, job_id: int) -> str:
    """Return the page of a job in its run; empty if `github` has no pages or one of the values is not usable."""
    base = urlsplit(github)
    if base.scheme not in ("http", "https") or not base.hostname or run_id <= 0 or job_id <= 0:
        return ""
    owner, _, name = repository.partition("/")
    if not all(_NAME.fullmatch(part) and part.strip(".") for part in (owner, name)):
        return ""
    return f"{github.rstrip('/')}/{owner}/{name}/actions/runs/{run_id}/job/{job_id}"
