"""Reads the details of a run from Apple's cache: issues, attachments, arguments, metrics, activities.

Each table is read once and grouped by the row that it belongs to, so no run needs another query. Times are seconds
since 2001. Trees (activities, expressions) are built from untrusted keys: rows at the top are never used below it,
depth is limited, and shared rows are built once.
"""

from collections.abc import Callable

from runyard.xcresult.cache.database import Database, Row
from runyard.xcresult.reader.attachments import gather
from runyard.xcresult.reader.budget import Budget
from runyard.xcresult.reader.model import (
    Activity,
    Argument,
    Attachment,
    ExpectedFailure,
    Expression,
    Failure,
    Frame,
    Metric,
    Place,
    Repetition,
    Skip,
)

Present = Callable[[str], bool]
"""Whether a payload is still in the store."""
EPOCH = 978_307_200.0
"""2001-01-01 in seconds since 1970."""
DEPTH = 200
PARTS = 1000
"""Largest number of parts of one captured expression, at all levels."""
PART_BYTES = 256
"""Memory of one part."""
NUMBER_BYTES = 80
"""Memory of a number or an identifier that is listed in a text, while the text is split."""


def moment(row: Row, name: str) -> float | None:
    """A time of the cache in seconds since 1970."""
    seconds = row.real(name)
    return None if seconds is None else seconds + EPOCH


def without(rows: list[Row], owner: str) -> list[Row]:
    """Return the rows below the top of a tree, so that no cycle is reachable from the top."""
    return [row for row in rows if not row.integer(owner)]


def listed(row: Row, name: str, mark: str, budget: Budget) -> list[str]:
    """Return the parts of a text; two bytes of it may be one."""
    text = row.text(name)
    count = text.count(mark) + 1 if text else 0
    budget.spend(count)
    budget.hold(count * NUMBER_BYTES)
    return text.split(mark)


class Sources:
    """Locations in source files, call stacks and captured expressions."""

    def __init__(self, database: Database) -> None:
        self._budget = database.budget
        self._locations = database.by_id("SourceCodeLocations")
        self._contexts = database.by_id("SourceCodeContexts")
        self._symbols = database.by_id("SourceCodeSymbolInfos")
        self._frames = database.grouped("SourceCodeFrames", "context_fk", order="orderInContainer")
        self._expressions = database.by_id("Expressions")
        self._stacks: dict[int, tuple[Frame, ...]] = {}
        self._captured: dict[int, Expression | None] = {}
        self._values = database.by_id("TestValues")

    def place(self, row: Row | None) -> Place | None:
        """The location of a context or a symbol."""
        found = self._locations.get(row.integer("location_fk")) if row else None
        if found is None or not found.text("filePath"):
            return None
        return Place(found.text("filePath"), found.integer("lineNumber"))

    def context(self, key: int) -> Place | None:
        """The location of a context."""
        return self.place(self._contexts.get(key))

    def frames(self, key: int) -> tuple[Frame, ...]:
        """The call stack of a context."""
        if key not in self._stacks:
            self._stacks[key] = tuple(self._frame(row) for row in self._frames.get(key, ()))
        return self._stacks[key]

    def _frame(self, row: Row) -> Frame:
        symbol = self._symbols.get(row.integer("symbolInfo_fk"))
        return Frame(
            address=row.text("address"),
            image=symbol.text("imageName") if symbol else "",
            symbol=symbol.text("symbolName") if symbol else "",
            place=self.place(symbol),
        )

    def value(self, key: int) -> Row | None:
        """A captured value."""
        return self._values.get(key)

    def expression(self, key: int) -> Expression | None:
        """What Swift Testing captured of an expectation."""
        if key not in self._captured:
            self._captured[key] = self._expression(key, set(), 0)
        return self._captured[key]

    def _expression(self, key: int, seen: set[int], depth: int) -> Expression | None:
        row = self._expressions.get(key)
        if row is None or key in seen or len(seen) >= PARTS or depth > DEPTH:
            return None
        seen.add(key)
        self._budget.hold(PART_BYTES)
        value = self.value(row.integer("testValue_fk"))
        keys = listed(row, "subexpressions", ",", self._budget)[:PARTS]
        parts = (
            self._expression(int(part), seen, depth + 1)
            for part in keys
            if part.isdecimal() and len(part) < 19
        )
        return Expression(
            source=row.text("sourceCode"),
            value=value.text("description") if value else "",
            parts=tuple(part for part in parts if part is not None),
        )


class Details:
    """Everything that belongs to runs, by run."""

    def __init__(self, database: Database, *, activities: bool, present: Present) -> None:
        self._database = database
        self._present = present
        self.sources = Sources(database)
        self._errors = database.by_id("TestErrors")
        self._attached = database.grouped("Attachments", "testIssue_fk")
        issues = database.by_id("TestIssues")
        self._expected = database.grouped(
            "ExpectedFailures", "testCaseRun_fk", order="orderInOwner"
        )
        self._issues = issues
        announced = {row.integer("issue_fk") for rows in self._expected.values() for row in rows}
        self._failures: dict[int, list[Row]] = {}
        for row in sorted(issues.values(), key=lambda row: row.integer("orderInOwner")):
            if row.id not in announced:
                self._failures.setdefault(row.integer("testCaseRun_fk"), []).append(row)
        self._repetitions = database.by_id("RepetitionPolicies")
        self._skips = database.by_id("SkipNotices")
        self._parameters = database.by_id("Parameters")
        self._arguments = database.grouped(
            "Arguments", "testCaseRun_fk", order="orderInTestCaseRun"
        )
        self._metrics = database.grouped(
            "PerformanceMetrics", "testCaseRun_fk", order="orderInTestCase"
        )
        self._activities = Activities(database, wanted=activities, present=present)

    def failures(self, run: int) -> tuple[Failure, ...]:
        """The unexpected issues of a run."""
        return tuple(self._failure(row) for row in self._failures.get(run, ()))

    def expected_failures(self, run: int) -> tuple[ExpectedFailure, ...]:
        """The expected issues of a run."""
        return tuple(self._expected_failure(row) for row in self._expected.get(run, ()))

    def _expected_failure(self, row: Row) -> ExpectedFailure:
        issue = self._issues.get(row.integer("issue_fk"))
        return ExpectedFailure(
            reason=row.text("failureReason"),
            top_level=row.flag("isTopLevelFailure", default=False),
            failure=self._failure(issue, expected=True) if issue else None,
        )

    def _failure(self, row: Row, *, expected: bool = False) -> Failure:
        context = row.integer("sourceCodeContext_fk")
        error = self._errors.get(row.integer("associatedError_fk"))
        attached = self._attached.get(row.id, ())
        return Failure(
            message=row.text("compactDescription", "detailedDescription", "sanitizedDescription"),
            place=self.sources.context(context),
            issue_type=row.text("issueType"),
            top_level=row.flag("isTopLevel", "isTopLevelFailure", default=True),
            uuid=row.text("uuid"),
            timestamp=moment(row, "timestamp"),
            frames=self.sources.frames(context),
            expression=self.sources.expression(row.integer("expression_fk")),
            error_domain=error.text("domain") if error else "",
            error_code=error.text("code") if error else "",
            attachments=tuple(
                _attachment(each, self._present, on_failure=not expected)
                for each in (self._database.again(attached) if expected else attached)
            ),
        )

    def repetition(self, run: Row) -> Repetition | None:
        """Which repetition a run was."""
        row = self._repetitions.get(run.integer("repetitionPolicy_fk"))
        if row is None:
            return None
        return Repetition(
            row.integer("repetition"),
            row.integer("totalRepetitions"),
            row.text("repetitionModeString"),
        )

    def skip(self, run: Row) -> Skip | None:
        """Why a run was skipped."""
        row = self._skips.get(run.integer("skipNotice_fk"))
        if row is None:
            return None
        path = row.text("fileName")
        place = Place(path, row.integer("lineNumber")) if path else None
        return Skip(message=row.text("message"), place=place)

    def arguments(self, run: int) -> tuple[Argument, ...]:
        """The arguments of a run.

        The cache stores a case's parameters by their position in its first run. The settings of a UI test have another
        order in each run, so the cache may pair values with wrong labels.
        """
        return tuple(self._argument(row) for row in self._arguments.get(run, ()))

    def _argument(self, row: Row) -> Argument:
        value = self.sources.value(row.integer("testValue_fk"))
        parameter = self._parameters.get(row.integer("parameter_fk"))
        return Argument(
            value=value.text("description") if value else "",
            label=parameter.text("label") if parameter else "",
            name=parameter.text("name") if parameter else "",
            type_name=(parameter.text("typeName") if parameter else "")
            or (value.text("typeName") if value else ""),
            identifier=row.text("identifier"),
        )

    def metrics(self, run: int) -> tuple[Metric, ...]:
        """The metrics of a run."""
        budget = self._database.budget
        return tuple(_metric(row, budget) for row in self._metrics.get(run, ()))

    def attachments(
        self,
        run: int,
        *,
        failures: tuple[Failure, ...],
        expected: tuple[ExpectedFailure, ...],
    ) -> tuple[Attachment, ...]:
        """All attachments of a run: of its activities, failures and expected failures."""
        uuids = frozenset(failure.uuid for failure in failures if failure.uuid)
        steps = self._activities.attachments(run, uuids)
        return gather(steps, failures=failures, expected=expected)

    def activities(self, run: int, *, failures: tuple[Failure, ...]) -> tuple[Activity, ...]:
        """The activities of a run."""
        uuids = frozenset(failure.uuid for failure in failures if failure.uuid)
        return self._activities.of_run(run, uuids)


class Activities:
    """The activities of all runs, as trees."""

    def __init__(self, database: Database, *, wanted: bool, present: Present) -> None:
        self._budget = database.budget
        self._present = present
        self._attached = database.grouped("Attachments", "activity_fk")
        # activities are most of a large cache
        table = "Activities" if wanted or self._attached else ""
        self._top = database.grouped(table, "testCaseRun_fk", order="orderInParent")
        below = database.grouped(table, "parent_fk", order="orderInParent")
        self._below = {key: without(rows, "testCaseRun_fk") for key, rows in below.items()}

    def of_run(self, run: int, failures: frozenset[str]) -> tuple[Activity, ...]:
        """The top-level activities of a run, each with its children; `failures` are the run's."""
        return tuple(
            self._activity(row, failures, failed=False, depth=0) for row in self._top.get(run, ())
        )

    def _activity(
        self, row: Row, failures: frozenset[str], *, failed: bool, depth: int
    ) -> Activity:
        below = self._below.get(row.id, ()) if depth < DEPTH else ()
        failed = failed or not failures.isdisjoint(_ids(row, "failureIDs", self._budget))
        return Activity(
            title=row.text("title"),
            kind=row.text("activityType").rpartition("activity-type.")[2],
            uuid=row.text("uuid"),
            start=moment(row, "startTime"),
            finish=moment(row, "finishTime"),
            attachments=self._attachments(row, failed=failed),
            activities=tuple(
                self._activity(child, failures, failed=failed, depth=depth + 1) for child in below
            ),
            failure_ids=_ids(row, "failureIDs", self._budget),
            expected_failure_ids=_ids(row, "expectedFailureIDs", self._budget),
        )

    def attachments(self, run: int, failures: frozenset[str]) -> list[Attachment]:
        """The attachments of a run's activities; those of failed activities are marked."""
        found: list[Attachment] = []
        for row in self._top.get(run, ()) if self._attached else ():
            self._collect(row, failures, failed=False, depth=0, into=found)
        return found

    def _collect(
        self,
        row: Row,
        failures: frozenset[str],
        *,
        failed: bool,
        depth: int,
        into: list[Attachment],
    ) -> None:
        failed = failed or not failures.isdisjoint(_ids(row, "failureIDs", self._budget))
        into.extend(self._attachments(row, failed=failed))
        for child in self._below.get(row.id, ()) if depth < DEPTH else ():
            self._collect(child, failures, failed=failed, depth=depth + 1, into=into)

    def _attachments(self, row: Row, *, failed: bool) -> tuple[Attachment, ...]:
        return tuple(
            _attachment(each, self._present, on_failure=failed)
            for each in self._attached.get(row.id, ())
        )


def _ids(row: Row, name: str, budget: Budget) -> tuple[str, ...]:
    return tuple(part for part in listed(row, name, ":", budget) if part)


def _attachment(row: Row, present: Present, *, on_failure: bool) -> Attachment:
    payload_id = row.text("xcResultKitPayloadRefId")
    return Attachment(
        filename=row.text("filenameOverride", "name"),
        name=row.text("name"),
        uniform_type=row.text("uniformTypeIdentifier"),
        payload_id=payload_id,
        present=bool(payload_id) and present(payload_id),
        timestamp=moment(row, "timestamp"),
        lifetime=row.text("lifetime"),
        uuid=row.text("uuid"),
        on_failure=on_failure,
    )


def _metric(row: Row, budget: Budget) -> Metric:
    parts = listed(row, "measurements", ",", budget)
    numbers = (_number(part) for part in parts if part.strip())
    return Metric(
        identifier=row.text("identifier"),
        name=row.text("displayName"),
        unit=row.text("unitOfMeasurement"),
        measurements=tuple(number for number in numbers if number is not None),
        baseline_name=row.text("baselineName"),
        baseline_average=row.real("baselineAverage"),
        max_regression=row.real("maxRegression"),
        max_deviation=row.real("maxStandardDeviation"),
        max_percent_regression=row.real("maxPercentRegression"),
        max_percent_deviation=row.real("maxPercentRelativeStandardDeviation"),
        polarity=row.text("polarity"),
    )


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
