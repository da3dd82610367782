"""The values of a test run's report, in the shape of their JSON.

A run has modules (test targets), a module has suites and cases, a case has failures, repetitions, arguments and
attachments. `report.py` builds them from a bundle.
"""

from typing import Literal

import msgspec

from runyard.xcresult.reader.crashes import CrashReport
from runyard.xcresult.reader.messages import IssueType

Outcome = Literal["success", "failure", "skipped"]


class Quarantined(msgspec.Struct, frozen=True):
    """An entry of `quarantined_tests.json`: a target, a suite of it, a test of that."""

    target: str
    class_: str | None = msgspec.field(default=None, name="class")
    method: str | None = None


class ReportFailure(msgspec.Struct, frozen=True, kw_only=True):
    """One failure."""

    message: str | None
    path: str | None
    line_number: int
    issue_type: IssueType | None


class ReportRepetition(msgspec.Struct, frozen=True, kw_only=True):
    """One repetition of a case, or of one of its arguments."""

    repetition_number: int
    name: str
    status: Outcome
    duration: int
    failures: tuple[ReportFailure, ...] = ()


class ReportArgument(msgspec.Struct, frozen=True, kw_only=True):
    """One set of arguments."""

    name: str
    status: Outcome
    duration: int
    failures: tuple[ReportFailure, ...] = ()
    repetitions: tuple[ReportRepetition, ...] = ()


class ReportAttachment(msgspec.Struct, frozen=True, kw_only=True):
    """A file attached to a case. `file_path` is set when it has been exported."""

    file_name: str
    payload_id: str
    size: int
    uniform_type: str = ""
    file_path: str | None = None
    repetition_number: int | None = None
    argument_name: str | None = None
    on_failure: bool = False


class ReportCrash(CrashReport, frozen=True, kw_only=True):
    """How a case's process died, and the attachment with its report."""

    file_name: str
    file_path: str | None = None
    """Set when the report has been exported, as for other attachments."""


class ReportCase(msgspec.Struct, frozen=True, kw_only=True):
    """One test."""

    name: str
    test_suite_name: str | None
    module: str
    duration: int | None
    status: Outcome
    failures: tuple[ReportFailure, ...] = ()
    repetitions: tuple[ReportRepetition, ...] = ()
    arguments: tuple[ReportArgument, ...] = ()
    crash_report: ReportCrash | None = None
    attachments: tuple[ReportAttachment, ...] = ()
    is_quarantined: bool = False
    is_flaky: bool = False
    identifier: str = ""


class ReportSuite(msgspec.Struct, frozen=True, kw_only=True):
    """A suite of a module."""

    name: str
    status: Outcome
    duration: int


class Module(msgspec.Struct, frozen=True, kw_only=True):
    """A test target."""

    name: str
    status: Outcome
    duration: int
    test_suites: tuple[ReportSuite, ...] = ()
    test_cases: tuple[ReportCase, ...] = ()


class Destination(msgspec.Struct, frozen=True, kw_only=True):
    """A device that the tests ran on."""

    name: str
    platform: str
    os_version: str


class ReportError(msgspec.Struct, frozen=True, kw_only=True):
    """An error that is not a failure of a test."""

    message: str
    target: str | None = None


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A whole test run."""

    test_plan_name: str | None
    status: Outcome
    duration: int | None
    test_modules: tuple[Module, ...] = ()
    run_destinations: tuple[Destination, ...] = ()
    errors: tuple[ReportError, ...] = ()
