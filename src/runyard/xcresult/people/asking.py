"""What stands in a request for test results: checked, or refused with what is possible."""

import re

from runyard.http.messages import Request
from runyard.xcresult.people.cursors import UUID
from runyard.xcresult.people.refusing import bad, nothing
from runyard.xcresult.people.tokens import Scope

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
    """An id of a path; what is none names nothing."""
    found = text.lower()
    if not UUID.fullmatch(found):
        raise nothing(what)
    return found


def text(request: Request, name: str) -> str:
    """A text to compare with."""
    value = request.param(name)
    if len(value) > _LONGEST or "\0" in value:
        raise bad(name, f"at most {_LONGEST} characters")
    return value


def name(request: Request, what: str) -> str:
    """An account or a project, in small letters."""
    value = request.param(what)
    if value and not _NAME.fullmatch(value):
        raise bad(what, "a name as GitHub allows it")
    return value.lower()


def one_of(request: Request, what: str, possible: tuple[str, ...]) -> str:
    """One of a few words, or nothing."""
    value = request.param(what)
    if value and value not in possible:
        raise bad(what, f"one of {', '.join(possible)}")
    return value


def flag(request: Request, what: str) -> bool:
    """`true` or `false`."""
    return one_of(request, what, ("true", "false")) == "true"


def limit(request: Request) -> int:
    """How many at most."""
    return _number(request, "limit", LIMIT, MOST)


def days(request: Request) -> int:
    """How far back."""
    return _number(request, "days", DAYS, MOST_DAYS)


def cursor(request: Request) -> str:
    """Where the page before ended."""
    value = request.param("cursor")
    if len(value) > 4 * _LONGEST:
        raise bad("cursor", "the `next` of the page before")
    return value


def project_of(request: Request, scope: Scope, *, needed: bool = False) -> tuple[str, str]:
    """Account and project that are asked about, within the scope; empty is all of it."""
    account = name(request, "account") or scope.account
    project = name(request, "project") or scope.project
    if needed and not (account and project):
        raise bad("account, project", "both are needed here")
    if not scope.holds(account, project):
        raise nothing("project")
    return account, project


def host(request: Request) -> str:
    """How the client calls this server; empty if it does not say so in a way that can be repeated."""
    said = request.header("host")
    return said if _HOST.fullmatch(said) else ""


def _number(request: Request, what: str, otherwise: int, most: int) -> int:
    said = request.param(what) or str(otherwise)
    if not _NUMBER.fullmatch(said) or not 1 <= int(said) <= most:
        raise bad(what, f"1 to {most}")
    return int(said)
