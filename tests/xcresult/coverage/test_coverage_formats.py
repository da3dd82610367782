"""Tests the coverage formats: valid, complete, and safe to print with any file name."""

import json
import xml.etree.ElementTree as ET

import pytest
from tests.xcresult.coverage.measured import Report, Store, archive, counts, functions, run

from runyard.xcresult.formats.coverage import FORMATS, render_coverage
from runyard.xcresult.formats.sources import Sources
from runyard.xcresult.reader.coverage.model import Coverage
from runyard.xcresult.reader.coverage.reading import read_coverage

ODD = '/src/a<b>&"\n\x1b[31m\0.swift'


@pytest.fixture
def coverage() -> Coverage:
    report = Report()
    shared = report.file("/src/Sub/A.swift", functions(("run(a:b:)", 2, 2, 3, 7)), 2, 3)
    odd = report.file(ODD, functions(("f\n()", 1, 1, 1, 1)), 1, 1)
    report.target("App.app", [shared], 2, 3)
    report.target("Tests.xctest", [shared, odd], 3, 4)
    lines = archive(
        {
            "/src/Sub/A.swift": counts([run(None), run(7, 2), run(0)], [(3, 1, 4, 2)]),
            ODD: counts([run(1)]),
        }
    )
    store = Store()
    found = read_coverage(store, store.measured("a", report.data(), lines))
    assert found is not None
    return found


def text(coverage: Coverage, form: str, **options: object) -> str:
    return "".join(render_coverage(coverage, form, **options))


def test_json_has_targets_files_functions_lines_and_ranges(coverage: Coverage) -> None:
    found = json.loads(text(coverage, "json"))
    assert (found["covered_lines"], found["executable_lines"]) == (5, 7)
    target = found["targets"][0]
    assert target["line_coverage"] == pytest.approx(2 / 3)
    assert target["files"][0]["functions"] == [
        {
            "name": "run(a:b:)",
            "line": 2,
            "executions": 7,
            "covered_lines": 2,
            "executable_lines": 3,
        }
    ]
    assert found["files"][0] == {
        "path": "/src/Sub/A.swift",
        "lines": [[2, 7], [3, 7], [4, 0]],
        "ranges": [{"line": 3, "column": 1, "length": 4, "count": 2}],
    }
    assert found["files"][1]["path"] == ODD


def test_json_of_nothing_is_json() -> None:
    assert json.loads(text(Coverage(), "json"))["targets"] == []


def test_lcov_names_each_file_once_and_its_sums_are_right(coverage: Coverage) -> None:
    records = text(coverage, "lcov").split("end_of_record\n")
    assert records[0].splitlines() == [
        "TN:",
        "SF:/src/Sub/A.swift",
        "FN:2,run(a:b:)",
        "FNDA:7,run(a:b:)",
        "FNF:1",
        "FNH:1",
        "DA:2,7",
        "DA:3,7",
        "DA:4,0",
        "LF:3",
        "LH:2",
    ]
    assert len(records) == 3  # two files, and the end
    assert all(line[:3].isalpha() or line[:2].isalpha() for line in records[1].splitlines())


def test_cobertura_is_well_formed_whatever_a_file_is_called(coverage: Coverage) -> None:
    root = ET.fromstring(text(coverage, "cobertura", sources=Sources(root="/src"), timestamp=12.5))
    assert root.attrib["lines-covered"] == "5"
    assert root.attrib["timestamp"] == "12.500"
    classes = {each.attrib["filename"]: each for each in root.iter("class")}
    assert set(classes) == {"Sub/A.swift", 'a<b>&"??[31m?.swift'}
    found = classes["Sub/A.swift"]
    assert found.attrib["name"] == "Sub.A"
    assert [(line.attrib["number"], line.attrib["hits"]) for line in found.iter("line")] == [
        ("2", "7"),
        ("3", "7"),
        ("4", "0"),
    ]
    assert [child.tag for child in root] == ["sources", "packages"]
    for element in root.iter("package"):
        assert {"name", "line-rate", "branch-rate", "complexity"} <= set(element.attrib)


def test_coverage_does_not_need_to_know_where_the_checkout_was(coverage: Coverage) -> None:
    sources = Sources(files=frozenset(("Sub/A.swift", "A.swift")))
    named = ET.fromstring(text(coverage, "cobertura", sources=sources)).iter("class")
    assert "Sub/A.swift" in {each.attrib["filename"] for each in named}
    assert "SF:Sub/A.swift" in text(coverage, "lcov", sources=sources).splitlines()


def test_cobertura_without_a_report_counts_the_lines() -> None:
    lines = archive({"/src/A.swift": counts([run(1, 3), run(0)])})
    store = Store()
    found = read_coverage(store, store.measured("a", None, lines))
    assert found is not None
    root = ET.fromstring(text(found, "cobertura"))
    assert (root.attrib["lines-covered"], root.attrib["lines-valid"]) == ("3", "4")


def test_the_table_has_a_line_for_each_target_and_file(coverage: Coverage) -> None:
    lines = text(coverage, "text").splitlines()
    assert lines[2].split() == ["App.app", "66.67%", "(2/3)"]
    assert lines[3].split() == ["A.swift", "66.67%", "(2/3)"]
    assert lines[-1].split() == ["Total", "71.43%", "(5/7)"]


@pytest.mark.parametrize("form", ["lcov", "cobertura", "text"])
def test_no_name_reaches_a_terminal_as_a_command(coverage: Coverage, form: str) -> None:
    written = text(coverage, form)
    assert "\x1b" not in written
    assert "\0" not in written


def test_all_formats_are_offered() -> None:
    assert FORMATS == ("json", "cobertura", "lcov", "text")
