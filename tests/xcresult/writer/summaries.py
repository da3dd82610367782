"""Writes one run of a case: its short form in the tree, and its long form, a separate object.

Before 3.53 a run that simply passed has no long form at all.
"""

from tests.xcresult.writer.attaching import Attaching
from tests.xcresult.writer.drafting import Draft, DraftRun, Drafts
from tests.xcresult.writer.encoding import Scalar, Typed, Value, reference, typed
from tests.xcresult.writer.storing import Store
from tests.xcresult.writer.tally import Tally
from tests.xcresult.writer.texts import BEGIN, Texts, source_file

KIND = "com.apple.dt.xctest.activity-type."
ISSUES = (
    ("Assertion Failure", 'XCTAssertEqual failed: ("{n}") is not equal to ("2")'),
    ("Thrown Error", 'failed: caught error: "Error Domain=shop Code={n} "(null)""'),
    ("Assertion Failure", "Expectation failed: (count → {n}) > 10"),
    ("Unmatched Expected Failure", "Expected failure {n} but none recorded — „straße“"),
)
METRIC = "com.apple.XCTPerformanceMetric_WallClockTime"


class Summaries:
    """Writes runs."""

    def __init__(
        self, drafts: Drafts, *, store: Store, texts: Texts, attaching: Attaching, tally: Tally
    ) -> None:
        self._drafts = drafts
        self._plan = drafts.plan
        self._formats = drafts.formats
        self._store = store
        self._texts = texts
        self._attaching = attaching
        self._tally = tally
        self._now = BEGIN

    def short(self, draft: Draft, run: DraftRun) -> Typed:
        """Return the short form, and write the long form if the run has one."""
        attachments = self._attaching.share(draft.number) if run.first else 0
        summary_id = None
        if self._has_long(draft, run, attachments=attachments):
            summary_id = self._store.put_object(self._long(draft, run, attachments=attachments))
            if self._loses(draft, run) and not attachments:
                self._store.lose(summary_id)
                self._tally.lost += 1
        fields: dict[str, Value] = {
            "duration": run.duration,
            **self._identity(draft),
            "testStatus": run.status,
            "summaryRef": reference(summary_id, "ActionTestSummary"),
        }
        if self._formats.counts:
            failed = run.status == "Failure"
            fields["failureSummariesCount"] = self._plan.failures_each if failed else 0
            fields["activitySummariesCount"] = self._plan.activities
            fields["performanceMetricsCount"] = int(draft.measured)
        return Typed("ActionTestMetadata", fields)

    def _has_long(self, draft: Draft, run: DraftRun, *, attachments: int) -> bool:
        more = run.iteration, len(run.arguments), attachments, self._plan.activities
        return self._formats.swift_testing or run.status != "Success" or draft.measured or any(more)

    def _loses(self, draft: Draft, run: DraftRun) -> bool:
        """Whether this long form is omitted from the store; only long forms without details are."""
        plain = run.first and draft.outcome == "pass" and not (run.arguments or run.iteration)
        plain = plain and not (draft.display or draft.measured or draft.tagged or draft.tracked)
        return plain and not draft.documented and self._tally.lost < self._plan.lost_summaries

    def _identity(self, draft: Draft) -> dict[str, Value]:
        return {
            "identifier": draft.identifier,
            "identifierURL": draft.identifier_url if self._formats.urls else None,
            "name": draft.function,
        }

    def _long(self, draft: Draft, run: DraftRun, *, attachments: int) -> Typed:
        failed, expected = run.status == "Failure", run.status == "Expected Failure"
        taken = attachments // 2 if failed else 0
        failures = self.failures(draft, attachments=taken) if failed else ()
        known = self._formats.swift_testing
        fields: dict[str, Value] = {
            **self._identity(draft),
            "duration": run.duration or None,
            "testStatus": run.status,
            "summary": draft.display or None,
            "activitySummaries": self._activities(failures, attachments=attachments - taken),
            "failureSummaries": failures,
            "performanceMetrics": (_metric(run),) if draft.measured else (),
        }
        if self._formats.policies:
            fields["expectedFailures"] = (self._expected(draft),) if expected else ()
            fields["repetitionPolicySummary"] = self._policy(run)
        if run.status == "Skipped":
            fields["skipNoticeSummary"] = self._skip(draft)
        if known:
            fields["arguments"] = tuple(_argument(draft, text) for text in run.arguments)
            fields["tags"] = (
                (typed("TestTag", name=f".{draft.place.target}"),) if draft.tagged else ()
            )
            fields["trackedIssues"] = (_bug(draft),) if draft.tracked else ()
            text = typed("TestDocumentation", content=f"// Covers {draft.name}", format="plain")
            fields["documentation"] = (text,) if draft.documented else ()
        elif run.arguments:
            fields["configuration"] = _configuration(run.arguments)
        if self._formats.explicit:
            fields["warningSummaries"] = ()
        return Typed("ActionTestSummary", fields)

    def _tick(self) -> float:
        self._now += 0.05
        return self._now

    def _activities(self, failures: tuple[Typed, ...], *, attachments: int) -> tuple[Typed, ...]:
        """Build nested activities; the last one has the attachments."""
        count = max(self._plan.activities, 1 if attachments else 0)
        if not count:
            return ()
        depth = max(1, self._plan.activity_depth)
        blamed = failures[0].fields.get("uuid") if failures else None
        taken = tuple(self._attaching.take(self._now) for _ in range(attachments))
        done: list[Typed] = []
        for first in range(0, count, depth):
            levels = range(first, min(first + depth, count))
            inner: tuple[Typed, ...] = ()
            for number in reversed(levels):
                last = number == count - 1
                kind = (
                    "attachmentContainer"
                    if last and taken
                    else ("userCreated", "internal")[number % 2]
                )
                start = self._tick()
                inner = (
                    typed(
                        "ActionTestActivitySummary",
                        activityType=KIND + kind,
                        attachments=taken if last else (),
                        failureSummaryIDs=(blamed,) if blamed and number == first else (),
                        finish=self._texts.date(start + 0.04),
                        start=self._texts.date(start),
                        subactivities=inner,
                        title=f"Step {number + 1}: tap “Continue”",
                        uuid=self._texts.uuid(),
                    ),
                )
            done += inner
        return tuple(done)

    def failures(self, draft: Draft, *, attachments: int = 0) -> tuple[Typed, ...]:
        """Build the failures; the first is a top-level failure of the test."""
        count = max(1, self._plan.failures_each)
        return tuple(
            self._failure(draft, number, attachments=attachments if number == 0 else 0)
            for number in range(count)
        )

    def _failure(
        self, draft: Draft, number: int, *, attachments: int = 0, expected: bool = False
    ) -> Typed:
        kind, message = ISSUES[(draft.number + number) % len(ISSUES)]
        path = source_file(
            draft.place.target, draft.place.path[0] if draft.place.path else "Functions"
        )
        line = 10 + draft.number % 500 + number
        taken = tuple(self._attaching.take(self._now) for _ in range(attachments))
        if draft.outcome == "fail" and number == 0 and not expected:
            taken += self._attaching.crash(self._now)
        fields: dict[str, Value] = {
            "attachments": taken,
            "fileName": path,
            "lineNumber": line,
            "message": message.format(n=draft.number),
        }
        if self._formats.issue_details:
            fields["isTopLevelFailure"] = number == 0 and not expected
            fields["issueType"] = kind
            fields["sourceCodeContext"] = self._context(draft, path, line)
            fields["timestamp"] = self._texts.date(self._tick())
            fields["uuid"] = self._texts.uuid()
        if self._formats.swift_testing and kind == "Thrown Error":
            fields["associatedError"] = typed(
                "TestAssociatedError", code=draft.number, domain="shop"
            )
        if draft.place.swift:
            fields["expression"] = _expression(draft.number)
        if self._formats.explicit:
            fields["isPerformanceFailure"] = False
        return Typed("ActionTestFailureSummary", fields)

    def _context(self, draft: Draft, path: str, line: int) -> Typed:
        location = typed("SourceCodeLocation", filePath=path, lineNumber=line)
        symbol = typed(
            "SourceCodeSymbolInfo",
            imageName=draft.place.target,
            location=location,
            symbolName=draft.identifier.replace("/", "."),
        )
        frames = tuple(
            typed(
                "SourceCodeFrame",
                addressString=str(4_380_000_000 + level * 4_096),
                symbolInfo=symbol if level == 2 else None,
            )
            for level in range(self._plan.frames)
        )
        return typed("SourceCodeContext", callStack=frames, location=location)

    def _expected(self, draft: Draft) -> Typed:
        return typed(
            "ActionTestExpectedFailure",
            failureReason="Until the basket is repaired",
            failureSummary=self._failure(draft, 0, expected=True),
            isTopLevelFailure=True,
            uuid=self._texts.uuid(),
        )

    def _policy(self, run: DraftRun) -> Typed | None:
        if not run.iteration:
            return None
        return typed(
            "ActionTestRepetitionPolicySummary",
            iteration=run.iteration,
            repetitionMode=self._drafts.mode,
            totalIterations=max(2, self._plan.iterations),
        )

    def _skip(self, draft: Draft) -> Typed:
        path = source_file(
            draft.place.target, draft.place.path[0] if draft.place.path else "Functions"
        )
        return typed(
            "ActionTestNoticeSummary",
            fileName=path,
            lineNumber=20 + draft.number % 100,
            message="Test skipped - not on this device",
        )


def _metric(run: DraftRun) -> Typed:
    return typed(
        "ActionTestPerformanceMetricSummary",
        displayName="Clock Monotonic Time",
        identifier=METRIC,
        maxPercentRegression=10.0,
        maxPercentRelativeStandardDeviation=10.0,
        maxRegression=0.0,
        maxStandardDeviation=0.0,
        measurements=tuple(run.logged + each / 100 for each in range(5)),
        unitOfMeasurement="s",
    )


def _bug(draft: Draft) -> Typed:
    url = Scalar("URL", f"https://bugs.example.com/{draft.number}".encode())
    identifier = str(draft.number)
    return typed("IssueTrackingMetadata", comment="Seen before", identifier=identifier, url=url)


def _argument(draft: Draft, text: str) -> Typed:
    if not draft.place.swift:
        parameter = typed("TestParameter", label="XCUIDeviceOrientation")
        return typed(
            "TestArgument", parameter=parameter, value=typed("TestValue", description=text)
        )
    quoted = f'"{text}"'
    of = {"typeName": "String", "fullyQualifiedTypeName": "Swift.String"}
    return typed(
        "TestArgument",
        identifier=quoted,
        parameter=typed("TestParameter", label="value", name="value", **of),
        value=typed("TestValue", debugDescription=quoted, description=quoted, **of),
    )


def _configuration(arguments: tuple[str, ...]) -> Typed:
    pairs = tuple(
        typed("SortedKeyValueArrayPair", key="XCUIDeviceOrientation", value=text)
        for text in arguments
    )
    return typed("ActionTestConfiguration", values=typed("SortedKeyValueArray", storage=pairs))


def _expression(number: int) -> Typed:
    of = {"typeName": "Int", "fullyQualifiedTypeName": "Swift.Int"}
    part = typed(
        "TestExpression",
        sourceCode="count",
        value=typed("TestValue", description=str(number), **of),
    )
    return typed("TestExpression", sourceCode="count > 10", subexpressions=(part,))
