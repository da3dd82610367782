"""The values of a result bundle.

Names are Apple's where Apple has one: an *action* ran a scheme on one device; a *configuration* of
its test plan ran *targets* (test bundles); a target holds *suites*, nested, and *cases*. A *run* is one
execution of one case: one repetition with one set of arguments in one configuration on one device. A
case is the group of runs that share (test plan, target, suite path, identifier).

Invariants:
- Values are frozen and contain tuples; they stay valid when the bundle is deleted.
- Statuses are Apple's words. Lines are one-based; 0 means unknown. Durations are seconds.
- Times are seconds since 1970; None means unknown.
- An attachment has only its payload's object id; the bytes are streamed on demand.
- Activities are read on request only (`Wanted.activities`), because they are most of a large bundle;
  attachments, failures and metrics inside them are always on the run.
"""

from typing import Literal

import msgspec

Status = Literal["Success", "Failure", "Skipped", "Expected Failure"]
Source = Literal["store", "sqlite"]
IssueKind = Literal["error", "warning", "analyzer"]


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What to read in addition to the test tree."""

    activities: bool = False
    logs: bool = True
    """Read the action logs: durations of Swift Testing and of targets come from there."""


class Place(msgspec.Struct, frozen=True, gc=False):
    """A line of a source file, with the path of the build machine."""

    path: str
    line: int = 0


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """One level of a call stack."""

    address: str = ""
    image: str = ""
    symbol: str = ""
    place: Place | None = None


class Expression(msgspec.Struct, frozen=True, kw_only=True):
    """What Swift Testing captured of a failed expectation."""

    source: str
    value: str = ""
    parts: "tuple[Expression, ...]" = ()


class Attachment(msgspec.Struct, frozen=True, kw_only=True):
    """A file attached by a test: a screenshot, a log, a recording."""

    filename: str
    """Apple's unique name; untrusted, never a path to write to."""
    name: str = ""
    uniform_type: str = ""
    payload_id: str = ""
    """Empty for an attachment whose payload was deleted by its lifetime."""
    size: int = 0
    """Declared size of the payload in bytes."""
    present: bool = False
    """The payload is in the store."""
    timestamp: float | None = None
    lifetime: str = ""
    uuid: str = ""
    on_failure: bool = False
    """Belongs to a failure: listed by it, or inside an activity that failed."""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """One issue of a run."""

    message: str
    place: Place | None = None
    issue_type: str = ""
    """Apple's words: Assertion Failure, Thrown Error, Unmatched Expected Failure, System, …"""
    top_level: bool = True
    uuid: str = ""
    timestamp: float | None = None
    frames: tuple[Frame, ...] = ()
    expression: Expression | None = None
    error_domain: str = ""
    error_code: str = ""
    attachments: tuple[Attachment, ...] = ()


class ExpectedFailure(msgspec.Struct, frozen=True, kw_only=True):
    """A failure that the test declared as expected."""

    reason: str = ""
    top_level: bool = True
    failure: Failure | None = None


class Skip(msgspec.Struct, frozen=True, kw_only=True):
    """Why a run was skipped."""

    message: str = ""
    place: Place | None = None


class Argument(msgspec.Struct, frozen=True, kw_only=True):
    """One argument of a parameterised run, or one setting of a UI test's configuration."""

    value: str
    """As Apple's tool shows it."""
    label: str = ""
    name: str = ""
    type_name: str = ""
    identifier: str = ""


class Repetition(msgspec.Struct, frozen=True, gc=False):
    """Which repetition of how many a run was, and by which policy."""

    iteration: int
    total: int = 0
    mode: str = ""
    """RunRetryOnFailure, FixedIterations, or another word of Apple's."""


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """A performance metric with its measurements."""

    identifier: str
    name: str = ""
    unit: str = ""
    measurements: tuple[float, ...] = ()
    baseline_name: str = ""
    baseline_average: float | None = None
    max_regression: float | None = None
    max_deviation: float | None = None
    max_percent_regression: float | None = None
    max_percent_deviation: float | None = None
    polarity: str = ""


class Activity(msgspec.Struct, frozen=True, kw_only=True):
    """A step of a test."""

    title: str
    kind: str = ""
    """The last part of Apple's type: internal, userCreated, attachmentContainer, …"""
    uuid: str = ""
    start: float | None = None
    finish: float | None = None
    attachments: tuple[Attachment, ...] = ()
    activities: "tuple[Activity, ...]" = ()
    failure_ids: tuple[str, ...] = ()
    expected_failure_ids: tuple[str, ...] = ()


class Tag(msgspec.Struct, frozen=True, gc=False):
    """A tag of a test or a suite."""

    name: str


class Bug(msgspec.Struct, frozen=True, kw_only=True):
    """An issue that a test is annotated with."""

    identifier: str = ""
    url: str = ""
    comment: str = ""


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """What the tests ran on."""

    name: str = ""
    identifier: str = ""
    platform: str = ""
    """iOS Simulator, macOS, iOS, …"""
    os_version: str = ""
    os_build: str = ""
    model_name: str = ""
    model_code: str = ""
    architecture: str = ""
    concrete: bool = False


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One execution of one case."""

    action: int
    """Index into `Result.actions`: which device, which test plan."""
    device: int | None = None
    """Index of the first action on the same device, where that is another one: a merged bundle may have a
    device several times."""
    configuration: str
    status: Status
    duration: float = 0.0
    repetition: Repetition | None = None
    arguments: tuple[Argument, ...] = ()
    failures: tuple[Failure, ...] = ()
    expected_failures: tuple[ExpectedFailure, ...] = ()
    skip: Skip | None = None
    attachments: tuple[Attachment, ...] = ()
    """All attachments of the run's activities, failures and expected failures, each once."""
    metrics: tuple[Metric, ...] = ()
    issue_warnings: tuple[Failure, ...] = ()
    """Warnings that Swift Testing recorded (3.60)."""
    activities: tuple[Activity, ...] = ()
    """Only with `Wanted.activities`."""
    summary_id: str = ""
    """The object id of the long form; empty when the bundle has only the short form."""

    @property
    def where(self) -> int:
        """The action that stands for this run's device."""
        return self.action if self.device is None else self.device


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A test: the runs that share its key, and their aggregate by Apple's rules."""

    plan: str
    target: str
    suites: tuple[str, ...]
    """Names of the suites around it, outermost first; empty for a top-level function."""
    identifier: str
    name: str
    """Its display name where it has one, else the function's name."""
    function: str = ""
    """The function's name as the bundle has it (`testFoo()`)."""
    identifier_url: str = ""
    framework: Literal["XCTest", "Swift Testing", ""] = ""
    status: Status
    flaky: bool = False
    duration: float | None = None
    """Mean of the runs' non-zero durations, else from the log, else None."""
    runs: tuple[Run, ...] = ()
    tags: tuple[Tag, ...] = ()
    bugs: tuple[Bug, ...] = ()
    documentation: tuple[str, ...] = ()
    runner_error: bool = False
    """Not a test but a failed runner, or issues without a test. Apple's figures count it as a case."""
    sessionless: bool = False
    """"Issues recorded without an associated test or suite": an error that does not fail the run."""


class Suite(msgspec.Struct, frozen=True, kw_only=True):
    """A suite of a target. `path` ends with its own name."""

    plan: str
    target: str
    path: tuple[str, ...]
    name: str
    """Its display name where it has one."""
    identifier: str = ""
    identifier_url: str = ""
    status: Status = "Success"
    duration: float | None = None
    tags: tuple[Tag, ...] = ()


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A test target (a test bundle) of a plan."""

    plan: str
    name: str
    kind: str = ""
    identifier_url: str = ""
    project_path: str = ""
    language: str = ""
    region: str = ""
    status: Status = "Success"
    duration: float | None = None
    failures: tuple[Failure, ...] = ()
    """Failures of the target itself, for example a test runner that could not be launched."""


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """One action of the invocation."""

    command: str = ""
    task: str = ""
    title: str = ""
    plan: str = ""
    status: str = ""
    build_status: str = ""
    """Of the build before the tests: succeeded, failed, notRequested; empty if unknown."""
    started: float | None = None
    ended: float | None = None
    device: Device = msgspec.field(default_factory=Device)
    computer: Device = msgspec.field(default_factory=Device)
    sdk: str = ""
    sdk_version: str = ""
    has_tests: bool = False
    coverage_report_id: str = ""
    coverage_archive_id: str = ""
    log_id: str = ""
    diagnostics_id: str = ""


class BuildIssue(msgspec.Struct, frozen=True, kw_only=True):
    """An error or a warning of the build."""

    kind: IssueKind
    message: str
    issue_type: str = ""
    target: str = ""
    place: Place | None = None


class RunnerError(msgspec.Struct, frozen=True, kw_only=True):
    """An error that is not a failure of a test. `fatal`: it fails the run."""

    message: str
    target: str = ""
    fatal: bool = True


class Warning(msgspec.Struct, frozen=True, kw_only=True):  # noqa: A001  (of the bundle, not Python's)
    """An object that was missing, damaged or unknown while the rest could be read."""

    message: str
    object_id: str = ""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a bundle."""

    format: str
    """major.minor"""
    source: Source
    test_plan: str | None = None
    """Of the first action that has one; the scheme's name before plans were recorded; None if the bundle has neither,
    as a merged one of that time."""
    scheme: str = ""
    actions: tuple[Action, ...] = ()
    targets: tuple[Target, ...] = ()
    suites: tuple[Suite, ...] = ()
    cases: tuple[Case, ...] = ()
    """In the bundle's order."""
    errors: tuple[RunnerError, ...] = ()
    build_issues: tuple[BuildIssue, ...] = ()
    warnings: tuple[Warning, ...] = ()
    duration: float | None = None
    """Of the whole test run, from the log."""
    xcode: str = ""
