"""Maps GitHub's responses to errors.

Decides which failures prove that nothing happened, which do not, and what to exclude from the next choices. Pure.
"""

import msgspec

from runyard.github import errors
from runyard.github.errors import Exclusion, GitHubError
from runyard.http.messages import Response

_MESSAGE_LIMIT = 200


class _Problem(msgspec.Struct):
    message: str = ""


_problems = msgspec.json.Decoder(_Problem)


def message_of(response: Response) -> str:
    """Return GitHub's error message, bounded and on one line; empty if the body has none."""
    try:
        words = _problems.decode(response.body).message
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
    return " ".join(words.split())[:_MESSAGE_LIMIT]


def is_rate_limit(response: Response) -> bool:
    """Return whether a refusal is a rate limit."""
    if response.status == 429:
        return True
    if response.status != 403:
        return False
    if response.header("retry-after") or response.header("x-ratelimit-remaining") == "0":
        return True
    # GitHub documents the message of a secondary limit, but not the headers for every one.
    return "rate limit" in message_of(response).lower()


def failure(
    response: Response, *, what: str, scope: Exclusion, retry_after: float | None
) -> GitHubError:
    """The error for an answer that is not a success.

    `scope` is the kind of object that was addressed (a repository, an account): the exclusion for "not allowed" and
    "not found". A rejected request is the job's own; a server's failure excludes nothing.
    """
    status = response.status
    text = f"{what}: {status} {message_of(response)}".rstrip()
    if is_rate_limit(response):
        return errors.RateLimited(text, status=status, scope="account", retry_after=retry_after)
    if status == 401:
        return errors.Unauthorized(text, status=status, scope="account")
    if status == 403:
        return errors.NotAllowed(text, status=status, scope=scope)
    if status in (404, 410):
        return errors.NotFound(text, status=status, scope=scope)
    if status == 408 or status >= 500:
        return errors.ServerFailed(text, status=status, retry_after=retry_after)
    if 400 <= status < 500:
        return errors.Rejected(text, status=status, scope="job")
    return errors.Unreadable(text, status=status)


def next_cursor(response: Response) -> str:
    """The cursor that the `link` header names for the next page; empty on the last one."""
    for link in response.header("link").split(","):
        target, _, relation = link.partition(";")
        if 'rel="next"' not in relation:
            continue
        query = target.strip().strip("<>").partition("?")[2]
        for pair in query.split("&"):
            key, _, value = pair.partition("=")
            if key == "cursor":
                return value
    return ""
