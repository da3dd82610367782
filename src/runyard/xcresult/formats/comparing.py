"""Compares two results: newly failing, fixed, newly flaky, slower, added, removed.

Tests are the same if target, suites and identifier are; the test plan counts only if a result has several, so that a
renamed plan does not make every test new.

Invariants:
- Each test is in at most one of: newly failing, fixed, still failing. It may also be flaky, slower, added or removed.
- A test that is new and fails is newly failing, and added.
- Slower means slower by a factor and by a time, both: noise of short tests is ignored.
"""

from collections.abc import Iterable

import msgspec

from runyard.xcresult.formats import words
from runyard.xcresult.formats.groups import groups
from runyard.xcresult.reader.model import Case, Result, Status
from runyard.xcresult.reader.verdict import build_errors, build_failed, tests

Key = tuple[str, str, tuple[str, ...], str]


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One test in both results."""

    target: str
    suites: tuple[str, ...]
    name: str
    identifier: str
    plan: str = ""
    before: Status | None = None
    after: Status | None = None
    before_seconds: float | None = None
    after_seconds: float | None = None
    message: str = ""
    """Message of the current failure; empty if the test does not fail."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """All differences between two results."""

    newly_failing: tuple[Change, ...]
    fixed: tuple[Change, ...]
    still_failing: tuple[Change, ...]
    newly_flaky: tuple[Change, ...]
    no_longer_flaky: tuple[Change, ...]
    slower: tuple[Change, ...]
    faster: tuple[Change, ...]
    added: tuple[Change, ...]
    removed: tuple[Change, ...]
    new_errors: tuple[str, ...]
    unchanged: int
    """Number of tests with the same outcome in both results; durations are ignored."""

    @property
    def worse(self) -> bool:
        """Whether something fails that did not fail before."""
        return bool(self.newly_failing or self.new_errors)


def compare(
    before: Result, after: Result, *, factor: float = 1.5, seconds: float = 0.1
) -> Difference:
    """Compare two results; slower means by `factor` and also by `seconds`."""
    plans = max(_plans(before), _plans(after)) > 1
    old = {_key(case, plans=plans): case for case in tests(before)}
    new = {_key(case, plans=plans): case for case in tests(after)}
    pairs = [(old.get(key), case) for key, case in new.items()]
    both = [(a, b) for a, b in pairs if a is not None]
    return Difference(
        newly_failing=_all((a, b) for a, b in pairs if _fails(b) and not _fails(a)),
        fixed=_all(
            (a, b) for a, b in both if _fails(a) and b.status in {"Success", "Expected Failure"}
        ),
        still_failing=_all((a, b) for a, b in both if _fails(a) and _fails(b)),
        newly_flaky=_all((a, b) for a, b in pairs if b.flaky and not (a is not None and a.flaky)),
        no_longer_flaky=_all(
            (a, b) for a, b in both if a.flaky and b.status == "Success" and not b.flaky
        ),
        slower=_by_time((a, b) for a, b in both if _slower(a, b, factor, seconds)),
        faster=_by_time((a, b) for a, b in both if _slower(b, a, factor, seconds)),
        added=_all((None, b) for a, b in pairs if a is None),
        removed=_all((a, None) for key, a in old.items() if key not in new),
        new_errors=_new_errors(before, after),
        unchanged=sum(a.status == b.status and a.flaky == b.flaky for a, b in both),
    )


def path_of(change: Change) -> str:
    """`Target / Suite / test()`."""
    return " / ".join((change.target, *change.suites, change.name))


def _plans(result: Result) -> int:
    return len({case.plan for case in result.cases})


def _key(case: Case, *, plans: bool) -> Key:
    return (case.plan if plans else "", case.target, case.suites, case.identifier)


def _fails(case: Case | None) -> bool:
    return case is not None and case.status == "Failure"


def _slower(before: Case, after: Case, factor: float, seconds: float) -> bool:
    if not before.duration or not after.duration:
        return False
    return (
        after.duration >= before.duration * factor and after.duration - before.duration >= seconds
    )


def _all(pairs: Iterable[tuple[Case | None, Case | None]]) -> tuple[Change, ...]:
    return tuple(_change(before, after) for before, after in pairs)


def _by_time(pairs: Iterable[tuple[Case, Case]]) -> tuple[Change, ...]:
    return tuple(sorted(_all(pairs), key=lambda change: -abs(_gain(change))))


def _gain(change: Change) -> float:
    return (change.after_seconds or 0.0) - (change.before_seconds or 0.0)


def _change(before: Case | None, after: Case | None) -> Change:
    case = after if after is not None else before
    assert case is not None
    return Change(
        target=case.target,
        suites=case.suites,
        name=case.name,
        identifier=case.identifier,
        plan=case.plan,
        before=before.status if before is not None else None,
        after=after.status if after is not None else None,
        before_seconds=before.duration if before is not None else None,
        after_seconds=after.duration if after is not None else None,
        message=_message(after) if after is not None else "",
    )


def _message(case: Case) -> str:
    if case.status == "Failure":
        found = [
            failure
            for group in groups(case)
            if group.status == "Failure"
            for failure in group.failures
        ]
    elif case.flaky:
        found = [
            f for run in case.runs if run.status == "Failure" for f in words.shown_failures(run)
        ]
    else:
        found = []
    return words.cut(words.located_message(found[0]), 1000) if found else ""


def _new_errors(before: Result, after: Result) -> tuple[str, ...]:
    known = {(error.target, error.message) for error in before.errors}
    fresh = [
        error
        for error in after.errors
        if error.fatal and (error.target, error.message) not in known
    ]
    errors = [
        f"{error.target}: {error.message}" if error.target else error.message for error in fresh
    ]
    if build_failed(after) and not build_failed(before):
        messages = [issue.message for issue in build_errors(after)] or [words.BUILD_FAILED]
        errors += [f"build: {message}" for message in messages]
    return tuple(errors)
