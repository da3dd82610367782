"""Parses the parameters of requests for test results; raises `Refused` with the valid values."""

import re

from runyard.http.messages import Request
from runyard.xcresult.rest.cursors import UUID
from runyard.xcresult.rest.problems import bad, not_found
from runyard.xcresult.rest.tokens import Scope

LIMIT, MOST = 50, 500
DAYS, MOST_DAYS = 14, 366
STATES = ("awaiting_upload", "queued", "processing", "processed", "failed_processing")
STATUSES = ("success", "failure", "skipped")
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}", re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,4}", re.ASCII)
_HOST = re.compile(
    r"[A-Za-z0-9.-]{1,253}(:[0-9]{1,5})?|\[[0-9A-Fa-f:.]{2,45}\](:[0-9]{1,5})?", re.ASCII
)
_LONGEST = 500


def uuid(text: str, what: str) -> str:
    """Parse an id in a path; a text that is not a UUID is 404."""
    found = text.lower()
    if not UUID.fullmatch(found):
        raise not_found(what)
    return found


def text(request: Request, name: str) -> str:
    """A text to compare with."""
    value = request.param(name)
    if len(value) > _LONGEST or "\0" in value:
        raise bad(name, f"at most {_LONGEST} characters")
    return value


def name(request: Request, what: str) -> str:
    """The name of an account or project, in lower case."""
    value = request.param(what)
    if value and not _NAME.fullmatch(value):
        raise bad(what, "a valid name at GitHub")
    return value.lower()


def one_of(request: Request, what: str, possible: tuple[str, ...]) -> str:
    """One of the possible values, or empty."""
    value = request.param(what)
    if value and value not in possible:
        raise bad(what, f"one of {', '.join(possible)}")
    return value


def flag(request: Request, what: str) -> bool:
    """`true` or `false`."""
    return one_of(request, what, ("true", "false")) == "true"


def limit(request: Request) -> int:
    """The largest number of items."""
    return _number(request, "limit", LIMIT, MOST)


def days(request: Request) -> int:
    """The number of days to include."""
    return _number(request, "days", DAYS, MOST_DAYS)


def cursor(request: Request) -> str:
    """Where the previous page ended."""
    value = request.param("cursor")
    if len(value) > 4 * _LONGEST:
        raise bad("cursor", "the `next` of the previous page")
    return value


def project_of(request: Request, scope: Scope, *, needed: bool = False) -> tuple[str, str]:
    """Account and project of the query, within the scope; empty means all of it."""
    account = name(request, "account") or scope.account
    project = name(request, "project") or scope.project
    if needed and not (account and project):
        raise bad("account, project", "both are required")
    if not scope.holds(account, project):
        raise not_found("project")
    return account, project


def host(request: Request) -> str:
    """The server's name in the Host header; empty if it is missing or malformed."""
    value = request.header("host")
    return value if _HOST.fullmatch(value) else ""


def _number(request: Request, what: str, otherwise: int, most: int) -> int:
    value = request.param(what) or str(otherwise)
    if not _NUMBER.fullmatch(value) or not 1 <= int(value) <= most:
        raise bad(what, f"1 to {most}")
    return int(value)
