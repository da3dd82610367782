"""Tests durations from the log: by target, by suite if names are shared, and unknown if ambiguous."""

from typing import Any

import pytest
from tests.xcresult.reader import stores
from tests.xcresult.reader.encoding import encode
from tests.xcresult.reader.stores import Memory, action, group, module, node, plan_run, run

from runyard.xcresult.errors import TooLarge
from runyard.xcresult.reader.budget import Budget
from runyard.xcresult.reader.decode import decode
from runyard.xcresult.reader.durations import case_seconds, label, suite_seconds, target_seconds
from runyard.xcresult.reader.logs import Line, Log, ended, read_log


def section(title: str, *subsections: Any, **members: Any) -> Any:
    return node("ActivityLogSection", title=title, subsections=list(subsections), **members)


def suite(name: str, output: str = "", *subsections: Any, **members: Any) -> Any:
    members = {"suiteName": name, "emittedOutput": output} | members
    return section(f"Run test suite {name}", *subsections, **members)


def log(*sections: Any, **members: Any) -> Log:
    return read_log(decode(encode(section("Test App", *sections, **members))), Budget())


def at(seconds: float) -> str:
    return f"2026-04-01T09:12:{seconds:06.3f}+0200"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("✔ Test example() passed after 0.108 seconds.", Line("Test", "example()", 0.108)),
        (
            "✘ Test f(x:) with 3 test cases failed after 1 seconds with 1 issue.",
            Line("Test", "f(x:)", 1),
        ),
        ('\u200b\u200b✔ Test "A name" passed after 2.5 seconds.', Line("Test", '"A name"', 2.5)),
        (
            "✘ Suite AppTests failed after 0.005 seconds with 1 issue.",
            Line("Suite", "AppTests", 0.005),
        ),
        ("􁁛  Test a() with 1 test case passed after 0.001 seconds.", Line("Test", "a()", 0.001)),
        ("◇ Test example() started.", None),
        (
            '✔ Test "a "b" passed after 3 seconds" with 2 test cases failed after 0.2 seconds.',
            Line("Test", '"a "b" passed after 3 seconds"', 0.2),
        ),
        ("Test Case '-[A.B c]' passed (0.102 seconds).", None),
        ("looked after 3 seconds", None),
        ("Test x passed after 1.2.3.4 secondsish", None),
    ],
)
def test_lines_of_the_test_library_are_understood(line: str, expected: Line | None) -> None:
    assert ended(f"noise\n{line}\nnoise after noise", Budget()) == ([expected] if expected else [])


def test_a_line_without_end_is_not_searched() -> None:
    assert ended("Test " * 2_000_000 + " after ", Budget()) == []


def test_lines_without_number_do_not_take_all_memory() -> None:
    output = "Test a passed after 1 seconds\n" * 1000
    assert len(ended(output, Budget(held=200_000))) == 1000
    with pytest.raises(TooLarge, match="held_bytes"):
        ended(output, Budget(held=100_000))


def test_the_window_of_a_run_starts_with_its_first_target() -> None:
    launch = section("Launch actions", startTime=at(1), duration=10.0)
    targets = [section("Test target A", startTime=at(4)), section("Test target B", startTime=at(3))]
    assert log(launch, *targets, duration=99.0).seconds == pytest.approx(8.0)
    assert log(launch, duration=99.0).seconds == 99.0
    assert log().seconds is None


def test_launches_that_overlap_are_counted_once() -> None:
    launch = section(
        "Launch actions",
        section("Launch A", startTime=at(0), duration=10.0),
        section("Launch A", startTime=at(5), duration=10.0),
        section("Launch A", startTime=at(30), duration=1.0),
        section("Launch B", startTime=at(0), duration=2.923),
    )
    found = log(launch)
    assert target_seconds([found], "A") == pytest.approx(16.0)
    assert target_seconds([found, found], "B") == 2.923 * 2
    assert target_seconds([found], "C") is None


def test_without_launches_a_target_takes_its_section_for_its_duration() -> None:
    assert target_seconds([log(section("Test target A", duration=22.5))], "A") == 22.5


def target(name: str, output: str, *subsections: Any) -> Any:
    return section(f"Test target {name}", section("App (1)", *subsections, emittedOutput=output))


def test_one_name_in_two_targets_is_two_tests() -> None:
    found = log(
        target("A", "✔ Test a() passed after 1 seconds."),
        section("Testing de", target("B", "✔ Test a() passed after 2 seconds.")),
    )
    named = ((), "a()")
    assert case_seconds([found], "A", [named]) == {named: 1.0}
    assert case_seconds([found], "B", [named]) == {named: 2.0}


ONE, TWO = (("One",), "a()"), (("Two",), "a()")


def test_one_name_in_two_suites_is_distinguished_by_their_sections() -> None:
    first, second = "✔ Test a() passed after 1 seconds.", "✔ Test a() passed after 2 seconds."
    found = log(target("A", f"{first}\n{second}", suite("One", first), suite("Two", second)))
    assert case_seconds([found], "A", [ONE, TWO]) == {ONE: 1.0, TWO: 2.0}


def test_ambiguous_durations_stay_unknown() -> None:
    both = "✔ Test a() passed after 1 seconds.\n✔ Test a() passed after 2 seconds."
    mixed = log(target("A", both, suite("One", both), suite("Two")))
    assert case_seconds([mixed], "A", [ONE, TWO]) == {}
    assert case_seconds([mixed], "A", [ONE]) == {ONE: 1.5}


def test_repeated_tests_take_their_mean_and_suites_their_sum() -> None:
    output = "\n".join(
        f"✔ {what} passed after {seconds} seconds."
        for what, seconds in (("Test a()", 1), ("Suite One", 2), ("Test a()", 3), ("Suite One", 4))
    )
    found = log(target("A", output))
    assert case_seconds([found], "A", [ONE]) == {ONE: 2.0}
    assert suite_seconds([found], "A", [(("One",), "One")]) == {(("One",), "One"): 6.0}


def test_nested_suites_of_one_name_take_their_sections() -> None:
    inner = suite("In", duration=0.5)
    found = log(target("A", "", suite("X", "", inner), suite("Y", "", suite("In", duration=0.25))))
    names = [(("X", "In"), "In"), (("Y", "In"), "In")]
    assert list(suite_seconds([found], "A", names).values()) == [0.5, 0.25]


def test_a_display_name_is_quoted() -> None:
    assert label("a()", "A name") == '"A name"'
    assert label("a()", "a()") == label("a()", "") == "a()"


def test_a_case_without_a_duration_gets_the_one_in_the_log() -> None:
    store = Memory()
    url = "test://com.apple.xcode/App/AppTests/Suite/a()"
    entries = [run("a()", duration=0.0, identifierURL=url), run("b()", duration=0.25)]
    tests_id = store.add(plan_run(module(group("Suite", *entries))))
    output = "\n".join(f"✔ {what} passed after 0.5 seconds." for what in ("Test a()", "Test b()"))
    log_id = store.add(section("Test App", target("AppTests", output), duration=7.0))
    result = stores.read(store, stores.root(store, action(tests_id, log_id=log_id)))
    assert [case.duration for case in result.cases] == [0.5, 0.25]
    assert [case.runs[0].duration for case in result.cases] == [0.0, 0.25]
    assert result.duration == 7.0
    without = stores.Wanted(logs=False)
    assert (
        stores.read(
            store, stores.root(store, action(tests_id, log_id=log_id)), wanted=without
        ).duration
        is None
    )


def test_a_damaged_log_costs_durations_only() -> None:
    store = Memory()
    tests_id = store.add(plan_run(module(group("Suite", run("a()")))))
    broken = stores.root(store, action(tests_id, log_id=store.put(b"junk")))
    result = stores.read(store, broken)
    assert (len(result.cases), result.duration, len(result.warnings)) == (1, None, 1)
