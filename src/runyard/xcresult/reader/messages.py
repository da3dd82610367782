"""What a failure's message says of its kind, and what is left of it then."""

from typing import Literal

IssueType = Literal["error_thrown", "assertion_failure", "issue_recorded"]

_THROWN = (
    "failed: caught error: ",
    "failed - caught error: ",
    "caught error: ",
    "thrown error: ",
)
_RECORDED = "issue recorded: "
_EXPECTATION = "expectation failed: "


def sorted_out(message: str) -> tuple[str, IssueType]:
    """The message without the words that its type repeats, and the type."""
    lower = message.lower()
    for marker in _THROWN:
        if marker in lower:
            return _unquoted(_without(message, marker)), "error_thrown"
    if _RECORDED in lower:
        return message, "issue_recorded"
    return _without(message, _EXPECTATION), "assertion_failure"


def _without(message: str, marker: str) -> str:
    """The message without a marker that it begins with; inside, the words before it would be lost."""
    return message[len(marker) :] if message.lower().startswith(marker) else message


def _unquoted(message: str) -> str:
    if len(message) > 1 and message.startswith('"') and message.endswith('"'):
        return message[1:-1]
    return message
