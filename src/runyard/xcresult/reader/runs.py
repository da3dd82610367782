"""Reads one run: its metadata in the tree, and its summary if there is one.

The metadata (ActionTestMetadata) always has status and duration. The summary (ActionTestSummary) has all the rest;
before 3.53 a passed test often has none. A missing or damaged summary costs the run its details only.
"""

import re
from typing import get_args

import msgspec

from runyard.xcresult.reader.activities import Steps
from runyard.xcresult.reader.attachments import gather
from runyard.xcresult.reader.decode import Node
from runyard.xcresult.reader.fields import (
    child,
    children,
    maybe_number,
    number,
    pairs,
    some_number,
    text,
    texts,
    whole,
)
from runyard.xcresult.reader.issues import read_expected, read_failures, read_skip
from runyard.xcresult.reader.model import Argument, Bug, Metric, Repetition, Run, Status, Tag
from runyard.xcresult.reader.objects import Objects

STATUSES: dict[str, Status] = {status: status for status in get_args(Status)}

_DETAILS = (
    "arguments",
    "attachments",
    "configuration",
    "documentation",
    "expectedFailures",
    "failureSummaries",
    "performanceMetrics",
    "repetitionPolicySummary",
    "skipNoticeSummary",
    "summary",
    "tags",
    "trackedIssues",
    "warningSummaries",
)
HAS_DETAILS = re.compile(
    b"K(?:" + "|".join(f"{len(key)}:{key}" for key in _DETAILS).encode() + b")"
)
"""Occurs in every summary that has more than the metadata and the activities."""


_ACTIVITIES = frozenset({"activitySummaries"})


def bare_activities(data: bytes) -> frozenset[str]:
    """Select the activities of a run to be skipped, unless they may contain attachments."""
    return frozenset() if b"ActionTestAttachment" in data else _ACTIVITIES


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """The position of a run in the bundle, and how to read it."""

    action: int
    device: int | None
    configuration: str
    minor: int
    activities: bool


def read_run(short: Node, long: Node, *, place: Place, objects: Objects, summary_id: str) -> Run:
    """Build a run from its short and long form; `long` is empty if there is none."""
    minor = place.minor
    failures = read_failures(long, "failureSummaries", minor=minor, objects=objects)
    expected = (
        read_expected(long, minor=minor, objects=objects) if "expectedFailures" in long else ()
    )
    steps = Steps(
        objects,
        failures=frozenset(failure.uuid for failure in failures if failure.uuid),
        wanted=place.activities,
    )
    activities = steps.walk(long, "activitySummaries")
    warned = read_failures(long, "warningSummaries", minor=minor, objects=objects, failed=False)
    return Run(
        action=place.action,
        device=place.device,
        configuration=place.configuration,
        status=read_status(short, long),
        duration=max(number(short if "duration" in short else long, "duration"), 0.0),
        repetition=_repetition(long),
        arguments=_arguments(long),
        failures=failures,
        expected_failures=expected,
        skip=read_skip(long),
        attachments=gather(
            steps.attachments,
            *(one.attachments for one in warned),
            failures=failures,
            expected=expected,
        ),
        metrics=tuple(_metric(one) for one in children(long, "performanceMetrics")),
        issue_warnings=warned,
        activities=activities,
        summary_id=summary_id,
    )


def read_status(short: Node, long: Node) -> Status:
    """Apple's status of the run. An unknown one is not a success."""
    word = text(short, "testStatus") or text(long, "testStatus")
    return STATUSES.get(word, "Failure")


def read_tags(node: Node) -> tuple[Tag, ...]:
    """The tags of a test or a suite: objects with a name, or plain names."""
    named = tuple(
        Tag(text(one, "name") or text(one, "identifier")) for one in children(node, "tags")
    )
    return named or tuple(Tag(name) for name in texts(node, "tags"))


def read_bugs(node: Node) -> tuple[Bug, ...]:
    """Read the bugs that a test is annotated with."""
    return tuple(
        Bug(
            identifier=text(one, "identifier"),
            url=text(one, "url"),
            comment=text(one, "comment") or text(one, "summary"),
        )
        for one in children(node, "trackedIssues")
    )


def read_documentation(node: Node) -> tuple[str, ...]:
    """A test's documentation."""
    return tuple(text(one, "content") for one in children(node, "documentation"))


def _repetition(long: Node) -> Repetition | None:
    policy = child(long, "repetitionPolicySummary")
    if not policy:
        return None
    return Repetition(
        whole(policy, "iteration"),
        whole(policy, "totalIterations"),
        text(policy, "repetitionMode"),
    )


def _arguments(long: Node) -> tuple[Argument, ...]:
    found = tuple(_argument(one) for one in children(long, "arguments"))
    if found or "configuration" not in long:
        return found
    # 3.34 to 3.44 kept a UI test's configuration here.
    values = pairs(child(long, "configuration"), "values")
    return tuple(Argument(value=value, label=label) for label, value in values)


def _argument(node: Node) -> Argument:
    parameter, value = child(node, "parameter"), child(node, "value")
    return Argument(
        value=text(value, "description")
        or text(value, "debugDescription")
        or text(node, "description"),
        label=text(parameter, "label") or text(value, "label"),
        name=text(parameter, "name"),
        type_name=text(parameter, "typeName") or text(value, "typeName") or text(node, "typeName"),
        identifier=text(node, "identifier"),
    )


def _metric(node: Node) -> Metric:
    values = (some_number(one) for one in texts(node, "measurements"))
    return Metric(
        identifier=text(node, "identifier"),
        name=text(node, "displayName"),
        unit=text(node, "unitOfMeasurement"),
        measurements=tuple(value for value in values if value is not None),
        baseline_name=text(node, "baselineName"),
        baseline_average=maybe_number(node, "baselineAverage"),
        max_regression=maybe_number(node, "maxRegression"),
        max_deviation=maybe_number(node, "maxStandardDeviation"),
        max_percent_regression=maybe_number(node, "maxPercentRegression"),
        max_percent_deviation=maybe_number(node, "maxPercentRelativeStandardDeviation"),
        polarity=text(node, "polarity"),
    )
