"""Splits a failure's message into its kind and the remaining text."""

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


def split_message(message: str) -> tuple[str, IssueType]:
    """Return the message without the prefix that repeats its type, and the type."""
    lower = message.lower()
    for marker in _THROWN:
        if marker in lower:
            return _unquoted(_without(message, marker)), "error_thrown"
    if _RECORDED in lower:
        return message, "issue_recorded"
    return _without(message, _EXPECTATION), "assertion_failure"


def _without(message: str, marker: str) -> str:
    """Remove a marker at the start of the message; a marker further inside stays, to keep the text before it."""
    return message[len(marker) :] if message.lower().startswith(marker) else message


def _unquoted(message: str) -> str:
    if len(message) > 1 and message.startswith('"') and message.endswith('"'):
        return message[1:-1]
    return message
