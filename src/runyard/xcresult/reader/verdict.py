"""Decides whether a result passed: one verdict for every format and for the exit code.

Rules, the first that applies:
- A test or a test runner that failed is a failure.
- A build that failed is a failed build, also if tests of another action of a merged bundle ran.
- Tests that ran are a success, or skipped if all of them were.

An issue that Swift Testing recorded outside of any test does not change the verdict: `xcodebuild` exits with 0 for it.
"""

from enum import StrEnum

from runyard.xcresult.reader.model import BuildIssue, Case, Result

FAILED = "failed"
"""Apple's word for the status of a build that failed."""


class Verdict(StrEnum):
    """The outcome of a whole result."""

    SUCCESS = "success"
    FAILURE = "failure"
    SKIPPED = "skipped"
    BUILD_FAILED = "build failed"
    NO_TESTS = "no tests"

    @property
    def bad(self) -> bool:
        """Whether a test, a test runner or the build failed."""
        return self in {Verdict.FAILURE, Verdict.BUILD_FAILED}


def tests(result: Result) -> tuple[Case, ...]:
    """The cases that are tests."""
    return tuple(case for case in result.cases if not (case.runner_error or case.sessionless))


def build_failed(result: Result) -> bool:
    """Whether a build failed: by its status, or by an error if there is no test."""
    if any(action.build_status == FAILED for action in result.actions):
        return True
    return bool(build_errors(result)) and not tests(result)


def build_errors(result: Result) -> tuple[BuildIssue, ...]:
    """The errors of all builds."""
    return tuple(issue for issue in result.build_issues if issue.kind == "error")


def verdict(result: Result) -> Verdict:
    """Return the verdict of a result."""
    statuses = frozenset(case.status for case in tests(result))
    if "Failure" in statuses or any(error.fatal for error in result.errors):
        return Verdict.FAILURE
    if build_failed(result):
        return Verdict.BUILD_FAILED
    if not statuses:
        return Verdict.NO_TESTS
    return Verdict.SKIPPED if statuses == {"Skipped"} else Verdict.SUCCESS
