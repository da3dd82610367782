"""Tests that skipping summaries without details does not change the result."""

import msgspec
import pytest
from tests.xcresult import fixtures

from runyard.xcresult.bundle.reading import read_bundle
from runyard.xcresult.reader.model import Case, Result, Wanted


def without_activities(result: Result) -> tuple[Case, ...]:
    return tuple(
        msgspec.structs.replace(
            case,
            runs=tuple(msgspec.structs.replace(run, activities=()) for run in case.runs),
        )
        for case in result.cases
    )


@pytest.mark.parametrize("name", fixtures.parameters())
def test_a_summary_that_is_passed_over_hides_nothing(name: str) -> None:
    bundle = fixtures.bundle(name)
    short, long = read_bundle(bundle), read_bundle(bundle, wanted=Wanted(activities=True))
    assert without_activities(long) == short.cases
    assert long.suites == short.suites
    assert long.warnings == short.warnings
