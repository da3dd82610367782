"""The permissions that the App needs, and the manifest from which GitHub creates it. Pure.

An organisation's runners need `organization_self_hosted_runners`, a repository's own need `administration`; the latter
allows much more, so it is requested only where there is no organisation. For an organisation's runners at repository
level, add it to the App by hand.

Invariant: the manifest, `check` and the server use this one table.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

EVENT = "workflow_job"
# Deliveries that fail still appear in GitHub's delivery log, from which they are pulled. The name can never exist.
UNREACHABLE_WEBHOOK = "https://runyard.invalid/webhooks/github"
_LEVELS = ("", "read", "write", "admin")
_SHARED = {"actions": "write", "metadata": "read"}
NAME_LIMIT = 34  # of an App at GitHub


class MissingPermission(msgspec.Struct, frozen=True):
    """A permission that is missing, or too low."""

    name: str
    wanted: str
    has: str


def required_permissions(*, organisation: bool) -> dict[str, str]:
    """The permissions that runners of an organisation, or of single repositories, need."""
    own = "organization_self_hosted_runners" if organisation else "administration"
    return {**_SHARED, own: "write"}


def missing_permissions(
    has: Mapping[str, str], *, organisation: bool
) -> tuple[MissingPermission, ...]:
    """Return the permissions that are missing or too low; a higher level contains the lower ones."""
    return tuple(
        MissingPermission(name, level, has.get(name, ""))
        for name, level in sorted(required_permissions(organisation=organisation).items())
        if _level(has.get(name, "")) < _level(level)
    )


def manifest(
    name: str, *, organisation: str, webhook: str, redirect: str, homepage: str
) -> dict[str, Any]:
    """Build the App's manifest."""
    if not name or len(name) > NAME_LIMIT:
        raise ValueError(f"an App's name has 1 to {NAME_LIMIT} characters")
    return {
        "name": name,
        "url": homepage,
        "hook_attributes": {"url": webhook or UNREACHABLE_WEBHOOK, "active": True},
        "redirect_url": redirect,
        "public": False,
        "default_events": [EVENT],
        "default_permissions": required_permissions(organisation=bool(organisation)),
    }


def web_of(api: str) -> str:
    """Return the web address of the GitHub with this API."""
    parts = urlsplit(api)
    host = parts.netloc
    if parts.path.rstrip("/").endswith("/api/v3"):  # an Enterprise Server
        return f"{parts.scheme}://{host}{parts.path.rstrip('/').removesuffix('/api/v3')}"
    return f"{parts.scheme}://{host.removeprefix('api.')}"


def registration(api: str, *, organisation: str, state: str) -> str:
    """Return the address that the manifest is posted to."""
    owner = f"/organizations/{organisation}" if organisation else ""
    return f"{web_of(api)}{owner}/settings/apps/new?state={state}"


def _level(text: str) -> int:
    return _LEVELS.index(text) if text in _LEVELS else 0
