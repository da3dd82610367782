"""Tests that the rows depend only on the report and its run, and are in the right tables."""

import msgspec

from runyard.xcresult.plans.rows import Owner, Row, Rows, case_id, digest
from runyard.xcresult.reader.crashes import CrashReport
from runyard.xcresult.reader.report_model import (
    Module,
    Report,
    ReportArgument,
    ReportAttachment,
    ReportCase,
    ReportFailure,
    ReportRepetition,
    ReportSuite,
)

OWNER = Owner(account="acme", project="app", run_id="r", shard=0)
FAILURE = ReportFailure(message="no", path="a.swift", line_number=3, issue_type="assertion_failure")
AGAIN = ReportRepetition(
    repetition_number=2, name="Retry 1", status="failure", duration=1, failures=(FAILURE,)
)
PICTURE = ReportAttachment(file_name="a.png", payload_id="0~x", size=5)
CRASH = ReportAttachment(file_name="b.IPS", payload_id="0~y", size=6)
CASE = ReportCase(
    name="test",
    test_suite_name="Suite",
    module="Tests",
    duration=None,
    status="failure",
    failures=(FAILURE,),
    repetitions=(AGAIN, AGAIN),
    arguments=(
        ReportArgument(
            name="1", status="failure", duration=2, failures=(FAILURE,), repetitions=(AGAIN,)
        ),
    ),
    crash_report=CrashReport(signal="SIGTRAP"),
    attachments=(PICTURE, CRASH, PICTURE),
    identifier="Suite/test()",
)
TOP = msgspec.structs.replace(CASE, test_suite_name=None, identifier="top()", attachments=())
REPORT = Report(
    test_plan_name="plan",
    status="failure",
    duration=None,
    test_modules=(
        Module(
            name="Tests",
            status="failure",
            duration=9,
            test_suites=(ReportSuite(name="Suite", status="failure", duration=4),),
            test_cases=(CASE, TOP),
        ),
    ),
)


def tables(
    report: Report = REPORT, owner: Owner = OWNER, **how: tuple[str, ...]
) -> dict[str, list[Row]]:
    return {table: list(rows) for table, rows in Rows(report, owner, **how).tables()}


def test_a_run_that_is_processed_again_gives_the_same_rows() -> None:
    assert tables() == tables()


def test_a_failure_has_its_location() -> None:
    places = [
        (row["number"], row["argument"], row["repetition"], row["failure"])
        for row in tables()["failures"]
    ]
    one = [(1, 0, 0, 1), (1, 1, 0, 1), (1, 0, 1, 1), (1, 0, 2, 1), (1, 1, 1, 1)]
    assert sorted(places) == sorted([*one, *((2, *rest) for _, *rest in one)])
    assert len(places) == len(set(places))


def test_a_function_without_a_suite_has_none() -> None:
    assert [row["suite"] for row in tables()["case_runs"]] == [1, None]
    assert tables()["suites"][0]["cases"] == 1 and tables()["modules"][0]["cases"] == 2


def test_a_payload_is_there_once_and_its_attachments_each() -> None:
    found = tables()
    assert [row["content_id"] for row in found["payloads"]] == ["0~x", "0~y"]
    assert len({row["attachment_id"] for row in found["attachments"]}) == 3
    (first, _) = found["crashes"]
    assert first["attachment_id"] == found["attachments"][1]["attachment_id"]


def test_bytes_that_do_not_match_their_id_are_not_shared() -> None:
    other = msgspec.structs.replace(OWNER, run_id="other")
    shared = [rows["payloads"][0]["payload_id"] for rows in (tables(), tables(owner=other))]
    assert shared[0] == shared[1]
    apart = [
        tables(owner=each, unsound=("0~x",))["payloads"][0]["payload_id"] for each in (OWNER, other)
    ]
    assert len({*shared, *apart}) == 3


def test_a_test_is_the_same_in_every_run_and_another_in_every_project() -> None:
    shown = msgspec.structs.replace(CASE, name="A test", status="success")
    assert case_id(OWNER, CASE) == case_id(OWNER, shown)
    assert case_id(OWNER, CASE) != case_id(msgspec.structs.replace(OWNER, project="b"), CASE)
    assert digest("a", "bc") != digest("ab", "c")


def test_tests_are_locked_in_one_order_whatever_order_they_ran_in() -> None:
    """Concurrent transactions must not deadlock."""
    cases = [msgspec.structs.replace(TOP, identifier=f"test{number}()") for number in range(100)]

    def written(*ran: ReportCase) -> list[Row]:
        module = msgspec.structs.replace(REPORT.test_modules[0], test_cases=ran)
        return tables(msgspec.structs.replace(REPORT, test_modules=(module,)))["cases"]

    first = written(*cases)
    assert written(*reversed(cases), *cases[:5]) == first, "each once, too"
    ids = [str(row["case_id"]) for row in first]
    assert ids == sorted(ids)


def test_numbers_of_a_bundle_are_limited_to_their_columns() -> None:
    sky = 10**17
    again = msgspec.structs.replace(AGAIN, repetition_number=sky)
    failure = msgspec.structs.replace(FAILURE, line_number=sky)
    picture = msgspec.structs.replace(PICTURE, repetition_number=sky)
    case = msgspec.structs.replace(
        CASE, repetitions=(again,), failures=(failure,), attachments=(picture,)
    )
    module = msgspec.structs.replace(REPORT.test_modules[0], test_cases=(case,))
    found = tables(msgspec.structs.replace(REPORT, test_modules=(module,)))
    numbers = [row["repetition_number"] for row in (*found["repetitions"], *found["attachments"])]
    assert numbers == [2**31 - 1, 2, 2**31 - 1]
    assert found["failures"][0]["line_number"] == 2**31 - 1
