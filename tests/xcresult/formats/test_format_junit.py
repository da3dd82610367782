"""Tests JUnit: the counts that CI servers use, and well-formed documents for any bundle."""

import re
import unicodedata
import xml.etree.ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st
from tests.xcresult.formats.results import SOURCE, case, everything, failure, result, run

from runyard.xcresult.formats.junit import junit
from runyard.xcresult.formats.sources import Sources
from runyard.xcresult.reader.model import Result


def parsed(*results: Result, root: str = "") -> ET.Element:
    return ET.fromstring("\n".join(junit(results, sources=Sources(root=root))).encode())


def by_name(document: ET.Element) -> dict[str, ET.Element]:
    found = {each.attrib["name"]: each for each in document.iter("testcase")}
    assert len(found) == len(list(document.iter("testcase")))
    return found


def test_the_counts_are_those_of_the_elements() -> None:
    document = parsed(everything())
    for element in (document, *document.iter("testsuite")):
        cases = list(element.iter("testcase"))
        counts = {
            "tests": len(cases),
            "failures": sum(each.find("failure") is not None for each in cases),
            "errors": sum(each.find("error") is not None for each in cases),
            "skipped": sum(each.find("skipped") is not None for each in cases),
        }
        assert {name: int(element.attrib[name]) for name in counts} == counts
    assert document.attrib["tests"] == "11"
    assert document.attrib["failures"] == "3"
    assert document.attrib["errors"] == "1"


def test_a_failure_has_its_location_and_message() -> None:
    found = by_name(parsed(everything(), root="/Users/ci/app"))["testFail()"]
    assert found.attrib["classname"] == "AppTests.CartTests"
    assert (found.attrib["file"], found.attrib["line"]) == ("Tests/CartTests.swift", "7")
    (only,) = found.findall("failure")
    assert only.attrib == {"message": "1 is not 2", "type": "Assertion Failure"}
    assert only.text == f"{SOURCE}:7: 1 is not 2"


def test_a_flaky_test_passes_and_keeps_what_failed_before() -> None:
    found = by_name(parsed(everything()))["testFlaky()"]
    assert found.find("failure") is None
    (flaky,) = found.findall("flakyFailure")
    assert flaky.attrib["message"] == "now and then"
    trace = flaky.find("stackTrace")
    assert trace is not None and trace.text == f"{SOURCE}:11: now and then"
    assert found.attrib["time"] == "0.375000"


def test_a_test_that_never_passed_names_its_reruns() -> None:
    found = by_name(parsed(everything()))["testStubborn()"]
    assert [each.attrib["message"] for each in found.findall("failure")] == ["first"]
    assert [each.attrib["message"] for each in found.findall("rerunFailure")] == ["second"]


def test_arguments_and_devices_are_cases_of_their_own() -> None:
    found = by_name(parsed(everything()))
    assert found["sum(of:) [1]"].find("failure") is None
    assert found["sum(of:) [2]"].find("failure") is not None
    assert found["sum(of:) [2]"].attrib["classname"] == "AppTests.Maths.Sums"
    assert {
        "everywhere() [iPhone 17 (iOS Simulator 26.0)]",
        "everywhere() [iPad Air (iOS Simulator 26.0)]",
    } <= set(found)


def test_a_skip_has_its_reason_and_an_expected_failure_passes() -> None:
    found = by_name(parsed(everything()))
    skipped = found["testSkip()"].find("skipped")
    assert skipped is not None and skipped.attrib == {"message": "not today"}
    assert found["testExpected()"].find("failure") is None
    output = found["testExpected()"].findtext("system-out")
    assert output == "expected failure: known: CartTests.swift:31: as always"


def test_a_failure_without_a_reason_is_still_a_failure() -> None:
    silent = result(case("testFail()", run("Failure"), status="Failure"))
    assert parsed(silent).attrib["failures"] == "1"


def test_an_unknown_time_is_omitted() -> None:
    made = result(case("testFast()", run(duration=0.0)))
    assert "time" not in by_name(parsed(made))["testFast()"].attrib


def test_several_results_are_one_document() -> None:
    assert parsed(everything(), result(case("testMore()"))).attrib["tests"] == "12"
    assert parsed().attrib["tests"] == "0"


@given(st.text(st.characters(), max_size=40))
def test_no_text_breaks_the_document(text: str) -> None:
    made = result(
        case(
            text,
            run("Failure", failures=(failure(text),)),
            status="Failure",
            suites=(text,),
            target=text,
        )
    )
    lines = "\n".join(junit([made]))
    assert not [
        c
        for c in lines
        if unicodedata.category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"} and c not in "\n\t"
    ]
    document = ET.fromstring(lines.encode())
    failure_element = document.find(".//failure")
    assert failure_element is not None
    legal = re.sub("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "", text)
    assert failure_element.attrib["message"] == legal


def test_a_huge_message_is_cut() -> None:
    made = result(
        case("a()", run("Failure", failures=(failure("x" * 10_000_000),)), status="Failure")
    )
    assert len("\n".join(junit([made]))) < 200_000
