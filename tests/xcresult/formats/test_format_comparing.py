"""Tests the comparison of two results: every kind of change, and no change for noise."""

from msgspec.structs import replace
from tests.xcresult.formats.results import case, failure, result, run

from runyard.xcresult.formats.comparing import Change, Difference, compare, path_of
from runyard.xcresult.reader.model import Action, BuildIssue, Case, RunnerError


def names(changes: tuple[Change, ...]) -> list[str]:
    return [change.name for change in changes]


def broken(name: str) -> Case:
    return case(name, run("Failure", failures=(failure("why not"),)), status="Failure")


def shaky(name: str) -> Case:
    return case(name, run("Failure", retry=1, failures=(failure("now"),)), run(retry=2), flaky=True)


def test_each_kind_of_change_is_reported_once() -> None:
    before = result(
        case("broke()"),
        broken("fixed()"),
        broken("still()"),
        case("shook()"),
        shaky("calm()"),
        case("gone()"),
    )
    after = result(
        broken("broke()"),
        case("fixed()"),
        broken("still()"),
        shaky("shook()"),
        case("calm()"),
        broken("new()"),
    )
    found = compare(before, after)
    assert names(found.newly_failing) == ["broke()", "new()"]
    assert names(found.fixed) == ["fixed()"]
    assert names(found.still_failing) == ["still()"]
    assert names(found.newly_flaky) == ["shook()"]
    assert names(found.no_longer_flaky) == ["calm()"]
    assert names(found.added) == ["new()"]
    assert names(found.removed) == ["gone()"]
    assert found.unchanged == 1
    assert found.worse
    first = found.newly_failing[0]
    assert (first.before, first.after, first.message) == (
        "Success",
        "Failure",
        "CartTests.swift:7: why not",
    )
    assert path_of(first) == "AppTests / CartTests / broke()"
    assert found.newly_flaky[0].message == "CartTests.swift:7: now"


def test_a_result_is_no_different_from_itself() -> None:
    same = result(case("a()"), broken("b()"), shaky("c()"))
    found = compare(same, same)
    empty = Difference(
        newly_failing=(),
        fixed=(),
        still_failing=found.still_failing,
        newly_flaky=(),
        no_longer_flaky=(),
        slower=(),
        faster=(),
        added=(),
        removed=(),
        new_errors=(),
        unchanged=3,
    )
    assert found == empty and not found.worse


def test_slower_needs_a_factor_and_a_time() -> None:
    before = result(
        *(
            case(name, run(duration=time or 0.0))
            for name, time in [
                ("long()", 10.0),
                ("tiny()", 0.001),
                ("slow()", 1.0),
                ("worst()", 1.0),
                ("none()", None),
            ]
        )
    )
    after = result(
        *(
            case(name, run(duration=time or 0.0))
            for name, time in [
                ("long()", 11.0),
                ("tiny()", 0.09),
                ("slow()", 2.0),
                ("worst()", 5.0),
                ("none()", 9.0),
            ]
        )
    )
    assert names(compare(before, after).slower) == ["worst()", "slow()"]
    assert names(compare(after, before).faster) == ["worst()", "slow()"]
    assert names(compare(before, after, factor=1.05, seconds=0.01).slower) == [
        "worst()",
        "long()",
        "slow()",
        "tiny()",
    ]


def test_a_renamed_plan_does_not_make_every_test_new() -> None:
    before, after = result(case("a()")), result(case("a()"))
    renamed = replace(after, cases=tuple(replace(each, plan="New") for each in after.cases))
    assert compare(before, renamed).unchanged == 1
    both = replace(after, cases=(*after.cases, *renamed.cases))
    assert names(compare(both, both).added) == [] and compare(both, both).unchanged == 2


def test_same_names_in_two_targets_are_two_tests() -> None:
    before = result(case("a()"), case("a()", target="Other"))
    after = result(case("a()"), case("a()", target="Other", status="Failure"))
    assert [change.target for change in compare(before, after).newly_failing] == ["Other"]


def test_a_build_that_fails_now_is_worse() -> None:
    issue = BuildIssue(kind="error", message="no such module")
    before, after = result(case("a()")), result(issues=(issue,))
    assert compare(before, after).new_errors == ("build: no such module",)
    assert compare(before, after).worse and not compare(after, after).worse
    silent = replace(result(), actions=(Action(build_status="failed"),))
    assert compare(before, silent).worse and not compare(silent, before).worse


def test_a_runner_that_fails_now_is_worse() -> None:
    after = result(case("a()"), errors=(RunnerError(message="crashed", target="T"),))
    assert compare(result(case("a()")), after).new_errors == ("T: crashed",)
    assert not compare(after, after).worse
