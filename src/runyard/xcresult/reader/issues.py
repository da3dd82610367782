"""Reads failures, expected failures, skips and build issues, with their locations.

Lines: failures and skips count from one, document URLs from zero; all are converted to count from one.
"""

from urllib.parse import unquote, urlsplit

from runyard.xcresult.reader.attachments import read_attachments
from runyard.xcresult.reader.decode import Node
from runyard.xcresult.reader.fields import child, children, flag, text, when, whole
from runyard.xcresult.reader.model import (
    BuildIssue,
    ExpectedFailure,
    Expression,
    Failure,
    Frame,
    IssueKind,
    Place,
    Skip,
)
from runyard.xcresult.reader.objects import Objects

TOP_LEVEL_SINCE = 26
"""The first minor version that distinguishes top-level failures; before it, all are top-level."""
FRAMES = 512
"""Largest number of call stack levels that are kept."""

_ISSUES: tuple[tuple[IssueKind, str], ...] = (
    ("error", "errorSummaries"),
    ("warning", "warningSummaries"),
    ("analyzer", "analyzerWarningSummaries"),
)


def read_failure(node: Node, *, minor: int, objects: Objects, failed: bool = True) -> Failure:
    """Read one issue; attachments of an expected failure or a warning do not belong to a failure."""
    context = child(node, "sourceCodeContext")
    error = child(node, "associatedError")
    return Failure(
        message=text(node, "message") or text(node, "detailedDescription"),
        place=_location(child(context, "location")) or _place(node),
        issue_type=text(node, "issueType"),
        top_level=flag(node, "isTopLevelFailure") or minor < TOP_LEVEL_SINCE,
        uuid=text(node, "uuid"),
        timestamp=when(node, "timestamp"),
        frames=tuple(_frame(one) for one in children(context, "callStack")[:FRAMES]),
        expression=_expression(child(node, "expression")),
        error_domain=text(error, "domain"),
        error_code=text(error, "code"),
        attachments=read_attachments(node, objects=objects, on_failure=failed),
    )


def read_failures(
    node: Node, key: str, *, minor: int, objects: Objects, failed: bool = True
) -> tuple[Failure, ...]:
    """All issues of a member."""
    if key not in node:
        return ()
    return tuple(
        read_failure(one, minor=minor, objects=objects, failed=failed)
        for one in children(node, key)
    )


def read_expected(node: Node, *, minor: int, objects: Objects) -> tuple[ExpectedFailure, ...]:
    """Read the expected failures of a run."""
    return tuple(
        ExpectedFailure(
            reason=text(one, "failureReason"),
            top_level=flag(one, "isTopLevelFailure") or minor < TOP_LEVEL_SINCE,
            failure=read_failure(summary, minor=minor, objects=objects, failed=False)
            if (summary := child(one, "failureSummary"))
            else None,
        )
        for one in children(node, "expectedFailures")
    )


def read_skip(node: Node) -> Skip | None:
    """Read why a run was skipped; None if it was not."""
    notice = child(node, "skipNoticeSummary")
    return Skip(message=text(notice, "message"), place=_place(notice)) if notice else None


def read_build_issues(result: Node) -> tuple[BuildIssue, ...]:
    """The errors and warnings of a build result."""
    issues = child(result, "issues")
    return tuple(
        BuildIssue(
            kind=kind,
            message=text(one, "message"),
            issue_type=text(one, "issueType"),
            target=text(one, "producingTarget"),
            place=document_place(text(child(one, "documentLocationInCreatingWorkspace"), "url")),
        )
        for kind, key in _ISSUES
        for one in children(issues, key)
    )


def document_place(url: str) -> Place | None:
    """The place of a document URL, whose lines count from zero."""
    if not url:
        return None
    try:
        parts = urlsplit(url)
    except ValueError:
        return Place(url)
    line = 0
    for setting in parts.fragment.split("&"):
        name, _, value = setting.partition("=")
        if name == "StartingLineNumber" and value.isdecimal() and len(value) < 10:
            line = int(value) + 1
    return Place(unquote(parts.path) if parts.scheme == "file" else url.partition("#")[0], line)


def _place(node: Node) -> Place | None:
    return _path(text(node, "fileName"), whole(node, "lineNumber"))


def _location(node: Node) -> Place | None:
    return _path(text(node, "filePath"), whole(node, "lineNumber"))


def _path(path: str, line: int) -> Place | None:
    if path.startswith("file://"):
        path = unquote(path.removeprefix("file://"))
    return Place(path, max(line, 0)) if path else None


def _frame(node: Node) -> Frame:
    if "symbolInfo" not in node:  # most of them
        return Frame(address=text(node, "addressString"))
    symbol = child(node, "symbolInfo")
    return Frame(
        address=text(node, "addressString"),
        image=text(symbol, "imageName"),
        symbol=text(symbol, "symbolName"),
        place=_location(child(symbol, "location")),
    )


def _expression(node: Node) -> Expression | None:
    if not node:
        return None
    parts = (_expression(one) for one in children(node, "subexpressions"))
    return Expression(
        source=text(node, "sourceCode"),
        value=text(child(node, "value"), "description"),
        parts=tuple(part for part in parts if part),
    )
