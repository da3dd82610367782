"""Reads a result from Apple's cache, for bundles whose object store was removed.

Apple's tool writes `database.sqlite3` into a bundle when test results are first read; some teams keep only that file
and Info.plist. It is the second-best source: it has no logs, no sizes of attachments, and for older data no identifiers
of passed tests, which are derived from suite and function here. It also mixes the issues of the build with those of the
action without distinction, so a result from it has no build issues; but if there is no test, the errors are those of a
build that failed.
"""

from pathlib import Path

from runyard.xcresult.cache.database import Database, Row, opened
from runyard.xcresult.cache.details import Details, Present
from runyard.xcresult.cache.tree import Step, Tree, Where
from runyard.xcresult.reader.actions import same_devices
from runyard.xcresult.reader.aggregation import (
    case_status,
    combine,
    is_flaky,
    mean_duration,
    runs_duration,
)
from runyard.xcresult.reader.budget import Budget
from runyard.xcresult.reader.cases import (
    framework_of,
    is_runner_error,
    is_sessionless,
    runner_errors,
)
from runyard.xcresult.reader.issues import document_place
from runyard.xcresult.reader.model import (
    Bug,
    BuildIssue,
    Case,
    Result,
    Run,
    Status,
    Suite,
    Tag,
    Target,
    Wanted,
)
from runyard.xcresult.reader.runs import STATUSES

ERROR = 0
"""The severity of an error; that of a warning is 2."""
PATH_WORK = 100
"""Levels, multiplied with each other, that are one work: a path is compared once for each of its levels."""
SuiteKey = tuple[str, str, tuple[str, ...]]
"""Plan, target, names of the suites."""


def read_cache(
    database: Path,
    *,
    format: str,
    wanted: Wanted = Wanted(),  # noqa: B008  (frozen)
    present: Present = lambda _: False,
    budget: Budget | None = None,
) -> Result:
    """Read a bundle's database; `format` is that of its Info.plist. Raises BundleInvalid, TooLarge.

    `present` returns whether a payload is still in the store. The rows are spent from `budget`.
    """
    with opened(database, budget=budget) as found:
        reading = _Reading(found, wanted, minor=_minor(format), present=present)
        return reading.result(format)


class _Reading:
    def __init__(self, database: Database, wanted: Wanted, *, minor: int, present: Present) -> None:
        self._wanted = wanted
        self._minor = minor
        self._tree = Tree(database)
        self._actions = self._tree.actions()
        self._devices = same_devices(self._actions)
        self._details = Details(database, activities=wanted.activities, present=present)
        self._facts = _Facts(database)
        self._database = database
        self._tools = next(database.rows("DeveloperTools"), None)

    def result(self, format_: str) -> Result:
        actions = self._actions
        cases, suites = self._cases_and_suites()
        targets = self._targets(cases)
        plan = next((action.plan for action in actions if action.plan), "")
        return Result(
            format=format_,
            source="sqlite",
            test_plan=plan or self._tree.scheme or None,
            scheme=self._tree.scheme,
            actions=actions,
            targets=targets,
            suites=suites,
            cases=cases,
            errors=runner_errors(cases, targets),
            build_issues=() if cases else _build_errors(self._database),
            xcode=_xcode(self._tools) if self._tools else "",
        )

    def _cases_and_suites(self) -> tuple[tuple[Case, ...], tuple[Suite, ...]]:
        grouped: dict[tuple[SuiteKey, str], list[Step]] = {}
        suites: dict[SuiteKey, list[Step]] = {}
        for step in self._tree.walk():
            where = step.where
            key = (where.plan, where.target.text("name"), where.path)
            if step.case is None:
                suites.setdefault(key, []).append(step)
            else:
                grouped.setdefault((key, _identifier(where, step.case)), []).append(step)
        cases = tuple(
            self._case(steps[0].where, row, steps)
            for steps in grouped.values()
            if (row := steps[0].case) is not None
        )
        return cases, self._suites(suites, cases)

    def _case(self, where: Where, row: Row, steps: list[Step]) -> Case:
        runs = tuple(self._run(step) for step in steps)
        identifier = _identifier(where, row)
        function, url = row.text("name"), row.text("identifierURL")
        sessionless = is_sessionless(function, identifier=identifier, url=url)
        return Case(
            plan=where.plan,
            target=where.target.text("name"),
            suites=where.path,
            identifier=identifier,
            name=row.text("summary", "name"),
            function=function,
            identifier_url=url,
            framework=framework_of(url, minor=self._minor),
            status=case_status(runs),
            flaky=is_flaky(runs),
            duration=runs_duration(runs),
            runs=runs,
            tags=self._facts.tags_of_case(row.id),
            bugs=self._facts.bugs(row.id),
            documentation=self._facts.documentation(row.id),
            runner_error=not sessionless
            and is_runner_error(function, identifier=identifier, url=url, suites=where.path),
            sessionless=sessionless,
        )

    def _run(self, step: Step) -> Run:
        run = step.run
        failures = self._details.failures(run.id)
        expected = self._details.expected_failures(run.id)
        return Run(
            action=step.where.action,
            device=self._devices[step.where.action],
            configuration=step.where.configuration,
            status=STATUSES.get(run.text("result"), "Failure"),
            duration=max(run.real("duration") or 0.0, 0.0),
            repetition=self._details.repetition(run),
            arguments=self._details.arguments(run.id),
            failures=failures,
            expected_failures=expected,
            skip=self._details.skip(run),
            attachments=self._details.attachments(run.id, failures=failures, expected=expected),
            metrics=self._details.metrics(run.id),
            activities=self._details.activities(run.id, failures=failures)
            if self._wanted.activities
            else (),
        )

    def _suites(
        self, suites: dict[SuiteKey, list[Step]], cases: tuple[Case, ...]
    ) -> tuple[Suite, ...]:
        inside: dict[SuiteKey, list[Status]] = {}
        for case in cases:
            inside.setdefault((case.plan, case.target, case.suites), []).append(case.status)
        statuses: dict[SuiteKey, list[Status]] = {}
        for (plan, target, path), found in inside.items():
            self._database.budget.spend(len(path) ** 2 // PATH_WORK)
            status = combine(found)
            for end in range(1, len(path) + 1):
                statuses.setdefault((plan, target, path[:end]), []).append(status)
        return tuple(
            self._suite(steps, combine(statuses.get(key, ()))) for key, steps in suites.items()
        )

    def _suite(self, steps: list[Step], status: Status) -> Suite:
        where = steps[0].where
        row = where.suites[-1]
        return Suite(
            plan=where.plan,
            target=where.target.text("name"),
            path=where.path,
            name=row.text("summary", "name"),
            identifier=row.text("identifier"),
            identifier_url=row.text("identifierURL"),
            status=status,
            duration=mean_duration(step.run.real("duration") or 0.0 for step in steps),
            tags=self._facts.tags_of_suite(row.id),
        )

    def _targets(self, cases: tuple[Case, ...]) -> tuple[Target, ...]:
        statuses: dict[tuple[str, str], list[Status]] = {}
        for case in cases:
            statuses.setdefault((case.plan, case.target), []).append(case.status)
        found: dict[tuple[str, str], Target] = {}
        for where in self._tree.targets():
            key = (where.plan, where.target.text("name"))
            if key not in found:
                found[key] = Target(
                    plan=key[0],
                    name=key[1],
                    kind=where.target.text("testKind"),
                    identifier_url=where.target.text("identifierURL"),
                    project_path=where.target.text("projectRelativePath"),
                    status=combine(statuses.get(key, ())),
                )
        return tuple(found.values())


class _Facts:
    """Facts about cases and suites, whether they ran or not."""

    def __init__(self, database: Database) -> None:
        self._again = database.again
        self._case_tags = database.grouped("TestTags", "testCase_fk")
        self._suite_tags = database.grouped("TestTags", "testSuite_fk")
        self._bugs = database.grouped("IssueTrackingMetadata", "testCase_fk", order="orderInParent")
        self._texts = database.grouped("TestDocumentations", "testCase_fk", order="orderInParent")

    def tags_of_case(self, key: int) -> tuple[Tag, ...]:
        return tuple(Tag(row.text("name")) for row in self._again(self._case_tags.get(key, ())))

    def tags_of_suite(self, key: int) -> tuple[Tag, ...]:
        return tuple(Tag(row.text("name")) for row in self._again(self._suite_tags.get(key, ())))

    def bugs(self, key: int) -> tuple[Bug, ...]:
        return tuple(
            Bug(
                identifier=row.text("identifier"),
                url=row.text("url"),
                comment=row.text("title", "comment"),
            )
            for row in self._again(self._bugs.get(key, ()))
        )

    def documentation(self, key: int) -> tuple[str, ...]:
        return tuple(row.text("content") for row in self._again(self._texts.get(key, ())))


def _identifier(where: Where, case: Row) -> str:
    """The case's identifier; derived from suite and function if Apple's tool left it out."""
    found = case.text("identifier")
    if found:
        return found
    suite = where.suites[-1].text("identifier", "name") if where.suites else ""
    return f"{suite}/{case.text('name')}" if suite else case.text("name")


def _build_errors(database: Database) -> tuple[BuildIssue, ...]:
    places = database.by_id("DocumentLocations")
    return tuple(
        BuildIssue(
            kind="error",
            message=row.text("message"),
            issue_type=row.text("issueType"),
            target=row.text("producingTarget"),
            place=document_place(place.text("url")) if place else None,
        )
        for row in database.rows("BuildIssues")
        if row.real("severity") == ERROR
        for place in (places.get(row.integer("documentLocation_fk")),)
    )


def _xcode(tools: Row) -> str:
    """`26.3 (17C519)`, as logs have it."""
    version, build = tools.text("xcodeVersion"), tools.text("xcodeBuildVersion")
    return f"{version} ({build})" if version and build else version


def _minor(format_: str) -> int:
    minor = format_.partition(".")[2]
    return int(minor) if minor.isdecimal() and len(minor) < 9 else 0
