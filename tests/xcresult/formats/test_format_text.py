"""Tests the tree, Markdown and annotations: failures first, bounded length, untrusted text is escaped."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.xcresult.formats.results import case, everything, failure, result, run

from runyard.cli.xcresultpaint import json_bytes, painted, plain
from runyard.xcresult.formats import words
from runyard.xcresult.formats.github import github
from runyard.xcresult.formats.groups import groups
from runyard.xcresult.formats.markdown import cell, code, fence, markdown
from runyard.xcresult.formats.sources import Sources
from runyard.xcresult.formats.tree import tree
from runyard.xcresult.reader.crashes import CrashReport
from runyard.xcresult.reader.model import (
    Activity,
    Attachment,
    Bug,
    BuildIssue,
    Metric,
    Result,
    RunnerError,
    Tag,
)

HOSTILE = "\x1b[2J\x9b31m</code>`|\u202e\r\n::error::x ##[add-mask]y\x07\u2028@everyone <img src=x>"


def text_of(made: Result, *, only_failures: bool = False, details: bool = False) -> str:
    return plain(tree(made, title="App.xcresult", only_failures=only_failures, details=details))


def test_the_tree_shows_failures_first() -> None:
    shown = text_of(everything())
    lines = shown.splitlines()
    assert lines[0] == (
        "✗ App.xcresult  failed  8 tests: 3 failed, 1 failed as expected, 1 skipped, 3 passed (1 flaky)  1 min 1 s"
    )
    order = [
        shown.index(name)
        for name in ("testFail()", "testFlaky()", "testExpected()", "testSkip()", "testPass()")
    ]
    assert order == sorted(order)
    for words_ in (
        "CartTests.swift:7: 1 is not 2",
        "│ error in UITests: the runner crashed",
        "build error at App.swift:1: no such module",
        "│ not readable: an object is missing",
        "≈ testFlaky()  375 ms  flaky",
        "✗ First Run",
        "✓ Retry 1",
        "✗ [2]",
        "on iPhone 17 (iOS Simulator 26.0)",
    ):
        assert words_ in shown
    assert "inner" not in shown, "a nested failure is shown twice"


def test_only_failures_leaves_out_what_passed() -> None:
    shown = text_of(everything(), only_failures=True)
    assert "testFail()" in shown and "testFlaky()" in shown
    assert "testPass()" not in shown and "OtherTests" not in shown


def test_nothing_of_a_bundle_commands_a_terminal_or_begins_a_line() -> None:
    made = result(
        case(
            HOSTILE,
            run("Failure", failures=(failure(HOSTILE),)),
            status="Failure",
            suites=(HOSTILE,),
            target=HOSTILE,
        ),
        errors=(RunnerError(message=HOSTILE, target=HOSTILE),),
        issues=(BuildIssue(kind="error", message=HOSTILE),),
    )
    shown = plain(tree(made, title=HOSTILE, details=True))
    for line in shown.split("\n"):
        assert line.isprintable(), line
        assert not re.match(r"\s*::", line)
    colours = re.sub(r"\x1b\[[0-9;]*m", "", painted(tree(made, title=HOSTILE)))
    assert all(line.isprintable() for line in colours.split("\n"))


def test_retries_are_judged_by_the_last_and_repetitions_by_the_worst() -> None:
    both = (run("Failure", retry=1), run("Success", retry=2))
    (retried,) = groups(case("a()", *both))
    assert (retried.status, retried.flaky) == ("Success", True)
    fixed = (
        run("Failure", retry=1, mode="FixedIterations"),
        run("Success", retry=2, mode="FixedIterations"),
    )
    (repeated,) = groups(case("a()", *fixed))
    assert (repeated.status, repeated.flaky) == ("Failure", False)
    (unordered,) = groups(case("a()", *reversed(both)))
    assert unordered.status == "Success"


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (None, ""),
        (0.0, "0 ms"),
        (0.0031, "3.1 ms"),
        (0.0996, "100 ms"),
        (0.9, "900 ms"),
        (1.25, "1.2 s"),
        (59.96, "1 min 0 s"),
        (75.2, "1 min 15 s"),
        (3725, "1 h 2 min"),
        (float("nan"), ""),
        (float("inf"), ""),
    ],
)
def test_durations_in_words(seconds: float | None, expected: str) -> None:
    assert words.duration_text(seconds) == expected


def test_markdown_has_counts_failures_flaky_and_slowest() -> None:
    shown = markdown(everything(), title="App.xcresult", sources=Sources(root="/Users/ci/app"))
    assert shown.startswith("## ❌ failed: `App.xcresult`\n")
    assert "| 8 | 3 | 3 | 1 | 1 | 1 | 12 |" in shown
    for words_ in (
        "`AppTests / CartTests / testFail()`",
        "at `Tests/CartTests.swift:7`",
        "1 is not 2",
        "### Flaky",
        "failed 1 of 2 times",
        "### Slowest",
        "with `2`",
        "### Build errors",
        "### Errors",
    ):
        assert words_ in shown


def test_markdown_is_bounded_and_counts_what_it_left_out() -> None:
    many = [
        case(f"t{n}()", run("Failure", failures=(failure("é" * 3000),)), status="Failure")
        for n in range(2000)
    ]
    shown = markdown(result(*many), title="x")
    assert 900_000 < len(shown.encode()) <= 1_000_000
    (left,) = re.findall(r"and (\d+) more failures, left out", shown)
    assert shown.count("t1") and shown.count("\n- `") + int(left) == 2000
    assert len(markdown(result(*many), title="x", limit=5000).encode()) <= 5000


@given(st.text(st.sampled_from("`|<a\n\r\t \\~\x1b\u202e*"), max_size=30))
def test_code_holds_whatever_it_is_given(text: str) -> None:
    span = code(text)
    ticks = re.match("`+", span)
    assert ticks is not None and "\n" not in span and "\x1b" not in span
    inner = span[len(ticks[0]) : -len(ticks[0])]
    assert ticks[0] not in re.findall("`+", inner)
    assert not re.search(r"(?<!\\)\|", cell(text))
    block = fence(text).rstrip("\n").split("\n")
    closing = block[-1]
    assert block[0] == f"{closing}text"
    assert all(
        len(found) < len(closing) for line in block[1:-1] for found in re.findall("`+", line)
    )


def test_annotations_have_places_and_escapes() -> None:
    made = result(
        case(
            "a,b:c()", run("Failure", failures=(failure("100%\nsure: yes, yes"),)), status="Failure"
        ),
    )
    first, last = github([("App.xcresult", made)], sources=Sources(root="/Users/ci/app"))
    assert first == (
        "::error file=Tests/CartTests.swift,line=7,title=AppTests / CartTests / a%2Cb%3Ac()::100%25%0Asure: yes, yes"
    )
    assert last == "runyard: App.xcresult: failure, 1 test: 1 failed"


def test_annotations_are_few_and_the_rest_is_counted() -> None:
    many = [
        case(f"t{n}()", run("Failure", failures=(failure(),)), status="Failure") for n in range(25)
    ]
    lines = list(github([("x", result(*many))], sources=Sources(root="/Users/ci/app")))
    assert sum(line.startswith("::error ") for line in lines) == 10
    assert "runyard: 15 more errors are not annotated: GitHub shows 10" in lines


def test_a_flaky_test_is_a_notice_and_a_build_warning_a_warning() -> None:
    lines = list(github([("x", everything())], sources=Sources(root="/Users/ci/app")))
    assert any(line.startswith("::notice file=Tests/CartTests.swift,line=11,") for line in lines)
    assert any(line.startswith("::warning file=App.swift,line=3,") for line in lines)
    assert lines[0].startswith("::error title=UITests::the runner crashed")


def test_no_annotation_is_made_by_the_bundle_itself() -> None:
    made = result(
        case(
            HOSTILE, run("Failure", failures=(failure(HOSTILE),)), status="Failure", target=HOSTILE
        ),
        errors=(RunnerError(message=HOSTILE),),
    )
    for line in github([(HOSTILE, made)]):
        assert "\n" not in line and "\r" not in line
        assert line.startswith(("::error ", "::warning title=runyard::", "runyard: "))
        assert not line.startswith("runyard: ") or "##[" not in line


def test_a_crash_is_shown_with_its_frames() -> None:
    report = Attachment(filename="App.ips", payload_id="0~ips", present=True, on_failure=True)
    crashed = replace(run("Failure", failures=(failure("Crash"),)), attachments=(report,))
    digest = CrashReport(
        exception_type="EXC_CRASH",
        signal="SIGABRT",
        triggered_thread_frames="0  App  boom\n1  App  main",
    )
    lines = tree(
        result(case("a()", crashed, status="Failure")), title="x", crashes={"0~ips": digest}
    )
    shown = plain(lines)
    assert "│ crashed: EXC_CRASH SIGABRT\n" in shown
    assert "│ 1  App  main\n" in shown


def test_details_show_everything_a_test_recorded() -> None:
    picture = Attachment(
        filename="Shot.png", payload_id="0~p", size=5, present=True, on_failure=True
    )
    inner = Activity(title="tap\x1b", start=1.0, finish=1.5)
    busy = replace(
        run(),
        attachments=(picture, Attachment(filename="Gone.mp4")),
        metrics=(
            Metric(
                identifier="m",
                name="Clock",
                unit="s",
                measurements=(1.0, 2.0),
                baseline_average=1.2,
            ),
        ),
        activities=(Activity(title="Start", activities=(inner,)),),
    )
    annotated = replace(
        case("a()", busy), tags=(Tag("slow"),), bugs=(Bug(identifier="12", url="https://example.invalid/12"),),
        documentation=("what it does",),
    )  # fmt: skip
    shown = text_of(result(annotated), details=True)
    for words_ in ("tags: slow", "bug: 12 https://example.invalid/12", "documentation: what it does",
                   "metric: Clock: 1.5 s (mean of 2), baseline 1.2 s", "attachment: Shot.png (5 bytes, of a failure)",
                   "attachment: Gone.mp4 (not kept)", "· Start", "· tap\\u001b  500 ms"):  # fmt: skip
        assert words_ in shown
    assert "tags" not in text_of(result(annotated))


def test_json_for_a_terminal_means_the_same_and_commands_nothing() -> None:
    written = json_bytes({"name": HOSTILE}).decode()
    assert all(line.isprintable() for line in written.split("\n"))
    assert json.loads(written) == {"name": HOSTILE}
    assert json.loads(json_bytes(1, 2)) == [1, 2]
